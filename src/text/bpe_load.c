/* Reading tokenizer.json.
 *
 * Nearly all of the file is model.vocab and model.merges. These two are taken
 * from the events straight into arenas; everything else is written to a small
 * document, the rest, which is then checked as a tree. Merges are resolved (to
 * ids, and into the table of pairs) while the parser goes on: by a second
 * thread where there is a second CPU, else a few at a time. Much of the time
 * would be page faults, so memory is touched sparingly. */
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <time.h>

#include "base/buf.h"
#include "base/cpu.h"
#include "base/rng.h"
#include "base/utf8.h"
#include "file/json.h"
#include "text/bpe_int.h"
#include "text/split.h"

/* Never moves while two threads use it: made as large as it can become; pages
 * that stay untouched cost nothing. */
struct arena {
    char *p;
    size_t len, cap;
};

/* A record in the arena of merges: the lengths of both parts, 2 bytes each,
 * then both, so that the merged token's spelling stands there in one piece. */
#define HEAD 4
/* Records are handed over when there are this many bytes of them. */
#define CHUNK 16384

enum mode { REST, VOCAB, MERGES, PAIR };

struct load {
    const char *name;
    struct bpe *b;
    struct qwick_err *e; /* of the parsing thread */

    struct buf rest;
    bool comma; /* rest needs a comma before the next value or key */
    size_t depth;
    bool in_model;
    enum mode next; /* what the last key announced, REST: nothing */
    enum mode mode;

    struct arena vocab; /* spellings one after another */
    struct arena merges;
    bool has_vocab, has_merges;
    bool vocab_done;
    size_t n_vocab;
    size_t n_tok;    /* rows of b->tok that are zeroed or in use */
    size_t tok_cap;
    uint32_t max_id;
    size_t key_len;  /* of the key whose id is awaited, at vocab.len */
    bool key_open;
    size_t n_parts;  /* of the open pair */
    size_t n_merges; /* so far, for messages */

    /* Between the threads. published: bytes of merges that are there for
     * resolving. mark: what is published next. */
    bool threaded;
    pthread_t thread;
    size_t published, mark;
    int ended; /* 1: all is published; -1: parsing failed */

    /* Of resolving. */
    struct bpe_table table; /* spelling to id */
    size_t merges_cap;
    uint32_t expect; /* the id that the next merge probably makes */
    int rc;
    struct qwick_err resolve_err;
};

static int bad(const struct load *l, struct qwick_err *e, const char *what)
{
    return err_set(e, QWICK_ERR_MODEL, "%s: %s", l->name, what);
}

/* Strings in messages are cut, between characters. SHOW(s, n) are the two
 * arguments of "%.*s". */
#define SHOW_MAX 80
static int shown(const char *s, size_t n)
{
    return (int)(n > SHOW_MAX ? utf8_complete(s, SHOW_MAX) : n);
}
#define SHOW(s, n) shown((s), (n)), (s)

static void put16(char *p, size_t v)
{
    uint16_t w = (uint16_t)v;
    memcpy(p, &w, 2);
}

static size_t get16(const char *p)
{
    uint16_t w;
    memcpy(&w, p, 2);
    return w;
}

/* ---- tables ---- */

static int table_alloc(struct bpe_table *t, size_t n, int min_id_bits,
                       struct qwick_err *e)
{
    int bits = 4;
    while (((size_t)1 << bits) < n + n / 2)
        bits++;
    t->id_bits = bits > min_id_bits ? bits : min_id_bits;
    t->mask = (uint32_t)(((size_t)1 << bits) - 1);
    t->slots = malloc(sizeof *t->slots << bits);
    if (!t->slots)
        return err_oom(e, sizeof *t->slots << bits);
    /* Not calloc: pages that are read before they are written fault twice. */
    memset(t->slots, 0, sizeof *t->slots << bits);
    return 0;
}

static void table_put(struct bpe_table *t, uint64_t h, uint32_t index)
{
    uint32_t at = bpe_slot_of(t, h);
    while (t->slots[at])
        at = (at + 1) & t->mask;
    t->slots[at] = bpe_tag_of(t, h) | (index + 1);
}

static int bits_for(uint32_t max_index)
{
    int bits = 1;
    while (((max_index + 1) >> bits) != 0)
        bits++;
    return bits;
}

/* ---- resolving ---- */

#define BATCH 64

/* Fill the table of spellings; a repeated one is an error. */
static int index_vocab(struct load *l)
{
    struct bpe *b = l->b;
    for (size_t id = 0; id < b->size;) {
        uint64_t hash[BATCH];
        uint32_t ids[BATCH];
        size_t n = 0;
        for (; n < BATCH && id < b->size; id++) {
            const struct bpe_tok *t = &b->tok[id];
            if (!t->flags)
                continue;
            ids[n] = (uint32_t)id;
            hash[n] = bpe_hash(b->seed, b->arena + t->off, t->len);
            __builtin_prefetch(&l->table.slots[bpe_slot_of(&l->table, hash[n])],
                               1);
            n++;
        }
        for (size_t i = 0; i < n; i++) {
            const struct bpe_tok *t = &b->tok[ids[i]];
            const char *s = b->arena + t->off;
            int32_t other = bpe_find(b, &l->table, hash[i], s, t->len);
            if (other >= 0)
                return err_set(&l->resolve_err, QWICK_ERR_MODEL,
                               "%s: model.vocab: \"%.*s\" has two ids, %d "
                               "and %u",
                               l->name, SHOW(s, t->len), (int)other,
                               (unsigned)ids[i]);
            table_put(&l->table, hash[i], ids[i]);
        }
    }
    return 0;
}

static int merges_grow(struct load *l, struct qwick_err *e)
{
    struct bpe *b = l->b;
    size_t cap = l->merges_cap ? l->merges_cap * 2 : l->n_vocab + BATCH;
    /* Indices have id_bits bits of a slot, tags the rest. */
    if (cap > 1u << 27)
        return bad(l, e, "model.merges: too many");
    uint64_t *m = realloc(b->merges, cap * sizeof *m);
    if (!m)
        return err_oom(e, cap * sizeof *m);
    b->merges = m;
    l->merges_cap = cap;
    struct bpe_table t;
    if (table_alloc(&t, cap, 0, e) < 0)
        return -1;
    for (size_t i = 0; i <= b->pairs.mask && b->pairs.slots; i++) {
        uint32_t s = b->pairs.slots[i] & ((1u << b->pairs.id_bits) - 1);
        if (s)
            table_put(&t, bpe_hash_pair(b->seed, m[s - 1] >> BPE_ID_BITS),
                      s - 1);
    }
    free(b->pairs.slots);
    b->pairs = t;
    return 0;
}

/* Add (left, right); when it is there already the later rank wins, as in the
 * reference. */
static void pairs_put(struct bpe *b, uint64_t h, uint32_t rank)
{
    struct bpe_table *t = &b->pairs;
    uint64_t pair = b->merges[rank] >> BPE_ID_BITS;
    uint32_t at = bpe_slot_of(t, h), tag = bpe_tag_of(t, h), s;
    uint32_t low = (1u << t->id_bits) - 1;
    for (; (s = t->slots[at]) != 0; at = (at + 1) & t->mask)
        if ((s & ~low) == tag && b->merges[(s & low) - 1] >> BPE_ID_BITS == pair)
            break;
    t->slots[at] = tag | (rank + 1);
}

static int unknown_part(struct load *l, size_t rank, const char *s,
                        size_t left, size_t right, size_t which)
{
    const char *part = which == 1 ? s + left : s;
    size_t n = which == 0 ? left : which == 1 ? right : left + right;
    return err_set(&l->resolve_err, QWICK_ERR_MODEL,
                   "%s: model.merges: merge %zu (\"%.*s\" \"%.*s\"): \"%.*s\" "
                   "is not in the vocabulary",
                   l->name, rank, SHOW(s, left), SHOW(s + left, right),
                   SHOW(part, n));
}

/* Resolve the records of merges in [at, end). In steps over batches, so that
 * the memory of one look-up is fetched while others are worked on. */
static int resolve_range(struct load *l, size_t at, size_t end)
{
    struct bpe *b = l->b;
    const struct bpe_table *t = &l->table;
    const char *p = l->merges.p + at, *stop = l->merges.p + end;
    while (p < stop) {
        struct {
            const char *s;
            uint64_t hash[2];
            size_t len[2];
        } w[BATCH];
        size_t n = 0;
        for (; n < BATCH && p < stop; n++) {
            w[n].len[0] = get16(p);
            w[n].len[1] = get16(p + 2);
            w[n].s = p += HEAD;
            for (int k = 0; k < 2; k++) {
                w[n].hash[k] = bpe_hash(b->seed, p, w[n].len[k]);
                __builtin_prefetch(&t->slots[bpe_slot_of(t, w[n].hash[k])]);
                p += w[n].len[k];
            }
        }
        if (b->n_merges + n > l->merges_cap &&
            merges_grow(l, &l->resolve_err) < 0)
            return -1;
        uint64_t pair_hash[BATCH];
        for (size_t i = 0; i < n; i++) {
            size_t rank = b->n_merges + i;
            const char *s = w[i].s;
            size_t left = w[i].len[0], right = w[i].len[1];
            int32_t id[2];
            for (size_t k = 0; k < 2; k++) {
                id[k] = bpe_find(b, t, w[i].hash[k], k ? s + left : s,
                                 w[i].len[k]);
                if (id[k] < 0)
                    return unknown_part(l, rank, s, left, right, k);
            }
            /* Vocabularies are written in the order of their merges. */
            uint32_t made = l->expect;
            if (made >= b->size || b->tok[made].len != left + right ||
                !b->tok[made].flags ||
                !bpe_same(b->arena + b->tok[made].off, s, left + right)) {
                int32_t found =
                    bpe_find(b, t, bpe_hash(b->seed, s, left + right), s,
                             left + right);
                if (found < 0)
                    return unknown_part(l, rank, s, left, right, 2);
                made = (uint32_t)found;
            }
            l->expect = made + 1;
            uint64_t pair = bpe_pair((uint32_t)id[0], (uint32_t)id[1]);
            b->merges[rank] = pair << BPE_ID_BITS | made;
            pair_hash[i] = bpe_hash_pair(b->seed, pair);
            __builtin_prefetch(
                &b->pairs.slots[bpe_slot_of(&b->pairs, pair_hash[i])], 1);
        }
        for (size_t i = 0; i < n; i++)
            pairs_put(b, pair_hash[i], (uint32_t)(b->n_merges + i));
        b->n_merges += n;
    }
    return 0;
}

/* On the parsing thread: resolve the records that are there and start over
 * with an empty arena. A failure is kept for later: what the parser finds
 * comes first. */
static void resolve_here(struct load *l)
{
    if (l->rc == 0)
        l->rc = resolve_range(l, 0, l->merges.len);
    l->merges.len = 0;
}

static void *resolve_thread(void *ctx)
{
    struct load *l = ctx;
    l->rc = index_vocab(l);
    for (size_t at = 0; l->rc == 0;) {
        int ended = __atomic_load_n(&l->ended, __ATOMIC_ACQUIRE);
        size_t end = __atomic_load_n(&l->published, __ATOMIC_ACQUIRE);
        if (ended < 0)
            break;
        if (at < end) {
            l->rc = resolve_range(l, at, end);
            at = end;
        } else if (ended) {
            break;
        } else {
            nanosleep(&(struct timespec){0, 20000}, NULL);
        }
    }
    return NULL;
}

static bool thread_start(struct load *l)
{
    sigset_t all, old;
    if (cpu_logical() < 2)
        return false;
    /* Signals are for the program's own threads. */
    sigfillset(&all);
    if (pthread_sigmask(SIG_SETMASK, &all, &old))
        return false;
    bool ok = pthread_create(&l->thread, NULL, resolve_thread, l) == 0;
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    return ok;
}

/* The vocabulary is complete. Below some size a thread costs more than it
 * gives. */
static int vocab_done(struct load *l)
{
    struct bpe *b = l->b;
    b->arena = l->vocab.p;
    b->size = l->n_vocab ? (size_t)l->max_id + 1 : 0;
    if (table_alloc(&l->table, l->n_vocab, bits_for(l->max_id), l->e) < 0 ||
        merges_grow(l, l->e) < 0)
        return -1;
    l->vocab_done = true;
    l->threaded = l->n_vocab > 20000 && thread_start(l);
    if (!l->threaded) {
        l->rc = index_vocab(l);
        resolve_here(l);
    }
    return 0;
}

/* ---- events ---- */

/* A value in the rest. */
static int rest_value(struct load *l, const char *s, size_t n)
{
    if ((l->comma && buf_putc(&l->rest, ',') < 0) ||
        buf_append(&l->rest, s, n) < 0)
        return err_oom(l->e, l->rest.len + n);
    l->comma = true;
    return 0;
}

static int rest_string(struct load *l, const char *s, size_t n)
{
    if ((l->comma && buf_putc(&l->rest, ',') < 0) ||
        buf_json_string(&l->rest, s, n) < 0)
        return err_oom(l->e, l->rest.len + n);
    l->comma = true;
    return 0;
}

/* Room for n bytes of a string and a record's head. The sizes of the arenas are
 * bounds on what their parts of the file can hold, so that the length is what
 * can be wrong. */
static int room(struct load *l, const struct arena *a, size_t n, const char *s)
{
    if (n <= BPE_MAX_TOKEN && a->cap - a->len >= n + HEAD)
        return 0;
    return err_set(l->e, QWICK_ERR_MODEL,
                   "%s: model: token \"%.*s\" has %zu bytes, more than %u",
                   l->name, SHOW(s, n), n, BPE_MAX_TOKEN);
}

static int not_here(struct load *l, const char *what)
{
    if (l->mode == VOCAB && l->key_open)
        return err_set(l->e, QWICK_ERR_MODEL,
                       "%s: model.vocab: \"%.*s\": its id is %s, not an "
                       "integer",
                       l->name, SHOW(l->vocab.p + l->vocab.len, l->key_len),
                       what);
    return err_set(l->e, QWICK_ERR_MODEL,
                   "%s: model.merges: merge %zu is %s, not two strings",
                   l->name, l->n_merges, what);
}

static int on_null(void *ctx)
{
    struct load *l = ctx;
    if (l->mode != REST)
        return not_here(l, "null");
    l->next = REST;
    return rest_value(l, "null", 4);
}

static int on_boolean(void *ctx, bool v)
{
    struct load *l = ctx;
    if (l->mode != REST)
        return not_here(l, v ? "true" : "false");
    l->next = REST;
    return rest_value(l, v ? "true" : "false", v ? 4 : 5);
}

/* Make the row of id valid. Rows are zeroed shortly before they are used. */
static int tok_reserve(struct load *l, uint32_t id)
{
    struct bpe *b = l->b;
    if (id < l->n_tok)
        return 0;
    size_t n = ((size_t)id | 511) + 1;
    if (n > l->tok_cap) {
        size_t cap = 2 * n;
        struct bpe_tok *t = realloc(b->tok, cap * sizeof *t);
        if (!t)
            return err_oom(l->e, cap * sizeof *t);
        b->tok = t;
        l->tok_cap = cap;
    }
    memset(b->tok + l->n_tok, 0, (n - l->n_tok) * sizeof *b->tok);
    l->n_tok = n;
    return 0;
}

static int vocab_entry(struct load *l, const char *s, size_t n)
{
    const char *key = l->vocab.p + l->vocab.len;
    uint32_t id = 0;
    size_t i = 0;
    for (; i < n && i < 9 && s[i] >= '0' && s[i] <= '9'; i++)
        id = id * 10 + (uint32_t)(s[i] - '0');
    if (n == 0 || i < n || id > BPE_MAX_ID)
        return err_set(l->e, QWICK_ERR_MODEL,
                       "%s: model.vocab: \"%.*s\": id %.*s is no integer "
                       "from 0 to %d",
                       l->name, SHOW(key, l->key_len), SHOW(s, n), BPE_MAX_ID);
    if (tok_reserve(l, id) < 0)
        return -1;
    struct bpe_tok *t = &l->b->tok[id];
    if (t->flags)
        return err_set(l->e, QWICK_ERR_MODEL,
                       "%s: model.vocab: id %u is shared by \"%.*s\" and "
                       "\"%.*s\"",
                       l->name, (unsigned)id,
                       SHOW(l->vocab.p + t->off, (size_t)t->len),
                       SHOW(key, l->key_len));
    *t = (struct bpe_tok){(uint32_t)l->vocab.len, (uint16_t)l->key_len,
                          BPE_HAS | BPE_MODEL};
    if (id > l->max_id)
        l->max_id = id;
    l->vocab.len += l->key_len;
    l->key_open = false;
    l->n_vocab++;
    return 0;
}

static int on_number(void *ctx, const char *s, size_t n)
{
    struct load *l = ctx;
    if (l->mode == VOCAB)
        return vocab_entry(l, s, n);
    if (l->mode != REST)
        return not_here(l, "a number");
    l->next = REST;
    return rest_value(l, s, n);
}

/* A record of n bytes is complete. The other thread may read BPE_PAD bytes
 * behind what it works on; these must be complete too, so that publishing lags
 * behind. */
static void merge_done(struct load *l, size_t n)
{
    l->n_merges++;
    l->merges.len += n;
    if (!l->vocab_done)
        return;
    if (!l->threaded) {
        if (l->merges.len >= CHUNK)
            resolve_here(l);
    } else if (l->merges.len - l->mark >= CHUNK) {
        __atomic_store_n(&l->published, l->mark, __ATOMIC_RELEASE);
        l->mark = l->merges.len;
    }
}

/* The spelling "left right" of older files. */
static int merge_line(struct load *l, const char *s, size_t n)
{
    struct arena *a = &l->merges;
    /* A line that merges.txt starts with; the reference skips it here too. */
    if (n >= 8 && !memcmp(s, "#version", 8))
        return 0;
    const char *gap = memchr(s, ' ', n);
    size_t left = gap ? (size_t)(gap - s) : 0;
    size_t right = gap ? n - left - 1 : 0;
    if (left == 0 || right == 0 || memchr(gap + 1, ' ', right))
        return err_set(l->e, QWICK_ERR_MODEL,
                       "%s: model.merges: merge %zu, \"%.*s\", is not two "
                       "parts with a space between",
                       l->name, l->n_merges, SHOW(s, n));
    if (room(l, a, n, s) < 0)
        return -1;
    char *r = a->p + a->len;
    put16(r, left);
    put16(r + 2, right);
    memcpy(r + HEAD, s, left);
    memcpy(r + HEAD + left, gap + 1, right);
    merge_done(l, HEAD + left + right);
    return 0;
}

static int merge_part(struct load *l, const char *s, size_t n)
{
    struct arena *a = &l->merges;
    if (n == 0 || l->n_parts == 2)
        return err_set(l->e, QWICK_ERR_MODEL,
                       "%s: model.merges: merge %zu has %s", l->name,
                       l->n_merges,
                       n ? "more than two parts" : "an empty part");
    size_t left = l->n_parts ? get16(a->p + a->len) : 0;
    if (room(l, a, n, s) < 0 || room(l, a, left + n, s) < 0)
        return -1;
    char *r = a->p + a->len;
    put16(r + 2 * l->n_parts, n);
    memcpy(r + HEAD + left, s, n);
    l->n_parts++;
    return 0;
}

static int on_string(void *ctx, const char *s, size_t n)
{
    struct load *l = ctx;
    switch (l->mode) {
    case PAIR:
        return merge_part(l, s, n);
    case MERGES:
        return merge_line(l, s, n);
    case VOCAB:
        return not_here(l, "a string");
    default:
        l->next = REST;
        return rest_string(l, s, n);
    }
}

static int on_key(void *ctx, const char *s, size_t n)
{
    struct load *l = ctx;
    if (l->mode == VOCAB) {
        if (room(l, &l->vocab, n, s) < 0)
            return -1;
        memcpy(l->vocab.p + l->vocab.len, s, n);
        l->key_len = n;
        l->key_open = true;
        return 0;
    }
    if (rest_string(l, s, n) < 0 || buf_putc(&l->rest, ':') < 0)
        return err_oom(l->e, n);
    l->comma = false;
    l->next = REST;
    if (l->depth == 1)
        l->in_model = n == 5 && !memcmp(s, "model", 5);
    else if (l->depth == 2 && l->in_model && n == 5 && !memcmp(s, "vocab", 5))
        l->next = VOCAB;
    else if (l->depth == 2 && l->in_model && n == 6 && !memcmp(s, "merges", 6))
        l->next = MERGES;
    return 0;
}

/* Start of an object or array of the rest. A repeated vocab or merges must not
 * be collected twice; other repeated keys are found in the tree. */
static int open_value(struct load *l, char bracket)
{
    if (rest_value(l, &bracket, 1) < 0)
        return -1;
    l->comma = false;
    l->depth++;
    bool vocab = l->next == VOCAB && bracket == '{';
    bool merges = l->next == MERGES && bracket == '[';
    l->next = REST;
    if ((vocab && l->has_vocab) || (merges && l->has_merges))
        return bad(l, l->e,
                   vocab ? "model: repeated key \"vocab\""
                         : "model: repeated key \"merges\"");
    if (vocab) {
        l->has_vocab = true;
        l->mode = VOCAB;
    } else if (merges) {
        l->has_merges = true;
        l->mode = MERGES;
    }
    return 0;
}

static int close_value(struct load *l, char bracket)
{
    l->comma = false;
    l->depth--;
    return rest_value(l, &bracket, 1);
}

static int on_begin_object(void *ctx)
{
    struct load *l = ctx;
    return l->mode == REST ? open_value(l, '{') : not_here(l, "an object");
}

static int on_end_object(void *ctx)
{
    struct load *l = ctx;
    if (l->mode == VOCAB) {
        l->mode = REST;
        if (vocab_done(l) < 0)
            return -1;
    }
    return close_value(l, '}');
}

static int on_begin_array(void *ctx)
{
    struct load *l = ctx;
    if (l->mode == MERGES) {
        l->mode = PAIR;
        l->n_parts = 0;
        return 0;
    }
    return l->mode == REST ? open_value(l, '[') : not_here(l, "an array");
}

static int on_end_array(void *ctx)
{
    struct load *l = ctx;
    if (l->mode == PAIR) {
        struct arena *a = &l->merges;
        if (l->n_parts != 2)
            return err_set(l->e, QWICK_ERR_MODEL,
                           "%s: model.merges: merge %zu has fewer than two "
                           "parts",
                           l->name, l->n_merges);
        const char *r = a->p + a->len;
        l->mode = MERGES;
        merge_done(l, HEAD + get16(r) + get16(r + 2));
        return 0;
    }
    if (l->mode == MERGES)
        l->mode = REST;
    return close_value(l, ']');
}

static int arena_alloc(struct arena *a, size_t n, struct qwick_err *e)
{
    a->p = malloc(n);
    a->cap = n - BPE_PAD;
    return a->p ? 0 : err_oom(e, n);
}

static int parse(struct load *l, const char *text, size_t n)
{
    static const struct json_handler handler = {
        .null = on_null,
        .boolean = on_boolean,
        .number = on_number,
        .string = on_string,
        .begin_object = on_begin_object,
        .key = on_key,
        .end_object = on_end_object,
        .begin_array = on_begin_array,
        .end_array = on_end_array,
    };
    if (n > 1u << 30)
        return bad(l, l->e, "larger than 1 GiB");
    /* Decoded strings are no longer than their text; a merge takes 4 + k bytes
     * against "L R", with 3 + k. */
    l->tok_cap = n / 64 + 1024;
    l->b->tok = malloc(l->tok_cap * sizeof *l->b->tok);
    if (!l->b->tok)
        return err_oom(l->e, l->tok_cap * sizeof *l->b->tok);
    if (arena_alloc(&l->vocab, n + 64, l->e) < 0 ||
        arena_alloc(&l->merges, n + n / 2 + 64, l->e) < 0)
        return -1;
    int rc = json_events(l->name, text, n, QWICK_ERR_MODEL, &handler, l, l->e);
    __atomic_store_n(&l->published, l->merges.len, __ATOMIC_RELEASE);
    __atomic_store_n(&l->ended, rc < 0 ? -1 : 1, __ATOMIC_RELEASE);
    if (l->threaded)
        pthread_join(l->thread, NULL);
    else if (l->vocab_done)
        resolve_here(l);
    return rc;
}

/* ---- the rest of the file ---- */

/* "NAME: WHAT: VALUE is not supported (WANT is)". */
static int refuse(const struct load *l, const char *what,
                  const struct json_value *v, const char *want)
{
    struct buf b = {.max = 1u << 20};
    if (!v)
        err_set(l->e, QWICK_ERR_MODEL, "%s: %s: missing (supported: %s)",
                l->name, what, want);
    else if (json_dump_python(&b, v) < 0)
        err_set(l->e, QWICK_ERR_MODEL, "%s: %s: not supported (supported: %s)",
                l->name, what, want);
    else
        err_set(l->e, QWICK_ERR_MODEL,
                "%s: %s: %.*s%s is not supported (supported: %s)", l->name,
                what, b.len > 300 ? 300 : (int)b.len, b.data,
                b.len > 300 ? "..." : "", want);
    buf_free(&b);
    return -1;
}

static bool is_null(const struct json_value *v)
{
    return !v || json_is(v, JSON_NULL);
}

static bool is_bool(const struct json_value *v, bool want)
{
    return json_is(v, JSON_BOOL) && v->boolean == want;
}

static bool is_type(const struct json_value *v, const char *type)
{
    return json_equals(json_get(v, "type"), type);
}

static int check_normalizer(const struct load *l, const struct json_value *v)
{
    if (is_null(v) || is_type(v, "NFC"))
        return 0;
    return refuse(l, "normalizer", v, "null, NFC");
}

static int check_pre_tokenizer(const struct load *l, const struct json_value *v)
{
    const char *want = "Sequence of Split and ByteLevel";
    if (!is_type(v, "Sequence"))
        return refuse(l, "pre_tokenizer", v, want);
    const struct json_value *list = json_get(v, "pretokenizers");
    if (!json_is(list, JSON_ARRAY) || list->len != 2 ||
        !is_type(&list->items[0], "Split") ||
        !is_type(&list->items[1], "ByteLevel"))
        return refuse(l, "pre_tokenizer.pretokenizers", list, want);
    const struct json_value *split = &list->items[0], *bl = &list->items[1];
    const struct json_value *pattern = json_get(split, "pattern");
    if (!json_equals(json_get(pattern, "Regex"), SPLIT_PATTERN))
        return refuse(l, "pre_tokenizer: Split.pattern", pattern,
                      "the pattern of Qwen2 and Qwen3");
    if (!json_equals(json_get(split, "behavior"), "Isolated"))
        return refuse(l, "pre_tokenizer: Split.behavior",
                      json_get(split, "behavior"), "Isolated");
    if (!is_bool(json_get(split, "invert"), false))
        return refuse(l, "pre_tokenizer: Split.invert",
                      json_get(split, "invert"), "false");
    if (!is_bool(json_get(bl, "add_prefix_space"), false))
        return refuse(l, "pre_tokenizer: ByteLevel.add_prefix_space",
                      json_get(bl, "add_prefix_space"), "false");
    if (!is_bool(json_get(bl, "use_regex"), false))
        return refuse(l, "pre_tokenizer: ByteLevel.use_regex",
                      json_get(bl, "use_regex"), "false");
    return 0;
}

/* Post-processors that change nothing but offsets and the special tokens that
 * are asked for with add_special_tokens, which this tokenizer never adds. */
static int check_post_processor(const struct load *l,
                                const struct json_value *v)
{
    if (is_null(v) || is_type(v, "ByteLevel") ||
        is_type(v, "TemplateProcessing"))
        return 0;
    const struct json_value *list = json_get(v, "processors");
    if (!is_type(v, "Sequence") || !json_is(list, JSON_ARRAY))
        return refuse(l, "post_processor", v,
                      "null, ByteLevel, TemplateProcessing, Sequence");
    for (size_t i = 0; i < list->len; i++)
        if (check_post_processor(l, &list->items[i]) < 0)
            return -1;
    return 0;
}

static int check_model(struct load *l, const struct json_value *v)
{
    static const char *const known[] = {
        "type",          "dropout",  "unk_token",     "continuing_subword_prefix",
        "fuse_unk",      "vocab",    "byte_fallback", "end_of_word_suffix",
        "ignore_merges", "merges",
    };
    const struct json_value *x;
    if (!json_is(v, JSON_OBJECT))
        return refuse(l, "model", v, "an object of type BPE");
    if (!is_type(v, "BPE"))
        return refuse(l, "model.type", json_get(v, "type"), "BPE");
    double dropout;
    x = json_get(v, "dropout");
    if (!is_null(x) && (json_double(x, &dropout) < 0 || dropout != 0))
        return refuse(l, "model.dropout", x, "null");
    if (!is_null(x = json_get(v, "unk_token")))
        return refuse(l, "model.unk_token", x, "null");
    x = json_get(v, "continuing_subword_prefix");
    if (!is_null(x) && !json_equals(x, ""))
        return refuse(l, "model.continuing_subword_prefix", x, "null, \"\"");
    x = json_get(v, "end_of_word_suffix");
    if (!is_null(x) && !json_equals(x, ""))
        return refuse(l, "model.end_of_word_suffix", x, "null, \"\"");
    x = json_get(v, "fuse_unk");
    if (!is_null(x) && !is_bool(x, false))
        return refuse(l, "model.fuse_unk", x, "false");
    x = json_get(v, "byte_fallback");
    if (!is_null(x) && !is_bool(x, false))
        return refuse(l, "model.byte_fallback", x, "false");
    x = json_get(v, "ignore_merges");
    if (!is_null(x) && !json_is(x, JSON_BOOL))
        return refuse(l, "model.ignore_merges", x, "true, false");
    l->b->ignore_merges = x && is_bool(x, true);
    if (!l->has_vocab)
        return refuse(l, "model.vocab", json_get(v, "vocab"), "an object");
    if (!l->has_merges)
        return refuse(l, "model.merges", json_get(v, "merges"), "an array");
    for (size_t i = 0; i < v->len; i++) {
        size_t k = 0;
        while (k < sizeof known / sizeof *known &&
               !json_equals(&v->keys[i], known[k]))
            k++;
        if (k == sizeof known / sizeof *known && !is_null(&v->items[i]) &&
            !is_bool(&v->items[i], false))
            return err_set(l->e, QWICK_ERR_MODEL,
                           "%s: model: unknown field \"%.*s\"", l->name,
                           SHOW(v->keys[i].str, v->keys[i].len));
    }
    return 0;
}

/* ---- bytes written as characters (GPT-2) ---- */

/* Bytes that are printable in Latin-1 stand for themselves; the other 68, in
 * order, are the characters from U+0100 on. */
static bool is_printable(uint32_t c)
{
    return (c >= 0x21 && c <= 0x7E) || (c >= 0xA1 && c <= 0xAC) ||
           (c >= 0xAE && c <= 0xFF);
}

#define N_CHARS 0x180
struct alphabet {
    uint16_t char_of[256];
    int16_t byte_of[N_CHARS]; /* -1: stands for no byte */
};

static void alphabet_fill(struct alphabet *a)
{
    uint16_t next = 0x100;
    for (size_t c = 0; c < N_CHARS; c++)
        a->byte_of[c] = -1;
    for (uint16_t c = 0; c < 256; c++) {
        uint16_t u = is_printable(c) ? c : next++;
        a->char_of[c] = u;
        a->byte_of[u] = (int16_t)c;
    }
}

/* Whether p[0..n), n + BPE_PAD readable, is all of '!' to '~'. */
static bool same_in_ascii(const char *p, size_t n)
{
    const uint64_t ones = 0x0101010101010101u, high = 0x80 * ones;
    for (;; p += 8, n -= 8) {
        uint64_t w = n >= 8 ? bpe_load64(p)
                            : bpe_load_part(p, n) | ('!' * ones << 8 * n);
        if ((w | (w + ones) | ~((w | high) - '!' * ones)) & high)
            return false;
        if (n <= 8)
            return true;
    }
}

/* Write the bytes that p[0..n), valid UTF-8, spells to out, which may be p.
 * Returns their number, or -1 when a character stands for no byte. */
static long spelled(const struct alphabet *a, char *out, const char *p,
                    size_t n)
{
    const unsigned char *s = (const unsigned char *)p, *end = s + n;
    char *o = out;
    while (s < end) {
        /* Leads from C2 to C5 cover U+0080 to U+017F. */
        int byte = -1;
        if (*s < 0x80) {
            byte = a->byte_of[*s];
            s += 1;
        } else if (*s <= 0xC5) {
            byte = a->byte_of[(*s & 7u) << 6 | (s[1] & 0x3Fu)];
            s += 2;
        }
        if (byte < 0)
            return -1;
        *o++ = (char)byte;
    }
    return o - out;
}

/* Turn a token's spelling into its bytes, in place. One that has a character
 * that stands for no byte is kept as spelled, as the reference decodes it. */
static void to_bytes(const struct alphabet *a, char *arena, struct bpe_tok *t)
{
    char *s = arena + t->off, small[128];
    size_t n = t->len;
    if (same_in_ascii(s, n))
        return;
    /* The commonest by far: U+0120, the space, and then ASCII. */
    if (s[0] == '\xC4' && s[1] == '\xA0' && same_in_ascii(s + 2, n - 2)) {
        s[1] = ' ';
        t->off++;
        t->len--;
        return;
    }
    long k;
    if (n <= sizeof small) {
        k = spelled(a, small, s, n);
        if (k >= 0)
            memcpy(s, small, (size_t)k);
    } else {
        char *copy = malloc(n);
static int find_bytes(const struct load *l, const struct alphabet *a)
{
    struct bpe *b = l->b;
    for (size_t c = 0; c < 256; c++) {
        uint32_t u = a->char_of[c];
        char s[2 + BPE_PAD] = {(char)u};
        size_t n = 1;
        if (u >= 0x80) {
            s[0] = (char)(0xC0 | u >> 6);
            s[1] = (char)(0x80 | (u & 0x3F));
            n = 2;
        }
        int32_t id = bpe_find(b, &l->table, bpe_hash(b->seed, s, n), s, n);
        if (id < 0)
            return err_set(l->e, QWICK_ERR_MODEL,
                           "%s: model.vocab: no token for byte 0x%02zX "
                           "(\"%s\")",
                           l->name, c, s);
        b->byte_id[c] = (uint32_t)id;
    }
    return 0;
}

/* ---- added tokens ---- */

static int added_flags(const struct load *l, const struct json_value *v,
                       size_t i, const struct json_value *content)
{
    static const char *const off[] = {"single_word", "lstrip", "rstrip",
                                      "normalized"};
    for (size_t k = 0; k < sizeof off / sizeof *off; k++) {
        const struct json_value *x = json_get(v, off[k]);
        if (!is_bool(x, false))
            return err_set(l->e, QWICK_ERR_MODEL,
                           "%s: added_tokens: item %zu, \"%.*s\": %s is %s "
                           "(supported: false)",
                           l->name, i, SHOW(content->str, content->len),
                           off[k],
                           !x                    ? "missing"
                           : json_is(x, JSON_BOOL) ? "true"
                                                   : "no boolean");
    }
    if (!json_is(json_get(v, "special"), JSON_BOOL))
        return err_set(l->e, QWICK_ERR_MODEL,
                       "%s: added_tokens: item %zu, \"%.*s\": special is no "
                       "boolean",
                       l->name, i, SHOW(content->str, content->len));
    return 0;
}

static int compare_added(const void *x, const void *y)
{
    const struct bpe_added *a = x, *b = y;
    int c = memcmp(a->content, b->content, a->len < b->len ? a->len : b->len);
    return c ? c : (a->len > b->len) - (a->len < b->len);
}

/* One item: check, and note content (from the tree) and id. */
static int read_added(const struct load *l, const struct json_value *v,
                      size_t i, struct bpe_added *out)
{
    const struct json_value *content = json_get(v, "content");
    if (!json_is(content, JSON_STRING) || content->len == 0)
        return err_set(l->e, QWICK_ERR_MODEL,
                       "%s: added_tokens: item %zu: content is no string or "
                       "empty",
                       l->name, i);
    const struct json_value *id = json_get(v, "id");
    const char *id_text = json_is(id, JSON_NUMBER) ? id->str : "missing";
    int64_t value;
    if (json_int(id, 0, BPE_MAX_ID, &value) < 0)
        return err_set(l->e, QWICK_ERR_MODEL,
                       "%s: added_tokens: item %zu, \"%.*s\": id %.*s is no "
                       "integer from 0 to %d",
                       l->name, i, SHOW(content->str, content->len),
                       SHOW(id_text, strlen(id_text)),
                       BPE_MAX_ID);
    if (content->len > BPE_MAX_TOKEN)
        return bad(l, l->e, "added_tokens: content too long");
    out->content = content->str;
    out->len = content->len;
    out->id = (uint32_t)value;
    return added_flags(l, v, i, content);
}

static int same_id(const struct load *l, uint32_t id, const char *s, size_t n,
                   const char *t, size_t m)
{
    return err_set(l->e, QWICK_ERR_MODEL,
                   "%s: added_tokens: id %u is shared by \"%.*s\" and "
                   "\"%.*s\"",
                   l->name, (unsigned)id, SHOW(s, n), SHOW(t, m));
}

/* Give the added token its row. Spellings of the model are not yet bytes. */
static int place_added(struct load *l, const struct bpe_added *a, bool special)
{
    struct bpe *b = l->b;
    struct bpe_tok *t = &b->tok[a->id];
    int32_t known = bpe_find(b, &l->table,
                             bpe_hash(b->seed, a->content, a->len), a->content,
                             a->len);
    if (known >= 0 && (uint32_t)known != a->id)
        return err_set(l->e, QWICK_ERR_MODEL,
                       "%s: added_tokens: \"%.*s\" has id %u, but %d in "
                       "model.vocab",
                       l->name, SHOW(a->content, a->len), (unsigned)a->id,
                       (int)known);
    if (t->flags && known < 0)
        return same_id(l, a->id, b->arena + t->off, t->len, a->content,
                       a->len);
    if (t->flags & BPE_ADDED)
        return err_set(l->e, QWICK_ERR_MODEL,
                       "%s: added_tokens: \"%.*s\" is there twice", l->name,
                       SHOW(a->content, a->len));
    unsigned flags = t->flags | BPE_HAS | BPE_ADDED;
    t->flags = (uint8_t)(special ? flags | BPE_SPECIAL : flags);
    return 0;
}

/* The arena gets each content twice: as text is searched for it, and as the
 * spelling that becomes the token's bytes. Each has padding of its own, as
 * spellings there are looked up. */
static int add_tokens(struct load *l, const struct json_value *list)
{
    struct bpe *b = l->b;
    if (!is_null(list) && !json_is(list, JSON_ARRAY))
        return bad(l, l->e, "added_tokens: not an array");
    size_t n = is_null(list) ? 0 : list->len;
    size_t len = l->vocab.len, size = b->size;
    b->added = calloc(n + 1, sizeof *b->added);
    if (!b->added)
        return err_oom(l->e, n * sizeof *b->added);
    for (size_t i = 0; i < n; i++) {
        struct bpe_added *a = &b->added[i];
        if (read_added(l, &list->items[i], i, a) < 0)
            return -1;
        len += 2 * a->len;
        if (a->id >= size)
            size = (size_t)a->id + 1;
    }
    if (len + BPE_PAD > UINT32_MAX)
        return bad(l, l->e, "added_tokens: too long");
    char *arena = realloc(l->vocab.p, len + BPE_PAD);
    if (!arena)
        return err_oom(l->e, len);
    b->arena = l->vocab.p = arena;
    memset(arena + l->vocab.len, 0, len + BPE_PAD - l->vocab.len);
    struct bpe_tok *tok = realloc(b->tok, (size + 1) * sizeof *tok);
    if (!tok)
        return err_oom(l->e, size * sizeof *tok);
    memset(tok + b->size, 0, (size + 1 - b->size) * sizeof *tok);
    b->tok = tok;
    b->size = size;
    for (size_t i = 0; i < n; i++) {
        struct bpe_added *a = &b->added[i];
        char *s = arena + l->vocab.len;
        memcpy(s, a->content, a->len);
        memcpy(s + a->len, a->content, a->len);
        a->content = s;
        l->vocab.len += 2 * a->len;
        if (place_added(l, a,
                        json_get(&list->items[i], "special")->boolean) < 0)
            return -1;
        struct bpe_tok *t = &tok[a->id];
        if (!(t->flags & BPE_MODEL)) {
            t->off = (uint32_t)(s + a->len - arena);
            t->len = (uint16_t)a->len;
        }
    }
    qsort(b->added, n, sizeof *b->added, compare_added);
    b->n_added = n;
    size_t k = 0;
    for (size_t c = 0; c < 257; c++) {
        while (k < n && (unsigned char)b->added[k].content[0] < c)
            k++;
        b->added_at[c] = k;
    }
    for (size_t i = 1; i < n; i++)
        if (compare_added(&b->added[i - 1], &b->added[i]) == 0)
            return err_set(l->e, QWICK_ERR_MODEL,
                           "%s: added_tokens: \"%.*s\" is there twice", l->name,
                           SHOW(b->added[i].content, b->added[i].len));
    return 0;
}

/* ---- all of it ---- */

/* With ignore_merges a word that is a token of the model is that token. */
static int index_words(struct load *l)
{
    struct bpe *b = l->b;
    if (!b->ignore_merges)
        return 0;
    if (table_alloc(&b->words, l->n_vocab, bits_for((uint32_t)b->size), l->e) <
        0)
        return -1;
    for (size_t i = 0; i < b->size; i++) {
        const struct bpe_tok *t = &b->tok[i];
        if ((t->flags & BPE_MODEL) && !(t->flags & BPE_RAW))
            table_put(&b->words,
                      bpe_hash(b->seed, b->arena + t->off, t->len),
                      (uint32_t)i);
    }
    return 0;
}

static int check_rest(struct load *l, const struct json_value *root)
{
    if (!json_is(root, JSON_OBJECT))
        return bad(l, l->e, "not a JSON object");
    if (check_model(l, json_get(root, "model")) < 0 ||
        check_normalizer(l, json_get(root, "normalizer")) < 0 ||
        check_pre_tokenizer(l, json_get(root, "pre_tokenizer")) < 0 ||
        check_post_processor(l, json_get(root, "post_processor")) < 0)
        return -1;
    const struct json_value *decoder = json_get(root, "decoder");
    if (!is_type(decoder, "ByteLevel"))
        return refuse(l, "decoder", decoder, "ByteLevel");
    l->b->nfc = !is_null(json_get(root, "normalizer"));
    return 0;
}

static int finish(struct load *l, const struct json_value *root)
{
    struct bpe *b = l->b;
    struct alphabet a;
    alphabet_fill(&a);
    if (find_bytes(l, &a) < 0 ||
        add_tokens(l, json_get(root, "added_tokens")) < 0)
        return -1;
    for (size_t i = 0; i < b->size; i++)
        if (b->tok[i].flags)
            to_bytes(&a, b->arena, &b->tok[i]);
    b->cache = calloc(BPE_CACHE_WORDS, sizeof *b->cache);
    if (!b->cache)
        return err_oom(l->e, BPE_CACHE_WORDS * sizeof *b->cache);
    return index_words(l);
}

int bpe_open(struct bpe **out, const char *name, const char *text, size_t n,
             struct qwick_err *e)
{
    struct qwick_err unused;
    struct load l = {.name = name, .e = e ? e : &unused};
    struct json_doc *doc = NULL;
    *out = NULL;
    l.b = calloc(1, sizeof *l.b);
    if (!l.b)
        return err_oom(e, sizeof *l.b);
    l.b->seed = rng_random_seed();
    int rc = parse(&l, text, n);
    if (rc == 0)
        rc = json_parse(&doc, name, l.rest.data, l.rest.len, QWICK_ERR_MODEL,
                        l.e);
    if (rc == 0)
        rc = check_rest(&l, json_root(doc));
    /* What the file asks for comes before what is wrong with its merges: with
     * a prefix, say, they cannot be right. */
    if (rc == 0 && l.rc < 0) {
        *l.e = l.resolve_err;
        rc = -1;
    }
    if (rc == 0)
        rc = finish(&l, json_root(doc));
    json_free(doc);
    buf_free(&l.rest);
    free(l.merges.p);
    free(l.table.slots);
    l.b->arena = l.vocab.p;
    if (rc < 0)
        bpe_close(l.b);
    else
        *out = l.b;
    return rc;
}

void bpe_close(struct bpe *b)
{
    if (!b)
        return;
    free(b->arena);
    free(b->tok);
    free(b->merges);
    free(b->pairs.slots);
    free(b->words.slots);
    free(b->added);
    free(b->cache);
    free(b);
}
