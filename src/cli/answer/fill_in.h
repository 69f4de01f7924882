/* Prompts that ask for the text between a prefix and a suffix. */
#ifndef CLI_FILL_IN_H
#define CLI_FILL_IN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "qwick.h"

/* Encode such a prompt into *ids [*n], malloc'ed: the tokenizer's control
 * tokens before the prefix, before the suffix and before the answer. special:
 * other control tokens in the texts are control tokens, too. A model without
 * these tokens is QWICK_ERR_USAGE, and name names the suffix in the message.
 * Returns 0, or -1 with *e set. */
int fill_in_encode(const struct qwick_engine *eng, const char *name,
                   const char *prefix, size_t n_prefix, const char *suffix,
                   size_t n_suffix, bool special, int32_t **ids, size_t *n,
                   struct qwick_err *e);

#endif
