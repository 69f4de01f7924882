/* Model families. Each has a struct arch in an arch_*.c file, and a row in the
 * table of arch.c points to it. The struct has the family's names, the reader
 * of its config.json, the names of its tensors, the computation of a layer and
 * its cost. Everything else is shared. */
#ifndef MODEL_ARCH_H
#define MODEL_ARCH_H

#include <stdbool.h>
#include <stddef.h>

#include "base/err.h"

struct config;
struct fixed_field;
struct input;
struct layer;
struct model;
struct names;
struct section;
struct worker;

/* The cost of a part of a pass. */
struct cost {
    double flops; /* a multiply-add is two */
};

/* How attention normalises queries and keys. */
enum qk_norm {
    QK_NORM_NONE,
    QK_NORM_HEAD, /* each head by itself */
    QK_NORM_ROW   /* all heads of a token as one row */
};

enum activation {
    ACTIVATION_SILU,
    ACTIVATION_GELU,     /* with tanh */
    ACTIVATION_GELU_ERF, /* exact */
    ACTIVATION_CLAMPED_SILU /* of gpt-oss's experts (kernels.clamped_swiglu) */
};

/* How a router's scores become the weights of a token's experts. */
enum routing_rule {
    ROUTING_ALL,    /* softmax over all experts, then the largest */
    ROUTING_CHOSEN, /* the largest scores, then softmax over these */
    ROUTING_SIGMOID /* sigmoid of each score; the largest, perhaps with a bias
                       that counts for the choice only */
};

/* Which matrices with bf16 weights take each activation as the sum of two bf16
 * numbers, in passes of any length. All of them read the normalised stream. */
enum pairs16 {
    PAIRS16_NEVER,
    PAIRS16_ATTENTION, /* q_proj, k_proj and v_proj; and attention is precise, see
                          model.large_scores */
    PAIRS16_NORMED     /* gate_proj and up_proj, too */
};

/* Which blocks layers of attention and an MLP or experts have. What a file may
 * decide is in struct config, what differs between layers is in struct
 * layer_config. */
struct blocks {
    bool attn_norm, mlp_norm;           /* before each half of a layer */
    bool attn_post_norm, mlp_post_norm; /* of the result of each half */
    enum qk_norm qk_norm;
    bool v_norm;      /* each head of values is normalised, without weights */
    bool layer_scale; /* a layer ends with a factor of the residual stream */
    enum activation activation; /* of gate_proj's results */
    enum routing_rule routing;
    bool sinks; /* each query head has a score that takes part in the softmax
                   and has no value: gpt-oss */
    size_t precise_tokens; /* longer passes round activations as usual, others
                              less (choose_products); 0: by other blocks */
    enum pairs16 pairs16; /* of an encoder */
    bool layer_norm;     /* norms subtract the mean and have biases (LayerNorm);
                            otherwise they are RMS norms. The vector of such a
                            norm has the weights, then the biases */
    bool embed_norm;     /* the embeddings are normalised, and layer 0 has no
                            norm before attention */
    bool norm_replaces;  /* the stream after a norm is what the norm gave: BERT,
                            whose norms follow the halves of a layer. The norm
                            before attention is the last one of the layer
                            before, and model.norm that of the last layer */
    bool ungated;        /* the MLP is down_proj(act(gate_proj(x))): there is no
                            up_proj */
    bool class_norm;     /* before an encoder's classes, there is an exact GELU
                            of the dense layer's results, and a norm; otherwise
                            tanh */
    bool experts_beside; /* layers with experts also have a dense MLP, and both
                            results are added: Gemma 4 */
};

/* Layers that are recurrent in place of attention. */
struct recurrence {
    const char *layer_type; /* in layer_types */

    /* Bind the weights of layer i without its MLP, as arch.bind_layer does. */
    int (*bind)(struct model *m, struct layer *l, size_t i,
                struct qwick_err *e);

    /* Compute layer i up to its last product: the contract of pass_attention,
     * n as in arch.layer. */
    struct input (*run)(struct worker *w, size_t i, const float *norm,
                        size_t n);

    /* Return the cost of the layer without its MLP in a pass over n tokens, of
     * which it computes n_kept to the end. */
    struct cost (*cost)(const struct model *m, size_t n, size_t n_kept);
};

struct arch {
    const char *model_type; /* config.json's model_type */
    const char *wrapped;    /* model_type where the family's fields are in
                               text_config, beside a vision model; or NULL.
                               Families may share it: the model_type of
                               text_config then tells them apart */
    bool wraps_flat;        /* older files of this type have no text_config: the
                               fields are beside it */
    const char *eps;        /* the field of config.json that has the epsilon of
                               norms; NULL: rms_norm_eps */
    const char *gguf;       /* general.architecture of GGUF files, or NULL */
    const struct arch *gguf_as; /* the family as which GGUF files have this one,
                                   or NULL: as itself */
    size_t gguf_pattern;    /* each gguf_pattern-th layer of GGUF files has no
                               window, unless the metadata name the layers; 0:
                               the metadata must name them; SIZE_MAX: all
                               layers have one */
    float gguf_logit_cap; /* final_logit_softcapping that readers of GGUF files
                             take for granted; 0: none */
    bool gguf_full_first; /* with a period of windows, the first layer of each
                             period has none; otherwise the last one */
    bool gguf_implies; /* readers of GGUF files without caps or windows take
                          those of the released models */
    const char *const *gguf_keys; /* keys of GGUF files that only some families
                                     read, NULL at the end; or NULL: none */
    bool gguf_layered; /* in GGUF files, heads and d_ff may differ between
                          layers, and layers without v_proj take values from
                          k_proj (layer_config.v_from_k) */
    const char *const *own_fields; /* fields of fixed_common that the family
                                      reads, NULL at the end; or NULL: none */
    bool partial_rotary;    /* a part of each head may rotate */
    bool interleaved;       /* neighbours rotate together (rope_config) */
    bool gguf_interleaved;  /* they do in GGUF files: converters permute the
                               rows of q_proj and k_proj */
    bool gguf_plain_topk;   /* norm_topk_prob is false in GGUF files, which have
                               no key for it */
    bool gguf_untruncated;  /* yarn's truncate is false in GGUF files, which
                               have no key for it; otherwise true */
    bool gguf_rope_factors; /* GGUF files have divisors of the first rotary
                               embedding's frequencies (WEIGHT_ROPE_FACTORS);
                               otherwise they may */
    bool implies_heads;     /* head_dim, num_key_value_heads and
                               tie_word_embeddings may be missing: hidden_size
                               / num_attention_heads, num_attention_heads and
                               false */
    bool transposed_experts; /* where all experts of a layer are fused in one
                                tensor, it is [n, columns, rows] */
    bool alternate_experts;  /* where gate_proj and up_proj of all experts are
                                one tensor, their rows alternate; otherwise all
                                rows of gate_proj come first */
    bool gguf_fused_experts; /* GGUF files have gate_proj and up_proj of all
                                experts in one tensor */
    struct blocks blocks;
    const struct recurrence *recurrence; /* of layer_config.recurrent; NULL: no
                                            layer is */
    const struct fixed_field *fixed; /* of config.json, see fixed.h; has been
                                        checked before read_config */

    /* Read the fields of config.json that the family has. The caller has set
     * c->arch and c->model_type. Returns 0, or -1 with *e set. */
    int (*read_config)(struct config *c, const struct section *s,
                       struct qwick_err *e);

    /* The naming schemes of its checkpoints (names.h), NULL at the end. */
    const struct names *const *names;

    /* The scheme of its GGUF files, one of names. NULL without such files. */
    const struct names *gguf_names;
    /* The squared reciprocal of the score scale that readers of its GGUF files
       assume, since no key holds it. NULL: head_dim. */
    double (*gguf_query_scalar)(const struct config *c);
    /* Return whether these readers rotate layer i. NULL: all layers. */
    bool (*gguf_rotates)(const struct config *c, size_t i);

    /* Bind the weights of layer i by id. m->weights is open and m->config
     * read. Vectors belong to m->weights. Returns 0, or -1 with *e set. */
    int (*bind_layer)(struct model *m, struct layer *l, size_t i,
                      struct qwick_err *e);

    /* Apply layer i to the pass's residual stream x. Every thread of the team
     * calls it, and it ends with a barrier. n: tokens that the layer computes
     * to the end; of the others it computes only keys and values. In layer
     * model.last_stored n may be less than the pass's tokens, or 0; that layer
     * moves the rows of these n tokens to the front of x, and later layers take
     * only them. Returns early when the pass must stop (pass_stops). */
    void (*layer)(struct worker *w, size_t i, size_t n);

    /* Make this thread prefetch the first weights of layer i at the next
     * barrier. */
    void (*ahead)(struct worker *w, size_t i);

    /* Return the cost of layer i in a pass over n tokens at position pos of one
     * sequence. The layer computes the last n_kept tokens to the end, and of
     * the others only keys and values. */
    struct cost (*layer_cost)(const struct model *m, size_t i, size_t pos,
                              size_t n, size_t n_kept);
};

/* Return the family with this model_type of len bytes; NULL if there is
 * none. */
const struct arch *arch_find(const char *model_type, size_t len);

/* Return the family whose `wrapped` is this text of len bytes: the one whose
 * model_type is `inner` of inner_len bytes (NULL: not said), or the first of
 * several. NULL if there is none. */
const struct arch *arch_find_wrapped(const char *wrapped, size_t len,
                                     const char *inner, size_t inner_len);

/* Return the family with this name in GGUF files; NULL if there is none. */
const struct arch *arch_find_gguf(const char *name, size_t len);

/* Return the family as which GGUF files have this one. */
const struct arch *arch_in_gguf(const struct arch *a);

extern const struct arch arch_bert, arch_camembert, arch_gemma_embedding,
    arch_modernbert, arch_roberta, arch_xlm_roberta;
extern const struct arch arch_ernie45, arch_exaone4, arch_gemma1, arch_gemma2,
    arch_gemma3, arch_gemma4,
    arch_gemma4_unified, arch_gemma4_unified_text, arch_glm4, arch_gpt_oss,
    arch_granite, arch_lfm2, arch_lfm2moe, arch_llama, arch_ministral3, arch_mistral, arch_mixtral,
    arch_olmo2, arch_olmo3, arch_phi3, arch_qwen2, arch_qwen25vl, arch_qwen2moe,
    arch_qwen2vl, arch_qwen3, arch_qwen35, arch_qwen35moe, arch_qwen3moe,
    arch_qwen3next, arch_qwen3vl, arch_qwen3vlmoe, arch_seed_oss, arch_smollm3;

#endif
