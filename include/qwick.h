/* qwick: Qwen3 language models on a CPU. The one public header.
 *
 * An engine holds the parts that do not change: the mapped checkpoint, its
 * tokenizer and the thread pool. A session is one timeline of tokens with its
 * KV cache.
 *
 *     struct qwick_err e;
 *     struct qwick_engine *eng;
 *     struct qwick_engine_options o = qwick_engine_defaults();
 *     if (qwick_engine_open(&eng, &o, &e)) puts(e.msg);
 *
 * Conventions. A function that can fail returns 0, or -1 with *e set (e may be
 * NULL); on failure its outputs are NULL or empty. Nothing here prints, exits
 * or aborts. The caller frees arrays that a function hands out with free(),
 * unless the function says otherwise. Token ids are int32_t, sizes are size_t
 * and count elements unless the name says bytes, times are milliseconds.
 *
 * Threads. An engine and all that was made from it (sessions, batches,
 * embedders, samplers …) may be used by one thread at a time, also by functions
 * that take it as const: its tokenizer keeps a cache. It need not always be the
 * same thread. Engines share nothing that can be seen: several threads may each
 * use one of their own at the same time. Three things are for one thread of the
 * process: qwick_engine_open (see there), the first passes of an engine with
 * lazy_blas, and qwick_quantize. A flag for interrupts may be set by any thread
 * and by signal handlers. Callbacks run on the thread that called the library.
 *
 * An engine has threads of its own, which sleep between calls and block all
 * signals but faults. fork() does not copy them: a child process must not use
 * or close what its parent opened. It may open engines of its own, or exec.
 * Files are opened with O_CLOEXEC. */
#ifndef QWICK_H
#define QWICK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define QWICK_VERSION "0.1.0"

/* A public function: exported from libqwick.so, and a global symbol of
 * libqwick.a, which have no other ones. */
#if defined(__GNUC__)
#define QWICK_API __attribute__((visibility("default")))
#else
#define QWICK_API
#endif

/* The QWICK_VERSION of the library that runs. */
QWICK_API const char *qwick_version(void);

/* ---- errors ---------------------------------------------------------- */

/* The values are the exit codes of the command line, except the last one: the
 * command line then dies by the signal that interrupted it. */
enum qwick_err_code {
    QWICK_OK = 0,
    QWICK_ERR_RUNTIME = 1,      /* a read or write failed, a device is gone */
    QWICK_ERR_USAGE = 2,        /* an argument, id or value is out of range */
    QWICK_ERR_MODEL = 3,        /* model missing, corrupt or unsupported */
    QWICK_ERR_CONTEXT = 4,      /* does not fit the context */
    QWICK_ERR_MEMORY = 5,       /* out of memory, predicted or real */
    QWICK_ERR_INTERRUPTED = 130 /* stopped by an interrupt flag */
};

/* msg is one line without the program's name: "FILE: WHAT: why". It may hold
 * control bytes that came from a file; escape it before a terminal sees it. */
struct qwick_err {
    enum qwick_err_code code;
    char msg[1020];
};

/* ---- options --------------------------------------------------------- */

/* A struct of options begins with its size. qwick_…_defaults() sets the size
 * and the defaults. A function that takes options accepts NULL for all
 * defaults.
 *
 * A program that was compiled with an older qwick.h has a smaller struct: the
 * library uses the defaults of the options that the struct lacks. A program
 * that was compiled with a newer qwick.h has a larger one: the library accepts
 * it if the options that it does not know are zero. Otherwise, and if nobody
 * has set the size, the function fails with QWICK_ERR_USAGE.
 *
 * qwick_…_options_init(o, sizeof *o) is the function behind qwick_…_defaults(),
 * for languages that cannot call an inline function. */

/* ---- engine ---------------------------------------------------------- */

struct qwick_engine;

enum qwick_kv { QWICK_KV_DEFAULT, QWICK_KV_F16, QWICK_KV_F32, QWICK_KV_Q8 };

/* A line for people about the engine, without a newline; it may hold control
 * bytes that came from a file. Warnings are for every user: a list of chat
 * templates without a default, a stop id outside the vocabulary, a damaged entry of the prefix
 * cache. Notes are details. Called by the thread that is in a function of the
 * engine, while it opens and later; must not call the engine. line is borrowed
 * until the call returns. */
enum qwick_log_level { QWICK_LOG_WARNING, QWICK_LOG_NOTE };
typedef void (*qwick_log_fn)(void *ctx, enum qwick_log_level level,
                             const char *line);

struct qwick_engine_options {
    size_t size;
    const char *model;    /* directory, GGUF file, or hub id in the local
                             Hugging Face cache; NULL: the demo model */
    const char *isa;      /* cap on the kernels: "ref", "avx2", "avxvnni",
                             "avx512", "avx512bf16"; NULL: the best the CPU
                             has. Above the CPU's level: QWICK_ERR_USAGE */
    int threads;          /* 0: physical cores within affinity and cgroup */
    bool exact;           /* one fixed order of sums, f32 everywhere, no BLAS */
    enum qwick_kv kv;     /* default: f16, f32 when exact */
    size_t prefill_chunk; /* tokens a prefill pass, 0: 512 */
    bool preload;         /* copy the weights to huge pages at open */
    size_t prefix_cache_bytes;      /* most of the prefix cache in memory that
                                       sessions and batches share, 0: none */
    bool prefix_cache_disk;         /* use a prefix cache on disk, too: */
    const char *prefix_cache_dir;   /* NULL: qwick_cache_dir's */
    size_t prefix_cache_disk_bytes; /* most on disk, 0: 4 GiB */
    bool tokenizer_only; /* read no weights; sessions cannot be made */
    bool lazy_blas;      /* load OpenBLAS when a pass first needs it, not in
                            qwick_engine_open: starts faster where prompts are
                            short. See there what loading does */
    qwick_log_fn log;    /* NULL: lines are dropped */
    void *log_ctx;
    const char *chat_template; /* one of the checkpoint's templates by its name,
                                  or the path of a file with a template; NULL:
                                  the checkpoint's default */
    const char *template_args; /* JSON object: further variables of the
                                  template. NULL: none */
    const char *template_time; /* "YYYY-MM-DD HH:MM:SS", the time of day may be
                                  left out: what strftime_now gives in templates.
                                  NULL: the local time of each rendering */
};
QWICK_API void qwick_engine_options_init(struct qwick_engine_options *o,
                                         size_t size);
static inline struct qwick_engine_options qwick_engine_defaults(void)
{
    struct qwick_engine_options o;
    qwick_engine_options_init(&o, sizeof o);
    return o;
}

/* Open a checkpoint. Every file is checked before this returns; weights are
 * mapped, not read. A checkpoint without tokenizer.json opens: functions that
 * need the tokenizer then fail with QWICK_ERR_MODEL.
 *
 * Environment. This call reads it (HF_HUB_CACHE, HF_HOME, XDG_CACHE_HOME,
 * HOME). Where long prefills are OpenBLAS's (qwick_info.gemm), it also loads
 * that library, once a process. OpenBLAS is set up by its environment alone, so
 * OPENBLAS_NUM_THREADS, and OPENBLAS_CORETYPE unless the user has set it, are
 * written before and put back after. No other thread may use the environment
 * (getenv, setenv) during this call; with lazy_blas, during the first passes
 * over prompts, too. */
QWICK_API int qwick_engine_open(struct qwick_engine **out,
                                const struct qwick_engine_options *o,
                                struct qwick_err *e);
QWICK_API void qwick_engine_close(struct qwick_engine *eng);

/* Facts for people and for `inspect`. Strings are borrowed from the engine. */
struct qwick_info {
    const char *model;         /* as asked for; "qwick-demo" when built in */
    const char *path;          /* the directory or file that was opened */
    const char *model_type;    /* config.json: model_type */
    const char *weights_dtype; /* "BF16"; quantized: "4-bit (group 64)", or
                                  GGUF's types, "Q4_K/Q6_K" */
    const char *template_name; /* "qwen3", "jinja" (another one) or "none" */
    const char *rope_type;     /* "default" or "yarn" */
    const char *isa;           /* kernels in use */
    const char *cpu;           /* the best level this CPU has */
    const char *kv_dtype;
    const char *gemm; /* the products of long prefills: "bf16" (activations
                         rounded to it), "int8", "own" (f32) or "openblas" */
    int threads;
    size_t vocab_size, tokenizer_size, d_model, d_ff, n_layers, n_heads,
        n_kv_heads, head_dim, n_ctx_max, sliding_window;
    double rope_theta, rms_eps;
    bool tied_head, attention_bias, has_tokenizer, has_weights;
    /* config.json's quantization: bits, group_size, and how many modules have
       their own; 0 in GGUF files, and when no matrix that the model uses is
       quantized */
    int quant_bits;
    size_t quant_group, quant_overrides;
    /* of a mixture of experts, else 0: experts of a layer, those that a token
       passes, and the rows of an expert's gate_proj */
    size_t n_experts, n_active_experts, expert_d_ff;
    size_t n_params;          /* of the tensors that the model uses */
    size_t n_active_params;   /* of these, those that take part in one token:
                                 all without experts */
    size_t params_by_bits[9]; /* n_params by width; [0]: not quantized */
    size_t weight_bytes;      /* bytes of these tensors, as mapped */
    size_t decode_bytes;   /* weights read for one token (embedding: a row;
                              experts: the active ones) */
    size_t kv_token_bytes; /* KV cache a token */
    const int32_t *stop_ids;
    size_t n_stop_ids;
    double load_ms; /* of qwick_engine_open */
};
QWICK_API const struct qwick_info *
qwick_engine_info(const struct qwick_engine *eng);

/* A hash of everything that decides the model's answers: every field of
 * config.json that a pass reads, each tensor's name, type, shape and 16 pieces
 * of 256 bytes, the stop ids, tokenizer.json (of a GGUF file, what it has in
 * place of these files). Copies of a checkpoint have the same hash on any
 * machine. Other weights have another hash, unless they differ
 * only between the pieces. The first call reads the pieces. */
QWICK_API int qwick_engine_identity(struct qwick_engine *eng, uint64_t id[2],
                                    struct qwick_err *e);

struct qwick_tensor {
    const char *name;  /* as stored; not NUL-free if the file is hostile */
    const char *dtype; /* "BF16" … */
    const char *file;
    size_t shape[8];
    size_t rank, bytes;
    bool used; /* the model reads it */
};
/* Tensors of the checkpoint; 0 when it was opened for its tokenizer only. */
QWICK_API size_t qwick_tensor_count(const struct qwick_engine *eng);
/* The i-th tensor of the checkpoint in file order. No such one:
 * QWICK_ERR_USAGE. */
QWICK_API int qwick_tensor_at(const struct qwick_engine *eng, size_t i,
                              struct qwick_tensor *out, struct qwick_err *e);

/* ---- tokens ---------------------------------------------------------- */

/* Text to ids, as Hugging Face's tokenizer does with add_special_tokens=False.
 * special: text such as "<|im_end|>" becomes the added token; else plain text.
 * Bytes that are no UTF-8 are kept: each becomes its byte token. */
QWICK_API int qwick_tokenize(const struct qwick_engine *eng, const char *text,
                             size_t n_bytes, bool special, int32_t **ids,
                             size_t *n_ids, struct qwick_err *e);

/* As qwick_tokenize, for a text that may be far too long: tokenizing stops when
 * there are more than `enough` ids (0: never). *n_ids is then some number above
 * `enough`, and the last ids may differ from the whole text's. */
QWICK_API int qwick_tokenize_some(const struct qwick_engine *eng,
                                  const char *text, size_t n_bytes,
                                  bool special, size_t enough, int32_t **ids,
                                  size_t *n_ids, struct qwick_err *e);

/* Ids to exact bytes (NUL-terminated for convenience; *n_bytes excludes it).
 * skip_special leaves out added tokens flagged special. Ids of the model that
 * the tokenizer lacks (rows that pad the vocabulary) have no bytes; an id
 * beyond both is QWICK_ERR_USAGE. */
QWICK_API int qwick_detokenize(const struct qwick_engine *eng,
                               const int32_t *ids, size_t n_ids,
                               bool skip_special, char **text, size_t *n_bytes,
                               struct qwick_err *e);

/* ---- chat ------------------------------------------------------------ */

/* A conversation: messages, the oldest first, and the tools that the model may
 * call. It belongs to no engine: any engine's template can render it. One
 * thread at a time may use it.
 *
 *     qwick_chat_create(&chat, &e);
 *     qwick_chat_add(chat, "user", "hello", 5, &e);
 *     qwick_chat_generate(chat, ses, NULL, NULL, &r, &e); // adds the answer
 *     qwick_result_free(&r);
 *     qwick_chat_add(chat, "user", "go on", 5, &e);
 *     qwick_chat_generate(chat, ses, NULL, NULL, &r, &e);
 *
 * A template may render a message in another way once others follow it: Qwen3's
 * drops the thinking of an answer after the next question. So a session is not
 * simply continued. qwick_chat_sync and qwick_chat_generate render the whole
 * conversation and compare its tokens with the session's. The tokens that both
 * begin with stay in the session, and the rest is evaluated. The result equals
 * that of a new session (bit by bit with exact). */
struct qwick_chat;
struct qwick_session;
struct qwick_generate_options;
struct qwick_result;

/* A conversation without messages. */
QWICK_API int qwick_chat_create(struct qwick_chat **out, struct qwick_err *e);
QWICK_API void qwick_chat_free(struct qwick_chat *c);

/* Append a message. role: usually "system", "user", "assistant" or "tool". The
 * text content[0..n) is copied; bytes that are no UTF-8 become U+FFFD. */
QWICK_API int qwick_chat_add(struct qwick_chat *c, const char *role,
                             const char *content, size_t n,
                             struct qwick_err *e);

/* Append messages from JSON: an array of them, or an object {"messages",
 * "tools"?, "add_generation_prompt"?, "enable_thinking"?}. A message is an
 * object with a string as "role". Its "content" is a string, null or absent, or
 * a list of parts {"type": "text", "text"}, which newlines join. The
 * template reads other members ("reasoning_content", "tool_calls" …). "tools",
 * "add_generation_prompt" and "enable_thinking" replace the values of an
 * earlier call, and the last two win over the options. An input with an error
 * leaves the conversation unchanged: QWICK_ERR_USAGE names the message and the
 * field. */
QWICK_API int qwick_chat_add_json(struct qwick_chat *c, const char *json,
                                  size_t n, struct qwick_err *e);

/* Append an answer as the assistant's message, with its thinking apart from its
 * text. */
QWICK_API int qwick_chat_add_answer(struct qwick_chat *c,
                                    const struct qwick_result *r,
                                    struct qwick_err *e);

/* Replace the content of message i, which must be a string. */
QWICK_API int qwick_chat_replace(struct qwick_chat *c, size_t i,
                                 const char *content, size_t n,
                                 struct qwick_err *e);

/* Drop all messages after the first n, to undo turns. n larger than the length:
 * QWICK_ERR_USAGE. */
QWICK_API int qwick_chat_rollback(struct qwick_chat *c, size_t n,
                                  struct qwick_err *e);

/* Texts of a message, NUL-terminated, with lengths as they may hold NUL; NULL:
 * it has none. Valid until the message is replaced or dropped. */
struct qwick_message {
    const char *role, *content, *thinking;
    size_t n_role, n_content, n_thinking;
};
/* The number of messages. */
QWICK_API size_t qwick_chat_length(const struct qwick_chat *c);
/* Message i. No such one: QWICK_ERR_USAGE. */
QWICK_API int qwick_chat_at(const struct qwick_chat *c, size_t i,
                            struct qwick_message *out, struct qwick_err *e);

enum qwick_think { QWICK_THINK_AUTO, QWICK_THINK_ON, QWICK_THINK_OFF };

/* The "enable_thinking" of the conversation's JSON; AUTO: it had none. */
QWICK_API enum qwick_think qwick_chat_think(const struct qwick_chat *c);

struct qwick_chat_options {
    size_t size;
    bool add_generation_prompt; /* default true */
    enum qwick_think think;     /* AUTO: the template is not told */
    size_t enough;      /* of qwick_chat_encode: as for qwick_tokenize_some */
    bool allow_special; /* text such as "<|im_end|>" in a message becomes the
                           added token; else only the template's own text does
                           */
};
QWICK_API void qwick_chat_options_init(struct qwick_chat_options *o,
                                       size_t size);
static inline struct qwick_chat_options qwick_chat_defaults(void)
{
    struct qwick_chat_options o;
    qwick_chat_options_init(&o, sizeof o);
    return o;
}

/* The prompt text of a conversation, byte for byte what the checkpoint's
 * template gives. A conversation without messages: QWICK_ERR_USAGE. */
QWICK_API int qwick_chat_render(const struct qwick_chat *c,
                                const struct qwick_engine *eng,
                                const struct qwick_chat_options *o, char **text,
                                size_t *n_text, struct qwick_err *e);

/* The ids of the text that qwick_chat_render gives. prefill (NULL: none) is
 * text at the start of the answer. *in_think tells whether the prompt ends
 * inside an open <think> block. */
QWICK_API int qwick_chat_encode(const struct qwick_chat *c,
                                const struct qwick_engine *eng,
                                const struct qwick_chat_options *o,
                                const char *prefill, size_t n_prefill,
                                int32_t **ids, size_t *n_ids, bool *in_think,
                                struct qwick_err *e);

/* The ids of a session that ends with an answer, and of the conversation as the
 * turns after it: for a session whose earlier messages are not known, as it
 * comes from a file. The end of the answer is added if the session lacks it. A
 * session without tokens: the ids of qwick_chat_encode. */
QWICK_API int qwick_chat_continue(const struct qwick_chat *c,
                                  const struct qwick_session *s,
                                  const struct qwick_chat_options *o,
                                  const char *prefill, size_t n_prefill,
                                  int32_t **ids, size_t *n_ids, bool *in_think,
                                  struct qwick_err *e);

/* Make the session's context the prompt of the conversation. As
 * qwick_session_sync otherwise; qwick_session_cached is then the number of
 * tokens that stayed. */
QWICK_API int qwick_chat_sync(const struct qwick_chat *c,
                              struct qwick_session *s,
                              const struct qwick_chat_options *o,
                              bool *in_think, struct qwick_err *e);

/* Answer the conversation, as qwick_generate does, and append the answer if it
 * has any tokens. in_think of *g is not read. On failure the conversation is
 * unchanged; *r can be passed to qwick_result_free in any case. */
QWICK_API int qwick_chat_generate(struct qwick_chat *c, struct qwick_session *s,
                                  const struct qwick_chat_options *o,
                                  const struct qwick_generate_options *g,
                                  struct qwick_result *r, struct qwick_err *e);

/* ---- sessions -------------------------------------------------------- */

/* One timeline of tokens. After each call, the KV cache holds these tokens:
 *
 *     sync, all_logits       the n tokens given; the logits are the last one's
 *     decode                 the token given as well; so while a generation
 *                            runs, all tokens but the newest drawn one (with
 *                            lookup, guesses as well)
 *     generate               prompt and answer without the last token drawn
 *     rollback, reuse        the first n; no logits where tokens were dropped
 *     fork, load             those of the original, with its logits
 *     engine_step            the tokens of the step as well
 *
 * A call that fails because of its arguments (an id out of range, no room in
 * the context) changes nothing. When a call fails midway (interrupted, out of
 * memory), sync stops at a chunk boundary, and its context is a prefix of the
 * old one or of the new one; the other calls leave the context unchanged. The
 * session stays usable, and later results equal a new session's. */
struct qwick_session;

/* n_ctx: most tokens the session may hold; 0: the model's maximum. The KV cache
 * grows by pages as tokens come, so a large n_ctx takes no memory by itself. */
QWICK_API int qwick_session_create(struct qwick_session **out,
                                   struct qwick_engine *eng, size_t n_ctx,
                                   struct qwick_err *e);
QWICK_API void qwick_session_free(struct qwick_session *s);

/* Make the session's context equal tokens[0..n), n >= 1. Evaluates only the
 * tokens after the longest usable prefix (see qwick_session_reuse), and at
 * least the last one. Afterwards all n tokens are in the cache, the logits
 * belong to tokens[n-1], and the engine's prefix cache in memory has the
 * context's whole pages. More than n_ctx tokens: QWICK_ERR_CONTEXT. On failure
 * the context is a prefix of the old one or of tokens. */
QWICK_API int qwick_session_sync(struct qwick_session *s, const int32_t *tokens,
                                 size_t n, struct qwick_err *e);

/* Append one token and evaluate it: the logits are then the token's. */
QWICK_API int qwick_session_decode(struct qwick_session *s, int32_t token,
                                   struct qwick_err *e);

/* Drop all tokens after the first n. If any were dropped, there are no logits
 * until the next sync or decode. n larger than the length: QWICK_ERR_USAGE. So
 * is, in a model whose layers have a sliding window, an n more than 256 tokens
 * before the longest length: keys that later tokens would see are gone. There,
 * qwick_session_sync evaluates the tokens again. */
QWICK_API int qwick_session_rollback(struct qwick_session *s, size_t n,
                                     struct qwick_err *e);

/* A copy of a session that goes on by itself: same tokens, cache and logits.
 * The two share whole pages of the cache until one of them writes to a page. */
QWICK_API int qwick_session_fork(struct qwick_session **out,
                                 const struct qwick_session *s,
                                 struct qwick_err *e);

/* ---- prefix caches ----------------------------------------------------- */

/* A prefix cache stores whole pages of 64 tokens under the tokens that they and
 * all pages before them hold.
 *
 * In memory it is a trie that the engine's sessions share, of at most
 * prefix_cache_bytes. The page that was used longest ago is dropped first, and
 * never before the pages that follow it.
 *
 * On disk it is a directory that a user's processes share. Entries of different
 * models, KV types, kernel levels, and of exact and default mode are separate.
 * A model is identified by its files: device, inode, size, mtime and ctime when
 * the engine opened them. So a copy of a model has entries of its own. Files
 * that belong to another user (except root), or that others can write to, are
 * not used.
 *
 * With exact, results with and without a hit are equal bit by bit. In default
 * mode they may differ in the last bits, as with another prefill_chunk. */

/* Make the context the longest prefix of tokens[0..n) that the context, the
 * prefix cache in memory or the one on disk holds. The prefix may end inside a
 * page. Evaluates nothing, so leave out the last token if you need logits, and
 * evaluate it afterwards. sync calls this itself; callers of qwick_engine_step
 * need it. */
QWICK_API int qwick_session_reuse(struct qwick_session *s,
                                  const int32_t *tokens, size_t n,
                                  struct qwick_err *e);

/* Put the whole pages of the context into the prefix cache in memory. Copies
 * nothing. Does nothing when the engine has no such cache. */
QWICK_API void qwick_session_publish(struct qwick_session *s);

/* Write the whole pages of the first n tokens of the context to the prefix
 * cache on disk, except pages that it has. Then remove entries, the one that
 * was used longest ago first, until at most prefix_cache_disk_bytes are left.
 * Does nothing when the engine has no such cache, or when these pages alone
 * need more than that. QWICK_ERR_RUNTIME names the file that could not be
 * written; the session is unaffected. */
QWICK_API int qwick_session_store(struct qwick_session *s, size_t n,
                                  struct qwick_err *e);

/* Tokens that the last sync did not have to evaluate. */
QWICK_API size_t qwick_session_cached(const struct qwick_session *s);

/* Write tokens, keys, values and logits to a file that only its owner can read.
 * The file appears at path when it is complete and on the disk. The first save
 * of an engine hashes all weights, to identify them by their contents. Refused
 * with QWICK_ERR_RUNTIME: a path that is not a regular file (a symbolic link,
 * too), and a model whose files were changed in place since the engine opened
 * them. */
QWICK_API int qwick_session_save(struct qwick_session *s, const char *path,
                                 struct qwick_err *e);

/* Open a saved session with a context of n_ctx tokens (0: the model's maximum).
 *
 *     QWICK_ERR_CONTEXT  n_ctx is smaller than the number of saved tokens
 *     QWICK_ERR_USAGE    the file was saved with other weights or another KV
 *                        type; or, where the engine has exact, in default mode
 * or on another kernel level QWICK_ERR_RUNTIME  the file cannot be read, is
 * damaged, belongs to another user (except root), or others can write to it
 *
 * Weights count as the same if their files have the same device, inode, size,
 * mtime and ctime. Otherwise all weights are hashed once and compared, so a
 * copied or moved checkpoint is accepted and an edited one is refused. An edit
 * that changes none of these, not even ctime, goes unnoticed. */
QWICK_API int qwick_session_load(struct qwick_session **out,
                                 struct qwick_engine *eng, const char *path,
                                 size_t n_ctx, struct qwick_err *e);

/* The default directory of the prefix cache on disk: $XDG_CACHE_HOME/qwick, or
 * ~/.cache/qwick. The caller frees it. Neither variable is set:
 * QWICK_ERR_USAGE. */
QWICK_API int qwick_cache_dir(char **dir, struct qwick_err *e);

/* An entry of the prefix cache on disk: a prompt, or the pages that a prompt
 * has after the beginning that it shares with another entry. */
struct qwick_cache_entry {
    char *path;
    char model[96]; /* as asked for, cut; "" when damaged */
    char kv[8], isa[16];
    bool exact;
    bool damaged;    /* or cannot be read */
    size_t n_tokens; /* of the prefix that ends with the entry */
    size_t first;    /* of these, in other entries */
    size_t n_bytes;
    double used; /* last time, in seconds since 1970 */
};

/* The entries of the cache in dir (NULL: the default), latest use first. A
 * directory that does not exist has none. */
QWICK_API int qwick_cache_list(const char *dir, struct qwick_cache_entry **out,
                               size_t *n, struct qwick_err *e);
QWICK_API void qwick_cache_list_free(struct qwick_cache_entry *v, size_t n);

/* Remove entries, the one that was used longest ago first, until at most
 * max_bytes are left (0: all entries), and the temporary files of processes
 * that died. Touches only files that look like the cache's own. *n_removed and
 * *bytes_removed (NULL: not wanted) count what was removed. */
QWICK_API int qwick_cache_gc(const char *dir, size_t max_bytes,
                             size_t *n_removed, size_t *bytes_removed,
                             struct qwick_err *e);

/* ---- looking at sessions ----------------------------------------------- */

QWICK_API size_t qwick_session_length(const struct qwick_session *s);
/* The tokens in the cache; valid until the next call on the session. */
QWICK_API const int32_t *qwick_session_tokens(const struct qwick_session *s,
                                              size_t *n);
QWICK_API size_t qwick_session_limit(const struct qwick_session *s);
QWICK_API size_t qwick_session_kv_bytes(const struct qwick_session *s);

/* The logits of the last token, f32 [vocab_size], before any mask or sampler;
 * NULL when the last call left none. Valid until the next call on the session
 * and, after a joint step, until the engine's next joint step. */
QWICK_API const float *qwick_session_logits(const struct qwick_session *s);

/* One session's part of a joint step: append tokens[0..n), n >= 1. */
enum qwick_want { QWICK_WANT_NONE, QWICK_WANT_LAST, QWICK_WANT_ALL };
struct qwick_step {
    struct qwick_session *session;
    const int32_t *tokens;
    size_t n;
    enum qwick_want want; /* the tokens that need an output */
};
enum qwick_output { QWICK_LOGITS = 1, QWICK_HIDDEN = 2 };

/* Evaluate the steps of different sessions in one pass over the weights. Steps
 * may have different lengths, and some may decode while others prefill. Memory
 * grows with the sum of all tokens. output: QWICK_LOGITS, QWICK_HIDDEN or both.
 * When the pass fails, or the interrupt flag of the first step's session is
 * set, no session changes. */
QWICK_API int qwick_engine_step(struct qwick_engine *eng,
                                const struct qwick_step *steps, size_t n,
                                enum qwick_output output, struct qwick_err *e);

/* After a joint step: the session's rows of logits f32 [*n, vocab_size] (NULL,
 * 0: none), and the hidden state after the last norm, f32 [d_model], of its
 * last token (NULL: none). Valid until the engine's next joint step. */
QWICK_API const float *qwick_session_rows(const struct qwick_session *s,
                                          size_t *n);
QWICK_API const float *qwick_session_hidden(const struct qwick_session *s);

/* From now on, add the milliseconds that each part of a pass takes on its first
 * thread to ms [QWICK_PARTS]; NULL stops that. Reading clocks costs a little.
 */
#define QWICK_PARTS 6
QWICK_API void qwick_session_parts(struct qwick_session *s, double *ms);
/* "embedding", "norms", "projections", "attention", "head", "barriers". */
QWICK_API const char *qwick_part_name(size_t part);

/* Called during long prefills with tokens done and to do. */
typedef void (*qwick_progress_fn)(void *ctx, size_t done, size_t total);
QWICK_API void qwick_session_progress(struct qwick_session *s,
                                      qwick_progress_fn fn, void *ctx);

/* Stop a prefill at the next layer, and a generation at the next token, when
 * *flag becomes nonzero. A signal handler may set it. NULL: never stop. A call
 * that was stopped fails with QWICK_ERR_INTERRUPTED, except qwick_generate. */
QWICK_API void qwick_session_interrupt(struct qwick_session *s,
                                       const volatile int *flag);

/* Logits of every position of a prompt, in order: row(ctx, pos, logits) with
 * logits f32 [vocab_size]. A nonzero return stops with QWICK_ERR_RUNTIME. The
 * session is reset first and holds the tokens afterwards. */
typedef int (*qwick_row_fn)(void *ctx, size_t pos, const float *logits);
QWICK_API int qwick_session_all_logits(struct qwick_session *s,
                                       const int32_t *tokens, size_t n,
                                       qwick_row_fn row, void *ctx,
                                       struct qwick_err *e);

/* ---- sampling and generation ----------------------------------------- */

/* Applied in this order (Hugging Face's): penalties, temperature, top-k,
 * top-p, min-p, draw. Neutral values switch a step off. */
struct qwick_sampling {
    float temperature;       /* 0: greedy, the lowest id among equals */
    int top_k;               /* 0: off; ties with the k-th are kept */
    float top_p;             /* 1: off; the token that crosses p is kept */
    float min_p;             /* 0: off; relative to the likeliest */
    float repeat_penalty;    /* 1: off; >0, of prompt and answer */
    float presence_penalty;  /* 0: off; of the answer so far */
    float frequency_penalty; /* 0: off; of the answer so far */
    uint64_t seed;           /* draw i depends on (seed, i) alone */
    uint64_t reserved[4];    /* zero: room for later options */
};
/* Ranges of these fields, both ends included. Temperature begins at 0; top_p
 * and min_p go from 0 to 1; the presence and the frequency penalty from
 * -QWICK_PENALTY_MAX. Other values are QWICK_ERR_USAGE. */
#define QWICK_TEMPERATURE_MAX    100.0
#define QWICK_REPEAT_PENALTY_MIN 0.01
#define QWICK_REPEAT_PENALTY_MAX 100.0
#define QWICK_PENALTY_MAX        2.0

/* The values of generation_config.json; greedy where it asks for no sampling.
 * If it has Qwen3's values for thinking (0.6, 0.95, 20) and the model will not
 * think, the model card's values for plain answers replace them: 0.7, 0.8, 20.
 */
QWICK_API struct qwick_sampling
qwick_sampling_defaults(const struct qwick_engine *eng, bool thinking);
/* Temperature 1 and every step off: the base for single sampling options where
 * the checkpoint asks for greedy. */
QWICK_API struct qwick_sampling qwick_sampling_neutral(void);

enum qwick_finish {
    QWICK_FINISH_STOP,
    QWICK_FINISH_STOP_STRING,
    QWICK_FINISH_LENGTH,
    QWICK_FINISH_CONTEXT,
    QWICK_FINISH_LOOP,
    QWICK_FINISH_TIMEOUT,
    QWICK_FINISH_INTERRUPTED,
    QWICK_FINISH_CANCELLED /* by qwick_batch_cancel */
};
QWICK_API const char *qwick_finish_name(enum qwick_finish f);

enum qwick_channel { QWICK_TEXT, QWICK_THINKING };

/* One candidate of --logprobs: log-probability before any sampler. */
struct qwick_logprob {
    int32_t id;
    float logprob;
};

/* A token was drawn. The stop token also has an event. text: the UTF-8
 * characters that this token completes on its channel, perhaps none. top: with
 * logprobs, the n_top likeliest tokens; else NULL. A callback that returns
 * nonzero ends the generation as interrupted. All pointers are borrowed. */
struct qwick_token_event {
    int32_t id;
    enum qwick_channel channel;
    const char *text;
    size_t n_text;
    float logprob; /* of id; 0 without logprobs */
    const struct qwick_logprob *top;
    size_t n_top;
};
typedef int (*qwick_token_fn)(void *ctx, const struct qwick_token_event *ev);

/* Prompt lookup decoding: where the last tokens occurred earlier in the
 * context, the tokens that followed there are guesses. A pass evaluates guesses
 * together with the newest token, and accepts them until the first one that
 * differs from the drawn token. With exact the answer is the same as without
 * lookup. In default mode a pass of several tokens may round differently, as
 * with another prefill_chunk; that shows where two tokens are about equally
 * likely. The number of guesses adapts to how often they were right. */
#define QWICK_LOOKUP_MAX     64
#define QWICK_LOOKUP_DEFAULT 0

struct qwick_generate_options {
    size_t size;
    struct qwick_sampling sampling;
    size_t max_tokens;       /* 0: until a stop or the end of the context */
    const char *const *stop; /* stop strings, matched on bytes */
    size_t n_stop;
    bool ignore_eos;     /* stop ids are never drawn */
    bool in_think;       /* from qwick_chat_encode */
    bool split_thinking; /* think blocks become the thinking; default true,
                            false for raw prompts */
    bool profile;        /* fill per_token_ms and sample_ms */
    size_t
        loop_guard; /* stop when the last N >= 3 ids are one sequence at least
                       three times over (the last may be cut); 0: off */
    double timeout_ms; /* end the answer after this many milliseconds, counted
                          from the start of its prompt's evaluation and
                          checked at each layer of the prefill, then after
                          each token; 0: none */
    size_t logprobs;   /* candidates in each event; 0: off */
    size_t lookup;     /* most tokens that are guessed ahead, up to
                          QWICK_LOOKUP_MAX; 0: off; not in batches */
    qwick_token_fn on_token;
    void *on_token_ctx;
};
QWICK_API void qwick_generate_options_init(struct qwick_generate_options *o,
                                           size_t size);
static inline struct qwick_generate_options qwick_generate_defaults(void)
{
    struct qwick_generate_options o;
    qwick_generate_options_init(&o, sizeof o);
    return o;
}

/* Counts of lookup. A decode step gives one token, and one more for each guess
 * that is accepted. */
struct qwick_lookup {
    size_t max;                   /* as in the options; 0: was off */
    size_t n_drafted, n_accepted; /* guesses evaluated, and accepted */
    size_t n_passes;              /* decode steps with guesses */
};

struct qwick_result {
    int32_t *tokens; /* generated ids, thinking and stop token included; none
                        when the prompt was interrupted or timed out */
    size_t n_tokens;
    char *text; /* NUL-terminated, n_text excludes it */
    size_t n_text;
    char *thinking; /* NULL when there was none */
    size_t n_thinking;
    enum qwick_finish finish;
    size_t n_prompt, n_cached; /* cached: prompt tokens not evaluated again */
    uint64_t seed;
    double prefill_ms; /* prompt's forward and the first token's sampling */
    double total_ms;   /* prefill and decode */
    /* [n_per_token] of each token but the first, profile only: the time of a
     * decode step, shared evenly by the tokens that it gave; and of that, the
     * sampler's */
    double *per_token_ms, *sample_ms;
    size_t n_per_token;
    struct qwick_lookup lookup;
};

/* Answer a prompt: sync, then sample and decode until a stop id, a stop string,
 * max_tokens, the end of the context, the loop guard or the timeout. On
 * failure, too, *r can be passed to qwick_result_free. */
QWICK_API int qwick_generate(struct qwick_session *s, const int32_t *prompt,
                             size_t n, const struct qwick_generate_options *o,
                             struct qwick_result *r, struct qwick_err *e);
QWICK_API void qwick_result_free(struct qwick_result *r);

/* ---- a loop of your own ------------------------------------------------ */

/* The parts of qwick_generate, for programs that choose tokens themselves:
 *
 *     qwick_session_sync(ses, prompt, n, &e);
 *     qwick_sampler_see_prompt(sam, prompt, n, &e);
 *     for (;;) {
 *         qwick_sampler_draw(sam, qwick_session_logits(ses), &id, &e);
 *         qwick_sampler_accept(sam, id, &e);
 *         if (id is one of info->stop_ids) break;
 *         qwick_detokenizer_add(det, id, &text, &n_text, &e);
 *         qwick_session_decode(ses, id, &e);
 *     }
 *
 * Without a bias the tokens are those of qwick_generate with the same options
 * and seed. Samplers and detokenizers belong to an engine and are freed before
 * it is closed. */
struct qwick_sampler;

/* Change logits f32 [vocab_size] before a token is drawn. They have the
 * penalties, and not the temperature. -INFINITY forbids a token; NaN and
 * +INFINITY are QWICK_ERR_USAGE. Ids unknown to the tokenizer stay forbidden.
 * When it returns nonzero, the draw fails with QWICK_ERR_RUNTIME. */
typedef int (*qwick_bias_fn)(void *ctx, float *logits, size_t vocab_size);

/* Values out of range: QWICK_ERR_USAGE. *o is copied. */
QWICK_API int qwick_sampler_create(struct qwick_sampler **out,
                                   const struct qwick_engine *eng,
                                   const struct qwick_sampling *o,
                                   struct qwick_err *e);
QWICK_API void qwick_sampler_free(struct qwick_sampler *s);

/* Call fn(ctx, …) in each draw from now on; NULL: nothing. */
QWICK_API void qwick_sampler_bias(struct qwick_sampler *s, qwick_bias_fn fn,
                                  void *ctx);

/* The repetition penalty applies to these tokens from now on. */
QWICK_API int qwick_sampler_see_prompt(struct qwick_sampler *s,
                                       const int32_t *tokens, size_t n,
                                       struct qwick_err *e);

/* Draw a token from logits f32 [vocab_size], which stay unchanged. Draws until
 * the next accept use the same random number. Logits that are not finite, or a
 * bias that forbids all tokens: QWICK_ERR_RUNTIME. */
QWICK_API int qwick_sampler_draw(struct qwick_sampler *s, const float *logits,
                                 int32_t *id, struct qwick_err *e);

/* id, drawn or not, is the next token of the answer. The penalties count it,
 * and the next draw uses the next random number. */
QWICK_API int qwick_sampler_accept(struct qwick_sampler *s, int32_t id,
                                   struct qwick_err *e);

/* Tokens to text, one by one. A character may take several tokens: its bytes
 * are held back until it is complete. Bytes that are no UTF-8 become U+FFFD. */
struct qwick_detokenizer;

/* skip_special: as for qwick_detokenize. */
QWICK_API int qwick_detokenizer_create(struct qwick_detokenizer **out,
                                       const struct qwick_engine *eng,
                                       bool skip_special, struct qwick_err *e);
QWICK_API void qwick_detokenizer_free(struct qwick_detokenizer *d);

/* *text [*n_text]: the characters that this token completes, perhaps none; not
 * NUL-terminated, and valid until the next call. Ids as for qwick_detokenize.
 */
QWICK_API int qwick_detokenizer_add(struct qwick_detokenizer *d, int32_t id,
                                    const char **text, size_t *n_text,
                                    struct qwick_err *e);

/* The text has ended: *text [*n_text] gets the bytes that were held back. The
 * next token begins a new text. */
QWICK_API int qwick_detokenizer_flush(struct qwick_detokenizer *d,
                                      const char **text, size_t *n_text,
                                      struct qwick_err *e);

/* ---- batching -------------------------------------------------------- */

/* Many generations at once. A pass over the weights decodes one token of every
 * live sequence and prefills a piece of new ones, ragged, never padded.
 *
 * Prompts share work. A new prompt takes the keys and values of its beginning
 * from a live sequence with the same beginning, or from the engine's prefix
 * caches, and evaluates at least its last token. The cache in memory gets the
 * prompts, and sequences that have ended, to the token. The cache on disk gets
 * whole pages of one prompt at most: of the first prompt that begins with
 * `common`, the part that other requests share.
 *
 * With exact, an answer is bit by bit the one that qwick_generate gives. Other
 * requests and the caches do not change it. */
struct qwick_batch;

/* A request has ended. The callback may keep *r, and then sets *r to zeros;
 * otherwise the batch frees it. e: NULL, or why the request failed; *r then
 * holds the answer up to the failure. The callback may add requests. When it
 * returns nonzero, the step ends with QWICK_ERR_RUNTIME. */
typedef int (*qwick_done_fn)(void *ctx, void *tag, struct qwick_result *r,
                             const struct qwick_err *e);

struct qwick_batch_options {
    size_t size;
    size_t max_batch;      /* sequences alive at once, 0: 16 */
    size_t n_ctx;          /* most tokens of each, 0: the model's maximum */
    size_t kv_bytes;       /* most memory of the sequences' KV caches, beside
                              the engine's prefix_cache_bytes; 0: what is
                              available. Where it is short, fewer run at once */
    const int32_t *common; /* [n_common] what prompts are known to begin with;
                              copied */
    size_t n_common;
    qwick_done_fn done;
    void *done_ctx;
    const volatile int *interrupt; /* ends a step soon; NULL: never */
};
QWICK_API void qwick_batch_options_init(struct qwick_batch_options *o,
                                        size_t size);
static inline struct qwick_batch_options qwick_batch_defaults(void)
{
    struct qwick_batch_options o;
    qwick_batch_options_init(&o, sizeof o);
    return o;
}

QWICK_API int qwick_batch_create(struct qwick_batch **out,
                                 struct qwick_engine *eng,
                                 const struct qwick_batch_options *o,
                                 struct qwick_err *e);
/* Drops requests that have not ended, without calling done. */
QWICK_API void qwick_batch_free(struct qwick_batch *b);

/* Queue a prompt of n >= 1 tokens. prompt and *o are copied. Memory that *o
 * points to belongs to the caller and must stay until done is called.
 * o->profile has no effect. Both prefill_ms and timeout_ms begin with the first
 * pass that holds a token of the prompt; prefill_ms ends with the first token
 * of the answer. The timeout is checked after each pass. */
QWICK_API int qwick_batch_add(struct qwick_batch *b, const int32_t *prompt,
                              size_t n, const struct qwick_generate_options *o,
                              void *tag, struct qwick_err *e);

/* Cancel all requests with this tag, waiting or running. The next step ends
 * them before its pass: it calls done for each, with the answer so far and
 * QWICK_FINISH_CANCELLED. May be called by a callback of the batch; a request
 * that ends in the same pass keeps its own finish reason. No request has the
 * tag: QWICK_ERR_USAGE. */
QWICK_API int qwick_batch_cancel(struct qwick_batch *b, const void *tag,
                                 struct qwick_err *e);

/* Run one pass; does nothing when no request is left. When a request fails,
 * done hears of it, and the step succeeds. QWICK_ERR_INTERRUPTED: nothing
 * has changed. */
QWICK_API int qwick_batch_step(struct qwick_batch *b, struct qwick_err *e);
/* Steps until no request is left. */
QWICK_API int qwick_batch_run(struct qwick_batch *b, struct qwick_err *e);

/* A program that was compiled with another version of qwick.h gets the members
 * that both versions know. Members that only its own version knows are 0. */
struct qwick_batch_stats {
    size_t n_waiting, n_live;
    uint64_t n_passes;
    uint64_t n_evaluated; /* tokens that went through the model */
    uint64_t n_shared;    /* tokens of prompts taken from other sequences and
                             the prefix caches */
    uint64_t n_generated;
    uint64_t n_preempted; /* times that a sequence lost its cache to others */
};
QWICK_API void qwick_batch_stats_read(const struct qwick_batch *b,
                                      struct qwick_batch_stats *out,
                                      size_t size);
static inline struct qwick_batch_stats
qwick_batch_get_stats(const struct qwick_batch *b)
{
    struct qwick_batch_stats s;
    qwick_batch_stats_read(b, &s, sizeof s);
    return s;
}

/* ---- judging --------------------------------------------------------- */

/* Log-probabilities of given texts and answers, without a decode loop: natural
 * logarithms of the softmax over the logits before any sampler, summed in
 * double. Many sequences share a pass over the weights. With exact, each result
 * equals that of the sequence alone bit by bit. */
struct qwick_judge_options {
    size_t size;
    size_t n_ctx;               /* most tokens of a sequence, 0: the model's
                                   maximum */
    size_t window, stride;      /* of qwick_score */
    qwick_progress_fn progress; /* tokens done and to do */
    void *progress_ctx;
    const volatile int *interrupt; /* stops soon when nonzero; NULL: never */
};
QWICK_API void qwick_judge_options_init(struct qwick_judge_options *o,
                                        size_t size);
static inline struct qwick_judge_options qwick_judge_defaults(void)
{
    struct qwick_judge_options o;
    qwick_judge_options_init(&o, sizeof o);
    return o;
}

/* A text, and the context before it. */
struct qwick_score_item {
    const int32_t *tokens; /* [n] */
    size_t n;
    size_t n_given;   /* the first n_given tokens are context, not scored */
    double *logprobs; /* [n] out: of each token, given all tokens before it; 0
                         for a token that is not scored */
    size_t n_windows; /* out */
};

/* The index of the first scored token: n_given; without context 1, because
 * nothing comes before the first token. Equals n when no token is scored. */
QWICK_API size_t qwick_score_first(const struct qwick_score_item *it);

/* Score texts of any length. A text of more than `window` tokens (0: n_ctx) is
 * evaluated in windows of that size. Each window starts `stride` tokens (0:
 * half of the window) after the one before and scores only tokens that no
 * earlier window scored. So after the first window, each scored token has at
 * least window - stride tokens before it. Context counts as part of the text,
 * but is not scored. n_windows is 0 where nothing is scored. */
QWICK_API int qwick_score(struct qwick_engine *eng,
                          struct qwick_score_item *items, size_t n,
                          const struct qwick_judge_options *o,
                          struct qwick_err *e);

/* The window and the stride that qwick_score uses with *o. A window larger than
 * the context, or a stride that is not smaller than the window:
 * QWICK_ERR_USAGE. */
QWICK_API int qwick_judge_windows(const struct qwick_engine *eng,
                                  const struct qwick_judge_options *o,
                                  size_t *window, size_t *stride,
                                  struct qwick_err *e);

/* One of the possible answers; all prompts have the same ones. */
struct qwick_answer {
    const int32_t *tokens; /* [n], n >= 1 */
    size_t n;
};

/* A prompt, and the log-probability of each answer directly after it. */
struct qwick_choose_item {
    const int32_t *prompt; /* [n], n >= 1 */
    size_t n;
    double *logprobs; /* [n_answers] out: sum over the answer's tokens */
};

/* Evaluates each prompt once, a beginning that all prompts share once for all
 * of them, and each distinct prefix of the answers once per prompt. Two equal
 * answers, or an empty one: QWICK_ERR_USAGE. A prompt that does not fit the
 * context together with the longest answer: QWICK_ERR_CONTEXT. */
QWICK_API int qwick_choose(struct qwick_engine *eng,
                           struct qwick_choose_item *items, size_t n,
                           const struct qwick_answer *answers, size_t n_answers,
                           const struct qwick_judge_options *o,
                           struct qwick_err *e);

/* ---- quantizing ------------------------------------------------------ */

/* How to choose scales: as mlx.core.quantize does; or by a search for the least
 * squared error of the weights, which takes longer and never has a larger
 * error. */
enum qwick_scales { QWICK_SCALES_MLX, QWICK_SCALES_LSQ };

/* line has no newline; it may hold control bytes that came from a file. */
typedef void (*qwick_note_fn)(void *ctx, const char *line);

struct qwick_quantize_options {
    size_t size;
    int bits;                /* 2, 3, 4, 5, 6 or 8; a router of experts gets
                                at least 8 */
    int group;               /* elements that share a scale: 32, 64 or 128 */
    int head_bits;           /* of lm_head, or of the embedding where that is
                                the head too; 0: as bits */
    const char *const *only; /* shell patterns (fnmatch) of modules' names, */
    size_t n_only;           /* "model.layers.0.mlp.up_proj"; 0: all */
    const char *const *skip; /* modules to copy, also where `only` names them */
    size_t n_skip;
    enum qwick_scales scales;
    bool force;                 /* replace a checkpoint */
    int threads;                /* 0: physical cores */
    qwick_progress_fn progress; /* bytes of the source done and to do */
    void *progress_ctx;
    qwick_note_fn note; /* modules that are only copied, and why */
    void *note_ctx;
    const volatile int *interrupt; /* stops soon when nonzero; NULL: never */
};
QWICK_API void qwick_quantize_options_init(struct qwick_quantize_options *o,
                                           size_t size);
static inline struct qwick_quantize_options qwick_quantize_defaults(void)
{
    struct qwick_quantize_options o;
    qwick_quantize_options_init(&o, sizeof o);
    return o;
}

struct qwick_quantize_report {
    size_t n_quantized;     /* modules */
    size_t n_dense;         /* modules that could have been, and stay */
    size_t n_params;        /* elements of all tensors written */
    size_t bytes_read;      /* of the source's tensors */
    size_t bytes_written;   /* of the tensors written */
    double bits_per_weight; /* of the tensors written */
    double total_ms;
};

/* Write the checkpoint src (directory, hub id, NULL: the demo model) to the
 * directory dst with its weight matrices quantized by groups: MLX's affine
 * format, which mlx-lm loads. Every 2-D tensor NAME.weight whose columns are
 * whole groups becomes NAME.weight (packed U32), NAME.scales and NAME.biases
 * (of the weight's type); everything else is copied. Files are split as the
 * source's are; the tokenizer's and the generation's are copied; config.json
 * gets "quantization" and "quantization_config". It uses a few MiB a thread for
 * a model of any size.
 *
 * dst must not exist, or be an empty directory, or with force a checkpoint
 * (config.json, no directories); else QWICK_ERR_USAGE. It appears complete or
 * not at all: files are written to a directory beside it, which then takes its
 * name. A checkpoint that is replaced changes names with the new one at once
 * where the file system can (RENAME_EXCHANGE). Elsewhere it is moved away
 * first, and for a moment dst does not exist. Directories dst.tmp-* and
 * dst.old-* of processes of this host that died are removed. A
 * source that is quantized already, has weights that are not finite or is no
 * model that qwick knows is QWICK_ERR_MODEL. r may be NULL. */
QWICK_API int qwick_quantize(const char *src, const char *dst,
                             const struct qwick_quantize_options *o,
                             struct qwick_quantize_report *r,
                             struct qwick_err *e);

/* Remove the unfinished directory of a qwick_quantize under way. For a handler
 * of SIGBUS, which a source that is truncated while it is read leads to, that
 * then ends the process. Async-signal-safe. */
QWICK_API void qwick_quantize_abandon(void);

/* ---- embeddings and reranking ---------------------------------------- */

/* Texts to vectors: the hidden state of the last token after the last norm, as
 * Qwen3-Embedding defines it. Many texts share a pass over the weights, and a
 * shared beginning is evaluated once. With exact, each vector equals that of
 * the text alone bit by bit. */
struct qwick_embedder;

struct qwick_embed_options {
    size_t size;
    size_t n_ctx;               /* most tokens of a text, 0: the model's
                                   maximum */
    size_t max_batch;           /* texts that are evaluated jointly, 0: 64 */
    size_t dim;                 /* keep the first numbers of a vector only
                                   (Matryoshka), 0: all d_model */
    bool normalize;             /* vectors get length 1; default true */
    qwick_progress_fn progress; /* tokens of the call done and to do */
    void *progress_ctx;
    const volatile int *interrupt; /* stops soon when nonzero; NULL: never */
};
QWICK_API void qwick_embed_options_init(struct qwick_embed_options *o,
                                        size_t size);
static inline struct qwick_embed_options qwick_embed_defaults(void)
{
    struct qwick_embed_options o;
    qwick_embed_options_init(&o, sizeof o);
    return o;
}

QWICK_API int qwick_embedder_create(struct qwick_embedder **out,
                                    struct qwick_engine *eng,
                                    const struct qwick_embed_options *o,
                                    struct qwick_err *e);
QWICK_API void qwick_embedder_free(struct qwick_embedder *m);

/* A warning for users, "does not look like …", when the checkpoint shows no
 * sign of being an embedding model, or a reranker. NULL: it shows one. Signs
 * are its name, the files of sentence-transformers, README.md, tensors without
 * a head, a post-processor that ends texts, the size of the vocabulary; a
 * genuine one has several. */
QWICK_API const char *qwick_embed_doubt(const struct qwick_engine *eng);
QWICK_API const char *qwick_rerank_doubt(const struct qwick_engine *eng);

/* Numbers of a vector. */
QWICK_API size_t qwick_embedder_dim(const struct qwick_embedder *m);

struct qwick_embed_text {
    const char *text;
    size_t n_text;
    const char *instruct; /* the task that text is a query of, put before it as
                             "Instruct: TASK\nQuery:"; NULL: a document */
    size_t n_instruct;
    bool allow_special; /* text such as "<|im_end|>" becomes the added token */
    bool truncate;      /* cut a text that does not fit the context at its end;
                           else QWICK_ERR_CONTEXT */
};

/* The ids of a text to embed. The tokenizer's post-processor adds ids before or
 * after them (Qwen3-Embedding's: <|endoftext|> at the end), which stay when the
 * text is cut. *n_dropped (NULL: not asked for): tokens cut. */
QWICK_API int qwick_embed_encode(const struct qwick_embedder *m,
                                 const struct qwick_embed_text *t,
                                 int32_t **ids, size_t *n_ids,
                                 size_t *n_dropped, struct qwick_err *e);

struct qwick_embed_item {
    const int32_t *tokens; /* [n], n >= 1 */
    size_t n;
    float *vector; /* [dim] out */
};

/* A hidden state that is not finite: QWICK_ERR_RUNTIME. */
QWICK_API int qwick_embed(struct qwick_embedder *m,
                          const struct qwick_embed_item *items, size_t n,
                          struct qwick_err *e);

/* How well documents answer a query: the probability of "yes" against "no" as
 * the next token of Qwen3-Reranker's prompt. The part of the prompt before the
 * document is evaluated once. */
struct qwick_reranker;

struct qwick_rerank_options {
    size_t size;
    const char *instruct; /* what "relevant" means; NULL: "Given a web search
                             query, retrieve relevant passages that answer the
                             query" */
    size_t n_instruct;
    size_t n_ctx;     /* most tokens of a prompt, 0: the model's maximum */
    size_t max_batch; /* documents that are evaluated jointly, 0: 64 */
    qwick_progress_fn progress;
    void *progress_ctx;
    const volatile int *interrupt;
};
QWICK_API void qwick_rerank_options_init(struct qwick_rerank_options *o,
                                         size_t size);
static inline struct qwick_rerank_options qwick_rerank_defaults(void)
{
    struct qwick_rerank_options o;
    qwick_rerank_options_init(&o, sizeof o);
    return o;
}

/* A tokenizer without the prompt's control tokens, or for which "yes" or "no"
 * is not one token: QWICK_ERR_MODEL. A query that leaves no room for a
 * document: QWICK_ERR_CONTEXT. */
QWICK_API int qwick_reranker_create(struct qwick_reranker **out,
                                    struct qwick_engine *eng, const char *query,
                                    size_t n_query,
                                    const struct qwick_rerank_options *o,
                                    struct qwick_err *e);
QWICK_API void qwick_reranker_free(struct qwick_reranker *r);

/* The ids of the prompt for a document. No text in query, instruct or document
 * becomes an added token. Of a document that does not fit the context the end
 * is cut. *n_dropped (NULL: not asked for): tokens cut. */
QWICK_API int qwick_rerank_encode(const struct qwick_reranker *r,
                                  const char *document, size_t n_document,
                                  int32_t **ids, size_t *n_ids,
                                  size_t *n_dropped, struct qwick_err *e);

struct qwick_rerank_item {
    const int32_t *tokens; /* [n] of qwick_rerank_encode */
    size_t n;
    double score; /* out: P(yes) / (P(yes) + P(no)) */
};

QWICK_API int qwick_rerank(struct qwick_reranker *r,
                           struct qwick_rerank_item *items, size_t n,
                           struct qwick_err *e);

/* ---- limits of this machine ------------------------------------------ */

/* Read bandwidth of a sweep by all of the engine's threads over the weights'
 * mapping, or over anonymous memory when the weights are smaller than 256 MiB,
 * to *rate in bytes a second. Runs for about ms milliseconds. */
QWICK_API int qwick_bench_bandwidth(struct qwick_engine *eng, double ms,
                                    double *rate, struct qwick_err *e);

/* Peak of the unit that the engine's long prefills use (bf16 products where
 * info.gemm says so, else f32 multiply-adds of the level), in floating-point
 * operations a second (a multiply-add is two), by register-only loops on all
 * of its threads for about ms milliseconds. */
QWICK_API double qwick_bench_peak(struct qwick_engine *eng, double ms);

/* Floating-point operations of a forward pass over n tokens that follow pos
 * others: 2 for each weight and token, attention's two products, and the head
 * once. */
QWICK_API double qwick_forward_flops(const struct qwick_engine *eng, size_t pos,
                                     size_t n);

/* Bytes of weights that all passes of the engine have read so far: everything
 * but experts once a pass, and each expert that some token of the pass chose.
 * The difference over a few batches is what they streamed. */
QWICK_API double qwick_engine_weight_bytes(const struct qwick_engine *eng);

/* Bytes of keys and values that such a pass reads. Each key that one of the n
 * tokens sees counts once, so layers with a sliding window count fewer. */
QWICK_API double qwick_forward_kv_bytes(const struct qwick_engine *eng,
                                        size_t pos, size_t n);

#ifdef __cplusplus
}
#endif

#endif
