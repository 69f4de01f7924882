/* Checkpoints in AWQ and GPTQ, and the same weights in float32: made of any
 * checkpoint of floats, by code that shares nothing with the model's. */
#ifndef TEST_TRANSPOSED_TWINS_H
#define TEST_TRANSPOSED_TWINS_H

#include <math.h>

#include "base/rng.h"
#include "file/map.h"
#include "file/safetensors.h"
#include "kernel/kernel.h"
#include "tensors_file.h"

struct twin_form {
    const char *name;
    bool awq;
    int bits;
    size_t group;   /* 0: all columns of a row */
    bool v2;        /* zero points are stored as they are */
    bool symmetric; /* no zero points in the file */
    bool order;     /* columns in a random order, another one for each matrix */
};

/* Another order of columns for each matrix, or one for all matrices of an MLP or
 * an attention that have as many columns. */
static uint64_t twin_seed;
static bool twin_same_order;

/* Pack the head, too. */
static bool twin_head;

static inline uint32_t twin_random(uint64_t i)
{
    return (uint32_t)(rng_uniform(17, i) * 4294967296.0);
}

/* Put `bits` bits of v at a bit of a run of words that are `step` apart. */
static inline void twin_put(uint32_t *w, size_t step, size_t bit, int bits,
                            unsigned v)
{
    for (int i = 0; i < bits; i++, bit++)
        w[bit / 32 * step] |= (uint32_t)(v >> i & 1) << bit % 32;
}

static inline void twin_put_awq(uint32_t *w, size_t row, unsigned v)
{
    static const int place[8] = {0, 4, 1, 5, 2, 6, 3, 7};
    w[row / 8] |= v << 4 * place[row % 8];
}

/* The arrays of one matrix. */
struct twin_parts {
    size_t rows, cols, groups, zero_words;
    uint32_t *codes, *zeros, *g_idx;
    uint16_t *scales;
    float *floats;
};

static inline void twin_groups(const struct twin_form *f, struct twin_parts *p)
{
    size_t group = f->group ? f->group : p->cols;
    for (size_t c = 0; c < p->cols; c++)
        p->g_idx[c] = (uint32_t)(c / group);
    for (size_t c = p->cols; f->order && c > 1; c--) {
        size_t other = twin_random(twin_seed++) % c;
        uint32_t t = p->g_idx[c - 1];
        p->g_idx[c - 1] = p->g_idx[other];
        p->g_idx[other] = t;
    }
}

/* Round a row's group: the scale reaches from the least to the largest element,
 * about. */
static inline void twin_row(const struct twin_form *f, struct twin_parts *p,
                            const float *x, size_t r, size_t g)
{
    const struct kernels *k = kernels_ref();
    int top = (1 << f->bits) - 1, middle = 1 << (f->bits - 1);
    int z = f->symmetric ? middle
                         : 1 + (int)(twin_random(r * 97 + g) % (unsigned)top);
    float most = 0, scale;
    for (size_t c = 0; c < p->cols; c++)
        if (p->g_idx[c] == g)
            most = fmaxf(most, fabsf(x[r * p->cols + c]));
    scale = most / (float)middle;
    k->from_f32[DT_F16](&p->scales[g * p->rows + r], &scale, 1);
    k->to_f32[DT_F16](&scale, &p->scales[g * p->rows + r], 1);
    unsigned stored = (unsigned)(f->awq || f->v2 ? z : z - 1);
    if (f->awq)
        twin_put_awq(p->zeros + g * p->zero_words, r, stored);
    else
        twin_put(p->zeros + g * p->zero_words, 1, r * (size_t)f->bits, f->bits,
                 stored);
    for (size_t c = 0; c < p->cols; c++) {
        if (p->g_idx[c] != g)
            continue;
        float v = scale > 0 ? x[r * p->cols + c] / scale : 0;
        int q = (int)fminf(fmaxf(rintf(v) + (float)z, 0), (float)top);
        if (f->awq)
            twin_put_awq(p->codes + c * p->rows / 8, r, (unsigned)q);
        else
            twin_put(p->codes + r, p->rows, c * (size_t)f->bits, f->bits,
                     (unsigned)q);
        p->floats[r * p->cols + c] = (float)(q - z) * scale;
    }
}

static inline struct twin_parts twin_new(const struct twin_form *f,
                                         const float *x, size_t rows,
                                         size_t cols)
{
    size_t groups = f->group ? cols / f->group : 1, bits = (size_t)f->bits;
    struct twin_parts p = {.rows = rows,
                           .cols = cols,
                           .groups = groups,
                           .zero_words = rows * bits / 32};
    p.codes = calloc(rows * cols / 32 * bits, 4);
    p.zeros = calloc(groups * p.zero_words, 4);
    p.g_idx = calloc(cols, 4);
    p.scales = calloc(groups * rows, 2);
    p.floats = calloc(rows * cols, 4);
    twin_groups(f, &p);
    for (size_t r = 0; r < rows; r++)
        for (size_t g = 0; g < groups; g++)
            twin_row(f, &p, x, r, g);
    return p;
}

static inline void twin_free(struct twin_parts *p)
{
    free(p->codes);
    free(p->zeros);
    free(p->g_idx);
    free(p->scales);
    free(p->floats);
}

/* The tensors of a module, at most four. */
static inline size_t twin_tensors(const struct twin_form *f,
                                  const struct twin_parts *p,
                                  const char *module, char names[4][128],
                                  struct st_out_tensor *out)
{
    static const char *const tails[] = {"qweight", "scales", "qzeros",
                                        "g_idx"};
    size_t bits = (size_t)f->bits, n = 0;
    const struct st_out_tensor all[] = {
        {NULL, DT_I32, 2, {p->cols * bits / 32, p->rows}, p->codes},
        {NULL, DT_F16, 2, {p->groups, p->rows}, (unsigned char *)p->scales},
        {NULL, DT_I32, 2, {p->groups, p->zero_words}, p->zeros},
        {NULL, DT_I32, 1, {p->cols}, p->g_idx}};
    for (size_t i = 0; i < 4; i++) {
        if ((i == 2 && f->symmetric) || (i == 3 && f->awq))
            continue;
        snprintf(names[n], 128, "%s.%s", module, tails[i]);
        out[n] = all[i];
        out[n].name = names[n];
        if (i == 0 && f->awq) {
            out[n].shape[0] = p->cols;
            out[n].shape[1] = p->rows / 8;
        }
        n++;
    }
    return n;
}

/* Whether a tensor of the source is packed. */
static inline bool twin_packs(const struct twin_form *f,
                              const struct st_tensor *t)
{
    size_t group = f->group ? f->group : 32;
    bool packs = strstr(t->name, ".layers.") && strstr(t->name, "_proj.weight");
    return t->rank == 2 && t->shape[0] % 32 == 0 && t->shape[1] % group == 0 &&
           (packs || (twin_head && strcmp(t->name, "lm_head.weight") == 0));
}

static inline void twin_config(const struct twin_form *f, const char *dir,
                               bool packed, const char *to)
{
    char path[256], *text, head[512] = "";
    size_t n;
    snprintf(path, sizeof path, "%s/config.json", dir);
    assert_int_equal(map_read_all(path, 1 << 20, &text, &n, NULL), 0);
    if (packed)
        snprintf(head, sizeof head,
                 "\"quantization_config\": {\"quant_method\": \"%s\", "
                 "\"bits\": %d, \"group_size\": %d, \"sym\": %s, "
                 "\"zero_point\": %s, \"desc_act\": %s, "
                 "\"checkpoint_format\": \"%s\"},",
                 f->awq ? "awq" : "gptq", f->bits,
                 f->group ? (int)f->group : -1,
                 f->symmetric ? "true" : "false",
                 f->symmetric ? "false" : "true", f->order ? "true" : "false",
                 f->v2 ? "gptq_v2" : "gptq");
    FILE *file = fopen(temp_path(to), "wb");
    assert_non_null(file);
    fprintf(file, "{%s%s", head, text + 1);
    assert_int_equal(fclose(file), 0);
    free(text);
}

/* A number for what a projection belongs to. */
static inline uint64_t twin_parent(const char *name)
{
    const char *end = strstr(name, "_proj.weight");
    uint64_t sum = 0;
    while (end > name && *end != '.')
        end--;
    for (; name < end; name++)
        sum = sum * 31 + (unsigned char)*name;
    return sum % 99991;
}

/* Write temp_dir/packed and temp_dir/floats. Returns the number of packed
 * matrices. */
static inline size_t twins_write(const struct twin_form *f, const char *dir)
{
    enum { MOST = 512 };
    static struct st_out_tensor a[4 * MOST], b[MOST];
    static char names[MOST][4][128];
    static struct twin_parts parts[MOST];
    size_t na = 0, nb = 0, n_parts = 0;
    char path[256];
    struct st_set *set;
    twin_seed = 0;
    snprintf(path, sizeof path, "%s/model.safetensors", dir);
    assert_int_equal(st_open_file(&set, path, NULL), 0);
    assert_true(st_count(set) <= MOST);
    for (size_t i = 0; i < st_count(set); i++) {
        const struct st_tensor *t = st_at(set, i);
        struct st_out_tensor same = {t->name, t->dtype, t->rank, {0}, t->data};
        memcpy(same.shape, t->shape, t->rank * sizeof *t->shape);
        b[nb++] = same;
        if (!twin_packs(f, t)) {
            a[na++] = same;
            continue;
        }
        size_t n = t->shape[0] * t->shape[1];
        float *x = malloc(n * sizeof *x);
        kernels_ref()->to_f32[t->dtype](x, t->data, n);
        struct twin_parts *p = &parts[n_parts];
        if (twin_same_order)
            twin_seed = 1000 * twin_parent(t->name);
        *p = twin_new(f, x, t->shape[0], t->shape[1]);
        free(x);
        char module[112];
        snprintf(module, sizeof module, "%.*s",
                 (int)(t->name_len - strlen(".weight")), t->name);
        na += twin_tensors(f, p, module, names[n_parts++], a + na);
        b[nb - 1].dtype = DT_F32;
        b[nb - 1].data = (unsigned char *)p->floats;
    }
    temp_put("packed/x", "");
    temp_put("floats/x", "");
    temp_put_tensors("packed/model.safetensors", a, na);
    temp_put_tensors("floats/model.safetensors", b, nb);
    twin_config(f, dir, true, "packed/config.json");
    twin_config(f, dir, false, "floats/config.json");
    for (size_t i = 0; i < n_parts; i++)
        twin_free(&parts[i]);
    st_close(set);
    return n_parts;
}

#endif
