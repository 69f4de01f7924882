#include "cli/chat/chat_model.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/err.h"
#include "cli/io/out.h"
#include "cli/io/signals.h"
#include "file/fs.h"

/* More than a context's text takes. */
enum { MAX_NAME = 1 << 16, MAX_JSON = 1 << 30 };

struct chat_request {
    uint32_t op;
    int32_t think; /* enum qwick_think */
    uint64_t number;
    uint64_t n_json;
};

/* Read n bytes. Returns 0, or -1 at the end or on a failure. m: forward signals
 * meanwhile (NULL: none). */
static int read_all(int fd, void *p, size_t n, struct chat_model *m);

/* ---- in the process of the model ----------------------------------------- */

static int send_reply(const struct chat *c, int to, int status,
                      struct chat_reply *r)
{
    const struct qwick_info *info =
        c->j.eng ? qwick_engine_info(c->j.eng) : NULL;
    const char *name = info ? info->model : "";
    r->fixed.status = status;
    r->fixed.unsaved = c->unsaved;
    r->fixed.signal = (uint8_t)*signals_flag();
    r->fixed.n_name = strlen(name);
    r->fixed.n_json = r->n_json;
    int bad = write_all(to, &r->fixed, sizeof r->fixed) ||
              write_all(to, name, r->fixed.n_name) ||
              write_all(to, r->json, r->n_json);
    free(r->json);
    *r = (struct chat_reply){0};
    return bad ? -1 : 0;
}

/* Make the conversation that of the request. */
static int take_chat(struct chat *c, int from, size_t n)
{
    struct qwick_err e;
    char *json = malloc(n + 1);
    if (!json || read_all(from, json, n, NULL)) {
        free(json);
        return -1;
    }
    qwick_chat_free(c->j.chat);
    int rc = qwick_chat_create(&c->j.chat, &e) ||
             qwick_chat_add_json(c->j.chat, json, n, &e);
    free(json);
    if (rc)
        msg_fail(&e);
    return rc;
}

static int answer_request(struct chat *c, const struct chat_request *q,
                          struct chat_reply *r)
{
    c->j.think = (enum qwick_think)q->think;
    signals_forget_int(); /* Ctrl-C at the prompt came here, too */
    switch ((enum chat_op)q->op) {
    case CHAT_ANSWER:
        return chat_child_answer(c, q->number, r);
    case CHAT_SAVE:
        return chat_child_save(c);
    case CHAT_COUNT:
        r->fixed.n_tokens = chat_child_count(c);
        return 0;
    }
    return QWICK_ERR_RUNTIME;
}

_Noreturn static void run_child(struct chat *c, long parent, int from, int to)
{
    struct chat_reply r = {0};
    struct chat_request q;
    int null = open("/dev/null", O_RDONLY | O_CLOEXEC);
    /* not later than the chat, however that ends */
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent || null < 0 || dup2(null, STDIN_FILENO) < 0)
        _exit(QWICK_ERR_RUNTIME);
    close(null);
    signals_forked();
    int status = chat_child_open(c, &r);
    int bad = send_reply(c, to, status, &r);
    while (!status && !bad && !read_all(from, &q, sizeof q, NULL))
        bad = take_chat(c, from, q.n_json) ||
              send_reply(c, to, answer_request(c, &q, &r), &r);
    signals_finish(); /* dies by a signal that only this process got */
    _exit(status);
}

/* ---- in the chat's own process ------------------------------------------- */

static int read_all(int fd, void *p, size_t n, struct chat_model *m)
{
    char *at = p;
    while (n) {
        struct pollfd ready = {.fd = fd, .events = POLLIN};
        if (m && !m->passed_on && *signals_flag() && signals_were_sent()) {
            m->passed_on = true;
            kill((pid_t)m->pid, *signals_flag());
        }
        /* a signal that comes before the wait does not end it */
        int got = m ? poll(&ready, 1, 50) : 1;
        if (got == 0 || (got < 0 && errno == EINTR))
            continue;
        /* the process of the model ends where a signal wants that */
        if (!m && *signals_flag() && *signals_flag() != SIGINT)
            return -1;
        ssize_t k = got < 0 ? -1 : read(fd, at, n);
        if (k < 0 && errno == EINTR)
            continue;
        if (k <= 0)
            return -1;
        at += k;
        n -= (size_t)k;
    }
    return 0;
}

/* Read n bytes and a NUL to *out, malloc'ed; NULL if n is 0. */
static int read_text(struct chat_model *m, char **out, uint64_t n,
                     size_t max)
{
    *out = NULL;
    if (!n)
        return 0;
    char *text = n <= max ? malloc(n + 1) : NULL;
    if (!text || read_all(m->from, text, n, m)) {
        free(text);
        return -1;
    }
    text[n] = 0;
    *out = text;
    return 0;
}

static int read_reply(struct chat *c, struct chat_reply *r)
{
    struct chat_model *m = &c->model;
    char *name;
    *r = (struct chat_reply){0};
    m->passed_on = false;
    if (read_all(m->from, &r->fixed, sizeof r->fixed, m) ||
        read_text(m, &name, r->fixed.n_name, MAX_NAME))
        return -1;
    free(m->name);
    m->name = name;
    r->n_json = r->fixed.n_json;
    if (read_text(m, &r->json, r->n_json, MAX_JSON))
        return -1;
    if (r->fixed.limit) { /* of the first reply */
        c->j.limit = r->fixed.limit;
        m->greedy = r->fixed.greedy;
    }
    return 0;
}

/* Wait for the end of the process, and close the pipes. Returns its status. */
static int reap(struct chat_model *m)
{
    int status = 0;
    if (!m->pid)
        return 0;
    close(m->to);
    close(m->from);
    while (waitpid((pid_t)m->pid, &status, 0) < 0 && errno == EINTR)
        continue;
    m->pid = 0;
    return status;
}

/* The process has ended, or sent nonsense. ends: it is about to. */
static int gone(struct chat_model *m, bool ends)
{
    if (!ends)
        kill((pid_t)m->pid, SIGKILL);
    int status = reap(m);
    if (*signals_flag())
        return -1; /* it got the signal, too */
    if (WIFSIGNALED(status))
        msg_error("the process of the model ended by signal %d (%s); the "
                  "conversation is kept, and the next message starts it again",
                  WTERMSIG(status), strsignal(WTERMSIG(status)));
    else
        msg_error("the process of the model ended with status %d; the "
                  "conversation is kept, and the next message starts it again",
                  WEXITSTATUS(status));
    return -1;
}

int chat_model_start(struct chat *c, struct chat_reply *r)
{
    struct chat_model *m = &c->model;
    long parent = getpid();
    int to[2] = {-1, -1}, from[2] = {-1, -1};
    *r = (struct chat_reply){0};
    pid_t pid = pipe2(to, O_CLOEXEC) || pipe2(from, O_CLOEXEC) ? -1 : fork();
    if (pid < 0) {
        msg_error("cannot start the process of the model: %s", strerror(errno));
        for (int i = 0; i < 2; i++) {
            if (to[i] >= 0)
                close(to[i]);
            if (from[i] >= 0)
                close(from[i]);
        }
        return QWICK_ERR_RUNTIME;
    }
    if (pid == 0) {
        close(to[1]);
        close(from[0]);
        run_child(c, parent, to[0], from[1]);
    }
    close(to[0]);
    close(from[1]);
    m->pid = pid;
    m->to = to[1];
    m->from = from[0];
    if (read_reply(c, r)) {
        int status = reap(m);
        if (WIFSIGNALED(status) && !*signals_flag())
            msg_error("the process of the model ended by signal %d (%s)",
                      WTERMSIG(status), strsignal(WTERMSIG(status)));
        return WIFEXITED(status) && WEXITSTATUS(status) ? WEXITSTATUS(status)
                                                        : QWICK_ERR_RUNTIME;
    }
    if (r->fixed.status)
        reap(m);
    return r->fixed.status;
}

int chat_model_ask(struct chat *c, enum chat_op op, struct chat_reply *r)
{
    struct chat_model *m = &c->model;
    struct qwick_err e;
    char *json;
    size_t n;
    *r = (struct chat_reply){0};
    if (!m->pid) {
        if (chat_model_start(c, r))
            return -1;
        free(r->json); /* of the session: the conversation is newer */
        *r = (struct chat_reply){0};
    }
    if (qwick_chat_json(c->j.chat, &json, &n, &e)) {
        msg_fail(&e);
        return -1;
    }
    const struct chat_request q = {op, c->j.think, c->n_answers, n};
    int bad = write_all(m->to, &q, sizeof q) || write_all(m->to, json, n) ||
              read_reply(c, r);
    free(json);
    bool ends = !bad && r->fixed.signal && r->fixed.signal != SIGINT;
    if (!bad && !ends)
        return 0;
    (void)gone(m, ends);
    if (ends && r->json) /* the answer was complete */
        return 0;
    free(r->json);
    r->json = NULL;
    return -1;
}

void chat_model_stop(struct chat *c)
{
    struct chat_model *m = &c->model;
    if (m->pid) {
        close(m->to); /* the end of its input ends it */
        m->to = -1;
    }
    reap(m);
    free(m->name);
    m->name = NULL;
}
