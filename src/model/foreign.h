/* Formats of quantized weights that qwick does not read, as config.json names
 * them. */
#ifndef MODEL_FOREIGN_H
#define MODEL_FOREIGN_H

#include <stdbool.h>
#include <stddef.h>

#include "base/err.h"
#include "file/json.h"
#include "model/section.h"

/* The end of a message that refuses such weights: the formats that qwick
 * reads. */
#define FOREIGN_INSTEAD \
    "use the model in BF16 or FP8, or quantized in MLX's or GGUF's format"

/* If config.json declares such weights, write the format's usual name ("AWQ",
 * "GPTQ") to out[n] and return true. */
bool foreign_name(const struct json_value *config, char *out, size_t n);

/* Set the error about such weights. The value of `key` in s names their format.
 * Returns -1. */
int foreign_refuse(const struct section *s, const char *key,
                   struct qwick_err *e);

#endif
