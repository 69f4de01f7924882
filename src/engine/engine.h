/* What the public structs hold. */
#ifndef ENGINE_ENGINE_H
#define ENGINE_ENGINE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/clock.h"
#include "base/err.h"
#include "engine/fingerprint.h"
#include "engine/memory.h"
#include "file/checkpoint.h"
#include "file/safetensors.h"
#include "model/model.h"
#include "model/scratch.h"
#include "text/bpe.h"
#include "text/chat.h"

struct par_pool;
struct prefix;
struct prefix_disk;

struct qwick_engine {
    struct checkpoint *ck;
    struct st_set *weights; /* NULL with tokenizer_only */
    struct par_pool *pool;
    struct model model;
    struct bpe *bpe; /* NULL when the checkpoint has no tokenizer.json */
    enum chat_template template;
    enum dtype kv_dtype;
    unsigned char *blocked; /* [vocab_size] ids without text, or NULL */
    /* Shared by the sessions, which run one at a time or jointly. */
    struct scratch *scratch; /* made with the first session */
    struct span *spans;      /* [cap_spans] of a joint step */
    float *rows;             /* [cap_rows, vocab_size] its logits */
    float *hidden;           /* [cap_hidden, d_model] its hidden states */
    size_t cap_spans, cap_rows, cap_hidden;
    struct memory memory;
    struct prefix *prefix;          /* NULL: no cache in memory */
    struct prefix_disk *disk;       /* NULL: none on disk */
    struct fingerprint fingerprint; /* zeros: not computed so far */
    uint64_t contents;              /* of engine_contents */
    bool has_contents;
    int32_t think_open, think_close; /* ids, or -1 */
    struct qwick_info info;
    qwick_log_fn log; /* or NULL */
    void *log_ctx;
};

struct qwick_session {
    struct qwick_engine *eng;
    struct kv_cache kv;
    int32_t *tokens; /* [cap] the first kv.n are in the cache */
    size_t cap;
    size_t limit;
    float *own_logits;   /* [vocab_size], or NULL: not needed so far */
    const float *logits; /* of the last token: own, a row of the engine's, or
                            of a generation under way; NULL: none */
    const float *hidden; /* a row of the engine's, or NULL */
    size_t n_rows;       /* rows that end with *logits */
    size_t n_cached;     /* of the last sync: tokens not evaluated again */
    double *parts;       /* [PART_COUNT] ms are added to, or NULL */
    qwick_progress_fn progress;
    void *progress_ctx;
    const volatile int *interrupt;
    double deadline_ms; /* of clock_ms, for the prefill; 0: none */
};

static inline bool session_interrupted(const struct qwick_session *s)
{
    return s->interrupt && *s->interrupt;
}

/* Whether a prefill shall stop: by the flag or by the deadline. It fails with
 * QWICK_ERR_INTERRUPTED in both cases. */
static inline bool session_stopped(const struct qwick_session *s)
{
    return session_interrupted(s) ||
           (s->deadline_ms > 0 && clock_ms() >= s->deadline_ms);
}

/* A warning for the program's log; when memory is short it is dropped. */
void engine_warn(struct qwick_engine *eng, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));

/* Ids in range, n >= 1 of them, and no more than the context takes. */
int session_check_tokens(const struct qwick_session *s, const int32_t *tokens,
                         size_t n, struct qwick_err *e);

/* Refuse a context of n tokens that cannot end well before touching memory. */
int session_predict_memory(const struct qwick_session *s, size_t n,
                           struct qwick_err *e);

/* Room for n tokens in s->tokens. */
int session_reserve_tokens(struct qwick_session *s, size_t n,
                           struct qwick_err *e);

/* Drop all but the first n tokens, and logits that are then no longer the last
 * token's. */
void session_truncate(struct qwick_session *s, size_t n);

/* Append tokens[0..n), n >= 1, in one pass; logits of each to rows f32
 * [n, vocab_size], the last of which become the session's. There they stay:
 * see session_own_logits. The room for passes of up to `most` tokens is made at
 * once. The interrupt flag is not looked at. */
int session_decode_all(struct qwick_session *s, const int32_t *tokens, size_t n,
                       size_t most, float *rows, struct qwick_err *e);

/* After it: drop all but the first n tokens, one of the pass at least. The
 * logits are then those of the last one. */
void session_keep(struct qwick_session *s, size_t n);

/* The logits, if there are any, become the session's own. */
void session_own_logits(struct qwick_session *s);

/* Bytes of a token, none for ids that the tokenizer lacks and, with
 * skip_special, for special ones; borrowed. An id beyond the vocabulary:
 * QWICK_ERR_USAGE. Needs a tokenizer. */
int engine_token_bytes(const struct qwick_engine *eng, int32_t id,
                       bool skip_special, const char **p, size_t *n,
                       struct qwick_err *e);

/* Tokenizer of the engine, or QWICK_ERR_MODEL. */
int engine_need_tokenizer(const struct qwick_engine *eng, struct qwick_err *e);

#endif
