/* Parts of qwick_quantize: the plan for each tensor, the work, and the forms of
 * the result. */
#ifndef ENGINE_QUANTIZE_H
#define ENGINE_QUANTIZE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/err.h"
#include "convert/calibrate.h"
#include "file/gguf_write.h"
#include "file/json.h"
#include "file/outdir.h"
#include "file/safetensors.h"
#include "kernel/kernel.h"
#include "model/blocks_fit.h"
#include "model/config.h"
#include "model/model.h"
#include "model/names.h"
#include "model/pooling.h"
#include "qwick_tools.h"

/* Elements of a tensor: consecutive ones; or a matrix whose rows and columns
 * have other places in the tensor, such as those of its transpose. */
struct quantize_part {
    const struct st_tensor *src;
    size_t begin, n;
    size_t cols;   /* of the matrix */
    size_t stride; /* from one column to the next one; 0: elements are
                      consecutive */
    size_t step;   /* from one row to the next one */
};

/* Where the source has element i of a part. */
static inline size_t quantize_place(const struct quantize_part *p, size_t i)
{
    return p->begin +
           (p->stride ? i % p->cols * p->stride + i / p->cols * p->step : i);
}

/* The order of elements in a GGUF file: of each block of units, the first ones
 * are a matrix of units by rows in the source, and by columns in the file.
 * Value heads become tiled so (names.h), and pairs that rotate together become
 * neighbours (arch.gguf_interleaved). */
struct quantize_order {
    size_t unit;       /* elements that stay together; 0: all do */
    size_t block;      /* units of a block */
    size_t rows, cols; /* of the matrix */
};

/* Elements of the source that are written. */
struct quantize_job {
    struct quantize_part from;
    size_t at; /* where the result's elements begin */
    struct quantize_order order;
    int bits;      /* 0: copied */
    int group;     /* of MLX's format, unless kept */
    bool kept;     /* copied as MXFP4 */
    bool codes;    /* `bits` are the source's codes */
    bool same;     /* its bytes are copied, in a GGUF file */
    bool calibrated; /* rounded by whole rows, see quantize_rows.c */
    size_t out[3]; /* indices into the shard's tensors: the copy; or codes,
                      scales, biases; or numbers, scales */
    const struct matrix *packed; /* quantize_packed's of the source */
    const struct quantize_merge *merge; /* NULL: nothing is merged into it */
};

/* A file of the result. */
struct quantize_shard {
    char name[80];
    struct st_out_tensor *out;
    size_t n_out;
    struct quantize_job *jobs;
    size_t n_jobs;
};

/* A weight, by the name that MLX has for its module: a tensor of two
 * dimensions, or all experts of a layer in one role, or these experts' biases.
 */
struct quantize_module {
    const struct st_tensor *t;   /* the first one of its source */
    char *name;                  /* the result's without ".weight" or ".bias" */
    bool bias;                   /* a row for each expert; stays dense */
    int bits;                    /* 0: stays dense, or: */
    int group;                   /* elements that share a scale */
    bool kept;                   /* stays in MXFP4 */
    bool codes;                  /* `bits` are the source's codes */
    enum dtype scales;           /* of a quantized one: the type of its scales
                                    and biases */
    size_t stack;                /* matrices; 0: one, in two dimensions */
    size_t rows, cols;           /* of a matrix */
    struct quantize_part *parts; /* [n_parts] the elements, in order */
    size_t n_parts;
    bool fused; /* t holds another module, too, next in the plan or before */
};

/* The role of a tensor of the source. */
struct quantize_claim {
    bool claimed;  /* it belongs to a module of experts */
    size_t module; /* the last one of these */
    bool router;   /* it chooses experts, or weighs the shared one */
};

/* An adapter's addition to rows [row, row + rows) of a tensor of the source. */
struct quantize_merged {
    const struct lora *of;
    size_t row, rows;
};
enum { QUANTIZE_MERGED = 3 }; /* of q_proj, k_proj and v_proj */
struct quantize_merge {
    struct quantize_merged parts[QUANTIZE_MERGED];
    size_t n; /* 0: nothing is merged into the tensor */
    size_t cols;
};

/* The change of each element x of a tensor that goes into a GGUF file: (x +
 * plus) * times, or -exp(x). */
struct quantize_change {
    float plus, times;
    bool decay;
};

/* Divisors of a rotary embedding's frequencies, as a tensor. It has less than a
 * page, since whole pages of a source are dropped once they have been read. */
struct quantize_factors {
    float v[CONFIG_MAX_FACTORS];
    struct st_tensor t;
};
enum { N_FACTORS = 2 };

/* A width that a budget may choose for a matrix. */
struct quantize_width {
    int bits, group;  /* MLX; group 0: that of the options */
    enum dtype type;  /* GGUF: the type of blocks */
    const char *name; /* GGUF: of --type, in a file most of whose matrices have
                         this width */
};
enum { MAX_WIDTHS = 12 };

/* A matrix of the result, or a stack of matrices, whose width is to be chosen. */
struct quantize_asked {
    const char *name;          /* in the result */
    const struct st_tensor *t; /* the first one of its source */
    size_t n, cols;            /* all its weights */
};

struct quantize_form;

struct quantize_plan {
    const struct qwick_quantize_options *o;
    /* A budget's choice: one of form->widths. NULL: there is no budget. */
    const struct quantize_width *(*find_width)(
        void *ctx, const struct quantize_asked *asked);
    void *find_width_ctx;
    bool any_group; /* a budget also chooses groups */
    bool keeps_codes;                 /* bits and group are the source's */
    const struct quantize_form *form; /* the kind of result */
    const struct quantize_source *s;
    struct naming naming; /* of the source */
    struct quantize_module *modules;
    size_t n_modules;
    struct quantize_claim *claims; /* of each tensor of the source */
    struct quantize_shard *shards;
    size_t n_shards;
    char **names; /* of new tensors */
    size_t n_names;
    size_t n_params, bytes_read, bytes_written;
    size_t n_quantized, n_dense; /* matrices with few bits, and others */
    struct gguf_out meta;        /* of a GGUF file */
    /* [n_out of the only shard] of a GGUF file */
    struct quantize_change *changes;
    struct quantize_factors factors[N_FACTORS];
    size_t n_factors;
    const struct calibration *calibration; /* NULL: none */
    size_t row_cols; /* the longest row of calibrated jobs; 0: there are none */
};

/* What is read of the source. */
struct quantize_source {
    struct checkpoint *ck;
    struct json_doc *config; /* config.json; NULL: the source is a GGUF file */
    struct st_set *stored;   /* the tensors of the files */
    struct st_set *set;      /* the same, where weights in FP8, MXFP4 and GGUF's
                                blocks are tensors of floats without scales;
                                these have no elements in memory, and must be
                                read with quantize_elements */
    struct weights packing;  /* of what is stored so */
    struct matrix *packed;   /* [st_count(set)] the rows of these tensors */
    struct model m;          /* its config; and its weights, without values, if
                                quantize_form.binds */
    struct pooling pooling;  /* which the result cannot say otherwise */
    struct model adapted;    /* the model with its adapters, without values */
    struct quantize_merge *merges; /* [st_count(stored)]; NULL: no adapters */
    const struct quantize_merge **merge_of; /* [st_count(set)] likewise */
    bool untied;             /* the head differs from the embedding, although
                                tie_word_embeddings is true */
};

/* ---- the work ------------------------------------------------------------ */

/* Elements that a thread takes at a time: whole groups and blocks of any size,
 * few enough for the second-level cache. */
enum { QUANTIZE_PIECE = 1 << 18 };

/* Elements of a row in FP8, MXFP4 or blocks, at most. */
enum { QUANTIZE_COLS = 1 << 17 };

/* Results of a piece until they are written. */
struct quantize_room {
    unsigned char q[QUANTIZE_PIECE];
    _Alignas(64) unsigned char scales[QUANTIZE_PIECE / 32 * sizeof(float)];
    unsigned char biases[QUANTIZE_PIECE / 32 * sizeof(float)];
    /* elements of a transpose in the order of the matrix, or widened ones */
    unsigned char gathered[QUANTIZE_PIECE * sizeof(float)];
    float floats[QUANTIZE_COLS];
    float merged[QUANTIZE_COLS]; /* a row of an adapter */
    const struct matrix *row_of; /* floats has row `row` of it; NULL: none */
    size_t row;
    struct quantize_rows *rows; /* NULL: no job is calibrated */
};

/* A shard's work; all threads share it. */
struct quantize_work {
    const struct quantize_plan *plan;
    const struct quantize_shard *shard;
    struct st_writer *writer;
    const struct kernels *k;
    const char *path; /* of the source, for messages */
};

/* A kind of result. */
struct quantize_form {
    bool binds;      /* the plan needs the weights that the model reads */
    enum dtype wide; /* of weights that the source has quantized */
    /* QWICK_ERR_USAGE for options that it cannot have. */
    int (*check)(const struct qwick_quantize_options *o, struct qwick_err *e);
    /* Plan the result. In *p, o and form are set and all else is zero. The
     * caller frees the plan, also after an error. */
    int (*plan)(struct quantize_plan *p, const struct quantize_source *s,
                struct qwick_err *e);
    /* Begin the result at dst. keep: a directory never to replace, or NULL. */
    int (*begin)(struct outdir **out, const char *dst, bool replace,
                 const char *keep, struct qwick_err *e);
    /* Begin a shard's file. */
    int (*open)(struct st_writer **out, const char *path,
                const struct quantize_plan *p, const struct quantize_shard *s,
                struct qwick_err *e);
    /* Write the results of elements [begin, begin + n) of a job's part. */
    int (*piece)(const struct quantize_work *w, const struct quantize_job *job,
                 size_t begin, size_t n, struct quantize_room *room,
                 struct qwick_err *e);
    /* Write what is in no shard. NULL: nothing. */
    int (*finish)(const struct quantize_plan *p,
                  const struct quantize_source *s, struct outdir *out,
                  struct qwick_err *e);
    /* The widths for a budget, *n at most MAX_WIDTHS, by their bytes, ascending. */
    const struct quantize_width *(*widths)(const struct quantize_plan *p,
                                           size_t *n);
    /* Let *m, whose rows and cols are set, be a matrix of a width, or of the
     * next one that its rows fit, in all but its data. type: of the source's elements. */
    void (*shape)(const struct quantize_plan *p, struct matrix *m,
                  const struct quantize_width *width, enum dtype type);
    /* Round rows r->w of a matrix whose moments and weights r has, as in a
     * calibrated job. out: where each array of m's format gets these rows. -1: a
     * group has no scale. */
    int (*round)(const struct quantize_plan *p, const struct kernels *k,
                 struct quantize_rows *r, const struct matrix *m, size_t rows,
                 unsigned char *const out[FORMAT_ARRAYS]);
};

/* A directory in MLX's affine format; a GGUF file. */
extern const struct quantize_form quantize_mlx, quantize_gguf;

/* Return elements [begin, begin + n) of a job's part, n at most QUANTIZE_PIECE:
 * in the source, or gathered in the room. */
const unsigned char *quantize_elements(const struct quantize_job *job,
                                       size_t begin, size_t n,
                                       const struct kernels *k,
                                       struct quantize_room *room);
/* Return where the file has these elements, in array i of their format; of
 * packed ones whole rows. NULL: there is no such array. */
const unsigned char *quantize_data(const struct quantize_job *job, size_t i,
                                   size_t begin, size_t n, size_t *n_bytes);
/* Copy elements in MXFP4, whole groups: numbers gets n / 2 bytes, the first
 * element of two in the low half of a byte, and scales n / 32. */
int quantize_mxfp4(const struct quantize_work *w,
                   const struct quantize_job *job, size_t begin, size_t n,
                   unsigned char *numbers, unsigned char *scales,
                   struct qwick_err *e);

/* Copy elements that are codes, whole groups of `group`, to the room's q, and
 * their scales and biases in the type `scales`. */
int quantize_codes(const struct quantize_work *w,
                   const struct quantize_job *job, size_t begin, size_t n,
                   size_t group, enum dtype scales, struct quantize_room *room,
                   struct qwick_err *e);

/* An error: the elements have values that cannot be rounded. at: the first of
 * them in t. */
int quantize_bad_value(const struct quantize_work *w, const struct st_tensor *t,
                       size_t at, struct qwick_err *e);

/* ---- calibrated rows (quantize_rows.c) ----------------------------------- */

/* Rows that are rounded together, up to FEEDBACK_ROWS. */
struct quantize_rows {
    const struct moments *moments; /* of their input; NULL: none */
    float *weights;      /* [cols] of squared errors */
    float *w;            /* [rows, cols] elements */
    float *scales, *biases;      /* [rows, groups of a row] in MLX's format */
    unsigned char *codes; /* likewise */
    struct block_scales *blocks; /* [rows, blocks of a row] */
    struct feedback_room feedback;
    const void *format; /* what the format's feedback_fit needs */
    size_t cols;
};

/* Memory for rows of up to cols elements; NULL: there is none. */
struct quantize_rows *quantize_rows_new(size_t cols);
void quantize_rows_free(struct quantize_rows *r);

/* The columns of a job's matrix; 0: it has none. */
size_t quantize_row_cols(const struct quantize_job *job);

/* Mark the jobs of a plan that are calibrated: their matrices are rounded, and
 * have moments. */
void quantize_mark_jobs(struct quantize_plan *p);

/* Find the moments and the weights for the next rows of a job, which begin at
 * element `begin`; n elements are left. Returns the number of rows. */
size_t quantize_next_rows(const struct quantize_plan *p,
                          const struct quantize_job *job, size_t begin,
                          size_t n, struct quantize_rows *r);

/* Choose the codes of n rows w, and their scales. form: what the format says of
 * struct feedback (g, unit, fit, read, write, group, no_bases); ctx is r. -1: a
 * unit has no scale. */
int quantize_round_rows(const struct quantize_plan *p, const struct kernels *k,
                        struct quantize_rows *r, const struct feedback *form,
                        size_t cols, size_t n);
/* Return the first of n rows' elements that is not finite, or 0. */
size_t quantize_find_bad(const struct quantize_rows *r, size_t n);

/* ---- the source ---------------------------------------------------------- */

/* Return the tensor whose numbers multiply the elements of blocks in t; NULL:
 * there is none. */
const struct st_tensor *quantize_factors(const struct quantize_source *s,
                                         const struct st_tensor *t);

/* Open the tensors of s->ck, whose config is read already. Quantized
 * weights get the type dtype, and so do floats into which adapters [n] are merged,
 * if dtype is F32. The caller closes them, also after an error. */
int quantize_open_set(struct quantize_source *s, enum dtype dtype,
                      const struct lora_spec *loras, size_t n,
                      struct qwick_err *e);
void quantize_close_set(struct quantize_source *s);

/* Return the rows of a tensor of s->set that the file has quantized. NULL for
 * any other tensor. */
const struct matrix *quantize_packed(const struct quantize_source *s,
                                     const struct st_tensor *t);
/* Whether the file has a tensor in MXFP4, or any tensor. */
bool quantize_is_mxfp4(const struct quantize_source *s,
                       const struct st_tensor *t);
bool quantize_has_mxfp4(const struct quantize_source *s);

/* The bits and the group with which matrices of the source are codes, as MLX's
 * format has them: the bits of the first one, and the largest group that fits
 * all matrices with these bits. Returns false if there are none. */
bool quantize_find_codes(const struct quantize_source *s, int *bits, int *group);
/* Whether a tensor of s->set has codes of these bits and group. *scales: the
 * type of its scales, or F32 if that type would round biases. */
bool quantize_has_codes(const struct quantize_source *s,
                        const struct st_tensor *t, int bits, int group,
                        enum dtype *scales);

/* Return the bytes of n elements of a tensor in the file, scales of FP8
 * excepted. packed: quantize_packed's. */
size_t quantize_stored_bytes(const struct matrix *packed,
                             const struct st_tensor *t, size_t n);

/* Open the adapters, and find the tensors of s->stored that they change. */
int quantize_open_merges(struct quantize_source *s, const struct lora_spec *specs,
                         size_t n, struct qwick_err *e);
void quantize_close_merges(struct quantize_source *s);
/* Add the merged adapters to a tensor's row, w f32 [m->cols]. tmp as long. */
void quantize_merge_row(const struct quantize_merge *m, float *w, size_t row,
                        const struct kernels *k, float *tmp);
/* Return the adapters that are merged into a tensor of s->set, or NULL. */
const struct quantize_merge *quantize_merge_of(const struct quantize_source *s,
                                               const struct st_tensor *t);

/* ---- the plan ------------------------------------------------------------ */

/* Append a job to a shard. */
void quantize_add_job(const struct quantize_plan *p, struct quantize_shard *s,
                      struct quantize_job job);

/* Send a line to o->note: "WHAT: WHY". */
void quantize_note(const struct quantize_plan *p, const char *what,
                   const char *why);
/* Note how many modules keep the form or the codes of the source, and how many
 * codes are rounded again. */
void quantize_note_kept(const struct quantize_plan *p);
/* Send a line to o->warn: what the result lacks. */
void quantize_warn(const struct quantize_plan *p, const char *what,
                   const char *why);
/* An error about a tensor of the source. */
int quantize_err(const char *path, const struct st_tensor *t, const char *why,
                 struct qwick_err *e);
/* An error if a tensor of quantize_source.set shows that the checkpoint is
 * quantized, or if it is a matrix that holds no floats. */
int quantize_check_tensor(const struct st_tensor *t, const char *path,
                          struct qwick_err *e);
/* Whether a tensor is not the text model's. Tensors of a vision model, for
 * example, have another prefix. */
bool quantize_outside(const struct quantize_plan *p, const struct st_tensor *t);

/* Whether a tensor is a head in a checkpoint whose embedding is the head. */
bool quantize_is_spare_head(const struct quantize_plan *p,
                            const struct st_tensor *t, bool tied);
/* Plan the files of a result in MLX's format, for the modules of the plan
 * (quantize_shards.c). */
int quantize_shards(struct quantize_plan *p, const struct st_set *set,
                    bool tied, struct qwick_err *e);

/* The group of a width, for rows of cols elements. */
int quantize_group(const struct quantize_plan *p,
                   const struct quantize_width *w, size_t cols);

/* Find the modules of a result in MLX's format, and their bits. The plan borrows
 * from the source and p->o. */
int quantize_modules(struct quantize_plan *p, const struct quantize_source *s,
                     struct qwick_err *e);
void quantize_plan_free(struct quantize_plan *p);

/* Add a module for the experts of each layer and role, then one for each role's
 * biases where there are some, and mark the tensors of these and the routers in
 * p->claims. Bits are not chosen yet. */
enum { QUANTIZE_ROLES = 6 }; /* of a layer at most */
int quantize_experts(struct quantize_plan *p, const struct st_set *set,
                     const char *path, const struct config *c,
                     struct qwick_err *e);

/* ---- GGUF ---------------------------------------------------------------- */

/* Weights that mixtures of types tell apart. */
enum mix_role { MIX_OTHER, MIX_V, MIX_DOWN, MIX_O, MIX_QKV, N_MIX_ROLES };

/* Layers in which a weight has another type than most. */
enum mix_layers {
    LAYERS_NONE,
    LAYERS_ALL,
    LAYERS_TWO,       /* the first two */
    LAYERS_SIXTEENTH, /* the first sixteenth */
    LAYERS_EIGHTH,
    LAYERS_MORE,   /* the first and the last eighth, and every third one
                      between */
    LAYERS_GROUPED /* all, if four heads or more share keys and values */
};

/* The types of a weight that are not quantize_type.base. */
struct mix {
    enum dtype type;
    enum mix_layers layers;
    enum dtype first; /* in these layers, in place of type */
    enum mix_layers first_layers;
};

/* A name of --type: which types the tensors of a file get. */
struct quantize_type {
    const char *name;
    uint32_t file_type; /* general.file_type */
    enum dtype base;    /* of matrices */
    enum dtype head;    /* of the head, which may be the embedding */
    struct mix mix[N_MIX_ROLES];
    bool keeps_mxfp4; /* matrices in MXFP4 stay so */
};

/* The row of a name; NULL when there is none. */
const struct quantize_type *quantize_type_find(const char *name);

/* Whether a matrix has a row for each head of a recurrent layer: few bytes, and
 * a state carries their errors on. */
bool quantize_is_small(enum weight_id id);

/* Return a type, or the one to use if its blocks do not fit rows of cols
 * elements. */
enum dtype quantize_type_fit(enum dtype type, size_t cols);

/* The type of a matrix: weight `id` of layer `layer` with rows of `cols`
 * elements. *wanted: the type before it fell back to one whose blocks fit the
 * rows. */
enum dtype quantize_type_of(const struct quantize_type *t,
                            const struct config *c, enum weight_id id,
                            size_t layer, size_t cols, enum dtype *wanted);

/* Return the factor of q_norm that makes readers of the result compute the
 * scores of layer i: they assume the score scale. 1 in released models. */
float quantize_gguf_query_scale(const struct config *c, size_t i);

/* Append the metadata of the model to p->meta. */
int quantize_gguf_meta(struct quantize_plan *p, const struct quantize_source *s,
                       struct qwick_err *e);
/* Append the chat templates: chat_template.jinja, the files of
 * CHECKPOINT_TEMPLATES and those in tokenizer_config.json, `tokenizer`. */
int quantize_gguf_templates(struct quantize_plan *p,
                            const struct checkpoint *ck,
                            const struct json_value *tokenizer,
                            struct qwick_err *e);
/* Append the tokenizer and the chat templates. */
int quantize_gguf_text(struct quantize_plan *p, const struct quantize_source *s,
                       struct qwick_err *e);
/* Plan the tensors. */
int quantize_gguf_tensors(struct quantize_plan *p,
                          const struct quantize_source *s,
                          const struct quantize_type *t, struct qwick_err *e);

/* ---- config.json --------------------------------------------------------- */

/* QWICK_ERR_MODEL when config.json says that the checkpoint is quantized, other
 * than to FP8 or MXFP4. */
int quantize_check_config(const struct json_value *config, const char *path,
                          struct qwick_err *e);
/* Append the config.json of the result: the members of the source's in their
 * order, numbers in their original text, and after them the members that mlx-lm
 * reads. -1: out of memory. */
int quantize_config(struct buf *out, const struct quantize_source *s,
                    const struct quantize_plan *p);
/* Append the model.safetensors.index.json of the result. -1: out of memory. */
int quantize_index(struct buf *out, const struct quantize_plan *p);

#endif
