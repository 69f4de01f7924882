/* Reads expected.safetensors, and computes the error that the project
 * documents. */
#ifndef TEST_GOLDEN_H
#define TEST_GOLDEN_H

#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "file/safetensors.h"
#include "qwick.h"

static const char *const dense_models[] = {
    "attention-bias",
    "embedding-names",
    "f16",
    "f32",
    "gemma3-gqa",
    "gemma3-tied",
    "head128-untied-bf16",
    "legacy-config",
    "sharded-bf16",
    "tied-bf16",
    "yarn",
};
/* Mixtures of experts in float types. The bounds of dense models hold as long
 * as no error swaps two experts with nearly equal scores. In "moe" an int8
 * cache does swap some: three tokens have margins of 0.2% to 2%. */
static const char *const moe_models[] = {"moe"};
/* MLX: affine, 4 bit in groups of 64 with a tied head, 8 bit in groups of 32
 * with a separate head; mxfp4. */
static const char *const quantized_models[] = {"mlx4", "mlx8", "mxfp4"};
/* Of tests/golden/families, for tests of checkpoints of tests/golden/models and
 * of files of tests/golden/gguf. */
#define QWEN3_NEXT "../families/qwen3next-odd"
/* Most layers are Gated DeltaNet. qwen35-f16-long has 150 tokens, and logits of
 * the last ones. */
static const char *const recurrent_models[] = {
    "qwen35-f16-long", "qwen35-moe", "qwen35-tied", "qwen35-wrapped-untied"};
enum {
    N_RECURRENT = sizeof recurrent_models / sizeof *recurrent_models,
    N_DENSE = sizeof dense_models / sizeof *dense_models,
    N_MOE = sizeof moe_models / sizeof *moe_models,
    N_QUANTIZED = sizeof quantized_models / sizeof *quantized_models,
    N_GREEDY = 16
};

struct golden {
    char dir[128];
    int32_t *ids;
    size_t n, vocab_size;
    size_t n_rows; /* of logits, for the last positions */
    float *logits; /* [n_rows, vocab_size] */
    int32_t greedy[N_GREEDY];
};

static int32_t golden_i64(const unsigned char *p, size_t i)
{
    int64_t v;
    memcpy(&v, p + 8 * i, 8);
    return (int32_t)v;
}

/* Read expected.safetensors at path into all members except dir. greedy is read
 * if the file has it. Returns -1 without the file or its logits. */
static inline int golden_read(struct golden *g, const char *path)
{
    struct st_set *set;
    if (st_open_file(&set, path, NULL))
        return -1;
    const struct st_tensor *ids = st_find(set, "input_ids");
    const struct st_tensor *logits = st_find(set, "logits");
    const struct st_tensor *greedy = st_find(set, "greedy");
    if (!ids || !logits) {
        st_close(set);
        return -1;
    }
    g->n = ids->shape[0];
    g->vocab_size = logits->shape[1];
    g->n_rows = logits->shape[0];
    g->ids = malloc(g->n * sizeof *g->ids);
    g->logits = malloc(logits->n_bytes);
    for (size_t i = 0; i < g->n; i++)
        g->ids[i] = golden_i64(ids->data, i);
    memcpy(g->logits, logits->data, logits->n_bytes);
    for (size_t i = 0; i < N_GREEDY && greedy; i++)
        g->greedy[i] = golden_i64(greedy->data, i);
    st_close(set);
    return 0;
}

/* Open a checkpoint of tests/golden/models. */
static inline int golden_open(struct golden *g, const char *name)
{
    char path[192];
    snprintf(g->dir, sizeof g->dir, "tests/golden/models/%s", name);
    snprintf(path, sizeof path, "%s/expected.safetensors", g->dir);
    return golden_read(g, path);
}

static inline void golden_close(struct golden *g)
{
    free(g->ids);
    free(g->logits);
}

/* |got - want| / |want| (2-norms over all rows). */
static inline double relative_error(const float *got, const float *want,
                                    size_t n)
{
    double diff = 0, norm = 0;
    for (size_t i = 0; i < n; i++) {
        double d = (double)got[i] - (double)want[i];
        diff += d * d;
        norm += (double)want[i] * (double)want[i];
    }
    return sqrt(diff / norm);
}

/* The error of those rows of `got` [n, vocab_size] that the golden has. */
static inline double golden_error(const struct golden *g, const float *got)
{
    const float *rows = got + (g->n - g->n_rows) * g->vocab_size;
    return relative_error(rows, g->logits, g->n_rows * g->vocab_size);
}

struct rows {
    float *at;
    size_t vocab_size;
};

static inline int keep_row(void *ctx, size_t pos, const float *logits)
{
    struct rows *r = ctx;
    memcpy(r->at + pos * r->vocab_size, logits, r->vocab_size * sizeof *logits);
    return 0;
}

/* Logits at every position through qwick_session_all_logits. */
static inline int all_logits(struct qwick_engine *eng, const struct golden *g,
                             float *out, struct qwick_err *e)
{
    struct qwick_session *s;
    struct rows r = {out, g->vocab_size};
    if (qwick_session_create(&s, eng, 0, e))
        return -1;
    int rc = qwick_session_all_logits(s, g->ids, g->n, keep_row, &r, e);
    qwick_session_free(s);
    return rc;
}

#endif
