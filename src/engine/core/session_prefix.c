/* A session and the engine's caches of prefixes. */
#include <stdlib.h>
#include <string.h>

#include "engine/cache/prefix.h"
#include "engine/cache/prefix_disk.h"
#include "engine/core/engine.h"

static size_t common_prefix(const struct qwick_session *s,
                            const int32_t *tokens, size_t n)
{
    size_t i = 0;
    while (i < n && i < s->kv.n && tokens[i] == s->tokens[i])
        i++;
    return i;
}

/* Make tokens[0..n) the session's context: keep its first n_kept pages and
 * append the pages. The references to the pages are consumed even on
 * failure. */
static int adopt(struct qwick_session *s, const int32_t *tokens, size_t n,
                 size_t n_kept, struct kv_page **pages, size_t n_pages,
                 struct qwick_err *e)
{
    if (session_reserve_tokens(s, n, e) ||
        kv_adopt(&s->kv, n_kept, pages, n_pages, n, e)) {
        for (size_t i = 0; i < n_pages; i++)
            kv_page_drop(&s->kv, pages[i]);
        return -1;
    }
    memcpy(s->tokens, tokens, n * sizeof *tokens);
    s->logits = NULL;
    s->hidden = NULL;
    s->n_rows = 0;
    return 0;
}

static int reuse_memory(struct qwick_session *s, const int32_t *tokens,
                        size_t n, struct kv_page **pages, struct qwick_err *e)
{
    size_t n_pages;
    size_t m = prefix_match(s->eng->prefix, s->lora, tokens, n, pages,
                            &n_pages);
    if (m > s->kv.n)
        return adopt(s, tokens, m, 0, pages, n_pages, e);
    for (size_t i = 0; i < n_pages; i++)
        kv_page_drop(&s->kv, pages[i]);
    return 0;
}

static int reuse_disk(struct qwick_session *s, const int32_t *tokens, size_t n,
                      struct kv_page **pages, struct qwick_err *e)
{
    struct qwick_err bad = {0};
    size_t first = s->kv.n / KV_BLOCK, n_pages;
    size_t m = prefix_disk_find(engine_disk(s->eng, s->lora), tokens, n, first,
                                pages, &n_pages, s->interrupt, &bad);
    if (bad.code)
        engine_warn(s->eng, "prefix cache: %s; ignored", bad.msg);
    if (m > s->kv.n)
        return adopt(s, tokens, m, first, pages, n_pages, e);
    for (size_t i = 0; i < n_pages; i++)
        kv_page_drop(&s->kv, pages[i]);
    return 0;
}

int qwick_session_reuse(struct qwick_session *s, const int32_t *tokens,
                        size_t n, struct qwick_err *e)
{
    const struct qwick_engine *eng = s->eng;
    const struct prefix_disk *disk = engine_disk(eng, s->lora);
    if (n && session_check_tokens(s, tokens, n, e))
        return -1;
    /* the caller evaluates one token at least after these */
    bool is_long = session_needs_long_rope(s, n + 1);
    session_truncate(s, is_long == s->kv.long_rope ? common_prefix(s, tokens, n)
                                                   : 0);
    /* the caches have keys of short sequences only */
    if (s->kv.n == n || (!eng->prefix && !disk) || is_long)
        return 0;
    struct kv_page **pages = malloc((n / KV_BLOCK + 1) * sizeof(*pages));
    if (!pages)
        return err_oom(e, (n / KV_BLOCK + 1) * sizeof(*pages));
    int rc = eng->prefix ? reuse_memory(s, tokens, n, pages, e) : 0;
    if (!rc && disk && s->kv.n < n)
        rc = session_predict_memory(s, n, e) ||
                     reuse_disk(s, tokens, n, pages, e)
                 ? -1
                 : 0;
    free(pages);
    return rc;
}

void engine_keep_prefix(struct qwick_engine *eng, size_t lora,
                        const int32_t *tokens, size_t n,
                        const struct kv_cache *kv)
{
    size_t lacks = prefix_insert(eng->prefix, lora, tokens, n, kv);
    if (!lacks || eng->told_prefix)
        return;
    eng->told_prefix = true;
    engine_note(eng,
                "prefix cache: the beginning of a prompt takes %.3g MB of "
                "memory, the limit is %.3g MB: not kept",
                (double)lacks / 1e6, (double)prefix_budget(eng->prefix) / 1e6);
}

void qwick_session_publish(struct qwick_session *s)
{
    if (s->eng->prefix || engine_disk(s->eng, s->lora))
        kv_snapshot(&s->kv);
    if (s->eng->prefix && !s->kv.long_rope)
        engine_keep_prefix(s->eng, s->lora, s->tokens,
                           s->kv.n / KV_BLOCK * KV_BLOCK, &s->kv);
}

int qwick_session_store(struct qwick_session *s, size_t n, struct qwick_err *e)
{
    struct prefix_disk *disk = engine_disk(s->eng, s->lora);
    if (!disk || s->kv.long_rope)
        return 0;
    if (n > s->kv.n)
        n = s->kv.n;
    return prefix_disk_store(disk, s->tokens, n, &s->kv, e);
}

/* ---- all that the engine has -------------------------------------------- */

struct storing {
    const struct qwick_engine *eng;
    struct prefix_disk *disk; /* of the last path; NULL: there was none */
    struct prefix_put put;
};

/* Each path counts as used a little before the last one. */
static int store_path(void *ctx, size_t lora, const int32_t *tokens, size_t n,
                      const struct kv_cache *kv, struct qwick_err *e)
{
    enum { STEP_NS = 1000000 };
    struct storing *s = ctx;
    s->disk = engine_disk(s->eng, lora);
    if (!s->disk)
        return 0;
    int rc = prefix_disk_put(s->disk, tokens, n, kv, &s->put, e);
    s->put.time.tv_nsec -= STEP_NS;
    if (s->put.time.tv_nsec < 0) {
        s->put.time.tv_nsec += 1000000000;
        s->put.time.tv_sec--;
    }
    return rc;
}

int qwick_engine_store_prefixes(struct qwick_engine *eng, double timeout_ms,
                                const volatile int *interrupt,
                                struct qwick_err *e)
{
    struct storing s = {.eng = eng, .put.interrupt = interrupt};
    const struct prefix_disk *disk = engine_disk(eng, eng->own_lora);
    if (!eng->prefix || !disk)
        return 0;
    clock_gettime(CLOCK_REALTIME, &s.put.time);
    if (timeout_ms > 0)
        s.put.deadline_ms = clock_ms() + timeout_ms;
    return prefix_each_path(eng->prefix, prefix_disk_budget(disk),
                            store_path, &s, e) ||
                   (s.disk && prefix_disk_trim(s.disk, e))
               ? -1
               : 0;
}
