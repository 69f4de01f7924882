#include "cli/answer/answer_opts.h"

#include <stdlib.h>
#include <string.h>

#include "base/rng.h"
#include "cli/io/out.h"

int answer_check(const struct opt_parsed *p)
{
    int64_t guard = p->a.loop_guard;
    return guard == 1 || guard == 2
               ? opt_usage(p->verb,
                           "--loop-guard: %lld tokens repeat no sequence three "
                           "times, expected 0 or 3..1000000",
                           (long long)guard)
               : -1;
}

enum qwick_think answer_think(const struct args *a)
{
    return !a->think                     ? QWICK_THINK_AUTO
           : strcmp(a->think, "on") == 0 ? QWICK_THINK_ON
           : strcmp(a->think, "off") == 0 ? QWICK_THINK_OFF
                                          : QWICK_THINK_AUTO;
}

struct qwick_sampling answer_sampling(const struct opt_parsed *p,
                                      const struct qwick_engine *eng,
                                      bool think_off)
{
    const struct args *a = &p->a;
    struct qwick_sampling s = qwick_sampling_defaults(eng, !think_off);
    const struct {
        enum opt_id id;
        double value;
        float *to;
    } rows[] = {
        {OPT_temp, a->temp, &s.temperature},
        {OPT_top_p, a->top_p, &s.top_p},
        {OPT_min_p, a->min_p, &s.min_p},
        {OPT_repeat_penalty, a->repeat_penalty, &s.repeat_penalty},
        {OPT_presence_penalty, a->presence_penalty, &s.presence_penalty},
        {OPT_frequency_penalty, a->frequency_penalty, &s.frequency_penalty},
    };
    const size_t n_rows = sizeof(rows) / sizeof(*rows);
    bool any = opt_given(p, OPT_top_k);
    for (size_t i = 0; i < n_rows; i++)
        any |= opt_given(p, rows[i].id);
    if (a->greedy || (opt_given(p, OPT_temp) && a->temp == 0)) {
        s.temperature = 0;
        s.top_k = 0;
        s.top_p = 1;
        s.min_p = 0;
    } else if (any && s.temperature == 0) { /* the option turns sampling on */
        float repeat = s.repeat_penalty;
        s = qwick_sampling_neutral();
        s.repeat_penalty = repeat;
    }
    if (opt_given(p, OPT_top_k))
        s.top_k = (int)a->top_k;
    for (size_t i = 0; i < n_rows; i++)
        if (opt_given(p, rows[i].id))
            *rows[i].to = (float)rows[i].value;
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

void answer_drop_think(struct opt_parsed *p, enum opt_id because,
                       const char *why)
{
    if (p->a.think && strcmp(p->a.think, "on") == 0)
        opt_warn_no_effect(p, OPT_think, because, why);
    opt_warn_no_effect(p, OPT_think_budget, because, why);
}

/* Encode a small chat. Returns 0, or -1 if that fails. */
static int encode_chat(const struct qwick_engine *eng, enum qwick_think think,
                       int32_t **ids, size_t *n, bool *in_think)
{
    struct qwick_chat_options o = qwick_chat_defaults();
    struct qwick_chat *c = NULL;
    o.think = think;
    int rc = qwick_chat_create(&c, NULL) ||
             qwick_chat_add(c, "user", "?", 1, NULL) ||
             qwick_chat_encode(c, eng, &o, NULL, 0, ids, n, in_think, NULL);
    qwick_chat_free(c);
    return rc ? -1 : 0;
}

/* Say why --think has no effect: `on` if the template neither opens a think
 * block nor has a switch, `off` if it always opens one. NULL: it has one. */
static const char *think_useless(const struct qwick_engine *eng, bool on)
{
    int32_t *ids[2] = {NULL, NULL};
    size_t n[2] = {0, 0};
    bool opens[2] = {false, false};
    bool bad = encode_chat(eng, QWICK_THINK_OFF, &ids[0], &n[0], &opens[0]) ||
               encode_chat(eng, QWICK_THINK_ON, &ids[1], &n[1], &opens[1]);
    bool equal = !bad && n[0] == n[1] &&
                 memcmp(ids[0], ids[1], n[0] * sizeof(*ids[0])) == 0;
    free(ids[0]);
    free(ids[1]);
    if (bad)
        return NULL;
    if (on)
        return equal && !opens[1] ? "with a template without thinking" : NULL;
    return opens[0] ? "with a template that always opens a think block" : NULL;
}

void answer_drop_think_of(struct opt_parsed *p, const struct qwick_engine *eng)
{
    const char *think = opt_given(p, OPT_think) ? p->a.think : "auto";
    const char *why = strcmp(think, "auto") == 0
                          ? NULL
                          : think_useless(eng, strcmp(think, "on") == 0);
    if (why)
        opt_warn_no_effect(p, OPT_think, OPT_NONE, why);
    if (qwick_engine_info(eng)->think_close_id < 0)
        opt_warn_no_effect(p, OPT_think_budget, OPT_NONE,
                           "with a model that has no token for the end of a "
                           "think block");
}

int answer_choose_raw(struct opt_parsed *p, const enum opt_id *need,
                      const struct qwick_engine *eng)
{
    static const char why[] = "with a checkpoint that has no chat template";
    const struct qwick_info *info = qwick_engine_info(eng);
    if (strcmp(info->template_name, "none") != 0) {
        answer_drop_think_of(p, eng);
        return -1;
    }
    int r = opt_no_effects(p, need, OPT_NONE, why);
    if (r >= 0)
        return r;
    answer_drop_think(p, OPT_NONE, why);
    /* without a tokenizer, there are only ids */
    if (info->has_tokenizer && info->generates)
        msg_warn("%s: has no chat template: the model continues the prompt as "
                 "a raw text; --raw says that you want this, --chat-template "
                 "FILE gives one",
                 info->model);
    return 0;
}

/* Read "ID=B". Returns 0, or -1 if it is not of this form. */
static int bias_read(const char *s, struct qwick_bias *out)
{
    const char *equals = strchr(s, '=');
    char text[24];
    int64_t id;
    double b;
    size_t n = equals ? (size_t)(equals - s) : 0;
    if (n == 0 || n >= sizeof(text) || strspn(s, "0123456789") != n)
        return -1;
    memcpy(text, s, n);
    text[n] = 0;
    if (opt_int(text, &id) || id > INT32_MAX || opt_number(equals + 1, &b) ||
        !(b >= -QWICK_BIAS_MAX && b <= QWICK_BIAS_MAX))
        return -1;
    *out = (struct qwick_bias){.id = (int32_t)id, .bias = (float)b};
    return 0;
}

int answer_read_bias(const struct opt_parsed *p, struct qwick_bias **bias)
{
    const struct strings *given = &p->a.logit_bias;
    struct qwick_bias *v = calloc(given->n + 1, sizeof(*v));
    *bias = v;
    if (!v)
        return msg_oom();
    for (size_t i = 0; i < given->n; i++) {
        if (bias_read(given->v[i], &v[i]))
            return opt_usage(p->verb,
                             "--logit-bias: \"%s\": is not ID=B, a token id "
                             "and a number from %g to %g",
                             given->v[i], -QWICK_BIAS_MAX, QWICK_BIAS_MAX);
        for (size_t k = 0; k < i; k++)
            if (v[k].id == v[i].id)
                return opt_usage(p->verb, "--logit-bias: %d: is given twice",
                                 (int)v[i].id);
    }
    return 0;
}

int answer_check_generation(const struct opt_parsed *p,
                            const struct qwick_engine *eng)
{
    const struct qwick_sampling s = answer_sampling(p, eng, true);
    struct qwick_err e;
    return msg_result(qwick_check_generation(eng, &s, &e), &e);
}

void answer_options(struct qwick_generate_options *o,
                    const struct opt_parsed *p)
{
    const struct args *a = &p->a;
    bool no_guard = a->raw || a->ignore_eos;
    size_t guard = no_guard ? 0 : QWICK_LOOP_GUARD_DEFAULT;
    o->max_tokens = (size_t)a->max_tokens;
    o->limit_thinking = opt_given(p, OPT_think_budget);
    o->think_budget = (size_t)a->think_budget;
    o->stop = a->stop.v;
    o->n_stop = a->stop.n;
    o->ignore_eos = a->ignore_eos;
    o->loop_guard =
        opt_given(p, OPT_loop_guard) ? (size_t)a->loop_guard : guard;
    o->timeout_ms = 1000 * a->timeout;
    o->logprobs = (size_t)a->logprobs;
}
