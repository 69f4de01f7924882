/* Making a tokenizer: shared by bpe_load.c, bpe_scan.c, bpe_check.c,
 * bpe_added.c and bpe_post.c, which read tokenizer.json, by bpe_parts.c, which
 * reads the arrays of a GGUF file, and by bpe_merges.c and bpe_resolve.c.
 *
 * Resolving a merge means finding the ids of its two parts and of the merged
 * token. Merges are resolved in chunks. If there is a second thread, it reads
 * the merges while the first thread reads the vocabulary. Then both resolve
 * chunks. */
#ifndef TEXT_BPE_LOAD_H
#define TEXT_BPE_LOAD_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/utf8.h"
#include "file/json.h"
#include "text/bpe/bpe_int.h"

/* A buffer of spellings. It is allocated at its maximum size, so that it never
 * moves while two threads use it. Pages that are not touched cost nothing. */
struct bpe_text {
    char *p;
    size_t len;
};

/* Bytes of a record's head. A record in the arena of merges has the lengths of
 * both parts, 2 bytes each, and then both parts. So the spelling of the merged
 * token is contiguous. */
#define HEAD 4
/* Merges in a chunk. */
#define CHUNK_MERGES 512
/* Maximum number of chunks: enough for one merge per possible id. */
#define MAX_CHUNKS ((1 << BPE_ID_BITS) / CHUNK_MERGES)
/* There must be fewer merges. */
#define BPE_MERGES_MAX ((size_t)MAX_CHUNKS * CHUNK_MERGES)

struct bpe_load;
/* Read all merges of l into its arena, in the second thread, and call
 * bpe_merges_done. Touches only l->merges. Returns -1, without that call, if
 * there seem to be none. */
typedef int (*bpe_merges_read)(struct bpe_load *l);

/* A fault in the text. at is the position after it; NULL if we only saw that
 * the syntax is broken. */
struct bpe_fault {
    const char *at;
    struct qwick_err err;
};

/* The merges while they are read. Chunk i has CHUNK_MERGES merges (the last
 * chunk has fewer), in bytes [start[i], start[i + 1]) of the arena. Members
 * that both threads write often have cache lines of their own. */
struct merges {
    const char *name;
    struct bpe_fault fault;
    struct bpe_text arena; /* records */
    size_t n;              /* merges read so far */
    const char *text;      /* the whole file */
    size_t n_text;
    size_t begin, end; /* place in text of the array of merges, with its
                          brackets */
    bool running;      /* the thread must be joined */
    pthread_t thread;
    bpe_merges_read read; /* what the thread does first */
    size_t start[MAX_CHUNKS + 1];
    _Alignas(64) size_t published; /* chunks that can be resolved */
    int ended;                     /* 1: all chunks are published; -1: something
                                      failed */
    int vocab;                     /* 1: the vocabulary is indexed; -1: do not
                                      wait for it */
    _Alignas(64) size_t taken;     /* chunks resolved or being resolved */
};

struct bpe_load {
    const char *name;
    const struct bpe_parts *parts; /* NULL for tokenizer.json */
    const struct bpe_maker *maker; /* of the type of the model; see
                                      bpe_check_rest */
    /* the file's names for these parts, for messages */
    const char *vocab_name, *merges_name, *added_name;
    struct bpe *b;
    struct qwick_err *e;
    struct bpe_fault fault;

    struct bpe_text vocab; /* spellings one after another */
    struct merges merges;
    bool has_vocab, has_merges;
    bool has_pieces; /* the vocabulary is an array of pieces with scores */
    double *scores;  /* [n_scores] of the pieces, by id */
    size_t n_scores, scores_cap;
    bool has_metaspace;      /* the pre_tokenizer is Metaspace */
    bool expect_fallback;    /* byte_fallback seems to be true; checked later */
    struct json_gap gaps[2]; /* places in the text of the vocabulary and the
                                merges */
    size_t n_gaps;
    size_t n_vocab;
    size_t n_tok; /* rows of b->tok that are in use, or zeroed */
    size_t tok_cap;
    uint32_t max_id;

    struct hashmap table; /* from spelling to id */
    struct hashmap added; /* of added tokens that the vocabulary lacks */
    size_t merges_cap;    /* rows of b->merges */
    bool resolved;        /* the two threads have resolved all merges */
    int rc;               /* status of indexing and resolving */
    struct qwick_err resolve_err;
};

/* How a tokenizer with this type of model is made from tokenizer.json. Each
 * function returns -1 with *l->e set. root is the file without a vocabulary
 * that is an object, and without the merges. */
struct bpe_maker {
    const char *type; /* model.type */
    /* A member of the model that only this type has: files without model.type
       are of this type if they have it. NULL: they are refused. */
    const char *mark;
    /* Check everything except the added tokens and the post_processor. If the
       file asks for a feature that this tokenizer lacks, the error names the
       feature. Set b->model, and b->own once it must be freed. */
    int (*check)(struct bpe_load *l, const struct json_value *root);
    /* Prepare b->model->normal_form. The vocabulary is indexed in l->table, if
       it is an object; an array must be put with bpe_vocab_put, and indexed
       with bpe_vocab_done. Tokens are added afterwards. */
    int (*begin)(struct bpe_load *l, const struct json_value *root);
    /* Complete the tokenizer. All tokens have their rows. */
    int (*end)(struct bpe_load *l);
};

extern const struct bpe_maker bpe_maker_merging; /* BPE; bpe_check.c */
extern const struct bpe_maker bpe_maker_wordpiece; /* bpe_wordpiece_load.c */
extern const struct bpe_maker bpe_maker_unigram;

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

/* Return whether a member is null or absent. */
static inline bool bpe_is_null(const struct json_value *v)
{
    return !v || json_is(v, JSON_NULL);
}

/* Return whether a part of the file, an object, has this type. */
static inline bool bpe_is_type(const struct json_value *v, const char *type)
{
    return json_equals(json_get(v, "type"), type);
}

static inline bool bpe_is_bool(const struct json_value *v, bool want)
{
    return json_is(v, JSON_BOOL) && v->boolean == want;
}

/* ---- bpe_load.c ---- */

/* Prepare l, which must be all zeros, for a file of n bytes. Call bpe_load_end
 * in any case. */
int bpe_load_init(struct bpe_load *l, const char *name, size_t n,
                  struct qwick_err *e);
/* Free the memory of l. Set *out to its tokenizer if rc is 0, else free that as
 * well. Returns rc. */
int bpe_load_end(struct bpe_load *l, int rc, struct bpe **out);
/* Return a loader, all zeros, on the heap: it is too large for the stack of a
 * small thread. NULL with *e set when out of memory. */
struct bpe_load *bpe_load_new(struct qwick_err *e);
/* Find the tokens that are single bytes. Call this once the vocabulary is
 * indexed, and before tokens are added. */
int bpe_find_bytes(const struct bpe_load *l);
/* Build the word cache and the table of words. Call this last. */
int bpe_finish(struct bpe_load *l);

/* Add an entry of the vocabulary. Its spelling is the n <= BPE_MAX_TOKEN bytes
 * at l->vocab.p + l->vocab.len. Its id is at most BPE_MAX_ID, and ends before p
 * in the text. Returns -1 with l->fault set if another entry has the id, or
 * when out of memory. */
int bpe_vocab_put(struct bpe_load *l, size_t n, uint32_t id, const char *p);

/* ---- bpe_chars.c ---- */

/* Do the work of bpe_find_bytes for a tokenizer with byte_fallback, and also
 * find the tokens of characters. */
int bpe_find_chars(const struct bpe_load *l);

/* ---- bpe_pieces.c ---- */

/* Prepare l for n tokens with scores. */
int bpe_pieces_begin(struct bpe_load *l, size_t n);
/* Add the normal, added or byte token p[0..n), n >= 1. Returns -1 with *l->e
 * set. */
int bpe_piece_put(struct bpe_load *l, enum bpe_kind kind, uint32_t id,
                  const char *p, size_t n, float score);
/* Do the work of bpe_find_bytes, and take the table of spellings. Call this
 * when added tokens have their rows. */
int bpe_pieces_end(struct bpe_load *l);

/* ---- bpe_scan.c ---- */

/* Fill l from a file with the vocabulary and the merges. If only resolving the
 * merges failed, l->rc says so. *rest is the JSON tree of everything else,
 * which the caller frees. Returns -1 with *l->e set. */
int bpe_scan(struct bpe_load *l, const char *text, size_t n,
             struct json_doc **rest);

/* ---- bpe_merges.c ---- */

/* Start the second thread if the text of the tokenizer, n bytes, is large, and
 * there is a CPU for it. After this, call bpe_merges_join or bpe_merges_give_up
 * before l is freed. */
void bpe_merges_start(struct bpe_load *l, size_t n, bpe_merges_read read);
/* Tell the second thread that the vocabulary is indexed. */
void bpe_merges_vocab_ready(struct bpe_load *l);
/* Help to resolve the merges, and end the second thread. Returns whether all
 * merges are read and resolved. If not, m->ended is 1 if they are read. */
bool bpe_merges_join(struct bpe_load *l);
/* End the second thread, if it runs, and drop its work. */
void bpe_merges_give_up(struct bpe_load *l);

/* For the thread that reads the merges. */

/* Complete the record at the end of the arena. There must be fewer than
 * BPE_MERGES_MAX. -1: the other thread has given up. */
int bpe_merge_done(struct merges *m, size_t left, size_t right);
/* Complete the last chunk, and set m->ended: to 1 if all merges are read
 * (whole). */
void bpe_merges_done(struct merges *m, bool whole);
/* Forget what was read. The second thread must have ended. */
void bpe_merges_reset(struct merges *m);

/* ---- bpe_resolve.c ---- */

/* Index the complete vocabulary, and make room for merges. Returns -1 only when
 * out of memory. Faults of the vocabulary go to l->rc and l->resolve_err,
 * because features of the file that we do not support are reported before
 * them. */
int bpe_vocab_done(struct bpe_load *l, struct qwick_err *e);

/* Resolve chunks until none is left, or until one fails, which sets m->ended to
 * -1. Each of the two threads calls this once the vocabulary is indexed. */
void bpe_resolve_chunks(struct bpe_load *l);

/* Resolve all merges in this thread. A failure goes to l->rc and
 * l->resolve_err. */
void bpe_resolve_all(struct bpe_load *l);

/* ---- the rest ---- */

/* Find l->maker, and check everything in the file except vocabulary, merges and
 * added tokens. If it asks for a feature that this tokenizer lacks, the error
 * names the feature. */
int bpe_check_rest(struct bpe_load *l, const struct json_value *root);

/* Report that a part of the file is not supported, or missing: "NAME: WHAT:
 * VALUE is not supported (supported: WANT)". v: the part, or NULL. Returns
 * -1. */
int bpe_refuse(const struct bpe_load *l, const char *what,
               const struct json_value *v, const char *want);

/* Refuse members of the model v that are not known[0..n), unless they are null
 * or false. */
int bpe_check_fields(const struct bpe_load *l, const struct json_value *v,
                     const char *const *known, size_t n);

/* Check a Metaspace: its replacement must be U+2581. Sets *prefix. */
int bpe_check_metaspace(const struct bpe_load *l, const char *what,
                        const struct json_value *v, enum bpe_prefix *prefix);

/* Call check for v; if it is a Sequence, for each item of its member `list`,
 * and so on. Stops at an error, and returns it. */
int bpe_check_each(const struct bpe_load *l, const struct json_value *v,
                   const char *list,
                   int (*check)(const struct bpe_load *l,
                                const struct json_value *v));

/* Read the ids that the post-processor adds to a text. Call this when all
 * tokens have their rows in b->tok. Returns -1 with *l->e set only when out of
 * memory. */
int bpe_read_frame(struct bpe_load *l, const struct json_value *post);

/* ---- bpe_added.c, bpe_beside.c ---- */

/* An added token as a file lists it. */
struct bpe_listed {
    const char *file, *list; /* where, for messages */
    size_t item;             /* its number there */
    const char *content;     /* [len] */
    size_t len;
    int32_t id; /* -1: the one that the text has, or the next free one */
    bool special, normalized, lstrip, rstrip;
};

struct bpe_listing {
    struct bpe_listed *v;
    size_t n, cap;
};

/* Append a token after checking its length. */
int bpe_list_token(const struct bpe_load *l, struct bpe_listing *t,
                   const struct bpe_listed *token);
/* Append the token that v describes: an object with content, id and flags. The
 * file, the item and the defaults of other members are those of *token. With
 * `partial`, the flags may be missing; the id is then that of *token. */
int bpe_list_object(const struct bpe_load *l, struct bpe_listing *t,
                    struct bpe_listed *token, const struct json_value *v,
                    bool partial);
/* Append the tokens of other files than tokenizer.json: first those with an id,
 * ascending. */
int bpe_list_beside(const struct bpe_load *l, struct bpe_listing *t,
                    const struct bpe_beside *beside);

/* Give added tokens their rows in b->tok: those of tokenizer.json's list, then
 * those of other files. Call this before any spelling is replaced by bytes. */
int bpe_add_tokens(struct bpe_load *l, const struct json_value *list,
                   const struct bpe_beside *beside);
/* Do the work of bpe_add_tokens for tokens in a listing. The first n_own of
 * them may have any free id; the others must have the next free one, as in
 * transformers. */
int bpe_place_tokens(struct bpe_load *l, const struct bpe_listing *t,
                     size_t n_own);

#endif
