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

/* Metadata. A struct of all zeros is empty. Appending never fails at once: bad
 * says that memory ran out, and gguf_writer_open reports it. */
struct gguf_out {
    struct buf entries; /* as they are in the file */
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
/* Append an array of n elements, which must follow at once, each by one of the
 * functions below that fits the type. */
void gguf_put_array(struct gguf_out *o, const char *key, enum gguf_type type,
                    size_t n);
void gguf_put_element_i32(struct gguf_out *o, int32_t v);
void gguf_put_element_f32(struct gguf_out *o, double v);
void gguf_put_element_bool(struct gguf_out *o, bool v);
void gguf_put_element_string(struct gguf_out *o, const char *s, size_t n);
void gguf_out_free(struct gguf_out *o);

/* Begin a file with these metadata and tensors, in the order given. Data come
 * through st_writer_at; see st_writer_begin with `large` for where they go.
 * Shapes are those of gguf_tensors: the last dimension is contiguous, and of
 * blocks it is a multiple of the block. */
int gguf_writer_open(struct st_writer **out, const char *path,
                     const struct gguf_out *o,
                     const struct st_out_tensor *tensors, size_t n,
                     struct qwick_err *e);

#endif
