/* sgemm_nt for a few rows of a, as batches and short prompts have: more than
 * the skinny products widen weights for, fewer than pay for packing panels.
 * For k_avx2.c.
 *
 * A vector holds one column of eight rows of a, which are transposed first; it
 * is multiplied by one weight after another, broadcast, so that sums need no
 * adding up across lanes: by pairs of vectors where there are two, as for one
 * alone there would be more loads than multiply-adds. Weights are widened to a
 * block that stays in L1, each while the one before is multiplied, and come
 * from L2, where what is a tile and a half further is fetched meanwhile, in the
 * order of memory.
 *
 * Included by k_sgemm.h where the level defines GEMM_FEW: the most rows of a
 * that are taken so, a multiple of 8. */
#ifndef KERNEL_X86_K_SGEMM_FEW_H
#define KERNEL_X86_K_SGEMM_FEW_H

/* Rows of b in a tile, columns of a block and of a step. */
enum { FEW_NR = 12, FEW_KC = 128, FEW_STEP = 16 };

/* Sixteen weights, in the order in which they are cheap to widen: of bf16
 * columns 0 to 3 and 8 to 11 first. */
INLINE void few_widen16(float *out, const char *w, enum dtype type)
{
    __m256i h;

    if (type != DT_BF16) {
        _mm256_store_ps(out, load8(w, type));
        _mm256_store_ps(out + 8, load8(w + 8 * type_bytes(type), type));
        return;
    }
    h = _mm256_loadu_si256((const __m256i_u *)(const void *)w);
    _mm256_store_si256((__m256i *)(void *)out,
                       _mm256_unpacklo_epi16(_mm256_setzero_si256(), h));
    _mm256_store_si256((__m256i *)(void *)(out + 8),
                       _mm256_unpackhi_epi16(_mm256_setzero_si256(), h));
}

/* Half i of sixteen columns in that order. */
INLINE __m256 few_load(const float *a, size_t i, enum dtype type)
{
    if (type != DT_BF16)
        return _mm256_loadu_ps(a + 8 * i);
    return _mm256_insertf128_ps(_mm256_castps128_ps256(_mm_loadu_ps(a + 4 * i)),
                                _mm_loadu_ps(a + 4 * i + 8), 1);
}

/* The last n < 16 columns, in their own order, zeros behind them. */
INLINE __m256 few_load_part(const char *p, size_t n, size_t i, enum dtype type)
{
    const char *half = p + 8 * i * type_bytes(type);

    return n >= 8 * i + 8 ? load8(half, type)
           : n > 8 * i    ? load8_part(half, n - 8 * i, type)
                          : _mm256_setzero_ps();
}

/* m rows of a, k columns of each: out[column][lane], with lanes in eights,
 * zeros beyond m and up to whole steps of columns. */
static void few_transpose(float *out, const float *a, size_t lda, size_t m,
                          size_t k, enum dtype type)
{
    const size_t lanes = (m + 7) / 8 * 8;

    for (size_t t = 0; t < m; t += 8) {
        for (size_t p = 0; p < k; p += FEW_STEP) {
            const size_t n = k - p;

            UNROLL
            for (size_t i = 0; i < 2; i++) {
                __m256 v[8];

                for (size_t j = 0; j < 8; j++) {
                    const float *row = a + (t + j) * lda + p;

                    v[j] = t + j >= m ? _mm256_setzero_ps()
                           : n >= FEW_STEP
                               ? few_load(row, i, type)
                               : few_load_part((const char *)row, n, i, DT_F32);
                }
                store_transposed8(out + (p + 8 * i) * lanes + t, lanes, v, 8);
            }
        }
    }
}

/* A block of weights: rows <= FEW_NR, stride bytes apart, of n columns. */
struct few_block {
    const char *b;
    size_t rows, n;
};

/* Step s of it, widened. Rows that are not there repeat the last one. */
INLINE void few_widen(float *out, const struct few_block *w, size_t stride,
                      size_t s, enum dtype type)
{
    const size_t at = s * FEW_STEP, bytes = type_bytes(type);

    UNROLL
    for (size_t r = 0; r < FEW_NR; r++) {
        const char *row = w->b + (r < w->rows ? r : w->rows - 1) * stride;
        float *to = out + r * FEW_KC + at;

        row += at * bytes;
        if (w->n - at >= FEW_STEP) {
            few_widen16(to, row, type);
        } else {
            _mm256_store_ps(to, few_load_part(row, w->n - at, 0, type));
            _mm256_store_ps(to + 8, few_load_part(row, w->n - at, 1, type));
        }
    }
}

/* Sums of eight lanes by rows, to c or added to it. */
INLINE void few_store(float *c, size_t ldc, const __m256 *sums, size_t rows,
                      size_t m, bool first)
{
    for (size_t r = 0; r < rows; r += 8) {
        const size_t n = rows - r < 8 ? rows - r : 8;
        const __m256i mask = n < 8 ? first_lanes(n) : _mm256_set1_epi32(-1);
        __m256 v[8];

        UNROLL
        for (size_t j = 0; j < 8; j++)
            v[j] = r + j < FEW_NR ? sums[r + j] : _mm256_setzero_ps();
        transpose8(v);
        UNROLL
        for (size_t t = 0; t < 8; t++) {
            float *to = c + t * ldc + r;

            if (t >= m)
                continue;
            if (!first)
                v[t] = _mm256_add_ps(v[t], _mm256_maskload_ps(to, mask));
            _mm256_maskstore_ps(to, mask, v[t]);
        }
    }
}

/* What is done beside a product. */
struct few_beside {
    /* `lines` a step are due, each by one of `every` passes: the line at `at`
     * of a row's first `width` bytes, then the next one's */
    const char *row;
    size_t at, width, stride, lines, every, due;
    /* the next block is widened, its steps from `widened` on */
    struct few_block next;
    float *out;
    size_t widened;
};

INLINE void few_fetch(struct few_beside *o)
{
    for (o->due += o->lines; o->due >= o->every; o->due -= o->every) {
        _mm_prefetch(o->row + o->at, _MM_HINT_T1);
        o->at += 64;
        if (o->at >= o->width) {
            o->at = 0;
            o->row += o->stride;
        }
    }
}

INLINE void few_widen_step(struct few_beside *o, enum dtype type)
{
    if (o->widened * FEW_STEP < o->next.n)
        few_widen(o->out, &o->next, o->stride, o->widened++, type);
}

/* Adds to the sums of R rows by V vectors of lanes a block of n columns. */
INLINE void few_multiply(__m256 *sums, const float *x, size_t lanes,
                         const float *w, size_t n, int R, int V, bool widen,
                         struct few_beside *o, enum dtype type)
{
    __m256 a[FEW_NR][2];

    UNROLL
    for (int r = 0; r < R; r++) {
        UNROLL
        for (int v = 0; v < V; v++)
            a[r][v] = sums[v * FEW_NR + r];
    }
    for (size_t k = 0; k < n; k += FEW_STEP) {
        if (widen)
            few_widen_step(o, type);
        few_fetch(o);
        UNROLL_SOME
        for (size_t j = 0; j < FEW_STEP; j++, x += lanes) {
            const __m256 x0 = _mm256_load_ps(x);
            const __m256 x1 =
                V == 2 ? _mm256_load_ps(x + 8) : _mm256_setzero_ps();

            UNROLL
            for (int r = 0; r < R; r++) {
                const __m256 wv = _mm256_broadcast_ss(w + r * FEW_KC + k + j);

                a[r][0] = _mm256_fmadd_ps(wv, x0, a[r][0]);
                if (V == 2)
                    a[r][1] = _mm256_fmadd_ps(wv, x1, a[r][1]);
            }
        }
    }
    UNROLL
    for (int r = 0; r < R; r++) {
        UNROLL
        for (int v = 0; v < V; v++)
            sums[v * FEW_NR + r] = a[r][v];
    }
}

/* m rows of a, transposed, k columns, by n rows of b. */
INLINE void few_rows(float *c, size_t ldc, const float *at, size_t m,
                     const char *b, size_t stride, size_t n, size_t k,
                     bool first, enum dtype type)
{
    const size_t vectors = (m + 7) / 8, lanes = 8 * vectors;
    const size_t bytes = type_bytes(type);
    _Alignas(64) float blocks[2][FEW_NR * FEW_KC];
    __m256 sums[GEMM_FEW / 8 * FEW_NR];
    struct few_block w = {b, n < FEW_NR ? n : FEW_NR, k < FEW_KC ? k : FEW_KC};
    struct few_beside o = {
        .row = b + FEW_NR * 3 / 2 * stride,
        .width = k * bytes,
        .stride = stride,
        .lines = FEW_NR * FEW_STEP * bytes / 64,
        .every = vectors,
        .next = w,
        .out = blocks[0],
    };
    size_t r = 0, p = 0;

    for (size_t s = 0; s * FEW_STEP < w.n; s++)
        few_widen_step(&o, type);
    for (size_t i = 1; r < n; i++) {
        const float *block = blocks[(i + 1) % 2];
        size_t next_r = r, next_p = p + w.n;

        if (next_p == k) {
            next_p = 0;
            next_r += w.rows;
            o.next.rows = n - next_r < FEW_NR ? n - next_r : FEW_NR;
        }
        o.next.b = b + next_r * stride + next_p * bytes;
        o.next.n = next_r == n ? 0 : k - next_p < FEW_KC ? k - next_p : FEW_KC;
        o.out = blocks[i % 2];
        o.widened = 0;
        if (p == 0)
            memset(sums, 0, sizeof sums);
        for (size_t v = 0; v < vectors; v += 2) {
            const float *x = at + p * lanes + 8 * v;

            if (v + 1 == vectors) {
                few_multiply(sums + v * FEW_NR, x, lanes, block, w.n, FEW_NR, 1,
                             v == 0, &o, type);
                continue;
            }
            for (size_t half = 0; half < FEW_NR; half += FEW_NR / 2)
                few_multiply(sums + v * FEW_NR + half, x, lanes,
                             block + half * FEW_KC, w.n, FEW_NR / 2, 2,
                             v + half == 0, &o, type);
        }
        while (o.widened * FEW_STEP < o.next.n)
            few_widen_step(&o, type);
        for (size_t v = 0; v < vectors && next_r != r; v++)
            few_store(c + 8 * v * ldc + r, ldc, sums + v * FEW_NR, w.rows,
                      m - 8 * v, first);
        w = o.next;
        r = next_r;
        p = next_p;
    }
}

/* sgemm_nt for m <= GEMM_FEW. */
INLINE void sgemm_few(float *c, size_t ldc, const float *a, size_t lda,
                      const char *b, size_t ldb, size_t m, size_t n, size_t k,
                      float *work, enum dtype type)
{
    const size_t bytes = type_bytes(type), lanes = (m + 7) / 8 * 8;
    const size_t most = KERNEL_WORK / lanes / FEW_KC * FEW_KC;
    const size_t parts = k > most ? (k + most - 1) / most : 1;
    /* as long as each other, of whole blocks */
    const size_t part = (k + parts * FEW_KC - 1) / (parts * FEW_KC) * FEW_KC;

    for (size_t p = 0; p < k && n > 0; p += part) {
        const size_t kc = k - p < part ? k - p : part;

        few_transpose(work, a + p, lda, m, kc, type);
        few_rows(c, ldc, work, m, b + p * bytes, ldb * bytes, n, kc, p == 0,
                 type);
    }
}

#endif
