/* Write a synthetic checkpoint of Qwen3 or Qwen3.5, dense or a mixture of
 * experts, of Gemma 2 or 3, or of Llama's shape: real shapes and names, seeded
 * random weights. For benches and tests without the genuine weights: its
 * answers are noise, but its speed is real. */
#include <errno.h>
#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/buf.h"
#include "base/dtype.h"
#include "file/json.h"
#include "file/map.h"
#include "file/safetensors.h"
#include "model_config.h"
#include "model_encoders.h"
#include "model_families.h"

static const char usage[] =
    "Usage: make_model [--shape SHAPE] [--layers N] [--dtype TYPE]\n"
    "                  [--seed N] [--tokenizer DIR | --gguf] OUTDIR\n"
    "\n"
    "SHAPE: 0.6B, 1.7B, 3B, 4B, 30B-A3B, tiny, tiny-moe (Qwen3); 3.5-0.8B,\n"
    "3.5-35B-A3B, 3.5-tiny, 3.5-tiny-moe (Qwen3.5's text model);\n"
    "gemma-270m, gemma-1b, gemma-4b (Gemma 3's text model); qwen2.5-1.5B,\n"
    "llama3.2-3B; with four layers: mixtral-4, gemma2-2b-4, gpt-oss-20b-4\n"
    "(experts in MXFP4), gemma4-E2B-4, gemma4-26B-A4B-4; text encoders:\n"
    "bge-base, minilm, bge-m3, modernbert-base, embeddinggemma-300m.\n"
    "Writes config.json, generation_config.json and model.safetensors to\n"
    "OUTDIR, which is made if it does not exist. --layers sets the number of\n"
    "layers. TYPE: bf16, f16, f32; fp8: the layers' matrices in FP8, in blocks\n"
    "of 128 x 128, all else in bf16, not of gpt-oss. --gguf writes model.gguf\n"
    "in their place, of gpt-oss, without a tokenizer. --tokenizer copies the\n"
    "tokenizer and generation_config.json of the checkpoint DIR. Equal options\n"
    "give equal bytes.\n";

#define BERT \
    .plan = plan_bert, .plan_outside = plan_bert_outside, .config = config_bert

static const struct shape shapes[] = {
    {"0.6B", 1024, 3072, 28, 16, 8, 128, 151936, 40960, 151643, 151645, 0, 0, 0,
     0, 0, 0, .window = 0},
    {"1.7B", 2048, 6144, 28, 16, 8, 128, 151936, 40960, 151643, 151645, 0, 0, 0,
     0, 0, 0, .window = 0},
    {"4B", 2560, 9728, 36, 32, 8, 128, 151936, 40960, 151643, 151645, 0, 0, 0,
     0, 0, 0, .window = 0},
    {"30B-A3B", 2048, 6144, 48, 32, 4, 128, 151936, 40960, 151643, 151645, 128,
     8, 768, 0, 0, 0, .window = 0},
    /* dense, with as many parameters as one token of 30B-A3B passes */
    {"3B", 2048, 6144, 48, 32, 4, 128, 151936, 40960, 151643, 151645, 0, 0, 0,
     0, 0, 0, .window = 0},
    {"tiny", 64, 160, 4, 4, 2, 32, 512, 1024, 0, 1, 0, 0, 0, 0, 0, 0,
     .window = 0},
    {"tiny-moe", 64, 160, 4, 4, 2, 32, 512, 1024, 0, 1, 8, 2, 96, 0, 0, 0,
     .window = 0},
    {"3.5-0.8B", 1024, 3584, 24, 8, 2, 256, 248320, 262144, 248044, 248046, 0,
     0, 0, 16, 16, 128, .window = 0},
    {"3.5-35B-A3B", 2048, 512, 40, 16, 2, 256, 248320, 262144, 248044, 248046,
     256, 8, 512, 16, 32, 128, .window = 0},
    {"3.5-tiny", 64, 160, 4, 4, 2, 32, 512, 1024, 0, 1, 0, 0, 0, 2, 4, 32,
     .window = 0},
    {"3.5-tiny-moe", 64, 160, 4, 4, 2, 32, 512, 1024, 0, 1, 8, 2, 96, 2, 4, 32,
     .window = 0},
    {"gemma-270m", 640, 2048, 18, 4, 1, 256, 262144, 32768, 2, 1,
     .window = 512},
    {"gemma-1b", 1152, 6912, 26, 4, 1, 256, 262144, 32768, 2, 1, .window = 512},
    /* with a vision model, which is left out */
    {"gemma-4b", 2560, 10240, 34, 8, 4, 256, 262208, 131072, 2, 1,
     .window = 1024, .rope_factor = 8},
    /* four of its 26 layers */
    {"gemma2-2b-4", 2304, 9216, 4, 8, 4, 256, 256000, 8192, 2, 1,
     .class = "Gemma2ForCausalLM", .model_type = "gemma2", .window = 4096},
    {"qwen2.5-1.5B", 1536, 8960, 28, 12, 2, 128, 151936, 32768, 151643, 151645,
     .class = "Qwen2ForCausalLM", .model_type = "qwen2"},
    {"llama3.2-3B", 3072, 8192, 28, 24, 8, 128, 128256, 131072, 128000, 128009,
     .class = "LlamaForCausalLM", .model_type = "llama",
     .scaling = "{\"factor\": 32.0, \"high_freq_factor\": 4.0, "
                "\"low_freq_factor\": 1.0, "
                "\"original_max_position_embeddings\": 8192, "
                "\"rope_type\": \"llama3\"}"},
    /* four of its 32 layers */
    {"mixtral-4", 4096, 14336, 4, 32, 8, 128, 32000, 32768, 1, 2, 8, 2, 14336,
     .class = "MixtralForCausalLM", .model_type = "mixtral"},
    {"gpt-oss-20b-4", 2880, 2880, 4, 64, 8, 64, 201088, 131072, 199998, 200002,
     32, 4, 2880, .plan = plan_gpt_oss, .config = config_gpt_oss},
    {"gemma4-E2B-4", 1536, 6144, 4, 8, 1, 256, 262144, 131072, 2, 1,
     .plan = plan_gemma4, .config = config_gemma4, .n_shared = 2,
     .ple_dim = 256},
    {"gemma4-26B-A4B-4", 2816, 2112, 4, 16, 8, 256, 262144, 262144, 2, 1, 128,
     8, 704, .plan = plan_gemma4, .config = config_gemma4, .full_kv_heads = 2},
    {"bge-base", 768, 3072, 12, 12, 12, 64, 30522, 512, 101, 102,
     .class = "BertModel", .model_type = "bert", BERT},
    {"minilm", 384, 1536, 6, 12, 12, 32, 30522, 512, 101, 102,
     .class = "BertModel", .model_type = "bert", BERT},
    {"bge-m3", 1024, 4096, 24, 16, 16, 64, 250002, 8192, 0, 2,
     .class = "XLMRobertaModel", .model_type = "xlm-roberta", BERT},
    {"modernbert-base", 768, 1152, 22, 12, 12, 64, 50368, 8192, 50281, 50282,
     .class = "ModernBertModel", .model_type = "modernbert",
     .plan = plan_modernbert, .plan_outside = plan_modernbert_outside,
     .config = config_modernbert},
    {"embeddinggemma-300m", 768, 1152, 24, 3, 1, 256, 262144, 2048, 2, 1,
     .window = 512, .both = true},
};

struct options {
    struct shape shape;
    enum dtype dtype;
    bool fp8; /* matrices of layers */
    uint64_t seed;
    bool gguf;
    const char *tokenizer; /* directory or NULL */
    const char *out;
};

/* ---- random weights ---- */

/* Weights are drawn from a table of 2^16 equally likely values, the quantiles
 * of a normal distribution: one 64-bit random number makes four weights, so
 * that the disk is the limit, not the arithmetic. */
#define N_QUANTILES 65536

struct table {
    unsigned char data[N_QUANTILES * 4]; /* elements of the dtype */
};

/* The standard normal quantiles at (i + 0.5) / 2^16, by Newton's method from
 * the neighbour. Rounded to 2^-12 so that the last bits of a machine's erfc
 * and exp do not matter. */
static void fill_quantiles(double *z)
{
    double x = 0;
    for (size_t i = N_QUANTILES / 2; i < N_QUANTILES; i++) {
        double p = ((double)i + 0.5) / N_QUANTILES;
        for (int step = 0; step < 4; step++) {
            double cdf = 0.5 * erfc(-x / sqrt(2));
            double density = exp(-0.5 * x * x) / sqrt(2 * acos(-1));
            x -= (cdf - p) / density;
        }
        z[i] = nearbyint(x * 4096) / 4096;
        z[N_QUANTILES - 1 - i] = -z[i];
    }
}

static uint16_t bf16_from(double v)
{
    float f = (float)v;
    uint32_t bits;
    memcpy(&bits, &f, sizeof bits);
    bits += 0x7FFF + (bits >> 16 & 1); /* nearest, ties to even */
    return (uint16_t)(bits >> 16);
}

/* |v| is far below the largest f16. Subnormals come out right because their
 * exponent is clamped and the leading one then is missing from the sum. */
static uint16_t f16_from(double v)
{
    double a = fabs(v);
    if (a == 0)
        return 0;
    int exponent = ilogb(a) < -14 ? -14 : ilogb(a);
    int bits = ((exponent + 15) << 10) +
               (int)nearbyint(ldexp(a, 10 - exponent)) - 1024;
    return (uint16_t)(bits | (v < 0 ? 0x8000 : 0));
}

/* |v| < 448. A fraction that is rounded up to 2 becomes the next exponent. */
static unsigned char fp8_from(double v)
{
    double a = fabs(v);
    int exponent = a == 0 || ilogb(a) < -6 ? -6 : ilogb(a);
    int bits = ((exponent + 7) << 3) + (int)nearbyint(ldexp(a, 3 - exponent));
    return (unsigned char)((bits - 8) | (v < 0 ? 0x80 : 0));
}

static void fill_table(struct table *t, const double *z, enum dtype dtype,
                       double mean, double scale)
{
    for (size_t i = 0; i < N_QUANTILES; i++) {
        double v = mean + scale * z[i];
        if (dtype == DT_F8_E4M3) {
            t->data[i] = fp8_from(v);
        } else if (dtype == DT_F32) {
            float f = (float)v;
            memcpy(t->data + i * 4, &f, 4);
        } else {
            uint16_t h = dtype == DT_F16 ? f16_from(v) : bf16_from(v);
            memcpy(t->data + i * 2, &h, 2);
        }
    }
}

/* SplitMix64 (Steele, Lea, Flood 2014). */
static uint64_t next_random(uint64_t *state)
{
    uint64_t z = *state += 0x9E3779B97F4A7C15u;
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9u;
    z = (z ^ z >> 27) * 0x94D049BB133111EBu;
    return z ^ z >> 31;
}

/* n is a multiple of 4. */
static void draw_16(uint16_t *out, size_t n, const struct table *t,
                    uint64_t *state)
{
    const uint16_t *values = (const void *)t->data;
    for (size_t i = 0; i < n; i += 4) {
        uint64_t r = next_random(state);
        for (size_t k = 0; k < 4; k++, r >>= 16)
            out[i + k] = values[r & 0xFFFF];
    }
}

static void draw_8(unsigned char *out, size_t n, const struct table *t,
                   uint64_t *state)
{
    for (size_t i = 0; i < n; i += 4) {
        uint64_t r = next_random(state);
        for (size_t k = 0; k < 4; k++, r >>= 16)
            out[i + k] = t->data[r & 0xFFFF];
    }
}

static void draw_32(uint32_t *out, size_t n, const struct table *t,
                    uint64_t *state)
{
    const uint32_t *values = (const void *)t->data;
    for (size_t i = 0; i < n; i += 4) {
        uint64_t r = next_random(state);
        for (size_t k = 0; k < 4; k++, r >>= 16)
            out[i + k] = values[r & 0xFFFF];
    }
}

/* ---- tensors ---- */

/* Most tensors of a layer, without its experts and its router. */
#define PER_LAYER 20

/* A mixture of experts without norms of queries and keys. */
static bool is_mixtral(const struct shape *s)
{
    return s->class && s->n_experts;
}

/* Plan the tensors of an MLP. Its name is like "model.layers.0.mlp". */
static void plan_mlp(struct plan *p, const struct shape *s, enum dtype dtype,
                     const char *module, size_t ff)
{
    static const char *const names[2][3] = {
        {"down_proj", "gate_proj", "up_proj"}, {"w2", "w1", "w3"}};
    const char *const *roles = names[is_mixtral(s)];
    for (size_t i = 0; i < 3; i++) {
        char name[NAME_MAX_LEN];
        snprintf(name, sizeof name, "%s.%s.weight", module, roles[i]);
        plan_add(p, dtype, i ? ff : s->d_model, i ? s->d_model : ff, name);
    }
}

static void plan_experts(struct plan *p, const struct shape *s,
                         enum dtype dtype, size_t layer)
{
    char name[NAME_MAX_LEN];
    for (size_t i = 0; i < s->n_experts; i++) {
        char module[64];
        snprintf(module, sizeof module, "model.layers.%u.%s.experts.%u",
                 (unsigned)layer, is_mixtral(s) ? "block_sparse_moe" : "mlp",
                 (unsigned)i);
        plan_mlp(p, s, dtype, module, s->expert_ff);
    }
    snprintf(name, sizeof name, "model.layers.%zu.%s.gate.weight", layer,
             is_mixtral(s) ? "block_sparse_moe" : "mlp");
    plan_add(p, dtype, s->n_experts, s->d_model, name);
    if (!s->n_lin_k_heads)
        return;
    char shared[64];
    snprintf(shared, sizeof shared, "model.layers.%u.mlp.shared_expert",
             (unsigned)layer);
    plan_mlp(p, s, dtype, shared, s->expert_ff);
    snprintf(name, sizeof name,
             "model.layers.%zu.mlp.shared_expert_gate.weight", layer);
    plan_add(p, dtype, 1, s->d_model, name);
}

static void plan_attention(struct plan *p, const struct shape *s,
                           enum dtype dtype, size_t layer, enum kind norm)
{
    const size_t q = s->n_heads * s->head_dim, kv = s->n_kv_heads * s->head_dim;
    const struct part norms[] = {
        {"self_attn.k_norm.weight", s->head_dim, 0, norm},
        {"self_attn.q_norm.weight", s->head_dim, 0, norm}};
    const struct part biases[] = {
        {"self_attn.k_proj.bias", kv, 0, CENTRED_NORM},
        {"self_attn.q_proj.bias", q, 0, CENTRED_NORM},
        {"self_attn.v_proj.bias", kv, 0, CENTRED_NORM}};
    const struct part parts[] = {
        {"self_attn.k_proj.weight", kv, s->d_model, MATRIX},
        {"self_attn.o_proj.weight", s->d_model, q, MATRIX},
        {"self_attn.q_proj.weight", s->n_lin_k_heads ? 2 * q : q, s->d_model,
         MATRIX},
        {"self_attn.v_proj.weight", kv, s->d_model, MATRIX},
    };
    plan_parts(p, dtype, layer, parts, sizeof parts / sizeof *parts);
    if (!s->class)
        plan_parts(p, dtype, layer, norms, 2);
    else if (strcmp(s->model_type, "qwen2") == 0)
        plan_parts(p, dtype, layer, biases, 3);
}

static void plan_delta(struct plan *p, const struct shape *s, enum dtype dtype,
                       size_t layer)
{
    const size_t heads = s->n_lin_v_heads, v = heads * s->lin_dim;
    const size_t channels = 2 * s->n_lin_k_heads * s->lin_dim + v;
    const struct part parts[] = {
        {"linear_attn.A_log", heads, 0, CENTRED_NORM},
        {"linear_attn.conv1d.weight", channels, LIN_CONV, CONV},
        {"linear_attn.dt_bias", heads, 0, DT_BIAS},
        {"linear_attn.in_proj_a.weight", heads, s->d_model, MATRIX},
        {"linear_attn.in_proj_b.weight", heads, s->d_model, MATRIX},
        {"linear_attn.in_proj_qkv.weight", channels, s->d_model, MATRIX},
        {"linear_attn.in_proj_z.weight", v, s->d_model, MATRIX},
        {"linear_attn.norm.weight", s->lin_dim, 0, NORM},
        {"linear_attn.out_proj.weight", s->d_model, v, MATRIX},
    };
    plan_parts(p, dtype, layer, parts, sizeof parts / sizeof *parts);
    for (size_t i = p->n - sizeof parts / sizeof *parts; i < p->n; i++) {
        struct st_out_tensor *t = &p->tensors[i];
        if (p->kinds[i] == CONV) {
            t->rank = 3;
            t->shape[1] = 1;
            t->shape[2] = LIN_CONV;
        }
    }
}

static enum kind norm_of(const struct shape *s)
{
    return s->n_lin_k_heads || s->window ? CENTRED_NORM : NORM;
}

static void plan_layer(struct plan *p, const struct shape *s, enum dtype dtype,
                       size_t layer)
{
    const enum kind norm = norm_of(s);
    const struct part before = {"input_layernorm.weight", s->d_model, 0, norm};
    const struct part after = {"post_attention_layernorm.weight", s->d_model, 0,
                               norm};
    const struct part around[] = {
        {"post_feedforward_layernorm.weight", s->d_model, 0, norm},
        {"pre_feedforward_layernorm.weight", s->d_model, 0, norm}};
    char mlp[64];
    if (s->plan) {
        s->plan(p, s, layer);
        return;
    }
    plan_parts(p, dtype, layer, &before, 1);
    snprintf(mlp, sizeof mlp, "%slayers.%u.mlp", p->prefix, (unsigned)layer);
    if (s->n_experts)
        plan_experts(p, s, dtype, layer);
    else
        plan_mlp(p, s, dtype, mlp, s->d_ff);
    plan_parts(p, dtype, layer, &after, 1);
    if (s->window)
        plan_parts(p, dtype, layer, around, 2);
    if (s->n_lin_k_heads && (layer + 1) % LIN_INTERVAL != 0)
        plan_delta(p, s, dtype, layer);
    else
        plan_attention(p, s, dtype, layer, norm);
}

/* The weights of the model's per-layer embeddings. */
static void plan_ple(struct plan *p, const struct shape *s, enum dtype dtype)
{
    const size_t cols = s->n_layers * s->ple_dim;
    if (!s->ple_dim)
        return;
    plan_add(p, dtype, s->vocab_size, cols,
             "model.embed_tokens_per_layer.weight");
    plan_add(p, dtype, cols, s->d_model,
             "model.per_layer_model_projection.weight");
    plan_add(p, dtype, s->ple_dim, 0, "model.per_layer_projection_norm.weight");
}

static int plan_make(struct plan *p, const struct options *o,
                     struct qwick_err *e)
{
    const struct shape *s = &o->shape;
    const bool untied = s->n_experts && s->plan != plan_gemma4;
    /* FP8 has two tensors for a matrix */
    size_t n = 2 * (s->n_layers * (PER_LAYER + 1 + 3 * s->n_experts) + 6);
    *p = (struct plan){o->gguf                ? ""
                       : s->rope_factor > 0 ? "language_model.model."
                                              : "model.",
                       "layers",
                       o->dtype,
                       o->gguf,
                       calloc(n, sizeof *p->tensors),
                       calloc(n, sizeof *p->kinds),
                       calloc(n, sizeof *p->names),
                       0};
    char name[NAME_MAX_LEN];
    if (!p->tensors || !p->kinds || !p->names)
        return err_oom(e, n * (sizeof *p->tensors + sizeof *p->names));
    snprintf(name, sizeof name, "%s%s.weight", p->prefix,
             o->gguf ? "token_embd" : "embed_tokens");
    if (s->plan_outside)
        s->plan_outside(p, s);
    else
        plan_add(p, o->dtype, s->vocab_size, s->d_model, name);
    for (size_t i = 0; i < s->n_layers; i++)
        plan_layer(p, s, o->dtype, i);
    if (s->plan_outside)
        return 0;
    plan_ple(p, s, o->dtype);
    snprintf(name, sizeof name, "%s%s.weight", p->prefix,
             o->gguf ? "output_norm" : "norm");
    plan_add(p, o->dtype, s->d_model, 0, name);
    p->kinds[p->n - 1] = norm_of(s);
    if (untied)
        plan_add(p, o->dtype, s->vocab_size, s->d_model,
                 o->gguf ? "output.weight" : "lm_head.weight");
    if (o->fp8)
        plan_fp8(p);
    return 0;
}

static void plan_free(struct plan *p)
{
    free(p->tensors);
    free(p->kinds);
    free(p->names);
}

enum { CHUNK = 1 << 18 }; /* elements, a multiple of 4 */

struct tables {
    double quantiles[N_QUANTILES];
    struct table kinds[N_KINDS];
    uint64_t chunk[CHUNK / 2]; /* also holds CHUNK 16-bit elements */
};

/* The file, and the tensor that is written. */
struct output {
    struct st_writer *w;
    bool gguf;
    size_t index, at;
};

static int put_bytes(struct output *to, const void *data, size_t n,
                     struct qwick_err *e)
{
    size_t at = to->at;
    to->at += n;
    return to->gguf ? st_writer_at(to->w, to->index, at, data, n, e)
                    : st_writer_data(to->w, data, n, e);
}

/* Write n bytes of MXFP4: elements of any bits, and scales of 2^-8 and 2^-7,
 * with which weights deviate by about 0.02. In GGUF's blocks, the first byte of
 * 17 is the scale. */
static int write_mxfp4(struct output *to, enum kind kind, size_t n,
                       uint64_t state, struct tables *tab, struct qwick_err *e)
{
    enum { BLOCK = 17, SCALE = 119 };
    const size_t most = CHUNK * 4 / BLOCK / 8 * BLOCK * 8;
    unsigned char *out = (unsigned char *)tab->chunk;
    size_t every = kind == SCALES ? 1 : to->gguf ? BLOCK : most;
    for (size_t step; n; n -= step) {
        step = n < most ? n : most;
        for (size_t i = 0; i < (step + 7) / 8; i++)
            tab->chunk[i] = next_random(&state);
        for (size_t i = 0; i < step && every < most; i += every)
            out[i] = SCALE + (out[i] & 1);
        if (put_bytes(to, out, step, e))
            return -1;
    }
    return 0;
}

/* Values of the table. Each tensor has its own random stream, so that its
 * values do not depend on earlier tensors. */
static int write_tensor(struct output *to, const struct st_out_tensor *t,
                        enum kind kind, uint64_t stream, struct tables *tab,
                        struct qwick_err *e)
{
    const size_t n_bytes = dtype_bytes(t->dtype);
    size_t left = 1;
    for (size_t i = 0; i < t->rank; i++)
        left *= t->shape[i];
    if (kind >= N_KINDS)
        return write_mxfp4(to, kind, left / dtype_block(t->dtype) * n_bytes,
                           stream, tab, e);
    uint64_t state = stream;
    while (left) {
        size_t n = left < CHUNK ? left : CHUNK;
        if (n_bytes == 4)
            draw_32((void *)tab->chunk, (n + 3) / 4 * 4, &tab->kinds[kind],
                    &state);
        else if (n_bytes == 1)
            draw_8((void *)tab->chunk, (n + 3) / 4 * 4, &tab->kinds[kind],
                   &state);
        else
            draw_16((void *)tab->chunk, (n + 3) / 4 * 4, &tab->kinds[kind],
                    &state);
        if (put_bytes(to, tab->chunk, n * n_bytes, e))
            return -1;
        left -= n;
    }
    return 0;
}

static int open_output(struct output *to, const struct options *o,
                       const char *path, const struct plan *plan,
                       struct qwick_err *e)
{
    struct gguf_out meta = {0};
    to->gguf = o->gguf;
    if (!o->gguf)
        return st_writer_open(&to->w, path, plan->tensors, plan->n, e);
    gguf_gpt_oss(&meta, &o->shape);
    int rc =
        gguf_writer_open(&to->w, path, &meta, plan->tensors, plan->n, e);
    gguf_out_free(&meta);
    return rc;
}

static int write_weights(const struct options *o, const char *path,
                         struct qwick_err *e)
{
    struct plan plan = {0};
    struct output to = {0};
    struct tables *tab = malloc(sizeof *tab);
    uint64_t seeds = o->seed;
    if (!tab) {
        err_oom(e, sizeof *tab);
        goto fail;
    }
    if (plan_make(&plan, o, e))
        goto fail;
    fill_quantiles(tab->quantiles);
    for (size_t i = 0; i < N_KINDS; i++)
        fill_table(&tab->kinds[i], tab->quantiles,
                   i == FP8_CODES    ? DT_F8_E4M3
                   : i == FP8_SCALES ? DT_F32
                                     : o->dtype,
                   kinds[i].mean, kinds[i].spread);
    if (open_output(&to, o, path, &plan, e))
        goto fail;
    for (to.index = 0; to.index < plan.n; to.index++) {
        to.at = 0;
        if (write_tensor(&to, &plan.tensors[to.index], plan.kinds[to.index],
                         next_random(&seeds), tab, e))
            goto fail;
    }
    struct st_writer *done = to.w;
    to.w = NULL; /* close frees it even on failure */
    if (st_writer_close(done, e))
        goto fail;
    plan_free(&plan);
    free(tab);
    return 0;
fail:
    st_writer_abort(to.w);
    plan_free(&plan);
    free(tab);
    return -1;
}

/* ---- the small files ---- */

static int write_file(const char *dir, const char *name, const void *data,
                      size_t n, struct qwick_err *e)
{
    char path[4096];
    snprintf(path, sizeof path, "%s/%s", dir, name);
    FILE *f = fopen(path, "wb");
    bool good = f && fwrite(data, 1, n, f) == n;
    if (f && fclose(f))
        good = false;
    if (!good)
        return err_set(e, QWICK_ERR_RUNTIME, "%s: cannot be written: %s", path,
                       strerror(errno));
    return 0;
}

static int write_config(const struct options *o, struct qwick_err *e)
{
    static const char *const dtypes[] = {
        [DT_F32] = "float32", [DT_F16] = "float16", [DT_BF16] = "bfloat16"};
    const struct shape *s = &o->shape;
    struct buf b = {0};
    int failed = (s->config   ? s->config
                  : s->window ? config_gemma
                              : config_qwen)(&b, s, dtypes[o->dtype]);
    if (!failed && o->fp8) {
        b.len = (size_t)(strrchr(b.data, '}') - b.data);
        while (b.data[b.len - 1] == '\n')
            b.len--;
        failed = buf_printf(&b,
                            ",\n  \"quantization_config\": {\n"
                            "    \"quant_method\": \"fp8\",\n"
                            "    \"weight_block_size\": [%d, %d]\n  }\n}",
                            FP8_BLOCK, FP8_BLOCK);
    }
    if (failed)
        failed = err_oom(e, b.len);
    else
        failed = write_file(o->out, "config.json", b.data, b.len, e);
    buf_free(&b);
    return failed;
}

static int write_generation_config(const struct options *o, struct qwick_err *e)
{
    const struct shape *s = &o->shape;
    const bool gemma = s->window > 0 || s->plan == plan_gemma4;
    char text[512];
    /* the turn's end of Gemma, the pad token of both */
    const long long bos = (long long)s->bos_id, eos = (long long)s->eos_id,
                    other = gemma ? 106 : bos, pad = gemma ? 0 : bos;
    int n =
        snprintf(text, sizeof text,
                 "{\n"
                 "    \"bos_token_id\": %lld,\n"
                 "    \"do_sample\": true,\n"
                 "    \"eos_token_id\": [\n"
                 "        %lld,\n"
                 "        %lld\n"
                 "    ],\n"
                 "    \"pad_token_id\": %lld,\n"
                 "%s"
                 "    \"top_k\": %d,\n"
                 "    \"top_p\": 0.95,\n"
                 "    \"transformers_version\": \"4.51.0\"\n"
                 "}",
                 bos, eos, other, pad,
                 gemma ? "" : "    \"temperature\": 0.6,\n", gemma ? 64 : 20);
    return write_file(o->out, "generation_config.json", text, (size_t)n, e);
}

static int copy_file(const struct options *o, const char *name,
                     struct qwick_err *e)
{
    char path[4096];
    struct map m;
    snprintf(path, sizeof path, "%s/%s", o->tokenizer, name);
    if (map_open(&m, path, e))
        return -1;
    int failed = write_file(o->out, name, m.data, m.size, e);
    map_close(&m);
    return failed;
}

/* Take the ids and the vocabulary size from the checkpoint of the copied
 * tokenizer. */
static int adopt_tokenizer(struct options *o, struct qwick_err *e)
{
    char path[4096];
    struct map m;
    struct json_doc *doc = NULL;
    int64_t vocab_size, bos_id, eos_id;

    snprintf(path, sizeof path, "%s/config.json", o->tokenizer);
    if (map_open(&m, path, e))
        return -1;
    int failed = json_parse(&doc, path, (const char *)m.data, m.size,
                            QWICK_ERR_MODEL, e);
    map_close(&m);
    if (failed)
        return -1;
    const struct json_value *v = json_root(doc);
    if (json_int(json_get(v, "vocab_size"), 1, 10000000, &vocab_size) ||
        json_int(json_get(v, "eos_token_id"), 0, vocab_size - 1, &eos_id)) {
        json_free(doc);
        return err_set(e, QWICK_ERR_MODEL,
                       "%s: vocab_size or eos_token_id: no integer in range",
                       path);
    }
    if (json_int(json_get(v, "bos_token_id"), 0, vocab_size - 1, &bos_id))
        bos_id = eos_id;
    json_free(doc);
    o->shape.bos_id = bos_id;
    o->shape.eos_id = eos_id;
    if (o->shape.vocab_size < (size_t)vocab_size)
        o->shape.vocab_size = (size_t)vocab_size;
    return 0;
}

static int make_model(struct options *o, struct qwick_err *e)
{
    static const char *const copied[] = {
        "tokenizer.json", "tokenizer_config.json", "generation_config.json"};
    char path[4096];
    if (mkdir(o->out, 0777) && errno != EEXIST)
        return err_set(e, QWICK_ERR_RUNTIME, "%s: cannot be made: %s", o->out,
                       strerror(errno));
    snprintf(path, sizeof path, "%s/model.gguf", o->out);
    if (o->gguf)
        return write_weights(o, path, e);
    if (o->tokenizer) {
        if (adopt_tokenizer(o, e))
            return -1;
        for (size_t i = 0; i < sizeof copied / sizeof *copied; i++)
            if (copy_file(o, copied[i], e))
                return -1;
    } else if (write_generation_config(o, e)) {
        return -1;
    }
    if (write_config(o, e))
        return -1;
    snprintf(path, sizeof path, "%s/model.safetensors", o->out);
    return write_weights(o, path, e);
}

/* ---- command line ---- */

static bool parse_shape(const char *name, struct shape *out)
{
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        if (strcmp(name, shapes[i].name) == 0) {
            *out = shapes[i];
            return true;
        }
    }
    return false;
}

static bool parse_dtype(const char *name, enum dtype *out)
{
    if (strcmp(name, "bf16") == 0)
        *out = DT_BF16;
    else if (strcmp(name, "f16") == 0)
        *out = DT_F16;
    else if (strcmp(name, "f32") == 0)
        *out = DT_F32;
    else
        return false;
    return true;
}

static bool parse_seed(const char *text, uint64_t *out)
{
    char *end;
    errno = 0;
    *out = strtoull(text, &end, 10);
    return text[0] >= '0' && text[0] <= '9' && !*end && !errno;
}

/* Parse the number of layers: at least one, and few enough for the names. */
static bool parse_layers(const char *text, size_t *out)
{
    uint64_t n;
    if (!parse_seed(text, &n) || n < 1 || n > 999)
        return false;
    *out = (size_t)n;
    return true;
}

static bool parse_options(struct options *o, int argc, char **argv)
{
    size_t n_layers = 0;
    *o = (struct options){.shape = shapes[0], .dtype = DT_BF16, .seed = 1};
    for (int i = 1; i < argc; i++) {
        const char *name = argv[i], *value = argv[i + 1];
        if (name[0] != '-') {
            if (o->out)
                return false;
            o->out = name;
            continue;
        }
        if (strcmp(name, "--gguf") == 0) {
            o->gguf = true;
            continue;
        }
        i++;
        if (!value)
            return false;
        if (strcmp(name, "--shape") == 0 && parse_shape(value, &o->shape))
            continue;
        if (strcmp(name, "--dtype") == 0) {
            o->fp8 = strcmp(value, "fp8") == 0;
            if (!o->fp8 && !parse_dtype(value, &o->dtype))
                return false;
            continue;
        }
        if (strcmp(name, "--layers") == 0 && parse_layers(value, &n_layers))
            continue;
        if (strcmp(name, "--seed") == 0 && parse_seed(value, &o->seed))
            continue;
        if (strcmp(name, "--tokenizer") != 0)
            return false;
        o->tokenizer = value;
    }
    if (n_layers)
        o->shape.n_layers = n_layers;
    if (o->gguf && (o->tokenizer || o->shape.plan != plan_gpt_oss))
        return false;
    if (o->fp8 && (o->dtype != DT_BF16 || o->shape.plan == plan_gpt_oss))
        return false;
    return o->out && strlen(o->out) < 3500 &&
           (!o->tokenizer || strlen(o->tokenizer) < 3500);
}

int main(int argc, char **argv)
{
    struct options o;
    struct qwick_err e;
    if (argc == 2 && strcmp(argv[1], "--help") == 0) {
        fputs(usage, stdout);
        return 0;
    }
    if (!parse_options(&o, argc, argv)) {
        fputs(usage, stderr);
        return QWICK_ERR_USAGE;
    }
    if (make_model(&o, &e)) {
        fprintf(stderr, "make_model: %s\n", e.msg);
        return (int)e.code;
    }
    return 0;
}
