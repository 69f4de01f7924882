/* Storing keys and values of a batch's requests in the prefix caches, for later
 * requests. */
#include <stdlib.h>
#include <string.h>

#include "engine/cache/prefix.h"
#include "engine/tasks/batch.h"

int batch_note_prompt(struct qwick_batch *b, const int32_t *tokens, size_t n,
                      struct qwick_err *e)
{
    if (!b->runs.eng->disks || b->like_prompt ||
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

/* The generation prompt begins with a control token (<|im_start|>), and so does
 * the message before it. Returns where that message begins, or 0. */
static size_t last_message(const struct qwick_engine *eng, const int32_t *ids,
                           size_t n)
{
    size_t i = n;
    while (i > 0 && !bpe_is_special(eng->bpe, ids[i - 1]))
        i--;
    if (i == 0)
        return 0;
    int32_t begin = ids[--i];
    while (i > 0 && ids[i - 1] != begin)
        i--;
    return i ? i - 1 : 0;
}

/* The next prompt of a chat often parts from this one a few tokens before its
 * end, because the template opens or closes a think block there. An edited
 * message, or another chat with the same tools, parts at the last message.
 * Where prompts have parted before, they will part again. Prompts that are
 * short have snapshots nearby in any case. */
void batch_request_snapshots(const struct qwick_batch *b, const struct seq *q)
{
    enum { GENERATION_PROMPT = 16, SHORT = KV_SNAPSHOT_PAGES * KV_BLOCK };
    const struct qwick_engine *eng = b->runs.eng;
    struct kv_cache *kv = &q->run.session->kv;
    size_t n = q->n_prompt;
    if (!kv->state.n_layers || !eng->prefix || n < kv->n + SHORT)
        return;
    size_t at[] = {n - GENERATION_PROMPT,
                   eng->bpe ? last_message(eng, q->ids, n) : 0,
                   prefix_common(eng->prefix, q->run.lora, q->ids, n - 1)};
    for (size_t i = 0; i < sizeof at / sizeof *at; i++)
        if (at[i] > kv->n)
            (void)kv_request_snapshot(kv, at[i]);
}

void batch_keep_answer(struct qwick_batch *b, struct qwick_session *s)
{
    if (!b->runs.eng->prefix)
        return;
    kv_snapshot(&s->kv);
    engine_keep_prefix(b->runs.eng, s->lora, s->tokens, s->kv.n, &s->kv);
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
