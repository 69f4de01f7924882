/* How many sequences of a batch fit the memory. */
#include "engine/batch.h"
#include "engine/prefix.h"

/* Tokens that an answer without a limit is expected to have. One that grows
 * beyond may cost another sequence its cache. */
enum { EXPECTED_TOKENS = 512 };

static size_t page_bytes(const struct qwick_batch *b)
{
    return b->eng->info.kv_token_bytes * KV_BLOCK;
}

static size_t pages_of(size_t n_tokens)
{
    return n_tokens / KV_BLOCK + (n_tokens % KV_BLOCK != 0);
}

static size_t plus(size_t a, size_t b)
{
    return b > SIZE_MAX - a ? SIZE_MAX : a + b;
}

static size_t times(size_t a, size_t b)
{
    return b && a > SIZE_MAX / b ? SIZE_MAX : a * b;
}

/* Each holder of a page counts for its share of it. */
static size_t session_bytes(const struct qwick_session *s)
{
    size_t sum = 0;
    for (size_t i = 0; s && i < s->kv.n_pages; i++)
        sum += s->kv.page_bytes / s->kv.pages[i]->refs;
    return sum;
}

static size_t used_bytes(const struct qwick_batch *b)
{
    size_t sum = 0;
    for (size_t i = 0; i < b->n_live; i++)
        sum += session_bytes(b->live[i]->session);
    return sum;
}

/* Pages that a sequence is going to have. */
static size_t final_pages(const struct qwick_batch *b, const struct seq *q)
{
    size_t more = q->o.max_tokens ? q->o.max_tokens : EXPECTED_TOKENS;
    size_t n = plus(q->n_prompt, more);
    if (n < q->n + 1)
        n = q->n + 1;
    return pages_of(n < b->limit ? n : b->limit);
}

/* Bytes that the live sequences are going to take beyond what they have. */
static size_t growth(const struct qwick_batch *b)
{
    size_t pages = 0;
    for (size_t i = 0; i < b->n_live; i++) {
        const struct seq *q = b->live[i];
        size_t have = q->session ? q->session->kv.n_pages : 0;
        size_t want = final_pages(b, q);
        pages = plus(pages, want > have ? want - have : 0);
    }
    return times(pages, page_bytes(b));
}

/* What may still be taken. A part of the free memory stays free: others want
 * some, and what is mapped is counted when it is touched. */
static size_t room(const struct qwick_batch *b, size_t need)
{
    if (b->o.kv_bytes) {
        size_t used = used_bytes(b);
        return used < b->o.kv_bytes ? b->o.kv_bytes - used : 0;
    }
    size_t free_bytes = memory_available(&b->eng->memory, need);
    return free_bytes == SIZE_MAX ? SIZE_MAX : free_bytes - free_bytes / 8;
}

bool memory_give_back(struct qwick_batch *b)
{
    struct prefix *p = b->eng->prefix;
    if (!p || prefix_bytes(p) == 0)
        return false;
    prefix_shrink(p, prefix_bytes(p) / 2);
    return true;
}

bool memory_admits(struct qwick_batch *b, const struct seq *q)
{
    const struct qwick_session *from;
    if (b->n_live == 0)
        return true; /* alone it is refused only by what really happens */
    do {
        size_t shared = prefix_find(b, q, &from) / KV_BLOCK;
        size_t need = times(final_pages(b, q) - shared, page_bytes(b));
        need = plus(need, growth(b));
        if (need <= room(b, need))
            return true;
        /* the cache has a limit of its own beside kv_bytes */
    } while (!b->o.kv_bytes && memory_give_back(b));
    return false;
}

int memory_check(struct qwick_batch *b, struct qwick_err *e)
{
    if (!b->o.kv_bytes)
        return 0;
    size_t pages = 0, need;
    for (size_t i = 0; i < b->n_steps; i++) {
        const struct kv_cache *kv = &b->steps[i].session->kv;
        size_t want = pages_of(kv->n + b->steps[i].n);
        pages += want > kv->n_pages ? want - kv->n_pages : 0;
    }
    need = plus(times(pages, page_bytes(b)), used_bytes(b));
    if (need > b->o.kv_bytes)
        return err_set(e, QWICK_ERR_MEMORY,
                       "out of memory: %zu bytes for the KV cache, which may "
                       "have %zu",
                       need, b->o.kv_bytes);
    return 0;
}
