/* The kernels that work on elements and rows, on every level of this CPU,
 * against the scalar reference or against double arithmetic in this file.
 * check_table.h has the options. */
#include "check_table.h"

/* ---- conversions -------------------------------------------------------- */

static void check_to_f32(const struct kernels *k, enum dtype type)
{
    enum { ALL = 65536 };
    uint16_t *all = must(malloc(ALL * sizeof *all));
    float *got = must(malloc(ALL * sizeof *got));

    for (size_t i = 0; i < ALL; i++)
        all[i] = (uint16_t)i;
    k->to_f32[type](got, all, ALL);
    for (size_t i = 0; i < ALL; i++) {
        bool bf = type == DT_BF16;
        int bits = bf ? 7 : 10, bias = bf ? 127 : 15;
        int e = (int)(i >> bits) & (bf ? 255 : 31);
        int fraction = (int)i & ((1 << bits) - 1);
        double want = e == 0 ? ldexp(fraction, 1 - bias - bits)
                             : ldexp(fraction + (1 << bits), e - bias - bits);

        if (e == (bf ? 255 : 31))
            want = fraction ? (double)NAN : (double)INFINITY;
        if (i & 0x8000)
            want = -want;
        if (isnan(want)
                ? !isnan(got[i])
                : (double)got[i] != want || !signbit(got[i]) != !signbit(want))
            fail_msg("pattern %04zx is %.9g, expected %.9g", i, (double)got[i],
                     want);
    }
    free(all);
    free(got);
    for (size_t i = 0; i < N_SIZES; i++) {
        size_t n = size_at(i);
        struct area in = area_new(2 * n, 1 + below(4));
        struct area out = area_new(4 * n, 4 * below(3));
        float *want = must(malloc(4 * n));

        for (size_t j = 0; j < 2 * n; j++)
            ((unsigned char *)in.p)[j] = (unsigned char)below(256);
        area_keep(&in);
        k->to_f32[type](out.p, in.p, n);
        ref->to_f32[type](want, in.p, n);
        area_check(&out, "to_f32");
        area_same(&in, "to_f32");
        for (size_t j = 0; j < n; j++)
            if (!isnan(want[j]))
                same_bits("to_f32", (float *)out.p + j, want + j, 1);
        free(want);
        area_free(&in);
        area_free(&out);
    }
}

/* Check rounding against the nearest 16-bit value, found among neighbours in
 * double. */
static void check_from_f32(const struct kernels *k, enum dtype type)
{
    enum { FINITE_F16 = 0x7c00, FINITE_BF16 = 0x7f80, PER = 7 };
    size_t n_finite = type == DT_F16 ? FINITE_F16 : FINITE_BF16;
    float *in = must(malloc(n_finite * PER * 2 * sizeof *in));
    uint16_t *want = must(malloc(n_finite * PER * 2 * sizeof *want));
    uint16_t *got = must(malloc(n_finite * PER * 2 * sizeof *got));
    size_t n = 0;

    /* each finite value, the midpoint to the next one, and the floats next to
     * it */
    for (size_t h = 0; h < n_finite; h++) {
        uint16_t p = (uint16_t)h, q = (uint16_t)(h + 1);
        float a, b, mid;

        ref->to_f32[type](&a, &p, 1);
        if (h + 1 < n_finite)
            ref->to_f32[type](&b, &q, 1);
        else
            b = a + (a - (h & 1 ? nextafterf(a, 0) : a));
        if (h + 1 == n_finite) /* the value after the largest one, if there were
                                  one */
            b = type == DT_F16 ? 65536.0f : INFINITY;
        mid = isinf(b) ? 0x1.ffp127f : (float)(((double)a + (double)b) / 2);
        for (int s = 0; s < 2; s++) {
            uint16_t sign = s ? 0x8000 : 0;
            float f = s ? -1.0f : 1.0f;
            uint16_t lo = sign | p, hi = sign | q;

            in[n] = f * a, want[n++] = lo;
            in[n] = f * nextafterf(a, INFINITY);
            want[n] = (double)nextafterf(a, INFINITY) > (double)mid ? hi : lo;
            n++;
            in[n] = f * nextafterf(mid, 0), want[n++] = lo;
            in[n] = f * mid, want[n++] = h & 1 ? hi : lo;
            in[n] = f * nextafterf(mid, INFINITY), want[n++] = hi;
            in[n] = f * INFINITY, want[n++] = (uint16_t)(sign | n_finite);
            in[n] = f * FLT_MAX, want[n++] = (uint16_t)(sign | n_finite);
        }
    }
    k->from_f32[type](got, in, n);
    for (size_t i = 0; i < n; i++)
        if (got[i] != want[i])
            fail_msg("%.9g (%a) becomes %04x, expected %04x", (double)in[i],
                     (double)in[i], got[i], want[i]);
    free(in);
    free(want);
    free(got);
    for (size_t i = 0; i < N_SIZES; i++) {
        size_t len = size_at(i);
        struct area from = area_new(4 * len, 4 * below(3));
        struct area out = area_new(2 * len, 1 + below(4));
        struct area expect = area_new(2 * len, 0);

        /* random bits, including both kinds of NaN */
        for (size_t j = 0; j < 4 * len; j++)
            ((unsigned char *)from.p)[j] = (unsigned char)below(256);
        ((float *)from.p)[below(len)] = NAN;
        area_keep(&from);
        k->from_f32[type](out.p, from.p, len);
        ref->from_f32[type](expect.p, from.p, len);
        area_check(&out, "from_f32");
        area_same(&from, "from_f32");
        if (memcmp(out.p, expect.p, 2 * len))
            fail_msg("from_f32: %zu values differ from the reference", len);
        area_free(&from);
        area_free(&out);
        area_free(&expect);
    }
}

static void check_rmsnorm(const struct kernels *k, enum dtype type)
{
    for (size_t s = 0; s < N_SIZES; s++)
        for (int kind = 0; kind < N_KINDS; kind++) {
            size_t d = size_at(s), rows = 1 + below(4), n = rows * d;
            struct area x = area_new(4 * n, 4 * below(3));
            struct area w = area_new(4 * d, 4 * below(3));
            struct area out = area_new(4 * n, 4 * below(3));
            float *want = must(malloc(4 * n)), *wp = w.p, *op = out.p;

            fill(x.p, n, (enum kind)kind, 1e30f);
            fill(w.p, d, NORMAL, 0);
            area_keep(&x);
            area_keep(&w);
            k->rmsnorm(op, x.p, wp, rows, d, 1e-6f);
            ref->rmsnorm(want, x.p, wp, rows, d, 1e-6f);
            area_check(&out, "rmsnorm");
            area_same(&x, "rmsnorm");
            area_same(&w, "rmsnorm");
            /* roundings: the factor, two products, the reference */
            for (size_t i = 0; i < n; i++)
                near(kind_names[kind], i, n, (double)op[i], (double)want[i],
                     4.01 * U * fabs((double)want[i]) +
                         TINY * (2 + fabs((double)wp[i % d])));
            /* single rows, and in place */
            for (size_t r = 0; r < rows; r++)
                k->rmsnorm(want + r * d, (float *)x.p + r * d, wp, 1, d, 1e-6f);
            same_bits("rmsnorm, rows alone", op, want, n);
            k->rmsnorm(x.p, x.p, wp, rows, d, 1e-6f);
            same_bits("rmsnorm in place", op, x.p, n);
            free(want);
            area_free(&x);
            area_free(&w);
            area_free(&out);
        }
}

static double row_mean(const float *x, size_t d)
{
    double sum = 0;
    for (size_t i = 0; i < d; i++)
        sum += (double)x[i] / (double)d;
    return sum;
}

static double row_deviation(const float *x, size_t d, double mean)
{
    double sum = 0;
    for (size_t i = 0; i < d; i++)
        sum += ((double)x[i] - mean) * ((double)x[i] - mean) / (double)d;
    return sqrt(sum);
}

static void check_layernorm(const struct kernels *k, enum dtype type)
{
    const float eps = 1e-12f;
    for (size_t s = 0; s < N_SIZES; s++)
        for (int kind = 0; kind < N_KINDS; kind++) {
            size_t d = size_at(s), rows = 1 + below(4), n = rows * d;
            struct area x = area_new(4 * n, 4 * below(3));
            struct area w = area_new(8 * d, 4 * below(3));
            struct area out = area_new(4 * n, 4 * below(3));
            float *want = must(malloc(4 * n)), *wp = w.p, *op = out.p;

            fill(x.p, n, (enum kind)kind, 1e30f);
            fill(w.p, 2 * d, NORMAL, 0);
            for (size_t i = 0; kind == NORMAL && s % 2 && i < n; i++)
                ((float *)x.p)[i] += 100; /* a mean far from 0 */
            area_keep(&x);
            area_keep(&w);
            k->layernorm(op, x.p, wp, rows, d, eps);
            ref->layernorm(want, x.p, wp, rows, d, eps);
            area_check(&out, "layernorm");
            area_same(&x, "layernorm");
            area_same(&w, "layernorm");
            for (size_t i = 0; i < n; i++) {
                const float *row = (float *)x.p + i / d * d;
                double mean = row_mean(row, d);
                double inv = 1 / sqrt(pow(row_deviation(row, d, mean), 2) +
                                      (double)eps);
                double from = fabs(mean) + fabs((double)row[i % d] - mean);
                /* roundings: the mean, the difference, the factor, two
                 * products, the sum, the reference */
                near(kind_names[kind], i, n, (double)op[i], (double)want[i],
                     U * (4.01 * fabs((double)wp[i % d]) * inv * from +
                          2.01 * fabs((double)want[i])) +
                         TINY * (2 + fabs((double)wp[i % d]) * (1 + inv)));
            }
            for (size_t r = 0; r < rows; r++)
                k->layernorm(want + r * d, (float *)x.p + r * d, wp, 1, d, eps);
            same_bits("layernorm, rows alone", op, want, n);
            k->layernorm(x.p, x.p, wp, rows, d, eps);
            same_bits("layernorm in place", op, x.p, n);
            free(want);
            area_free(&x);
            area_free(&w);
            area_free(&out);
        }
}

/* pairs: neighbours rotate together. */
static void check_rotation(const struct kernels *k, bool pairs)
{
    for (size_t h = 1; h <= 67; h++)
        for (int kind = 0; kind < N_KINDS; kind++) {
            size_t d = 2 * h, rows = 1 + below(5), n = rows * d;
            struct area x = area_new(4 * n, 4 * below(3));
            struct area cs = area_new(4 * h, 4 * below(3));
            struct area sn = area_new(4 * h, 4 * below(3));
            float *in = must(malloc(4 * n)), *want = must(malloc(4 * n));
            float *c = cs.p, *s = sn.p, *xp = x.p;

            fill(xp, n, (enum kind)kind, 1e30f);
            memcpy(in, xp, 4 * n);
            memcpy(want, xp, 4 * n);
            for (size_t i = 0; i < h; i++) {
                double angle = 100 * uniform();

                c[i] = (float)cos(angle);
                s[i] = (float)sin(angle);
            }
            area_keep(&cs);
            area_keep(&sn);
            (pairs ? k->rope_pairs : k->rope)(xp, rows, d, c, s);
            (pairs ? ref->rope_pairs : ref->rope)(want, rows, d, c, s);
            area_check(&x, "rope");
            area_same(&cs, "rope");
            area_same(&sn, "rope");
            for (size_t i = 0; i < n; i++) {
                size_t at = i % d, j = pairs ? at / 2 : at % h;
                size_t a = i - at + (pairs ? 2 * j : j), b = a + (pairs ? 1 : h);
                bool second = i == b;
                double mag =
                    fabs((double)in[a] * (double)(second ? s[j] : c[j])) +
                    fabs((double)in[b] * (double)(second ? c[j] : s[j]));

                /* roundings: a product, a fused sum, the reference */
                near("rope", i, n, (double)xp[i], (double)want[i],
                     3.01 * U * mag + 3 * TINY);
            }
            free(in);
            free(want);
            area_free(&x);
            area_free(&cs);
            area_free(&sn);
        }
}

static void check_rope(const struct kernels *k, enum dtype type)
{
    (void)type;
    check_rotation(k, false);
    check_rotation(k, true);
}

typedef void (*glu_fn)(float *out, const float *gate, const float *up,
                       size_t n);

/* silu(gate) * up, gelu(gate) * up and the like. exponent(z): minus the
 * argument of the exponential. relative(z): the bound of the relative error, in
 * units U. factor(up): by what the gate's value is multiplied, or more. If the
 * exponential overflows, the result is 0, and the true value is below `tail` *
 * exp(-88.5) * factor. */
static void check_glu(const char *name, glu_fn glu, glu_fn right,
                      double (*exponent)(double z),
                      double (*relative)(double z), double (*factor)(double up),
                      double tail)
{
    static const float edges[] = {0,     -0.0f,  88,        89,      -88,
                                  -89,   -103,   -104,      -200,    200,
                                  -9.9f, -10.1f, 9.9f,      -0.75f,  1e-20f,
                                  1e30f, -1e30f, -INFINITY, INFINITY};
    enum { N_EDGES = sizeof edges / sizeof *edges };

    for (size_t t = 0; t < N_SIZES; t++)
        for (int kind = 0; kind < N_KINDS; kind++) {
            size_t n = size_at(t);
            struct area g = area_new(4 * n, 4 * below(3));
            struct area up = area_new(4 * n, 4 * below(3));
            struct area out = area_new(4 * n, 4 * below(3));
            float *want = must(malloc(4 * n)), *gp = g.p, *op = out.p;
            float *upp = up.p;

            fill(gp, n, (enum kind)kind, 1e30f);
            fill(upp, n, (enum kind)kind, 1e30f);
            for (size_t i = 0; kind == MIXED && i < n; i += 3)
                gp[i] = edges[below(N_EDGES)];
            /* all over the range in which results neither vanish nor equal
             * gate * up */
            for (size_t i = 1; kind == NORMAL && i < n; i += 2)
                gp[i] = 110 * ((float)below(1 << 20) * 0x1p-19f - 1);
            for (size_t i = 2; kind == NORMAL && i < n; i += 4)
                gp[i] *= 4;
            area_keep(&g);
            area_keep(&up);
            glu(op, gp, upp, n);
            right(want, gp, upp, n);
            area_check(&out, name);
            area_same(&g, name);
            area_same(&up, name);
            for (size_t i = 0; i < n; i++) {
                double z = (double)gp[i];
                double slack = exponent(z) < -88.5 ? tail * exp(-88.5) : TINY;

                if (gp[i] == -INFINITY) /* 0 times infinity */
                    continue;
                near(kind_names[kind], i, n, (double)op[i], (double)want[i],
                     relative(z) * U * fabs((double)want[i]) +
                         slack * factor((double)upp[i]) + 2 * TINY);
            }
            /* an element's value does not depend on its place */
            for (size_t i = 0; i < n; i += 5) {
                float one;

                glu(&one, gp + i, upp + i, 1);
                same_bits("alone", &one, op + i, 1);
            }
            glu(gp, gp, upp, n);
            same_bits("in place", gp, op, n);
            free(want);
            area_free(&g);
            area_free(&up);
            area_free(&out);
        }
}

static double silu_exponent(double z)
{
    return z;
}

/* exp within two units (4 u), then a sum, a quotient, a product, and the
 * reference's rounding. */
static double silu_error(double z)
{
    (void)z;
    return 8.01;
}

static void check_swiglu(const struct kernels *k, enum dtype type)
{
    check_glu("swiglu", k->swiglu, ref->swiglu, silu_exponent, silu_error, fabs,
              89);
}

static double gelu_exponent(double z)
{
    return 2 * GELU_SCALE * (z + GELU_CUBE * z * z * z);
}

/* As silu's; and 2 u itself is off by five roundings (of both constants, z^2,
 * the sum and the product), which the exponential makes relative errors of. It
 * counts by its share of 1 + exp(-2 u). */
static double gelu_error(double z)
{
    double u2 = fmin(fmax(gelu_exponent(z), -1000), 1000);
    return 8.01 + 5.01 * fabs(u2) / (1 + exp(u2));
}

static void check_geglu(const struct kernels *k, enum dtype type)
{
    check_glu("geglu", k->geglu, ref->geglu, gelu_exponent, gelu_error, fabs,
              11);
}

/* The argument of the exponential, -z^2 / 2, never overflows it. */
static double erf_exponent(double z)
{
    (void)z;
    return 0;
}

/* exp within two units (4 u), the polynomial (1.2 u, and 5 roundings of its
 * last steps), its variable (1.5 u, which it passes on), three products and the
 * reference's rounding. The exponential makes a relative error of the rounding
 * of z^2 / 2. All of it counts by the tail's share of the result, which is 1
 * below 0. */
static double erf_error(double z)
{
    double a = fmin(fabs(z), 14.4), tail = erfc(a * M_SQRT1_2) / 2;
    return 2.01 + (15 + 1.01 * a * a / 2) * (z < 0 ? 1 : tail / (1 - tail));
}

/* NaN, and values whose tail is 0, in every lane; and without a factor. */
static void check_erf_edges(const struct kernels *k)
{
    enum { N = 37 };
    static const float in[] = {NAN, INFINITY, -INFINITY, 1e30f, -1e30f, -15.5f};
    static const float want[] = {NAN, INFINITY, 0, 1e30f, 0, 0};
    for (size_t e = 0; e < sizeof in / sizeof *in; e++)
        for (size_t i = 0; i < N; i++) {
            float z[N], one[N], out[N], alone[N];
            for (size_t j = 0; j < N; j++) {
                z[j] = (float)j * 0.25f - 4;
                one[j] = 1;
            }
            z[i] = in[e];
            k->geglu_erf(out, z, NULL, N);
            k->geglu_erf(alone, z, one, N);
            same_bits("without a factor", out, alone, N);
            if (isnan(want[e]) ? !isnan(out[i]) : out[i] != want[e])
                fail_msg("gelu(%g) is %g", (double)in[e], (double)out[i]);
        }
}

static void check_geglu_erf(const struct kernels *k, enum dtype type)
{
    check_glu("geglu_erf", k->geglu_erf, ref->geglu_erf, erf_exponent,
              erf_error, fabs, 1);
    if (k->level != ISA_REF) /* whose product with -INFINITY is NaN */
        check_erf_edges(k);
}

static void check_sigmoid_glu(const struct kernels *k, enum dtype type)
{
    check_glu("glu", k->glu, ref->glu, silu_exponent, silu_error, fabs, 1);
}

static double clamped_exponent(double z)
{
    return CLAMPED_ALPHA * fmin(z, CLAMPED_LIMIT);
}

/* As silu's, and the rounding of up + 1. The exponential's argument is off by
 * two roundings (of the constant and the product), which count by their share
 * as in gelu_error. */
static double clamped_error(double z)
{
    double a = fmin(fmax(clamped_exponent(z), -1000), 1000);
    return 9.01 + 2.01 * fabs(a) / (1 + exp(a));
}

static double clamped_factor(double up)
{
    return fmin(fabs(up), CLAMPED_LIMIT) + 1;
}

/* Values that the limits cut, or that are no numbers, in every lane of a vector
 * and of its rest. */
static void check_clamped_edges(const struct kernels *k)
{
    static const struct {
        float gate, up, want;
    } rows[] = {
        {7, 0, 6.99995313f},
        {1e30f, 0, 6.99995313f},
        {INFINITY, 7, 55.999625f},
        {8, INFINITY, 55.999625f},
        {7, -INFINITY, -41.9997188f},
        {1e30f, -1e30f, -41.9997188f},
        {INFINITY, -1, 0},
        {-1e30f, INFINITY, 0},
        {NAN, 0, NAN},
        {1, NAN, NAN},
        {-INFINITY, 1, NAN},
        {0, INFINITY, 0},
    };
    enum { N = sizeof rows / sizeof *rows, TIMES = 37 };
    float gate[N * TIMES], up[N * TIMES], out[N * TIMES];

    for (size_t i = 0; i < N * TIMES; i++) {
        gate[i] = rows[i % N].gate;
        up[i] = rows[i % N].up;
    }
    for (size_t n = 1; n <= N * TIMES; n++) {
        k->clamped_swiglu(out, gate, up, n);
        for (size_t i = 0; i < n; i++) {
            double want = (double)rows[i % N].want;

            near("edge", i, n, (double)out[i], want, 9.01 * U * fabs(want));
        }
    }
}

static void check_clamped(const struct kernels *k, enum dtype type)
{
    (void)type;
    check_glu("clamped_swiglu", k->clamped_swiglu, ref->clamped_swiglu,
              clamped_exponent, clamped_error, clamped_factor, 53);
    check_clamped_edges(k);
}

static void check_add_scale(const struct kernels *k, enum dtype type)
{
    for (size_t t = 0; t < N_SIZES; t++)
        for (int kind = 0; kind < N_KINDS; kind++) {
            size_t n = size_at(t);
            struct area x = area_new(4 * n, 4 * below(3));
            struct area y = area_new(4 * n, 4 * below(3));
            float *want = must(malloc(4 * n));

            fill(x.p, n, (enum kind)kind, 1e30f);
            fill(y.p, n, (enum kind)kind, 1e30f);
            area_keep(&y);
            memcpy(want, x.p, 4 * n);
            /* one operation each, so equal bits */
            k->add(x.p, y.p, n);
            ref->add(want, y.p, n);
            same_bits("add", x.p, want, n);
            k->scale(x.p, 0.3f, n);
            ref->scale(want, 0.3f, n);
            same_bits("scale", x.p, want, n);
            k->mul(x.p, y.p, n);
            ref->mul(want, y.p, n);
            same_bits("mul", x.p, want, n);
            area_check(&x, "add and scale");
            area_same(&y, "add");
            free(want);
            area_free(&x);
            area_free(&y);
        }
}

/* Eight roundings (k_f32_exp.h), and the reference's. */
#define CAP_ERROR 9.01

static void check_cap(const struct kernels *k, enum dtype type)
{
    static const float edges[] = {0,      -0.0f,    30,    -30,     0.35f, 1e30f,
                                  -1e30f, INFINITY, 1e-7f, -1e-20f, NAN,   300};
    static const float caps[] = {30, 50, 1, 0.37f};
    enum { N_EDGES = sizeof edges / sizeof *edges };

    for (size_t t = 0; t < N_SIZES; t++)
        for (int kind = 0; kind < N_KINDS; kind++) {
            size_t n = size_at(t);
            float cap = caps[below(4)];
            struct area x = area_new(4 * n, 4 * below(3));
            float *in = must(malloc(4 * n)), *want = must(malloc(4 * n));
            float *xp = x.p;

            fill(xp, n, (enum kind)kind, 1e30f);
            for (size_t i = 0; kind == MIXED && i < n; i += 3)
                xp[i] = edges[below(N_EDGES)];
            /* up to where the result is the cap */
            for (size_t i = 1; kind == NORMAL && i < n; i += 2)
                xp[i] = 12 * cap * ((float)below(1 << 20) * 0x1p-19f - 1);
            memcpy(in, xp, 4 * n);
            memcpy(want, xp, 4 * n);
            k->cap(xp, cap, n);
            ref->cap(want, cap, n);
            area_check(&x, "cap");
            for (size_t i = 0; i < n; i++) {
                if (!isfinite(in[i]) && !isnan(xp[i]))
                    fail_msg("cap: %g becomes %g", (double)in[i],
                             (double)xp[i]);
                near(kind_names[kind], i, n, (double)xp[i], (double)want[i],
                     CAP_ERROR * U * fabs((double)want[i]) +
                         TINY * (2 + (double)cap));
            }
            /* an element's value does not depend on its place */
            for (size_t i = 0; i < n; i += 5) {
                k->cap(in + i, cap, 1);
                if (isfinite(in[i]))
                    same_bits("alone", in + i, xp + i, 1);
            }
            free(in);
            free(want);
            area_free(&x);
        }
}

static void check_max(const struct kernels *k, enum dtype type)
{
    for (size_t t = 0; t < N_SIZES; t++)
        for (int kind = 0; kind < N_KINDS; kind++) {
            size_t n = size_at(t);
            struct area x = area_new(4 * n, 4 * below(3));
            float *p = x.p, want;

            fill(p, n, (enum kind)kind, 1e30f);
            for (size_t i = 0; kind == MIXED && i < n; i++)
                if (below(3) == 0)
                    p[i] = below(2) ? -INFINITY : NAN;
            for (size_t i = 0; kind == ZEROS && i < n; i++)
                p[i] = -1 - p[i]; /* all negative, so that a zeroed lane would
                                     be larger */
            area_keep(&x);
            want = ref->max(p, n);
            if (k->max(p, n) != want)
                fail_msg("max of %zu is %.9g, expected %.9g", n,
                         (double)k->max(p, n), (double)want);
            for (size_t i = 0; i < n; i++)
                p[i] = NAN;
            if (k->max(p, n) != -INFINITY)
                fail_msg("max of %zu NaN", n);
            p[n - 1] = 3;
            if (k->max(p, n) != 3)
                fail_msg("max at the end of %zu", n);
            area_free(&x);
        }
}

/* exp itself, against double, over all magnitudes. */
static void check_exp(const struct kernels *k, enum dtype type)
{
    enum { N = 4096 };
    static const float edges[] = {
        0,           -0.0f,       88.72283f,   88.72284f,  89,
        100,         FLT_MAX,     INFINITY,    -87.33654f, -87.3366f,
        -103.27892f, -103.97207f, -103.97209f, -104,       -105,
        -150,        -FLT_MAX,    -INFINITY,   1e-45f,     -1e-45f};
    enum { N_EDGES = sizeof edges / sizeof *edges };
    float x[N], out[N];
    double worst = 0;
    uint32_t bits = 0;
    /* floats with |x| < 128, in steps of an odd number */
    const uint32_t end = 0x43000000, step = 1999;

    for (bool more = true; more;) {
        size_t n = 0;

        while (n + 2 <= N && bits < end) {
            float f;

            memcpy(&f, &bits, sizeof f);
            x[n++] = f;
            x[n++] = -f;
            bits += step;
        }
        more = n == N;
        for (size_t i = 0; i < N_EDGES && n < N; i++)
            x[n++] = edges[i];
        k->exp_sum(out, x, n, 0, 1);
        for (size_t i = 0; i < n; i++) {
            double off = ulps(out[i], exp((double)x[i]));

            if (!(off <= 2))
                fail_msg("exp(%.9g) is %.9g, off by %.3g units", (double)x[i],
                         (double)out[i], off);
            worst = off > worst ? off : worst;
        }
    }
    x[0] = NAN;
    k->exp_sum(out, x, 1, 0, 1);
    if (!isnan(out[0]))
        fail_msg("exp(NaN) is %.9g", (double)out[0]);
    printf("    exp: at most %.3f units in the last place off\n", worst);
}

static void check_exp_sum(const struct kernels *k, enum dtype type)
{
    for (size_t t = 0; t < N_SIZES; t++)
        for (int kind = 0; kind < N_KINDS; kind++) {
            size_t n = size_at(t);
            struct area x = area_new(4 * n, 4 * below(3));
            struct area out = area_new(4 * n, 4 * below(3));
            float *want = must(malloc(4 * n)), *xp = x.p, *op = out.p;
            float shift, scale = kind == NORMAL ? 0 : (float)(2 * uniform());
            double sum, own = 0, mag = 0;

            fill(xp, n, (enum kind)kind, 1e30f);
            for (size_t i = 0; i < n; i++)
                if (kind == NORMAL && below(4) == 0)
                    xp[i] = -INFINITY;
            shift = ref->max(xp, n);
            shift = shift == -INFINITY ? 0 : shift;
            area_keep(&x);
            sum = k->exp_sum(op, xp, n, shift, scale);
            ref->exp_sum(want, xp, n, shift, scale);
            area_check(&out, "exp_sum");
            area_same(&x, "exp_sum");
            for (size_t i = 0; i < n; i++) {
                if (xp[i] == -INFINITY && op[i] != 0)
                    fail_msg("exp_sum of -inf is %.9g", (double)op[i]);
                /* exp within two units, and the reference's rounding */
                near("exp_sum", i, n, (double)op[i], (double)want[i],
                     5 * U * (double)want[i] + 2 * TINY);
                own += (double)op[i];
                mag += fabs((double)op[i]);
            }
            near("sum of exp_sum", 0, n, sum, own,
                 2 * (double)n * 0x1p-53 * mag);
            if (k->exp_sum(NULL, xp, n, shift, scale) != sum ||
                k->exp_sum(xp, xp, n, shift, scale) != sum)
                fail_msg("exp_sum of %zu: sum depends on out", n);
            same_bits("exp_sum in place", xp, op, n);
            free(want);
            area_free(&x);
            area_free(&out);
        }
}

/* ---- measuring kernels -------------------------------------------------- */

static void check_read_sum(const struct kernels *k, enum dtype type)
{
    for (size_t t = 0; t < N_SIZES; t++) {
        size_t n = size_at(t);
        struct area a = area_new(n, below(9));
        uint64_t want = 0;

        for (size_t i = 0; i < n; i++)
            ((unsigned char *)a.p)[i] = (unsigned char)below(256);
        area_keep(&a);
        for (size_t i = 0; i < n; i++)
            want += (uint64_t)((unsigned char *)a.p)[i] << i % 8 * 8;
        for (int to_l2 = 0; to_l2 < 2; to_l2++)
            if (k->read_sum(a.p, n, to_l2) != want)
                fail_msg("read_sum of %zu bytes", n);
        area_same(&a, "read_sum");
        area_free(&a);
    }
}

static void check_peak(const struct kernels *k, enum dtype type)
{
    float sink = NAN;
    double ops = k->peak_flops(2, &sink);

    if (!(ops > 1.9e7 && ops < 2.1e7) || !isfinite(sink))
        fail_msg("peak_flops says %g operations", ops);
}

static void check_peak_bf16(const struct kernels *k, enum dtype type)
{
    float sink = NAN;
    double ops;

    if (!k->peak_bf16)
        return;
    ops = k->peak_bf16(2, &sink);
    if (!(ops > 1.9e7 && ops < 2.1e7) || !isfinite(sink))
        fail_msg("peak_bf16 says %g operations", ops);
}

/* Every level has every kernel, its own or another level's, except the kernels
 * in bf16, which lower levels lack; ARM has no attention in bf16. */
static void check_table(const struct kernels *k, enum dtype type)
{
    const unsigned char *p = (const unsigned char *)k;

    for (size_t i = offsetof(struct kernels, matmul_f32); i < sizeof *k;
         i += sizeof(void (*)(void))) {
        void (*fn)(void);

        if (!x86_from(k, ISA_AMX) &&
            (i == offsetof(struct kernels, gemm_bf16_affine) ||
             (i >= offsetof(struct kernels, gemm_bf16_blocks) &&
              i < offsetof(struct kernels, gemm_bf16_blocks) +
                      sizeof k->gemm_bf16_blocks)))
            continue;
        if (!has_bf16(k) &&
            (i == offsetof(struct kernels, gemm_bf16) ||
             i == offsetof(struct kernels, gemm_bf16_fp8) ||
             i == offsetof(struct kernels, peak_bf16)))
            continue;
        if (!x86_from(k, ISA_AVX512BF16) &&
            i >= offsetof(struct kernels, attn_blocks_bf16) &&
            i < offsetof(struct kernels, attn_blocks_bf16) +
                    sizeof k->attn_blocks_bf16)
            continue;
        memcpy(&fn, p + i, sizeof fn);
        if (!fn)
            fail_msg("entry at byte %zu is NULL", i);
    }
}

/* ---- benches ------------------------------------------------------------ */

static void bench_convert(const struct kernels *k, enum dtype type, bool to)
{
    enum { N = 65536 };
    struct area h = area_new(2 * N, 0), f = area_new(4 * N, 0);
    double ms;

    fill(f.p, N, NORMAL, 0);
    ref->from_f32[type](h.p, f.p, N);
    if (to)
        TIME(ms, k->to_f32[type](f.p, h.p, N));
    else
        TIME(ms, k->from_f32[type](h.p, f.p, N));
    bench_line(benched, "65536", ms, 6 * N, "GB/s");
    area_free(&h);
    area_free(&f);
}

static void bench_to_f32(const struct kernels *k, enum dtype type)
{
    bench_convert(k, type, true);
}

static void bench_from_f32(const struct kernels *k, enum dtype type)
{
    bench_convert(k, type, false);
}

enum row_op {
    ROW_RMSNORM,
    ROW_LAYERNORM,
    ROW_ROPE,
    ROW_SWIGLU,
    ROW_GEGLU,
    ROW_GEGLU_ERF,
    ROW_CLAMPED,
    ROW_GLU,
    ROW_ADD,
    ROW_CAP,
    ROW_MAX,
    ROW_EXP
};

static void bench_rows(const struct kernels *k, enum row_op op)
{
    enum { N = 3072 };
    struct area x = area_new(4 * N, 0), y = area_new(4 * N, 0),
                z = area_new(4 * N, 0);
    double ms = 0;

    fill(x.p, N, NORMAL, 0);
    fill(y.p, N, NORMAL, 0);
    switch (op) {
    case ROW_RMSNORM:
        TIME(ms, k->rmsnorm(z.p, x.p, y.p, 1, N, 1e-6f));
        break;
    case ROW_LAYERNORM:
        TIME(ms, k->layernorm(z.p, x.p, y.p, 2, N / 2, 1e-6f));
        break;
    case ROW_ROPE: /* rotate by 0, so that values do not change */
        memset(y.p, 0, 4 * N);
        for (int i = 0; i < 64; i++)
            ((float *)y.p)[i] = 1;
        TIME(ms, k->rope(x.p, N / 128, 128, y.p, (float *)y.p + 64));
        break;
    case ROW_SWIGLU:
        TIME(ms, k->swiglu(z.p, x.p, y.p, N));
        break;
    case ROW_GEGLU:
        TIME(ms, k->geglu(z.p, x.p, y.p, N));
        break;
    case ROW_GEGLU_ERF:
        TIME(ms, k->geglu_erf(z.p, x.p, NULL, N));
        break;
    case ROW_CLAMPED:
        TIME(ms, k->clamped_swiglu(z.p, x.p, y.p, N));
        break;
    case ROW_GLU:
        TIME(ms, k->glu(z.p, x.p, y.p, N));
        break;
    case ROW_ADD:
        memset(y.p, 0, 4 * N);
        TIME(ms, k->add(x.p, y.p, N));
        break;
    case ROW_CAP:
        TIME(ms, k->cap(x.p, 30, N));
        break;
    case ROW_MAX: {
        volatile float got;

        TIME(ms, got = k->max(x.p, N));
        (void)got;
        break;
    }
    case ROW_EXP: {
        volatile double got;

        TIME(ms, got = k->exp_sum(z.p, x.p, N, 2, 1));
        (void)got;
        break;
    }
    }
    bench_line(benched, "3072", ms, N, "G/s");
    area_free(&x);
    area_free(&y);
    area_free(&z);
}

#define BENCH_ROWS(name, op)                                           \
    static void bench_##name(const struct kernels *k, enum dtype type) \
    {                                                                  \
        (void)type;                                                    \
        bench_rows(k, op);                                             \
    }

BENCH_ROWS(rmsnorm, ROW_RMSNORM)
BENCH_ROWS(layernorm, ROW_LAYERNORM)
BENCH_ROWS(rope, ROW_ROPE)
BENCH_ROWS(swiglu, ROW_SWIGLU)
BENCH_ROWS(geglu, ROW_GEGLU)
BENCH_ROWS(geglu_erf, ROW_GEGLU_ERF)
BENCH_ROWS(clamped, ROW_CLAMPED)
BENCH_ROWS(glu, ROW_GLU)
BENCH_ROWS(add, ROW_ADD)
BENCH_ROWS(cap, ROW_CAP)
BENCH_ROWS(max, ROW_MAX)
BENCH_ROWS(exp, ROW_EXP)

static void bench_read_sum(const struct kernels *k, enum dtype type)
{
    size_t n = (size_t)256 << 20;
    struct area a = area_new(n, 0);
    volatile unsigned long long got;
    double ms;

    TIME(ms, got = k->read_sum(a.p, n, kernel_core.sweep_l2));
    (void)got;
    bench_line(benched, "256 MiB", ms, (double)n, "GB/s");
    area_free(&a);
}

static void bench_peak(const struct kernels *k, enum dtype type)
{
    float sink;
    double ms, ops = 0;

    TIME(ms, ops = k->peak_flops(10, &sink));
    bench_line(benched, "", ms, ops, "GFLOP/s");
}

static void bench_peak_bf16(const struct kernels *k, enum dtype type)
{
    float sink;
    double ms, ops = 0;

    if (!k->peak_bf16)
        return;
    TIME(ms, ops = k->peak_bf16(10, &sink));
    bench_line(benched, "", ms, ops, "GFLOP/s");
}

/* ---- main --------------------------------------------------------------- */

static const struct check_row rows[] = {
    {"table", DT_F32, DT_F32, check_table, NULL},
    {"to_f32", DT_F16, DT_BF16, check_to_f32, bench_to_f32},
    {"from_f32", DT_F16, DT_BF16, check_from_f32, bench_from_f32},
    {"rmsnorm", DT_F32, DT_F32, check_rmsnorm, bench_rmsnorm},
    {"layernorm", DT_F32, DT_F32, check_layernorm, bench_layernorm},
    {"rope", DT_F32, DT_F32, check_rope, bench_rope},
    {"swiglu", DT_F32, DT_F32, check_swiglu, bench_swiglu},
    {"geglu", DT_F32, DT_F32, check_geglu, bench_geglu},
    {"geglu_erf", DT_F32, DT_F32, check_geglu_erf, bench_geglu_erf},
    {"clamped_swiglu", DT_F32, DT_F32, check_clamped, bench_clamped},
    {"glu", DT_F32, DT_F32, check_sigmoid_glu, bench_glu},
    {"add_scale", DT_F32, DT_F32, check_add_scale, bench_add},
    {"cap", DT_F32, DT_F32, check_cap, bench_cap},
    {"max", DT_F32, DT_F32, check_max, bench_max},
    {"exp", DT_F32, DT_F32, check_exp, NULL},
    {"exp_sum", DT_F32, DT_F32, check_exp_sum, bench_exp},
    {"read_sum", DT_F32, DT_F32, check_read_sum, bench_read_sum},
    {"peak_flops", DT_F32, DT_F32, check_peak, bench_peak},
    {"peak_bf16", DT_BF16, DT_BF16, check_peak_bf16, bench_peak_bf16},
};

int main(int argc, char **argv)
{
    return check_main(argc, argv, "kernels", rows, sizeof rows / sizeof *rows,
                      NULL, 0);
}
