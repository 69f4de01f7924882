/* The session of an answer, and the state that generate keeps between runs:
 * session files and the prefix cache. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/err.h"
#include "cli/answer/gen_job.h"
#include "cli/answer/gen_kept.h"
#include "cli/io/out.h"
#include "cli/io/signals.h"

int gen_check_save(const struct gen_job *j)
{
    const char *path = j->a->save_session;
    const char *slash = path ? strrchr(path, '/') : NULL;
    struct stat st;
    struct qwick_err e;
    if (!path)
        return 0;
    if (lstat(path, &st) == 0 && !S_ISREG(st.st_mode)) {
        msg_error("%s: is %s; --save-session replaces regular files only", path,
                  S_ISLNK(st.st_mode) ? "a symbolic link"
                                      : "not a regular file");
        return QWICK_ERR_RUNTIME;
    }
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
    size_t n_ctx = (size_t)j->a->ctx;
    int rc = j->a->session
                 ? qwick_session_load(&j->ses, j->eng, j->a->session, n_ctx, &e)
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
    const char *path = j->a->save_session;
    size_t n = qwick_session_length(j->ses);
    if (n == qwick_session_n_ctx(j->ses))
        msg_warn("%s: the context of %zu is full, the answer's last token is "
                 "not in it",
                 path, n);
    else if (r->n_tokens && n < r->n_prompt + r->n_tokens &&
             qwick_session_decode(j->ses, r->tokens[r->n_tokens - 1], &e))
        return msg_fail(&e);
    return qwick_session_set_note(j->ses, note, n_note, &e) ||
                   qwick_session_save(j->ses, path, &e)
               ? msg_fail(&e)
               : 0;
}

int gen_keep(struct gen_job *j, const struct qwick_result *r)
{
    struct qwick_err e;
    char *json = NULL;
    size_t n = 0;
    bool kept = j->a->keep || j->a->go_on;
    int status = 0;
    if (*signals_flag()) {
        if (j->a->save_session)
            msg_warn("%s: not saved, as the answer was interrupted",
                     j->a->save_session);
        if (kept)
            msg_warn("the conversation is not kept, as the answer was "
                     "interrupted");
        return 0;
    }
    if (qwick_session_store(j->ses, r->n_prompt, &e))
        msg_warn("prefix cache: %s", e.msg);
    if ((kept || j->a->save_session) && gen_kept_json(j, r, &json, &n, &e))
        return msg_fail(&e);
    if (kept && json)
        status = gen_kept_write(json, n);
    if (!status && j->a->save_session)
        status = gen_save(j, r, json, n);
    free(json);
    return status;
}

int gen_open_constraint(struct gen_job *j)
{
    struct qwick_constraint_options o;
    struct buf text = {0};
    struct qwick_err e;
    if (j->choice.kind == CHOICE_AUTO || !j->tools.list.len)
        return constraint_open(&j->constraint, &j->kind, j->eng, j->p);
    int rc = tool_choice_constraint(&j->choice, &j->tools.list, &text, &o, &e);
    o.name = j->a->tool_choice ? "--tool-choice" : "tool_choice";
    j->kind = o.kind;
    if (!rc)
        rc = qwick_constraint_create(&j->constraint, j->eng, &o, &e);
    buf_free(&text);
    return rc ? msg_fail(&e) : 0;
}

void gen_free(struct gen_job *j)
{
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
}
