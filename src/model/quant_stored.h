/* Weights that config.json describes in groups of modules: compressed-tensors
 * and ModelOpt.
 *
 *     {"quant_method": "compressed-tensors", "format": "pack-quantized",
 *      "config_groups": {"group_0": {"targets": ["Linear"], "weights":
 *       {"num_bits": 4, "type": "int", "symmetric": true, "strategy": "group",
 *        "group_size": 128}}}, "ignore": ["lm_head", "re:.*mlp.gate$"]}
 *     {"quant_method": "modelopt", "quant_algo": "NVFP4", "ignore":
 * ["lm_head"]}
 *
 * A module is quantized if and only if its tensors are. Its group says how, and
 * the tensors must have the shapes that follow. Activations and the cache are
 * never rounded as the object says. */
#ifndef MODEL_QUANT_STORED_H
#define MODEL_QUANT_STORED_H

#include <stdbool.h>
#include <stddef.h>

#include "base/err.h"
#include "model/section.h"

struct matrix_shape;
struct quant;
struct st_tensor;

enum stored_form {
    STORED_NONE,
    STORED_PACKED, /* codes in words of 32 bits: format_packed.c */
    STORED_INT8,   /* int8: format_packed.c */
    STORED_FP8,    /* format_fp8.c */
    STORED_NVFP4   /* format_nvfp4.c */
};

struct stored_group {
    enum stored_form form;
    int bits;
    size_t group;            /* columns that share a scale; 0: all of a row */
    bool symmetric;          /* no zero points */
    bool by_matrix;          /* the matrix has one scale */
    size_t first, n_targets; /* in quant_stored.patterns */
    char in[120]; /* "quantization_config.config_groups.group_0.weights" */
};

struct quant_stored {
    struct stored_group *groups; /* [n_groups] owned; NULL: no such weights */
    size_t n_groups;
    char **patterns; /* [n_patterns] owned: targets of the groups, then what is
                        ignored, from `ignored` on */
    size_t n_patterns, cap_patterns, ignored;
};

/* Whether the value of "quantization_config" is of compressed-tensors or
 * ModelOpt, in a form that quant_read_stored takes. */
bool quant_is_stored(const struct json_value *v);

/* Read such an object into q->stored, q->fp8 and the blocks of FP8. */
int quant_read_stored(struct quant *q, const struct section *s,
                      struct qwick_err *e);
void quant_free_stored(struct quant *q);

/* Read the rows and columns of a block of FP8 weights. */
int quant_read_block(struct quant *q, const struct section *s, const char *key,
                     struct qwick_err *e);

/* The group of a module that has a tensor of this form. NULL with *e set:
 * config.json says something else about the module. path, tensor: for the
 * message. */
const struct stored_group *
quant_stored_find(const struct quant *q, const char *module,
                  enum stored_form form, const char *path, const char *tensor,
                  struct qwick_err *e);

/* Set *out to the shape of the matrix whose elements are the tensor t. Returns
 * false if config.json says nothing about such a tensor. */
bool quant_stored_shape(const struct quant *q, const struct st_tensor *t,
                        struct matrix_shape *out);

#endif
