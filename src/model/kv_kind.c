#include "model/kv_kind.h"

static void store_float(const struct kv_kind *kind, const struct kernels *k,
                        unsigned char *run, size_t slot, const float *x,
                        size_t d)
{
    k->from_f32[kind->form](run + slot * kv_kind_elements(kind, d), x, d);
}

static unsigned char *scales_of(const struct kv_kind *kind, unsigned char *run,
                                size_t slot, size_t d)
{
    return run + KV_BLOCK * kv_kind_elements(kind, d) +
           slot * kv_kind_scales(kind, d);
}

static void store_i8(const struct kv_kind *kind, const struct kernels *k,
                     unsigned char *run, size_t slot, const float *x, size_t d)
{
    k->to_kv_i8((int8_t *)run + slot * d,
                (float *)(void *)scales_of(kind, run, slot, d), x, d);
}

static void store_q4(const struct kv_kind *kind, const struct kernels *k,
                     unsigned char *run, size_t slot, const float *x, size_t d)
{
    unsigned char *codes = run + slot * kv_kind_elements(kind, d);
    uint16_t *scale = (uint16_t *)(void *)scales_of(kind, run, slot, d);
    for (size_t i = 0; i < d; i += KV_I8_GROUP) {
        size_t n = d - i < KV_I8_GROUP ? d - i : KV_I8_GROUP;
        int8_t q[KV_I8_GROUP];
        float by;
        k->to_kv_i8(q, &by, x + i, n);
        k->kv_i8_to_q4(codes + i / 2, scale++, q, by, n);
    }
}

static void expand_q4(const struct kernels *k, void *out, const void *run,
                      size_t d)
{
    k->kv_q4_to_i8(out, run, d);
}

/* By enum qwick_kv. */
static const struct kv_kind kinds[] = {
    [QWICK_KV_F16] = {"f16", 16, 0, KV_F16, false, store_float, NULL},
    [QWICK_KV_F32] = {"f32", 32, 0, KV_F32, false, store_float, NULL},
    [QWICK_KV_Q8] = {"q8", 8, sizeof(float), KV_I8, false, store_i8, NULL},
    [QWICK_KV_Q4] = {"q4", 4, 2, KV_I8, true, store_q4, expand_q4},
};

const struct kv_kind *kv_kind(enum qwick_kv kv)
{
    size_t i = (size_t)kv;
    return i < sizeof kinds / sizeof *kinds && kinds[i].name ? &kinds[i] : NULL;
}
