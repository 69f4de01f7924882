/* Plan: memory that a prompt and its answer need, and the CPUs. Of an encoder,
 * the prompt is one text, which one pass evaluates. */
#include "engine/tasks/plan.h"

#include <math.h>

#include "base/buf.h"
#include "base/os.h"
#include "engine/core/options.h"
#include "qwick_tools.h"

enum { DEFAULT_PROMPT = 512 };

/* Bytes per token of the vocabulary: the logits, and arrays of the sampler and
 * of penalties. */
enum { SAMPLING_BYTES = 25 };

static size_t least(size_t a, size_t b)
{
    return a < b ? a : b;
}

/* Sum that stays at SIZE_MAX. */
static size_t plus(size_t a, size_t b)
{
    size_t sum;
    return size_add(a, b, &sum) ? SIZE_MAX : sum;
}

static int set_tokens(struct qwick_plan *p, const struct qwick_engine *eng,
                      const struct qwick_plan_options *o, struct qwick_err *e)
{
    bool encoder = eng->model.config.bidirectional;
    if (engine_context(eng, o->n_ctx, &p->n_ctx, e))
        return -1;
    p->n_prompt = o->n_prompt;
    if (!p->n_prompt) {
        size_t half = p->n_ctx > 1 && !encoder ? p->n_ctx / 2 : p->n_ctx;
        p->n_prompt = least(DEFAULT_PROMPT, half);
    }
    if (p->n_prompt > p->n_ctx)
        return err_set(e, QWICK_ERR_CONTEXT,
                       "prompt of %zu tokens, but the context has %zu",
                       p->n_prompt, p->n_ctx);
    p->n_answer = encoder ? 0 : least(o->n_answer, p->n_ctx - p->n_prompt);
    return 0;
}

/* The weights that the model uses, and the part of them in memory. */
static void set_weights(struct qwick_plan *p, const struct qwick_engine *eng)
{
    p->weight_bytes = eng->info.weight_bytes;
    p->table_bytes = eng->info.table_bytes;
    p->resident_known = true;
    for (size_t i = 0; i < st_count(eng->weights); i++) {
        const struct st_tensor *t = st_at(eng->weights, i);
        size_t bytes;
        if (eng->model.weights.used[i] != WEIGHT_READ)
            continue;
        if (!os_resident_bytes(t->data, t->n_bytes, &bytes))
            p->resident_known = false;
        p->resident_bytes += bytes;
    }
    p->resident_bytes += weights_copied_bytes(&eng->model.weights);
}

static int set_memory(struct qwick_plan *p, struct qwick_engine *eng,
                      struct qwick_err *e)
{
    const struct model *m = &eng->model;
    size_t n = p->n_prompt + p->n_answer;
    bool encoder = m->config.bidirectional;
    size_t pass = encoder ? n : least(p->n_prompt, m->chunk);
    struct kv_cache kv; /* empty: no positions */
    if (kv_init(&kv, eng->kv, &m->config, e) ||
        scratch_predict(&p->scratch_bytes, m, pass, n, e))
        return -1;
    p->program_bytes = os_private_bytes();
    p->kv_bytes = kv_sequence_bytes(&kv, n);
    /* qwick_session_sync adds one at the end of the prompt */
    if (p->n_prompt >= KV_BLOCK && kv.state.n_layers)
        p->kv_bytes = plus(p->kv_bytes, state_snapshot_bytes(&kv.state));
    p->kv_1000_bytes = kv_sequence_bytes(&kv, 1000);
    p->kv_full_bytes = kv_sequence_bytes(&kv, p->n_ctx);
    kv_free(&kv);
    /* session_reserve_tokens makes room for half as many ids again */
    p->sampling_bytes =
        (encoder ? 0 : SAMPLING_BYTES * m->config.vocab_size) + 6 * n;
    p->needed_bytes =
        plus(p->kv_bytes, plus(p->scratch_bytes, p->sampling_bytes));
    p->available_bytes = os_available_memory();
    p->fits = !p->available_bytes || p->needed_bytes <= p->available_bytes;
    size_t left = p->fits && p->available_bytes
                      ? p->available_bytes - p->needed_bytes
                      : SIZE_MAX;
    p->disk_bytes = model_disk_bytes(m, left);
    return 0;
}

static void set_cpus(struct qwick_plan *p)
{
    struct os_cpu_limits l;
    os_cpu_limits(&l);
    p->cpus_online = l.online;
    p->cpus_affinity = l.affinity;
    p->cores = l.cores;
    p->cpu_quota = isfinite(l.quota) ? l.quota : 0;
    p->slurm_cpus = l.slurm;
    p->threads_default = os_default_threads();
}

int qwick_plan_make(struct qwick_engine *eng,
                    const struct qwick_plan_options *given,
                    struct qwick_plan *p, struct qwick_err *e)
{
    struct qwick_plan_options all = qwick_plan_defaults(), *o = &all;
    *p = (struct qwick_plan){0};
    if (options_read(o, sizeof *o, given, "plan", e) ||
        (!eng->model.config.bidirectional &&
         engine_refuse_classifier(eng, e)) ||
        set_tokens(p, eng, o, e))
        return -1;
    set_weights(p, eng);
    set_cpus(p);
    if (set_memory(p, eng, e))
        return -1;
    return o->no_speed || !p->fits ? 0 : plan_probe(p, eng, o->interrupt, e);
}
