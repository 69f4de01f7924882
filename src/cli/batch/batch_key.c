#include "cli/batch/batch_key.h"

#include <string.h>

#include "base/key.h"
#include "cli/batch/batch_job.h"

/* Whether a draft model changes sampled answers, so that it is in their keys.
 */
static bool draft_changes(const struct batch_job *j)
{
    return j->g.draft && !j->a->exact;
}

int batch_key_open(struct batch_job *j, struct qwick_err *e)
{
    const struct qwick_info *info = qwick_engine_info(j->g.eng);
    uint64_t id[2];
    if (qwick_engine_identity(j->g.eng, id, e) ||
        (draft_changes(j) && qwick_engine_identity(j->g.draft, j->draft_id, e)))
        return -1;
    j->run = key_start("qwick batch 1");
    key_add_u64(&j->run, id[0]);
    key_add_u64(&j->run, id[1]);
    key_add_u64(&j->run, j->a->exact);
    key_add_text(&j->run, info->kv_dtype, strlen(info->kv_dtype));
    key_add_u64(&j->run, j->a->ctx ? (uint64_t)j->a->ctx : info->n_ctx_max);
    key_add_u64(&j->run, (uint64_t)j->a->logprobs);
    if (j->form != &form_jsonl)
        key_add_text(&j->run, j->form->name, strlen(j->form->name));
    return 0;
}

static void key_add_sampling(struct key *k, const struct request *r,
                             const struct batch_job *j,
                             const struct qwick_sampling *s)
{
    key_add_float(k, s->repeat_penalty);
    key_add_float(k, s->presence_penalty);
    key_add_float(k, s->frequency_penalty);
    key_add_float(k, s->temperature);
    if (s->temperature == 0)
        return;
    key_add_u64(k, (uint64_t)s->top_k);
    key_add_float(k, s->top_p);
    key_add_float(k, s->min_p);
    bool given = r->has_seed || opt_given(j->g.p, OPT_seed);
    key_add_u64(k, given);
    key_add_u64(k, given ? s->seed : 0);
    if (draft_changes(j)) {
        key_add_text(k, "draft", 5);
        key_add_u64(k, j->draft_id[0]);
        key_add_u64(k, j->draft_id[1]);
    }
}

uint64_t batch_key_of_sample(const struct request *r, const struct batch_job *j,
                             size_t i)
{
    struct qwick_sampling sampling;
    struct qwick_generate_options o = request_options(r, i, &sampling);
    struct key k = j->run;
    key_add_ids(&k, r->ids, r->n_ids);
    key_add_sampling(&k, r, j, &sampling);
    key_add_u64(&k, i);
    key_add_u64(&k, o.max_tokens);
    key_add_u64(&k, o.n_stop);
    for (const char *const *t = o.stop; t < o.stop + o.n_stop; t++)
        key_add_text(&k, *t, strlen(*t));
    key_add_u64(&k, o.ignore_eos);
    key_add_u64(&k, o.in_think);
    key_add_u64(&k, !o.split_thinking);
    key_add_u64(&k, o.loop_guard);
    if (o.limit_thinking) {
        key_add_text(&k, "think budget", 12);
        key_add_u64(&k, o.think_budget);
    }
    if (o.n_bias)
        key_add_text(&k, "logit bias", 10);
    for (size_t b = 0; b < o.n_bias; b++) {
        key_add_u64(&k, (uint64_t)o.bias[b].id);
        key_add_float(&k, o.bias[b].bias);
    }
    if (r->constraint)
        constraint_add_key(&k, r->constraint);
    if (r->one_call)
        key_add_text(&k, "one call", 8);
    if (j->a->extract)
        key_add_text(&k, "code", 4);
    if (r->own_logprobs) {
        key_add_text(&k, "logprobs", 8);
        key_add_u64(&k, r->no_top ? 0 : r->o.logprobs);
    }
    return key_u64(&k);
}

uint64_t batch_key_of_line(const struct batch_job *j, const char *text,
                           size_t n)
{
    struct key k = j->run;
    key_add_text(&k, "line", 4);
    key_add_text(&k, text, n);
    return key_u64(&k);
}
