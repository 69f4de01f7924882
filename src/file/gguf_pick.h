/* Choosing a GGUF file of a directory. */
#ifndef FILE_GGUF_PICK_H
#define FILE_GGUF_PICK_H

#include <stdbool.h>
#include <stddef.h>

#include "base/err.h"
#include "file/fs.h"

/* Return the number of bytes of a file's name before ".gguf" and before the
 * number of its part. 0 for files that are not chosen: later parts of split
 * files, vision projectors ("mmproj-...") and other files. The name may have a
 * directory before it. */
size_t gguf_stem(const char *name);

/* If name is that of a part of a split file, write the name of part `number` to
 * out[size] and return the number of name's own part. Otherwise return 0. */
size_t gguf_part_name(char *out, size_t size, const char *name, size_t number);

/* Return whether a and b are parts of one split file, and a is an earlier one.
 */
bool gguf_part_before(const char *a, const char *b);

/* Choose among names[0..n) of the directory dir. With quant, this is the file
 * whose name, up to ".gguf" or the number of its part, ends in quant, in upper
 * or lower case. "Q4_K_M" fits "Qwen3-4B-q4_k_m.gguf", and also
 * "…-UD-Q4_K_M.gguf" if no other file fits. With quant NULL, it is the only
 * file. Later parts of split files and vision projectors ("mmproj-…") do not
 * count. Returns its index, or -1 with *e set: no file fits, or several do; the
 * message lists them. */
int gguf_pick(const char *const *names, size_t n, const char *quant,
              const char *dir, struct qwick_err *e);

/* Return where the type in names[i] begins: the shortest end of the stem that
 * looks like a type ("Q4_K_M", "UD-Q4_K_XL") and with which gguf_pick finds
 * this file. 0 if there is none. */
size_t gguf_tag(const char *const *names, size_t n, size_t i);

/* Names of GGUF files. */
struct gguf_names {
    char **v; /* [n] */
    size_t n, cap;
};

/* List the names that end in ".gguf" among the entries of dir, which are in
 * list. With below, also list such names in its directories, as
 * "BF16/NAME.gguf". Reads at most GGUF_MAX_BELOW entries of each directory. */
enum { GGUF_MAX_BELOW = 4096 };
int gguf_names_list(struct gguf_names *l, const struct dir_list *list,
                    const char *dir, bool below, struct qwick_err *e);
void gguf_names_free(struct gguf_names *l);

#endif
