/* The members of the public structs, and functions on them for the engine's own
 * files. */
#ifndef ENGINE_ENGINE_H
#define ENGINE_ENGINE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/clock.h"
#include "base/err.h"
#include "engine/core/fingerprint.h"
#include "engine/core/memory.h"
#include "file/checkpoint.h"
#include "file/safetensors.h"
#include "model/model.h"
#include "model/scratch.h"
#include "text/bpe.h"
#include "text/chat_form.h"

struct par_pool;
struct prefix;
struct prefix_disk;

struct qwick_engine {
    struct checkpoint *ck;
    struct st_set *weights; /* NULL with tokenizer_only */
    struct par_pool *pool;
    struct model model;
    struct bpe *bpe; /* NULL when the checkpoint has no tokenizer.json */
    /* NULL: the checkpoint has no chat template. The second one is for chats
       with tools, if the checkpoint has one for them. */
    struct chat_form *form, *form_tools;
    enum dtype kv_dtype;
    unsigned char *blocked; /* [vocab_size] ids without text, or NULL */
    /* Buffers shared by the sessions, which run one at a time or jointly. */
    struct scratch *scratch; /* created with the first session */
    struct span *spans;      /* [cap_spans] of a joint step */
    float *rows;             /* [cap_rows, vocab_size] logits of that step */
    float *hidden;           /* [cap_hidden, d_model] hidden states of that
                                step */
    size_t cap_spans, cap_rows, cap_hidden;
    struct memory memory;
    struct prefix *prefix;          /* NULL: no cache in memory */
    struct prefix_disk *disk;       /* NULL: no cache on disk */
    struct fingerprint fingerprint; /* zeros: not computed yet */
    uint64_t contents;              /* result of engine_contents */
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
    size_t limit;        /* most tokens */
    float *own_logits;   /* [vocab_size]; NULL: not needed yet */
    const float *logits; /* of the last token: own_logits, a row of the engine's
                            buffer, or a row of a running generation; NULL:
                            none */
    const float *hidden; /* a row of the engine's buffer, or NULL */
    size_t n_rows;       /* rows of logits, of which *logits is the last */
    size_t n_cached;     /* tokens that the last sync did not evaluate */
    double *parts;       /* [PART_COUNT] sums of ms for profiling, or NULL */
    qwick_progress_fn progress;
    void *progress_ctx;
    const volatile int *interrupt;
    double deadline_ms; /* deadline of the prefill by clock_ms; 0: none */
};

static inline bool session_interrupted(const struct qwick_session *s)
{
    return s->interrupt && *s->interrupt;
}

/* Whether a prefill must stop, because of the flag or the deadline. In both
 * cases it fails with QWICK_ERR_INTERRUPTED. */
static inline bool session_stopped(const struct qwick_session *s)
{
    return session_interrupted(s) ||
           (s->deadline_ms > 0 && clock_ms() >= s->deadline_ms);
}

/* Send a warning to the program's log. If memory is short, it is dropped. */
void engine_warn(struct qwick_engine *eng, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));

/* Read the checkpoint's chat templates and what the options add to them, and
 * the stop id that tokenizer_config.json names. Sets form and form_tools. */
int engine_open_form(struct qwick_engine *eng,
                     const struct qwick_engine_options *o, struct qwick_err *e);

/* Set *limit to the context of a session created with n_ctx (0: the model's
 * maximum). An engine without weights: QWICK_ERR_USAGE; n_ctx above the
 * maximum: QWICK_ERR_CONTEXT. */
int engine_context(const struct qwick_engine *eng, size_t n_ctx, size_t *limit,
                   struct qwick_err *e);

/* Check that tokens[0..n) is a valid context: n >= 1, ids in range
 * (QWICK_ERR_USAGE), no more than s->limit (QWICK_ERR_CONTEXT). */
int session_check_tokens(const struct qwick_session *s, const int32_t *tokens,
                         size_t n, struct qwick_err *e);

/* QWICK_ERR_MEMORY when the KV cache of n tokens needs more memory than is
 * available. Allocates nothing. */
int session_predict_memory(const struct qwick_session *s, size_t n,
                           struct qwick_err *e);

/* Make room for n tokens in s->tokens. */
int session_reserve_tokens(struct qwick_session *s, size_t n,
                           struct qwick_err *e);

/* Drop all but the first n tokens. If any are dropped, so are the logits. */
void session_truncate(struct qwick_session *s, size_t n);

/* Append tokens[0..n), n >= 1, in one pass, and write their logits to rows f32
 * [n, vocab_size]. The last row becomes the session's logits, without a copy:
 * see session_own_logits. Makes room for passes of up to `most` tokens. Ignores
 * the interrupt flag. */
int session_decode_all(struct qwick_session *s, const int32_t *tokens, size_t n,
                       size_t most, float *rows, struct qwick_err *e);

/* After session_decode_all: drop all but the first n tokens. At least one token
 * of the pass stays. The logits are then those of the last remaining token. */
void session_keep(struct qwick_session *s, size_t n);

/* Copy the logits, if the session has them, to s->own_logits. */
void session_own_logits(struct qwick_session *s);

/* The bytes of a token, borrowed. Ids that the tokenizer lacks have no bytes,
 * nor have special tokens with skip_special. An id beyond the vocabulary:
 * QWICK_ERR_USAGE. Needs a tokenizer. */
int engine_token_bytes(const struct qwick_engine *eng, int32_t id,
                       bool skip_special, const char **p, size_t *n,
                       struct qwick_err *e);

/* Tokenizer of the engine, or QWICK_ERR_MODEL. */
int engine_need_tokenizer(const struct qwick_engine *eng, struct qwick_err *e);

#endif
