/* Reading tokenizer.json: what bpe_load.c, bpe_merges.c, bpe_resolve.c,
 * bpe_check.c, bpe_added.c and bpe_post.c share. */
#ifndef TEXT_BPE_LOAD_H
#define TEXT_BPE_LOAD_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/utf8.h"
#include "file/json.h"
#include "text/bpe_int.h"

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

/* Merges as they are read, by the thread that parses them. */
struct merges {
    const char *name;
    struct qwick_err *e;
    struct arena arena; /* records */
    bool open, in_pair; /* the array, of a second thread; one of its pairs */
    size_t n_parts;     /* of the open pair */
    size_t n;           /* so far, for messages */
    size_t mark;        /* what is published next */

    /* A second thread: its array is text[0..n_text), of length bytes once it
     * has ended. What it writes all the time is above; what follows is apart
     * from it, so that the threads do not fight for cache lines. */
    _Alignas(64) size_t published; /* bytes of records ready for resolving */
    int ended;                     /* 1: all is published; -1: it failed, or
                                      is to stop */
    const char *text;
    size_t n_text, length;
    pthread_t thread;
};

enum mode { REST, VOCAB, MERGES };

struct bpe_load {
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
    struct merges merges;
    bool has_vocab, has_merges;
    bool vocab_done;
    size_t n_vocab;
    size_t n_tok; /* rows of b->tok that are zeroed or in use */
    size_t tok_cap;
    uint32_t max_id;
    size_t key_len; /* of the key whose id is awaited, at vocab.len */
    bool key_open;

    /* Of resolving. */
    struct bpe_table table; /* spelling to id */
    size_t merges_cap;
    uint32_t expect; /* the id that the next merge probably makes */
    int rc;
    struct qwick_err resolve_err;
};

/* memcpy for the short strings that nearly all are. */
static inline void bpe_copy(char *to, const char *s, size_t n)
{
    uint64_t a, b;
    if (n > 16 || n < 4) {
        if (n > 16)
            memcpy(to, s, n);
        else
            for (size_t i = 0; i < n; i++)
                to[i] = s[i];
    } else if (n >= 8) {
        memcpy(&a, s, 8);
        memcpy(&b, s + n - 8, 8);
        memcpy(to, &a, 8);
        memcpy(to + n - 8, &b, 8);
    } else {
        uint32_t c, d;
        memcpy(&c, s, 4);
        memcpy(&d, s + n - 4, 4);
        memcpy(to, &c, 4);
        memcpy(to + n - 4, &d, 4);
    }
}

static inline size_t bpe_get16(const char *p)
{
    uint16_t w;
    memcpy(&w, p, 2);
    return w;
}

/* Strings in messages are cut, between characters. SHOW(s, n) are the two
 * arguments of "%.*s". */
#define SHOW_MAX 80
static inline int bpe_shown(const char *s, size_t n)
{
    return (int)(n > SHOW_MAX ? utf8_complete(s, SHOW_MAX) : n);
}
#define SHOW(s, n) bpe_shown((s), (n)), (s)

/* Absent counts as null. */
static inline bool bpe_is_null(const struct json_value *v)
{
    return !v || json_is(v, JSON_NULL);
}

static inline bool bpe_is_bool(const struct json_value *v, bool want)
{
    return json_is(v, JSON_BOOL) && v->boolean == want;
}

/* Room for n entries whose indices fit in min_id_bits. */
int bpe_table_alloc(struct bpe_table *t, size_t n, int min_id_bits,
                    struct qwick_err *e);
void bpe_table_put(struct bpe_table *t, uint64_t h, uint32_t index);
/* Bits of a slot that max_index + 1 takes. */
int bpe_table_bits(uint32_t max_index);

/* ---- bpe_merges.c: reading merges ---- */

/* Room for n bytes of a string and a record's head, or an error. The sizes of
 * the arenas are bounds on what their parts of the file can hold, so that the
 * length is what can be wrong. */
int bpe_room(const char *name, const struct arena *a, size_t n, const char *s,
             struct qwick_err *e);

/* Events inside of the array: a string, and a pair's brackets. */
int bpe_merge_string(struct merges *m, const char *s, size_t n);
int bpe_merge_open(struct merges *m);
int bpe_merge_close(struct merges *m);

/* Where a value begins that is probably the array of merges, if there is a
 * second CPU and the file is large enough for it to pay; else 0. */
size_t bpe_merges_find(const char *text, size_t n);

/* Parse the array at m->text by a second thread. */
int bpe_merges_start(struct merges *m);
/* Stop that thread, if it has not ended, and wait for it. */
void bpe_merges_stop(struct merges *m);

/* ---- bpe_resolve.c ---- */

/* The vocabulary is complete: index it and resolve what merges are there. -1
 * (l->e) only when out of memory; what is wrong with the vocabulary comes
 * later, in l->rc and l->resolve_err. */
int bpe_vocab_done(struct bpe_load *l);

/* Resolve the merges that are there and start over with an empty arena. */
void bpe_resolve_here(struct bpe_load *l);

/* Resolve what a second thread reads until it has ended. */
void bpe_resolve_meanwhile(struct bpe_load *l);

/* ---- the rest ---- */

/* Everything in the file but vocabulary, merges and added tokens: refused by
 * name unless it is what this tokenizer does. */
int bpe_check_rest(struct bpe_load *l, const struct json_value *root);

/* Note what the post-processor adds to a text, once all tokens have their rows.
 * -1 (l->e) only when out of memory. */
int bpe_read_frame(struct bpe_load *l, const struct json_value *post);

/* Give added tokens their rows. Before any spelling is turned into bytes. */
int bpe_add_tokens(struct bpe_load *l, const struct json_value *list);

#endif
