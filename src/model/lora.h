/* LoRA adapters (Hu et al. 2021). An adapted matrix W multiplies as
 *   W x + B (f * (A x))
 * with A [rank, cols], B [rows, rank] and a factor f. W does not change.
 *
 * A model has any number of adapters, and each span of a pass takes one or
 * none (span.lora). Several files may be one adapter: their ranks follow each
 * other. */
#ifndef MODEL_LORA_H
#define MODEL_LORA_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "model/format.h"
#include "model/names.h"

struct model;

/* The part of one adapter for one matrix. */
struct lora {
    struct matrix a, b; /* [rank, cols], [rows, rank]; empty: nothing */
    const float *factors; /* [rank] of A x */
    size_t at;            /* columns of scratch.lora before A x */
};

/* One of a model's adapters. */
struct lora_facts {
    const char *name;
    uint64_t hash[2]; /* of all that it adds, and where */
    size_t n_matrices, max_rank;
};

/* Where a matrix of the model has its adapters. */
struct lora_place {
    struct matrix *w;
    struct weight_ref ref;
    struct lora *of; /* [loras.n] what w->lora points to */
};

/* The adapters of a model. */
struct loras {
    struct lora_facts *v; /* [n] */
    size_t n;
    struct lora_place *places; /* of the adapted matrices */
    size_t n_places, cap_places;
    size_t cols;    /* of scratch.lora; 0: no matrix is adapted */
    size_t n_bytes; /* of all A, B and factors */
    void **blocks; /* their memory */
    size_t n_blocks, cap_blocks;
};

/* A file or a directory of files, and the adapter that it is a part of. */
struct lora_spec {
    const char *path;
    const char *name; /* of the adapter: that of the first of its files */
    double scale;     /* of the factors */
    size_t adapter;   /* index; ascending from 0 */
};

/* Read adapters of an open model, and let its matrices have them. PEFT's
 * directories, mlx-lm's and GGUF files are read (lora_files.h); each tensor
 * must be of a matrix that the model has. Files with scale 0 are checked and
 * add nothing. The names are copied. Call it before the first scratch is
 * created. */
int loras_open(struct model *m, const struct lora_spec *specs, size_t n,
               struct qwick_err *e);
void loras_close(struct loras *l);

/* Add to w f32 [n_rows, cols] what an adapter adds to rows [row, row + n_rows)
 * of a matrix of the model: W becomes W + B (f * A). tmp f32 [cols]. */
void lora_merge(const struct kernels *k, const struct lora *l, float *w,
                size_t row, size_t n_rows, float *tmp);

/* Find the weight of a tensor's name in a scheme, with any of its prefixes.
 * Returns false if there is none. */
bool lora_find_weight(struct weight_ref *ref, const struct names *names,
                      const char *name);

#endif
