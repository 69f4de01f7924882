/* What gguf.c and gguf_meta.c share. */
#ifndef FILE_GGUF_INT_H
#define FILE_GGUF_INT_H

#include "file/gguf.h"
#include "file/name_table.h"

/* More than any file has. What is read is bounded by the file's size besides.
 */
enum { GGUF_MAX_KEYS = 1 << 16, GGUF_MAX_TENSORS = 1 << 20, GGUF_MAX_DIMS = 4 };

/* A position in a mapped file. */
struct gguf_reader {
    const unsigned char *data;
    size_t n, at; /* bytes; at <= n */
    const char *path;
    struct qwick_err *e;
};

/* The entries of one file. */
struct gguf_meta {
    struct gguf_value *values;
    size_t n, cap;
    struct name_table keys; /* index i is values[i] */
};

/* The next n bytes. what: whose they are, for the message. NULL: the file
 * ends before. */
const unsigned char *gguf_take(struct gguf_reader *r, size_t n,
                               const char *what);
int gguf_u32(struct gguf_reader *r, uint32_t *out, const char *what);
int gguf_u64(struct gguf_reader *r, uint64_t *out, const char *what);
/* A length and as many bytes. */
int gguf_string(struct gguf_reader *r, const char **s, size_t *n,
                const char *what);

/* n entries. */
int gguf_read_meta(struct gguf_meta *m, struct gguf_reader *r, uint64_t n);
void gguf_free_meta(struct gguf_meta *m);
const struct gguf_value *gguf_meta_find(const struct gguf_meta *m,
                                        const char *key);

/* An unsigned number, whatever its width, or dflt when the key is missing. -1:
 * another type, negative, or above max; the message names path and key. */
int gguf_meta_uint(const struct gguf_meta *m, const char *path, const char *key,
                   uint64_t dflt, uint64_t max, uint64_t *out,
                   struct qwick_err *e);

/* The number that stands for a type of elements in files. The type is one that
 * gguf_open accepts. */
uint32_t gguf_type_number(enum dtype type);

#endif
