/* Builds GGUF files in memory for tests. */
#ifndef TEST_GGUF_BUILD_H
#define TEST_GGUF_BUILD_H

#include <stdint.h>
#include <string.h>

#include "base/buf.h"
#include "file/gguf.h"
#include "test.h"

/* Metadata and entries of tensors are collected apart, so that a test can add
 * them in any order. */
struct gguf_build {
    struct buf keys, entries, data;
    uint64_t n_keys, n_tensors;
    uint32_t version;
    size_t alignment;
};

#define GGUF_BUILD ((struct gguf_build){.version = 3, .alignment = 32})

static inline void gb_raw(struct buf *b, const void *p, size_t n)
{
    assert_int_equal(buf_append(b, p, n), 0);
}

static inline void gb_u32(struct buf *b, uint32_t v)
{
    gb_raw(b, &v, sizeof v);
}

static inline void gb_u64(struct buf *b, uint64_t v)
{
    gb_raw(b, &v, sizeof v);
}

static inline void gb_text(struct buf *b, const char *s, size_t n)
{
    gb_u64(b, n);
    gb_raw(b, s, n);
}

static inline void gb_key(struct gguf_build *g, const char *key,
                          enum gguf_type type)
{
    gb_text(&g->keys, key, strlen(key));
    gb_u32(&g->keys, (uint32_t)type);
    g->n_keys++;
}

/* A value of n bytes. */
static inline void gb_value(struct gguf_build *g, const char *key,
                            enum gguf_type type, const void *p, size_t n)
{
    gb_key(g, key, type);
    gb_raw(&g->keys, p, n);
}

static inline void gb_uint(struct gguf_build *g, const char *key, uint32_t v)
{
    gb_value(g, key, GGUF_U32, &v, sizeof v);
}

static inline void gb_float(struct gguf_build *g, const char *key, float v)
{
    gb_value(g, key, GGUF_F32, &v, sizeof v);
}

static inline void gb_bool(struct gguf_build *g, const char *key, bool v)
{
    gb_value(g, key, GGUF_BOOL, &(unsigned char){v}, 1);
}

static inline void gb_string(struct gguf_build *g, const char *key,
                             const char *s)
{
    gb_key(g, key, GGUF_STRING);
    gb_text(&g->keys, s, strlen(s));
}

/* The elements follow with gb_raw or gb_text to g->keys. */
static inline void gb_array(struct gguf_build *g, const char *key,
                            enum gguf_type element, uint64_t n)
{
    gb_key(g, key, GGUF_ARRAY);
    gb_u32(&g->keys, (uint32_t)element);
    gb_u64(&g->keys, n);
}

/* A tensor's entry. dims: the contiguous one first, at most five. type: ggml's
 * number. */
static inline void gb_entry(struct gguf_build *g, const char *name,
                            uint32_t rank, const uint64_t *dims, uint32_t type,
                            uint64_t offset)
{
    gb_text(&g->entries, name, strlen(name));
    gb_u32(&g->entries, rank);
    for (uint32_t i = 0; i < rank && i < 5; i++)
        gb_u64(&g->entries, dims[i]);
    gb_u32(&g->entries, type);
    gb_u64(&g->entries, offset);
    g->n_tensors++;
}

static inline void gb_pad(struct buf *b, size_t alignment)
{
    while (b->len % alignment)
        gb_raw(b, "", 1);
}

/* A tensor and its data. */
static inline void gb_tensor(struct gguf_build *g, const char *name,
                             uint32_t rank, const uint64_t *dims, uint32_t type,
                             const void *data, size_t n)
{
    gb_pad(&g->data, g->alignment);
    gb_entry(g, name, rank, dims, type, g->data.len);
    gb_raw(&g->data, data, n);
}

/* The file; frees what was collected. */
static inline struct buf gb_done(struct gguf_build *g)
{
    struct buf out = {0};
    gb_raw(&out, "GGUF", 4);
    gb_u32(&out, g->version);
    gb_u64(&out, g->n_tensors);
    gb_u64(&out, g->n_keys);
    gb_raw(&out, g->keys.data, g->keys.len);
    gb_raw(&out, g->entries.data, g->entries.len);
    if (g->data.len) {
        gb_pad(&out, g->alignment);
        gb_raw(&out, g->data.data, g->data.len);
    }
    buf_free(&g->keys);
    buf_free(&g->entries);
    buf_free(&g->data);
    return out;
}

#endif
