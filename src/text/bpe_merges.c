/* Merges as the parser meets them: to records, by the thread that parses the
 * rest or by one of their own. */
#include <signal.h>
#include <stdlib.h>

#include "base/cpu.h"
#include "text/bpe_load.h"

/* Below so many bytes a thread costs more than it gives. */
enum { MIN_BYTES = 1 << 20 };

static void put16(char *p, size_t v)
{
    uint16_t w = (uint16_t)v;
    memcpy(p, &w, 2);
}

int bpe_room(const char *name, const struct arena *a, size_t n, const char *s,
             struct qwick_err *e)
{
    if (n <= BPE_MAX_TOKEN && a->cap - a->len >= n + HEAD)
        return 0;
    return err_set(e, QWICK_ERR_MODEL,
                   "%s: model: token \"%.*s\" has %zu bytes, more than %u",
                   name, SHOW(s, n), n, BPE_MAX_TOKEN);
}

/* A record of n bytes is complete. The other thread may read BPE_PAD bytes
 * behind what it works on; these must be complete too, so that publishing lags
 * behind. */
static void record_done(struct merges *m, size_t n)
{
    m->n++;
    m->arena.len += n;
    if (m->text && m->arena.len - m->mark >= CHUNK) {
        __atomic_store_n(&m->published, m->mark, __ATOMIC_RELEASE);
        m->mark = m->arena.len;
    }
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
    put16(r, left);
    put16(r + 2, right);
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
    put16(r + 2 * m->n_parts, n);
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

/* ---- a thread of their own ---------------------------------------------- */

static bool is_space(char c)
{
    return c == ' ' || c == '\t' || c == '\n' || c == '\r';
}

size_t bpe_merges_find(const char *text, size_t n)
{
    static const char key[] = "\"merges\"";
    if (n < MIN_BYTES || cpu_logical() < 2)
        return 0;
    /* a token of the vocabulary may be spelt so, but is no array */
    for (size_t at = 0; at < n;) {
        const char *found = memmem(text + at, n - at, key, sizeof key - 1);
        if (!found)
            return 0;
        at = (size_t)(found - text) + sizeof key - 1;
        size_t i = at;
        while (i < n && is_space(text[i]))
            i++;
        if (i == n || text[i++] != ':')
            continue;
        while (i < n && is_space(text[i]))
            i++;
        if (i < n && text[i] == '[')
            return i;
    }
    return 0;
}

/* What the other thread does not report: it parses all again to find out. */
static int refuse(void *ctx)
{
    (void)ctx;
    return -1;
}

static int refuse_boolean(void *ctx, bool v)
{
    (void)v;
    return refuse(ctx);
}

static int refuse_text(void *ctx, const char *s, size_t n)
{
    (void)s;
    (void)n;
    return refuse(ctx);
}

static int on_string(void *ctx, const char *s, size_t n)
{
    return bpe_merge_string(ctx, s, n);
}

/* The array itself, or a pair. */
static int on_begin_array(void *ctx)
{
    struct merges *m = ctx;
    if (__atomic_load_n(&m->ended, __ATOMIC_RELAXED) || m->in_pair)
        return -1;
    if (m->open)
        return bpe_merge_open(m);
    m->open = true;
    return 0;
}

static int on_end_array(void *ctx)
{
    struct merges *m = ctx;
    return m->in_pair ? bpe_merge_close(m) : 0;
}

static void *parse_thread(void *ctx)
{
    static const struct json_handler handler = {
        .null = refuse,
        .boolean = refuse_boolean,
        .number = refuse_text,
        .string = on_string,
        .begin_object = refuse,
        .key = refuse_text,
        .end_object = refuse,
        .begin_array = on_begin_array,
        .end_array = on_end_array,
    };
    struct merges *m = ctx;
    m->length = m->n_text;
    int rc = json_events_of_one(m->name, m->text, &m->length, QWICK_ERR_MODEL,
                                &handler, m, m->e);
    __atomic_store_n(&m->published, m->arena.len, __ATOMIC_RELEASE);
    __atomic_store_n(&m->ended, rc < 0 ? -1 : 1, __ATOMIC_RELEASE);
    return NULL;
}

int bpe_merges_start(struct merges *m)
{
    sigset_t all, old;
    /* Signals are for the program's own threads. */
    sigfillset(&all);
    if (pthread_sigmask(SIG_SETMASK, &all, &old))
        return -1;
    int rc = pthread_create(&m->thread, NULL, parse_thread, m);
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    return rc ? -1 : 0;
}

void bpe_merges_stop(struct merges *m)
{
    int running = 0;
    __atomic_compare_exchange_n(&m->ended, &running, -1, false,
                                __ATOMIC_RELAXED, __ATOMIC_RELAXED);
    pthread_join(m->thread, NULL);
}
