/* Kernels of a 4-bit cache for AVX2. */
#include <immintrin.h>
#include <string.h>

#include "kernel/kernel.h"
#include "kernel/x86/k_avx.h"

static const int8_t numbers[32] = {KV_Q4_CODES, KV_Q4_CODES};

INLINE __m256i all_numbers(void)
{
    return _mm256_loadu_si256((const __m256i_u *)(const void *)numbers);
}

/* ---- rounding ----------------------------------------------------------- */

/* The codes of a group, and their sums as in fit_of of k_kv_q4_ref.c. */
struct fit {
    __m256i codes;
    __m256i qc, cc; /* 8 int32, to be added up */
};

/* Add up products of 32 int8, in pairs. */
INLINE __m256i dot8(__m256i a, __m256i b)
{
    const __m256i low = _mm256_madd_epi16(
        _mm256_cvtepi8_epi16(_mm256_castsi256_si128(a)),
        _mm256_cvtepi8_epi16(_mm256_castsi256_si128(b)));
    const __m256i high = _mm256_madd_epi16(
        _mm256_cvtepi8_epi16(_mm256_extracti128_si256(a, 1)),
        _mm256_cvtepi8_epi16(_mm256_extracti128_si256(b, 1)));

    return _mm256_add_epi32(low, high);
}

/* in: bytes of all ones for the elements of the group. */
INLINE struct fit fit_of(__m256i q, __m256i in)
{
    __m256i codes = _mm256_setzero_si256(), c;

    UNROLL
    for (int k = 0; k < 15; k++) {
        const int sum = numbers[k] + numbers[k + 1]; /* >> rounds down */

        codes = _mm256_sub_epi8(
            codes, _mm256_cmpgt_epi8(q, _mm256_set1_epi8((char)(sum >> 1))));
    }
    codes = _mm256_and_si256(codes, in);
    c = _mm256_and_si256(_mm256_shuffle_epi8(all_numbers(), codes), in);
    return (struct fit){codes, dot8(q, c), dot8(c, c)};
}

static void k_kv_i8_to_q4_avx2(unsigned char *codes, uint16_t *scale,
                               const int8_t *q, float by, size_t n)
{
    static const int8_t ones[64] = {
        -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1,
        -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1};
    const __m256i in = _mm256_loadu_si256(
        (const __m256i_u *)(const void *)(ones + KV_I8_GROUP - n));
    int8_t group[KV_I8_GROUP] = {0};
    struct fit plus, minus;
    int sums[4];
    __m256i v, four;
    bool is_minus;
    float s;

    memcpy(group, q, n);
    v = _mm256_loadu_si256((const __m256i_u *)(const void *)group);
    plus = fit_of(v, in);
    minus = fit_of(_mm256_sub_epi8(_mm256_setzero_si256(), v), in);
    four = _mm256_hadd_epi32(_mm256_hadd_epi32(plus.qc, plus.cc),
                             _mm256_hadd_epi32(minus.qc, minus.cc));
    _mm_storeu_si128((__m128i_u *)(void *)sums,
                     _mm_add_epi32(_mm256_castsi256_si128(four),
                                   _mm256_extracti128_si256(four, 1)));
    is_minus = (int64_t)sums[2] * sums[2] * sums[1] >
               (int64_t)sums[0] * sums[0] * sums[3];
    s = is_minus ? -(by * 128 * ((float)sums[2] / (float)sums[3]))
                 : by * 128 * ((float)sums[0] / (float)sums[1]);
    *scale = _cvtss_sh(s, _MM_FROUND_TO_NEAREST_INT);
    /* the code of element 2 i, and 16 times that of element 2 i + 1 */
    v = _mm256_maddubs_epi16(is_minus ? minus.codes : plus.codes,
                             _mm256_set1_epi16(0x1001));
    v = _mm256_permute4x64_epi64(_mm256_packus_epi16(v, v), 0xd8);
    _mm_storeu_si128((__m128i_u *)(void *)group, _mm256_castsi256_si128(v));
    memcpy(codes, group, kv_q4_bytes(n));
}

/* ---- expanding ---------------------------------------------------------- */

/* The numbers of 32 codes. */
INLINE __m256i expand32(const unsigned char *codes)
{
    const __m256i v = _mm256_cvtepu8_epi16(
        _mm_loadu_si128((const __m128i_u *)(const void *)codes));
    const __m256i both = _mm256_or_si256(v, _mm256_slli_epi16(v, 4));

    return _mm256_shuffle_epi8(
        all_numbers(), _mm256_and_si256(both, _mm256_set1_epi8(15)));
}

/* Expand the n codes of one position. */
static void expand_row(int8_t *out, const unsigned char *codes, size_t n)
{
    unsigned char some[16] = {0};
    int8_t group[32];

    for (; n >= 32; n -= 32, out += 32, codes += 16)
        _mm256_storeu_si256((__m256i_u *)(void *)out, expand32(codes));
    memcpy(some, codes, kv_q4_bytes(n));
    _mm256_storeu_si256((__m256i_u *)(void *)group, expand32(some));
    memcpy(out, group, n);
}

static void k_kv_q4_to_i8_avx2(void *out, const void *block, size_t d)
{
    const size_t bytes = kv_q4_bytes(d), n = KV_BLOCK * kv_i8_groups(d);
    const unsigned char *codes = block;
    const unsigned char *scales = codes + KV_BLOCK * bytes;
    float *to = (float *)(void *)((char *)out + KV_BLOCK * d);
    int8_t *q = out;

    if (d % 2 == 0) /* the rows follow each other without gaps */
        for (size_t i = 0; i < KV_BLOCK * bytes; i += 16)
            _mm256_store_si256((__m256i *)(void *)(q + 2 * i),
                               expand32(codes + i));
    else
        for (size_t j = 0; j < KV_BLOCK; j++)
            expand_row(q + j * d, codes + j * bytes, d);
    for (size_t i = 0; i < n; i += 8)
        _mm256_store_ps(
            to + i, _mm256_mul_ps(load8_all((const char *)scales + 2 * i, DT_F16),
                                  _mm256_set1_ps(0x1p-7f)));
}

void k_kv_q4_avx2_init(struct kernels *k)
{
    k->kv_i8_to_q4 = k_kv_i8_to_q4_avx2;
    k->kv_q4_to_i8 = k_kv_q4_to_i8_avx2;
}
