/* How a checkpoint makes a vector of a text from the states of its tokens: the
 * modules of sentence-transformers that modules.json lists, or what a GGUF file
 * says.
 *
 *     pooling.c        modules.json, and the modes of Pooling
 *     pooling_texts.c  what happens to a text before the model reads it
 *     pooling_dense.c  Dense modules
 *     pooling_sums.c   the arithmetic of the modes */
#ifndef MODEL_POOLING_H
#define MODEL_POOLING_H

#include <stdbool.h>
#include <stddef.h>

#include "base/err.h"
#include "file/json.h"
#include "model/model.h"
#include "model/weights.h"

struct checkpoint;
struct gguf;
struct par_pool;
struct scratch;

/* In sentence-transformers' order. */
enum pooling_mode {
    POOLING_CLS, /* the first token */
    POOLING_MAX,
    POOLING_MEAN,
    POOLING_MEAN_SQRT,     /* the sum by the square root of its length */
    POOLING_WEIGHTED_MEAN, /* token i, from 1, has the weight i */
    POOLING_LAST,          /* the last token */
    N_POOLING_MODES
};

/* The results of several modes follow each other. */
struct pooling_modes {
    enum pooling_mode v[N_POOLING_MODES]; /* [n] */
    size_t n;
};

enum dense_activation {
    DENSE_IDENTITY,
    DENSE_TANH,
    DENSE_RELU,
    DENSE_GELU,
    DENSE_SIGMOID
};

/* activation(weight x + bias). */
struct dense {
    char dir[128];  /* of the module, in the checkpoint; of a GGUF file, the
                       name of the tensor */
    bool has_bias;  /* the file says so */
    bool normalise; /* a Normalize stands before it */
    size_t n_in, n_out;
    enum dense_activation activation;
    /* of pooling_open: */
    struct matrix weight; /* [n_out, n_in] */
    float *bias;          /* [n_out] or NULL */
    struct st_set *set;
    struct weights weights;
};

enum { POOLING_MAX_DENSE = 8, POOLING_MAX_DIMS = 32 };

struct pooling {
    bool found; /* modules.json is there */
    bool named; /* some file says how an encoder is pooled; true for decoders */
    struct pooling_modes modes;
    bool include_prompt; /* otherwise the modes leave out the prompt's tokens,
                            but for cls and lasttoken */
    struct dense dense[POOLING_MAX_DENSE]; /* [n_dense] in order */
    size_t n_dense;
    size_t width;        /* numbers of a vector after all modules */
    size_t max_seq;      /* max_seq_length: longer texts are cut; 0: not said */
    bool lower;          /* do_lower_case: texts become lower case first */
    size_t truncate_dim; /* of a vector, the first numbers that are kept by
                            default; 0: all */
    size_t dims[POOLING_MAX_DIMS]; /* [n_dims] lengths that the model was
                                      trained for (Matryoshka) */
    size_t n_dims;
    struct json_doc *doc; /* of config_sentence_transformers.json, or NULL */
    const struct json_value
        *prompts;                    /* of doc: an object of strings, or NULL */
    const struct json_value *prompt; /* of prompts: what texts get by default,
                                        or NULL */
};

/* Return the name of a mode in files. */
const char *pooling_mode_name(enum pooling_mode mode);

/* Read all of it but weights. QWICK_ERR_MODEL, with the file, the module and
 * the value, for what is not supported: other modules, activations or weights.
 * A checkpoint without modules.json, or with an empty one, has the defaults of
 * its kind: an encoder takes the mean of all tokens, a decoder the last token.
 * Call pooling_close also after a failure. */
int pooling_read(struct pooling *p, const struct checkpoint *ck,
                 const struct config *c, struct qwick_err *e);
/* Read the weights of Dense modules. *p must not move afterwards. */
int pooling_open(struct pooling *p, const struct checkpoint *ck,
                 const struct model *m, struct qwick_err *e);
void pooling_close(struct pooling *p);

/* Fold everything that changes vectors into the hash id. */
void pooling_hash(const struct pooling *p, uint64_t id[2]);

/* <architecture>.pooling_type of a GGUF file. */
enum pooling_gguf {
    POOLING_GGUF_NONE, /* or not said */
    POOLING_GGUF_MEAN,
    POOLING_GGUF_CLS,
    POOLING_GGUF_LAST,
    POOLING_GGUF_RANK /* a reranker */
};
enum pooling_gguf pooling_gguf(const struct gguf *g);

/* Apply the Dense modules to n vectors x [n, modes.n * d_model]. The caller
 * frees *out [n, p->width]. s: of the model, for its work memory. */
int pooling_dense(const struct pooling *p, const struct model *m,
                  struct scratch *s, const float *x, size_t n, float **out,
                  struct qwick_err *e);

/* ---- pooling_sums.c -------------------------------------------------------
 */

/* The states that a pass must compute for these modes. */
enum span_rows pooling_rows(const struct pooling_modes *modes,
                            bool bidirectional);

/* A text that is pooled. */
struct pooled {
    size_t n;      /* tokens */
    size_t n_skip; /* the first tokens, which the modes leave out */
    double *acc;   /* [modes.n * d] */
};

/* Add the states of tokens [at, at + n) f32 [n, d], in order of tokens. The
 * sums do not depend on the pieces. Before the first ones, acc is all zeros. */
void pooling_add(const struct pooling_modes *modes, struct pooled *t, size_t d,
                 const float *rows, size_t at, size_t n);
/* Write the results [modes.n * d], when all states have been added. */
void pooling_finish(const struct pooling_modes *modes, const struct pooled *t,
                    size_t d, float *out);

#endif
