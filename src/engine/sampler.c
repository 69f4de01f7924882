#include "engine/sampler.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/rng.h"

/* Values are sorted into bins by the upper bits of their order-preserving
 * integer form: sign, exponent and four bits of mantissa. */
enum { BIN_BITS = 13, BINS = 1 << BIN_BITS };

/* Below it the softmax is a step for any logits that differ in float32. */
#define MIN_TEMPERATURE 1e-6f

struct sampler {
    struct qwick_sampling o;
    const struct kernels *k;
    const unsigned char *blocked;
    size_t vocab_size;
    uint64_t n_drawn;
    float *work;       /* [vocab_size] processed logits */
    float *prob;       /* [vocab_size] exp((x - max) / temperature) */
    int32_t *kept;     /* [vocab_size] candidates, by id */
    uint32_t *seen;    /* [vocab_size] times in the answer; PROMPT bit */
    int32_t *distinct; /* ids with seen != 0 */
    size_t n_distinct;
    double mass[BINS];
    uint32_t count[BINS];
};

#define SEEN_IN_PROMPT 0x80000000u

static uint32_t order_key(float x)
{
    uint32_t u;
    x += 0.0f; /* both zeros are one value, so they share a bin */
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
        {"temperature", (double)o->temperature, 0, 1e6},
        {"top_k", o->top_k, 0, INT32_MAX},
        {"top_p", (double)o->top_p, 0, 1},
        {"min_p", (double)o->min_p, 0, 1},
        {"repeat_penalty", (double)o->repeat_penalty, (double)1e-6f, 1e6},
        {"presence_penalty", (double)o->presence_penalty, -1e6, 1e6},
        {"frequency_penalty", (double)o->frequency_penalty, -1e6, 1e6},
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
    s->blocked = blocked;
    s->vocab_size = vocab_size;
    size_t n = vocab_size;
    s->work = malloc(n * sizeof *s->work);
    s->prob = malloc(n * sizeof *s->prob);
    s->kept = malloc(n * sizeof *s->kept);
    bool ok = s->work && s->prob && s->kept;
    if (penalised(o)) {
        s->seen = calloc(n, sizeof *s->seen);
        s->distinct = malloc(n * sizeof *s->distinct);
        ok = ok && s->seen && s->distinct;
    }
    if (!ok) {
        sampler_free(s);
        return err_oom(e, n * 5 * sizeof(float));
    }
    *out = s;
    return 0;
}

void sampler_free(struct sampler *s)
{
    if (!s)
        return;
    free(s->work);
    free(s->prob);
    free(s->kept);
    free(s->seen);
    free(s->distinct);
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
    note(s, id, true);
}

/* Repetition: RepetitionPenaltyLogitsProcessor in transformers. Presence and
 * frequency: as in OpenAI's API, of the answer alone. */
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

/* Copy the logits, check them, apply blocks and penalties; *max is the largest
 * that may be drawn. */
static int prepare(struct sampler *s, const float *logits, float *max,
                   struct qwick_err *e)
{
    size_t n = s->vocab_size;
    unsigned bad = 0;
    for (size_t i = 0; i < n; i++)
        bad |= !(logits[i] - logits[i] == 0);
    if (bad)
        return err_set(e, QWICK_ERR_RUNTIME,
                       "logits: not finite: the weights hold NaN, infinities "
                       "or values too large");
    memcpy(s->work, logits, n * sizeof *logits);
    penalise(s);
    if (s->blocked)
        for (size_t i = 0; i < n; i++)
            if (s->blocked[i])
                s->work[i] = -INFINITY;
    *max = s->k->max(s->work, n);
    return *max > -INFINITY
               ? 0
               : err_set(e, QWICK_ERR_RUNTIME,
                         "logits: no token is left that may be drawn");
}

static int32_t first_equal(const float *x, size_t n, float v)
{
    for (size_t i = 0; i < n; i++)
        if (x[i] == v)
            return (int32_t)i;
    return 0;
}

/* Larger first, equal ones by index. */
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

/* Heapsort: no worst case, no comparator context. */
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

/* The k-th largest of kept values is in the bin returned; *above gets how many
 * lie in higher bins. */
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
    memset(s->count, 0, sizeof s->count);
    for (size_t i = 0; i < s->vocab_size; i++)
        s->count[bin_of(s->work[i])]++;
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
 * crosses p is the last one kept (TopPLogitsWarper in transformers). Sums run
 * in an order that only the values give. */
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

/* Ids that survive top-k, top-p and min-p into s->kept, ascending. */
static size_t filter(struct sampler *s, float max)
{
    const struct qwick_sampling *o = &s->o;
    size_t n = s->vocab_size;
    float threshold = -INFINITY;
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
        /* the likeliest stays, however strict the rest */
        if (s->prob[i] > 0 || x == max)
            s->kept[m++] = (int32_t)i;
    }
    return m;
}

static int32_t draw(const struct sampler *s, size_t n, double u)
{
    double total = 0, sum = 0;
    for (size_t i = 0; i < n; i++)
        total += (double)s->prob[s->kept[i]];
    for (size_t i = 0; i < n; i++) {
        sum += (double)s->prob[s->kept[i]];
        if (u * total < sum)
            return s->kept[i];
    }
    return s->kept[n - 1];
}

int sampler_draw(struct sampler *s, const float *logits, int32_t *id,
                 struct qwick_err *e)
{
    float max = 0;
    if (prepare(s, logits, &max, e))
        return -1;
    if (s->o.temperature < MIN_TEMPERATURE) {
        *id = first_equal(s->work, s->vocab_size, max);
    } else {
        s->k->exp_sum(s->prob, s->work, s->vocab_size, max,
                      1.0f / s->o.temperature);
        size_t n = filter(s, max);
        *id = draw(s, n, rng_uniform(s->o.seed, s->n_drawn));
    }
    s->n_drawn++;
    note(s, *id, false);
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
