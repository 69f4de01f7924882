/* Which types the tensors of a GGUF file get, by the name that users know: the
 * rules of llama.cpp's quantizer without an importance matrix. */
#include <string.h>

#include "convert/quantize.h"

#define ONLY(type, layers)                    \
    {                                         \
        (type), (layers), DT_F32, LAYERS_NONE \
    }

static const struct quantize_type all[] = {
    {"F16", 1, DT_F16, DT_F16, {{0}}, false},
    {"Q4_0", 2, DT_Q4_0, DT_Q6_K, {{0}}, false},
    {"Q8_0", 7, DT_Q8_0, DT_Q8_0, {{0}}, false},
    {"Q2_K",
     10,
     DT_Q2_K,
     DT_Q6_K,
     {[MIX_V] = {DT_Q3_K, LAYERS_ALL, DT_Q4_K, LAYERS_GROUPED},
      [MIX_DOWN] = ONLY(DT_Q3_K, LAYERS_ALL),
      [MIX_O] = ONLY(DT_Q3_K, LAYERS_ALL)},
     false},
    {"Q3_K_M",
     12,
     DT_Q3_K,
     DT_Q6_K,
     {[MIX_V] = {DT_Q4_K, LAYERS_ALL, DT_Q5_K, LAYERS_TWO},
      [MIX_DOWN] = {DT_Q4_K, LAYERS_ALL, DT_Q5_K, LAYERS_SIXTEENTH},
      [MIX_O] = ONLY(DT_Q4_K, LAYERS_ALL),
      [MIX_QKV] = ONLY(DT_Q4_K, LAYERS_ALL)},
     false},
    {"Q4_K_M",
     15,
     DT_Q4_K,
     DT_Q6_K,
     {[MIX_V] = ONLY(DT_Q6_K, LAYERS_MORE),
      [MIX_DOWN] = ONLY(DT_Q6_K, LAYERS_MORE),
      [MIX_QKV] = ONLY(DT_Q5_K, LAYERS_ALL)},
     false},
    {"Q5_K_M",
     17,
     DT_Q5_K,
     DT_Q6_K,
     {[MIX_V] = ONLY(DT_Q6_K, LAYERS_MORE),
      [MIX_DOWN] = ONLY(DT_Q6_K, LAYERS_MORE),
      [MIX_QKV] = ONLY(DT_Q6_K, LAYERS_ALL)},
     false},
    {"Q6_K", 18, DT_Q6_K, DT_Q6_K, {{0}}, false},
    {"IQ4_NL",
     25,
     DT_IQ4_NL,
     DT_Q6_K,
     {[MIX_V] = ONLY(DT_Q5_K, LAYERS_GROUPED),
      [MIX_DOWN] = ONLY(DT_Q5_K, LAYERS_EIGHTH)},
     false},
    {"BF16", 32, DT_BF16, DT_BF16, {{0}}, false},
    {"MXFP4", 38, DT_Q8_0, DT_Q8_0, {{0}}, true},
};

const struct quantize_type *quantize_type_find(const char *name)
{
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        if (strcmp(all[i].name, name) == 0)
            return &all[i];
    return NULL;
}

/* Whether a layer belongs to these. */
static bool is_in(enum mix_layers set, const struct config *c, size_t layer)
{
    enum { MANY = 4 };
    size_t n = c->n_layers, eighth = n / 8;
    switch (set) {
    case LAYERS_ALL:
        return true;
    case LAYERS_TWO:
        return layer < 2;
    case LAYERS_SIXTEENTH:
        return layer < n / 16;
    case LAYERS_EIGHTH:
        return layer < eighth;
    case LAYERS_MORE:
        return layer < eighth || layer >= 7 * n / 8 ||
               (layer - eighth) % 3 == 2;
    case LAYERS_GROUPED: /* layer 0 speaks for all */
        return c->layers[0].n_kv_heads &&
               c->n_heads / c->layers[0].n_kv_heads >= MANY;
    case LAYERS_NONE:
        break;
    }
    return false;
}

/* The role of a weight in mixtures. */
static enum mix_role role_of(const struct config *c, enum weight_id id)
{
    switch (id) {
    case WEIGHT_V_PROJ:
        return MIX_V;
    case WEIGHT_DOWN_PROJ:
    case WEIGHT_EXPERTS_DOWN:
    case WEIGHT_SHARED_DOWN_PROJ:
        return MIX_DOWN;
    case WEIGHT_O_PROJ:
        return MIX_O;
    case WEIGHT_DELTA_QKV: /* of short convolutions it is no qkv */
        return c->delta.n_k_heads ? MIX_QKV : MIX_OTHER;
    case WEIGHT_QKV_PROJ:
        return MIX_QKV;
    default:
        return MIX_OTHER;
    }
}

/* The type to use when rows are not a multiple of the block. */
static enum dtype fallback(enum dtype type)
{
    switch (type) {
    case DT_Q2_K:
    case DT_Q3_K:
        return DT_Q4_0;
    case DT_Q4_K:
        return DT_Q5_0;
    case DT_Q5_K:
        return DT_Q5_1;
    case DT_Q6_K:
        return DT_Q8_0;
    default:
        return DT_F16;
    }
}

bool quantize_is_small(enum weight_id id)
{
    return id == WEIGHT_DELTA_A || id == WEIGHT_DELTA_B ||
           id == WEIGHT_DELTA_BA;
}

/* The type of a matrix whose rows fit any block. */
static enum dtype type_wanted(const struct quantize_type *t,
                              const struct config *c, enum weight_id id,
                              size_t layer)
{
    const struct mix *m = &t->mix[role_of(c, id)];
    if (id == WEIGHT_HEAD || (id == WEIGHT_EMBED && c->tied_head))
        return t->head;
    if (quantize_is_small(id))
        return t->base < DT_BLOCKS ? t->base : DT_Q8_0;
    return is_in(m->first_layers, c, layer) ? m->first
           : is_in(m->layers, c, layer)     ? m->type
                                            : t->base;
}

enum dtype quantize_type_fit(enum dtype type, size_t cols)
{
    while (cols % dtype_block(type))
        type = fallback(type);
    return type;
}

enum dtype quantize_type_of(const struct quantize_type *t,
                            const struct config *c, enum weight_id id,
                            size_t layer, size_t cols, enum dtype *wanted)
{
    *wanted = type_wanted(t, c, id, layer);
    return quantize_type_fit(*wanted, cols);
}
