/* What generate keeps between runs: sessions in files, prefixes on disk. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/err.h"
#include "cli/gen_job.h"
#include "cli/out.h"
#include "cli/signals.h"

int gen_check_save(const struct gen_job *j)
{
    const char *path = j->a.save_session;
    const char *slash = path ? strrchr(path, '/') : NULL;
    struct stat st;
    if (!path)
        return 0;
    if (lstat(path, &st) == 0 && !S_ISREG(st.st_mode)) {
        msg_error("%s: is %s; --save-session would replace it", path,
                  S_ISLNK(st.st_mode) ? "a symbolic link" : "no regular file");
        return QWICK_ERR_RUNTIME;
    }
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
    size_t n_ctx = (size_t)j->a.c.ctx;
    int rc = j->a.session
                 ? qwick_session_load(&j->ses, j->eng, j->a.session, n_ctx, &e)
                 : qwick_session_create(&j->ses, j->eng, n_ctx, &e);
    return rc ? msg_fail(&e) : 0;
}

/* What Qwen3's template has between an answer and the next message: the
 * answer's end, unless the model drew it, and a newline. */
static int turn_end(struct gen_job *j, int32_t last, int32_t **ids, size_t *n,
                    struct qwick_err *e)
{
    static const char end[] = "<|im_end|>\n";
    const struct qwick_info *info = qwick_engine_info(j->eng);
    size_t skip = 0;
    for (size_t i = 0; i < info->n_stop_ids; i++)
        if (info->stop_ids[i] == last)
            skip = sizeof(end) - 2;
    return qwick_tokenize(j->eng, end + skip, sizeof(end) - 1 - skip, true, ids,
                          n, e);
}

int gen_continue(struct gen_job *j, struct qwick_err *e)
{
    size_t n_old, n_end = 0;
    const int32_t *old = qwick_session_tokens(j->ses, &n_old);
    int32_t *end = NULL;
    if (j->mode == MODE_CHAT && n_old &&
        turn_end(j, old[n_old - 1], &end, &n_end, e))
        return -1;
    size_t n = n_old + n_end + j->n_ids;
    int32_t *ids = malloc(n * sizeof(*ids));
    if (!ids) {
        free(end);
        return err_oom(e, n * sizeof(*ids));
    }
    if (n_old)
        memcpy(ids, old, n_old * sizeof(*ids));
    if (n_end)
        memcpy(ids + n_old, end, n_end * sizeof(*ids));
    memcpy(ids + n_old + n_end, j->ids, j->n_ids * sizeof(*ids));
    free(end);
    free(j->ids);
    j->ids = ids;
    j->n_ids = n;
    return 0;
}

/* The last token drawn is not in the context so far. */
static int save(struct gen_job *j, const struct qwick_result *r)
{
    struct qwick_err e;
    const char *path = j->a.save_session;
    size_t n = qwick_session_length(j->ses);
    if (n == qwick_session_limit(j->ses))
        msg_warn("%s: the context of %zu is full, the answer's last token is "
                 "not in it",
                 path, n);
    else if (r->n_tokens && n < r->n_prompt + r->n_tokens &&
             qwick_session_decode(j->ses, r->tokens[r->n_tokens - 1], &e))
        return msg_fail(&e);
    return qwick_session_save(j->ses, path, &e) ? msg_fail(&e) : 0;
}

int gen_keep(struct gen_job *j, const struct qwick_result *r)
{
    struct qwick_err e;
    if (*signals_flag()) {
        if (j->a.save_session)
            msg_warn("%s: not saved, as the answer was interrupted",
                     j->a.save_session);
        return 0;
    }
    if (qwick_session_store(j->ses, r->n_prompt, &e))
        msg_warn("prefix cache: %s", e.msg);
    return j->a.save_session ? save(j, r) : 0;
}
