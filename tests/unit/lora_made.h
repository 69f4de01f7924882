/* Adapters that tests make of a checkpoint, and the checkpoint merged. */
#ifndef TEST_LORA_MADE_H
#define TEST_LORA_MADE_H

#include <math.h>
#include <sys/stat.h>

#include "engines.h"
#include "kernel/kernel.h"
#include "tempdir.h"
#include "tensors_file.h"
#include "test.h"

/* An engine with one adapter. */
#define adapted(PATH, SCALE, ...)                                      \
    engine_with(.loras = &(struct qwick_lora){.path = (PATH),          \
                                              .scale = (SCALE)},       \
                .n_loras = 1, __VA_ARGS__)

static inline void put_text(const char *name, const char *text)
{
    FILE *f = fopen(temp_path(name), "wb");
    assert_non_null(f);
    fputs(text, f);
    fclose(f);
}

enum { RANK = 5, MAX_TENSORS = 2000 };

/* Whether a tensor is a matrix that adapters may change. */
static inline bool is_adaptable(const struct st_tensor *t)
{
    static const char *const tails[] = {
        "q_proj",  "k_proj",     "v_proj",   "o_proj",       "qkv_proj",
        "up_proj", "gate_proj",  "down_proj", "gate_up_proj", "attn.Wqkv",
        "mlp.Wi",  "mlp.Wo",     "attn.Wo",  "in_proj_qkv",  "in_proj_z",
        "in_proj", "out_proj", "in_proj_b", "in_proj_a", "feed_forward.w1",
        "feed_forward.w2", "feed_forward.w3", "in_proj_qkvz", "in_proj_ba",
        "self.query", "self.key", "self.value", "output.dense",
        "intermediate.dense"};
    static const char end[] = ".weight";
    size_t n = t->name_len, tail = sizeof end - 1;
    if (t->rank != 2 || !strstr(t->name, "layer") || n < tail ||
        strcmp(t->name + n - tail, end) != 0 || strstr(t->name, "expert") ||
        strstr(t->name, "visual") || strstr(t->name, "mtp.") ||
        strstr(t->name, "vision"))
        return false;
    for (size_t i = 0; i < sizeof tails / sizeof *tails; i++) {
        size_t m = strlen(tails[i]);
        if (n > tail + m && t->name[n - tail - m - 1] == '.' &&
            memcmp(t->name + n - tail - m, tails[i], m) == 0)
            return true;
    }
    return false;
}

static inline float *widened(const struct st_tensor *t)
{
    size_t n = t->n_bytes / dtype_bytes(t->dtype);
    float *out = malloc((n + 1) * sizeof *out);
    kernels_ref()->to_f32[t->dtype](out, t->data, n);
    return out;
}

/* Numbers that bf16 has. */
static inline float *drawn(size_t n, float size, uint32_t *seed)
{
    const struct kernels *k = kernels_ref();
    float *out = malloc((n + 1) * sizeof *out);
    for (size_t i = 0; i < n; i++) {
        uint16_t bf16;
        *seed = *seed * 1664525u + 1013904223u;
        out[i] = size * ((float)(*seed >> 8) / (1 << 23) - 1);
        k->from_f32[DT_BF16](&bf16, &out[i], 1);
        k->to_f32[DT_BF16](&out[i], &bf16, 1);
    }
    return out;
}

struct tensors {
    struct st_out_tensor v[MAX_TENSORS];
    char names[MAX_TENSORS][256];
    size_t n;
};

static inline void add_tensor(struct tensors *t, const char *name, enum dtype type,
                       const size_t *shape, size_t rank, const void *data)
{
    assert_true(t->n < MAX_TENSORS);
    struct st_out_tensor *to = &t->v[t->n];
    snprintf(t->names[t->n], sizeof t->names[0], "%s", name);
    *to = (struct st_out_tensor){.name = t->names[t->n],
                                 .dtype = type,
                                 .rank = rank,
                                 .data = data};
    memcpy(to->shape, shape, rank * sizeof *shape);
    t->n++;
}

/* W += 2 B A */
static inline void add_product(float *w, const float *a, const float *b,
                               size_t rows, size_t cols)
{
    for (size_t r = 0; r < rows; r++)
        for (size_t c = 0; c < cols; c++) {
            double sum = 0;
            for (size_t j = 0; j < RANK; j++)
                sum += (double)b[r * RANK + j] * (double)a[j * cols + c];
            w[r * cols + c] += (float)(2 * sum);
        }
}

/* Write the same adapter in BF16 to "adapter16": the elements stay. */
static inline void put_bf16(const struct tensors *adapter)
{
    struct st_out_tensor *v = calloc(adapter->n, sizeof *v);
    for (size_t i = 0; i < adapter->n; i++) {
        size_t n = adapter->v[i].shape[0] * adapter->v[i].shape[1];
        uint16_t *data = malloc(n * sizeof *data);
        kernels_ref()->from_f32[DT_BF16](data, adapter->v[i].data, n);
        v[i] = adapter->v[i];
        v[i].dtype = DT_BF16;
        v[i].data = data;
    }
    mkdir(temp_path("adapter16"), 0700);
    temp_put_tensors("adapter16/adapter_model.safetensors", v, adapter->n);
    put_text("adapter16/adapter_config.json",
             "{\"peft_type\": \"LORA\", \"r\": 5, \"lora_alpha\": 10}");
    for (size_t i = 0; i < adapter->n; i++)
        free((void *)v[i].data);
    free(v);
}

/* Write the files of an adapter and of the directory "merged", and free the
 * tensors. */
static inline void put_tensors(struct tensors *adapter, struct tensors *merged)
{
    mkdir(temp_path("adapter"), 0700);
    temp_put_tensors("adapter/adapter_model.safetensors", adapter->v, adapter->n);
    temp_put_tensors("merged/model.safetensors", merged->v, merged->n);
    put_text("adapter/adapter_config.json",
             "{\"peft_type\": \"LORA\", \"r\": 5, \"lora_alpha\": 10}");
    put_bf16(adapter);
    for (size_t i = 0; i < adapter->n; i++)
        free((void *)adapter->v[i].data);
    for (size_t i = 0; i < merged->n; i++)
        free((void *)merged->v[i].data);
}

/* Write an adapter of each matrix of a checkpoint to "adapter", and the
 * checkpoint with merged weights to "merged". */
static inline void put_adapted(const char *dir)
{
    static struct tensors adapter, merged;
    struct st_set *set;
    struct qwick_err e;
    char path[2400], name[256];
    uint32_t seed = 7;
    adapter.n = merged.n = 0;
    snprintf(path, sizeof path, "%s/model.safetensors", dir);
    assert_ok(st_open_file(&set, path, &e), &e);
    for (size_t i = 0; i < st_count(set); i++) {
        const struct st_tensor *t = st_at(set, i);
        if (!is_adaptable(t)) {
            void *copy = malloc(t->n_bytes + 1);
            memcpy(copy, t->data, t->n_bytes);
            add_tensor(&merged, t->name, t->dtype, t->shape, t->rank, copy);
            continue;
        }
        size_t rows = t->shape[0], cols = t->shape[1];
        const size_t a_shape[] = {RANK, cols}, b_shape[] = {rows, RANK};
        float *w = widened(t);
        float *a = drawn(RANK * cols, sqrtf(3 / (float)cols), &seed);
        float *b = drawn(rows * RANK, 0.1f, &seed);
        add_product(w, a, b, rows, cols);
        add_tensor(&merged, t->name, DT_F32, t->shape, 2, w);
        int n = (int)(t->name_len - strlen(".weight"));
        snprintf(name, sizeof name, "base_model.model.%.*s.lora_A.weight", n,
                 t->name);
        add_tensor(&adapter, name, DT_F32, a_shape, 2, a);
        snprintf(name, sizeof name, "base_model.model.%.*s.lora_B.weight", n,
                 t->name);
        add_tensor(&adapter, name, DT_F32, b_shape, 2, b);
    }
    st_close(set);
    snprintf(path, sizeof path, "rm -rf %s && cp -r %s %s",
             temp_path("merged"), dir, temp_path("merged"));
    assert_int_equal(system(path), 0);
    put_tensors(&adapter, &merged);
}

#endif
