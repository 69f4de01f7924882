/* The GGUF container: metadata and tensors in one file, or in several.
 *
 * Format, little-endian: "GGUF", u32 version (2 or 3), u64 number of tensors,
 * u64 number of metadata entries; for each entry a key (u64 length, bytes), a
 * u32 type and the value; for each tensor its name, u32 number of dimensions,
 * u64 dimensions (the contiguous one first), u32 type and u64 offset; then, at
 * the next multiple of general.alignment (32 if absent), the data that the
 * offsets count from.
 *
 * Everything is checked when opened: each count and length against the bytes
 * that are left, before anything is allocated; no repeated key or tensor; types
 * known; the alignment a power of two from 8 to 64 KiB; tensors one after
 * another, each at the next multiple of the alignment, the last one ending
 * within the file and at its end.
 *
 * Strings and arrays stay in the mapping. */
#ifndef FILE_GGUF_H
#define FILE_GGUF_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "file/tensors.h"

/* Types of values, with their numbers in the file. */
enum gguf_type {
    GGUF_U8,
    GGUF_I8,
    GGUF_U16,
    GGUF_I16,
    GGUF_U32,
    GGUF_I32,
    GGUF_F32,
    GGUF_BOOL,
    GGUF_STRING,
    GGUF_ARRAY,
    GGUF_U64,
    GGUF_I64,
    GGUF_F64,
    GGUF_N_TYPES
};

/* One metadata entry. */
struct gguf_value {
    const char *key; /* [key_len], no NUL behind it */
    size_t key_len;
    enum gguf_type type;
    uint64_t u; /* U8 to U64, and BOOL */
    int64_t i;  /* I8 to I64 */
    double f;   /* F32, F64 */
    /* The bytes of a STRING, the elements of an ARRAY, or the number, as
       stored. */
    const unsigned char *data;
    size_t n_bytes;
    enum gguf_type element; /* of an ARRAY; never ARRAY */
    size_t n;               /* elements of an ARRAY */
};

struct gguf;

/* Open the GGUF file at path. A file that was split is opened by the name of
 * its first part ("NAME-00001-of-00003.gguf"); the other parts must be beside
 * it. No descriptor stays open. */
int gguf_open(struct gguf **out, const char *path, struct qwick_err *e);
void gguf_close(struct gguf *g);

/* Return whether a file begins with GGUF's magic number. */
bool gguf_is(const struct map *map);

/* Return the path given to gguf_open. */
const char *gguf_path(const struct gguf *g);

/* Return the tensors of all parts, in order; borrowed. Dimensions are reversed:
 * the last one is contiguous. A tensor's file is the name of its part. */
struct st_set *gguf_tensors(const struct gguf *g);

/* Return the entry of this key in the first part; NULL if there is none. */
const struct gguf_value *gguf_find(const struct gguf *g, const char *key);
size_t gguf_count(const struct gguf *g);
const struct gguf_value *gguf_at(const struct gguf *g, size_t i);

/* Return a type's name for messages, such as "u32". */
const char *gguf_type_name(enum gguf_type type);

/* Return the entry of a key, which must have this type. NULL with *found false
 * if it is missing; NULL with *found true and *e set if it has another type. An
 * array must have elements of type `element`. */
const struct gguf_value *gguf_need(const struct gguf *g, const char *key,
                                   enum gguf_type type, enum gguf_type element,
                                   bool *found, struct qwick_err *e);

/* Return element i of an array of f32. */
float gguf_f32_at(const struct gguf_value *v, size_t i);

/* Return element i of an array of integers or bools. */
int64_t gguf_int_at(const struct gguf_value *v, size_t i);

#endif
