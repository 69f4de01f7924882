/* GGUF files that qwick_quantize writes, and their logits. */
#ifndef TEST_GGUF_WRITTEN_H
#define TEST_GGUF_WRITTEN_H

#include <math.h>
#include <unistd.h>

#include "engines.h"
#include "file/gguf.h"
#include "file/map.h"
#include "golden.h"
#include "kernel/kernel.h"
#include "tempdir.h"
#include "qwick_tools.h"

#define MODELS "tests/golden/models/"

static char out_path[128];

static inline int setup(void **state)
{
    if (temp_setup(state))
        return -1;
    snprintf(out_path, sizeof out_path, "%s/out.gguf", temp_dir);
    return 0;
}

static inline int try_write(const char *src, const char *dst, const char *type,
                            int threads, struct qwick_quantize_report *r,
                            struct qwick_err *e)
{
    struct qwick_quantize_options o = qwick_quantize_defaults();
    o.format = QWICK_QUANTIZE_GGUF;
    o.type = type;
    o.threads = threads;
    return qwick_quantize(src, dst, &o, r, e);
}

static inline void write_gguf(const char *src, const char *type)
{
    struct qwick_err e;
    unlink(out_path);
    assert_ok(try_write(src, out_path, type, 2, NULL, &e), &e);
}

static inline struct gguf *must_open(void)
{
    struct gguf *g;
    struct qwick_err e;
    assert_ok(gguf_open(&g, out_path, &e), &e);
    return g;
}

struct typed {
    const char *name;
    enum dtype type;
};

/* Check the types of n tensors. */
static inline void types_are(struct gguf *g, const struct typed *rows, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        const struct st_tensor *t = st_find(gguf_tensors(g), rows[i].name);
        if (!t)
            fail_msg("%s: missing", rows[i].name);
        if (t->dtype != rows[i].type)
            fail_msg("%s: %s, expected %s", rows[i].name, dtype_name(t->dtype),
                     dtype_name(rows[i].type));
    }
}

/* Any number of threads writes the same file. */
static inline void same_bytes(const char *src, const char *type, int threads)
{
    char *one, *two;
    size_t n, m;
    struct qwick_err e;
    unlink(out_path);
    assert_ok(try_write(src, out_path, type, 1, NULL, &e), &e);
    assert_ok(map_read_all(out_path, 1 << 26, &one, &n, &e), &e);
    unlink(out_path);
    assert_ok(try_write(src, out_path, type, threads, NULL, &e), &e);
    assert_ok(map_read_all(out_path, 1 << 26, &two, &m, &e), &e);
    assert_int_equal(n, m);
    assert_memory_equal(one, two, n);
    free(one);
    free(two);
}

/* The widened tensor, malloc'ed. */
static inline float *widen(const struct st_tensor *t, size_t *n)
{
    const struct kernels *k = kernels_best();
    *n = t->n_bytes / dtype_bytes(t->dtype) * dtype_block(t->dtype);
    float *x = malloc((*n + 16) * sizeof *x);
    assert_non_null(x);
    if (t->dtype < DT_N_FLOAT)
        k->to_f32[t->dtype](x, t->data, *n);
    else
        k->blocks_to_f32[t->dtype - DT_BLOCKS](x, t->data, *n);
    return x;
}

/* Logits of n ids, malloc'ed. */
static inline float *logits_of(const char *model, const int32_t *ids, size_t n,
                               size_t *vocab_size)
{
    struct qwick_err e;
    struct qwick_engine *eng =
        engine_with(.model = model, .exact = true, .threads = 2);
    struct golden g = {.ids = (int32_t *)ids, .n = n};
    *vocab_size = g.vocab_size = qwick_engine_info(eng)->vocab_size;
    float *out = malloc(n * g.vocab_size * sizeof *out);
    assert_ok(all_logits(eng, &g, out, &e), &e);
    qwick_engine_close(eng);
    return out;
}

static inline void same_logits(const char *a, const char *b, const int32_t *ids,
                               size_t n)
{
    size_t va, vb;
    float *x = logits_of(a, ids, n, &va), *y = logits_of(b, ids, n, &vb);
    assert_int_equal(va, vb);
    if (memcmp(x, y, n * va * sizeof *x) != 0)
        fail_msg("%s and %s differ by %.2e", a, b,
                 relative_error(x, y, n * va));
    free(x);
    free(y);
}

static inline void refused(const char *src, const char *dst, const char *type,
                           int code, const char *word)
{
    struct qwick_err e = {0};
    if (try_write(src, dst, type, 1, NULL, &e) == 0)
        fail_msg("accepted, wanted: %s", word);
    if ((int)e.code != code || !strstr(e.msg, word) || strchr(e.msg, '\n'))
        fail_msg("%d: %s (wanted %d: %s)", (int)e.code, e.msg, code, word);
}

/* A copy of `model` with config.json's first `from` replaced. */
static inline void copy_model(const char *model, const char *from,
                              const char *to)
{
    char path[160], *text, *at;
    size_t n;
    snprintf(path, sizeof path, MODELS "%s/model.safetensors", model);
    assert_int_equal(map_read_all(path, 1 << 26, &text, &n, NULL), 0);
    temp_write("model.safetensors", text, n);
    free(text);
    snprintf(path, sizeof path, MODELS "%s/config.json", model);
    assert_int_equal(map_read_all(path, 1 << 20, &text, &n, NULL), 0);
    at = strstr(text, from);
    assert_non_null(at);
    FILE *f = fopen(temp_path("config.json"), "wb");
    fprintf(f, "%.*s%s%s", (int)(at - text), text, to, at + strlen(from));
    fclose(f);
    free(text);
}

static inline void refuses_config(const char *model, const char *from,
                                  const char *to, const char *word)
{
    copy_model(model, from, to);
    unlink(out_path);
    refused(temp_dir, out_path, NULL, QWICK_ERR_MODEL, word);
    assert_int_equal(access(out_path, F_OK), -1);
}

/* Change an element, with two bytes, of a tensor of the copied model. */
static inline void put_bad_value(const char *tensor, size_t row, size_t col,
                                 uint16_t bits)
{
    const char *path = temp_path("model.safetensors");
    struct st_set *set;
    char *text;
    size_t n;
    assert_int_equal(map_read_all(path, 1 << 26, &text, &n, NULL), 0);
    assert_int_equal(st_open_file(&set, path, NULL), 0);
    const struct st_tensor *t = st_find(set, tensor);
    const struct st_tensor *last = st_at(set, st_count(set) - 1);
    /* tensors end where the file ends */
    size_t end = (size_t)(last->data + last->n_bytes - t->data);
    memcpy(text + n - end + 2 * (row * t->shape[1] + col), &bits, 2);
    st_close(set);
    temp_write("model.safetensors", text, n);
    free(text);
}

#endif
