/* Reading tokenizer.json: shared by bpe_load.c, bpe_scan.c, bpe_resolve.c,
 * bpe_check.c, bpe_added.c and bpe_post.c. */
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

/* A buffer of spellings. It is allocated at its largest possible size, so that
 * it never moves while two threads use it. Untouched pages cost nothing. */
struct bpe_text {
    char *p;
    size_t len;
};

/* A record in the arena of merges has the lengths of both parts, 2 bytes each,
 * then both parts. So the merged token's spelling is contiguous. */
#define HEAD 4
/* Merges of a chunk, which are resolved together. */
#define CHUNK_MERGES 512
/* Enough chunks for one merge per possible id. */
#define MAX_CHUNKS ((1 << BPE_ID_BITS) / CHUNK_MERGES)

/* A fault in the text. at: the position after it; NULL if only broken syntax
 * was seen. */
struct bpe_fault {
    const char *at;
    struct qwick_err err;
};

/* Merges while they are read, by the second thread if there is one. Chunk i has
 * CHUNK_MERGES merges (the last one fewer), in the bytes from start[i] to
 * start[i + 1] of the arena. Members that both threads write often have their
 * own cache lines. */
struct merges {
    const char *name;
    struct bpe_fault fault;
    struct bpe_text arena; /* records */
    size_t n;              /* merges read so far */
    const char *text;      /* the whole file */
    size_t n_text;
    size_t begin, end; /* of the array of merges in text, with its brackets */
    bool running;      /* the thread must be joined */
    pthread_t thread;
    size_t start[MAX_CHUNKS + 1];
    _Alignas(64) size_t published; /* chunks ready for resolving */
    int ended;                     /* 1: all are published; -1: something
                                      failed */
    int vocab;                     /* the vocabulary; 1: indexed, -1: do not
                                      wait for it */
    _Alignas(64) size_t taken;     /* chunks resolved or being resolved */
};

struct bpe_load {
    const char *name;
    /* the file's names of these, for messages */
    const char *vocab_name, *merges_name, *added_name;
    struct bpe *b;
    struct qwick_err *e;
    struct bpe_fault fault;

    struct bpe_text vocab; /* spellings one after another */
    struct merges merges;
    bool has_vocab, has_merges;
    struct json_gap gaps[2]; /* places of vocabulary and merges in the text */
    size_t n_gaps;
    size_t n_vocab;
    size_t n_tok; /* rows of b->tok that are zeroed or in use */
    size_t tok_cap;
    uint32_t max_id;

    struct hashmap table; /* spelling to id */
    size_t merges_cap;    /* rows of b->merges */
    bool resolved;        /* both threads together resolved all merges */
    int rc;               /* status of indexing and resolving */
    struct qwick_err resolve_err;
};

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

/* Whether a member is null or absent. */
static inline bool bpe_is_null(const struct json_value *v)
{
    return !v || json_is(v, JSON_NULL);
}

static inline bool bpe_is_bool(const struct json_value *v, bool want)
{
    return json_is(v, JSON_BOOL) && v->boolean == want;
}

/* ---- bpe_load.c ---- */

/* Prepare l, all zeros, for a file with n bytes of text. The caller frees it
 * even on failure. */
int bpe_load_init(struct bpe_load *l, const char *name, size_t n,
                  struct qwick_err *e);
/* Free l and return its tokenizer. */
struct bpe *bpe_load_free(struct bpe_load *l);
/* Find the tokens of single bytes. Call it when the vocabulary is indexed,
 * before tokens are added. */
int bpe_find_bytes(const struct bpe_load *l);
/* The last step: set up the rest that encoding needs. */
int bpe_finish(struct bpe_load *l);

/* Add an entry of the vocabulary. Its spelling is the n <= BPE_MAX_TOKEN bytes
 * at l->vocab.p + l->vocab.len; its id <= BPE_MAX_ID ends before p in the text.
 * -1 with l->fault set: another entry has the id, or out of memory. */
int bpe_vocab_put(struct bpe_load *l, size_t n, uint32_t id, const char *p);

/* ---- bpe_scan.c ---- */

/* Fill l from a file: vocabulary, merges (unless resolving them failed, l->rc),
 * and *rest, the JSON tree of everything else, which the caller frees. -1: sets
 * l->e. */
int bpe_scan(struct bpe_load *l, const char *text, size_t n,
             struct json_doc **rest);

/* ---- bpe_resolve.c ---- */

/* Index the complete vocabulary, and make room for merges. -1 only when memory
 * ran out. Faults of the vocabulary go to l->rc and l->resolve_err, because
 * unsupported features of the file are reported before them. */
int bpe_vocab_done(struct bpe_load *l, struct qwick_err *e);

/* Resolve chunks until none is left or one fails, which sets m->ended to -1.
 * Called by each of the two threads, once the vocabulary is indexed. */
void bpe_resolve_chunks(struct bpe_load *l);

/* Resolve all merges in one thread; a failure goes to l->rc and
 * l->resolve_err. */
void bpe_resolve_all(struct bpe_load *l);

/* ---- the rest ---- */

/* Check everything in the file except vocabulary, merges and added tokens.
 * Features that this tokenizer does not have are refused by name. */
int bpe_check_rest(struct bpe_load *l, const struct json_value *root);

/* Read the ids that the post-processor adds to a text. Call it when all tokens
 * have their rows. -1 with l->e set only when memory ran out. */
int bpe_read_frame(struct bpe_load *l, const struct json_value *post);

/* Give added tokens their rows. Call it before any spelling is turned into
 * bytes. */
int bpe_add_tokens(struct bpe_load *l, const struct json_value *list);
/* bpe_add_tokens for the n tokens in b->added [n + 1], whose contents are not
 * in the arena yet; special [n]. */
int bpe_place_tokens(struct bpe_load *l, size_t n, const bool *special);

#endif
