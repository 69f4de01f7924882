#include "cli/answer_opts.h"

#include <string.h>

#include "base/rng.h"

static bool is_greedy(const struct opt_parsed *p, const struct answer_args *a)
{
    return a->greedy || (opt_given(p, "temp") && a->temp == 0);
}

int answer_check(const struct opt_parsed *p, const struct answer_args *a)
{
    static const char *const sampling[] = {"top-k", "top-p", "min-p", NULL};
    if (a->greedy && opt_given(p, "temp") && a->temp != 0 &&
        !opt_yield(p, "temp", "greedy"))
        return opt_usage(p->verb, "--temp: has no effect with --greedy");
    if (a->loop_guard == 1 || a->loop_guard == 2)
        return opt_usage(p->verb,
                         "--loop-guard: %lld tokens repeat no sequence three "
                         "times, expected 0 or 3..1000000",
                         (long long)a->loop_guard);
    if (!is_greedy(p, a))
        return -1;
    return opt_no_effect(p, sampling,
                         a->greedy ? "with --greedy" : "with --temp 0");
}

struct sampling_wish answer_wish(const struct opt_parsed *p,
                                 const struct answer_args *a)
{
    static const struct {
        const char *name;
        enum wish wish;
    } rows[] = {
        {"temp", WISH_TEMP},
        {"top-k", WISH_TOP_K},
        {"top-p", WISH_TOP_P},
        {"min-p", WISH_MIN_P},
        {"repeat-penalty", WISH_REPEAT},
        {"presence-penalty", WISH_PRESENCE},
        {"frequency-penalty", WISH_FREQUENCY},
    };
    struct sampling_wish w = {
        .given = a->greedy ? WISH_TEMP : 0,
        .v = {.temperature = a->greedy ? 0 : (float)a->temp,
              .top_k = (int)a->top_k,
              .top_p = (float)a->top_p,
              .min_p = (float)a->min_p,
              .repeat_penalty = (float)a->repeat,
              .presence_penalty = (float)a->presence,
              .frequency_penalty = (float)a->frequency}};
    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++)
        if (opt_given(p, rows[i].name))
            w.given |= rows[i].wish;
    return w;
}

struct qwick_sampling answer_sampling(const struct qwick_engine *eng,
                                      bool think_off,
                                      const struct sampling_wish *w)
{
    struct qwick_sampling s = qwick_sampling_defaults(eng, !think_off);
    if (w->given & WISH_TEMP && w->v.temperature == 0) {
        s.top_k = 0;
        s.top_p = 1;
        s.min_p = 0;
    } else if (w->given && s.temperature == 0) {
        float repeat = s.repeat_penalty;
        s = qwick_sampling_neutral();
        s.repeat_penalty = repeat;
    }
    if (w->given & WISH_TEMP)
        s.temperature = w->v.temperature;
    if (w->given & WISH_TOP_K)
        s.top_k = w->v.top_k;
    if (w->given & WISH_TOP_P)
        s.top_p = w->v.top_p;
    if (w->given & WISH_MIN_P)
        s.min_p = w->v.min_p;
    if (w->given & WISH_REPEAT)
        s.repeat_penalty = w->v.repeat_penalty;
    if (w->given & WISH_PRESENCE)
        s.presence_penalty = w->v.presence_penalty;
    if (w->given & WISH_FREQUENCY)
        s.frequency_penalty = w->v.frequency_penalty;
    return s;
}

uint64_t answer_seed(uint64_t seed, uint64_t i)
{
    return i == 0 ? seed : (uint64_t)(rng_uniform(seed, i) * 0x1p53);
}

bool answer_is_empty(const struct qwick_result *r)
{
    for (size_t i = 0; i < r->n_text; i++)
        if (!strchr(" \t\r\n", r->text[i]) || !r->text[i])
            return false;
    return true;
}

bool answer_is_cut(enum qwick_finish why)
{
    return why != QWICK_FINISH_STOP && why != QWICK_FINISH_STOP_STRING;
}

int answer_check_model(const struct opt_parsed *p,
                       const struct qwick_engine *eng)
{
    static const char *const thinking[] = {"think-budget", NULL};
    if (qwick_engine_info(eng)->think_close_id >= 0)
        return -1;
    return opt_no_effect(p, thinking,
                         "with a model that has no token for the end of a "
                         "think block");
}

void answer_options(struct qwick_generate_options *o,
                    const struct opt_parsed *p, const struct answer_args *a,
                    bool raw)
{
    size_t guard = raw || a->ignore_eos ? 0 : QWICK_LOOP_GUARD_DEFAULT;
    o->max_tokens = (size_t)a->max_tokens;
    o->limit_thinking = opt_given(p, "think-budget");
    o->think_budget = (size_t)a->think_budget;
    o->stop = a->stop.v;
    o->n_stop = a->stop.n;
    o->ignore_eos = a->ignore_eos;
    o->loop_guard = opt_given(p, "loop-guard") ? (size_t)a->loop_guard : guard;
    o->timeout_ms = 1000 * a->timeout;
    o->logprobs = (size_t)a->logprobs;
}
