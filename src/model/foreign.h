/* Forms of quantized weights that we do not read, as config.json names them. */
#ifndef MODEL_FOREIGN_H
#define MODEL_FOREIGN_H

#include <stdbool.h>
#include <stddef.h>

#include "base/err.h"
#include "file/json.h"
#include "model/section.h"

/* What to use instead, for the end of a message. */
#define FOREIGN_INSTEAD \
    "use the model in BF16, or quantized in MLX's or GGUF's format"

/* If a config.json declares such weights, write their name for people to
 * out[n] ("FP8", "GPTQ") and return true. */
bool foreign_name(const struct json_value *config, char *out, size_t n);

/* The error about such weights, whose name is the value of `key` in s. Returns
 * -1. */
int foreign_refuse(const struct section *s, const char *key,
                   struct qwick_err *e);

#endif
