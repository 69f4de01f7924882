/* Functions that gguf.c, gguf_meta.c and gguf_write.c share. */
#ifndef FILE_GGUF_INT_H
#define FILE_GGUF_INT_H

#include "file/gguf.h"
#include "file/name_table.h"

/* Limits that no real file reaches. */
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

/* Take the next n bytes. `what` is their part of the file, for the message.
 * NULL with *e set if the file ends before. */
const unsigned char *gguf_take(struct gguf_reader *r, size_t n,
                               const char *what);
int gguf_u32(struct gguf_reader *r, uint32_t *out, const char *what);
int gguf_u64(struct gguf_reader *r, uint64_t *out, const char *what);
/* Take a length and that many bytes. */
int gguf_string(struct gguf_reader *r, const char **s, size_t *n,
                const char *what);

/* Read n entries. */
int gguf_read_meta(struct gguf_meta *m, struct gguf_reader *r, uint64_t n);
void gguf_free_meta(struct gguf_meta *m);
const struct gguf_value *gguf_meta_find(const struct gguf_meta *m,
                                        const char *key);

/* Read an integer of any width; dflt if the key is missing. -1 with *e set if
 * it has another type, is negative or is above max; the message names path and
 * key. */
int gguf_meta_uint(const struct gguf_meta *m, const char *path, const char *key,
                   uint64_t dflt, uint64_t max, uint64_t *out,
                   struct qwick_err *e);

/* Return the number of an element type in GGUF files. gguf_open must accept the
 * type. */
uint32_t gguf_type_number(enum dtype type);

#endif
