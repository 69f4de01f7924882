/* The members of the public structs, and functions on these structs for the
 * engine's own files. */
#ifndef ENGINE_ENGINE_H
#define ENGINE_ENGINE_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/clock.h"
#include "base/err.h"
#include "base/flag.h"
#include "base/os.h"
#include "engine/core/channels.h"
#include "engine/core/fingerprint.h"
#include "engine/core/memory.h"
#include "file/checkpoint.h"
#include "file/safetensors.h"
#include "model/model.h"
#include "model/scratch.h"
#include "text/bpe/bpe.h"
#include "text/chat/chat_templates.h"

enum { ENGINE_MAX_CALL_TAGS = 16 };

struct call_form;
struct par_pool;
struct pooling;
struct prefix;
struct prefix_disk;
struct token_trie;
struct tuning;

struct qwick_engine {
    struct checkpoint *ck;
    struct st_set *weights; /* NULL with tokenizer_only */
    struct par_pool *pool;
    struct os_nodes nodes; /* empty unless numa is set; see numa_open */
    bool spread;           /* preload takes pages from all of them in turn */
    struct model model;
    struct bpe *bpe; /* NULL when the checkpoint has no tokenizer.json */
    const char *pieces_file; /* SentencePiece's file that it has instead; or
                                NULL */
    /* NULL: the checkpoint has no chat template. The second one is for chats
       with tools, if the checkpoint has one for them. */
    struct chat_template *form, *form_tools;
    const struct kv_kind *kv; /* of the caches of its sessions */
    unsigned char *blocked; /* [vocab_size] ids that are never drawn, or NULL */
    /* Buffers that all sessions share. Sessions run one at a time or
       jointly. */
    struct scratch *scratch; /* created with the first session */
    struct span *spans;      /* [cap_spans] of the current joint step */
    float *rows;             /* [cap_rows, vocab_size] logits of the last joint
                                step */
    float *hidden;           /* [cap_hidden, d_model] hidden states of the last
                                joint step */
    size_t cap_spans, cap_rows, cap_hidden;
    pass_layer_fn on_layer; /* of passes that report progress, while they run;
                               else NULL */
    void *on_layer_ctx;
    pass_input_fn on_input; /* of all joint steps; NULL: not called */
    void *on_input_ctx;
    const volatile int *stop; /* ends joint steps in place of the flag of their
                                 first session; NULL: that flag does */
    struct memory memory;
    struct prefix *prefix;          /* NULL: no cache in memory */
    struct prefix_disk **disks; /* [1 + loras.n] without an adapter, and of
                                   each one; NULL, or entries NULL: no cache on
                                   disk */
    size_t own_lora; /* of new sessions: adapter + 1; 0: none */
    bool told_prefix;               /* that a prompt does not fit prefix */
    bool checked_head;              /* engine_suitable_head has been called */
    bool checked_class; /* engine_suitable_class has warned; atomic */
    bool told_dim;      /* that vectors are cut; atomic */
    bool read_first;                /* first_pass_read has something to do */
    bool passed;                    /* there was a pass */
    struct fingerprint fingerprint; /* zeros: not computed yet */
    uint64_t contents;              /* result of engine_contents */
    bool has_contents;
    pthread_mutex_t pooling_lock;
    struct pooling *pooling; /* made under pooling_lock by the first embedder,
                                because later the program may have given up the
                                right to open files; NULL: not needed yet */
    uint64_t tokens_hash; /* of the tokenizer's tokens */
    bool has_tokens_hash;
    int32_t think_open, think_close; /* ids of the think tokens, or -1 */
    const char *think_label;         /* see struct think_tags, or NULL */
    struct channel_ids channels;
    /* how the template writes calls of tools; NULL: in no form that is known */
    const struct call_form *call_form;
    int32_t call_tags[ENGINE_MAX_CALL_TAGS]; /* [n_call_tags] added tokens in
                                                the parts of the form */
    size_t n_call_tags;
    pthread_mutex_t trie_lock;
    struct token_trie *trie; /* for constraints, made under trie_lock; NULL: not
                                needed yet. A thread with a constraint may read
                                it without the lock */
    int32_t bos_id;                  /* goes before texts; -1: nothing does */
    const struct tuning *tuning; /* of the process; NULL with tokenizer_only */
    struct qwick_info info;
    qwick_log_fn log; /* or NULL */
    void *log_ctx;
};

struct qwick_session {
    struct qwick_engine *eng;
    struct kv_cache kv;
    size_t lora;     /* adapter + 1; 0: none */
    int32_t *tokens; /* [cap] the first kv.n tokens are in the cache */
    size_t cap;
    size_t limit;        /* maximum number of tokens */
    float *own_logits;   /* [vocab_size]; NULL: not needed yet */
    const float *logits; /* logits of the last token: own_logits, a row of the
                            engine's buffer, or a row of a running generation;
                            NULL: none */
    const float *hidden; /* a row of the engine's buffer, or NULL */
    size_t n_rows;       /* rows of logits, or of hidden states; *logits and
                            *hidden are the last ones */
    size_t n_type0;      /* of the next joint step, see struct span */
    size_t n_expected;   /* tokens that it will have when all that waits for
                            evaluation is evaluated; 0: not known */
    size_t n_cached;     /* tokens that the last sync did not evaluate */
    double *parts;       /* [PART_COUNT] milliseconds per part for profiling, or
                            NULL */
    qwick_progress_fn progress;
    void *progress_ctx;
    const volatile int *interrupt;
    double deadline_ms; /* end of the time for the prefill by clock_ms; 0:
                           none */
    /* The session of a draft model that has guessed for this one; NULL: none.
       It holds the context from token draft_start on. */
    struct qwick_session *draft;
    size_t draft_start;
    char *note; /* [n_note] see qwick_session_set_note; NULL: none */
    size_t n_note;
};

static inline bool session_interrupted(const struct qwick_session *s)
{
    return flag_is_set(s->interrupt);
}

/* Return whether a prefill must stop, because of the flag or the deadline. In
 * both cases the prefill fails with QWICK_ERR_INTERRUPTED. */
static inline bool session_stopped(const struct qwick_session *s)
{
    return session_interrupted(s) ||
           (s->deadline_ms > 0 && clock_ms() >= s->deadline_ms);
}

/* Send a warning, or a note, to the program's log. If memory is short, the line
 * is dropped. */
void engine_warn(const struct qwick_engine *eng, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));
void engine_note(const struct qwick_engine *eng, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));

/* Warn once that logits are doubtful because the file's head is missing. Call
 * it where logits are computed. */
void engine_suitable_head(struct qwick_engine *eng);

/* Warn once that results are doubtful because config.json's architectures or
 * auto_map name another kind of model. hidden: the results are hidden states,
 * for which a model without a head is right. */
void engine_suitable_class(struct qwick_engine *eng, bool hidden);

/* QWICK_ERR_MODEL if the model is a classifier. */
int engine_refuse_classifier(const struct qwick_engine *eng,
                             struct qwick_err *e);

/* QWICK_ERR_MODEL if the model has no logits: it is a classifier, or its file
 * has no head. */
int engine_need_head(const struct qwick_engine *eng, struct qwick_err *e);

/* qwick_session_create for a model that may have no logits. */
int session_create(struct qwick_session **out, struct qwick_engine *eng,
                   size_t n_ctx, struct qwick_err *e);

/* Read the checkpoint's tokenizer, its chat templates, the options that change
 * them, and the stop id that tokenizer_config.json names. Sets bpe, form and
 * form_tools, which may all stay NULL. */
int engine_open_text(struct qwick_engine *eng,
                     const struct qwick_engine_options *o, struct qwick_err *e);

/* Open the adapters, once the model is open. */
int engine_open_loras(struct qwick_engine *eng,
                      const struct qwick_engine_options *o,
                      struct qwick_err *e);

/* Set *limit to the maximum number of tokens of a session created with n_ctx
 * (0: the model's maximum). QWICK_ERR_USAGE if the engine has no weights;
 * QWICK_ERR_CONTEXT if n_ctx is above the model's maximum. */
int engine_context(const struct qwick_engine *eng, size_t n_ctx, size_t *limit,
                   struct qwick_err *e);

/* Check that tokens[0..n) is a valid context: n >= 1 and all ids in range, else
 * QWICK_ERR_USAGE; n at most s->limit, else QWICK_ERR_CONTEXT. */
int session_check_tokens(const struct qwick_session *s, const int32_t *tokens,
                         size_t n, struct qwick_err *e);

/* Return -1 with QWICK_ERR_MEMORY when the KV cache of n tokens needs more
 * memory than is available. Allocates nothing. */
int session_predict_memory(const struct qwick_session *s, size_t n,
                           struct qwick_err *e);

/* Make room for n tokens in s->tokens. */
/* Return whether a sequence of n tokens needs the frequencies of long ones. */
bool session_needs_long_rope(const struct qwick_session *s, size_t n);

/* Rotate the session's keys by the frequencies that fit n tokens, or n_expected
 * if that is more. If they change, its tokens are evaluated again. The session
 * has fewer tokens than before after an error. */
int session_choose_rope(struct qwick_session *s, size_t n, struct qwick_err *e);

int session_reserve_tokens(struct qwick_session *s, size_t n,
                           struct qwick_err *e);

/* Drop all tokens after the first kv_usable(&s->kv, n). If any are dropped, the
 * logits are dropped as well. */
void session_truncate(struct qwick_session *s, size_t n);

/* Append tokens[0..n), n >= 1, in one pass, and write their logits to rows f32
 * [n, vocab_size]. The last row becomes the session's logits without a copy;
 * see session_own_logits. Makes room for later passes of up to `most` tokens.
 * Ignores the interrupt flag. */
int session_decode_all(struct qwick_session *s, const int32_t *tokens, size_t n,
                       size_t most, float *rows, struct qwick_err *e);

/* After session_decode_all: drop all tokens of the session after the first n.
 * At least one token of the pass must stay. The session must be able to go back
 * (kv_usable): at most KV_SLACK tokens, with recurrent layers DELTA_BLOCK. The
 * logits are then those of the last remaining token. */
void session_keep(struct qwick_session *s, size_t n);

/* Copy the session's logits, if it has any, to s->own_logits. */
void session_own_logits(struct qwick_session *s);

/* Decode a token (bpe_decode) and append the text to *out: none for ids that
 * the tokenizer lacks and, with skip_special, for special tokens.
 * QWICK_ERR_USAGE if id is beyond the vocabulary. The engine must have a
 * tokenizer. */
int engine_decode_token(const struct qwick_engine *eng, struct bpe_decoder *d,
                        int32_t id, bool skip_special, struct buf *out,
                        struct qwick_err *e);

/* Return the prefix cache on disk of an adapter + 1, or without one (0). NULL:
 * there is none. */
static inline struct prefix_disk *engine_disk(const struct qwick_engine *eng,
                                              size_t lora)
{
    return eng->disks ? eng->disks[lora] : NULL;
}

/* Put the first n positions of kv, which hold tokens[0..n) of a sequence with an
 * adapter (lora: adapter + 1, or 0), into the prefix
 * cache in memory, which the engine has (prefix_insert). A note says once that
 * they do not fit. */
void engine_keep_prefix(struct qwick_engine *eng, size_t lora,
                        const int32_t *tokens, size_t n,
                        const struct kv_cache *kv);

/* Measure the read bandwidth of all threads over 256 MiB of anonymous memory,
 * in bytes per second, for about ms milliseconds. */
int engine_memory_rate(const struct qwick_engine *eng, double ms, double *rate,
                       struct qwick_err *e);

/* Check that the engine has a tokenizer; QWICK_ERR_MODEL if not. */
int engine_need_tokenizer(const struct qwick_engine *eng, struct qwick_err *e);

#endif
