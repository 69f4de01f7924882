/* qwick: language models on a CPU. This header has what programs need that
 * answer, embed or decide; qwick_tools.h has more for tools.
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
 * NULL); on failure its outputs are NULL or empty. The library never prints,
 * exits or aborts. The caller frees arrays that a function hands out with
 * free(), unless the function says otherwise. Token ids are int32_t. Sizes are
 * size_t and count elements unless the name says bytes. Times are in
 * milliseconds.
 *
 * Words. A pass is one forward pass over the weights. The context of a session
 * is its tokens. Exact mode (the option exact) adds up in the same order in
 * every call, so that results do not depend on the batch; default mode is
 * faster. "With exact" means an engine in exact mode.
 *
 * Threads. Only one thread at a time may use an engine and everything made from
 * it (sessions, batches, embedders, samplers …). This includes functions that
 * take the engine as const. It need not always be the same thread. The
 * exception are the text functions: while one thread uses an engine, other
 * threads may call them with this engine, and do not wait for a pass.
 *
 *     qwick_tokenize, qwick_tokenize_some, qwick_tokenize_after,
 *     qwick_tokenize_prompt, qwick_detokenize, qwick_token_text,
 *     qwick_chat_render, qwick_chat_encode, qwick_constraint_create,
 *     qwick_constraint_free, qwick_embedder_create, qwick_embed_encode,
 *     qwick_reranker_create, qwick_rerank_encode, qwick_sampling_defaults,
 *     qwick_check_generation, qwick_engine_info
 *
 * Only one thread at a time may use a conversation, a constraint, an embedder
 * or a reranker. A thread may make one for work of another thread. Of these
 * functions only the creation of embedders and rerankers may call the engine's
 * log, and only one thread at a time may call these two.
 *
 * Engines share no visible state: several threads may use different engines at
 * the same time. There are three exceptions, which only one thread of the
 * process may run at a time: qwick_engine_open (see there), the first passes of
 * an engine with lazy_blas, and qwick_quantize. Any thread or signal handler
 * may set an interrupt flag. Callbacks run on the thread that called the
 * library.
 *
 * An engine has threads of its own. They sleep between calls and block all
 * signals except faults. fork() does not copy them: a child process must not
 * use or close what its parent opened. It may open its own engines, or exec.
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

/* Marks a public function. Only public functions are exported from libqwick.so
 * and are global symbols of libqwick.a. */
#if defined(__GNUC__)
#define QWICK_API __attribute__((visibility("default")))
#else
#define QWICK_API
#endif

/* Return the QWICK_VERSION of the library that runs. */
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

/* What programs may want to tell apart within a code. Later versions may have
 * more kinds. */
enum qwick_err_kind {
    QWICK_KIND_NONE,       /* the code says all */
    QWICK_KIND_INCOMPLETE, /* a part of a file is missing, as after a download
                              that was cut off */
    QWICK_KIND_ADDRESS_SPACE, /* QWICK_ERR_MEMORY: the address space has no room
                                 for one file; other files may fit */
    QWICK_KIND_LIMIT, /* QWICK_ERR_MEMORY: needs more than a limit that the
                         caller has set, whatever else runs */
    QWICK_KIND_SCHEMA /* QWICK_ERR_RUNTIME: an answer does not satisfy its
                         schema */
};

/* msg is one line without the program's name: "FILE: WHAT: why". It may hold
 * control bytes that came from a file; escape it before a terminal sees it. Its
 * wording may change: programs read code and kind. */
struct qwick_err {
    enum qwick_err_code code;
    enum qwick_err_kind kind;
    char msg[1016];
};

/* ---- options --------------------------------------------------------- */

/* A struct of options begins with its size. qwick_…_defaults() sets the size
 * and the defaults. A function that takes options accepts NULL for all
 * defaults.
 *
 * A program that was compiled with an older qwick.h has a smaller struct: the
 * library uses the defaults of the options that the struct lacks. A program
 * that was compiled with a newer qwick.h has a larger one: the library accepts
 * it if the options that it does not know are zero. If not, or if the size is
 * not set, the function fails with QWICK_ERR_USAGE.
 *
 * qwick_…_options_init(o, sizeof *o) is the function behind qwick_…_defaults(),
 * for languages that cannot call an inline function. */

/* ---- engine ---------------------------------------------------------- */

struct qwick_engine;

/* How to use a machine with several memory nodes (NUMA). It changes speed,
 * never a result. */
enum qwick_numa {
    QWICK_NUMA_OFF,        /* leave threads and pages to the kernel */
    QWICK_NUMA_INTERLEAVE, /* with preload: take the pages of the copy from all
                              nodes in turn */
    QWICK_NUMA_BIND        /* divide the threads among the nodes and let each
                              run only on the CPUs of its node; with preload,
                              each thread also copies the rows that it will
                              read most, so that they are on its node. The
                              calling thread is bound only during calls */
};

enum qwick_kv {
    QWICK_KV_DEFAULT,
    QWICK_KV_F16,
    QWICK_KV_F32,
    QWICK_KV_Q8,
    QWICK_KV_Q4
};

/* Return the name of a kind of KV cache, such as "f16"; NULL for
 * QWICK_KV_DEFAULT and for numbers that are none. */
QWICK_API const char *qwick_kv_name(enum qwick_kv kv);

/* Receives a line for people about the engine. The line has no newline; it may
 * hold control bytes that came from a file, and is borrowed until the call
 * returns. Warnings are for every user: a list of chat templates without a
 * default, a stop id outside the vocabulary, a damaged entry of the prefix
 * cache. Notes are details. The engine calls the function while it opens and
 * later, on the thread that called the library. The function must not call the
 * engine. */
enum qwick_log_level {
    QWICK_LOG_WARNING,
    QWICK_LOG_NOTE,
    QWICK_LOG_ERROR /* only from qwick_constraint_create */
};
typedef void (*qwick_log_fn)(void *ctx, enum qwick_log_level level,
                             const char *line);

/* A LoRA adapter, given to qwick_engine_open: a directory that PEFT or mlx-lm has
 * written, or a GGUF file. */
struct qwick_lora {
    const char *path;
    const char *name; /* NULL: the last part of path, without ".gguf" */
    double scale;     /* a factor: 1 adds the adapter as trained, 0 nothing */
};

struct qwick_engine_options {
    size_t size;
    const char *model;    /* directory, GGUF file, hub id in the local Hugging
                             Face cache, or short name of a model on this
                             machine; NULL: the demo model */
    const char *isa;      /* cap on the kernels: "ref", "avx2", "avxvnni",
                             "avx512", "avx512bf16", "amx"; on 64-bit ARM
                             "neon", "dotprod", "i8mm", "bf16"; NULL: the best
                             the CPU has. Above the CPU's level: QWICK_ERR_USAGE */
    int threads;          /* 0: physical cores within affinity, cgroup and
                             SLURM_CPUS_PER_TASK */
    bool exact;           /* always the same order of sums, f32 everywhere, no
                             BLAS */
    enum qwick_kv kv;     /* default: f16, or f32 when exact, and for
                             Gemma 4 */
    size_t prefill_chunk; /* tokens of a prefill pass, 0: 512 */
    bool preload;         /* copy the weights to huge pages at open */
    size_t prefix_cache_bytes;      /* maximum size of the prefix cache in
                                       memory, which sessions and batches share;
                                       0: no such cache */
    bool prefix_cache_disk;         /* also use a prefix cache on disk */
    const char *prefix_cache_dir;   /* its directory; NULL: qwick_cache_dir's */
    size_t prefix_cache_disk_bytes; /* its maximum size, 0: 4 GiB */
    bool tokenizer_only; /* read no weights; sessions cannot be made */
    bool lazy_blas;      /* load OpenBLAS when a pass first needs it, not in
                            qwick_engine_open, whose comment says what loading
                            does: the engine opens sooner when prompts are
                            short */
    qwick_log_fn log;    /* NULL: lines are dropped */
    void *log_ctx;
    const char *chat_template; /* name of one of the checkpoint's templates, or
                                  path of a file with a template; NULL: the
                                  checkpoint's default */
    const char *template_args; /* further variables of the template, as a JSON
                                  object; NULL: none */
    const char *template_time; /* the time that strftime_now gives in templates:
                                  "YYYY-MM-DD" or "YYYY-MM-DD HH:MM:SS"; NULL:
                                  the local time of each rendering */
    const char *tuning_dir; /* on a core that qwick does not know: where the
                               result of a probe is kept, which takes up to 30
                               ms. qwick_cache_dir's is the usual one. NULL:
                               such a core is not measured */
    const char *core; /* for tests: name of the core whose record is used, or
                         "probe" to measure; NULL: this CPU's core. See
                         qwick_tuning */
    enum qwick_numa numa; /* the nodes are those whose CPUs the calling thread
                             may use; a warning says if the mode has no
                             effect */
    const char *place;    /* where qwick_model_find found `model`; NULL: this
                             call searches */
    const struct qwick_lora *loras; /* [n_loras] adapters; read by this call */
    size_t n_loras;
    bool loras_apart; /* each adapter is one of its own, for
                         qwick_engine_use_lora, and the engine begins without
                         one. false: all of them are added to the model, and
                         all sessions have them */
};
QWICK_API void qwick_engine_options_init(struct qwick_engine_options *o,
                                         size_t size);
static inline struct qwick_engine_options qwick_engine_defaults(void)
{
    struct qwick_engine_options o;
    qwick_engine_options_init(&o, sizeof o);
    return o;
}

/* Find the model that spec names, as qwick_engine_open does, without opening
 * its files. With is_name, spec is a path only if it begins with "/", "./",
 * "../" or "~": for names from settings, which what lies in the current
 * directory must not replace. *place, which the caller frees, is a path, or "PATH:TYPE" for a
 * GGUF file in a directory. A program that gives up the right to open other
 * files calls this before. QWICK_ERR_MODEL: no such model. */
QWICK_API int qwick_model_find(char **place, const char *spec, bool is_name,
                               struct qwick_err *e);
/* If spec is a path that exists, and also an id in the Hugging Face cache,
 * return the model there, which the caller frees; else NULL. */
QWICK_API char *qwick_model_same_name(const char *spec);

/* Call fn for each file at a place that qwick_engine_open may read. The paths
 * may be symbolic links. is_dir: the directory of a checkpoint, which is listed,
 * and whose other files are not read. If fn returns another value than 0, stops
 * and returns -1 without setting *e. */
QWICK_API int qwick_model_files(const char *place,
                                int (*fn)(void *ctx, const char *path,
                                          bool is_dir),
                                void *ctx, struct qwick_err *e);

/* Open a checkpoint. Every file is checked before this returns; weights are
 * mapped, not read. A checkpoint without tokenizer.json also opens: functions
 * that need the tokenizer then fail with QWICK_ERR_MODEL.
 *
 * Environment. This call reads HF_HUB_CACHE, HF_HOME, XDG_CACHE_HOME, HOME and,
 * for short names, QWICK_MODEL_PATH, OLLAMA_MODELS, LLAMA_CACHE and
 * MODELSCOPE_CACHE.
 * If the engine uses OpenBLAS for long prefills (see qwick_info.gemm), this
 * call also loads OpenBLAS, once per process. OpenBLAS takes settings only from
 * the environment. So this call sets OPENBLAS_NUM_THREADS, and
 * OPENBLAS_CORETYPE unless the user has set it, and restores both after
 * loading. No other thread may use the environment (getenv, setenv) during this
 * call or, with lazy_blas, during the first passes over prompts.
 * With tuning_dir or core, the first engine of the process may change how
 * kernels work: no other thread may use the library during that call. */
QWICK_API int qwick_engine_open(struct qwick_engine **out,
                                const struct qwick_engine_options *o,
                                struct qwick_err *e);
QWICK_API void qwick_engine_close(struct qwick_engine *eng);

/* An adapter of an engine. It has one for each of qwick_engine_options.loras if
 * they are apart, otherwise one for all. */
struct qwick_lora_info {
    const char *name;     /* borrowed; of several in one, the first name */
    size_t n_matrices;    /* matrices of the model that it adapts */
    size_t max_rank;      /* the largest rank */
};
QWICK_API size_t qwick_engine_lora_count(const struct qwick_engine *eng);
/* Describe adapter i in *out. QWICK_ERR_USAGE if the engine has fewer. */
QWICK_API int qwick_engine_lora_at(const struct qwick_engine *eng, size_t i,
                                   struct qwick_lora_info *out,
                                   struct qwick_err *e);
/* Let sessions that are created from now on, requests that are added to batches
 * and other tasks that begin use adapter i; i = qwick_engine_lora_count(eng):
 * none. Sessions and requests keep their adapters; sessions of different
 * adapters never share keys and values. QWICK_ERR_USAGE if i is larger. */
QWICK_API int qwick_engine_use_lora(struct qwick_engine *eng, size_t i,
                                    struct qwick_err *e);

/* Load OpenBLAS now if lazy_blas has put it off and a pass over n_tokens tokens
 * would load it. For a program that is about to give up the right to open
 * files. What qwick_engine_open says about the environment holds here, too. */
QWICK_API void qwick_engine_load_blas(const struct qwick_engine *eng,
                                      size_t n_tokens);

/* Call fn(ctx) once on each thread of the engine, on all of them at the same
 * time, and return when all calls have returned. The calling thread is one of
 * them. This is for settings that each thread has for itself, such as its CPUs
 * or its rights. fn must not call the library. */
QWICK_API void qwick_engine_each_thread(const struct qwick_engine *eng,
                                        void (*fn)(void *ctx), void *ctx);

/* Facts about an engine, for people and for `inspect`. Strings are borrowed
 * from the engine. */
struct qwick_info {
    const char *model;         /* as in the options; "qwick-demo" for the demo
                                  model */
    const char *path;          /* the directory or file that was opened */
    const char *model_type;    /* config.json: model_type */
    const char *weights_dtype; /* "BF16"; quantized: "4-bit (group 64)"; GGUF:
                                  its types, "Q4_K/Q6_K" */
    const char *template_name; /* "qwen3", "jinja" (another one) or "none" */
    const char *rope_type;     /* "default", "yarn" and so on, or "none" */
    const char *isa;           /* kernels in use */
    const char *cpu;           /* the best level this CPU has */
    const char *kv_dtype;
    const char *gemm; /* products of long prefills: "bf16" (activations rounded
                         to bf16), "int8", "own" (f32) or "openblas" */
    int threads;
    size_t vocab_size, tokenizer_size, d_model, d_ff, n_layers, n_heads,
        n_kv_heads, head_dim, n_ctx_max, sliding_window; /* some layers may have
                         other KV heads and another head_dim */
    double rope_theta, rms_eps;
    bool tied_head, attention_bias, has_tokenizer, has_weights;
    /* From config.json's quantization: bits, group size, and the number of
       modules with bits or a group size of their own. 0 in GGUF files, and when
       no matrix that the model uses is quantized. */
    int quant_bits;
    size_t quant_group, quant_overrides;
    /* Mixture of experts: experts of a layer, experts that one token uses, and
       rows of an expert's gate_proj. 0 in other models. */
    size_t n_experts, n_active_experts, expert_d_ff;
    size_t n_params;          /* elements of the tensors that the model uses */
    size_t n_active_params;   /* elements that one token's evaluation uses;
                                 n_params in models without experts and without
                                 such a table */
    size_t params_by_bits[9]; /* n_params by bits per element; [0]: not
                                 quantized */
    size_t weight_bytes;      /* bytes of the tensors that the model uses, as
                                 mapped, without table_bytes */
    size_t decode_bytes;      /* bytes of weights read for one token: of the
                                 embedding one row, of the experts the active
                                 ones */
    size_t kv_token_bytes;    /* bytes of KV cache per token */
    const int32_t *stop_ids;
    size_t n_stop_ids;
    double load_ms;        /* duration of qwick_engine_open */
    int32_t bos_id;        /* the token that goes before a text without a chat
                              template (add_bos_token of its files); -1:
                              none */
    size_t kv_state_bytes; /* maximum bytes of a sequence for the state of
                              recurrent layers, in addition; 0: there are no
                              such layers */
    /* the tokens that open and close the model's thinking, such as "<think>"
       and "</think>"; -1: the tokenizer has none. Of gpt-oss, whose answers are
       messages, only the token that closes one */
    int32_t think_open_id, think_close_id;
    const char *core;          /* the core whose record chooses between kernels,
                                  "Zen 4"; NULL with tokenizer_only */
    const char *core_evidence; /* which of its choices were measured, where and
                                  when */
    const char *cpu_id;        /* vendor, family and model of the CPU,
                                  "GenuineIntel 6 143" */
    /* Parts of load_ms: the tokenizer and the chat template; mapping and
       checking the weights, and preloading them. */
    double tokenizer_ms, weights_ms;
    /* Of the first pass, 0 before it: the time to read weights from the disk
       first, 0 if they were in memory; and page faults of the process. */
    double first_read_ms;
    size_t first_faults;
    const char *call_form; /* how the chat template writes calls of tools, such
                              as "qwen"; NULL: in no form that qwick reads, or
                              there is no template */
    size_t table_bytes; /* bytes of a table of which each token reads one row,
                           so that it can stay in the file: per-layer
                           embeddings; 0: none */
    bool generates;     /* false: a text encoder, a classifier, or a model
                           without a head */
    bool is_classifier; /* only qwick_rerank uses it */
    size_t lora_bytes;  /* bytes of adapters, in memory beside weight_bytes */
};
QWICK_API const struct qwick_info *
qwick_engine_info(const struct qwick_engine *eng);

/* Write to id a hash of everything that decides the model's answers. It covers
 * every field of config.json that a pass reads; each tensor's name, type, shape
 * and 16 pieces of 256 bytes; the stop ids; the token before texts without a
 * template; and tokenizer.json. For a GGUF file
 * it covers the metadata that replaces these files. Copies of a checkpoint have
 * the same hash on any machine. Checkpoints with different weights have
 * different hashes, unless the weights differ only between the pieces. The
 * first call reads the pieces. */
QWICK_API int qwick_engine_identity(struct qwick_engine *eng, uint64_t id[2],
                                    struct qwick_err *e);

/* ---- tokens ---------------------------------------------------------- */

/* Turn text into ids, as Hugging Face's tokenizer does with
 * add_special_tokens=False. With special, text such as "<|im_end|>" becomes the
 * added token; otherwise it is plain text. Bytes that are not valid UTF-8 are
 * kept: each becomes its byte token. */
QWICK_API int qwick_tokenize(const struct qwick_engine *eng, const char *text,
                             size_t n_bytes, bool special, int32_t **ids,
                             size_t *n_ids, struct qwick_err *e);

/* Tokenize a text that may be far too long. It works like qwick_tokenize, but
 * stops when there are more than `enough` ids (0: never). *n_ids is then some
 * number above `enough`, and the last ids may differ from the ids of the whole
 * text. */
QWICK_API int qwick_tokenize_some(const struct qwick_engine *eng,
                                  const char *text, size_t n_bytes,
                                  bool special, size_t enough, int32_t **ids,
                                  size_t *n_ids, struct qwick_err *e);

/* Tokenize a text that follows the token `before` in one text: -1 for none, or
 * QWICK_IN_TEXT for a token of plain text. It works like qwick_tokenize_some.
 * SentencePiece's tokenizers put a blank before a text, but not before one that
 * goes on after plain text. */
#define QWICK_IN_TEXT (-2)
QWICK_API int qwick_tokenize_after(const struct qwick_engine *eng,
                                   int32_t before, const char *text,
                                   size_t n_bytes, bool special, size_t enough,
                                   int32_t **ids, size_t *n_ids,
                                   struct qwick_err *e);

/* Tokenize a prompt that no chat template frames, or a text to score. It works
 * like qwick_tokenize_some, and puts qwick_info's bos_id before the ids, unless
 * there is none or the ids begin with it. */
QWICK_API int qwick_tokenize_prompt(const struct qwick_engine *eng,
                                    const char *text, size_t n_bytes,
                                    bool special, size_t enough, int32_t **ids,
                                    size_t *n_ids, struct qwick_err *e);

/* Let all text functions that the calling thread calls from now on end within
 * timeout_ms milliseconds in all, else they fail with QWICK_ERR_USAGE; 0: no
 * limit, as at first. For requests from strangers: a text of 32 MiB may take 20
 * s. The text functions are those that the top of this file lists, and the
 * creation of rerankers, which tokenizes the query. Constraints end within
 * about 1 s in any case. */
QWICK_API void qwick_text_timeout(double timeout_ms);

/* Turn ids into exact bytes. *text ends with a NUL, which *n_bytes does not
 * count. A tokenizer that puts a blank before a text drops one at the start of
 * a text here. skip_special leaves out added tokens that are flagged special.
 * Some models have ids that the tokenizer lacks, because rows pad the
 * vocabulary: these ids have no bytes. An id that neither the model nor the
 * tokenizer has: QWICK_ERR_USAGE. */
QWICK_API int qwick_detokenize(const struct qwick_engine *eng,
                               const int32_t *ids, size_t n_ids,
                               bool skip_special, char **text, size_t *n_bytes,
                               struct qwick_err *e);

/* Turn one id into the bytes that it has inside a text, where no blank is
 * dropped. It works like qwick_detokenize. */
QWICK_API int qwick_token_text(const struct qwick_engine *eng, int32_t id,
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
 * A template may render a message differently once other messages follow it:
 * Qwen3's drops the thinking of an answer after the next question. So
 * qwick_chat_sync and qwick_chat_generate do not just append to the session.
 * They render the whole conversation and compare its tokens with the session's.
 * They keep the longest common prefix in the session and evaluate the rest. The
 * result equals the result of a new session (bit by bit with exact). */
struct qwick_chat;
struct qwick_session;
struct qwick_generate_options;
struct qwick_result;

/* Create a conversation without messages. */
QWICK_API int qwick_chat_create(struct qwick_chat **out, struct qwick_err *e);
QWICK_API void qwick_chat_free(struct qwick_chat *c);

/* Append a message. role is usually "system", "user", "assistant" or "tool".
 * The text content[0..n) is copied; bytes that are not valid UTF-8 become
 * U+FFFD. */
QWICK_API int qwick_chat_add(struct qwick_chat *c, const char *role,
                             const char *content, size_t n,
                             struct qwick_err *e);

/* Append messages from JSON: an array of messages, or an object {"messages",
 * "tools"?, "add_generation_prompt"?, "enable_thinking"?}. A message is an
 * object with a string as "role"; "developer" becomes "system", and "function"
 * becomes "tool". Its "content" is a string, null, absent, or a list of parts
 * {"type": "text", "text"}. The template gets messages in the form that it
 * takes, as docs/formats.md describes: a list or the texts joined with
 * newlines, arguments of tool calls as an object or as text, several system
 * messages as one. It reads other members ("reasoning_content",
 * "tool_calls" …). "tools", "add_generation_prompt" and "enable_thinking"
 * replace the values of an earlier call; "add_generation_prompt" and
 * "enable_thinking" also take precedence over the options. An input with an
 * error leaves the conversation unchanged: QWICK_ERR_USAGE names the message
 * and the field. */
QWICK_API int qwick_chat_add_json(struct qwick_chat *c, const char *json,
                                  size_t n, struct qwick_err *e);

/* Write the conversation as JSON that qwick_chat_add_json reads, with a newline
 * at the end: an array of the messages, one in a line. If the conversation has
 * tools, or values of its own for "add_generation_prompt" or "enable_thinking",
 * it is an object with these and "messages". All members of the messages are
 * kept. The caller frees *json, which ends with a NUL that *n does not count. */
QWICK_API int qwick_chat_json(const struct qwick_chat *c, char **json,
                              size_t *n, struct qwick_err *e);

/* Append an answer as the assistant's message. Its thinking and its text are
 * separate members of the message. */
QWICK_API int qwick_chat_add_answer(struct qwick_chat *c,
                                    const struct qwick_result *r,
                                    struct qwick_err *e);

/* Replace the content of message i. The old content must be a string. */
QWICK_API int qwick_chat_replace(struct qwick_chat *c, size_t i,
                                 const char *content, size_t n,
                                 struct qwick_err *e);

/* Drop all messages after the first n, to undo turns. QWICK_ERR_USAGE if n is
 * larger than the number of messages. */
QWICK_API int qwick_chat_rollback(struct qwick_chat *c, size_t n,
                                  struct qwick_err *e);

/* The texts of a message. A text is NULL when the message lacks it. Content
 * that is a list of parts is their texts, joined with newlines. Texts may hold
 * NUL bytes, so each has a length; they also end with a NUL. They stay valid
 * until the message is replaced or dropped. */
struct qwick_message {
    const char *role, *content, *thinking;
    size_t n_role, n_content, n_thinking;
};
/* Return the number of messages. */
QWICK_API size_t qwick_chat_length(const struct qwick_chat *c);
/* Write the texts of message i to *out. QWICK_ERR_USAGE if there is no message
 * i. */
QWICK_API int qwick_chat_at(const struct qwick_chat *c, size_t i,
                            struct qwick_message *out, struct qwick_err *e);

enum qwick_think { QWICK_THINK_AUTO, QWICK_THINK_ON, QWICK_THINK_OFF };

/* Return "enable_thinking" of the conversation's JSON; AUTO if it had none. */
QWICK_API enum qwick_think qwick_chat_think(const struct qwick_chat *c);

struct qwick_chat_options {
    size_t size;
    bool add_generation_prompt; /* default true */
    enum qwick_think think;     /* AUTO: the template gets no enable_thinking */
    size_t enough;      /* for qwick_chat_encode: see qwick_tokenize_some */
    bool allow_special; /* text such as "<|im_end|>" in a message becomes the
                           added token; otherwise only the template's own text
                           does */
    size_t max_bytes; /* memory for rendering a conversation from a stranger, of
                         which a half is for the template's values and a
                         quarter for the text; beyond it QWICK_ERR_USAGE. 0:
                         256 MiB for the values */
};
QWICK_API void qwick_chat_options_init(struct qwick_chat_options *o,
                                       size_t size);
static inline struct qwick_chat_options qwick_chat_defaults(void)
{
    struct qwick_chat_options o;
    qwick_chat_options_init(&o, sizeof o);
    return o;
}

/* Render the conversation as prompt text, byte for byte as the checkpoint's
 * template defines it. QWICK_ERR_USAGE if it has no messages. */
QWICK_API int qwick_chat_render(const struct qwick_chat *c,
                                const struct qwick_engine *eng,
                                const struct qwick_chat_options *o, char **text,
                                size_t *n_text, struct qwick_err *e);

/* Write the ids of the text that qwick_chat_render gives to *ids. prefill
 * (NULL: none) is text with which the answer begins. *in_think is set to
 * whether the prompt ends inside an open <think> block. */
QWICK_API int qwick_chat_encode(const struct qwick_chat *c,
                                const struct qwick_engine *eng,
                                const struct qwick_chat_options *o,
                                const char *prefill, size_t n_prefill,
                                int32_t **ids, size_t *n_ids, bool *in_think,
                                struct qwick_err *e);

/* Write ids to *ids that continue a session whose earlier messages are not
 * known, for example one loaded from a file. They are the session's tokens, the
 * end of its last answer if the session lacks it, and the conversation as the
 * turns after it. For a session without tokens they are the ids of
 * qwick_chat_encode. */
QWICK_API int qwick_chat_continue(const struct qwick_chat *c,
                                  const struct qwick_session *s,
                                  const struct qwick_chat_options *o,
                                  const char *prefill, size_t n_prefill,
                                  int32_t **ids, size_t *n_ids, bool *in_think,
                                  struct qwick_err *e);

/* Make the session's context equal the prompt of the conversation. It works
 * like qwick_session_sync. Afterwards qwick_session_cached returns the number
 * of tokens that were kept. */
QWICK_API int qwick_chat_sync(const struct qwick_chat *c,
                              struct qwick_session *s,
                              const struct qwick_chat_options *o,
                              bool *in_think, struct qwick_err *e);

/* Answer the conversation, as qwick_generate does, and append the answer if it
 * has any tokens. g->in_think is ignored. On failure the conversation is
 * unchanged; *r can be passed to qwick_result_free in any case. */
QWICK_API int qwick_chat_generate(struct qwick_chat *c, struct qwick_session *s,
                                  const struct qwick_chat_options *o,
                                  const struct qwick_generate_options *g,
                                  struct qwick_result *r, struct qwick_err *e);

/* ---- sessions -------------------------------------------------------- */

/* One timeline of tokens. After each call, the KV cache holds these tokens:
 *
 *     sync, all_logits       the n tokens given; the logits are the last one's
 *     decode                 the token given as well. So during a generation
 *                            the cache holds all tokens except the newest
 *                            drawn one (with lookup, also guesses)
 *     generate               prompt and answer without the last token drawn
 *     rollback, reuse        the first n tokens; no logits if any were dropped
 *     fork, load             the tokens of the original, with its logits
 *     engine_step            the tokens of the step as well
 *
 * A call that fails because of its arguments (an id out of range, no room in
 * the context) changes nothing. When a call fails midway (interrupted, out of
 * memory), sync stops at a chunk boundary, and its context is a prefix of the
 * old one or of the new one; other calls leave the context unchanged. If the
 * model has recurrent layers, an interrupted call may leave fewer tokens: a
 * prefix of what it would leave otherwise. The session stays usable, and its
 * later results equal those of a new session. */
struct qwick_session;

/* Create a session. n_ctx is the maximum number of tokens that it may hold (0:
 * the model's maximum). The KV cache grows page by page with the tokens, so a
 * large n_ctx takes no memory by itself. */
QWICK_API int qwick_session_create(struct qwick_session **out,
                                   struct qwick_engine *eng, size_t n_ctx,
                                   struct qwick_err *e);
QWICK_API void qwick_session_free(struct qwick_session *s);

/* Make the session's context equal tokens[0..n), n >= 1. Evaluates only the
 * tokens after the longest usable prefix (see qwick_session_reuse), but always
 * the last one. Afterwards all n tokens are in the cache, the logits belong to
 * tokens[n-1], and the engine's prefix cache in memory has all full pages of
 * the context. More than n_ctx tokens: QWICK_ERR_CONTEXT. On failure the
 * context is a prefix of the old one or of tokens. */
QWICK_API int qwick_session_sync(struct qwick_session *s, const int32_t *tokens,
                                 size_t n, struct qwick_err *e);

/* Append one token and evaluate it. The logits then belong to this token. */
QWICK_API int qwick_session_decode(struct qwick_session *s, int32_t token,
                                   struct qwick_err *e);

/* Drop all tokens after the first n. If any are dropped, there are no logits
 * until the next sync or decode. QWICK_ERR_USAGE when n is larger than the
 * length. 0 is always possible, but some models cannot go back to every n. The
 * call then fails with QWICK_ERR_USAGE and changes nothing. qwick_session_sync
 * goes back to any n, because it evaluates tokens again if it must. The limits
 * are:
 *
 *   layers with a sliding window  keys that later tokens need may be gone once
 *                                 n is more than 256 below the longest length
 *                                 that the session has had
 *   recurrent layers              n must be one of the last 32 lengths, or a
 *                                 length at which the session keeps a copy of
 *                                 their state: every 256 tokens, in a long
 *                                 context fewer, and at the end of what it took
 *                                 from a prefix cache or a file */
QWICK_API int qwick_session_rollback(struct qwick_session *s, size_t n,
                                     struct qwick_err *e);

/* Copy a session: the new one has the same tokens, cache and logits, and
 * changes independently. The two share pages of the cache until one of them
 * writes to a page. */
QWICK_API int qwick_session_fork(struct qwick_session **out,
                                 const struct qwick_session *s,
                                 struct qwick_err *e);

/* ---- prefix caches ----------------------------------------------------- */

/* A prefix cache stores full pages of 64 tokens: their keys and values. A page
 * is found by its own tokens and by the tokens of all pages before it.
 *
 * In memory the cache is a trie that the engine's sessions share, with at most
 * prefix_cache_bytes. The least recently used page is dropped first, and never
 * before the pages that follow it. With sliding windows, sessions of an engine
 * that has a prefix cache, in memory or on disk, keep the memory of old
 * positions, since the cache gets pages only after a prompt.
 *
 * On disk the cache is a directory that a user's processes share. Its entries
 * are separate for each model, KV type and kernel level, and for exact and
 * default mode. A model is identified by its files: device, inode, size, mtime
 * and ctime when the engine opened them. So a copy of a model has entries of
 * its own. Files that belong to another user (except root), or that others can
 * write to, are not used.
 *
 * With exact, results with and without a hit are equal bit by bit. In default
 * mode they may differ in the last bits, as they do with another
 * prefill_chunk. */

/* Make the session's context the longest prefix of tokens[0..n) that is
 * available: from the context itself, from the prefix cache in memory, or from
 * the one on disk. The prefix may end inside a page. This call evaluates
 * nothing and leaves no logits. If you need logits, pass all tokens but the
 * last one, and evaluate the last one afterwards. qwick_session_sync calls this
 * function itself; callers of qwick_engine_step need it. */
QWICK_API int qwick_session_reuse(struct qwick_session *s,
                                  const int32_t *tokens, size_t n,
                                  struct qwick_err *e);

/* Put the full pages of the context into the engine's prefix cache in memory.
 * Copies nothing but, if the model has recurrent layers, their state at the end
 * of the last full page. Call it then before more than 32 tokens follow that
 * page, otherwise the cache gets fewer pages. Does nothing when the engine has
 * no such cache. */
QWICK_API void qwick_session_publish(struct qwick_session *s);

/* Write the full pages of the first n tokens of the context to the prefix cache
 * on disk, except pages that are already there. Then remove the least recently
 * used entries until at most prefix_cache_disk_bytes are left. Does nothing
 * when the engine has no cache on disk. When the pages of these n tokens alone
 * are larger than that limit, it stores nothing, and a warning says so once.
 * QWICK_ERR_RUNTIME names the file that could not be written; the session is
 * unaffected. */
QWICK_API int qwick_session_store(struct qwick_session *s, size_t n,
                                  struct qwick_err *e);

/* Write the pages of the prefix cache in memory that the one on disk lacks, the
 * most recently used ones first, until all are there, timeout_ms milliseconds
 * have passed (0: no limit), or *interrupt (NULL: never) is nonzero. Then
 * remove the least recently used entries, as qwick_session_store does. Writes
 * at most prefix_cache_disk_bytes. Call it when a program that answers many
 * conversations is idle and before it ends, so that the next process finds
 * them. Does nothing when the engine lacks one of the two caches.
 * QWICK_ERR_RUNTIME names the file that could not be written. */
QWICK_API int qwick_engine_store_prefixes(struct qwick_engine *eng,
                                          double timeout_ms,
                                          const volatile int *interrupt,
                                          struct qwick_err *e);

/* Return the number of tokens that the last sync did not have to evaluate. */
QWICK_API size_t qwick_session_cached(const struct qwick_session *s);

/* Write tokens, keys, values and logits to a file that only its owner can read.
 * The file appears at path only when it is complete and on the disk. The first
 * save of an engine hashes all weights, to identify them by their contents.
 * QWICK_ERR_USAGE if path is a regular file that is neither empty nor a session.
 * QWICK_ERR_RUNTIME if path exists and is not a regular file (for example a
 * symbolic link), or if the model's files were changed in place since the
 * engine opened them. */
QWICK_API int qwick_session_save(struct qwick_session *s, const char *path,
                                 struct qwick_err *e);
/* Check, before the work is done, that qwick_session_save would not replace a
 * file that is neither empty nor a session: QWICK_ERR_USAGE. */
QWICK_API int qwick_session_check_file(const char *path, struct qwick_err *e);

/* Open a saved session with a context of n_ctx tokens (0: the model's maximum).
 *
 *     QWICK_ERR_CONTEXT  n_ctx is smaller than the number of saved tokens
 *     QWICK_ERR_USAGE    the file was saved with other weights or another KV
 *                        type; or the engine has exact, and the file was saved
 *                        in default mode or on another kernel level
 *     QWICK_ERR_RUNTIME  the file cannot be read, is damaged, belongs to
 *                        another user (except root), or others can write to it
 *
 * Weights count as the same if their files have the same device, inode, size,
 * mtime and ctime. Otherwise all weights are hashed once and compared. So a
 * copied or moved checkpoint is accepted, and an edited one is refused. An edit
 * that changes none of these, not even ctime, goes unnoticed. */
QWICK_API int qwick_session_load(struct qwick_session **out,
                                 struct qwick_engine *eng, const char *path,
                                 size_t n_ctx, struct qwick_err *e);

/* The note of a session: bytes that a program keeps with it. They have no
 * effect on the session. qwick_session_save writes them to the file, and
 * qwick_session_load reads them again; a fork has none. qwick's command line
 * keeps the messages of the chat there, as qwick_chat_json gives them.
 *
 * qwick_session_set_note copies note[0..n), in place of the earlier note; n 0:
 * no note. qwick_session_note returns the note, borrowed until the next
 * qwick_session_set_note, and its length; NULL and 0 if there is none. */
QWICK_API int qwick_session_set_note(struct qwick_session *s, const char *note,
                                     size_t n, struct qwick_err *e);
QWICK_API const char *qwick_session_note(const struct qwick_session *s,
                                         size_t *n);

/* Write the default directory of the prefix cache on disk to *dir:
 * $XDG_CACHE_HOME/qwick, or ~/.cache/qwick. The caller frees it.
 * QWICK_ERR_USAGE if neither XDG_CACHE_HOME nor HOME is set. */
QWICK_API int qwick_cache_dir(char **dir, struct qwick_err *e);

/* ---- looking at sessions ----------------------------------------------- */

QWICK_API size_t qwick_session_length(const struct qwick_session *s);
/* Return the tokens in the cache, [*n]; valid until the next call on the
 * session. */
QWICK_API const int32_t *qwick_session_tokens(const struct qwick_session *s,
                                              size_t *n);
/* Return the maximum number of tokens, as given to qwick_session_create. */
QWICK_API size_t qwick_session_n_ctx(const struct qwick_session *s);
QWICK_API size_t qwick_session_kv_bytes(const struct qwick_session *s);

/* Return the logits of the last token, f32 [vocab_size], before any bias or
 * sampler; NULL when the last call left none. Valid until the next call on the
 * session and, after a joint step, until the engine's next joint step. */
QWICK_API const float *qwick_session_logits(const struct qwick_session *s);

/* One session's part of a joint step: append tokens[0..n), n >= 1. */
enum qwick_rows {
    QWICK_ROWS_NONE,
    QWICK_ROWS_LAST,
    QWICK_ROWS_ALL,
    QWICK_ROWS_FIRST /* the first token; only of a text encoder */
};
struct qwick_step {
    struct qwick_session *session;
    const int32_t *tokens;
    size_t n;
    enum qwick_rows rows; /* which tokens get a row of output */
};
enum qwick_output { QWICK_LOGITS = 1, QWICK_HIDDEN = 2 };

/* Evaluate the steps of different sessions jointly, in one pass over the
 * weights. Steps may have different lengths, and some may decode while others
 * prefill. Memory grows with the total number of tokens. output: QWICK_LOGITS,
 * QWICK_HIDDEN or both. When the pass fails, or the interrupt flag of the first
 * step's session is set, no session changes; except that with recurrent layers
 * an interrupted pass may drop the last tokens of a session that had a step of
 * more than 32 tokens (see qwick_session_length). */
QWICK_API int qwick_engine_step(struct qwick_engine *eng,
                                const struct qwick_step *steps, size_t n,
                                enum qwick_output output, struct qwick_err *e);

/* After a joint step. qwick_session_rows returns the session's rows of logits,
 * f32 [*n, vocab_size]; NULL and 0 if there are none. qwick_session_hidden
 * returns the hidden state of the session's last token after the last norm, f32
 * [d_model]; NULL if there is none. Both stay valid until the engine's next
 * joint step. */
QWICK_API const float *qwick_session_rows(const struct qwick_session *s,
                                          size_t *n);
QWICK_API const float *qwick_session_hidden(const struct qwick_session *s);

/* Called during prefills, after each layer of a pass and after the pass, with
 * the number of tokens done and of all tokens. Within a pass, done grows with
 * the layers. It is called on the thread that asked for the work, whose other
 * threads wait until it returns. It is not called for tokens that are
 * generated. */
typedef void (*qwick_progress_fn)(void *ctx, size_t done, size_t total);
QWICK_API void qwick_session_progress(struct qwick_session *s,
                                      qwick_progress_fn fn, void *ctx);

/* Set a flag that stops work. When *flag becomes nonzero, a prefill stops at
 * the next layer and a generation at the next token. A signal handler or
 * another thread may set it, with an atomic store (__atomic_store_n in C and
 * C++): the library reads all such flags with atomic loads. flag NULL: never
 * stop. A call that was stopped fails with
 * QWICK_ERR_INTERRUPTED, except qwick_generate. */
QWICK_API void qwick_session_interrupt(struct qwick_session *s,
                                       const volatile int *flag);

/* Compute the logits of every position of a prompt and call row(ctx, pos,
 * logits) for each, in order, with logits f32 [vocab_size]. When row returns
 * nonzero, the call fails with QWICK_ERR_RUNTIME. The session is reset first
 * and holds the tokens afterwards. */
typedef int (*qwick_row_fn)(void *ctx, size_t pos, const float *logits);
QWICK_API int qwick_session_all_logits(struct qwick_session *s,
                                       const int32_t *tokens, size_t n,
                                       qwick_row_fn row, void *ctx,
                                       struct qwick_err *e);

/* ---- sampling and generation ----------------------------------------- */

/* The steps of sampling, applied in Hugging Face's order: penalties,
 * temperature, top-k, top-p, min-p, draw. The value marked "off" switches a
 * step off. Ids that generation_config.json suppresses are never drawn, and its
 * min_new_tokens counts, whatever these values are.
 *
 * Begin with qwick_sampling_neutral or qwick_sampling_defaults. The struct
 * carries its size as options do, and other structs only point to it: so later
 * versions can have more members. */
struct qwick_sampling {
    size_t size;
    float temperature;       /* 0: greedy; of equal logits, the lowest id */
    int top_k;               /* 0: off; ties with the k-th are kept */
    float top_p;             /* 1: off; the token that crosses p is kept */
    float min_p;             /* 0: off; relative to the most likely token */
    float repeat_penalty;    /* 1: off; > 0; counts prompt and answer */
    float presence_penalty;  /* 0: off; counts the answer so far */
    float frequency_penalty; /* 0: off; counts the answer so far */
    uint64_t seed;           /* draw i depends on (seed, i) alone */
};
/* Ranges of these fields; both ends are allowed. The temperature is at least 0,
 * top_p and min_p are from 0 to 1, and the presence and frequency penalties are
 * at least -QWICK_PENALTY_MAX. Other values are QWICK_ERR_USAGE. */
#define QWICK_TEMPERATURE_MAX    100.0
#define QWICK_REPEAT_PENALTY_MIN 0.01
#define QWICK_REPEAT_PENALTY_MAX 100.0
#define QWICK_PENALTY_MAX        2.0

/* Return temperature 1 with every other step off. Start from these values to
 * set single options when the checkpoint asks for greedy. */
QWICK_API void qwick_sampling_init(struct qwick_sampling *o, size_t size);
static inline struct qwick_sampling qwick_sampling_neutral(void)
{
    struct qwick_sampling o;
    qwick_sampling_init(&o, sizeof o);
    return o;
}

/* Return the values of generation_config.json; greedy if the file asks for no
 * sampling. If the file has Qwen3's values for thinking (0.6, 0.95, 20) and
 * `thinking` is false, returns the values that the model card gives for answers
 * without thinking: 0.7, 0.8, 20. */
QWICK_API void qwick_sampling_read(const struct qwick_engine *eng,
                                   bool thinking, struct qwick_sampling *out,
                                   size_t size);
static inline struct qwick_sampling
qwick_sampling_defaults(const struct qwick_engine *eng, bool thinking)
{
    struct qwick_sampling o;
    qwick_sampling_read(eng, thinking, &o, sizeof o);
    return o;
}

/* Check that answers can be generated as generation_config.json says; o NULL:
 * with the neutral values. QWICK_ERR_MODEL if the file has a field that changes
 * answers in a way that qwick does not have; the message has its name and
 * value. Generating does the same. */
QWICK_API int qwick_check_generation(const struct qwick_engine *eng,
                                     const struct qwick_sampling *o,
                                     struct qwick_err *e);
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

/* A candidate of --logprobs with its log-probability before any sampler. */
struct qwick_logprob {
    int32_t id;
    float logprob;
};

/* Describes a token of the answer; the stop token also has an event. text
 * holds the UTF-8 characters that this token completes on its channel, perhaps
 * none. top holds the n_top most likely tokens if logprobs are on, else it is
 * NULL. All pointers are borrowed. A callback that returns nonzero ends the
 * generation as interrupted. */
struct qwick_token_event {
    int32_t id;
    enum qwick_channel channel;
    const char *text;
    size_t n_text;
    float logprob; /* of id; 0 without logprobs */
    const struct qwick_logprob *top;
    size_t n_top;
    bool forced; /* the think budget forced it; logprob is what the model gave
                    it */
    bool form; /* it is part of a header or of the end of a message, in answers
                  that are messages: it has no text of its own */
};
typedef int (*qwick_token_fn)(void *ctx, const struct qwick_token_event *ev);

/* Prompt lookup decoding. If the last few tokens occurred earlier in the
 * context, the tokens that followed them there are guesses. A pass evaluates
 * guesses together with the newest token, and accepts guesses until the first
 * one that differs from the drawn token. With exact the answer is the same as
 * without lookup. In default mode a pass of several tokens may round
 * differently, as with another prefill_chunk; you notice that only when two
 * tokens are about equally likely. The number of guesses adapts to how often
 * earlier ones were right. */
#define QWICK_LOOKUP_MAX     64
#define QWICK_LOOKUP_DEFAULT 0

/* Tokens for loop_guard that normal text does not reach: in 18,000 pieces of
 * programs, lists, tables, JSON and prose, no sequence repeated itself for more
 * than 325 tokens. The verbs generate and batch use it. */
#define QWICK_LOOP_GUARD_DEFAULT 600

/* Speculative decoding with a draft model: another model, smaller or quantized
 * to fewer bits, guesses the next tokens, and a pass evaluates its guesses
 * together with the newest token.
 *
 * With exact, answers are the same as without a draft model. So are greedy
 * answers in default mode, except that a pass of several tokens may round
 * differently, as with lookup. Other answers are drawn from the same
 * distribution, by accepting a guess with probability p/q, where p is the
 * model's probability and q the draft model's, after penalties and filters; but
 * the same seed gives other answers than without a draft model.
 *
 * The number of guesses adapts to how often earlier ones were right. It depends
 * on the sizes of the models, not on the clock, so that the same seed always
 * gives the same answer. If guesses do not pay, they stop, and are tried again
 * now and then.
 *
 * The draft model is an engine of its own. Its tokens must be the same, id by
 * id; how the two tokenize texts does not matter. The same thread must use both
 * engines. An answer leaves a session of the draft model in its session, for
 * the next answer: free that session before you close the draft model's engine.
 * While it guesses, the draft model runs on the threads of the other engine, if
 * both have the same number. Its context may be shorter, and its KV cache takes
 * memory of its own. If it fails, for example because memory is short, a
 * warning goes to the log of the answering engine, and the answer goes on
 * without it.
 *
 * In a batch, the requests with the same draft model guess in joint steps. The
 * more requests share a pass, the less a guess can gain, so large batches make
 * few guesses or none. The number of guesses then depends on other requests of
 * the batch, and without exact, so do sampled answers. Free the batch before
 * you close the draft model's engine.
 *
 * qwick_draft_check checks whether draft can guess for eng, as each answer with
 * a draft model does: QWICK_ERR_MODEL if their tokens differ, QWICK_ERR_USAGE
 * if it is the same engine or has no weights. */
QWICK_API int qwick_draft_check(struct qwick_engine *eng,
                                struct qwick_engine *draft,
                                struct qwick_err *e);

/* A constraint: a set of texts, and the tokens of an engine that spell them. An
 * answer under a constraint only has tokens that can still become one of these
 * texts, and ends only when it is one of them. */
struct qwick_constraint;

enum qwick_constraint_kind {
    QWICK_CONSTRAINT_REGEX,   /* a regular expression that the whole text
                                 matches; for its syntax see
                                 qwick-generate(1) */
    QWICK_CONSTRAINT_CHOICES, /* texts separated by commas; \, is a comma and
                                \\ a backslash */
    QWICK_CONSTRAINT_GBNF,    /* a grammar in the form of llama.cpp */
    QWICK_CONSTRAINT_JSON_SCHEMA, /* a JSON schema: the text is a JSON
                                     document that it admits */
    QWICK_CONSTRAINT_TOOLS,   /* a JSON array of tools in the form of OpenAI's
                                 API: the text is calls of them whose arguments
                                 their schemas admit. They are written as the
                                 model's chat template shows calls: as JSON
                                 between <tool_call> tags (Qwen3, Hermes), or as
                                 <function=…> and <parameter=…> between them
                                 (Qwen3-Coder). QWICK_ERR_USAGE for other
                                 templates. */
    QWICK_CONSTRAINT_NO_CALL, /* any text without "<tool_call>"; the
                                 constraint's text is not read */
    QWICK_CONSTRAINT_TOOLS_AUTO, /* as QWICK_CONSTRAINT_TOOLS, but the model
                                   decides: the answer is free, with calls or
                                   without, and each call is checked from its
                                   first tag on. Schemas that cannot be held
                                   are no error, unless their tool has
                                   "strict": true: a warning goes to the log,
                                   and they are held as far as possible. */
    QWICK_CONSTRAINT_LARK        /* a grammar in the form of Lark; see
                                    qwick-generate(1) */
};

#define QWICK_INDENT_FREE (-1)

struct qwick_constraint_options {
    size_t size;
    enum qwick_constraint_kind kind;
    const char *text; /* [n_text] UTF-8 */
    size_t n_text;
    const char *name; /* begins messages, for example "--regex"; NULL: the
                         name of the kind */
    int json_indent;  /* JSON schemas: blanks per level, 0 to 16; 0: compact,
                         without white space; QWICK_INDENT_FREE: blanks and new
                         lines as the model writes them, a bounded number */
    const char *tool; /* QWICK_CONSTRAINT_TOOLS: the text is one call of the
                         tool with this name; NULL: it is one call or more,
                         each of any of the tools */
    /* Called by qwick_constraint_create, on its thread. QWICK_LOG_WARNING:
       names the keywords of schemas that have no effect, or that are left out
       because of `lenient`. QWICK_LOG_ERROR: before the function fails, once
       for each part of a schema that it refuses, at most 20, and then with the
       number of the others. NULL: none. The error's message names as many of
       them as it has room for. */
    qwick_log_fn log;
    void *log_ctx;
    bool lenient; /* JSON schemas, also of tools: go on without keywords that
                     cannot be held exactly. The texts then satisfy the rest of
                     the schema; qwick_constraint_check tells whether an answer
                     satisfies all of it. A tool that has "strict": false is
                     lenient in any case. */
    bool json_any_order; /* JSON schemas: the members of an object come in any
                            order; else in that of the schema */
};
QWICK_API void qwick_constraint_options_init(struct qwick_constraint_options *o,
                                             size_t size);
static inline struct qwick_constraint_options qwick_constraint_defaults(void)
{
    struct qwick_constraint_options o;
    qwick_constraint_options_init(&o, sizeof o);
    return o;
}

/* Compile a constraint. QWICK_ERR_USAGE, with the position in the text, if the
 * text is not valid, uses syntax that is not supported, is too large, admits no
 * text at all, or if no token can begin such a text. Time and memory are
 * bounded for every text. The constraint belongs to the engine, and many
 * answers may use it, also at the same time in a batch. Free it after the
 * answers and before the engine. qwick_constraint_free accepts NULL. */
QWICK_API int qwick_constraint_create(struct qwick_constraint **out,
                                      struct qwick_engine *eng,
                                      const struct qwick_constraint_options *o,
                                      struct qwick_err *e);
QWICK_API void qwick_constraint_free(struct qwick_constraint *c);

/* Whether answers need qwick_constraint_check: a schema is lenient. */
QWICK_API bool qwick_constraint_is_lenient(const struct qwick_constraint *c);

/* Set *valid to whether the text of a finished answer, without its thinking,
 * satisfies the schemas that are lenient. If it does not, *e is
 * QWICK_KIND_SCHEMA and names the first keyword that fails and the place in the
 * answer. Returns 0, or -1 with *e set if the check fails: QWICK_ERR_MEMORY, or
 * QWICK_ERR_USAGE if it takes too much work. Any number of threads may call it
 * at the same time. */
QWICK_API int qwick_constraint_check(const struct qwick_constraint *c,
                                     const char *text, size_t n, bool *valid,
                                     struct qwick_err *e);

/* A number that is added to the logit of a token. -100 forbids the token in
 * practice, and 100 makes it the only one, as in OpenAI's API. */
struct qwick_bias {
    int32_t id;
    float bias; /* from -QWICK_BIAS_MAX to QWICK_BIAS_MAX */
};
#define QWICK_BIAS_MAX 100.0

struct qwick_generate_options {
    size_t size;
    const struct qwick_sampling *sampling; /* borrowed; NULL: neutral */
    size_t max_tokens;       /* 0: until a stop or the end of the context */
    const char *const *stop; /* stop strings, matched on bytes of the text; but
                                not inside calls, if the constraint is
                                QWICK_CONSTRAINT_TOOLS or _TOOLS_AUTO */
    size_t n_stop;
    bool ignore_eos;     /* never draw stop ids */
    bool in_think;       /* the prompt ends in an open think block (see
                            qwick_chat_encode) */
    bool split_thinking; /* put think blocks in the result's thinking, not its
                            text; default true; set false for raw prompts,
                            whose text the answer goes on with */
    bool profile;        /* fill per_token_ms and sample_ms */
    /* stop when the last loop_guard ids (at least 3) are one sequence, repeated
       three times or more; the last repetition may be cut. A window in which
       the constraint or the think budget left the model no choice does not
       count. 0: off, which is the default of the library; see
       QWICK_LOOP_GUARD_DEFAULT */
    size_t loop_guard;
    double timeout_ms; /* end the answer after this many milliseconds, counted
                          from the start of its prompt's evaluation and
                          checked at each layer of the prefill, then after
                          each token; 0: none */
    size_t logprobs;   /* candidates in each event; 0: off */
    size_t lookup;     /* maximum number of guesses per pass, up to
                          QWICK_LOOKUP_MAX; 0: off; has no effect in batches.
                          Where a constraint admits only one token, or the
                          think budget forces one, it is guessed in any case */
    qwick_token_fn on_token;
    void *on_token_ctx;
    struct qwick_constraint *constraint; /* the answer without its thinking
                                            matches it if finish is
                                            QWICK_FINISH_STOP, and is perhaps
                                            cut if it is anything else;
                                            borrowed; not with ignore_eos;
                                            NULL: none */
    bool may_think; /* if the model opens a think block first, the constraint
                       begins after it, as with in_think; needs
                       split_thinking */
    /* Once the answer has think_budget thinking tokens, a sentence that says so
       and the token that closes the think block are forced into it. The answer
       then goes on without another think block. Tokens that open or close a
       block do not count. QWICK_ERR_USAGE if the model has no token that closes
       a think block, or without split_thinking. An answer without thinking
       stays as it is. */
    bool limit_thinking;
    size_t think_budget; /* only with limit_thinking; 0: none at all */
    /* The draft model (see above); borrowed; NULL: none. QWICK_ERR_MODEL if its
       tokens are not the engine's. Lookup guesses first where it is expected to
       gain more. */
    struct qwick_engine *draft;
    bool prefilled; /* the prompt ends with the start of the answer: a blank at
                       the start of the answer's text stays, as after a raw
                       prompt (see qwick_detokenize) */
    const struct qwick_bias *bias; /* [n_bias] added to the logits of each draw
                                      after the penalties, before the
                                      temperature; borrowed. An id that occurs
                                      twice gets both numbers. Tokens that
                                      cannot be drawn, as under a constraint,
                                      stay so. QWICK_ERR_USAGE if an id is not
                                      below vocab_size, or a number is out of
                                      range */
    size_t n_bias;
};
QWICK_API void qwick_generate_options_init(struct qwick_generate_options *o,
                                           size_t size);
static inline struct qwick_generate_options qwick_generate_defaults(void)
{
    struct qwick_generate_options o;
    qwick_generate_options_init(&o, sizeof o);
    return o;
}

/* Counts of lookup. A decode step gives one token plus one for each accepted
 * guess. */
struct qwick_lookup {
    size_t max;                   /* as in the options; 0: off */
    /* guesses evaluated; guesses accepted. Tokens that a constraint or the
       think budget forces count as guesses, also without lookup */
    size_t n_drafted, n_accepted;
    size_t n_passes; /* decode steps with guesses */
};

/* Counts of guesses of a draft model. */
struct qwick_draft {
    bool on;                      /* there was a draft model */
    size_t n_drafted, n_accepted; /* as in struct qwick_lookup */
    size_t n_passes;
    double ms; /* with profile: time that the draft model took, a part of
                  total_ms */
};

struct qwick_result {
    int32_t *tokens; /* generated ids, thinking and stop token included; none if
                        the prompt was interrupted or timed out */
    size_t n_tokens;
    char *text; /* ends with a NUL that n_text does not count */
    size_t n_text;
    char *thinking; /* NULL when there was none */
    size_t n_thinking;
    enum qwick_finish finish;
    size_t n_prompt, n_cached; /* n_cached: prompt tokens that were not
                                  evaluated again */
    uint64_t seed;
    double prefill_ms; /* evaluating the prompt and sampling the first token */
    double total_ms;   /* prefill and decode */
    /* Only with profile, [n_per_token], one number for each token except the
       first: per_token_ms is the time of the decode step, divided evenly among
       the tokens that it gave; sample_ms is the part of the sampler and of the
       constraint. */
    double *per_token_ms, *sample_ms;
    size_t n_per_token;
    /* Only with profile and a constraint: time for the constraint after the
       first token, in which it computes masks, follows the text and finds
       tokens without an alternative; 0 otherwise */
    double constraint_ms;
    struct qwick_lookup lookup;
    size_t n_forced; /* ids in tokens that the think budget forced */
    struct qwick_draft draft;
    size_t stop_index; /* QWICK_FINISH_STOP_STRING: of the string in
                          options.stop */
};

/* Answer a prompt: sync, then sample and decode until a stop id, a stop string,
 * max_tokens, the end of the context, the loop guard or the timeout. *r can be
 * passed to qwick_result_free also after a failure. */
QWICK_API int qwick_generate(struct qwick_session *s, const int32_t *prompt,
                             size_t n, const struct qwick_generate_options *o,
                             struct qwick_result *r, struct qwick_err *e);
QWICK_API void qwick_result_free(struct qwick_result *r);

/* ---- a loop of your own ------------------------------------------------ */

/* The parts of qwick_generate, for programs that choose tokens themselves:
 *
 *     qwick_session_sync(ses, prompt, n, &e);
 *     qwick_sampler_accept_prompt(sam, prompt, n, &e);
 *     for (;;) {
 *         qwick_sampler_draw(sam, qwick_session_logits(ses), &id, &e);
 *         qwick_sampler_accept(sam, id, &e);
 *         if (id is one of info->stop_ids) break;
 *         qwick_detokenizer_add(det, id, &text, &n_text, &e);
 *         qwick_session_decode(ses, id, &e);
 *     }
 *
 * Without a bias this loop draws the same tokens as qwick_generate with the
 * same options and seed. Samplers and detokenizers belong to an engine: free
 * them before you close it. */
struct qwick_sampler;

/* Changes logits f32 [vocab_size] before a token is drawn. The penalties are
 * already applied to them, the temperature is not. The function may forbid a
 * token with -INFINITY; NaN and +INFINITY make the draw fail with
 * QWICK_ERR_USAGE. Ids that the tokenizer lacks stay forbidden. When the
 * function returns nonzero, the draw fails with QWICK_ERR_RUNTIME. */
typedef int (*qwick_bias_fn)(void *ctx, float *logits, size_t vocab_size);

/* Create a sampler. *o is copied; NULL: the neutral values. QWICK_ERR_USAGE if a
 * value of *o is out of range. */
QWICK_API int qwick_sampler_create(struct qwick_sampler **out,
                                   const struct qwick_engine *eng,
                                   const struct qwick_sampling *o,
                                   struct qwick_err *e);
QWICK_API void qwick_sampler_free(struct qwick_sampler *s);

/* Call fn(ctx, …) in each draw from now on. NULL: call nothing. */
QWICK_API void qwick_sampler_bias(struct qwick_sampler *s, qwick_bias_fn fn,
                                  void *ctx);

/* Begin a text under a constraint. Later draws give only tokens that it admits,
 * and a stop id exactly when the text is complete. qwick_sampler_accept then
 * fails with QWICK_ERR_RUNTIME for a token that does not fit and for all tokens
 * after a stop id, and changes nothing. c is borrowed until the sampler is
 * freed or gets another constraint. NULL: no constraint. */
QWICK_API int qwick_sampler_constrain(struct qwick_sampler *s,
                                      struct qwick_constraint *c,
                                      struct qwick_err *e);

/* Count these tokens as the prompt, for the repetition penalty. */
QWICK_API int qwick_sampler_accept_prompt(struct qwick_sampler *s,
                                       const int32_t *tokens, size_t n,
                                       struct qwick_err *e);

/* Draw a token from logits f32 [vocab_size], which stay unchanged. All draws
 * before the next accept use the same random number. QWICK_ERR_RUNTIME if a
 * logit is not finite, or if the bias forbids all tokens. */
QWICK_API int qwick_sampler_draw(struct qwick_sampler *s, const float *logits,
                                 int32_t *id, struct qwick_err *e);

/* Make id the next token of the answer, whether it was drawn or not. The
 * penalties count it, and the next draw uses the next random number. */
QWICK_API int qwick_sampler_accept(struct qwick_sampler *s, int32_t id,
                                   struct qwick_err *e);

/* Turns tokens into text, one by one. A character may take several tokens: its
 * bytes are held back until it is complete. Bytes that are not valid UTF-8
 * become U+FFFD. */
struct qwick_detokenizer;

/* Create a detokenizer. skip_special: see qwick_detokenize. */
QWICK_API int qwick_detokenizer_create(struct qwick_detokenizer **out,
                                       const struct qwick_engine *eng,
                                       bool skip_special, struct qwick_err *e);
QWICK_API void qwick_detokenizer_free(struct qwick_detokenizer *d);

/* Add a token and set *text [*n_text] to the characters that it completes,
 * perhaps none. The text does not end with a NUL, and is valid until the next
 * call. For ids without bytes see qwick_detokenize. */
QWICK_API int qwick_detokenizer_add(struct qwick_detokenizer *d, int32_t id,
                                    const char **text, size_t *n_text,
                                    struct qwick_err *e);

/* End the text: set *text [*n_text] to the bytes that were held back. The next
 * token begins a new text. */
QWICK_API int qwick_detokenizer_flush(struct qwick_detokenizer *d,
                                      const char **text, size_t *n_text,
                                      struct qwick_err *e);

/* ---- batching -------------------------------------------------------- */

/* Many generations at once. Each pass decodes one token of every live sequence
 * and prefills a piece of the new sequences. Rows are packed without padding.
 *
 * Prompts share work. A new prompt takes the keys and values of its beginning
 * from a live sequence with the same beginning, or from the engine's prefix
 * caches. At least its last token is evaluated. The prefix cache in memory
 * receives every prompt, and every sequence that has ended, up to its last
 * token. The prefix cache on disk receives at most the full pages of one
 * prompt: of the first prompt that begins with `common`, the part that other
 * requests share. qwick_engine_store_prefixes writes the rest.
 *
 * With recurrent layers, a request can take only a beginning at whose end there
 * is a copy of their state. A batch keeps such copies at the last page before
 * the end of a prompt, 16 tokens before that (where templates open think
 * blocks), at the start of the last message, at the end of the answer, and
 * where a prompt parts from earlier ones.
 *
 * With a draft model, a pass also evaluates guesses of the requests.
 *
 * With exact, an answer is bit by bit the one that qwick_generate gives. Other
 * requests and the caches do not change it. */
struct qwick_batch;

/* Called when a request has ended. tag is the request's. *r is the answer. To
 * keep it, the callback copies *r and sets *r to zeros; otherwise the batch
 * frees it. e is NULL, or says why the request failed; *r then holds the answer
 * up to the failure. The callback may add requests. If requests have draft
 * models, it must not use the engine for passes of its own. When it returns
 * nonzero, the step ends with QWICK_ERR_RUNTIME. */
typedef int (*qwick_done_fn)(void *ctx, void *tag, struct qwick_result *r,
                             const struct qwick_err *e);

struct qwick_batch_options {
    size_t size;
    size_t max_batch;      /* maximum number of live sequences, 0: 16 */
    size_t n_ctx;          /* maximum tokens of a sequence, 0: the model's
                              maximum */
    size_t kv_bytes;       /* maximum memory of the sequences' KV caches, those
                              of draft models included, not counting the
                              engine's prefix_cache_bytes; 0: the available
                              memory. If memory is short, fewer sequences are
                              live, and draft models do not guess */
    const int32_t *common; /* [n_common] tokens with which prompts are known to
                              begin; copied */
    size_t n_common;
    qwick_done_fn done;
    void *done_ctx;
    const volatile int *interrupt; /* ends a step soon; NULL: never */
    /* Called on the thread of the step after each layer of a pass but the last,
     * while the pass waits; NULL: never. It may call qwick_batch_cancel and
     * qwick_batch_stats_read, and no other function of the batch or its
     * engine. */
    void (*on_layer)(void *ctx);
    void *on_layer_ctx;
    /* Share time between requests, for users who wait. Prompts of which at most
     * 512 tokens are in no cache go before longer ones, in the next pass.
     * Beside a long prompt, sequences decode at about half of their rate, and a
     * pass takes less of the prompt if it would take longer than 0.8 s. A long
     * prompt never rests for more than about a second. false: each pass decodes
     * and prefills as much as it can, with prompts in the order of their
     * requests. Then all answers together take the least time, because the
     * weights are read for more tokens at once.
     *
     * The passes then depend on measured times. So without exact, rounding may
     * differ between two runs. With exact, answers are the same. */
    bool fair;
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
/* Free a batch. Requests that have not ended are dropped without a call of
 * done. */
QWICK_API void qwick_batch_free(struct qwick_batch *b);

/* Queue a prompt of n >= 1 tokens. prompt, *o and *o->sampling are copied.
 * Other memory that *o points to belongs to the caller and must stay valid
 * until done is called. QWICK_ERR_MEMORY if the KV cache of the prompt alone is
 * larger than kv_bytes. o->profile has no effect. prefill_ms and timeout_ms
 * count from the first pass that evaluates a token of the prompt. prefill_ms
 * ends with the first token of the answer. The timeout is checked after each
 * pass. */
QWICK_API int qwick_batch_add(struct qwick_batch *b, const int32_t *prompt,
                              size_t n, const struct qwick_generate_options *o,
                              void *tag, struct qwick_err *e);

/* Cancel all requests with this tag, whether they wait or run. The next step
 * ends them before its pass: it calls done for each, with the answer so far and
 * QWICK_FINISH_CANCELLED. A callback of the batch may call this function; a
 * request that ends in the same pass keeps its own finish reason.
 *
 * If on_layer cancels prompts in a pass, the pass stops after that layer,
 * unless what is left of it for these prompts is less work than what the other
 * requests would have to repeat. (Work is counted in tokens times layers. The
 * tokens of the others count as 32 at least, since each pass reads the weights,
 * and a recurrent state goes back to a snapshot.) The step then ends the
 * cancelled requests and succeeds. Answers of the others do not change. Tokens
 * that earlier passes have evaluated are in the prefix cache in memory.
 * QWICK_ERR_USAGE if no request has the tag. */
QWICK_API int qwick_batch_cancel(struct qwick_batch *b, const void *tag,
                                 struct qwick_err *e);

/* Return whether all requests with this tag wait: no token of them has been
 * evaluated. False if there is none. on_layer may call it. */
QWICK_API bool qwick_batch_waits(const struct qwick_batch *b, const void *tag);

/* Run one pass. Does nothing when no request is left. When a request fails,
 * done is called with the error and the step succeeds. After
 * QWICK_ERR_INTERRUPTED nothing has changed, except that requests that were
 * cancelled have ended. */
QWICK_API int qwick_batch_step(struct qwick_batch *b, struct qwick_err *e);
/* Run steps until no request is left. */
QWICK_API int qwick_batch_run(struct qwick_batch *b, struct qwick_err *e);

/* Counts of a batch. A program that was compiled with another version of
 * qwick.h gets the members that both versions know. Members that only the
 * program's version knows are 0. */
struct qwick_batch_stats {
    size_t n_waiting, n_live;
    uint64_t n_passes;
    uint64_t n_evaluated; /* tokens that went through the model, guesses
                             included */
    uint64_t n_shared;    /* prompt tokens whose keys and values came from other
                             sequences or from the prefix caches */
    uint64_t n_generated;
    uint64_t n_preempted; /* times that a sequence lost its cache to others */
};
QWICK_API void qwick_batch_stats_read(const struct qwick_batch *b,
                                      struct qwick_batch_stats *out,
                                      size_t size);
/* Return the bytes of the KV caches of live sequences. A page that several
 * sequences share counts in parts. */
QWICK_API size_t qwick_batch_kv_bytes(const struct qwick_batch *b);
static inline struct qwick_batch_stats
qwick_batch_get_stats(const struct qwick_batch *b)
{
    struct qwick_batch_stats s;
    qwick_batch_stats_read(b, &s, sizeof s);
    return s;
}

/* ---- scoring and choosing -------------------------------------------- */

/* Scoring computes log-probabilities of given texts, choosing those of given
 * answers, without a decode loop: natural logarithms of the softmax over the logits before any
 * sampler, summed in double. Many sequences share a pass. With exact, the
 * result for a sequence equals bit by bit the result for that sequence
 * alone. */

/* A token that qwick_score has scored. top holds the n_top most likely tokens
 * at its place, the most likely first; equal ones are in order of ids. It is
 * borrowed until the callback returns. */
struct qwick_score_event {
    size_t item, index; /* items[item].tokens[index] */
    double logprob;     /* as in items[item].logprobs */
    size_t rank;        /* 1: no token is more likely; at most vocab_size */
    const struct qwick_logprob *top;
    size_t n_top;
};
/* If it returns nonzero, qwick_score fails with QWICK_ERR_INTERRUPTED. */
typedef int (*qwick_score_fn)(void *ctx, const struct qwick_score_event *ev);

struct qwick_score_options {
    size_t size;
    size_t n_ctx;               /* maximum tokens of a sequence, 0: the model's
                                   maximum */
    size_t window, stride;      /* for qwick_score: see there */
    qwick_progress_fn progress; /* gets tokens done and all tokens */
    void *progress_ctx;
    const volatile int *interrupt; /* stops soon when nonzero; NULL: never */
    qwick_score_fn on_score; /* for qwick_score: called for each scored token,
                                in any order; NULL: not called */
    void *on_score_ctx;
    size_t top; /* tokens in top of each event; default 0 */
};
QWICK_API void qwick_score_options_init(struct qwick_score_options *o,
                                        size_t size);
static inline struct qwick_score_options qwick_score_defaults(void)
{
    struct qwick_score_options o;
    qwick_score_options_init(&o, sizeof o);
    return o;
}

/* A text to score, with the context before it. */
struct qwick_score_item {
    const int32_t *tokens; /* [n] */
    size_t n;
    size_t n_given;   /* the first n_given tokens are context, not scored */
    double *logprobs; /* [n] out: log-probability of each token, given all
                         tokens before it; 0 for tokens that are not scored */
    size_t n_windows; /* out: windows in which it was evaluated */
};

/* Return the index of the first scored token. It is n_given, or 1 when there is
 * no context, because the first token has nothing before it to be predicted
 * from. It is at least n when no token is scored. */
QWICK_API size_t qwick_score_first(const struct qwick_score_item *it);

/* Score texts of any length. A text of more than `window` tokens (0: n_ctx) is
 * evaluated in windows of that size. Each window starts `stride` tokens (0:
 * half of the window) after the previous window, and scores only tokens that no
 * earlier window scored. So after the first window, each scored token has at
 * least window - stride tokens before it. Context is evaluated as part of the
 * text, but not scored. n_windows is 0 if no token is scored. */
QWICK_API int qwick_score(struct qwick_engine *eng,
                          struct qwick_score_item *items, size_t n,
                          const struct qwick_score_options *o,
                          struct qwick_err *e);

/* qwick_score in steps, for programs that do other work between two passes.
 * Items and options are as there; the items stay borrowed. A step runs one pass.
 * *more is set to whether another one is needed. After a failure the scorer can
 * only be freed, unless the code is QWICK_ERR_INTERRUPTED: then a step goes
 * on. */
struct qwick_scorer;
QWICK_API int qwick_scorer_create(struct qwick_scorer **out,
                                  struct qwick_engine *eng,
                                  struct qwick_score_item *items, size_t n,
                                  const struct qwick_score_options *o,
                                  struct qwick_err *e);
QWICK_API int qwick_scorer_step(struct qwick_scorer *s, bool *more,
                                struct qwick_err *e);
QWICK_API void qwick_scorer_free(struct qwick_scorer *s);

/* Write the window and the stride that qwick_score uses with *o to *window and
 * *stride. QWICK_ERR_USAGE if the window is larger than the context, or the
 * stride is not smaller than the window. */
QWICK_API int qwick_score_windows(const struct qwick_engine *eng,
                                  const struct qwick_score_options *o,
                                  size_t *window, size_t *stride,
                                  struct qwick_err *e);

/* One of the possible answers. All prompts have the same possible answers. */
struct qwick_answer {
    const int32_t *tokens; /* [n], n >= 1 */
    size_t n;
};

/* A prompt, and the log-probability of each answer directly after the
 * prompt. */
struct qwick_choose_item {
    const int32_t *prompt; /* [n], n >= 1 */
    size_t n;
    double *logprobs; /* [n_answers] out: for each answer the sum over its
                         tokens */
};

/* Compute the log-probability of each answer after each prompt. Evaluates each
 * prompt once, a beginning that all prompts share only once, and each distinct
 * prefix of the answers once per prompt. QWICK_ERR_USAGE if two answers are
 * equal or one is empty. QWICK_ERR_CONTEXT if a prompt together with the
 * longest answer does not fit the context. */
QWICK_API int qwick_choose(struct qwick_engine *eng,
                           struct qwick_choose_item *items, size_t n,
                           const struct qwick_answer *answers, size_t n_answers,
                           const struct qwick_score_options *o,
                           struct qwick_err *e);

/* ---- embeddings and reranking ---------------------------------------- */

/* Turns texts into vectors, as sentence-transformers does with the checkpoint:
 * by the modules of modules.json, or the keys of a GGUF file. Without either,
 * the vector of a text is the hidden state of its last token after the last
 * norm; of a text encoder, the mean of all tokens' states. Many texts share a
 * pass; where only the last token of a decoder counts, a shared beginning is
 * evaluated once. With exact, the vector of a text equals bit by bit the vector
 * of that text alone. */
struct qwick_embedder;

struct qwick_embed_options {
    size_t size;
    size_t n_ctx;               /* maximum tokens of a text, 0: the model's
                                   maximum */
    size_t max_batch;           /* texts that are evaluated jointly, 0: 64 */
    size_t dim;                 /* keep only the first dim numbers of a vector
                                   (Matryoshka), 0: truncate_dim of
                                   config_sentence_transformers.json, or all */
    bool normalize;             /* scale vectors to length 1; default true */
    qwick_progress_fn progress; /* gets tokens done and all tokens of the
                                   call */
    void *progress_ctx;
    const volatile int *interrupt; /* stops soon when nonzero; NULL: never */
    const char *prompt_name; /* one of the prompts of
                                config_sentence_transformers.json, which goes
                                before each text; NULL: the file's default
                                prompt, if it names one */
    bool query; /* the texts are queries: without prompt_name, they get the
                   prompt "query", if there is one */
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

/* Return a warning for users ("does not look like …") when the checkpoint shows
 * no sign of being an embedding model, or a reranker; NULL when it shows one.
 * Signs are its name, the pooling type of a GGUF file, the files of
 * sentence-transformers, README.md, tensors without a head, a post-processor
 * that ends texts, and the size of the vocabulary. A genuine model shows
 * several of them. */
QWICK_API const char *qwick_embed_suitability(const struct qwick_engine *eng);
QWICK_API const char *qwick_rerank_suitability(const struct qwick_engine *eng);

/* Return the number of elements of a vector. */
QWICK_API size_t qwick_embedder_dim(const struct qwick_embedder *m);

/* Write a hash of all that a vector depends on, except the ids and the options:
 * qwick_engine_identity and the modules of sentence-transformers. */
QWICK_API int qwick_embedder_identity(const struct qwick_embedder *m,
                                      uint64_t id[2], struct qwick_err *e);

struct qwick_embed_text {
    const char *text;
    size_t n_text;
    const char *instruct; /* for a query: the task that it serves; "Instruct:
                             TASK\nQuery:" is put before the text, in place
                             of a prompt. NULL: the text is a document */
    size_t n_instruct;
    bool allow_special; /* text such as "<|im_end|>" becomes the added token */
    bool truncate;      /* cut the end of a text that does not fit the context;
                           otherwise QWICK_ERR_CONTEXT. A text that is only
                           longer than max_seq_length of
                           sentence_bert_config.json, with n_ctx 0, is cut in
                           any case if n_dropped is given */
};

/* Write the ids of a text to embed to *ids. The tokenizer's post-processor adds
 * ids before or after the text (Qwen3-Embedding's: <|endoftext|> at the end).
 * They are kept when the text is cut. *n_dropped (may be NULL) is the number of
 * tokens cut. */
QWICK_API int qwick_embed_encode(const struct qwick_embedder *m,
                                 const struct qwick_embed_text *t,
                                 int32_t **ids, size_t *n_ids,
                                 size_t *n_dropped, struct qwick_err *e);

struct qwick_embed_item {
    const int32_t *tokens; /* [n], n >= 1 */
    size_t n;
    float *vector; /* [dim] out */
};

/* Compute the vectors of n items. QWICK_ERR_RUNTIME if a hidden state is not
 * finite. */
QWICK_API int qwick_embed(struct qwick_embedder *m,
                          const struct qwick_embed_item *items, size_t n,
                          struct qwick_err *e);

/* qwick_embed in steps, for programs that do other work between two passes.
 * Begin borrows the items until the last step, and drops items of an earlier
 * call that are not done. A step runs one pass. *more is set to whether another
 * one is needed. After a failure of a step, begin again, unless the code is
 * QWICK_ERR_INTERRUPTED: then a step goes on. */
QWICK_API void qwick_embed_begin(struct qwick_embedder *m,
                                 const struct qwick_embed_item *items,
                                 size_t n);
QWICK_API int qwick_embed_step(struct qwick_embedder *m, bool *more,
                               struct qwick_err *e);

/* Measures how well documents answer a query. With Qwen3-Reranker, the score is
 * the probability of "yes" against "no" as the next token of its prompt, and the
 * part of the prompt before the document is evaluated once. A cross-encoder (a
 * text encoder with a classifier of one label) reads the pair of query and
 * document, and the score is the sigmoid of its logit. */
struct qwick_reranker;

struct qwick_rerank_options {
    size_t size;
    const char *instruct; /* what "relevant" means; NULL: "Given a web search
                             query, retrieve relevant passages that answer the
                             query" */
    size_t n_instruct;
    size_t n_ctx;     /* maximum tokens of a prompt, 0: the model's maximum */
    size_t max_batch; /* documents that are evaluated jointly, 0: 64 */
    qwick_progress_fn progress;
    void *progress_ctx;
    const volatile int *interrupt;
    bool raw_scores; /* scores are logits: log-odds, not probabilities */
};
QWICK_API void qwick_rerank_options_init(struct qwick_rerank_options *o,
                                         size_t size);
static inline struct qwick_rerank_options qwick_rerank_defaults(void)
{
    struct qwick_rerank_options o;
    qwick_rerank_options_init(&o, sizeof o);
    return o;
}

/* Create a reranker for one query. Evaluates nothing. query NULL: all items will
 * be ids that the caller has framed. QWICK_ERR_MODEL if the tokenizer lacks the
 * prompt's control tokens or a frame for pairs, if "yes" or "no" is not one
 * token, or if the model is a text encoder without a classifier.
 * QWICK_ERR_CONTEXT if the query leaves no room for a document.
 * QWICK_ERR_USAGE for an instruct with a model that reads pairs. */
QWICK_API int qwick_reranker_create(struct qwick_reranker **out,
                                    struct qwick_engine *eng, const char *query,
                                    size_t n_query,
                                    const struct qwick_rerank_options *o,
                                    struct qwick_err *e);
QWICK_API void qwick_reranker_free(struct qwick_reranker *r);

/* Write the ids of the prompt for a document to *ids. No text in query,
 * instruct or document becomes an added token. If the prompt does not fit the
 * context, the end of the document is cut. *n_dropped (may be NULL) is the
 * number of tokens cut. */
QWICK_API int qwick_rerank_encode(const struct qwick_reranker *r,
                                  const char *document, size_t n_document,
                                  int32_t **ids, size_t *n_ids,
                                  size_t *n_dropped, struct qwick_err *e);

struct qwick_rerank_item {
    const int32_t *tokens; /* [n] from qwick_rerank_encode */
    size_t n;
    double score; /* out: P(yes) / (P(yes) + P(no)); with raw_scores, the
                     logarithm of P(yes) / P(no) */
};

QWICK_API int qwick_rerank(struct qwick_reranker *r,
                           struct qwick_rerank_item *items, size_t n,
                           struct qwick_err *e);

/* qwick_rerank in steps; see qwick_embed_begin. */
QWICK_API void qwick_rerank_begin(struct qwick_reranker *r,
                                  struct qwick_rerank_item *items, size_t n);
/* Begin with pairs that the caller has framed. n_first[i], which is borrowed:
 * the tokens of item i that have type 0; the others have type 1. 0: all have
 * type 0. QWICK_RERANK_OWN: the item is of qwick_rerank_encode. Models without
 * types of tokens ignore it. */
#define QWICK_RERANK_OWN SIZE_MAX
QWICK_API void qwick_rerank_begin_pairs(struct qwick_reranker *r,
                                        struct qwick_rerank_item *items,
                                        const size_t *n_first, size_t n);
QWICK_API int qwick_rerank_step(struct qwick_reranker *r, bool *more,
                                struct qwick_err *e);

#ifdef __cplusplus
}
#endif

#endif
