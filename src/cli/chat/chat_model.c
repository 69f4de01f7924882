#include "cli/chat/chat_model.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cli/chat/chat_job.h"
#include "cli/io/out.h"
#include "cli/io/signals.h"
#include "file/fs.h"
#include "file/json_writer.h"

/* More than a context's text takes. */
enum { MAX_JSON = 1 << 30 };

/* ---- packets ---- */

int chat_packet_send(int fd, struct chat_packet *p)
{
    int bad = write_all(fd, p, sizeof *p) || write_all(fd, p->json, p->n_json);
    free(p->json);
    p->json = NULL;
    return bad ? -1 : 0;
}

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
        /* the child ends where a signal wants that */
        if (!m && *signals_flag() && *signals_flag() != SIGINT)
            return -1;
        ssize_t k = got < 0 ? -1 : read(fd, at, n);
        if (k < 0 && errno == EINTR) {
            if (!m) /* Ctrl-C at the prompt, as often as the user likes */
                signals_forget_int();
            continue;
        }
        if (k <= 0)
            return -1;
        at += k;
        n -= (size_t)k;
    }
    return 0;
}

int chat_packet_receive(int fd, struct chat_packet *p, struct chat_model *m)
{
    int bad = read_all(fd, p, sizeof *p, m);
    p->name[CHAT_NAME_SIZE - 1] = 0;
    p->json = NULL;
    if (bad || !p->n_json)
        return bad;
    if (!m || p->n_json <= MAX_JSON)
        p->json = malloc(p->n_json);
    if (p->json && !read_all(fd, p->json, p->n_json, m))
        return 0;
    free(p->json);
    p->json = NULL;
    return -1;
}

/* ---- the child's life ---- */

/* Wait for the end of the child, and close the socket. Returns its status. */
static int chat_model_reap(struct chat_model *m)
{
    int status = 0;
    if (!m->pid)
        return 0;
    close(m->fd);
    while (waitpid((pid_t)m->pid, &status, 0) < 0 && errno == EINTR)
        continue;
    m->pid = 0;
    return status;
}

static void say_end(int status, const char *then)
{
    if (WIFSIGNALED(status))
        msg_error("the process of the model ended by signal %d (%s)%s",
                  WTERMSIG(status), strsignal(WTERMSIG(status)), then);
    else
        msg_error("the process of the model ended with status %d%s",
                  WEXITSTATUS(status), then);
}

int chat_model_start(struct chat *c, struct chat_packet *r)
{
    struct chat_model *m = &c->model;
    long parent = getpid();
    int fds[2] = {-1, -1};
    *r = (struct chat_packet){0};
    bool bad = socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds) != 0;
    pid_t pid = bad ? -1 : fork();
    if (pid < 0)
        msg_error("cannot start the process of the model: %s", strerror(errno));
    if (pid == 0) {
        close(fds[0]);
        chat_child_run(c, parent, fds[1]);
    }
    if (!bad)
        close(fds[1]);
    if (pid < 0) {
        if (!bad)
            close(fds[0]);
        return QWICK_ERR_RUNTIME;
    }
    *m = (struct chat_model){.pid = pid, .fd = fds[0], .opened = m->opened};
    if (chat_packet_receive(m->fd, r, m)) {
        int status = chat_model_reap(m);
        if (WIFSIGNALED(status) && !*signals_flag())
            say_end(status, "");
        if (WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL)
            return QWICK_ERR_MEMORY; /* so the kernel ends what needs too much
                                      */
        return WIFEXITED(status) && WEXITSTATUS(status) ? WEXITSTATUS(status)
                                                        : QWICK_ERR_RUNTIME;
    }
    if (r->status)
        chat_model_reap(m);
    else
        m->opened = *r;
    m->opened.json = NULL;
    return r->status;
}

int chat_model_switch(struct chat *c)
{
    struct chat_model old = c->model;
    struct chat_packet r;
    bool evaluate = c->evaluate;
    c->evaluate = true;
    c->model = (struct chat_model){0};
    int status = chat_model_start(c, &r);
    if (status == QWICK_ERR_MEMORY && old.pid && !*signals_flag()) {
        msg_notice("%s is closed first, as both models do not fit in memory",
                   old.opened.name);
        chat_model_stop(&old);
        status = chat_model_start(c, &r);
    }
    free(r.json);
    if (!status) {
        chat_model_stop(&old);
        return 0;
    }
    signals_forget_int();
    c->model = old; /* if it is closed, the next message opens it */
    c->evaluate = evaluate || !old.pid;
    chat_say("the chat goes on with %s", old.opened.name);
    return -1;
}

/* Write the change of an option as JSON. */
static int put_change(const struct chat *c, char **json, size_t *n,
                      struct qwick_err *e)
{
    const char *value = c->set.changed[c->change->id];
    struct buf b = {0};
    struct json_writer w = json_writer(&b);
    jw_array(&w, NULL);
    jw_cstr(&w, NULL, c->change->name);
    jw_cstr(&w, NULL, value == chat_unset ? NULL : value);
    jw_end_array(&w);
    if (jw_status(&w)) {
        buf_free(&b);
        return err_oom(e, 1);
    }
    *json = buf_take(&b, n);
    return 0;
}

int chat_model_ask(struct chat *c, enum chat_op op, struct chat_packet *r)
{
    static const char then[] =
        "; the conversation is kept, and the next message starts it again";
    struct chat_model *m = &c->model;
    struct qwick_err e;
    if (!m->pid) {
        int status = chat_model_start(c, r);
        free(r->json); /* of the session: the conversation is newer */
        r->json = NULL;
        if (status)
            return -1;
    }
    *r = (struct chat_packet){
        .op = op, .think = c->j.think, .number = c->n_answers};
    if (op == CHAT_SET ? put_change(c, &r->json, &r->n_json, &e)
                       : qwick_chat_json(c->j.chat, &r->json, &r->n_json, &e)) {
        msg_fail(&e);
        return -1;
    }
    m->passed_on = false;
    int bad = chat_packet_send(m->fd, r) || chat_packet_receive(m->fd, r, m);
    bool ends = !bad && r->signal && r->signal != SIGINT;
    if (!bad && !ends)
        return 0;
    if (!ends) /* it has ended, or sent nonsense */
        kill((pid_t)m->pid, SIGKILL);
    int status = chat_model_reap(m);
    if (!*signals_flag()) /* else it got the signal, too */
        say_end(status, then);
    return ends && r->json ? 0 : -1; /* 0: the answer was complete */
}

void chat_model_stop(struct chat_model *m)
{
    if (m->pid)
        shutdown(m->fd, SHUT_WR); /* the end of its input ends it */
    chat_model_reap(m);
}
