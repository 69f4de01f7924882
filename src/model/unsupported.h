/* Families that do not run, and the models to use in their place. */
#ifndef MODEL_UNSUPPORTED_H
#define MODEL_UNSUPPORTED_H

#include <stddef.h>

/* Write to out [n] why a family does not run and what to use instead, cut at n
 * bytes: `"lfm2" is not supported (short convolutions): use Qwen3-1.7B`.
 * name: model_type of config.json or general.architecture of a GGUF file, of
 * len bytes from the file. */
void unsupported_describe(char *out, size_t n, const char *name, size_t len);

#endif
