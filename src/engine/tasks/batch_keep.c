/* Storing keys and values of a batch's requests in the prefix caches, for later
 * requests. */
#include <stdlib.h>
#include <string.h>

#include "engine/cache/prefix.h"
#include "engine/tasks/batch.h"

int batch_note_prompt(struct qwick_batch *b, const int32_t *tokens, size_t n,
                      struct qwick_err *e)
{
    if (!b->runs.eng->disk || b->like_prompt ||
        tokens_in_common(tokens, n, b->like, b->n_like) < b->n_like)
        return 0;
    int32_t *like = malloc(n * sizeof *like);
    if (!like)
        return err_oom(e, n * sizeof *like);
    memcpy(like, tokens, n * sizeof *like);
    b->like_prompt = b->like || b->o.n_common == 0;
    free(b->like);
    b->like = like;
    b->n_like = n;
    return 0;
}

void batch_keep_answer(struct qwick_batch *b, struct qwick_session *s)
{
    if (!b->runs.eng->prefix)
        return;
    kv_snapshot(&s->kv);
    engine_keep_prefix(b->runs.eng, s->tokens, s->kv.n, &s->kv);
}

/* On disk we store beginnings of one sequence of tokens only. So however many
 * requests there are, no more is written than for a single prompt. */
void batch_keep_prompt(struct qwick_batch *b, const struct seq *q)
{
    struct qwick_err why;
    qwick_session_publish(q->run.session);
    if (!b->like || b->n_stored == SIZE_MAX)
        return;
    size_t n = tokens_in_common(q->ids, q->n_prompt, b->like, b->n_like);
    /* by itself, or repeated, a prompt only has what is known to be common */
    if (n == q->n_prompt && n == b->n_like)
        n = b->o.n_common;
    if (n / KV_BLOCK <= b->n_stored / KV_BLOCK)
        return;
    b->n_stored = n;
    if (qwick_session_store(q->run.session, n, &why)) {
        engine_warn(b->runs.eng, "prefix cache: %s", why.msg);
        b->n_stored = SIZE_MAX;
    }
}
