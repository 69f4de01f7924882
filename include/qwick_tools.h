/* qwick: what only tools need, beside qwick.h: descriptions of checkpoints, the
 * list of models, the files of the prefix cache, indexes of vectors, quantizing,
 * plans, self-tests, and measurements. The conventions are those of qwick.h. */
#ifndef QWICK_TOOLS_H
#define QWICK_TOOLS_H

#include "qwick.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- tensors --------------------------------------------------------- */

struct qwick_tensor {
    const char *name;  /* as stored; a hostile file can put NUL bytes in it */
    const char *dtype; /* "BF16" … */
    const char *file;
    size_t shape[8];
    size_t rank, bytes;
    bool used; /* the model reads it */
};
/* Return the number of tensors in the checkpoint; 0 with tokenizer_only. */
QWICK_API size_t qwick_tensor_count(const struct qwick_engine *eng);
/* Describe tensor i of the checkpoint, in file order, in *out. QWICK_ERR_USAGE
 * if there is no tensor i. */
QWICK_API int qwick_tensor_at(const struct qwick_engine *eng, size_t i,
                              struct qwick_tensor *out, struct qwick_err *e);

/* ---- models on this machine ------------------------------------------ */

/* A model that was found, or the place of something that is not whole. Texts
 * may hold control bytes that came from names of files. */
struct qwick_model {
    char *name;        /* the shortest text that options.model takes for it:
                          a short name, the id, or the path */
    char *id;          /* its name in the store: "Qwen/Qwen3-4B",
                          "Qwen/Qwen3-4B-GGUF:Q4_K_M", "qwen3:4b" */
    char *path;        /* directory or file */
    const char *store; /* "huggingface", "path" (QWICK_MODEL_PATH), "ollama",
                          "lmstudio", "llama.cpp" or "modelscope"; static */
    char *family;      /* config.json: model_type, or general.architecture of a
                          GGUF file; NULL: unknown */
    char *weights_dtype; /* as in qwick_info; NULL: unknown */
    char *why;  /* why this build does not run the model; NULL: it does */
    char *pull; /* hub id of a form of the model to download instead, or of
                   this model if its download is incomplete; NULL: none */
    size_t disk_bytes; /* of the files in the directory, or of all parts of the
                          GGUF file */
    /* As in qwick_info; 0: unknown. */
    size_t n_params, n_active_params, weight_bytes, decode_bytes, n_ctx_max;
    double bits; /* per parameter, on average; 0: unknown */
};

/* List the models in the Hugging Face cache, in and below the directories of
 * QWICK_MODEL_PATH, and in the stores of Ollama, LM Studio, llama.cpp and
 * ModelScope. Models that this build runs come first, then the others; each
 * part is sorted by name. A model that is found by several paths is listed
 * once. Broken models, incomplete downloads and directories that cannot be read
 * are listed with the reason in why.
 *
 * Reads directories, the headers of weights and configs, and nothing else:
 * weights and tokenizers can still turn out to be damaged. *cut: there are too
 * many files (200,000 in one store, or 10,000 models), and the list is not
 * complete. interrupt stops the call soon when it is not 0; NULL: never.
 *
 * Environment: as for the names of models in qwick_engine_open. */
QWICK_API int qwick_models_list(struct qwick_model **out, size_t *n, bool *cut,
                                const volatile int *interrupt,
                                struct qwick_err *e);

/* List the same models by name, without opening any: a few milliseconds for
 * hundreds of models. Sets name, id, path and store; why only where the
 * directories show that a model is broken or incomplete; all else is NULL or 0.
 * The order, *cut and interrupt are those of qwick_models_list. Returns 0, or
 * -1 with *e set; qwick_models_free frees the list. */
QWICK_API int qwick_models_names(struct qwick_model **out, size_t *n, bool *cut,
                                 const volatile int *interrupt,
                                 struct qwick_err *e);
QWICK_API void qwick_models_free(struct qwick_model *v, size_t n);

/* Removing a model from the Hugging Face cache: a snapshot, or with "ID:TYPE"
 * one GGUF file with all of its parts, and the blobs that no other snapshot
 * links. While this is open, the repository is locked against qwick-pull. */
struct qwick_removal {
    const char *path;        /* the snapshot, or the repository */
    size_t n_files, n_bytes; /* that would go, and be free */
    struct qwick_removal_state *state;
};

/* Find what `name` means, in its own case of letters, among the names, ids and
 * paths of qwick_models_list; a hub id means a whole snapshot. Nothing is
 * removed yet. Returns 0, or -1 with *e set and nothing open: QWICK_ERR_USAGE
 * if several models have this name, or another program keeps the model;
 * QWICK_ERR_MODEL if there is none; QWICK_ERR_RUNTIME if a download into the
 * repository runs, or the cache cannot be changed. */
QWICK_API int qwick_removal_open(struct qwick_removal *r, const char *name,
                                 struct qwick_err *e);
/* Remove it. Sets n_bytes to what is free now, also on failure. An interrupted
 * removal leaves a model that is whole or no longer there; the next one in the
 * same repository frees the rest. Returns 0, or -1 with *e set. */
QWICK_API int qwick_removal_run(struct qwick_removal *r, struct qwick_err *e);
QWICK_API void qwick_removal_close(struct qwick_removal *r);

/* ---- the prefix cache on disk ---------------------------------------- */

/* An entry of the prefix cache on disk: the pages of a prompt. An entry may
 * hold only the later pages of its prompt; the pages before them are in other
 * entries. */
struct qwick_cache_entry {
    char *path;
    char model[96]; /* as in the engine's options, cut; "" if damaged */
    char kv[8], isa[16];
    bool exact;
    bool damaged;    /* or unreadable */
    bool tuning;     /* not a prefix but the result of a probe
                        (qwick_engine_options.tuning_dir): only path, n_bytes
                        and used are set */
    size_t n_tokens; /* of the prefix that ends with this entry */
    size_t first;    /* how many of these tokens are in other entries */
    size_t n_bytes;
    double used; /* time of the last use, in seconds since 1970 */
};

/* List the entries of the cache in dir (NULL: the default), the most recently
 * used first, and results of probes. A directory that does not exist has none. */
QWICK_API int qwick_cache_list(const char *dir, struct qwick_cache_entry **out,
                               size_t *n, struct qwick_err *e);
QWICK_API void qwick_cache_list_free(struct qwick_cache_entry *v, size_t n);

/* Remove the least recently used entries until at most max_bytes are left, and
 * temporary files that are older than an hour, because their writers are gone.
 * max_bytes 0 removes all entries, temporary files and results of probes, which
 * do not count otherwise. Touches only files that
 * look like the cache's own. *n_removed and *bytes_removed (may be NULL)
 * receive the number of removed files and their bytes. */
QWICK_API int qwick_cache_gc(const char *dir, size_t max_bytes,
                             size_t *n_removed, size_t *bytes_removed,
                             struct qwick_err *e);

/* ---- vectors of texts ------------------------------------------------- */

/* How embed makes vectors. What is behind pointers lives as long as the
 * engine. */
struct qwick_vector_info {
    char pooling[96];   /* modes of sentence-transformers: "cls", "mean+max" */
    size_t n_dense;     /* modules after pooling */
    size_t dim;         /* numbers of a vector */
    const size_t *dims; /* [n_dims] shorter lengths that the model was trained
                           for */
    size_t n_dims;
    size_t default_dim;         /* length without --dim */
    size_t max_tokens;          /* longer texts are cut; 0: no file says it */
    size_t n_prompts;           /* see qwick_vector_prompt */
    const char *default_prompt; /* name of the prompt that texts get, or NULL */
};
/* Describe the vectors of a model. QWICK_ERR_MODEL, as for
 * qwick_embedder_create, for a model that makes none. */
QWICK_API int qwick_engine_vectors(struct qwick_engine *eng,
                                   struct qwick_vector_info *o,
                                   struct qwick_err *e);
/* Return the name of prompt i of n_prompts, and set *text, after
 * qwick_engine_vectors. */
QWICK_API const char *qwick_vector_prompt(const struct qwick_engine *eng,
                                          size_t i, const char **text);

/* ---- indexes of vectors ---------------------------------------------- */

/* A directory with vectors of texts, the texts and their ids.
 * docs/formats.md describes its files. A reader sees the state of the last
 * commit before it opened the index, also while a writer adds rows.
 *
 * A row is a vector with its id and text. A row is dead once a later row has
 * its id: searches leave it out.
 *
 * Only one thread at a time may use an index. Functions return 0, or -1 with
 * *e. QWICK_ERR_RUNTIME: a file is damaged, or cannot be read or written. */
struct qwick_index;

/* Properties that all vectors of an index share. */
struct qwick_index_info {
    size_t size;
    const char *model; /* a name or an absolute path to find the model again;
                          NULL: the demo model */
    uint64_t model_hash[2]; /* qwick_engine_identity, and how states of tokens
                               become a vector */
    const char *prompt;     /* text before each document; "": none */
    size_t dim;             /* numbers in a vector */
    bool normalized;        /* vectors have length 1 */
    bool f16;               /* numbers are float16 on disk, else float32 */
    size_t n_rows, n_dead;  /* of the index; qwick_index_append reads neither */
};
QWICK_API void qwick_index_info_init(struct qwick_index_info *o, size_t size);
static inline struct qwick_index_info qwick_index_info_defaults(void)
{
    struct qwick_index_info o;
    qwick_index_info_init(&o, sizeof o);
    return o;
}

/* Describe the vectors of an embedder, for texts without an instruct: its
 * prompt, which is borrowed, its model_hash, dim and normalized. */
QWICK_API int qwick_index_describe(struct qwick_index_info *o,
                                   const struct qwick_embedder *m,
                                   struct qwick_err *e);

/* Open the index in dir for reading. */
QWICK_API int qwick_index_open(struct qwick_index **out, const char *dir,
                               struct qwick_err *e);
/* Open the index in dir for reading and appending, or begin one if dir is
 * empty. Vectors must be as *want says: QWICK_ERR_USAGE with both values if
 * those in the index are not; want->model does not matter there. want NULL: as
 * the index says, which must exist. QWICK_ERR_RUNTIME if another process has it
 * open for appending. */
QWICK_API int qwick_index_append(struct qwick_index **out, const char *dir,
                                 const struct qwick_index_info *want,
                                 struct qwick_err *e);
/* Close the index, and drop rows that are not committed. ix may be NULL. */
QWICK_API void qwick_index_close(struct qwick_index *ix);

/* Return the description, valid until the index is closed. Its numbers
 * also count rows that are not committed. */
QWICK_API const struct qwick_index_info *
qwick_index_get_info(const struct qwick_index *ix);

/* Check that the model of an embedder, which *o describes, is that of the
 * vectors. QWICK_ERR_USAGE with both values if it is not. */
QWICK_API int qwick_index_check_model(const struct qwick_index *ix,
                                      const struct qwick_index_info *o,
                                      struct qwick_err *e);

/* A row. The bytes end with no NUL and are valid until the next call that
 * changes or closes the index. */
struct qwick_index_row {
    const char *id, *text;
    size_t n_id, n_text;
};
QWICK_API int qwick_index_get_row(const struct qwick_index *ix, size_t row,
                                  struct qwick_index_row *out,
                                  struct qwick_err *e);
/* Write the vector of a committed row to out [dim]. */
QWICK_API int qwick_index_get_vector(const struct qwick_index *ix, size_t row,
                                     float *out, struct qwick_err *e);
/* Find the row of an id that is not dead. *row is SIZE_MAX if there is none. The
 * first call reads all ids. */
QWICK_API int qwick_index_find(struct qwick_index *ix, const char *id,
                               size_t n_id, size_t *row, struct qwick_err *e);

/* Add a row with a vector [dim]. An older row of this id becomes dead. Added
 * rows are in memory until they are committed. QWICK_ERR_USAGE if a number is
 * not finite or too large for the type on disk. */
QWICK_API int qwick_index_add(struct qwick_index *ix,
                              const struct qwick_index_row *row,
                              const float *vector, struct qwick_err *e);
/* Write all that was added to the disk. After a crash at any point, the index
 * has all of it, or is as before. On failure nothing of it is in the index,
 * unless the message says that it was written. */
QWICK_API int qwick_index_commit(struct qwick_index *ix, struct qwick_err *e);

struct qwick_index_query {
    size_t size;
    const float *vectors; /* [n, dim] */
    size_t n;             /* queries; all of them share one read of the index */
    size_t top;           /* most hits of each query; default 10 */
    double min_score;     /* of a hit; default -INFINITY */
    size_t skip;          /* a row to leave out; default SIZE_MAX: none */
    int threads;          /* without an engine, 0: as qwick_engine_options */
    const volatile int *interrupt; /* stops soon when nonzero; NULL: never */
};
QWICK_API void qwick_index_query_init(struct qwick_index_query *o, size_t size);
static inline struct qwick_index_query qwick_index_query_defaults(void)
{
    struct qwick_index_query o;
    qwick_index_query_init(&o, sizeof o);
    return o;
}

struct qwick_index_hit {
    size_t row;
    float score; /* the product of the two vectors */
};

/* The milliseconds of a search, as the average of its threads. */
struct qwick_index_times {
    double read_ms;    /* reading the file into memory, and mapping its pages */
    double product_ms; /* products and the choice of hits */
};

/* Find the rows with the largest products, by computing all of them: hits
 * [n, top] gets the hits of each query, the best first, of equal ones the
 * earlier row. n_hits [n] gets their numbers. Searches committed rows, on the
 * threads and with the kernels of eng; NULL: on threads of its own. times may
 * be NULL. QWICK_ERR_RUNTIME if a product is not finite. */
QWICK_API int qwick_index_search(struct qwick_index *ix,
                                 struct qwick_engine *eng,
                                 const struct qwick_index_query *q,
                                 struct qwick_index_hit *hits, size_t *n_hits,
                                 struct qwick_index_times *times,
                                 struct qwick_err *e);

/* ---- quantizing ------------------------------------------------------ */

/* How to choose scales. MLX: as mlx.core.quantize does. LSQ: search for the
 * least squared error of the weights; this takes longer, and the error is never
 * larger. With texts for calibration, LSQ searches for the least squared error
 * of outputs, counted column by column; and FEEDBACK, which needs texts, also
 * chooses codes so that later columns make up for the errors of earlier ones.
 * MLX means FEEDBACK if there are texts. */
enum qwick_scales { QWICK_SCALES_MLX, QWICK_SCALES_LSQ, QWICK_SCALES_FEEDBACK };

/* The kind of result of qwick_quantize: a directory in MLX's affine format, or
 * one GGUF file. */
enum qwick_quantize_format { QWICK_QUANTIZE_MLX, QWICK_QUANTIZE_GGUF };

/* Receives a line for people. It has no newline; it may hold control bytes that
 * came from a file. */
typedef void (*qwick_note_fn)(void *ctx, const char *line);

/* The width that a budget has chosen for a module. */
struct qwick_width {
    const char *name;
    int bits;
    int group;               /* elements that share a scale, in MLX's format */
    const char *type;        /* of a tensor of a GGUF file, else NULL */
    size_t n_weights, bytes; /* scales and biases included */
    double loss; /* estimate: what the KL divergence from the source falls by if
                    this module gets the most bits */
};
typedef void (*qwick_width_fn)(void *ctx, const struct qwick_width *width);

struct qwick_quantize_options {
    size_t size;
    int bits;                /* 2, 3, 4, 5, 6 or 8; the router of a mixture of
                                experts gets at least 8. 0: the bits of a
                                source whose codes can stay, else 4 */
    int group;               /* elements that share a scale: 32, 64 or 128. 0:
                                as the source's codes need it, else 64 */
    int head_bits;           /* bits of lm_head, or of the embedding if it is
                                also the head; 0: the same as bits */
    const char *const *only; /* [n_only] quantize only modules whose names match
                                one of these shell patterns (fnmatch), such as
                                "model.layers.0.mlp.up_proj" */
    size_t n_only;           /* 0: all modules */
    const char *const *skip; /* [n_skip] patterns of modules to copy, even if
                                `only` matches them */
    size_t n_skip;
    enum qwick_scales scales;
    bool force;                 /* replace an existing checkpoint */
    int threads;                /* 0: as qwick_engine_options */
    qwick_progress_fn progress; /* gets bytes of the source done and all
                                   bytes */
    void *progress_ctx;
    qwick_note_fn note; /* gets each module that is only copied, and why */
    void *note_ctx;
    const volatile int *interrupt; /* stops soon when nonzero; NULL: never */
    enum qwick_quantize_format format;
    const char *type;  /* of a GGUF file: "Q8_0", "Q6_K", "Q5_K_M",
                          "Q4_K_M", "Q4_0", "IQ4_NL", "Q3_K_M", "Q2_K",
                          "BF16", "F16", or "MXFP4": weights in MXFP4 stay so,
                          and others get Q8_0; NULL: "MXFP4" if there are such
                          weights, else "Q4_K_M"; bits, group, head_bits, only,
                          skip and scales do not apply then */
    const char *place; /* where qwick_model_find found the source; NULL: search */
    qwick_note_fn warn; /* gets what the result lacks and answers differently
                           for; NULL: `note` gets it */
    void *warn_ctx;
    const char **chosen_type; /* gets the type of a GGUF file; NULL: not
                                 wanted */
    int *chosen_bits, *chosen_group; /* get these of a checkpoint in MLX's
                                        format; NULL: not wanted */
    const struct qwick_lora *loras; /* [n_loras] adapters that are merged into
                                       the weights first */
    size_t n_loras;
    const char *const *calibrate; /* [n_calibrate] files with texts over which
                                     the model runs first, to learn which errors
                                     matter (docs/calibration.md): of objects
                                     {"text", "given"?} if the name ends in
                                     .jsonl, else of one text */
    size_t n_calibrate;
    int calibrate_self; /* in place of files: samples of 512 tokens that the
                           model writes; 0: none */
    uint64_t seed;      /* of these */
    size_t calibrate_memory; /* bytes of moments, at most; 0: 4 GiB */
    qwick_progress_fn calibrating; /* gets tokens that the model has run over,
                                      and all; with progress_ctx */
    /* A budget, at most one of the two; it chooses the bits of each module by
     * the loss that is measured on the texts of calibration, which it needs. Not
     * with bits, head_bits or type. In MLX's format with group 0, it also chooses
     * groups of 64 or 128. */
    double bpw;          /* bits of all matrices as stored, scales, embedding
                            and head included, for each of their weights; 0:
                            none */
    size_t target_bytes; /* of all tensors; 0: none */
    qwick_width_fn on_width; /* gets the modules' choices; NULL: not wanted */
    void *on_width_ctx;
    bool dry_run; /* only plan: nothing is written, dst may be NULL */
    qwick_progress_fn measuring; /* gets passes that measure losses, and all;
                                    with progress_ctx */
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
    size_t n_quantized;     /* modules that are quantized in the result */
    size_t n_dense;         /* modules that could be quantized but were
                               copied */
    size_t n_params;        /* elements of all tensors written */
    size_t bytes_read;      /* bytes of the source's tensors */
    size_t bytes_written;   /* bytes of the tensors written */
    double bits_per_weight; /* average over the tensors written */
    double total_ms;
    /* Of a budget, else 0: KL divergence from the source on texts of the
       calibration. `kl`: of the widths that were chosen; uniform_kl: of
       uniform_bits for all modules, the most bits that the budget allows. kl is
       never larger. */
    double kl, uniform_kl;
    int uniform_bits;
    size_t n_measured; /* tokens of these texts */
};

/* Write the checkpoint src (directory, hub id, NULL: the demo model) to the
 * directory dst, with its weight matrices quantized by groups in MLX's affine
 * format, which mlx-lm loads. A 2-D tensor NAME.weight of the text model whose
 * columns are a multiple of the group becomes NAME.weight (packed U32),
 * NAME.scales and NAME.biases (both of the weight's type). Weights in FP8 are
 * read as BF16. Those in MXFP4 stay so, unless bits are fewer than 4: they are
 * NAME.weight (packed U32) and NAME.scales (U8). Weights of AWQ, GPTQ and
 * compressed-tensors' integers keep their codes if bits and group are theirs:
 * then scales and biases have the type of the source's scales, or F32 where
 * that would round biases, and modules in floats stay so, except modules in
 * `only` and, with head_bits, the head. Codes in another order of columns
 * (GPTQ's desc_act) are rounded again. All other tensors are copied,
 * and so are the files of the tokenizer and the generation config. config.json
 * gets "quantization" and "quantization_config". The weights are split over
 * files as in the source. Needs a few MiB of memory per thread for a model of
 * any size.
 *
 * With format QWICK_QUANTIZE_GGUF, dst becomes one GGUF file, with the
 * tokenizer and the chat template in it. Its rules are those below, for a file
 * instead of a directory: dst must not exist, or with force be a GGUF file.
 * QWICK_ERR_MODEL if GGUF cannot hold the model's settings or its tokenizer.
 * src may then be a GGUF file as well, whose metadata are copied and whose
 * matrices are rounded again; warn is told if they were rounded before.
 *
 * dst must not exist, or be an empty directory, or with force a checkpoint
 * (config.json, no directories); otherwise QWICK_ERR_USAGE. dst appears
 * complete or not at all: the files are written to a directory beside it, which
 * is then renamed to dst. To replace a checkpoint, the two directories swap
 * names in one step if the file system can do that (RENAME_EXCHANGE). If it
 * cannot, the old checkpoint is moved away first, and for a moment dst does not
 * exist. Directories dst.tmp-* and dst.old-* that dead processes of this host
 * left are removed. QWICK_ERR_MODEL if src is quantized in another form, has
 * weights that are not finite, or is a model that qwick does not know. r may be
 * NULL. */
QWICK_API int qwick_quantize(const char *src, const char *dst,
                             const struct qwick_quantize_options *o,
                             struct qwick_quantize_report *r,
                             struct qwick_err *e);

/* Remove the unfinished directory of the qwick_quantize that is running. Meant
 * for a handler of SIGBUS that then ends the process: the kernel sends SIGBUS
 * when a source is truncated while it is read. Async-signal-safe. */
QWICK_API void qwick_quantize_abandon(void);

/* ---- what a model has lost ------------------------------------------- */

/* Compare a model with a reference, for example a quantized model with its
 * source: both evaluate the same tokens, and at each scored token the
 * distributions of the next token are compared. P is the model's and R the
 * reference's, the softmax of the logits before any sampler.
 *
 * Over ids that only one model has (rows of padding), R and P are not compared:
 * if the numbers of logits differ, both are renormalised over those that both
 * have. Log-probabilities are those of qwick_score. */
struct qwick_token_loss {
    double kl;       /* KL(R || P) = sum over ids of R ln(R / P), in nats, >= 0;
                        exactly 0 for equal logits. INFINITY where R has an id
                        that P excludes */
    double logprob;  /* of the token, by the model */
    double reference; /* of the token, by the reference */
    bool same_top;   /* the likeliest ids are the same; of equal ones the first
                        counts */
};

/* A text, as in qwick_score_item. */
struct qwick_compare_item {
    const int32_t *tokens; /* [n] */
    size_t n;
    size_t n_given;
    struct qwick_token_loss *losses; /* [n] out; unchanged for tokens that are
                                        not scored */
};

/* QWICK_ERR_USAGE with both values if the tokens of the models differ;
 * QWICK_ERR_MODEL if one of them has no head. Rows of padding may differ. */
QWICK_API int qwick_compare_check(struct qwick_engine *eng,
                                  struct qwick_engine *reference,
                                  struct qwick_err *e);

/* Write the window and the stride that qwick_compare uses: those of
 * qwick_score, with the smaller context of both models. */
QWICK_API int qwick_compare_windows(const struct qwick_engine *eng,
                                    const struct qwick_engine *reference,
                                    const struct qwick_score_options *o,
                                    size_t *window, size_t *stride,
                                    struct qwick_err *e);

/* Compare the models over some texts, evaluated as by qwick_score in joint
 * passes of each model. o: as there; on_score is called for the model only. The
 * memory for logits is that of two passes. The engines may be one and the
 * same. Calls qwick_compare_check. Not thread-safe per engine. */
QWICK_API int qwick_compare(struct qwick_engine *eng,
                            struct qwick_engine *reference,
                            struct qwick_compare_item *items, size_t n,
                            const struct qwick_score_options *o,
                            struct qwick_err *e);

/* A value with its 95% confidence interval; low and high are NaN if it is
 * unknown, with fewer than two blocks. */
struct qwick_interval {
    double value, low, high;
};

struct qwick_loss_summary {
    size_t n_tokens; /* scored tokens */
    size_t n_blocks;
    struct qwick_interval kl;        /* mean over tokens */
    struct qwick_interval agreement; /* share of tokens with the same top */
    struct qwick_interval perplexity, reference_perplexity;
    struct qwick_interval ratio; /* perplexity / reference_perplexity; its
                                    interval is of the paired differences */
    double kl_p99, kl_max;       /* nearest rank */
};

/* Sums of losses over texts. The tokens of a text are correlated, so intervals
 * come from blocks: each text is divided evenly into blocks of at most 128
 * consecutive tokens, and texts never share a block. A mean over tokens is the
 * ratio of sums over blocks; its variance is that of the ratio estimator
 * (Cochran, Sampling Techniques, 3rd ed., section 6.3), and the interval has
 * Student's t with n_blocks - 1 degrees of freedom. Intervals of perplexities
 * are exp of those of mean losses. KL is cut at 0, and agreement at 0 and 1. */
struct qwick_losses;
QWICK_API int qwick_losses_create(struct qwick_losses **out,
                                  struct qwick_err *e);
/* Add the scored tokens of a text. After a failure nothing is added. */
QWICK_API int qwick_losses_add(struct qwick_losses *l,
                               const struct qwick_token_loss *v, size_t n,
                               struct qwick_err *e);
/* Without tokens, all values are NaN. */
QWICK_API int qwick_losses_summary(const struct qwick_losses *l,
                                   struct qwick_loss_summary *out,
                                   struct qwick_err *e);
QWICK_API void qwick_losses_free(struct qwick_losses *l);

/* ---- plan ------------------------------------------------------------ */

struct qwick_plan_options {
    size_t size;
    size_t n_prompt; /* tokens of the prompt; 0: 512, or half the context if
                        that is less */
    size_t n_answer; /* tokens of the answer; default 256. Fewer are planned if
                        the context ends before */
    size_t n_ctx;    /* tokens of the context; 0: the model's maximum */
    bool no_speed;   /* measure nothing, and leave the times 0 */
    const volatile int *interrupt; /* stops soon when nonzero; NULL: never */
};
QWICK_API void qwick_plan_options_init(struct qwick_plan_options *o,
                                       size_t size);
static inline struct qwick_plan_options qwick_plan_defaults(void)
{
    struct qwick_plan_options o;
    qwick_plan_options_init(&o, sizeof o);
    return o;
}

/* How the times of a plan were found. */
enum qwick_plan_source {
    QWICK_PLAN_NONE,   /* they were not: they are 0 */
    QWICK_PLAN_ROOFLINE, /* from the machine's bandwidth and arithmetic peak,
                          which passes do not reach: the real times are longer
                        */
    QWICK_PLAN_PASSES  /* from short passes of the model */
};

/* The needs of a prompt and its answer. Bytes of memory are upper bounds. */
struct qwick_plan {
    size_t n_prompt, n_answer, n_ctx; /* tokens as planned */

    size_t weight_bytes;   /* of the mapped weights that the model uses */
    size_t resident_bytes; /* of these, in memory now (the page cache) */
    bool resident_known;
    size_t table_bytes; /* of a table that stays in the file, since each token
                           reads one row (qwick_info); 0: none */
    double disk_bytes; /* of weights that each token reads from the disk,
                          because they do not fit the memory; 0: they fit */

    size_t program_bytes;   /* memory that this process has already: tokenizer,
                               libraries, and preloaded weights; 0: unknown */
    size_t kv_bytes;        /* KV cache of prompt and answer */
    size_t kv_1000_bytes;   /* of 1,000 tokens */
    size_t kv_full_bytes;   /* of the full context */
    size_t scratch_bytes;   /* activations and work memory of passes */
    size_t sampling_bytes;  /* logits, sampling, and the ids of the context */
    size_t needed_bytes;    /* sum of KV cache, scratch and sampling */
    size_t available_bytes; /* memory that can still be allocated; 0: unknown */
    bool fits;              /* needed_bytes are available, or that is unknown */

    int cpus_online;     /* logical CPUs of the machine */
    int cpus_affinity;   /* of these, in the affinity mask */
    int cores;           /* physical cores in the affinity mask */
    double cpu_quota;    /* CPUs that the cgroup may keep busy; 0: no limit */
    int slurm_cpus;      /* SLURM_CPUS_PER_TASK, a limit as well; 0: unknown */
    int threads_default; /* threads that an engine gets by default */

    enum qwick_plan_source source;
    double bandwidth;     /* bytes per second that all threads read */
    double peak;          /* floating-point operations per second */
    double first_token_s; /* from the start of the prefill to the first token,
                             with the weights in memory */
    double token_s;       /* per further token, with half of the answer there;
                             0: of a text encoder, whose text has no answer */
};

/* Plan what generating an answer with this engine needs and takes. With
 * no_speed, nothing is measured. Otherwise it takes about a second: if most
 * weights are in memory and passes are fast enough, the function runs some.
 * A plan that does not fit is not an error: see fits; its times are 0. Returns
 * 0, or -1 with *e: QWICK_ERR_CONTEXT if the prompt does not fit the context,
 * QWICK_ERR_INTERRUPTED, QWICK_ERR_USAGE for an engine without weights. */
QWICK_API int qwick_plan_make(struct qwick_engine *eng,
                              const struct qwick_plan_options *o,
                              struct qwick_plan *out, struct qwick_err *e);

/* ---- self-test ------------------------------------------------------- */

enum qwick_selftest_result {
    QWICK_SELFTEST_PASS,
    QWICK_SELFTEST_FAIL,
    QWICK_SELFTEST_SKIP, /* there is nothing to compare */
    QWICK_SELFTEST_CUT   /* time or memory ran out */
};

/* One check of a self-test. Strings are borrowed until the callback returns;
 * detail may hold control bytes that came from names of files. */
struct qwick_selftest_check {
    const char *name;   /* such as "avx2, default" */
    const char *detail; /* the measured value and its bound, or the reason */
    enum qwick_selftest_result result;
    double ms;
};

struct qwick_selftest_options {
    size_t size;
    double time_ms; /* cut the checks that have not ended after this time;
                       default 60000, 0: no limit */
    /* called when a check begins; NULL: not called */
    void (*begin)(void *ctx, const char *name);
    /* called with its result; if it returns nonzero, the test stops; NULL: not
       called */
    int (*done)(void *ctx, const struct qwick_selftest_check *c);
    void *ctx;
    const volatile int *interrupt; /* stops soon when nonzero; NULL: never */
};
QWICK_API void qwick_selftest_options_init(struct qwick_selftest_options *o,
                                           size_t size);
static inline struct qwick_selftest_options qwick_selftest_defaults(void)
{
    struct qwick_selftest_options o;
    qwick_selftest_options_init(&o, sizeof o);
    return o;
}

/* Numbers of checks with each result. */
struct qwick_selftest_report {
    size_t n_pass, n_fail, n_skip, n_cut;
    size_t n_tokens; /* of the text that the checks evaluate */
};

/* Check on this machine that an engine's model computes the same in all ways:
 *
 *   files          files equal the checksums that the Hugging Face cache or
 *                  Ollama has recorded
 *   tokenizer      texts turn into ids and back into the same bytes
 *   cached         logits after reused tokens equal recomputed ones
 *   threads        logits of one thread equal those of all threads
 *   batch          logits of a joint step equal those of single sequences
 *   LEVEL, exact   logits of each kernel level that this CPU has, in exact mode
 *   LEVEL, default the same in default mode
 *
 * cached, threads and batch use exact mode and the engine's kernel level, and
 * compare bit by bit. The reference of the levels is the lowest level in exact
 * mode that is not cut. Errors are relative to the norm of the logits;
 * docs/accuracy.md has their bounds. Each of the first five checks gets a
 * quarter of the time that is left, and each level half of it.
 *
 * The checks open further engines on the engine's checkpoint, one or two at a
 * time, so the rules of qwick_engine_open for threads apply. The engines share
 * the mapped weights. Each has a KV cache and activations of its own.
 *
 * A check that fails is not an error of this function. Returns 0, or -1 with
 * *e: QWICK_ERR_INTERRUPTED, QWICK_ERR_MEMORY, or QWICK_ERR_USAGE for an engine
 * without weights. */
QWICK_API int qwick_selftest(struct qwick_engine *eng,
                             const struct qwick_selftest_options *o,
                             struct qwick_selftest_report *r,
                             struct qwick_err *e);

/* ---- choices between kernels ----------------------------------------- */

/* A choice between kernels that do the same work: how far ahead weights are
 * prefetched, or the number of tokens from which another kernel is faster. The
 * best choice depends on the core, so qwick has a record for each core that it
 * knows. On other cores, the first engine of the process may measure a few
 * choices (tuning_dir). All engines of a process use the same choices: those of
 * the first one. Choices change speed; with exact, they change no bit of a
 * result. */
struct qwick_tuning {
    const char *name, *about;
    size_t value;
    const char *evidence; /* "measured", "guess" or "probe" */
    bool used;            /* the kernels of this engine depend on it */
};
/* Describe choice i = 0, 1, … in *out; its strings live as long as the process.
 * QWICK_ERR_USAGE if there is no choice i, or with tokenizer_only. */
QWICK_API int qwick_tuning_at(const struct qwick_engine *eng, size_t i,
                              struct qwick_tuning *out, struct qwick_err *e);

/* A variant of a choice between kernels (qwick_tuning), measured. */
struct qwick_tuning_trial {
    const char *name; /* of the choice */
    size_t value;     /* the variant */
    double share;     /* speed of the products that it concerns, as a share of the
                         slower limit: read bandwidth or arithmetic peak */
    bool chosen;      /* the engine uses this variant */
    bool best;        /* no variant of the choice was faster */
};
/* Receives all variants of a choice, [n]; borrowed until the call returns. */
typedef void (*qwick_tuning_fn)(void *ctx,
                                const struct qwick_tuning_trial *trials,
                                size_t n);

/* Measure all variants of each choice that the engine's kernels depend on, one
 * choice after the other, and call fn for each. Weights are synthetic matrices
 * of 3,072 rows and 1,024 columns in 192 MiB of memory; one thread computes. A
 * variant counts with the median of `reps` >= 1 rounds; a round takes about a
 * third of a second. The choices in use change meanwhile: no other thread may
 * use the library. They are the old ones afterwards. */
QWICK_API int qwick_tuning_measure(struct qwick_engine *eng, size_t reps,
                                   qwick_tuning_fn fn, void *ctx,
                                   struct qwick_err *e);

/* Return 0 if the model has logits, or -1 with *e set: text encoders and other
 * models without a head have none, and nothing but vectors or scores can be made
 * with them. */
QWICK_API int qwick_engine_need_logits(const struct qwick_engine *eng,
                                       struct qwick_err *e);

/* ---- measurements ---------------------------------------------------- */

/* Measure the read bandwidth of all the engine's threads and write it to *rate,
 * in bytes per second. They read the mapped weights, or anonymous memory when
 * the weights are smaller than 256 MiB. Runs for about ms milliseconds. */
QWICK_API int qwick_bench_bandwidth(struct qwick_engine *eng, double ms,
                                    double *rate, struct qwick_err *e);

/* Measure the peak speed of the unit that the engine's long prefills use: bf16
 * or int8 products where info.gemm says so, otherwise f32 multiply-adds. All of
 * the engine's threads run loops on registers only, for about ms milliseconds.
 * Returns floating-point operations per second; a multiply-add counts as
 * two. */
QWICK_API double qwick_bench_peak(struct qwick_engine *eng, double ms);

/* Return the number of floating-point operations of a forward pass over n
 * tokens that follow pos other tokens: two for each weight and token, the two
 * products of attention, and the head once. */
QWICK_API double qwick_forward_flops(const struct qwick_engine *eng, size_t pos,
                                     size_t n);

/* Return the bytes of weights that all passes of the engine have read so far.
 * Each pass counts every weight outside of experts once, and each expert that
 * at least one of its tokens chose once. To measure some batches, subtract the
 * value before them from the value after them. */
QWICK_API double qwick_engine_weight_bytes(const struct qwick_engine *eng);

/* Count the bytes of the checkpoint's mapped files that have been read so far:
 * *mapped, and of these the ones that the page cache holds in huge pages. Huge pages have fewer page faults in the first pass, and are read
 * faster. With preload, passes read a copy in memory instead. Returns -1 if the
 * system does not tell. */
QWICK_API int qwick_engine_pages(const struct qwick_engine *eng, size_t *mapped,
                                 size_t *huge);

/* Return the bytes of keys and values that a forward pass over n tokens that
 * follow pos other tokens reads. Each key that at least one of the n tokens
 * attends to counts once, so layers with a sliding window count fewer. */
QWICK_API double qwick_forward_kv_bytes(const struct qwick_engine *eng,
                                        size_t pos, size_t n);

/* Measure from now on how long each part of a pass takes on its first thread,
 * and add the milliseconds to ms [QWICK_PROFILE_PARTS]. ms NULL: stop. Reading clocks
 * costs a little. */
#define QWICK_PROFILE_PARTS 6
QWICK_API void qwick_session_profile(struct qwick_session *s, double *ms);
/* Return the name of a part: "embedding", "norms", "projections", "attention",
 * "head", "barriers". */
QWICK_API const char *qwick_profile_part(size_t part);

#ifdef __cplusplus
}
#endif

#endif
