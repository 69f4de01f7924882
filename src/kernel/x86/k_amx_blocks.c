/* Rows of GGUF's blocks, widened to bf16 for the products of AMX. */
#include "kernel/x86/k_amx_blocks.h"

#include "kernel/x86/k_blocks_codes.h"

/* Widen 16 signed codes with the rounding of blocks_to_f32. */
INLINE __m512 widen16(enum dtype type, __m128i codes, float scale, float min)
{
    __m512 v = _mm512_mul_ps(_mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(codes)),
                             _mm512_set1_ps(scale));

    return has_min(type) ? _mm512_sub_ps(v, _mm512_set1_ps(min)) : v;
}

INLINE void widen(enum dtype type, char *out, const unsigned char *p, size_t n)
{
    const __m256i offset = _mm256_set1_epi8((char)offset_of(type));

    for (size_t c = 0; c < n / RUN; c += CHUNK_RUNS) {
        const size_t n_runs =
            n / RUN - c < CHUNK_RUNS ? n / RUN - c : CHUNK_RUNS;
        const struct scales s = chunk_scales(type, p, n_runs);
        float scale[16], min[16];

        _mm256_storeu_ps(scale, s.scale[0]);
        _mm256_storeu_ps(scale + 8, s.scale[1]);
        _mm256_storeu_ps(min, s.min[0]);
        _mm256_storeu_ps(min + 8, s.min[1]);
        UNROLL
        for (size_t r = 0; r < CHUNK_RUNS; r++) {
            const size_t g = has_halves(type) ? 2 * r : r;
            const size_t h = has_halves(type) ? g + 1 : g;
            __m256i v;

            if (r >= n_runs)
                break;
            v = _mm256_sub_epi8(run_codes(type, p, r), offset);
            _mm512_store_si512(out,
                               (__m512i)_mm512_cvtne2ps_pbh(
                                   widen16(type, _mm256_extracti128_si256(v, 1),
                                           scale[h], min[h]),
                                   widen16(type, _mm256_castsi256_si128(v),
                                           scale[g], min[g])));
            out += RUN * 2;
        }
        p += chunk_bytes(type, n_runs);
    }
}

#define WIDEN(name, TYPE)                                        \
    static void widen_##name(char *out, const void *p, size_t n) \
    {                                                            \
        widen(TYPE, out, p, n);                                  \
    }

EACH_BLOCK_TYPE(WIDEN)

#define ROWS(name, TYPE)                                        \
    [TYPE - DT_BLOCKS] = {.widen = widen_##name,                \
                          .block = TYPE >= DT_Q2_K    ? SUPER   \
                                   : TYPE == DT_NVFP4 ? 2 * RUN \
                                                      : RUN,    \
                          .bytes = sizeof(struct name)},

const struct block_rows block_rows[DT_N_BLOCKS] = {EACH_BLOCK_TYPE(ROWS)};
