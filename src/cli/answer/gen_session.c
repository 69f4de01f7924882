/* The session of an answer, and the state that stays between runs: session
 * files, the prefix cache, and the conversation that --continue goes on with.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/err.h"
#include "base/utf8.h"
#include "cli/answer/chat_input.h"
#include "cli/answer/gen_job.h"
#include "cli/io/out.h"
#include "cli/io/signals.h"
#include "cli/io/state_file.h"
#include "cli/store/conversation_store.h"
#include "cli/store/log_db.h"
#include "file/save.h"

int gen_check_save(const struct gen_job *j)
{
    const char *path = j->p->a.save_session;
    const char *slash = path ? strrchr(path, '/') : NULL;
    struct stat st;
    struct qwick_err e;
    if (!path)
        return 0;
    if (lstat(path, &st) == 0 && !S_ISREG(st.st_mode))
        return msg_failure(
            "%s: is %s; --save-session replaces regular files only", path,
            S_ISLNK(st.st_mode) ? "a symbolic link" : "not a regular file");
    if (qwick_session_check_file(path, &e))
        return msg_fail(&e);
    char *dir = !slash          ? strdup(".")
                : slash == path ? strdup("/")
                                : strndup(path, (size_t)(slash - path));
    if (!dir)
        return msg_oom();
    int bad = access(dir, W_OK | X_OK);
    if (bad)
        msg_error("%s: --save-session cannot write to %s: %s", path, dir,
                  strerror(errno));
    free(dir);
    return bad ? QWICK_ERR_RUNTIME : 0;
}

int gen_open_session(struct gen_job *j)
{
    struct qwick_err e;
    size_t n_ctx = (size_t)j->p->a.ctx;
    int rc = j->p->a.session ? qwick_session_load(&j->ses, j->eng,
                                                  j->p->a.session, n_ctx, &e)
                             : qwick_session_create(&j->ses, j->eng, n_ctx, &e);
    if (rc)
        return msg_fail(&e);
    j->limit = qwick_session_n_ctx(j->ses);
    return 0;
}

int gen_continue(struct gen_job *j, struct qwick_err *e)
{
    size_t n_old;
    const int32_t *old = qwick_session_tokens(j->ses, &n_old);
    size_t n = n_old + j->n_ids;
    int32_t *ids = malloc(n * sizeof(*ids));
    if (!ids)
        return err_oom(e, n * sizeof(*ids));
    if (n_old)
        memcpy(ids, old, n_old * sizeof(*ids));
    memcpy(ids + n_old, j->ids, j->n_ids * sizeof(*ids));
    free(j->ids);
    j->ids = ids;
    j->n_ids = n;
    return 0;
}

/* The last token of the answer is added to the context first. */
int gen_save(struct gen_job *j, const struct qwick_result *r, const char *note,
             size_t n_note)
{
    struct qwick_err e;
    const char *path = j->p->a.save_session;
    size_t n = qwick_session_length(j->ses);
    if (n == qwick_session_n_ctx(j->ses))
        msg_warn("%s: the context of %zu is full, the answer's last token is "
                 "not in it",
                 path, n);
    else if (r->n_tokens && n < r->n_prompt + r->n_tokens &&
             qwick_session_decode(j->ses, r->tokens[r->n_tokens - 1], &e))
        return msg_fail(&e);
    return msg_result(qwick_session_set_note(j->ses, note, n_note, &e) ||
                          qwick_session_save(j->ses, path, &e),
                      &e);
}

/* ---- the kept conversation ---- */

int gen_kept_check_session(const struct gen_job *j)
{
    size_t n = 1;
    if (j->p->a.session)
        (void)qwick_session_note(j->ses, &n);
    return n ? -1
             : opt_no_effect(j->p, OPT_keep, OPT_session,
                             "with a session that has no messages");
}

int gen_kept_prepare(const struct gen_job *j)
{
    struct buf path = {0};
    struct qwick_err e;
    if (!j->p->a.keep && !j->p->a.go_on)
        return 0;
    const char *option = j->p->a.keep ? "--keep" : "--continue";
    int rc =
        state_need_path(&path, STATE_LAST, option, &e) ||
        state_make_dir(path.data, &e);
    buf_free(&path);
    return msg_result(rc, &e);
}

/* Find the conversation that --keep kept last. */
static int find_last(char **path, struct qwick_err *e)
{
    struct buf b = {0};
    int rc = state_need_path(&b, STATE_LAST, "--continue", e);
    int fd = rc ? -1 : state_open(b.data, O_RDONLY, e);
    if (fd >= 0) {
        close(fd);
        *path = buf_take(&b, NULL);
    } else if (fd == -2) {
        err_set(e, QWICK_ERR_RUNTIME,
                "--continue: no conversation is kept (%s does not exist); "
                "--keep keeps one",
                b.data);
    }
    buf_free(&b);
    return fd < 0 ? -1 : 0;
}

int gen_kept_find(struct gen_job *j, char **path)
{
    const char *name = j->p->a.conversation;
    struct qwick_err e;
    int fd = -1;
    *path = NULL;
    int rc = !name ? find_last(path, &e)
                   : conversation_lock(name, &fd, &e) ||
                         conversation_find(name, path, &j->last_model, &e);
    j->lock_fd = fd > 0 ? fd : 0;
    return msg_result(rc, &e);
}

void gen_kept_hint(const struct qwick_chat *c)
{
    enum { SHOWN = 60 };
    struct qwick_message m;
    size_t i;
    if (!chat_input_last_user(c, &i, &m))
        return;
    const char *end = memchr(m.content, '\n', m.n_content);
    size_t n = end ? (size_t)(end - m.content) : m.n_content;
    bool cut = end || n > SHOWN;
    if (n > SHOWN)
        n = utf8_complete(m.content, SHOWN);
    msg_hint("goes on after \"%.*s%s\"", (int)n, m.content, cut ? "..." : "");
}

/* Append the messages of another conversation. */
static int add_messages(struct qwick_chat *to, const struct qwick_chat *from,
                        struct qwick_err *e)
{
    char *json;
    size_t n;
    if (qwick_chat_json(from, &json, &n, e))
        return -1;
    int rc = qwick_chat_add_json(to, json, n, e);
    free(json);
    return rc;
}

/* Append the answer. The text of --prefill is its beginning, except inside a
 * think block, which later prompts do not show. */
static int add_answer(struct qwick_chat *c, const struct gen_job *j,
                      const struct qwick_result *r, struct qwick_err *e)
{
    struct buf text = {0};
    struct qwick_result whole = *r;
    if (!j->prefill.len || j->in_think)
        return qwick_chat_add_answer(c, r, e);
    if (buf_append(&text, j->prefill.data, j->prefill.len) ||
        buf_append(&text, r->text, r->n_text)) {
        buf_free(&text);
        return err_oom(e, r->n_text);
    }
    whole.text = text.data;
    whole.n_text = text.len;
    int rc = qwick_chat_add_answer(c, &whole, e);
    buf_free(&text);
    return rc;
}

/* Write the whole conversation of a run, with its answer, as JSON. *json is
 * NULL if it is not known: the prompt is no chat, or continues a session that
 * has no messages. */
static int kept_json(const struct gen_job *j, const struct qwick_result *r,
                     char **json, size_t *n, struct qwick_err *e)
{
    struct qwick_chat *c;
    size_t n_note = 0;
    const char *note =
        j->p->a.session ? qwick_session_note(j->ses, &n_note) : NULL;
    *json = NULL;
    *n = 0;
    if (j->mode != MODE_CHAT || (j->p->a.session && !n_note))
        return 0;
    if (qwick_chat_create(&c, e))
        return -1;
    int rc = (note && qwick_chat_add_json(c, note, n_note, e)) ||
             add_messages(c, j->chat, e) || add_answer(c, j, r, e) ||
             qwick_chat_json(c, json, n, e);
    qwick_chat_free(c);
    return rc ? -1 : 0;
}

static int kept_write(const struct gen_job *j, const char *json, size_t n)
{
    const char *name = j->p->a.conversation;
    struct buf path = {0};
    struct qwick_err e;
    if (name)
        return msg_result(
            conversation_write(name, qwick_engine_info(j->eng)->model, json, n,
                               &e),
            &e);
    int rc = state_need_path(&path, STATE_LAST, "--keep", &e) ||
             save_put(path.data, SAVE_PRIVATE, json, n, &e);
    buf_free(&path);
    return msg_result(rc, &e);
}

int gen_keep(struct gen_job *j, const struct qwick_result *r)
{
    struct qwick_err e;
    char *json = NULL;
    size_t n = 0;
    bool kept = j->p->a.keep || j->p->a.go_on || j->p->a.conversation;
    int status = 0;
    if (*signals_flag()) {
        if (j->p->a.save_session)
            msg_warn("%s: not saved, as the answer was interrupted",
                     j->p->a.save_session);
        if (kept)
            msg_warn("the conversation is not kept, as the answer was "
                     "interrupted");
        return 0;
    }
    /* the next prompt of a conversation begins with the answer, too */
    if (qwick_session_store(j->ses,
                            j->p->a.conversation ? qwick_session_length(j->ses)
                                                 : r->n_prompt,
                            &e))
        msg_warn("prefix cache: %s", e.msg);
    if ((kept || j->p->a.save_session) && kept_json(j, r, &json, &n, &e))
        return msg_fail(&e);
    if (kept && json)
        status = kept_write(j, json, n);
    if (!status && j->p->a.save_session)
        status = gen_save(j, r, json, n);
    free(json);
    return status;
}

/* Whether calls that the model may leave out are checked. */
static bool checks_calls(const struct gen_job *j)
{
    return !j->p->a.ignore_eos && !j->prefill.len &&
           qwick_engine_info(j->eng)->call_form;
}

int gen_read_constraint(struct gen_job *j, struct qwick_constraint_options *o,
                        char **text)
{
    struct buf tools = {0};
    struct qwick_err e;
    *o = qwick_constraint_defaults();
    *text = NULL;
    bool is_auto = j->choice.kind == CHOICE_AUTO;
    if ((is_auto || !j->tools.list.len) && constraint_given(j->p))
        return constraint_read(o, text, j->p);
    if (!j->tools.list.len || (is_auto && !checks_calls(j)))
        return 0;
    int rc = tool_choice_constraint(&j->choice, &j->tools.list, &tools, o, &e);
    o->lenient = j->p->a.schema_lenient;
    if (is_auto)
        o->name = j->p->a.tools ? "--tools" : "tools";
    else
        o->name = j->p->a.tool_choice ? "--tool-choice" : "tool_choice";
    *text = buf_take(&tools, NULL);
    return msg_result(rc, &e);
}

int gen_open_constraint(struct gen_job *j)
{
    struct qwick_constraint_options o;
    char *text;
    int status = gen_read_constraint(j, &o, &text);
    j->kind = o.kind;
    if (!status && o.name)
        status = constraint_open(&j->constraint, j->eng, &o);
    free(text);
    return status;
}

void gen_free(struct gen_job *j)
{
    log_db_close(j->log);
    if (j->lock_fd > 0)
        close(j->lock_fd);
    free(j->last_model);
    qwick_session_free(j->ses);
    qwick_constraint_free(j->constraint);
    qwick_engine_close(j->eng);
    qwick_engine_close(j->draft);
    qwick_chat_free(j->chat);
    tools_free(&j->tools);
    tool_choice_free(&j->choice);
    buf_free(&j->text);
    buf_free(&j->system);
    buf_free(&j->prefill);
    free(j->ids);
    free(j->bias);
}
