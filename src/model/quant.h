/* The parameters of quantized weights in config.json: MLX's formats, FP8
 * (quant_fp8.c), compressed-tensors and ModelOpt (quant_stored.h), and AWQ and
 * GPTQ (quant_transposed.c).
 *
 *     "quantization": {"group_size": 64, "bits": 4, "mode": "affine",
 *         "model.layers.0.mlp.gate_proj": {"group_size": 32, "bits": 8},
 *         "lm_head": false}
 *
 * A module is quantized if and only if the checkpoint has its scales. This
 * object has the parameters (nn.quantize and load_model in mlx-lm). The mode of
 * a module that has its own parameters is affine unless they have it, too.
 *
 * With quant_method mxfp4, as gpt-oss has it, the object has no parameters, and
 * the modules are those whose tensors are blocks (format_mxfp4.c). */
#ifndef MODEL_QUANT_H
#define MODEL_QUANT_H

#include <stdbool.h>
#include <stddef.h>

#include "base/err.h"
#include "model/quant_stored.h"
#include "model/section.h"

enum transposed_form { TRANSPOSED_NONE, TRANSPOSED_AWQ, TRANSPOSED_GPTQ };

/* Weights that are stored transposed (format_transposed.c). All quantized
 * modules have the same parameters. */
struct quant_transposed {
    enum transposed_form form;
    int bits;
    size_t group;   /* columns that share a scale; 0: all of a row */
    bool symmetric; /* zero points may be missing: they are in the middle */
    bool any_order; /* the columns of a group need not follow each other */
    int zero_plus;  /* added to stored zero points */
};

enum quant_mode { QUANT_AFFINE, QUANT_MXFP4, QUANT_MXFP8, QUANT_NVFP4 };

struct quant_params {
    int bits; /* 2, 3, 4, 5, 6 or 8; 0: dense */
    size_t group;
    enum quant_mode mode;
};

/* The parameters of one module that has its own. */
struct quant_override {
    const char *module; /* "model.layers.0.mlp.gate_proj", may hold NUL */
    size_t len;
    struct quant_params params; /* bits 0: false in config.json, so dense */
};

struct quant {
    struct quant_params all;  /* bits 0: config.json has no such object */
    struct quant_override *v; /* [n] by module */
    size_t n;
    char *names;     /* memory of the names in v */
    const char *key; /* the object's name in config.json, or NULL */
    bool fp8;        /* matrices may be FP8; then all.bits is 0 */
    struct quant_stored stored;    /* compressed-tensors' and ModelOpt's; then
                                      all.bits is 0 */
    struct quant_transposed transposed; /* AWQ or GPTQ; then all.bits is 0 */
    size_t block_rows, block_cols; /* of FP8: that share a scale; 0: a scale is
                                      a row's or a matrix's */
};

/* Read "quantization" and "quantization_config" of a config.json: either, both
 * when they agree, or none. Any other quantization is an error that names it.
 * On failure *q is empty. */
int quant_read(struct quant *q, const struct section *config,
               struct qwick_err *e);
void quant_free(struct quant *q);

/* Whether the value of "quantization_config" is about FP8 weights. */
bool quant_is_fp8(const struct json_value *v);

/* Read such an object into q->fp8, block_rows and block_cols. */
int quant_read_fp8(struct quant *q, const struct section *s,
                   struct qwick_err *e);

/* Whether the value of "quantization_config" is about AWQ or GPTQ. */
bool quant_is_transposed(const struct json_value *v);

/* Read such an object into q->transposed. */
int quant_read_transposed(struct quant *q, const struct section *s,
                          struct qwick_err *e);

/* The parameters of a module by its full name in the checkpoint. */
struct quant_params quant_find(const struct quant *q, const char *module);

#endif
