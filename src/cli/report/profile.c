#include "cli/report/profile.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/os.h"
#include "qwick_tools.h"

static int compare_doubles(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

void sort_doubles(double *v, size_t n)
{
    if (n)
        qsort(v, n, sizeof(*v), compare_doubles);
}

double *sorted_doubles(const double *v, size_t n)
{
    double *sorted = malloc((n + 1) * sizeof(*sorted));
    if (sorted && n)
        memcpy(sorted, v, n * sizeof(*sorted));
    if (sorted)
        sort_doubles(sorted, n);
    return sorted;
}

double quantile(const double *v, size_t n, double q)
{
    if (n == 0)
        return NAN;
    double x = q * (double)(n - 1);
    size_t i = (size_t)x;
    if (i + 1 >= n)
        return v[n - 1];
    return v[i] + (x - (double)i) * (v[i + 1] - v[i]);
}

int quantiles_of(const double *v, size_t n, struct quantiles *out)
{
    double *sorted = sorted_doubles(v, n);
    if (!sorted)
        return -1;
    *out = (struct quantiles){sorted[0], quantile(sorted, n, 0.5),
                              quantile(sorted, n, 0.95),
                              quantile(sorted, n, 0.99), sorted[n - 1]};
    free(sorted);
    return 0;
}

/* The times of all decode steps, sorted. NULL: out of memory. */
static double *collect_steps(const struct qwick_result *runs, size_t n_runs,
                             size_t *n)
{
    size_t k = 0;
    *n = 0;
    for (size_t i = 0; i < n_runs; i++)
        *n += runs[i].n_per_token;
    double *sorted = malloc((*n + 1) * sizeof(*sorted));
    for (size_t i = 0; i < n_runs && sorted; i++)
        for (size_t j = 0; j < runs[i].n_per_token; j++)
            sorted[k++] = runs[i].per_token_ms[j];
    if (sorted)
        sort_doubles(sorted, *n);
    return sorted;
}

/* Fill in the medians over the runs. */
static int medians(struct profile *p, const struct qwick_result *runs,
                   size_t n_runs)
{
    double *v = malloc(2 * n_runs * sizeof(*v));
    if (!v)
        return -1;
    double *total = v + n_runs;
    for (size_t i = 0; i < n_runs; i++) {
        v[i] = runs[i].prefill_ms;
        total[i] = runs[i].total_ms;
    }
    sort_doubles(v, n_runs);
    sort_doubles(total, n_runs);
    p->prefill_ms = quantile(v, n_runs, 0.5);
    p->total_ms = quantile(total, n_runs, 0.5);
    free(v);
    return 0;
}

int profile_make(struct profile *p, const struct qwick_result *runs,
                 size_t n_runs, const struct qwick_engine *eng,
                 double bandwidth)
{
    const struct qwick_result *r = &runs[0];
    size_t n;
    double steps = 0, sampling = 0, constraint = 0;
    double *sorted = collect_steps(runs, n_runs, &n);
    if (!sorted || medians(p, runs, n_runs)) {
        free(sorted);
        return -1;
    }
    for (size_t i = 0; i < n; i++)
        steps += sorted[i];
    for (size_t i = 0; i < n_runs; i++) {
        constraint += runs[i].constraint_ms;
        for (size_t j = 0; j < runs[i].n_per_token; j++)
            sampling += runs[i].sample_ms[j];
    }
    p->n_runs = n_runs;
    p->n_steps = n;
    p->median_ms = quantile(sorted, n, 0.5);
    p->p95_ms = quantile(sorted, n, 0.95);
    p->p99_ms = quantile(sorted, n, 0.99);
    free(sorted);
    p->kernel_tok_s = 1000 / p->median_ms;
    p->end_to_end_tok_s =
        p->total_ms > 0 ? 1000 * (double)r->n_tokens / p->total_ms : NAN;
    p->sampling_share = steps > 0 ? sampling / steps : NAN;
    p->constraint_share =
        steps > 0 && constraint > 0 ? constraint / steps : NAN;
    p->bytes_per_token =
        (double)qwick_engine_info(eng)->decode_bytes +
        qwick_forward_kv_bytes(eng, r->n_prompt + r->n_tokens / 2, 1);
    p->gb_s = p->bytes_per_token / p->median_ms / 1e6;
    p->tokens_per_pass = NAN;
    p->draft_ms = r->draft.on ? r->draft.ms : NAN;
    /* a constraint or a think budget forces tokens without lookup, too */
    size_t saved = r->lookup.n_accepted + r->draft.n_accepted;
    if ((r->lookup.max || r->draft.on || saved) && r->n_per_token) {
        double m = (double)r->n_per_token;
        p->tokens_per_pass = m / (m - (double)saved);
        p->bytes_per_token /= p->tokens_per_pass;
        p->gb_s = p->bytes_per_token / (steps / (double)n) / 1e6;
    }
    p->bandwidth_gb_s = bandwidth > 0 ? bandwidth / 1e9 : NAN;
    /* The size of the cache may be unknown. A rate above the memory's says the
     * same; MEASURED is more than the spread of the two measurements. */
    const double MEASURED = 1.1;
    const struct qwick_info *i = qwick_engine_info(eng);
    p->in_cache = i->decode_bytes <= os_cache_bytes() ||
                  p->gb_s > MEASURED * p->bandwidth_gb_s;
    p->bandwidth_percent =
        p->in_cache ? NAN : 100 * p->gb_s / p->bandwidth_gb_s;
    p->load_ms = i->load_ms;
    p->load_tokenizer_ms = i->tokenizer_ms;
    p->load_weights_ms = i->weights_ms;
    p->first_read_ms = i->first_read_ms;
    p->first_faults = i->first_faults;
    return 0;
}

void profile_json(struct json_writer *w, const char *key,
                  const struct profile *p)
{
    jw_object(w, key);
    jw_double(w, "median_ms", p->median_ms);
    jw_double(w, "p95_ms", p->p95_ms);
    jw_double(w, "p99_ms", p->p99_ms);
    jw_double(w, "kernel_tok_s", p->kernel_tok_s);
    jw_double(w, "end_to_end_tok_s", p->end_to_end_tok_s);
    jw_double(w, "sampling_share", p->sampling_share);
    if (isfinite(p->constraint_share))
        jw_double(w, "constraint_share", p->constraint_share);
    jw_double(w, "bytes_per_token", p->bytes_per_token);
    jw_double(w, "gb_s", p->gb_s);
    jw_double(w, "bandwidth_gb_s", p->bandwidth_gb_s);
    jw_double(w, "bandwidth_percent", p->bandwidth_percent);
    if (isfinite(p->tokens_per_pass))
        jw_double(w, "tokens_per_pass", p->tokens_per_pass);
    if (isfinite(p->draft_ms))
        jw_double(w, "draft_ms", p->draft_ms);
    jw_double(w, "load_tokenizer_ms", p->load_tokenizer_ms);
    jw_double(w, "load_weights_ms", p->load_weights_ms);
    jw_double(w, "first_read_ms", p->first_read_ms);
    jw_uint(w, "first_faults", p->first_faults);
    if (p->n_runs > 1) {
        jw_uint(w, "runs", p->n_runs);
        jw_double(w, "prefill_ms", p->prefill_ms);
        jw_double(w, "total_ms", p->total_ms);
    }
    jw_end_object(w);
}

/* Write a row of the table; "-" for NAN. */
static void put_value(struct buf *b, const char *name, double v, int decimals,
                      const char *unit)
{
    if (isfinite(v))
        buf_printf(b, "%-18s %10.*f %s\n", name, decimals, v, unit);
    else
        buf_printf(b, "%-18s %10s %s\n", name, "-", unit);
}

static void put_speculative(struct buf *b, const char *name,
                            const struct profile *p, size_t n_kept, size_t n)
{
    buf_printf(b, "%-18s %10.2f tokens a pass, %zu of %zu guesses kept\n", name,
               p->tokens_per_pass, n_kept, n);
}

void profile_table(struct buf *b, const struct profile *p,
                   const struct qwick_result *r)
{
    if (p->n_runs > 1)
        buf_printf(b, "%-18s %10zu, medians\n", "runs", p->n_runs);
    put_value(b, "loading", p->load_ms, 2, "ms");
    put_value(b, "  the tokenizer", p->load_tokenizer_ms, 2, "ms");
    put_value(b, "  the weights", p->load_weights_ms, 2, "ms");
    if (p->first_read_ms > 0)
        put_value(b, "reading the disk", p->first_read_ms, 2, "ms");
    buf_printf(b, "%-18s %10zu page faults\n", "first pass", p->first_faults);
    put_value(b, "prefill", p->prefill_ms, 2, "ms");
    buf_printf(b, "%-18s %10zu tokens\n", "prompt", r->n_prompt);
    put_value(b, "total", p->total_ms, 2, "ms");
    buf_printf(b, "%-18s %10zu tokens\n", "answer", r->n_tokens);
    put_value(b, "token, median", p->median_ms, 3, "ms");
    put_value(b, "token, p95", p->p95_ms, 3, "ms");
    put_value(b, "token, p99", p->p99_ms, 3, "ms");
    put_value(b, "kernel", p->kernel_tok_s, 1, "tok/s");
    put_value(b, "end to end", p->end_to_end_tok_s, 1, "tok/s");
    put_value(b, "sampling", 100 * p->sampling_share, 2, "%");
    if (isfinite(p->constraint_share))
        put_value(b, "constraint", 100 * p->constraint_share, 2, "%");
    if (isfinite(p->tokens_per_pass) && r->lookup.max)
        put_speculative(b, "lookup", p, r->lookup.n_accepted,
                        r->lookup.n_drafted);
    if (isfinite(p->tokens_per_pass) && r->draft.on)
        put_speculative(b, "draft", p, r->draft.n_accepted, r->draft.n_drafted);
    if (isfinite(p->tokens_per_pass) && !r->lookup.max && !r->draft.on)
        buf_printf(b, "%-18s %10.2f tokens a pass, %zu forced\n", "forced",
                   p->tokens_per_pass, r->lookup.n_accepted);
    if (r->draft.on)
        put_value(b, "draft's time", p->draft_ms, 2, "ms");
    put_value(b, "streamed", p->bytes_per_token / 1e6, 1, "MB a token");
    put_value(b, "rate", p->gb_s, 2, "GB/s");
    put_value(b, "read bandwidth", p->bandwidth_gb_s, 2, "GB/s");
    if (p->in_cache)
        buf_printf(b, "%-18s %10s the weights lie in the CPU's cache\n",
                   "of bandwidth", "-");
    else
        put_value(b, "of bandwidth", p->bandwidth_percent, 1, "%");
}
