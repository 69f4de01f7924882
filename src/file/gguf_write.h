/* Writing a GGUF file, version 3 (gguf.h): the metadata are collected first,
 * then the tensors' data come in any order. */
#ifndef FILE_GGUF_WRITE_H
#define FILE_GGUF_WRITE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/err.h"
#include "file/gguf.h"
#include "file/tensors_write.h"

/* Metadata. A struct of all zeros is empty. Appending does not report errors:
 * if memory runs out, it sets bad, and gguf_writer_open then fails. */
struct gguf_out {
    struct buf entries; /* in the form of the file */
    size_t n;
    bool bad;
};

/* Append an entry. Keys must differ. */
void gguf_put_u32(struct gguf_out *o, const char *key, uint32_t v);
void gguf_put_i32(struct gguf_out *o, const char *key, int32_t v);
void gguf_put_f32(struct gguf_out *o, const char *key, double v);
void gguf_put_bool(struct gguf_out *o, const char *key, bool v);
void gguf_put_string(struct gguf_out *o, const char *key, const char *s,
                     size_t n);
/* Begin an array of n elements. Directly after this, append each element with
 * the function below for its type. */
void gguf_put_array(struct gguf_out *o, const char *key, enum gguf_type type,
                    size_t n);
void gguf_put_element_i32(struct gguf_out *o, int32_t v);
void gguf_put_element_f32(struct gguf_out *o, double v);
void gguf_put_element_bool(struct gguf_out *o, bool v);
void gguf_put_element_string(struct gguf_out *o, const char *s, size_t n);
/* Append an entry of a file as it is. */
void gguf_put_value(struct gguf_out *o, const struct gguf_value *v);
void gguf_out_free(struct gguf_out *o);

/* Begin a file with these metadata and tensors, in the order given. Data come
 * through st_writer_at; see st_writer_begin with `large` for where they go.
 * Shapes are as in gguf_tensors: the last dimension is contiguous; for types
 * with blocks it must be a multiple of the block. */
int gguf_writer_open(struct st_writer **out, const char *path,
                     const struct gguf_out *o,
                     const struct st_out_tensor *tensors, size_t n,
                     struct qwick_err *e);

#endif
