/* The kernels of Gated DeltaNet layers, at all levels of this CPU: against the
 * reference, in calls of any length, and against the recurrence of the paper.
 * check_table.h has the options. */
#include "check_table.h"

#define BLOCK DELTA_BLOCK

/* ---- l2norm ------------------------------------------------------------- */

static void check_l2norm(const struct kernels *k, enum dtype type)
{
    for (size_t s = 0; s < N_SIZES; s++)
        for (int kind = 0; kind < N_KINDS; kind++) {
            size_t d = size_at(s), rows = 1 + below(4), n = rows * d;
            struct area x = area_new(4 * n, 4 * below(3));
            struct area out = area_new(4 * n, 4 * below(3));
            float *want = must(malloc(4 * n)), *op = out.p;

            fill(x.p, n, (enum kind)kind, 1e30f);
            area_keep(&x);
            k->l2norm(op, x.p, rows, d, 1e-6f, 0.25f);
            ref->l2norm(want, x.p, rows, d, 1e-6f, 0.25f);
            area_check(&out, "l2norm");
            area_same(&x, "l2norm");
            /* roundings: the factor, the product, the reference */
            for (size_t i = 0; i < n; i++)
                near(kind_names[kind], i, n, (double)op[i], (double)want[i],
                     3.01 * U * fabs((double)want[i]) + 2 * TINY);
            for (size_t r = 0; r < rows; r++)
                k->l2norm(want + r * d, (float *)x.p + r * d, 1, d, 1e-6f,
                          0.25f);
            same_bits("l2norm, rows alone", op, want, n);
            k->l2norm(x.p, x.p, rows, d, 1e-6f, 0.25f);
            same_bits("l2norm in place", op, x.p, n);
            free(want);
            area_free(&x);
            area_free(&out);
        }
}

/* ---- conv_silu ---------------------------------------------------------- */

static void conv_case(const struct kernels *k, size_t channels, size_t taps,
                      size_t tokens, enum kind kind)
{
    const size_t ldo = channels + below(3), ldw = channels + below(3);
    const size_t rows = tokens + taps - 1, n = tokens * ldo;
    struct area x = area_new(4 * rows * channels, 4 * below(3));
    struct area w = area_new(4 * taps * ldw, 4 * below(3));
    struct area out = area_new(4 * n, 4 * below(3));
    const float **xs = must(malloc(rows * sizeof *xs));
    float *want = must(malloc(4 * n)), *op = out.p, *wp = w.p;

    /* the rows are in any order */
    for (size_t i = 0; i < rows; i++)
        xs[i] = (float *)x.p + (rows - 1 - i) * channels;
    fill(x.p, rows * channels, kind, 1e30f);
    fill(wp, taps * ldw, NORMAL, 0);
    area_keep(&x);
    area_keep(&w);
    k->conv_silu(op, ldo, xs, wp, ldw, channels, taps, tokens);
    ref->conv_silu(want, ldo, xs, wp, ldw, channels, taps, tokens);
    area_check(&out, "conv_silu");
    area_same(&x, "conv_silu");
    area_same(&w, "conv_silu");
    for (size_t t = 0; t < tokens; t++)
        for (size_t c = 0; c < ldo; c++) {
            double mag = 0, z = 0, slack, w1 = (double)want[t * ldo + c];

            if (c >= channels) {
                if (!isnan(op[t * ldo + c]))
                    fail_msg("conv_silu: wrote between rows");
                continue;
            }
            for (size_t j = 0; j < taps; j++) {
                double term = (double)wp[j * ldw + c] * (double)xs[t + j][c];

                z += term;
                mag += fabs(term);
            }
            /* the sum rounds once for each tap; silu's slope is at most 1.1.
             * Then silu itself: see silu_error in check_kernels.c. Where the
             * exponential overflows, the result is 0. */
            slack = z < -88 ? 90 * exp(-88.5) : 0;
            near(kind_names[kind], t * ldo + c, n, (double)op[t * ldo + c], w1,
                 1.1 * (double)taps * (U * mag + TINY) + 8.01 * U * fabs(w1) +
                     slack + 2 * TINY);
        }
    /* a token or a channel alone has the same bits */
    for (size_t t = 0; t < tokens; t++)
        k->conv_silu(want + t * ldo, ldo, xs + t, wp, ldw, channels, taps, 1);
    for (size_t t = 0; t < tokens; t++)
        same_bits("conv_silu, tokens alone", op + t * ldo, want + t * ldo,
                  channels);
    for (size_t c = 0; c < channels; c++) {
        const float **at = must(malloc(rows * sizeof *at));

        for (size_t i = 0; i < rows; i++)
            at[i] = xs[i] + c;
        k->conv_silu(want + c, ldo, at, wp + c, ldw, 1, taps, tokens);
        free(at);
    }
    for (size_t t = 0; t < tokens; t++)
        same_bits("conv_silu, channels alone", op + t * ldo, want + t * ldo,
                  channels);
    free(want);
    free(xs);
    area_free(&x);
    area_free(&w);
    area_free(&out);
}

static void check_conv_silu(const struct kernels *k, enum dtype type)
{
    for (size_t channels = 1; channels <= 67; channels++)
        for (int kind = 0; kind < N_KINDS; kind++)
            conv_case(k, channels, 1 + below(8), 1 + below(5), (enum kind)kind);
    for (size_t taps = 1; taps <= BLOCK; taps++)
        conv_case(k, 127 + below(3), taps, 1 + below(BLOCK), NORMAL);
}

/* ---- conv_gated --------------------------------------------------------- */

static void gated_case(const struct kernels *k, size_t channels, size_t taps,
                       size_t tokens, enum kind kind)
{
    const size_t ldo = channels + below(3), ldg = channels + below(3);
    const size_t rows = tokens + taps - 1, n = tokens * ldo;
    struct area x = area_new(4 * rows * channels, 4 * below(3));
    struct area w = area_new(4 * taps * channels, 4 * below(3));
    struct area gate = area_new(4 * tokens * ldg, 4 * below(3));
    struct area out = area_new(4 * n, 4 * below(3));
    const float **xs = must(malloc(rows * sizeof *xs));
    float *want = must(malloc(4 * n)), *op = out.p, *wp = w.p, *gp = gate.p;

    for (size_t i = 0; i < rows; i++)
        xs[i] = (float *)x.p + (rows - 1 - i) * channels;
    fill(x.p, rows * channels, kind, 1e15f);
    fill(gp, tokens * ldg, kind, 1e15f);
    fill(wp, taps * channels, NORMAL, 0);
    area_keep(&x);
    area_keep(&w);
    area_keep(&gate);
    k->conv_gated(op, ldo, gp, ldg, xs, wp, channels, channels, taps, tokens);
    ref->conv_gated(want, ldo, gp, ldg, xs, wp, channels, channels, taps,
                    tokens);
    area_check(&out, "conv_gated");
    area_same(&x, "conv_gated");
    area_same(&w, "conv_gated");
    area_same(&gate, "conv_gated");
    for (size_t t = 0; t < tokens; t++)
        for (size_t c = 0; c < channels; c++) {
            double mag = 0, g = fabs((double)gp[t * ldg + c]);

            for (size_t j = 0; j < taps; j++)
                mag +=
                    fabs((double)wp[j * channels + c] * (double)xs[t + j][c]);
            /* a rounding for each tap, of the product, of the reference */
            near(kind_names[kind], t * ldo + c, n, (double)op[t * ldo + c],
                 (double)want[t * ldo + c],
                 ((double)taps + 2.01) * U * mag * g +
                     ((double)taps * g + 2) * TINY);
        }
    /* in place, and a token alone, with the same bits */
    for (size_t t = 0; t < tokens; t++)
        k->conv_gated(gp + t * ldg, ldg, gp + t * ldg, ldg, xs + t, wp, channels,
                      channels, taps, 1);
    for (size_t t = 0; t < tokens; t++)
        same_bits("conv_gated, tokens alone", op + t * ldo, gp + t * ldg,
                  channels);
    free(want);
    free(xs);
    area_free(&x);
    area_free(&w);
    area_free(&gate);
    area_free(&out);
}

static void check_conv_gated(const struct kernels *k, enum dtype type)
{
    for (size_t channels = 1; channels <= 67; channels++)
        for (int kind = 0; kind < N_KINDS; kind++)
            gated_case(k, channels, 1 + below(8), 1 + below(5),
                       (enum kind)kind);
}

/* ---- a head ------------------------------------------------------------- */

enum decay { MILD, NONE, STRONG, SUDDEN, ENDLESS, N_DECAYS };

static const char *const decay_names[N_DECAYS] = {
    "mild decay", "no decay", "strong decay", "sudden decay", "decay to 0"};

/* The operands of a whole block. */
struct head {
    size_t d_k, d_v;
    struct area s, k, q, kk, qk, v, g, beta, u, o, next, scratch;
};

static float decay_at(enum decay decay)
{
    double r = uniform();

    switch (decay) {
    case NONE:
        return 0;
    case STRONG:
        return (float)(-200 * r);
    case SUDDEN:
        return r < 0.1 ? -3e4f : (float)(-r / 100);
    case ENDLESS:
        return r < 0.1 ? -INFINITY : -FLT_MAX / 4;
    default:
        return (float)-r;
    }
}

static struct area floats_new(size_t n, size_t offset)
{
    return area_new(n * sizeof(float), 4 * offset);
}

/* Products of the first `to` rows of x with the keys up to the same position
 * (diagonal: this one, too); NaN elsewhere. */
static void fill_products(const struct head *h, float *out, const float *x,
                          bool diagonal)
{
    const float *k = h->k.p;

    for (size_t t = 0; t < BLOCK; t++)
        for (size_t i = 0; i < BLOCK; i++) {
            double sum = 0;

            for (size_t j = 0; j < h->d_k; j++)
                sum += (double)x[t * h->d_k + j] * (double)k[i * h->d_k + j];
            out[t * BLOCK + i] = i < t + diagonal ? (float)sum : NAN;
        }
}

static struct head head_new(size_t d_k, size_t d_v, enum kind kind,
                            enum decay decay, double beta)
{
    struct head h = {.d_k = d_k, .d_v = d_v};
    float *g, *b;

    h.s = floats_new(d_k * d_v, below(3));
    h.k = floats_new(BLOCK * d_k, below(3));
    h.q = floats_new(BLOCK * d_k, below(3));
    h.kk = floats_new(BLOCK * BLOCK, below(3));
    h.qk = floats_new(BLOCK * BLOCK, below(3));
    h.v = floats_new(BLOCK * d_v, below(3));
    h.g = floats_new(BLOCK, below(3));
    h.beta = floats_new(BLOCK, below(3));
    h.u = floats_new(BLOCK * d_v, below(3));
    h.o = floats_new(BLOCK * d_v, below(3));
    h.next = floats_new(d_k * d_v, below(3));
    h.scratch = floats_new(delta_scratch(BLOCK, d_v), 0);
    fill(h.s.p, d_k * d_v, kind, 1e15f);
    fill(h.v.p, BLOCK * d_v, kind, 1e15f);
    fill(h.k.p, BLOCK * d_k, NORMAL, 0);
    fill(h.q.p, BLOCK * d_k, NORMAL, 0);
    ref->l2norm(h.k.p, h.k.p, BLOCK, d_k, 1e-6f, 1);
    ref->l2norm(h.q.p, h.q.p, BLOCK, d_k, 1e-6f, 1 / sqrtf((float)d_k));
    fill_products(&h, h.kk.p, h.k.p, false);
    fill_products(&h, h.qk.p, h.q.p, true);
    g = h.g.p;
    b = h.beta.p;
    for (size_t t = 0; t < BLOCK; t++) {
        g[t] = decay_at(decay);
        b[t] = (float)(beta * uniform());
    }
    area_keep(&h.s);
    area_keep(&h.k);
    area_keep(&h.q);
    area_keep(&h.kk);
    area_keep(&h.qk);
    area_keep(&h.v);
    area_keep(&h.g);
    area_keep(&h.beta);
    return h;
}

static void head_free(struct head *h)
{
    struct area *all[] = {&h->s,  &h->k, &h->q,    &h->kk,
                          &h->qk, &h->v, &h->g,    &h->beta,
                          &h->u,  &h->o, &h->next, &h->scratch};

    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        area_free(all[i]);
}

static void head_same(const struct head *h, const char *what)
{
    const struct area *in[] = {&h->s,  &h->k, &h->q, &h->kk,
                               &h->qk, &h->v, &h->g, &h->beta};

    for (size_t i = 0; i < sizeof in / sizeof *in; i++)
        area_same(in[i], what);
    area_check(&h->u, what);
    area_check(&h->o, what);
    area_check(&h->next, what);
    area_check(&h->scratch, what);
}

/* The kernel's view of positions [from, to). Results go to u and o, which
 * begin at the block's start. */
static struct delta_head view(const struct head *h, size_t from, size_t to,
                              float *u, float *o)
{
    return (struct delta_head){
        .d_k = h->d_k,
        .d_v = h->d_v,
        .from = from,
        .to = to,
        .s = h->s.p,
        .k = h->k.p,
        .q = (float *)h->q.p + from * h->d_k,
        .kk = (float *)h->kk.p + from * BLOCK,
        .qk = (float *)h->qk.p + from * BLOCK,
        .v = (float *)h->v.p + from * h->d_v,
        .g = h->g.p,
        .beta = (float *)h->beta.p + from,
        .u = u,
        .o = o + from * h->d_v,
    };
}

/* ---- bounds ------------------------------------------------------------- */

/* The exponential of a decay, and the most that a kernel's may be off: its
 * argument by a rounding for each of n additions, itself by two units (4 u),
 * and the product with it by another rounding. Below exp(-87) it may be 0. */
struct weight {
    double value, off;
};

static struct weight weight_of(double sum, size_t n)
{
    struct weight w = {.value = exp(sum)};
    double argument = (double)n * U * -sum;

    w.off = sum < -86.9 ? exp(-86.9) : w.value * (expm1(argument) + 5 * U);
    return w;
}

/* D[t, i], for i = -1 G[t]. */
static double decay_sum(const float *g, size_t t, ptrdiff_t i)
{
    double sum = 0;

    for (size_t j = (size_t)(i + 1); j <= t; j++)
        sum += (double)g[j];
    return sum;
}

/* |S^T x| element j, with magnitudes. */
static double state_mag(const struct head *h, const float *x, size_t j)
{
    const float *s = h->s.p;
    double sum = 0;

    for (size_t i = 0; i < h->d_k; i++)
        sum += fabs((double)s[i * h->d_v + j] * (double)x[i]);
    return sum;
}

/* The most that column j of row t of u (o: of o) may be off, where u [BLOCK,
 * d_v] and its errors off [BLOCK] are known for the rows before, and for o this
 * one: the state's part rounds d_k times, the sum once for each term; errors of
 * u pass through. */
static double row_bound(const struct head *h, const struct weight *w,
                        struct weight keep, const float *u, const double *off,
                        size_t t, size_t j, bool o)
{
    const float *x = (float *)(o ? h->q.p : h->k.p) + t * h->d_k;
    const float *a = (float *)(o ? h->qk.p : h->kk.p) + t * BLOCK;
    const double v = o ? 0 : fabs((double)((float *)h->v.p)[t * h->d_v + j]);
    const double from_s = state_mag(h, x, j);
    double mag = v + keep.value * from_s, bound, terms = (double)t + 2;

    bound = keep.off * from_s +
            keep.value * (double)h->d_k * (U * from_s + TINY) + TINY;
    for (size_t i = 0; i < t + o; i++) {
        double part = fabs((double)a[i] * (double)u[i * h->d_v + j]);

        mag += w[i].value * part;
        bound += w[i].off * part + w[i].value * fabs((double)a[i]) * off[i];
        /* the weight's product may be subnormal, too */
        bound += TINY * (1 + fabs((double)u[i * h->d_v + j]));
    }
    return bound + terms * U * mag;
}

/* Check u and o against the reference's, both [BLOCK, d_v]. */
static void check_rows(const struct head *h, const char *what, const float *u,
                       const float *o, const float *want_u, const float *want_o)
{
    const float *g = h->g.p, *beta = h->beta.p;
    const size_t n = BLOCK * h->d_v;
    struct weight w[BLOCK][BLOCK + 1];

    for (size_t t = 0; t < BLOCK; t++)
        for (size_t i = 0; i <= t + 1; i++)
            w[t][i] = weight_of(decay_sum(g, t, (ptrdiff_t)i - 1), t);
    for (size_t j = 0; j < h->d_v; j++) {
        double off[BLOCK];

        for (size_t t = 0; t < BLOCK; t++) {
            size_t at = t * h->d_v + j;
            double b = fabs((double)beta[t]);

            off[t] = row_bound(h, w[t] + 1, w[t][0], want_u, off, t, j, false);
            /* times beta, and the reference's rounding */
            off[t] = b * off[t] + 2 * U * (fabs((double)want_u[at]) + off[t]) +
                     2 * TINY;
            near(what, at, n, (double)u[at], (double)want_u[at], off[t]);
            near(what, at, n, (double)o[at], (double)want_o[at],
                 row_bound(h, w[t] + 1, w[t][0], want_u, off, t, j, true) +
                     U * fabs((double)want_o[at]) + TINY);
        }
    }
}

/* ---- delta_rows --------------------------------------------------------- */

static void run_rows(const struct kernels *k, const struct head *h, float *u,
                     float *o, size_t from, size_t to)
{
    struct delta_head call = view(h, from, to, u, o);

    memset(h->scratch.p, 0xff, h->scratch.bytes);
    k->delta_rows(&call, h->scratch.p);
}

/* The block in pieces has the same bits. What is behind the last position of
 * a piece must not matter. */
static void check_pieces(const struct kernels *k, const struct head *h,
                         const char *what)
{
    size_t n = BLOCK * h->d_v;
    float *u = must(malloc(4 * n)), *o = must(malloc(4 * n));

    memset(u, 0xff, 4 * n);
    for (size_t from = 0, to; from < BLOCK; from = to) {
        size_t most = BLOCK - from;

        to = from + 1 + below(below(2) ? most : most < 3 ? most : 3);
        run_rows(k, h, u, o, from, to);
    }
    same_bits(what, u, h->u.p, n);
    same_bits(what, o, h->o.p, n);
    for (size_t t = 0; t < BLOCK; t++)
        run_rows(k, h, u, o, t, t + 1);
    same_bits(what, u, h->u.p, n);
    same_bits(what, o, h->o.p, n);
    free(u);
    free(o);
}

static void check_next(const struct kernels *k, const struct head *h,
                       const char *what)
{
    const float *s = h->s.p, *g = h->g.p, *kp = h->k.p, *u = h->u.p;
    const float *got = h->next.p;
    size_t n = h->d_k * h->d_v, last = BLOCK - 1;
    struct weight w[BLOCK], keep = weight_of(decay_sum(g, last, -1), last);
    float *want = must(malloc(4 * n));
    struct delta_head call = view(h, 0, BLOCK, h->u.p, h->o.p);

    k->delta_state(h->next.p, &call);
    ref->delta_state(want, &call);
    for (size_t t = 0; t < BLOCK; t++)
        w[t] = weight_of(decay_sum(g, last, (ptrdiff_t)t), last);
    for (size_t i = 0; i < h->d_k; i++)
        for (size_t j = 0; j < h->d_v; j++) {
            size_t at = i * h->d_v + j;
            double mag = keep.value * fabs((double)s[at]);
            double bound = keep.off * fabs((double)s[at]) + TINY;

            for (size_t t = 0; t < BLOCK; t++) {
                double ku = fabs((double)kp[t * h->d_k + i] *
                                 (double)u[t * h->d_v + j]);

                mag += w[t].value * ku;
                bound += w[t].off * ku +
                         TINY * (1 + fabs((double)u[t * h->d_v + j]));
            }
            near(what, at, n, (double)got[at], (double)want[at],
                 bound + (BLOCK + 2) * U * mag);
        }
    free(want);
}

static void head_case(const struct kernels *k, size_t d_k, size_t d_v,
                      enum kind kind, enum decay decay, double beta)
{
    struct head h = head_new(d_k, d_v, kind, decay, beta);
    size_t n = BLOCK * d_v;
    float *want_u = must(malloc(4 * n)), *want_o = must(malloc(4 * n));
    char what[96];

    snprintf(what, sizeof what, "d_k %zu, d_v %zu, %s, %s, beta %g", d_k, d_v,
             kind_names[kind], decay_names[decay], beta);
    run_rows(k, &h, h.u.p, h.o.p, 0, BLOCK);
    run_rows(ref, &h, want_u, want_o, 0, BLOCK);
    head_same(&h, what);
    check_rows(&h, what, h.u.p, h.o.p, want_u, want_o);
    check_next(k, &h, what);
    head_same(&h, what);
    check_pieces(k, &h, what);
    free(want_u);
    free(want_o);
    head_free(&h);
}

static void check_heads(const struct kernels *k, enum dtype type)
{
    static const size_t sizes[][2] = {{128, 128}, {127, 129}, {64, 256},
                                      {256, 65},  {1, 1},     {1, 200},
                                      {200, 1},   {16, 48},   {33, 31}};

    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        for (int decay = 0; decay < N_DECAYS; decay++)
            head_case(k, sizes[i][0], sizes[i][1], NORMAL, (enum decay)decay,
                      1);
    for (size_t d = 1; d <= 67; d++)
        head_case(k, 1 + below(67), d, (enum kind)below(N_KINDS),
                  (enum decay)below(N_DECAYS), below(3) ? 1 : 5);
}

/* ---- the recurrence ----------------------------------------------------- */

/* The paper's recurrence for n tokens, in double; s [d_k, d_v] starts and ends
 * as the state. */
static void recur(double *s, const struct head *blocks, size_t n, double *o)
{
    size_t d_k = blocks->d_k, d_v = blocks->d_v;

    for (size_t t = 0; t < n; t++) {
        const struct head *h = &blocks[t / BLOCK];
        size_t r = t % BLOCK;
        const float *k = (float *)h->k.p + r * d_k;
        const float *q = (float *)h->q.p + r * d_k;
        double keep = exp((double)((float *)h->g.p)[r]);

        for (size_t j = 0; j < d_v; j++) {
            double delta = (double)((float *)h->v.p)[r * d_v + j], sum = 0;

            for (size_t i = 0; i < d_k; i++) {
                s[i * d_v + j] *= keep;
                delta -= s[i * d_v + j] * (double)k[i];
            }
            delta *= (double)((float *)h->beta.p)[r];
            for (size_t i = 0; i < d_k; i++) {
                s[i * d_v + j] += (double)k[i] * delta;
                sum += s[i * d_v + j] * (double)q[i];
            }
            o[t * d_v + j] = sum;
        }
    }
}

/* Several blocks by the kernels equal the recurrence. */
static void recurrence_case(const struct kernels *k, size_t d_k, size_t d_v,
                            enum decay decay)
{
    enum { BLOCKS = 4, TOKENS = BLOCKS * BLOCK };
    struct head h[BLOCKS];
    double *s = must(calloc(d_k * d_v, sizeof *s)), most = 0;
    double *o = must(malloc(TOKENS * d_v * sizeof *o));

    for (size_t b = 0; b < BLOCKS; b++) {
        h[b] = head_new(d_k, d_v, NORMAL, decay, 1);
        if (b == 0)
            memset(h[b].s.p, 0, h[b].s.bytes);
        else
            memcpy(h[b].s.p, h[b - 1].next.p, h[b].s.bytes);
        struct delta_head call = view(&h[b], 0, BLOCK, h[b].u.p, h[b].o.p);

        k->matmul_f32[DT_F32](h[b].kk.p, BLOCK, h[b].k.p, d_k, h[b].k.p, d_k,
                              BLOCK, d_k, BLOCK, product_work());
        k->matmul_f32[DT_F32](h[b].qk.p, BLOCK, h[b].k.p, d_k, h[b].q.p, d_k,
                              BLOCK, d_k, BLOCK, product_work());
        run_rows(k, &h[b], h[b].u.p, h[b].o.p, 0, BLOCK);
        k->delta_state(h[b].next.p, &call);
    }
    recur(s, h, TOKENS, o);
    for (size_t i = 0; i < d_k * d_v; i++)
        most = fmax(most, fabs(s[i]));
    /* Keys have length 1 and beta is at most 1, so a token never amplifies
     * errors of the state. v is at most 2. Each of at most TOKENS updates adds
     * an error of d_k + BLOCK + 8 roundings of values up to 2 + |S^T k|, which
     * is at most 2 + sqrt(d_k) most. */
    double each = ((double)d_k + BLOCK + 8) * U;
    double bound = TOKENS * each * (4 + sqrt((double)d_k) * most);
    for (size_t b = 0; b < BLOCKS; b++)
        for (size_t i = 0; i < BLOCK * d_v; i++)
            near(decay_names[decay], b * BLOCK * d_v + i, TOKENS * d_v,
                 (double)((float *)h[b].o.p)[i], o[b * BLOCK * d_v + i], bound);
    for (size_t i = 0; i < d_k * d_v; i++)
        near("last state", i, d_k * d_v,
             (double)((float *)h[BLOCKS - 1].next.p)[i], s[i], bound);
    for (size_t b = 0; b < BLOCKS; b++)
        head_free(&h[b]);
    free(s);
    free(o);
}

static void check_recurrence(const struct kernels *k, enum dtype type)
{
    for (int decay = 0; decay < ENDLESS; decay++) {
        recurrence_case(k, 128, 128, (enum decay)decay);
        recurrence_case(k, 16, 40, (enum decay)decay);
        recurrence_case(k, 5, 3, (enum decay)decay);
    }
}

/* ---- speed -------------------------------------------------------------- */

/* Milliseconds of the fastest of some runs of rows [from, to), repeated. */
static double time_rows(const struct kernels *k, const struct head *h,
                        size_t from, size_t to, size_t reps)
{
    double best = INFINITY;

    for (size_t run = 0; run < 7; run++) {
        double start = clock_ms();

        for (size_t i = 0; i < reps; i++) {
            struct delta_head call = view(h, from, to, h->u.p, h->o.p);

            k->delta_rows(&call, h->scratch.p);
        }
        best = fmin(best, (clock_ms() - start) / (double)reps);
    }
    return best;
}

static double time_state(const struct kernels *k, const struct head *h,
                         size_t reps)
{
    struct delta_head call = view(h, 0, BLOCK, h->u.p, h->o.p);
    double best = INFINITY;

    for (size_t run = 0; run < 7; run++) {
        double start = clock_ms();

        for (size_t i = 0; i < reps; i++)
            k->delta_state(h->next.p, &call);
        best = fmin(best, (clock_ms() - start) / (double)reps);
    }
    return best;
}

static double time_conv(const struct kernels *k, size_t tokens, size_t reps)
{
    enum { CHANNELS = 128, TAPS = 4 };
    static float x[(BLOCK + TAPS) * CHANNELS], w[TAPS * CHANNELS];
    static float out[BLOCK * CHANNELS];
    const float *rows[BLOCK + TAPS];
    double best = INFINITY;

    fill(x, sizeof x / sizeof *x, NORMAL, 0);
    fill(w, sizeof w / sizeof *w, NORMAL, 0);
    for (size_t i = 0; i < BLOCK + TAPS; i++)
        rows[i] = x + i * CHANNELS;
    for (size_t run = 0; run < 7; run++) {
        double start = clock_ms();

        for (size_t i = 0; i < reps; i++)
            k->conv_silu(out, CHANNELS, rows, w, CHANNELS, CHANNELS, TAPS,
                         tokens);
        best = fmin(best, (clock_ms() - start) / (double)reps);
    }
    return best;
}

static void bench_heads(const struct kernels *k, enum dtype type)
{
    struct head h = head_new(128, 128, NORMAL, MILD, 1);
    double start = clock_ms(), peak;
    float sink;

    peak = k->peak_flops(20, &sink);
    peak /= clock_ms() - start;
    time_rows(k, &h, 0, BLOCK, 1);
    double step = time_rows(k, &h, 15, 16, 500);
    double block = time_rows(k, &h, 0, BLOCK, 50);
    double state = time_state(k, &h, 50);
    /* multiply-adds of one block: S with keys and queries, and the update */
    double flops = 2.0 * 128 * 128 * BLOCK;
    printf("%s: 128 x 128: one token %.2f us, a block %.2f us (%.0f%% of "
           "peak), its state %.2f us (%.0f%%), convolution of 128 channels "
           "%.3f and %.2f us\n",
           benched->name, step * 1e3, block * 1e3,
           100 * 2 * flops / block / peak, state * 1e3,
           100 * flops / state / peak, time_conv(k, 1, 1000) * 1e3,
           time_conv(k, BLOCK, 100) * 1e3);
    head_free(&h);
}

static const struct check_row rows[] = {
    {"l2norm", DT_F32, DT_F32, check_l2norm, NULL},
    {"conv_silu", DT_F32, DT_F32, check_conv_silu, NULL},
    {"conv_gated", DT_F32, DT_F32, check_conv_gated, NULL},
    {"delta", DT_F32, DT_F32, check_heads, bench_heads},
    {"delta_recurrence", DT_F32, DT_F32, check_recurrence, NULL},
};

int main(int argc, char **argv)
{
    return check_main(argc, argv, "Gated DeltaNet", rows,
                      sizeof rows / sizeof *rows, NULL, 0);
}
