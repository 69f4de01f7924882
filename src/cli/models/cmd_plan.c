/* plan: what an answer would need and take. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/buf.h"
#include "file/json_writer.h"
#include "cli/io/out.h"
#include "cli/io/progress.h"
#include "cli/io/signals.h"
#include "cli/io/units.h"
#include "cli/opt/common.h"
#include "cli/opt/opt.h"
#include "cli/opt/verbs.h"
#include "qwick_tools.h"

/* ---- JSON ---------------------------------------------------------------- */

static const char *source_name(enum qwick_plan_source s)
{
    return s == QWICK_PLAN_PASSES   ? "passes"
           : s == QWICK_PLAN_ROOFLINE ? "limits"
                                    : NULL;
}

static void plan_json(struct buf *b, const struct qwick_info *i,
                      const struct qwick_plan *p)
{
    struct json_writer w = jw_line(b);
    jw_cstr(&w, "model", i->model);
    jw_uint(&w, "prompt_tokens", p->n_prompt);
    jw_uint(&w, "answer_tokens", p->n_answer);
    jw_uint(&w, "n_ctx", p->n_ctx);
    jw_int(&w, "threads", i->threads);
    jw_int(&w, "threads_default", p->threads_default);
    jw_int(&w, "cpus_online", p->cpus_online);
    jw_int(&w, "cpus_affinity", p->cpus_affinity);
    jw_int(&w, "cores", p->cores);
    jw_known_double(&w, "cpu_quota", p->cpu_quota, 3);
    jw_known_uint(&w, "slurm_cpus", (size_t)p->slurm_cpus);
    jw_cstr(&w, "isa", i->isa);
    jw_cstr(&w, "kv_dtype", i->kv_dtype);
    jw_uint(&w, "weight_bytes", p->weight_bytes);
    if (p->resident_known)
        jw_uint(&w, "resident_bytes", p->resident_bytes);
    else
        jw_null(&w, "resident_bytes");
    jw_double(&w, "disk_bytes_per_token", round(p->disk_bytes));
    jw_uint(&w, "table_bytes", p->table_bytes);
    jw_known_uint(&w, "program_bytes", p->program_bytes);
    jw_uint(&w, "kv_bytes", p->kv_bytes);
    jw_uint(&w, "kv_1000_bytes", p->kv_1000_bytes);
    jw_uint(&w, "kv_full_bytes", p->kv_full_bytes);
    jw_uint(&w, "scratch_bytes", p->scratch_bytes);
    jw_uint(&w, "sampling_bytes", p->sampling_bytes);
    jw_uint(&w, "needed_bytes", p->needed_bytes);
    jw_known_uint(&w, "available_bytes", p->available_bytes);
    jw_bool(&w, "fits", p->fits);
    jw_cstr(&w, "speed_from", source_name(p->source));
    jw_known_double(&w, "bandwidth", p->bandwidth, 3);
    jw_known_double(&w, "peak_flops", p->peak, 3);
    jw_known_double(&w, "first_token_s", p->first_token_s, 3);
    jw_known_double(&w, "token_s", p->token_s, 3);
    jw_end_line(&w);
}

/* ---- text ---------------------------------------------------------------- */

static const char *bytes_text(size_t n, char out[32])
{
    size_text(n, "B", out);
    return out;
}

static void plan_head(struct buf *b, const struct qwick_info *i,
                      const struct qwick_plan *p)
{
    char quota[64] = "no CPU quota", slurm[64] = "", params[32];
    size_text(i->n_params, "", params);
    if (p->cpu_quota > 0)
        snprintf(quota, sizeof quota, "a CPU quota of %.3g", p->cpu_quota);
    if (p->slurm_cpus)
        snprintf(slurm, sizeof slurm, ", %d %s of a task in Slurm",
                 p->slurm_cpus, plural((uint64_t)p->slurm_cpus, "CPU", "CPUs"));
    buf_puts(b, "model        ");
    /* a name of a directory may hold any byte */
    buf_json_cstr(b, i->model);
    buf_printf(b,
               ", %s, %s parameters\n"
               "tokens       %zu of prompt, %zu of answer, context of "
               "%zu\n"
               "threads      %d%s: %d of %d CPUs in the affinity mask, "
               "%d physical cores, %s%s\n"
               "kernels      %s of %s, KV %s, prefill %s\n\n",
               i->weights_dtype, params, p->n_prompt, p->n_answer, p->n_ctx,
               i->threads, i->threads == p->threads_default ? "" : " as asked",
               p->cpus_affinity, p->cpus_online, p->cores, quota, slurm, i->isa,
               i->cpu, i->kv_dtype, i->gemm);
}

static void plan_weights(struct buf *b, const struct qwick_plan *p)
{
    char text[32];
    buf_printf(b, "weights    %9s  mapped; ",
               bytes_text(p->weight_bytes, text));
    if (!p->resident_known)
        buf_puts(b, "unknown how much is in memory");
    else
        buf_printf(b, "%.0f%% in memory now",
                   100 * (double)p->resident_bytes / (double)p->weight_bytes);
    if (p->disk_bytes > 0)
        buf_printf(b, "; each token reads %s from the disk",
                   bytes_text((size_t)p->disk_bytes, text));
    buf_puts(b, "\n");
    if (p->table_bytes)
        buf_printf(b,
                   "table      %9s  stays in the file: each token reads one "
                   "row\n",
                   bytes_text(p->table_bytes, text));
}

static void plan_memory(struct buf *b, const struct qwick_plan *p)
{
    char text[7][32], available[32];
    plan_weights(b, p);
    buf_printf(
        b,
        "program    %9s  in use already\n"
        "KV cache   %9s  %s for 1,000 tokens, %s for the whole "
        "context\n"
        "scratch    %9s\n"
        "sampling   %9s\n"
        "needed     %9s  the last three; %s available: %s\n\n",
        p->program_bytes ? bytes_text(p->program_bytes, text[0]) : "unknown",
        bytes_text(p->kv_bytes, text[1]), bytes_text(p->kv_1000_bytes, text[2]),
        bytes_text(p->kv_full_bytes, text[3]),
        bytes_text(p->scratch_bytes, text[4]),
        bytes_text(p->sampling_bytes, text[5]),
        bytes_text(p->needed_bytes, text[6]),
        p->available_bytes ? bytes_text(p->available_bytes, available)
                           : "unknown",
        p->fits ? "fits" : "does not fit");
}

static void plan_times(struct buf *b, const struct qwick_plan *p)
{
    if (p->source == QWICK_PLAN_NONE) {
        buf_puts(b, "times were not estimated\n");
        return;
    }
    double rest = p->n_answer > 1 ? (double)(p->n_answer - 1) : 0;
    const char *why =
        p->source == QWICK_PLAN_PASSES ? "from short passes of this model"
        : p->disk_bytes > 0 ? "from limits of the machine, without the disk: "
                              "expect longer times"
                            : "from limits of the machine: expect longer times";
    if (p->token_s <= 0) { /* an encoder's text has one vector or score */
        buf_printf(b, "text       %9.3g s\n%s\n", p->first_token_s, why);
        return;
    }
    buf_printf(b,
               "first token  %8.3g s\n"
               "each token   %8.3g s  %.3g tokens/s\n"
               "answer       %8.3g s\n"
               "%s\n",
               p->first_token_s, p->token_s, 1 / p->token_s,
               p->first_token_s + rest * p->token_s, why);
}

/* ---- the verb ------------------------------------------------------------ */

static int print_plan(const struct args *a, const struct qwick_info *i,
                      const struct qwick_plan *p)
{
    struct buf b = {0};
    if (a->json) {
        plan_json(&b, i, p);
    } else {
        plan_head(&b, i, p);
        plan_memory(&b, p);
        if (p->fits)
            plan_times(&b, p);
    }
    return out_print(&b, out_write_names);
}

static int plan_run(struct opt_parsed *p, struct qwick_engine *eng)
{
    const struct args *a = &p->a;
    struct qwick_plan_options o = qwick_plan_defaults();
    struct qwick_plan plan;
    struct qwick_err e = {0};
    o.n_prompt = (size_t)a->prompt_tokens;
    o.n_answer = (size_t)a->max_tokens;
    o.n_ctx = (size_t)a->ctx;
    o.no_speed = a->no_speed;
    o.interrupt = signals_flag();
    signals_catch();
    progress_start("plan");
    int rc = qwick_plan_make(eng, &o, &plan, &e);
    progress_stop();
    if (rc)
        return msg_fail(&e);
    int status = print_plan(a, qwick_engine_info(eng), &plan);
    if (status || plan.fits)
        return status;
    return msg_stop(QWICK_ERR_MEMORY,
                    "out of memory: %zu bytes are needed, %zu are available",
                    plan.needed_bytes, plan.available_bytes);
}

const struct verb verb_plan = {
    .bit = V_PLAN,
    .name = "plan",
    .group = VERBS_MODELS,
    .args = "",
    .summary = "say what an answer would need and take",
    .about =
        "Print the memory that a prompt and its answer need, the threads and "
        "why, the\nshare of the weights in memory, and estimates of the "
        "times. The exit status is 5\nif the memory does not suffice.",
    .examples = "  qwick plan\n"
                "  qwick plan --prompt-tokens 2000 -n 500 --kv q8\n",
    .opens = OPENS_MODEL,
    .check = common_check_no_args,
    .run = plan_run,
};
