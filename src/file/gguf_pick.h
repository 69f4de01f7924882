/* Which GGUF file of a directory is meant. */
#ifndef FILE_GGUF_PICK_H
#define FILE_GGUF_PICK_H

#include <stddef.h>

#include "base/err.h"

/* Choose among names[0..n) of the directory dir: the one file whose name, up to
 * ".gguf" or the number of its part, ends in quant, in any case ("Q4_K_M" fits
 * "Qwen3-4B-q4_k_m.gguf"); with quant NULL, the only one. Later parts of split
 * files and vision projectors ("mmproj-…") do not count. Returns its index, or
 * -1 with *e set: no file fits, or several do; the message lists them. */
int gguf_pick(const char *const *names, size_t n, const char *quant,
              const char *dir, struct qwick_err *e);

#endif
