/* Mixtures of experts (Qwen3MoeSparseMoeBlock in transformers):
 *
 *   p = softmax(router(x)) over all experts, in float32
 *   y = sum over the n_active largest p[e] of
 *       p[e] * down_proj[e](glu(gate_proj[e](x), up_proj[e](x)))
 *
 * where the chosen p[e] may be divided by their sum. With ROUTING_CHOSEN, p is
 * the softmax over the n_active largest scores (GptOssTopKRouter); with
 * ROUTING_SIGMOID, it is the sigmoid of the score, and a bias may be added to it
 * for the choice (Lfm2MoeSparseMoeBlock). Router and experts may have biases, and
 * experts a factor each. A shared expert
 * (Qwen3_5MoeSparseMoeBlock) adds sigmoid(shared_gate . x) times its result to
 * y.
 *
 * A pass sorts its tokens by expert into slots, and a product takes all slots
 * of an expert at once. Decode and small batches are limited by memory: the
 * rows of all active experts are split among the threads as if they were one
 * matrix's. */
#include <math.h>
#include <string.h>

#include "model/pass.h"

/* From so many tokens on, threads take experts as they come, because these
 * differ in tokens; below, an expert's weights cost the same for any number. */
enum { DYNAMIC_MIN_TOKENS = 64, PIECES_PER_THREAD = 4 };

/* Experts with up to so many tokens on average do without rounding to bf16: it
 * would save little or nothing. Where the kernels have room for twice as many
 * tokens, each activation is the sum of two bf16 numbers; elsewhere it is f32.
 */
enum { PRECISE_MAX_ROWS = 8 };

/* Slots of an expert whose pairs lie together. */
enum { PAIRS_BLOCK = 64 };

/* One layer's experts in a pass, as one thread sees it. */
struct mixture {
    const struct experts *x;
    struct worker w; /* with `pass` */
    /* The pass as an expert sees it, which has its share of the tokens: this
       chooses the kernels and the types of activations. */
    struct pass pass;
    size_t rows; /* of an expert, on average, rounded up */
    bool pairs;  /* activations are sums of two bf16 numbers */
    const struct routing *r;
    struct input in; /* of gate_proj and up_proj: rows are tokens */
    struct input to; /* of down_proj: rows are slots; with pairs, of n slots
                        from `slot` on that go together, the rows from 2 * slot
                        on are n first numbers, then n second ones */
};

/* Whether the kernels of an expert's float weights take bf16 numbers of n
 * tokens. */
static bool all_take_bf16(const struct pass *p, const struct experts *x,
                          size_t n)
{
    const struct matrix *const all[] = {x->gate, x->up, x->down};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        if (!all[i]->format->is_float ||
            pass_act_type(p, all[i], n) != ACT_BF16)
            return false;
    return true;
}

static void open_mixture(struct mixture *m, const struct worker *w,
                         const struct experts *x, size_t n)
{
    *m = (struct mixture){.x = x, .w = *w, .pass = *w->p};
    m->rows = (n * x->n_active + x->n - 1) / x->n;
    bool precise = m->pass.bf16 && m->rows <= PRECISE_MAX_ROWS;
    m->pairs = precise && m->rows >= w->p->m->gemm_min_tokens &&
               w->k->tune.bf16_pairs && all_take_bf16(&m->pass, x, m->rows);
    if ((precise && !m->pairs) || m->rows < w->p->m->gemm_min_tokens)
        m->pass.products = PRODUCTS_SKINNY;
    m->pass.bf16 = m->pass.products == PRODUCTS_BF16;
    m->w.p = &m->pass;
    m->r = &w->own->routing;
}

/* ---- routing ------------------------------------------------------------- */

/* Scores of tokens [t, t + n) and experts [begin, end), in float32 and in one
 * order of sums in every mode. */
static void score(const struct worker *w, const struct experts *x,
                  const float *xn, size_t t, size_t n, size_t begin, size_t end)
{
    const struct matrix *router = &x->router;
    size_t ld = scratch_ld(router->cols);
    struct row_product p = {.w = router,
                            .row = begin,
                            .n_rows = end - begin,
                            .n = n,
                            .y = w->p->s->router + t * x->n + begin,
                            .ldy = x->n,
                            .work = w->own->work};
    if (!n || begin >= end)
        return;
    router->ops->mul_f32(w->k, &p, xn + t * ld, ld);
    for (size_t i = 0; x->router_bias && i < n; i++)
        w->k->add(p.y + i * x->n, x->router_bias + begin, end - begin);
}

/* Insert expert e, which comes after those in the list, into best[0..n): most
 * likely first. Of equal ones the lower index wins. torch.topk leaves that
 * open; it is the rule of a stable sort, and of jax.lax.top_k. */
static void insert(uint32_t *best, size_t n, size_t cap, const float *p,
                   uint32_t e)
{
    size_t i = n < cap ? n : cap - 1;
    if (n == cap && !(p[e] > p[best[i]]))
        return;
    for (; i > 0 && p[e] > p[best[i - 1]]; i--)
        best[i] = best[i - 1];
    best[i] = e;
}

static void softmax(const struct kernels *k, float *p, size_t n)
{
    double sum = k->exp_sum(p, p, n, k->max(p, n), 1);
    for (size_t i = 0; i < n; i++)
        p[i] = (float)(p[i] / sum);
}

/* Choose the experts of a token from its scores p, which become probabilities
 * unless those depend on the choice. biased [n] is overwritten. Scores that are
 * NaN also choose some experts. */
static void choose(const struct kernels *k, const struct experts *x, float *p,
                   float *biased, uint32_t *expert)
{
    size_t n_active = x->n_active;
    const float *by = p;
    if (x->routing == ROUTING_ALL)
        softmax(k, p, x->n);
    for (size_t e = 0; e < x->n && x->routing == ROUTING_SIGMOID; e++)
        p[e] = 1 / (1 + expf(-p[e]));
    if (x->select_bias) {
        memcpy(biased, p, x->n * sizeof *p);
        k->add(biased, x->select_bias, x->n);
        by = biased;
    }
    for (size_t e = 0; e < x->n; e++)
        insert(expert, e < n_active ? e : n_active, n_active, by, (uint32_t)e);
}

static void weigh(const struct kernels *k, const struct experts *x,
                  const float *p, const uint32_t *expert, float *weight)
{
    size_t n_active = x->n_active;
    float total = 0;
    for (size_t i = 0; i < n_active; i++)
        weight[i] = p[expert[i]];
    if (x->routing == ROUTING_CHOSEN)
        softmax(k, weight, n_active);
    for (size_t i = 0; i < n_active; i++)
        total += weight[i];
    for (size_t i = 0; i < n_active && x->normalise; i++)
        weight[i] /= total + x->sum_eps;
    for (size_t i = 0; i < n_active && x->scales; i++)
        weight[i] *= x->scales[expert[i]];
    for (size_t i = 0; i < n_active; i++)
        weight[i] *= x->scale;
}

/* Choose the experts of all n tokens: few tokens on every thread for itself,
 * after a barrier; many once, before it. */
static struct choice choose_all(struct worker *w, const struct experts *x,
                                const float *xn, size_t n)
{
    struct scratch *s = w->p->s;
    bool private = n <= SCRATCH_PRIVATE_TOKENS;
    struct choice c = private ? w->own->choice : s->choice;
    size_t begin, end, a = x->n_active;
    float *own = w->own->work, *biased = own + x->n; /* [n_experts] each */
    par_split(private ? x->n : n, private ? 8 : 1, w->tid, w->n_threads, &begin,
              &end);
    if (private)
        score(w, x, xn, 0, n, begin, end);
    else
        score(w, x, xn, begin, end - begin, 0, x->n);
    if (private) {
        pass_barrier(w, PART_PROJECTIONS);
        begin = 0;
        end = n;
    }
    for (size_t t = begin; t < end; t++) {
        memcpy(own, s->router + t * x->n, x->n * sizeof *own);
        choose(w->k, x, own, biased, c.expert + t * a);
        weigh(w->k, x, own, c.expert + t * a, c.weight + t * a);
    }
    if (!private)
        pass_barrier(w, PART_PROJECTIONS);
    return c;
}

/* Sort the choices of n tokens by expert. */
static void sort_slots(struct routing *r, const struct experts *x,
                       const struct choice *c, size_t n)
{
    size_t n_slots = n * x->n_active;
    memset(r->first, 0, (x->n + 1) * sizeof *r->first);
    for (size_t i = 0; i < n_slots; i++)
        r->first[c->expert[i] + 1]++;
    r->n_active = 0;
    for (size_t e = 0; e < x->n; e++) {
        if (r->first[e + 1])
            r->active[r->n_active++] = (uint32_t)e;
        r->first[e + 1] += r->first[e];
    }
    for (size_t i = 0; i < n_slots; i++) {
        uint32_t slot = r->first[c->expert[i]]++;
        r->token[slot] = (uint32_t)(i / x->n_active);
        r->weight[slot] = c->weight[i];
    }
    for (size_t e = x->n; e > 0; e--) /* undo the steps of the last loop */
        r->first[e] = r->first[e - 1];
    r->first[0] = 0;
}

/* Rows that a block of `tokens` rows of activations takes at a time. */
static size_t block_rows(size_t tokens, size_t unit)
{
    size_t rows = GATED_FLOATS / tokens / unit * unit;
    return rows ? rows : unit;
}

static size_t least(size_t a, size_t b)
{
    return a < b ? a : b;
}

/* Where the sum of a token's experts goes: to the residual stream, or to memory
 * of their own, which nothing else uses after gate_proj and up_proj. */
static float *results(const struct worker *w, const struct experts *x)
{
    return x->post_norm ? w->p->s->xn : w->p->s->x;
}

/* ---- the shared expert --------------------------------------------------- */

static bool has_shared(const struct experts *x)
{
    return x->shared_gate.rows > 0;
}

/* Weights of the shared expert's results for n tokens. All threads know them
 * after the next barrier. */
static void weigh_shared(const struct worker *w, const struct experts *x,
                         const float *xn, size_t n)
{
    const struct matrix *gate = &x->shared_gate;
    size_t ld = scratch_ld(gate->cols), begin, end;
    float *weight = w->p->s->shared_weight;
    par_split(n, 1, w->tid, w->n_threads, &begin, &end);
    struct row_product p = {.w = gate,
                            .n_rows = 1,
                            .n = end - begin,
                            .y = weight + begin,
                            .ldy = 1,
                            .work = w->own->work};
    if (begin < end)
        gate->ops->mul_f32(w->k, &p, xn + begin * ld, ld);
    for (size_t t = begin; t < end; t++)
        weight[t] = 1 / (1 + expf(-weight[t]));
}

/* The types of both. A product whose int8 groups or order differ from a's reads
 * f32, as in pass_act_types. */
static struct act_types act_types_of_both(struct act_types a,
                                          struct act_types b)
{
    const unsigned f32 = 1u << ACT_F32;
    if (a.group && b.group && a.group != b.group) {
        b.set &= ~(1u << ACT_I8);
        b.set |= f32;
    }
    if (a.set & ~f32 && b.set & ~f32 && a.order != b.order)
        b.set = f32;
    a.order = a.set & ~f32 ? a.order : b.order;
    a.set |= b.set;
    a.paired = (a.paired || !a.group) && (b.paired || !b.group);
    a.group = a.group ? a.group : b.group;
    a.pairs8 = a.pairs8 || b.pairs8;
    return a;
}

/* x with these of its types. */
static struct input only_act_types(struct input x, struct act_types f)
{
    if (!(f.set >> ACT_F32 & 1))
        x.f32 = NULL;
    if (!(f.set >> ACT_BF16 & 1))
        x.bf16 = NULL;
    if (!(f.set >> ACT_I8 & 1))
        x.q8.q = NULL;
    return x;
}

/* Add rows [begin, end) of the shared expert's results for n tokens. in: of its
 * down_proj. */
static void add_shared(const struct worker *w, const struct experts *x,
                       const struct input *in, size_t begin, size_t end,
                       size_t n, size_t unit)
{
    const struct matrix *down = &x->shared.down_proj;
    enum act_type act = pass_act_type_read(w->p, down, in, n);
    size_t ld = scratch_ld(down->rows), most = GATED_FLOATS / unit;
    float *y = w->own->gate;
    for (size_t t = 0; t < n; t += most) {
        size_t tokens = least(n - t, most), step = block_rows(tokens, unit);
        for (size_t r = begin; r < end; r += step) {
            size_t rows = least(end - r, step);
            pass_multiply_block(w, down, in, act, y, r, rows, t, tokens);
            for (size_t i = 0; i < tokens; i++) {
                w->k->scale(y + i * rows, w->p->s->shared_weight[t + i], rows);
                w->k->add(results(w, x) + (t + i) * ld + r, y + i * rows, rows);
            }
        }
    }
}

/* ---- gate_proj and up_proj ----------------------------------------------- */

/* Add the biases of rows [r, r + rows) of an expert to n results of both. */
static void add_gate_bias(const struct mixture *m, size_t e, size_t r,
                          size_t rows, size_t n)
{
    const struct experts *x = m->x;
    const struct worker *w = &m->w;
    size_t at = e * x->d_ff + r;
    for (size_t i = 0; x->gate_bias && i < n; i++) {
        w->k->add(w->own->gate + i * rows, x->gate_bias + at, rows);
        w->k->add(w->own->up + i * rows, x->up_bias + at, rows);
    }
}

/* pass_gather for pairs: rows i and n + i are row rows[i] of x. */
static struct input gather_pairs(const struct worker *w, const float *x,
                                 const uint32_t *rows, size_t n, size_t cols)
{
    size_t ld = scratch_ld(cols), ldx = gemm_bf16_ldx(cols);
    uint16_t *out = w->own->rows16;
    for (size_t i = 0; i < n; i++)
        pass_split(w->k, out + i * ldx, out + (n + i) * ldx, x + rows[i] * ld,
                   cols);
    return (struct input){.bf16 = out};
}

/* Rows [begin, end) of an expert for n slots from `slot` on, as pairs. */
static void gate_pairs(const struct mixture *m, size_t e, size_t begin,
                       size_t end, size_t slot, size_t n, size_t unit)
{
    const struct worker *w = &m->w;
    const struct matrix *gate = &m->x->gate[e], *up = &m->x->up[e];
    struct input in =
        gather_pairs(w, m->in.f32, m->r->token + slot, n, gate->cols);
    float *g = w->own->gate, *u = w->own->up;
    size_t step = block_rows(2 * n, unit), ldx = gemm_bf16_ldx(m->x->d_ff);
    for (size_t r = begin; r < end; r += step) {
        size_t rows = least(end - r, step);
        uint16_t *out = (uint16_t *)m->to.bf16 + 2 * slot * ldx + r;
        pass_multiply_block(w, gate, &in, ACT_BF16, g, r, rows, 0, 2 * n);
        pass_multiply_block(w, up, &in, ACT_BF16, u, r, rows, 0, 2 * n);
        w->k->add(g, g + n * rows, n * rows);
        w->k->add(u, u + n * rows, n * rows);
        add_gate_bias(m, e, r, rows, n);
        m->x->glu(g, g, u, n * rows);
        for (size_t i = 0; i < n; i++)
            pass_split(w->k, out + i * ldx, out + (n + i) * ldx, g + i * rows,
                       rows);
    }
}

/* Rows [begin, end) of an expert for n slots from `slot` on. */
static void gate_block(const struct mixture *m, size_t e, size_t begin,
                       size_t end, size_t slot, size_t n, size_t unit)
{
    const struct worker *w = &m->w;
    const struct matrix *gate = &m->x->gate[e], *up = &m->x->up[e];
    struct input in = pass_gather(w, &m->in, m->r->token + slot, n, gate->cols);
    enum act_type gate_act = pass_act_type_read(w->p, gate, &in, m->rows);
    enum act_type up_act = pass_act_type_read(w->p, up, &in, m->rows);
    float *g = w->own->gate, *u = w->own->up;
    size_t step = block_rows(n, unit);
    for (size_t r = begin; r < end; r += step) {
        size_t rows = least(end - r, step);
        pass_multiply_block(w, gate, &in, gate_act, g, r, rows, 0, n);
        pass_multiply_block(w, up, &in, up_act, u, r, rows, 0, n);
        add_gate_bias(m, e, r, rows, n);
        m->x->glu(g, g, u, n * rows);
        pass_store_gated(w, &m->to, m->x->d_ff, g, r, rows, slot, n);
    }
}

static void gate_expert(const struct mixture *m, size_t e, size_t begin,
                        size_t end, size_t unit)
{
    size_t most = least(SCRATCH_GATHER_ROWS, GATED_FLOATS / unit), last;
    last = m->r->first[e + 1];
    most = m->pairs ? PAIRS_BLOCK : most;
    for (size_t slot = m->r->first[e]; slot < last; slot += most)
        (m->pairs ? gate_pairs : gate_block)(m, e, begin, end, slot,
                                             least(last - slot, most), unit);
}

/* Experts in equal pieces, as threads come. */
static void gate_dynamic(const struct mixture *m, size_t unit)
{
    const struct worker *w = &m->w;
    size_t ff = m->x->d_ff, n = m->r->n_active, begin, end;
    size_t wanted = PIECES_PER_THREAD * (size_t)w->n_threads;
    size_t pieces = (wanted + n - 1) / n, units = (ff + unit - 1) / unit;
    size_t step = (units + pieces - 1) / pieces * unit;
    pieces = (ff + step - 1) / step;
    while (par_next(w->team, n * pieces, 1, &begin, &end)) {
        size_t row = begin % pieces * step;
        gate_expert(m, m->r->active[begin / pieces], row, least(ff, row + step),
                    unit);
    }
}

/* The rows of all active experts as if they were one matrix's. */
static void gate_static(const struct mixture *m, size_t unit)
{
    const struct worker *w = &m->w;
    size_t ff = m->x->d_ff, units = (ff + unit - 1) / unit, begin, end;
    par_split(m->r->n_active * units, 1, w->tid, w->n_threads, &begin, &end);
    while (begin < end) {
        size_t first = begin % units, n = least(end - begin, units - first);
        gate_expert(m, m->r->active[begin / units], first * unit,
                    least(ff, (first + n) * unit), unit);
        begin += n;
    }
}

static void gate_all(struct mixture *m, size_t n)
{
    struct scratch *s = m->w.p->s;
    const struct matrix *down = &m->x->down[0];
    size_t unit = m->rows == 1 ? 8 : GATED_ROWS;
    if (!pass_rounds(m->w.p, down, m->rows, NULL, s->expert_gate16, &s->expert_gate8,
                     &m->to))
        m->to = (struct input){.f32 = s->expert_gate};
    if (m->to.q8.q && unit % q8_unit(&m->to.q8))
        unit = q8_unit(&m->to.q8);
    if (n < DYNAMIC_MIN_TOKENS)
        gate_static(m, unit);
    else
        gate_dynamic(m, unit);
}

/* ---- down_proj ----------------------------------------------------------- */

/* Add rows [begin, end) of an expert's results for n slots from `slot` on. */
static void down_block(const struct mixture *m, size_t e, size_t begin,
                       size_t end, size_t slot, size_t n, size_t unit)
{
    const struct worker *w = &m->w;
    const struct matrix *down = &m->x->down[e];
    enum act_type act = pass_act_type_read(w->p, down, &m->to, m->rows);
    size_t each = m->pairs ? 2 : 1; /* rows of a slot */
    size_t step = block_rows(each * n, unit), ld = scratch_ld(down->rows);
    const float *bias = m->x->down_bias;
    bias = bias ? bias + e * down->rows : NULL;
    float *y = w->own->gate;
    for (size_t r = begin; r < end; r += step) {
        size_t rows = least(end - r, step);
        pass_multiply_block(w, down, &m->to, act, y, r, rows, each * slot,
                            each * n);
        if (m->pairs)
            w->k->add(y, y + n * rows, n * rows);
        for (size_t i = 0; i < n; i++) {
            float *x = results(w, m->x) + m->r->token[slot + i] * ld + r;
            if (bias)
                w->k->add(y + i * rows, bias + r, rows);
            w->k->scale(y + i * rows, m->r->weight[slot + i], rows);
            w->k->add(x, y + i * rows, rows);
        }
    }
}

/* Clear rows [begin, end) of the sums of n tokens. */
static void clear_results(const struct mixture *m, size_t begin, size_t end,
                          size_t n)
{
    float *x = results(&m->w, m->x);
    size_t ld = scratch_ld(m->x->down[0].rows);
    for (size_t t = 0; t < n; t++)
        memset(x + t * ld + begin, 0, (end - begin) * sizeof *x);
}

/* A thread has its rows of all experts: of the shared one, for which w and in
 * are, then of the others in ascending order. */
static void down_all(const struct mixture *m, const struct worker *shared,
                     const struct input *in, size_t n)
{
    const struct worker *w = &m->w;
    size_t unit = pass_row_unit(w, &m->x->down[0], m->rows), begin, end;
    size_t most = m->pairs ? PAIRS_BLOCK : GATED_FLOATS / unit;
    struct rows share = rows_new(&m->w, m->x->down[0].rows, unit, n);
    while (rows_next(w, &share, &begin, &end)) {
        if (m->x->post_norm)
            clear_results(m, begin, end, n);
        if (has_shared(m->x))
            add_shared(shared, m->x, in, begin, end, n, unit);
        for (size_t i = 0; i < m->r->n_active; i++) {
            size_t e = m->r->active[i], last = m->r->first[e + 1];
            for (size_t slot = m->r->first[e]; slot < last; slot += most)
                down_block(m, e, begin, end, slot, least(last - slot, most),
                           unit);
        }
    }
}

/* ---- */

void pass_ahead_experts(struct worker *w, const struct experts *x, size_t n)
{
    const struct matrix *const router[] = {&x->router};
    pass_ahead_all(w, router, 1, n);
}

/* The types of the normalised tokens that the experts read. */
static struct act_types expert_act_types(const struct mixture *m)
{
    const struct worker *w = &m->w;
    const struct matrix *const gated[] = {&m->x->gate[0], &m->x->up[0]};
    const struct act_types f32 = {.set = 1u << ACT_F32};
    struct act_types need = pass_act_types(&m->pass, gated, 2, m->rows);
    if (w->p->m->weights.n_orders) /* each expert may have its own */
        need.set |= f32.set;
    return m->pairs ? f32 : need;
}

static struct act_types shared_act_types(const struct worker *w,
                                         const struct experts *x, size_t n)
{
    const struct matrix *const gated[] = {&x->shared.gate_proj,
                                          &x->shared.up_proj};
    struct act_types none = {0};
    return has_shared(x) ? pass_act_types(w->p, gated, 2, n) : none;
}

/* Show the input of gate_proj and up_proj of each expert, or of its down_proj,
 * to the caller of the pass. */
static void observe_experts(const struct mixture *m, bool down)
{
    const struct routing *r = m->r;
    size_t ld = scratch_ld(m->x->d_ff);
    for (size_t i = 0; m->w.p->io->on_input && i < r->n_active; i++) {
        size_t e = r->active[i], slot = r->first[e];
        struct input slots = {.f32 = m->to.f32 + slot * ld};
        pass_observe(&m->w, down ? &m->x->down[e] : &m->x->gate[e],
                     down ? &slots : &m->in, down ? NULL : r->token + slot,
                     r->first[e + 1] - slot);
    }
}

/* gate_proj and up_proj of all experts. Returns the input of the shared one's
 * down_proj. Ends with a barrier. */
static struct input gate_and_share(struct worker *w, struct mixture *m,
                                   const struct input *in, size_t n)
{
    const struct experts *x = m->x;
    const struct matrix *const down[] = {&x->down[m->r->active[0]]};
    gate_all(m, n);
    if (has_shared(x)) {
        /* dynamic work starts anew after a barrier only */
        if (n >= DYNAMIC_MIN_TOKENS)
            pass_barrier(w, PART_PROJECTIONS);
        return pass_gated(w, &x->shared, in, n);
    }
    pass_ahead_all(w, down, 1, n);
    pass_barrier(w, PART_PROJECTIONS);
    return (struct input){0};
}

void pass_experts(struct worker *w, const struct experts *x, const float *norm,
                  size_t n, size_t next)
{
    struct mixture m;
    open_mixture(&m, w, x, n);
    struct act_types own = expert_act_types(&m);
    struct act_types need = act_types_of_both(own, shared_act_types(w, x, n));
    const struct act_types router = {.set = 1u << ACT_F32};
    need.set |= router.set;
    struct input in =
        pass_normalise(w, w->p->s->x, n, x->router_norm ? x->router_norm : norm,
                       x->router_norm ? router : need);
    struct choice c = choose_all(w, x, in.f32, n);
    sort_slots(&w->own->routing, x, &c, n);
    if (x->router_norm) /* in place of the router's, of which no thread has need
                         */
        in = pass_normalise(w, w->p->s->x, n, norm, need);
    m.in = only_act_types(in, own);
    if (has_shared(x))
        weigh_shared(w, x, in.f32, n);

    if (w->tid == 0) /* of this thread alone, read after the pass */
        w->p->s->weight_bytes += (double)(m.r->n_active * x->bytes);
    observe_experts(&m, false);
    struct input shared = gate_and_share(w, &m, &in, n);
    observe_experts(&m, true);
    if (has_shared(x))
        pass_observe(w, &x->shared.down_proj, &shared, NULL, n);
    down_all(&m, w, &shared, n);
    pass_ahead_layer(w, next);
    pass_barrier(w, PART_PROJECTIONS);
}
