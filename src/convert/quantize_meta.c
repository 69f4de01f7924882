/* The metadata of a GGUF file, from config.json and generation_config.json.
 * config_gguf.c reads it back. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "convert/quantize.h"
#include "file/checkpoint.h"
#include "file/map.h"
#include "model/arch.h"

struct writer {
    struct gguf_out *o;
    const char *arch; /* keys begin with it */
};

static const char *full(const struct writer *w, const char *key, char out[96])
{
    snprintf(out, 96, "%s%s", w->arch, key);
    return out;
}

/* Sizes have been checked against MAX_DIM and the like. */
static void put_size(const struct writer *w, const char *key, size_t v)
{
    char name[96];
    gguf_put_u32(w->o, full(w, key, name), (uint32_t)v);
}

static void put_double(const struct writer *w, const char *key, double v)
{
    char name[96];
    gguf_put_f32(w->o, full(w, key, name), v);
}

static void put_text(struct gguf_out *o, const char *key, const char *text)
{
    gguf_put_string(o, key, text, strlen(text));
}

/* ---- what GGUF cannot say -------------------------------------------------
 */

static int refuse(const struct quantize_source *s, const char *field,
                  const char *what, struct qwick_err *e)
{
    return err_set(e, QWICK_ERR_MODEL,
                   "%s: %s: %s cannot be written to a GGUF file",
                   checkpoint_dir(s->ck), field, what);
}

/* transformers' attention_factor where the file names none. */
static double usual_attention(const struct rope_config *r)
{
    return 0.1 * log(r->factor) + 1;
}

static int check_rope(const struct quantize_source *s, struct qwick_err *e)
{
    const struct rope_config *r = &s->c.ropes[0];
    if (r->type != ROPE_YARN)
        return 0;
    if (!r->truncate)
        return refuse(s, "rope_scaling.truncate", "false", e);
    /* readers disagree on what the key for it means */
    if (fabs(r->attention - usual_attention(r)) > 1e-6)
        return refuse(s, "rope_scaling.attention_factor",
                      "another value than 0.1 ln(factor) + 1", e);
    return 0;
}

static int check_layers(const struct quantize_source *s, struct qwick_err *e)
{
    const struct config *c = &s->c;
    bool experts = c->layers[0].n_experts > 0;
    for (size_t i = 0; i < c->n_layers; i++) {
        if (c->layers[i].window != NO_WINDOW)
            return refuse(s, "sliding_window", "a window", e);
        if ((c->layers[i].n_experts > 0) != experts)
            return refuse(s, "mlp_only_layers",
                          "layers without experts beside layers with them", e);
    }
    if (!experts && strcmp(c->arch->gguf, "qwen3moe") == 0)
        return refuse(s, "num_experts", "a mixture without experts", e);
    if (experts && !c->norm_topk_prob)
        return refuse(s, "norm_topk_prob", "false", e);
    return 0;
}

/* ---- entries --------------------------------------------------------------
 */

/* The last part of the name that the user gave. */
static void put_name(struct gguf_out *o, const struct checkpoint *ck)
{
    const char *name = checkpoint_name(ck), *end = name + strlen(name);
    while (end > name && end[-1] == '/')
        end--;
    const char *begin = end;
    while (begin > name && begin[-1] != '/')
        begin--;
    gguf_put_string(o, "general.name", begin, (size_t)(end - begin));
}

static void put_sizes(const struct writer *w, const struct config *c)
{
    const struct layer_config *l = &c->layers[0];
    put_size(w, ".block_count", c->n_layers);
    put_size(w, ".context_length", c->n_ctx_max);
    put_size(w, ".embedding_length", c->d_model);
    put_size(w, ".feed_forward_length", c->d_ff);
    put_size(w, ".attention.head_count", c->n_heads);
    put_size(w, ".attention.head_count_kv", c->n_kv_heads);
    put_size(w, ".attention.key_length", c->head_dim);
    put_size(w, ".attention.value_length", c->head_dim);
    put_double(w, ".attention.layer_norm_rms_epsilon", c->rms_eps);
    if (!l->n_experts)
        return;
    put_size(w, ".expert_count", l->n_experts);
    put_size(w, ".expert_used_count", l->n_active);
    put_size(w, ".expert_feed_forward_length", l->d_ff);
}

static void put_rope(const struct writer *w, const struct rope_config *r)
{
    char key[96];
    put_double(w, ".rope.freq_base", r->theta);
    if (r->type == ROPE_DEFAULT)
        return;
    put_text(w->o, full(w, ".rope.scaling.type", key), config_rope_name(r));
    put_double(w, ".rope.scaling.factor", r->factor);
    if (r->type != ROPE_YARN)
        return;
    put_size(w, ".rope.scaling.original_context_length", r->original);
    put_double(w, ".rope.scaling.yarn_beta_fast", r->beta_fast);
    put_double(w, ".rope.scaling.yarn_beta_slow", r->beta_slow);
}

static void put_sampling(struct gguf_out *o, const struct config *c)
{
    if (!c->do_sample)
        return;
    gguf_put_f32(o, "general.sampling.temp", c->temperature);
    gguf_put_i32(o, "general.sampling.top_k", (int32_t)c->top_k);
    gguf_put_f32(o, "general.sampling.top_p", c->top_p);
    gguf_put_f32(o, "general.sampling.min_p", c->min_p);
    gguf_put_f32(o, "general.sampling.penalty_repeat", c->repetition_penalty);
}

/* sentence-transformers' list of modules says that a checkpoint embeds. Qwen's
 * take the last token's state. */
static int put_pooling(const struct writer *w, const struct checkpoint *ck,
                       struct qwick_err *e)
{
    enum { POOLING_LAST = 3 };
    struct map map;
    bool found;
    if (checkpoint_map_small(ck, "modules.json", &map, &found, e))
        return -1;
    if (!found)
        return 0;
    map_close(&map);
    put_size(w, ".pooling_type", POOLING_LAST);
    return 0;
}

int quantize_gguf_meta(struct quantize_plan *p, const struct quantize_source *s,
                       const struct quantize_type *t, struct qwick_err *e)
{
    enum { QUANTIZATION_VERSION = 2 };
    const struct writer w = {&p->meta, s->c.arch->gguf};
    if (check_rope(s, e) || check_layers(s, e))
        return -1;
    put_text(&p->meta, "general.architecture", s->c.arch->gguf);
    put_name(&p->meta, s->ck);
    put_sizes(&w, &s->c);
    put_rope(&w, &s->c.ropes[0]);
    put_sampling(&p->meta, &s->c);
    gguf_put_u32(&p->meta, "general.quantization_version",
                 QUANTIZATION_VERSION);
    gguf_put_u32(&p->meta, "general.file_type", t->file_type);
    return put_pooling(&w, s->ck, e);
}
