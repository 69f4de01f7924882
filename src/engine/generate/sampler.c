#include "engine/generate/sampler.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/rng.h"

/* Values are sorted into bins by the upper bits of their order-preserving
 * integer form: sign, exponent and four bits of mantissa. */
enum { BIN_BITS = 13, BINS = 1 << BIN_BITS };

/* BLOCK: values per block. The largest value of each block is kept, so most
 * filters read only the few blocks that can matter. FEW: most candidates that
 * are sorted. */
enum { BLOCK = 64, FEW = 4096 };

/* Below this temperature the softmax is 0 or 1 for any two logits that differ
 * in float32. */
#define MIN_TEMPERATURE 1e-6f

struct sampler {
    struct qwick_sampling o;
    const struct kernels *k;
    size_t vocab_size;
    uint64_t n_accepted, n_prompt;
    qwick_bias_fn bias; /* NULL: none */
    void *bias_ctx;
    struct qwick_bias *list; /* [n_list] added to logits, ids ascend */
    int32_t *list_ids;       /* [n_list] */
    size_t n_list;
    const uint64_t *allowed; /* bits of the ids that may be drawn; NULL: all */
    float *work;             /* [vocab_size] processed logits */
    float *top;              /* [n_blocks] largest of each block of work */
    float *prob;             /* [vocab_size] exp((x - max) / temperature) */
    double *block_sum;       /* [n_blocks] sums of prob */
    int32_t *kept;           /* [vocab_size] candidates, by id */
    int32_t *order; /* [FEW] candidates by value, or the largest blocks */
    size_t n_blocks;
    struct sampler_start start;
    int32_t *never; /* blocked ids */
    size_t n_never;
    bool blocked_one;  /* sampler_block has added an id to never */
    uint32_t *seen;    /* [vocab_size] occurrences in the answer, and the bit
                          PROMPT */
    int32_t *distinct; /* ids with seen != 0 */
    size_t n_distinct;
    double mass[BINS];
    uint32_t count[BINS];
};

#define SEEN_IN_PROMPT 0x80000000u

static uint32_t order_key(float x)
{
    uint32_t u;
    x += 0.0f; /* turn -0 into 0, so that both share a bin */
    memcpy(&u, &x, sizeof u);
    return u & 0x80000000u ? ~u : u | 0x80000000u;
}

static size_t bin_of(float x)
{
    return order_key(x) >> (32 - BIN_BITS);
}

static bool penalised(const struct qwick_sampling *o)
{
    return o->repeat_penalty != 1 || o->presence_penalty != 0 ||
           o->frequency_penalty != 0;
}

static int check(const struct qwick_sampling *o, struct qwick_err *e)
{
    const struct {
        const char *name;
        double v, min, max;
    } rows[] = {
        {"temperature", (double)o->temperature, 0, QWICK_TEMPERATURE_MAX},
        {"top_k", o->top_k, 0, INT32_MAX},
        {"top_p", (double)o->top_p, 0, 1},
        {"min_p", (double)o->min_p, 0, 1},
        /* round the minimum to float: as a float it is a little smaller */
        {"repeat_penalty", (double)o->repeat_penalty,
         (double)(float)QWICK_REPEAT_PENALTY_MIN, QWICK_REPEAT_PENALTY_MAX},
        {"presence_penalty", (double)o->presence_penalty, -QWICK_PENALTY_MAX,
         QWICK_PENALTY_MAX},
        {"frequency_penalty", (double)o->frequency_penalty, -QWICK_PENALTY_MAX,
         QWICK_PENALTY_MAX},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (!(rows[i].v >= rows[i].min && rows[i].v <= rows[i].max))
            return err_set(e, QWICK_ERR_USAGE,
                           "%s: must be from %g to %g, is %g", rows[i].name,
                           rows[i].min, rows[i].max, rows[i].v);
    return 0;
}

int sampler_create(struct sampler **out, const struct qwick_sampling *o,
                   size_t vocab_size, const unsigned char *blocked,
                   const struct kernels *k, struct qwick_err *e)
{
    *out = NULL;
    if (check(o, e))
        return -1;
    struct sampler *s = calloc(1, sizeof *s);
    if (!s)
        return err_oom(e, sizeof *s);
    s->o = *o;
    s->k = k;
    s->vocab_size = vocab_size;
    size_t n = vocab_size;
    s->n_blocks = (n + BLOCK - 1) / BLOCK;
    s->work = malloc(n * sizeof *s->work);
    s->top = malloc(s->n_blocks * sizeof *s->top);
    s->prob = malloc(n * sizeof *s->prob);
    s->block_sum = malloc(s->n_blocks * sizeof *s->block_sum);
    s->kept = malloc(n * sizeof *s->kept);
    s->order = malloc(FEW * sizeof *s->order);
    for (size_t i = 0; blocked && i < n; i++)
        s->n_never += blocked[i] != 0;
    /* one more: sampler_block adds an id */
    s->never = malloc((s->n_never + 1) * sizeof *s->never);
    bool ok = s->work && s->top && s->prob && s->block_sum && s->kept &&
              s->order && s->never;
    if (penalised(o)) {
        s->seen = calloc(n, sizeof *s->seen);
        s->distinct = malloc(n * sizeof *s->distinct);
        ok = ok && s->seen && s->distinct;
    }
    if (!ok) {
        sampler_free(s);
        return err_oom(e, n * 5 * sizeof(float));
    }
    for (size_t i = 0, m = 0; m < s->n_never; i++)
        if (blocked[i])
            s->never[m++] = (int32_t)i;
    *out = s;
    return 0;
}

void sampler_free(struct sampler *s)
{
    if (!s)
        return;
    free(s->work);
    free(s->top);
    free(s->prob);
    free(s->block_sum);
    free(s->kept);
    free(s->order);
    free(s->never);
    free(s->seen);
    free(s->distinct);
    free(s->list);
    free(s->list_ids);
    free(s);
}

static void note(struct sampler *s, int32_t id, bool prompt)
{
    if (!s->seen)
        return;
    uint32_t *n = &s->seen[id];
    if (!*n)
        s->distinct[s->n_distinct++] = id;
    *n = prompt ? *n | SEEN_IN_PROMPT : *n + 1;
}

void sampler_see_prompt(struct sampler *s, int32_t id)
{
    s->n_prompt++;
    note(s, id, true);
}

/* Repetition: RepetitionPenaltyLogitsProcessor in transformers. Presence and
 * frequency: as in OpenAI's API, counted over the answer only. */
static void penalise(struct sampler *s)
{
    const struct qwick_sampling *o = &s->o;
    for (size_t i = 0; i < s->n_distinct; i++) {
        int32_t id = s->distinct[i];
        uint32_t n = s->seen[id] & ~SEEN_IN_PROMPT;
        float *x = &s->work[id];
        *x = *x > 0 ? *x / o->repeat_penalty : *x * o->repeat_penalty;
        if (n)
            *x -= o->presence_penalty + o->frequency_penalty * (float)n;
    }
}

static size_t block_size(const struct sampler *s, size_t block)
{
    size_t rest = s->vocab_size - block * BLOCK;
    return rest < BLOCK ? rest : BLOCK;
}

static void update_top(struct sampler *s, size_t block)
{
    s->top[block] = s->k->max(s->work + block * BLOCK, block_size(s, block));
}

/* Update the blocks' largest values after the logits of n ids changed. */
static void update_tops(struct sampler *s, const int32_t *ids, size_t n)
{
    for (size_t i = 0; n < s->n_blocks && i < n; i++)
        update_top(s, (size_t)ids[i] / BLOCK);
    for (size_t b = 0; n >= s->n_blocks && b < s->n_blocks; b++)
        update_top(s, b);
}

/* Infinities and NaN have an exponent of all ones. */
static inline __attribute__((always_inline)) bool all_finite(const float *x,
                                                             size_t n)
{
    int bad = 0;
#pragma omp simd reduction(| : bad)
    for (size_t i = 0; i < n; i++)
        bad |= !(x[i] - x[i] == 0);
    return !bad;
}

static int list_by_id(const void *a, const void *b)
{
    const struct qwick_bias *x = a, *y = b;
    return (x->id > y->id) - (x->id < y->id);
}

int sampler_set_bias_list(struct sampler *s, const struct qwick_bias *list,
                          size_t n, struct qwick_err *e)
{
    size_t m = 0;
    for (size_t i = 0; i < n; i++) {
        double bias = (double)list[i].bias;
        if (list[i].id < 0 || (size_t)list[i].id >= s->vocab_size)
            return err_set(e, QWICK_ERR_USAGE,
                           "bias: token id %d is out of range, the vocabulary "
                           "has %zu",
                           (int)list[i].id, s->vocab_size);
        if (!(bias >= -QWICK_BIAS_MAX && bias <= QWICK_BIAS_MAX))
            return err_set(e, QWICK_ERR_USAGE,
                           "bias: of token %d must be from %g to %g, is %g",
                           (int)list[i].id, -QWICK_BIAS_MAX, QWICK_BIAS_MAX,
                           bias);
    }
    if (n == 0)
        return 0;
    s->list = calloc(n, sizeof *s->list);
    s->list_ids = calloc(n, sizeof *s->list_ids);
    if (!s->list || !s->list_ids)
        return err_oom(e, n * sizeof *s->list);
    memcpy(s->list, list, n * sizeof *s->list);
    qsort(s->list, n, sizeof *s->list, list_by_id);
    for (size_t i = 0; i < n; i++) {
        if (m && s->list[m - 1].id == s->list[i].id)
            s->list[m - 1].bias += s->list[i].bias;
        else
            s->list[m++] = s->list[i];
        s->list_ids[m - 1] = s->list[m - 1].id;
    }
    s->n_list = m;
    return 0;
}

static void apply_list(struct sampler *s)
{
    for (size_t i = 0; i < s->n_list; i++)
        s->work[s->list[i].id] += s->list[i].bias;
    update_tops(s, s->list_ids, s->n_list);
}

/* A logit with its number of the list. */
static float biased_logit(const struct sampler *s, const float *logits,
                          int32_t id)
{
    const struct qwick_bias key = {.id = id}, *found = NULL;
    if (s->n_list)
        found = bsearch(&key, s->list, s->n_list, sizeof *s->list, list_by_id);
    return logits[id] + (found ? found->bias : 0);
}

int32_t sampler_find_larger(const struct sampler *s, const float *logits,
                            int32_t id)
{
    float x = biased_logit(s, logits, id);
    for (size_t i = 0; i < s->n_list; i++)
        if (biased_logit(s, logits, s->list[i].id) > x)
            return s->list[i].id;
    for (int32_t i = 0; (size_t)i < s->vocab_size; i++)
        if (logits[i] > x && biased_logit(s, logits, i) > x)
            return i;
    return -1;
}

/* Let the caller's function change the logits. */
static int apply_bias(struct sampler *s, struct qwick_err *e)
{
    if (s->bias(s->bias_ctx, s->work, s->vocab_size))
        return err_set(e, QWICK_ERR_RUNTIME,
                       "sampler: its bias function "
                       "failed");
    for (size_t b = 0; b < s->n_blocks; b++) {
        const float *x = s->work + b * BLOCK;
        for (size_t i = 0; i < block_size(s, b); i++)
            if (!(x[i] < INFINITY))
                return err_set(e, QWICK_ERR_USAGE,
                               "sampler: its bias function set the logit of "
                               "token %zu to %g",
                               b * BLOCK + i, (double)x[i]);
        update_top(s, b);
    }
    return 0;
}

_Static_assert(BLOCK == 64, "a block has one word of allowed");

/* Forbid the ids that are not allowed. */
static void apply_allowed(struct sampler *s)
{
    for (size_t b = 0; b < s->n_blocks; b++) {
        float *x = s->work + b * BLOCK;
        uint64_t word = s->allowed[b];
        size_t n = block_size(s, b);
        if (word == UINT64_MAX)
            continue;
        for (size_t i = 0; i < n; i++)
            x[i] = word >> i & 1 ? x[i] : -INFINITY;
        if (word)
            update_top(s, b);
        else
            s->top[b] = -INFINITY;
    }
}

static void forbid(struct sampler *s, const int32_t *ids, size_t n)
{
    for (size_t i = 0; i < n; i++)
        s->work[ids[i]] = -INFINITY;
    update_tops(s, ids, n);
}

/* Copy and check the logits, apply penalties, bias and blocked ids. *max: the
 * largest logit that may be drawn. */
static int prepare(struct sampler *s, const float *logits, float *max,
                   struct qwick_err *e)
{
    bool finite = true;
    for (size_t b = 0; b < s->n_blocks; b++) { /* block by block, while it is in
                                                  L1 */
        const float *x = logits + b * BLOCK;
        size_t n = block_size(s, b);
        /* a constant length lets the compiler unroll the loop */
        finite &= n == BLOCK ? all_finite(x, BLOCK) : all_finite(x, n);
        memcpy(s->work + b * BLOCK, x, n * sizeof *x);
        s->top[b] = s->k->max(x, n);
    }
    if (!finite)
        return err_set(e, QWICK_ERR_RUNTIME,
                       "logits: not finite: the weights hold NaN, infinities "
                       "or values too large");
    penalise(s);
    update_tops(s, s->distinct, s->n_distinct);
    apply_list(s);
    if (s->bias && apply_bias(s, e))
        return -1;
    forbid(s, s->never, s->n_never);
    if (s->n_accepted == 0)
        forbid(s, s->start.first, s->start.n_first);
    if (s->n_accepted < s->start.min_new ||
        s->n_prompt + s->n_accepted < s->start.min_all)
        forbid(s, s->start.stops, s->start.n_stops);
    if (s->allowed)
        apply_allowed(s);
    *max = s->k->max(s->top, s->n_blocks);
    return *max > -INFINITY
               ? 0
               : err_set(e, QWICK_ERR_RUNTIME,
                         "logits: no token is left that may be drawn");
}

/* The first id with the largest value. */
static int32_t first_largest(const struct sampler *s, float max)
{
    for (size_t b = 0; b < s->n_blocks; b++)
        for (size_t i = b * BLOCK; s->top[b] == max && i < s->vocab_size; i++)
            if (s->work[i] == max)
                return (int32_t)i;
    return 0;
}

/* Order: larger values first, equal values by index. */
static bool before(const float *x, int32_t a, int32_t b)
{
    return x[a] != x[b] ? x[a] > x[b] : a < b;
}

static void sift_down(const float *x, int32_t *ids, size_t i, size_t n)
{
    for (;;) {
        size_t child = 2 * i + 1;
        if (child >= n)
            return;
        if (child + 1 < n && before(x, ids[child], ids[child + 1]))
            child++;
        if (!before(x, ids[i], ids[child]))
            return;
        int32_t t = ids[i];
        ids[i] = ids[child];
        ids[child] = t;
        i = child;
    }
}

/* Heapsort: O(n log n) in the worst case, and no comparator context. */
static void sort_ids(const float *x, int32_t *ids, size_t n)
{
    for (size_t i = n / 2; i-- > 0;)
        sift_down(x, ids, i, n);
    for (size_t end = n; end-- > 1;) {
        int32_t t = ids[0];
        ids[0] = ids[end];
        ids[end] = t;
        sift_down(x, ids, 0, end);
    }
}

/* The bin of the k-th largest value. *above: number of values in higher
 * bins. */
static size_t bin_of_kth(const uint32_t *count, size_t k, size_t *above)
{
    size_t n = 0, b = BINS;
    while (b-- > 0) {
        if (n + count[b] >= k)
            break;
        n += count[b];
    }
    *above = n;
    return b;
}

static size_t collect_bin(const float *x, size_t n, size_t bin, int32_t *ids)
{
    size_t m = 0;
    for (size_t i = 0; i < n; i++)
        if (bin_of(x[i]) == bin)
            ids[m++] = (int32_t)i;
    return m;
}

/* Smallest value that top-k keeps: the k-th largest. */
static float top_k_threshold(struct sampler *s, size_t k)
{
    size_t n_drawable = 0;
    memset(s->count, 0, sizeof s->count);
    for (size_t i = 0; i < s->vocab_size; i++) {
        s->count[bin_of(s->work[i])]++;
        n_drawable += s->work[i] > -INFINITY;
    }
    /* A constraint may leave fewer than k. The rest of the vocabulary would all
       be in one bin, to be sorted. */
    if (n_drawable < k)
        return -INFINITY;
    size_t above, bin = bin_of_kth(s->count, k, &above);
    size_t n = collect_bin(s->work, s->vocab_size, bin, s->kept);
    sort_ids(s->work, s->kept, n);
    return s->work[s->kept[k - above - 1]];
}

/* Whether top-p keeps an id: value above limit, or equal and id <= last. */
struct cut {
    float limit;
    int32_t last;
};

/* Walk values downwards until their mass reaches p of the total: the token that
 * crosses p is the last one kept (TopPLogitsWarper in transformers). The order
 * of sums depends only on the values. */
static struct cut top_p_cut(struct sampler *s, float threshold, double p)
{
    memset(s->mass, 0, sizeof s->mass);
    for (size_t i = 0; i < s->vocab_size; i++)
        if (s->work[i] >= threshold)
            s->mass[bin_of(s->work[i])] += (double)s->prob[i];
    double total = 0, sum = 0;
    for (size_t b = BINS; b-- > 0;)
        total += s->mass[b];
    size_t bin = BINS - 1;
    while (bin > 0 && (s->mass[bin] == 0 || sum + s->mass[bin] < p * total))
        sum += s->mass[bin--];
    size_t n = collect_bin(s->work, s->vocab_size, bin, s->kept);
    sort_ids(s->work, s->kept, n);
    struct cut cut = {-INFINITY, INT32_MAX};
    for (size_t i = 0; i < n && s->work[s->kept[i]] >= threshold; i++) {
        cut = (struct cut){s->work[s->kept[i]], s->kept[i]};
        sum += (double)s->prob[s->kept[i]];
        if (sum >= p * total)
            break;
    }
    return cut;
}

/* Put the ids that pass top-k, top-p and min-p into s->kept, ascending. Reads
 * all values. */
static size_t filter_all(struct sampler *s, float max)
{
    const struct qwick_sampling *o = &s->o;
    size_t n = s->vocab_size;
    float threshold = -INFINITY;
    s->k->exp_sum(s->prob, s->work, n, max, 1.0f / o->temperature);
    if (o->top_k > 0 && (size_t)o->top_k < n)
        threshold = top_k_threshold(s, (size_t)o->top_k);
    struct cut cut = {-INFINITY, INT32_MAX};
    if (o->top_p < 1)
        cut = top_p_cut(s, threshold, (double)o->top_p);
    size_t m = 0;
    for (size_t i = 0; i < n; i++) {
        float x = s->work[i];
        if (x < threshold || x < cut.limit || s->prob[i] < o->min_p ||
            (x == cut.limit && (int32_t)i > cut.last))
            continue;
        /* the likeliest always stays, even with strict filters */
        if (s->prob[i] > 0 || x == max)
            s->kept[m++] = (int32_t)i;
    }
    return m;
}

/* ---- few candidates ----------------------------------------------------- */

/* A lower bound of the n-th largest value: the n-th largest of the blocks'
 * maxima. */
static float reached_by(struct sampler *s, size_t n)
{
    n = sampler_top(s->top, s->n_blocks, s->order, n);
    return s->top[s->order[n - 1]];
}

/* Put the ids of values >= limit that may be drawn into s->kept, ascending.
 * Returns their number, or FEW + 1 if there are more than FEW. */
static size_t collect(struct sampler *s, float limit)
{
    size_t m = 0;
    for (size_t b = 0; b < s->n_blocks; b++) {
        if (s->top[b] < limit || s->top[b] == -INFINITY)
            continue;
        size_t end = b * BLOCK + block_size(s, b);
        for (size_t i = b * BLOCK; i < end; i++) {
            if (!(s->work[i] >= limit && s->work[i] > -INFINITY))
                continue;
            if (m == FEW)
                return FEW + 1;
            s->kept[m++] = (int32_t)i;
        }
    }
    return m;
}

static int by_id(const void *a, const void *b)
{
    const int32_t *x = a, *y = b;
    return (*x > *y) - (*x < *y);
}

/* Filter the m candidates in s->kept, which include every id that may pass.
 * total: the mass that top-p refers to; < 0: the mass of the candidates that
 * top-k keeps. Returns the number of ids left, or 0 if the candidates were too
 * few. */
static size_t filter_few(struct sampler *s, size_t m, float max, double total)
{
    const struct qwick_sampling *o = &s->o;
    size_t n = m;
    memcpy(s->order, s->kept, m * sizeof *s->order);
    sort_ids(s->work, s->order, m);
    if (o->top_k > 0 && (size_t)o->top_k < m) {
        float threshold = s->work[s->order[o->top_k - 1]];
        n = (size_t)o->top_k;
        while (n < m && s->work[s->order[n]] == threshold)
            n++;
    }
    for (size_t i = 0; i < n; i++)
        s->prob[i] = s->work[s->order[i]];
    double sum = s->k->exp_sum(s->prob, s->prob, n, max, 1.0f / o->temperature);
    if (o->top_p < 1) {
        double want = (double)o->top_p * (total < 0 ? sum : total), mass = 0;
        size_t kept = 0;
        while (kept < n && (kept == 0 || mass < want))
            mass += (double)s->prob[kept++];
        if (mass < want && total >= 0)
            return 0;
        n = kept;
    }
    /* the likeliest always stays, even with strict filters */
    while (n > 1 && (s->prob[n - 1] < o->min_p || s->prob[n - 1] == 0))
        n--;
    memcpy(s->kept, s->order, n * sizeof *s->kept);
    qsort(s->kept, n, sizeof *s->kept, by_id);
    return n;
}

/* The mass of all values; also fills block_sum. */
static double sum_blocks(struct sampler *s, float max)
{
    double total = 0;
    for (size_t b = 0; b < s->n_blocks; b++) {
        s->block_sum[b] =
            s->k->exp_sum(NULL, s->work + b * BLOCK, block_size(s, b), max,
                          1.0f / s->o.temperature);
        total += s->block_sum[b];
    }
    return total;
}

/* Put the ids that pass the filters into s->kept, ascending. If only few blocks
 * can matter, only those are read. At most FEW ids are sorted. */
static size_t filter(struct sampler *s, float max)
{
    enum { BLOCKS = 256 };
    const struct qwick_sampling *o = &s->o;
    size_t m = FEW + 1, n = 0;
    double total = -1;
    if (o->top_k > 0 && (size_t)o->top_k <= FEW / 4 &&
        (size_t)o->top_k <= s->n_blocks) {
        m = collect(s, reached_by(s, (size_t)o->top_k));
    } else if (o->top_k == 0 && o->top_p < 1) {
        total = sum_blocks(s, max);
        m = collect(s, reached_by(s, BLOCKS));
    } else if (o->top_k == 0 && o->min_p > 0) {
        /* collect from a little below the limit, because exp rounds */
        m = collect(s, max + o->temperature * (logf(o->min_p) - 1e-3f));
    }
    if (m <= FEW)
        n = filter_few(s, m, max, total);
    return n ? n : filter_all(s, max);
}

/* Draw one of the n kept ids by their probabilities. */
static int32_t draw_kept(struct sampler *s, size_t n, float max, double u)
{
    for (size_t i = 0; i < n; i++)
        s->prob[i] = s->work[s->kept[i]];
    s->k->exp_sum(s->prob, s->prob, n, max, 1.0f / s->o.temperature);
    double total = 0, sum = 0;
    for (size_t i = 0; i < n; i++)
        total += (double)s->prob[i];
    for (size_t i = 0; i < n; i++) {
        sum += (double)s->prob[i];
        if (u * total < sum)
            return s->kept[i];
    }
    return s->kept[n - 1];
}

/* Draw one of all ids: first its block, then the id. */
static int32_t draw_any(struct sampler *s, float max, double u)
{
    double at = u * sum_blocks(s, max), sum = 0;
    size_t b = 0, last = 0;
    for (; b < s->n_blocks; b++) {
        if (s->block_sum[b] > 0)
            last = b;
        if (at < sum + s->block_sum[b])
            break;
        sum += s->block_sum[b];
    }
    b = b < s->n_blocks ? b : last;
    size_t n = block_size(s, b);
    const float *x = s->work + b * BLOCK;
    s->k->exp_sum(s->prob, x, n, max, 1.0f / s->o.temperature);
    size_t best = 0;
    for (size_t i = 0; i < n; i++) {
        if (s->prob[i] == 0)
            continue;
        best = i; /* the last id, in case rounding leaves a rest after it */
        sum += (double)s->prob[i];
        if (at < sum)
            break;
    }
    return (int32_t)(b * BLOCK + best);
}

void sampler_set_bias(struct sampler *s, qwick_bias_fn fn, void *ctx)
{
    s->bias = fn;
    s->bias_ctx = ctx;
}

void sampler_set_start(struct sampler *s, const struct sampler_start *start)
{
    s->start = *start;
}

void sampler_set_allowed(struct sampler *s, const uint64_t *allowed)
{
    s->allowed = allowed;
}

int sampler_peek(struct sampler *s, const float *logits, int32_t *id,
                 struct qwick_err *e)
{
    const struct qwick_sampling *o = &s->o;
    float max = 0;
    if (prepare(s, logits, &max, e))
        return -1;
    double u = sampler_number(s);
    if (sampler_is_greedy(s))
        *id = first_largest(s, max);
    else if (o->top_k == 0 && o->top_p == 1 && o->min_p == 0)
        *id = draw_any(s, max, u);
    else
        *id = draw_kept(s, filter(s, max), max, u);
    return 0;
}

void sampler_block(struct sampler *s, int32_t id)
{
    if (s->blocked_one)
        return;
    s->never[s->n_never++] = id;
    s->blocked_one = true;
}

void sampler_accept(struct sampler *s, int32_t id)
{
    s->n_accepted++;
    note(s, id, false);
}

void sampler_undo(struct sampler *s, int32_t id)
{
    s->n_accepted--;
    /* an id without occurrences was the last one to become distinct */
    if (s->seen && --s->seen[id] == 0)
        s->n_distinct--;
}

double sampler_number(const struct sampler *s)
{
    return rng_uniform(s->o.seed, s->n_accepted);
}

bool sampler_is_greedy(const struct sampler *s)
{
    return s->o.temperature < MIN_TEMPERATURE;
}

/* Put the ids that pass the filters into s->kept, ascending, and their
 * probabilities into s->prob. Returns how many there are. */
static size_t spread(struct sampler *s, float max)
{
    size_t n = filter(s, max);
    double total = 0;
    for (size_t i = 0; i < n; i++)
        s->prob[i] = s->work[s->kept[i]];
    s->k->exp_sum(s->prob, s->prob, n, max, 1.0f / s->o.temperature);
    for (size_t i = 0; i < n; i++)
        total += (double)s->prob[i];
    for (size_t i = 0; i < n; i++)
        s->prob[i] = (float)((double)s->prob[i] / total);
    return n;
}

/* The index of the kept id at u in [0, 1) of the total weight. The weight of
 * the id with index i is what s->prob[i] has more than less[kept[i]]; less
 * NULL: zeros. Returns n if no id has a weight. */
static size_t pick(const struct sampler *s, size_t n, const float *less,
                   double u)
{
    double total = 0, sum = 0;
    size_t last = n;
    for (int round = 0; round < 2; round++) {
        for (size_t i = 0; i < n; i++) {
            double w =
                (double)s->prob[i] - (less ? (double)less[s->kept[i]] : 0);
            if (w <= 0)
                continue;
            last = i;
            sum += w;
            if (round && u * total < sum)
                return i;
        }
        total = sum;
        sum = 0;
    }
    return last;
}

int sampler_guess(struct sampler *s, const float *logits, double u, int32_t *id,
                  double *sure, float *q, struct qwick_err *e)
{
    float max = 0;
    if (prepare(s, logits, &max, e))
        return -1;
    if (sampler_is_greedy(s)) {
        *id = first_largest(s, max);
        *sure = 1 / s->k->exp_sum(NULL, s->work, s->vocab_size, max, 1.0f);
        return 0;
    }
    size_t n = spread(s, max);
    *id = s->kept[pick(s, n, NULL, u)];
    *sure = (double)s->k->max(s->prob, n);
    if (q) {
        memset(q, 0, s->vocab_size * sizeof *q);
        for (size_t i = 0; i < n; i++)
            q[s->kept[i]] = s->prob[i];
    }
    return 0;
}

/* The draw after a guess was rejected must not use the random number that
 * rejected it. It uses the stream of another seed. */
#define REJECTED_SEED 0x8f1bbcdc6a09e667u

int sampler_draw_guess(struct sampler *s, const float *logits, int32_t guess,
                       const float *q, int32_t *id, struct qwick_err *e)
{
    float max = 0;
    double p = 0, u = sampler_number(s);
    if (prepare(s, logits, &max, e))
        return -1;
    size_t n = spread(s, max), i = 0;
    for (; i < n; i++)
        if (s->kept[i] == guess)
            p = (double)s->prob[i];
    if (u * (double)q[guess] < p) {
        *id = guess;
    } else {
        u = rng_uniform(s->o.seed ^ REJECTED_SEED, s->n_accepted);
        i = pick(s, n, q, u);
        /* rounding left no difference between the distributions */
        if (i == n)
            i = pick(s, n, NULL, u);
        *id = s->kept[i];
    }
    sampler_accept(s, *id);
    return 0;
}

int sampler_draw(struct sampler *s, const float *logits, int32_t *id,
                 struct qwick_err *e)
{
    if (sampler_peek(s, logits, id, e))
        return -1;
    sampler_accept(s, *id);
    return 0;
}

size_t sampler_top(const float *x, size_t size, int32_t *ids, size_t n)
{
    if (n > size)
        n = size;
    /* ids is a heap whose root is the worst of the best n so far */
    size_t m = 0;
    for (size_t i = 0; i < size && n > 0; i++) {
        if (m < n) {
            ids[m++] = (int32_t)i;
            if (m == n)
                for (size_t j = n / 2; j-- > 0;)
                    sift_down(x, ids, j, n);
        } else if (before(x, (int32_t)i, ids[0])) {
            ids[0] = (int32_t)i;
            sift_down(x, ids, 0, n);
        }
    }
    sort_ids(x, ids, m);
    return m;
}

void sampler_logprobs(const struct sampler *s, const float *logits,
                      struct qwick_logprob *top, size_t n, int32_t id,
                      float *logprob)
{
    float max = s->k->max(logits, s->vocab_size);
    double sum = s->k->exp_sum(NULL, logits, s->vocab_size, max, 1.0f);
    double log_sum = (double)max + log(sum);
    n = sampler_top(logits, s->vocab_size, s->kept, n);
    for (size_t i = 0; i < n; i++)
        top[i] = (struct qwick_logprob){
            s->kept[i], (float)((double)logits[s->kept[i]] - log_sum)};
    *logprob = (float)((double)logits[id] - log_sum);
}
