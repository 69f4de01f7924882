/* Reading tokenizer.json: what bpe_load.c, bpe_scan.c, bpe_merges.c,
 * bpe_resolve.c, bpe_check.c, bpe_added.c and bpe_post.c share. */
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
/* Records that are resolved together: merges, or bytes of them. */
#define CHUNK_MERGES 512
#define CHUNK_BYTES  16384
/* As many as could make different tokens. */
#define MAX_CHUNKS ((1 << BPE_ID_BITS) / CHUNK_MERGES)

/* Merges as they are read. */
struct merges {
    const char *name;
    struct qwick_err *e;
    struct arena arena; /* records */
    size_t n;           /* so far, for messages */
    bool in_pair;       /* inside of one of the array's pairs */
    size_t n_parts;     /* of that pair */

    /* When bpe_scan.c reads them, by a thread of their own where there is a
     * second CPU: chunk i of CHUNK_MERGES, at the end fewer, is the bytes of
     * the arena from start[i] up to start[i + 1]. What two threads write lies
     * apart from the rest, so that they do not fight for cache lines. */
    const char *text; /* of the whole file */
    size_t n_text;
    size_t begin, end; /* of the array in text, brackets and all */
    pthread_t thread;
    size_t start[MAX_CHUNKS + 1];
    _Alignas(64) size_t published; /* chunks ready for resolving */
    int ended;                     /* 1: all are; -1: something failed */
    bool indexed;              /* the vocabulary is there, to resolve with */
    _Alignas(64) size_t taken; /* chunks that are resolved or being so */
};

enum mode { REST, VOCAB, MERGES };

struct bpe_load {
    const char *name;
    struct bpe *b;
    struct qwick_err *e;

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

static inline void bpe_record_head(char *p, size_t left, size_t right)
{
    uint16_t w[2] = {(uint16_t)left, (uint16_t)right};
    memcpy(p, w, HEAD);
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

/* ---- bpe_load.c ---- */

/* Fill l from a file: vocabulary, merges (unless resolving them failed, l->rc),
 * and what is left of the file as *rest, to be freed. -1: l->e. */
typedef int bpe_reader(struct bpe_load *l, const char *text, size_t n,
                       struct json_doc **rest);

/* By the events of the parser: anything, and with exact messages. */
bpe_reader bpe_parse;

/* In bpe_scan.c: straight from the text, by two threads where there are two
 * CPUs; only what is written in the plain form that nearly all files have. Of
 * anything else it says nothing of use. */
bpe_reader bpe_scan;

/* bpe_open by one reader alone. */
int bpe_open_by(bpe_reader *read, struct bpe **out, const char *name,
                const char *text, size_t n, struct qwick_err *e);

/* The entry spelled l->vocab.p[l->vocab.len ..][0..n), n <= BPE_MAX_TOKEN, has
 * this id <= BPE_MAX_ID. -1 (l->e): another one has it, or out of memory. */
int bpe_vocab_put(struct bpe_load *l, size_t n, uint32_t id);

/* ---- bpe_merges.c: merges from events ---- */

/* Room for n bytes of a string and a record's head, or an error. The sizes of
 * the arenas are bounds on what their parts of the file can hold, so that the
 * length is what can be wrong. */
int bpe_room(const char *name, const struct arena *a, size_t n, const char *s,
             struct qwick_err *e);

/* Events inside of the array: a string, and a pair's brackets. */
int bpe_merge_string(struct merges *m, const char *s, size_t n);
int bpe_merge_open(struct merges *m);
int bpe_merge_close(struct merges *m);

/* ---- bpe_resolve.c ---- */

/* The vocabulary is complete: index it and resolve what merges are there. -1
 * (l->e) only when out of memory; what is wrong with the vocabulary comes
 * later, in l->rc and l->resolve_err. */
int bpe_vocab_done(struct bpe_load *l);

/* Resolve the merges that are there and start over with an empty arena. */
void bpe_resolve_here(struct bpe_load *l);

/* Resolve chunks of what bpe_scan.c reads until none is left; for each of its
 * threads, once the vocabulary is indexed. */
void bpe_resolve_chunks(struct bpe_load *l);

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
