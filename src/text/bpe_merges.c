/* Merges as the parser meets them: to records. */
#include "text/bpe_load.h"

int bpe_room(const char *name, const struct arena *a, size_t n, const char *s,
             struct qwick_err *e)
{
    if (n <= BPE_MAX_TOKEN && a->cap - a->len >= n + HEAD)
        return 0;
    return err_set(e, QWICK_ERR_MODEL,
                   "%s: model: token \"%.*s\" has %zu bytes, more than %u",
                   name, SHOW(s, n), n, BPE_MAX_TOKEN);
}

/* A record of n bytes is complete. */
static void record_done(struct merges *m, size_t n)
{
    m->n++;
    m->arena.len += n;
}

/* The spelling "left right" of older files. */
static int line(struct merges *m, const char *s, size_t n)
{
    struct arena *a = &m->arena;
    /* A line that merges.txt starts with; the reference skips it here too. */
    if (n >= 8 && !memcmp(s, "#version", 8))
        return 0;
    const char *gap = memchr(s, ' ', n);
    size_t left = gap ? (size_t)(gap - s) : 0;
    size_t right = gap ? n - left - 1 : 0;
    if (left == 0 || right == 0 || memchr(gap + 1, ' ', right))
        return err_set(m->e, QWICK_ERR_MODEL,
                       "%s: model.merges: merge %zu, \"%.*s\", is not two "
                       "parts with a space between",
                       m->name, m->n, SHOW(s, n));
    if (bpe_room(m->name, a, n, s, m->e) < 0)
        return -1;
    char *r = a->p + a->len;
    bpe_record_head(r, left, right);
    memcpy(r + HEAD, s, left);
    memcpy(r + HEAD + left, gap + 1, right);
    record_done(m, HEAD + left + right);
    return 0;
}

static int part(struct merges *m, const char *s, size_t n)
{
    struct arena *a = &m->arena;
    if (n == 0 || m->n_parts == 2)
        return err_set(m->e, QWICK_ERR_MODEL,
                       "%s: model.merges: merge %zu has %s", m->name, m->n,
                       n ? "more than two parts" : "an empty part");
    size_t left = m->n_parts ? bpe_get16(a->p + a->len) : 0;
    if (bpe_room(m->name, a, n, s, m->e) < 0 ||
        bpe_room(m->name, a, left + n, s, m->e) < 0)
        return -1;
    char *r = a->p + a->len;
    if (m->n_parts)
        bpe_record_head(r, left, n);
    else
        bpe_record_head(r, n, 0);
    bpe_copy(r + HEAD + left, s, n);
    m->n_parts++;
    return 0;
}

int bpe_merge_string(struct merges *m, const char *s, size_t n)
{
    return m->in_pair ? part(m, s, n) : line(m, s, n);
}

int bpe_merge_open(struct merges *m)
{
    m->in_pair = true;
    m->n_parts = 0;
    return 0;
}

int bpe_merge_close(struct merges *m)
{
    if (m->n_parts != 2)
        return err_set(m->e, QWICK_ERR_MODEL,
                       "%s: model.merges: merge %zu has fewer than two parts",
                       m->name, m->n);
    const char *r = m->arena.p + m->arena.len;
    m->in_pair = false;
    record_done(m, HEAD + bpe_get16(r) + bpe_get16(r + 2));
    return 0;
}
