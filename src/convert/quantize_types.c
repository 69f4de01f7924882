/* Which types the tensors of a GGUF file get, by the name that users know: the
 * rules of llama.cpp's quantizer without an importance matrix. */
#include <string.h>

#include "convert/quantize.h"

static const struct quantize_type all[] = {
    {"F16", 1, DT_F16, DT_F16, DT_F16, false},
    {"Q4_0", 2, DT_Q4_0, DT_Q6_K, DT_Q4_0, false},
    {"Q8_0", 7, DT_Q8_0, DT_Q8_0, DT_Q8_0, false},
    {"Q4_K_M", 15, DT_Q4_K, DT_Q6_K, DT_Q6_K, false},
    {"Q6_K", 18, DT_Q6_K, DT_Q6_K, DT_Q6_K, false},
    {"BF16", 32, DT_BF16, DT_BF16, DT_BF16, false},
    {"MXFP4", 38, DT_Q8_0, DT_Q8_0, DT_Q8_0, true},
};

const struct quantize_type *quantize_type_find(const char *name)
{
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        if (strcmp(all[i].name, name) == 0)
            return &all[i];
    return NULL;
}

/* The layers whose v_proj and down_proj get more bits: the first and the last
 * eighth, and every third one between. */
static bool has_more(size_t layer, size_t n_layers)
{
    size_t eighth = n_layers / 8;
    return layer < eighth || layer >= 7 * n_layers / 8 ||
           (layer - eighth) % 3 == 2;
}

/* Matrices whose errors matter most. */
static bool is_sensitive(enum weight_id id)
{
    return id == WEIGHT_V_PROJ || id == WEIGHT_DOWN_PROJ ||
           id == WEIGHT_EXPERTS_DOWN || id == WEIGHT_SHARED_DOWN_PROJ;
}

/* The type to use when rows are not a multiple of the block. */
static enum dtype fallback(enum dtype type)
{
    return type == DT_Q4_K ? DT_Q5_0 : type == DT_Q6_K ? DT_Q8_0 : DT_F16;
}

/* The type of a matrix whose rows fit any block. */
static enum dtype type_wanted(const struct quantize_type *t,
                              const struct config *c, enum weight_id id,
                              size_t layer)
{
    if (id == WEIGHT_HEAD || (id == WEIGHT_EMBED && c->tied_head))
        return t->head;
    /* a row for each head: few bytes, and a state carries their errors on */
    if (id == WEIGHT_DELTA_A || id == WEIGHT_DELTA_B || id == WEIGHT_DELTA_BA)
        return t->base < DT_BLOCKS ? t->base : DT_Q8_0;
    /* llama.cpp has Q5_K, which we do not write */
    if ((id == WEIGHT_DELTA_QKV && c->delta.n_k_heads) ||
        id == WEIGHT_QKV_PROJ ||
        (is_sensitive(id) && has_more(layer, c->n_layers)))
        return t->more;
    return t->base;
}

enum dtype quantize_type_of(const struct quantize_type *t,
                            const struct config *c, enum weight_id id,
                            size_t layer, size_t cols, enum dtype *wanted)
{
    enum dtype type = *wanted = type_wanted(t, c, id, layer);
    while (cols % dtype_block(type))
        type = fallback(type);
    return type;
}
