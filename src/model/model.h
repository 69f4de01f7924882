/* A model: its config, its weights by name, and the forward pass over them.
 * arch.h has the differences between families. */
#ifndef MODEL_MODEL_H
#define MODEL_MODEL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "file/checkpoint.h"
#include "file/safetensors.h"
#include "kernel/kernel.h"
#include "model/arch.h"
#include "model/config.h"
#include "model/kv_cache.h"
#include "model/lora.h"
#include "model/weights.h"

struct os_nodes;
struct par_pool;

/* Self-attention in which groups of query heads share keys and values. */
struct attention {
    struct matrix q_proj, k_proj, v_proj, o_proj;
    float *q_bias, *k_bias, *v_bias, *o_bias; /* NULL: none */
    /* k_proj is empty where the layer reads another one's keys and values, and
       v_proj there and where values come from k_proj */
    /* NULL: none; [head_dim] of each head, or of all heads (QK_NORM_ROW).
       q_norm includes the scale of scores */
    float *q_norm, *k_norm;
    float *v_norm; /* [head_dim] ones; NULL: values are not normalised */
    float q_scale; /* of queries, where no norm has it; otherwise 1 */
    float *sinks;  /* [n_heads] scores without a value; NULL: none */
};

/* down_proj(scale * glu(gate_proj(x), up_proj(x))). */
struct mlp {
    struct matrix gate_proj, up_proj, down_proj; /* up_proj may be empty */
    float *gate_bias, *up_bias, *down_bias;      /* NULL: none */
    float scale; /* the residual scale; down_bias includes it */
    /* up NULL: there is no up_proj */
    void (*glu)(float *out, const float *gate, const float *up, size_t n);
};

/* A mixture of experts: a router chooses n_active of n MLPs for each token and
 * weights their results. There may be one more, which all tokens share. See
 * moe.h. */
struct experts {
    struct matrix router;            /* [n, d_model] */
    float *router_bias;              /* [n]; NULL: none */
    struct matrix *gate, *up, *down; /* [n] each: as in struct mlp. The matrices
                                        of one role have one format */
    /* [n, d_ff], [n, d_ff] and [n, d_model]; NULL: none */
    float *gate_bias, *up_bias, *down_bias;
    size_t n; /* 0: the layer has none */
    size_t n_active, d_ff;
    size_t bytes, n_params;    /* of one expert, as stored */
    struct mlp shared;         /* an MLP of all tokens, or empty */
    struct matrix shared_gate; /* [1, d_model]: the sigmoid of its product with
                                  a token is the weight of shared's result */
    /* of experts beside a dense MLP (blocks.experts_beside); otherwise NULL */
    float *router_norm; /* [d_model] before the router; includes its scale */
    float *norm,
        *post_norm;         /* [d_model] before the experts, and of their sum */
    float *dense_post_norm; /* [d_model] of the dense MLP's result */
    float *scales;          /* [n] factors of the weights of experts */
    float *select_bias;     /* [n] of the scores by which experts are chosen;
                               NULL: none */
    enum routing_rule routing;
    bool normalise; /* divide the weights of a token's experts by their sum */
    float sum_eps;  /* added to that sum */
    float scale;    /* of the weights; includes the residual scale */
    void (*glu)(float *out, const float *gate, const float *up, size_t n);
};

/* Where the results of a product hold the part of each head. */
struct head_columns {
    size_t input; /* the product: an index of delta.inputs */
    size_t first; /* the first head's first column */
    size_t key;   /* columns from a key head to the next one */
    size_t value; /* columns from a value head to the next one of the same key
                     head; 0 for queries and keys */
};

enum { DELTA_INPUTS = 4 };

/* Gated DeltaNet, see delta.c. The shapes are in config.delta; `channels` is
 * delta_channels. */
struct delta {
    /* [rows, d_model] each, and n_inputs of them. Split: in_proj_qkv, whose
       rows are the channels, in_proj_z, in_proj_b and in_proj_a. Packed:
       in_proj_qkvz in place of the first two, in_proj_ba in place of the
       others. A packed matrix has all rows of a key head together. */
    struct matrix inputs[DELTA_INPUTS];
    size_t n_inputs;
    struct head_columns q, k, v, z, b, a; /* delta_find_columns sets them */
    struct matrix out; /* out_proj [d_model, n_v_heads * d_v] */
    float *conv;       /* [conv, channels] the transpose of conv1d.weight */
    float *decay;      /* [n_v_heads] -exp(A_log) */
    float *dt_bias;    /* [n_v_heads] */
    float *norm;       /* [d_v] */
    bool tiled;        /* value head j reads key head j % n_k_heads; otherwise
                          j / (n_v_heads / n_k_heads) */
};

/* Describe the results of l->inputs. qkvz, ba: these matrices are packed.
 * l->tiled has been set, and is false if a matrix is packed. */
void delta_find_columns(struct delta *l, const struct delta_config *c,
                        bool qkvz, bool ba);

/* A layer's part of per-layer embeddings, see ple.c. */
struct ple_layer {
    struct matrix gate; /* per_layer_input_gate [ple_dim, d_model] */
    struct matrix proj; /* per_layer_projection [d_model, ple_dim] */
    float *norm;        /* post_per_layer_input_norm [d_model] */
};

/* What all layers share of them. */
struct ple {
    struct matrix table;      /* embed_tokens_per_layer [ple_vocab_size,
                                 n_layers * ple_dim], see weights_table */
    struct matrix model_proj; /* per_layer_model_projection [n_layers * ple_dim,
                                 d_model] */
    float *norm; /* per_layer_projection_norm / sqrt(2) [ple_dim] */
};

struct layer {
    struct attention attn; /* empty if the layer is recurrent */
    struct delta delta;    /* empty unless it is */
    struct mlp mlp;        /* empty if the layer has nothing but experts */
    struct experts experts;
    struct ple_layer ple; /* empty without config.ple_dim */
    float *input_norm, *post_norm; /* [d_model]: before attention; before the
                                    * MLP; NULL: none */
    /* [d_model]: of the results of both, before they are added to the residual
       stream; NULL: none */
    float *attn_post_norm, *mlp_post_norm;
    float scale; /* of the residual stream after the layer, applied by the last
                    sum; 1 unless blocks.layer_scale */
};

/* List the matrices that a layer multiplies by its normalised input, all in one
 * product (pass_multiply_all), in its order. Returns their number. */
enum { LAYER_INPUTS = DELTA_INPUTS };
size_t layer_inputs(const struct layer *l,
                    const struct matrix *ws[LAYER_INPUTS]);

/* Inverse frequencies of a rotary embedding. */
struct rope {
    size_t n_rot;         /* elements of a head that rotate: the first ones */
    float *inv_freq;      /* [n_rot / 2] */
    float *inv_freq_long; /* of sequences with kv_cache.long_rope; NULL: the
                             same */
    float scale;          /* of cos and sin */
    bool interleaved;     /* which elements rotate together: see rope_config */
};

struct model {
    struct config config;
    struct weights weights;
    struct matrix embed, head; /* [vocab_size, d_model] */
    bool no_head;              /* head is the embedding in place of one that the
                                  file lacks and that hidden states do not
                                  need; or empty, in an encoder */
    char ignored[NAMES_BYTES]; /* a vector of the layers that the family does
                                  not use, see weights_find_ignored; "": none */
    bool head_differs;         /* from the embedding, although
                                  tie_word_embeddings is true */
    struct matrix classes;     /* [n_classes, d_model]; empty without classes */
    float *class_bias;         /* [n_classes]; NULL: none */
    /* the layer before the classes, which model_class_input applies: */
    struct matrix class_dense; /* [d_model, d_model]; empty: none */
    float *class_dense_bias;   /* [d_model]; NULL: none */
    float *class_norm;         /* of its results; NULL: none */
    struct matrix positions;   /* [n_positions, d_model], added to embeddings */
    struct matrix types;       /* [n_types, d_model], likewise */
    float *embed_norm;         /* of the sum; NULL: none */
    /* Normalise rows, as the family's norms do: kernels.rmsnorm or layernorm.
       The norms of heads are always of the first kind */
    void (*normalise)(float *out, const float *x, const float *w, size_t n_rows,
                      size_t d, float eps);
    float *norm;               /* model.norm [d_model] */
    float *head_norm;          /* the same times logit_scale: before the head */
    struct ple ple;            /* empty without config.ple_dim */
    struct layer *layers;
    size_t last_stored; /* the last layer that stores keys or a state: later
                           ones take only tokens whose logits are wanted */
    struct rope ropes[CONFIG_MAX_ROPES];
    struct loras loras; /* adapters, of loras_open */
    const struct kernels *k;
    struct par_pool *pool; /* borrowed */
    int n_threads;         /* of the pool */
    bool exact;            /* one order of sums: no BLAS */
    size_t chunk;          /* tokens a pass */
    bool lazy_blas;        /* a pass may load OpenBLAS */
    bool sizes_only;       /* opened for costs, not for passes: no values of
                              weights are read, so that only headers come from
                              the disk */
    /* For model_products. model_open sets them, tests lower the limits. */
    bool dense_bf16;    /* floats multiply, and all of them in bf16 */
    bool any_dense;     /* some floats multiply */
    bool any_quantized; /* some other formats do */
    bool any_i8;        /* int8 activations occur */
    bool other_bf16;    /* other formats widen to bf16 for long prefills */
    bool blas;          /* OpenBLAS rather than our own gemm_f32 */
    size_t gemm_min_tokens;
    size_t pairs8_tokens;  /* passes of up to so many tokens take int8
                              activations in pairs (pass.pairs8) */
    enum pairs16 pairs16; /* of an encoder */
    size_t precise_tokens; /* passes of up to so many tokens round no
                              activations to bf16 for products with floats */
    bool large_scores;     /* queries and keys have no norm, or their products
                              no scale; or pairs16 */
    bool rounds_steps;     /* unless each token is of another sequence */
    double blas_min_flops;
    double step_time;    /* for model_step_time, set by tests; 0: an estimate */
    double row_cost;     /* for model_row_cost, in the same way */
    size_t shared_bytes; /* model_shared_bytes */
    void *preloaded;     /* copy of the matrices, or NULL */
    size_t preloaded_bytes;
};

/* Bind the weights of a checkpoint of a supported model_type. config, k, pool,
 * n_threads, exact, chunk, lazy_blas and sizes_only have been set; with
 * sizes_only, pool may be NULL. set and pool stay owned by the caller and must
 * outlive the model. */
int model_open(struct model *m, const struct checkpoint *ck,
               const struct st_set *set, struct qwick_err *e);
void model_close(struct model *m);

/* Buffers of a forward pass; see scratch.h. */
struct scratch;

/* Turn the state of a sequence [d_model] into the input of m->classes, in place:
 * the dense layer, the activation and the norm that a classifier has before its
 * last product. A model without these leaves it. The state is that of the first
 * token, or the mean of all (config.class_mean), after the last norm. s is
 * reserved; its buffers are overwritten. */
void model_class_input(const struct model *m, struct scratch *s, float *state);

/* The number of tokens from which on a sequence needs the other frequencies of
 * longrope: those of all of its tokens then change, and its cache must be
 * evaluated again. SIZE_MAX: never. */
size_t model_long_rope_from(const struct model *m);

/* Bind a norm of d_model values, in the form of the family's norms. */
int model_bind_norm(struct model *m, float **out, struct weight_ref ref,
                    struct qwick_err *e);

/* The function that combines the results of gate_proj and up_proj. */
void (*model_glu(const struct model *m))(float *out, const float *gate,
                                         const float *up, size_t n);

/* Load OpenBLAS if a pass over n tokens would use it. */
void model_load_blas(const struct model *m, size_t n);

/* The tokens of a span whose logits (and hidden states) are computed. */
enum span_rows {
    ROWS_NONE,  /* fill the cache only */
    ROWS_FIRST, /* the first token; only with config.bidirectional */
    ROWS_LAST,  /* the last token */
    ROWS_ALL
};

/* One sequence's part of a pass: tokens[0..n), n >= 1, at positions
 * kv->n .. kv->n + n. */
struct span {
    struct kv_cache *kv;
    const int32_t *tokens;
    size_t n;
    size_t n_type0; /* tokens of type 0, the first ones; the others have type 1.
                       Without config.n_types it does not count; 0: all */
    enum span_rows rows;
    size_t lora; /* adapter + 1; 0: none */
};

/* Where the time of a pass goes, as its first thread sees it. */
enum part {
    PART_EMBED,
    PART_NORMS,       /* norms, and rounding of activations */
    PART_PROJECTIONS, /* q, k, v, o, gate, up, down; SwiGLU */
    PART_ATTENTION,   /* q and k norm, RoPE, KV write, attention */
    PART_HEAD,
    PART_BARRIERS, /* waiting for other threads */
    PART_COUNT
};

/* n_done of the layers of a pass are done. */
typedef void (*pass_layer_fn)(void *ctx, size_t n_done, size_t n_layers);

struct par_team;

/* The input of a matrix, and of all that multiply the same one, is complete. w:
 * the first of these matrices; x f32, rows ld floats apart, of which it takes n:
 * rows[0..n), or the first n if rows is NULL. Every thread of the pass calls it
 * for the same inputs in the same order, and may use the team's barriers. */
typedef void (*pass_input_fn)(void *ctx, const struct matrix *w,
                              const float *x, size_t ld, const uint32_t *rows,
                              size_t n, struct par_team *team, int tid,
                              int n_threads);

/* Evaluate all spans in one pass, adding their keys and values to their caches:
 * the contract of the generation loop, (tokens, position, cache) -> logits. No
 * two spans have the same cache; at most model.chunk tokens, or one of each
 * span. A span of an encoder is a whole sequence, however long. Ids must be below vocab_size, the caches and s be reserved (kv_reserve,
 * scratch_reserve).
 *   logits  f32 [rows, vocab_size] or NULL: of the wanted tokens, in the order
 *           of spans
 *   hidden  f32 [rows, d_model] or NULL: the same after the last norm
 *   ms      [PART_COUNT] milliseconds are added to, or NULL
 *   on_layer  called on the calling thread after each layer but the last, or
 *             NULL; all threads wait for it
 *   on_input  called on each thread before each product, the head's also
 *             without logits, or NULL. With it, all products of the pass are in
 *             f32. Routers and gates of shared experts are not among them
 * Allocates nothing. Returns 0; or -1 when *interrupt (NULL: never) became
 * nonzero or clock_ms passed deadline_ms (0: never), checked once a layer:
 * every kv->n is then as before, except that a cache with recurrent layers may
 * have lost positions (kv_stop). */
struct pass_io {
    const struct span *spans;
    size_t n_spans;
    float *logits, *hidden;
    double *ms;
    const volatile int *interrupt;
    double deadline_ms;
    pass_layer_fn on_layer;
    void *on_layer_ctx;
    pass_input_fn on_input;
    void *on_input_ctx;
};
int model_forward(const struct model *m, struct scratch *s,
                  const struct pass_io *io);

/* Copy the matrices to anonymous memory, which may have huge pages. All threads
 * take part. Passes then read the copies. spread: memory nodes from which the
 * pages come in turn; *why is then 0, or the errno value with which the system
 * refused, and the pages come from anywhere. spread NULL: each thread copies
 * the rows that it multiplies in decode, so that they come from its node. */
int model_preload(struct model *m, const struct os_nodes *spread, int *why,
                  struct qwick_err *e);

/* Set [*begin, *end) to the rows of weights.matrices[j] that thread tid copies
 * in model_preload. */
void model_preload_rows(const struct model *m, size_t j, int tid, int n_threads,
                        size_t *begin, size_t *end);

/* The kernels that multiply float weights in a pass. Other formats have their
 * own operations (format.h). */
enum products {
    PRODUCTS_SKINNY,   /* kernels with one order of sums: decode, --exact */
    PRODUCTS_GEMM_F32, /* our own, widening weights as it packs them */
    PRODUCTS_BLAS,     /* OpenBLAS, on weights widened by panels */
    PRODUCTS_BF16      /* activations rounded to bf16, weights as stored */
};

/* Choose the kernels for a pass of n tokens. steps: each is of another sequence.
 * The choice depends only on shapes and the kernel level: bf16 if CPU and
 * checkpoint have it; our own gemm_f32 where measurements showed it to be faster
 * than OpenBLAS (AVX-512, Intel); otherwise OpenBLAS, once there is enough
 * arithmetic to pay for loading it. */
enum products model_products(const struct model *m, size_t n, bool steps);

/* Whether a pass of n tokens rounds no activations to bf16 for products with
 * floats. */
bool model_is_precise(const struct model *m, size_t n, bool steps);

/* The name of the products of long prefills, for people: "bf16", "int8",
 * "own" or "openblas" (see qwick_info.gemm). */
const char *model_gemm_name(const struct model *m);

/* The kernel that measures the peak of the unit that long prefills use. */
double (*model_peak(const struct model *m))(size_t reps, float *sink);

/* ---- copy.c -------------------------------------------------------------- */

/* Return whether a and b are the same model, perhaps with other types of
 * weights: they have the same layers and equal norms, which no quantization
 * changes. Then the keys and values of one can serve the other. */
bool model_is_copy(const struct model *a, const struct model *b);

/* ---- cost.c -------------------------------------------------------------- */

/* Bytes of weights that every pass with logits reads: all but experts. */
size_t model_shared_bytes(const struct model *m);

/* Bytes of weights that one decode step reads: all but the experts that the
 * token does not choose. */
size_t model_decode_bytes(const struct model *m);

/* Of these, the bytes that come from the disk when `memory` bytes hold weights,
 * on average: 0 if all fit. Weights that every token reads stay in memory; of
 * experts, as many as fit. If not even the former fit, all come from the disk,
 * since the kernel drops what was read longest ago, which is needed next. */
double model_disk_bytes(const struct model *m, size_t memory);

/* Parameters that one token's evaluation uses; all of them in a model without
 * experts. */
size_t model_active_params(const struct model *m);

/* What people ask about a model. */
struct model_sizes {
    const char *storage; /* weights_storage's; owned by the model */
    size_t n_params, n_active_params;
    size_t bytes, decode_bytes; /* of weights */
    size_t table_bytes;         /* weights_table's, beside these */
};
struct model_sizes model_sizes(struct model *m);

/* Costs of a pass over n tokens after pos others of one sequence, with the last
 * token's logits: the work that model_forward does, so layer last_stored counts
 * in full only for its keys and values, and later ones only for one token.
 * Reading weights, keys and values is not included. */
struct cost model_cost(const struct model *m, size_t pos, size_t n);

/* Return the cost of one more token in a short pass, as a share of the cost of
 * a pass with one token, at most 1. It consists of the token's arithmetic,
 * compared with the time to stream the weights, and of the experts that no
 * other token has. */
double model_row_cost(const struct model *m);

/* Return the time of a pass with one token, in a unit that all models share on
 * one machine. An estimate from sizes and formats. */
double model_step_time(const struct model *m);

#endif
