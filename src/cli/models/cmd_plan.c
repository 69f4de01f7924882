/* plan: what an answer would need and take. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/buf.h"
#include "cli/io/json_writer.h"
#include "cli/io/out.h"
#include "cli/io/progress.h"
#include "cli/io/signals.h"
#include "cli/io/units.h"
#include "cli/opt/common.h"
#include "cli/opt/opt.h"
#include "cli/opt/verbs.h"
#include "qwick_tools.h"

/* ---- JSON ---------------------------------------------------------------- */

/* Three digits: more would change from run to run. 0 is unknown. */
static void put_real(struct json_writer *w, const char *key, double v)
{
    char text[32];
    snprintf(text, sizeof text, "%.3g", v);
    if (v > 0)
        jw_double(w, key, strtod(text, NULL));
    else
        jw_null(w, key);
}

/* 0 is unknown. */
static void put_size(struct json_writer *w, const char *key, size_t n)
{
    if (n)
        jw_uint(w, key, n);
    else
        jw_null(w, key);
}

static const char *source_name(enum qwick_plan_source s)
{
    return s == QWICK_PLAN_PASSES   ? "passes"
           : s == QWICK_PLAN_ROOFLINE ? "limits"
                                    : NULL;
}

static int put_json(struct buf *b, const struct qwick_info *i,
                    const struct qwick_plan *p)
{
    struct json_writer w = json_writer(b);
    jw_object(&w, NULL);
    jw_cstr(&w, "model", i->model);
    jw_uint(&w, "prompt_tokens", p->n_prompt);
    jw_uint(&w, "answer_tokens", p->n_answer);
    jw_uint(&w, "n_ctx", p->n_ctx);
    jw_int(&w, "threads", i->threads);
    jw_int(&w, "threads_default", p->threads_default);
    jw_int(&w, "cpus_online", p->cpus_online);
    jw_int(&w, "cpus_affinity", p->cpus_affinity);
    jw_int(&w, "cores", p->cores);
    put_real(&w, "cpu_quota", p->cpu_quota);
    jw_cstr(&w, "isa", i->isa);
    jw_cstr(&w, "kv_dtype", i->kv_dtype);
    jw_uint(&w, "weight_bytes", p->weight_bytes);
    if (p->resident_known)
        jw_uint(&w, "resident_bytes", p->resident_bytes);
    else
        jw_null(&w, "resident_bytes");
    jw_double(&w, "disk_bytes_per_token", round(p->disk_bytes));
    put_size(&w, "program_bytes", p->program_bytes);
    jw_uint(&w, "kv_bytes", p->kv_bytes);
    jw_uint(&w, "kv_1000_bytes", p->kv_1000_bytes);
    jw_uint(&w, "kv_full_bytes", p->kv_full_bytes);
    jw_uint(&w, "scratch_bytes", p->scratch_bytes);
    jw_uint(&w, "sampling_bytes", p->sampling_bytes);
    jw_uint(&w, "needed_bytes", p->needed_bytes);
    put_size(&w, "available_bytes", p->available_bytes);
    jw_bool(&w, "fits", p->fits);
    jw_cstr(&w, "speed_from", source_name(p->source));
    put_real(&w, "bandwidth", p->bandwidth);
    put_real(&w, "peak_flops", p->peak);
    put_real(&w, "first_token_s", p->first_token_s);
    put_real(&w, "token_s", p->token_s);
    jw_end_object(&w);
    jw_newline(&w);
    return jw_status(&w);
}

/* ---- text ---------------------------------------------------------------- */

static const char *bytes(size_t n, char out[32])
{
    size_text(n, "B", out);
    return out;
}

static int put_head(struct buf *b, const struct qwick_info *i,
                    const struct qwick_plan *p)
{
    char quota[64] = "no CPU quota", params[32];
    size_text(i->n_params, "", params);
    if (p->cpu_quota > 0)
        snprintf(quota, sizeof quota, "a CPU quota of %.3g", p->cpu_quota);
    int bad = buf_puts(b, "model        ");
    /* a name of a directory may hold any byte */
    bad |= buf_json_cstr(b, i->model);
    bad |= buf_printf(b, ", %s, %s parameters\n", i->weights_dtype, params);
    bad |= buf_printf(b,
                      "tokens       %zu of prompt, %zu of answer, context of "
                      "%zu\n",
                      p->n_prompt, p->n_answer, p->n_ctx);
    bad |= buf_printf(b,
                      "threads      %d%s: %d of %d CPUs in the affinity mask, "
                      "%d physical cores, %s\n",
                      i->threads,
                      i->threads == p->threads_default ? "" : " as asked",
                      p->cpus_affinity, p->cpus_online, p->cores, quota);
    return bad | buf_printf(b, "kernels      %s of %s, KV %s, prefill %s\n\n",
                            i->isa, i->cpu, i->kv_dtype, i->gemm);
}

static int put_weights(struct buf *b, const struct qwick_plan *p)
{
    char text[32];
    int bad =
        buf_printf(b, "weights    %9s  mapped; ", bytes(p->weight_bytes, text));
    if (!p->resident_known)
        bad |= buf_puts(b, "unknown how much is in memory");
    else
        bad |= buf_printf(b, "%.0f%% in memory now",
                          100 * (double)p->resident_bytes /
                              (double)p->weight_bytes);
    if (p->disk_bytes > 0)
        bad |= buf_printf(b, "; each token reads %s from the disk",
                          bytes((size_t)p->disk_bytes, text));
    return bad | buf_puts(b, "\n");
}

static int put_memory(struct buf *b, const struct qwick_plan *p)
{
    char text[4][32];
    int bad = put_weights(b, p);
    bad |= buf_printf(b, "program    %9s  in use already\n",
                      p->program_bytes ? bytes(p->program_bytes, text[0])
                                       : "unknown");
    bad |= buf_printf(b,
                      "KV cache   %9s  %s for 1,000 tokens, %s for the whole "
                      "context\n",
                      bytes(p->kv_bytes, text[0]),
                      bytes(p->kv_1000_bytes, text[1]),
                      bytes(p->kv_full_bytes, text[2]));
    bad |= buf_printf(b, "scratch    %9s\n", bytes(p->scratch_bytes, text[0]));
    bad |= buf_printf(b, "sampling   %9s\n", bytes(p->sampling_bytes, text[0]));
    return bad |
           buf_printf(b, "needed     %9s  the last three; %s %s: %s\n\n",
                      bytes(p->needed_bytes, text[0]),
                      p->available_bytes ? bytes(p->available_bytes, text[1])
                                         : "unknown",
                      "available", p->fits ? "fits" : "does not fit");
}

static int put_times(struct buf *b, const struct qwick_plan *p)
{
    if (p->source == QWICK_PLAN_NONE)
        return buf_puts(b, "times were not estimated\n");
    double rest = p->n_answer > 1 ? (double)(p->n_answer - 1) : 0;
    const char *why =
        p->source == QWICK_PLAN_PASSES ? "from short passes of this model"
        : p->disk_bytes > 0 ? "from limits of the machine, without the disk: "
                              "expect longer times"
                            : "from limits of the machine: expect longer times";
    return buf_printf(b,
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
    int status = 0;
    int bad = a->json ? put_json(&b, i, p)
                      : put_head(&b, i, p) | put_memory(&b, p) |
                            (p->fits ? put_times(&b, p) : 0);
    if (bad)
        status = msg_oom();
    else if (out_write_names(b.data, b.len))
        status = QWICK_ERR_RUNTIME;
    buf_free(&b);
    return status;
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
    msg_error("out of memory: %zu bytes are needed, %zu are available",
              plan.needed_bytes, plan.available_bytes);
    return QWICK_ERR_MEMORY;
}

const struct verb verb_plan = {
    .bit = V_PLAN,
    .name = "plan",
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
