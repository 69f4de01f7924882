#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/clock.h"
#include "cli/io/out.h"
#include "cli/io/progress.h"
#include "cli/io/signals.h"
#include "cli/models/quantize_report.h"
#include "cli/models/quantize_widths.h"
#include "cli/opt/opt.h"
#include "cli/opt/verbs.h"
#include "cli/sandbox/open_model.h"
#include "file/json_writer.h"
#include "qwick_tools.h"

/* ---- standard error ---- */

static void quantize_show(void *ctx, size_t done, size_t total)
{
    const double *start_ms = ctx;
    double ms = clock_ms() - *start_ms;
    char text[80];
    if (!progress_due() || total == 0 || ms <= 0)
        return;
    progress_format(text, sizeof(text), "MB", done / 1000000, total / 1000000,
                    progress_left(ms / 1000, done, 0, total));
    progress_show("%s, %.0f MB/s", text, (double)done / 1e3 / ms);
}

static void show_texts(void *ctx, size_t done, size_t total)
{
    const double *start_ms = ctx;
    char text[80];
    if (!progress_due() || total == 0)
        return;
    progress_format(text, sizeof(text), "tokens", done, total,
                    progress_left((clock_ms() - *start_ms) / 1000, done, 0,
                                  total));
    progress_show("calibrate: %s", text);
}

static void show_groups(void *ctx, size_t done, size_t total)
{
    (void)ctx;
    if (progress_due())
        progress_show("measure: %zu of %zu passes", done, total);
}

static void on_note(void *ctx, const char *line)
{
    (void)ctx;
    progress_clear();
    msg_note("%s", line);
}

static void on_warning(void *ctx, const char *line)
{
    (void)ctx;
    progress_clear();
    msg_warn("%s", line);
}

/* ---- the work ---- */

static bool has_gguf_name(const struct args *a)
{
    const char *dot = a->output ? strrchr(a->output, '.') : NULL;
    return dot && strcasecmp(dot, ".gguf") == 0;
}

static bool is_gguf(const struct args *a)
{
    return a->format ? strcmp(a->format, "gguf") == 0 : has_gguf_name(a);
}

static bool has_budget(const struct args *a)
{
    return a->bpw != 0 || a->target;
}

static bool calibrates(const struct args *a)
{
    return a->calibrate.n || a->calibrate_self;
}

static double speed(const struct qwick_quantize_report *r)
{
    return r->total_ms > 0 ? (double)r->bytes_read / 1e3 / r->total_ms : 0;
}

static int print_json(const struct args *a, const char *model,
                      const struct qwick_quantize_options *o,
                      const struct qwick_quantize_report *r,
                      const struct quantize_report *losses,
                      const struct quantize_widths *widths)
{
    struct buf b = {0};
    struct json_writer w = jw_line(&b);
    jw_cstr(&w, "model", model ? model : "qwick-demo");
    jw_cstr(&w, "output", a->output);
    if (is_gguf(a)) {
        jw_cstr(&w, "format", "gguf");
        jw_cstr(&w, "type", o->type);
    } else {
        jw_cstr(&w, "format", "mlx");
        /* with a budget, "widths" has those of each module */
        if (has_budget(a))
            jw_null(&w, "bits");
        else
            jw_int(&w, "bits", o->bits);
        if (has_budget(a) && !a->group)
            jw_null(&w, "group");
        else
            jw_int(&w, "group", o->group);
        if (has_budget(a))
            jw_null(&w, "head_bits");
        else
            jw_int(&w, "head_bits", o->head_bits ? o->head_bits : o->bits);
        jw_cstr(&w, "scales", a->scales        ? a->scales
                              : calibrates(a) ? "feedback"
                                              : "mlx");
    }
    jw_uint(&w, "n_quantized", r->n_quantized);
    jw_uint(&w, "n_dense", r->n_dense);
    jw_uint(&w, "n_params", r->n_params);
    jw_uint(&w, "bytes_read", r->bytes_read);
    jw_uint(&w, "bytes_written", r->bytes_written);
    jw_double(&w, "bits_per_weight", r->bits_per_weight);
    jw_double(&w, "total_ms", r->total_ms);
    jw_double(&w, "mb_s", speed(r));
    if (has_budget(a))
        quantize_widths_json(widths, r, o->bits, &w);
    if (a->report)
        quantize_report_json(losses, &w);
    jw_end_line(&w);
    return out_print(&b, out_write_names);
}

/* Print the report for humans: on a terminal, or with -v. */
static void print_report(const struct args *a, bool terminal,
                         const struct qwick_quantize_report *r)
{
    if (!terminal && !a->verbose)
        return;
    msg_level(false, true);
    msg_note("%s: %zu %s quantized, %.1f MB of %.1f MB, %.2f bits a "
             "weight, %.1f s, %.0f MB/s",
             a->output, r->n_quantized, is_gguf(a) ? "matrices" : "modules",
             (double)r->bytes_written / 1e6, (double)r->bytes_read / 1e6,
             r->bits_per_weight, r->total_ms / 1e3, speed(r));
}

/* Returns an exit status. */
static int quantize(struct opt_parsed *p, struct quantize_report *losses,
                    struct quantize_widths *widths)
{
    const struct args *a = &p->a;
    struct qwick_quantize_options o = qwick_quantize_defaults();
    struct qwick_quantize_report r;
    struct qwick_err e = {0};
    double start_ms = clock_ms();
    const char *model = a->model;
    if ((a->json || a->report || has_budget(a)) && out_check())
        return QWICK_ERR_RUNTIME; /* fail before the work, not after it */
    /* the option table allows only numbers here */
    if (a->bits)
        o.bits = atoi(a->bits);
    if (a->group)
        o.group = atoi(a->group);
    if (a->head_bits)
        o.head_bits = atoi(a->head_bits);
    o.only = a->only.v;
    o.n_only = a->only.n;
    o.skip = a->skip.v;
    o.n_skip = a->skip.n;
    if (a->scales)
        o.scales = strcmp(a->scales, "lsq") == 0        ? QWICK_SCALES_LSQ
                   : strcmp(a->scales, "feedback") == 0 ? QWICK_SCALES_FEEDBACK
                                                        : QWICK_SCALES_MLX;
    o.calibrate = a->calibrate.v;
    o.n_calibrate = a->calibrate.n;
    o.calibrate_self = (int)a->calibrate_self;
    o.calibrate_memory = (size_t)a->calibrate_memory;
    o.seed = (uint64_t)a->seed;
    o.calibrating = show_texts;
    if (is_gguf(a)) {
        o.format = QWICK_QUANTIZE_GGUF;
        o.type = a->type;
        o.chosen_type = &o.type;
    }
    o.chosen_bits = &o.bits;
    o.chosen_group = &o.group;
    o.bpw = a->bpw;
    o.target_bytes = (size_t)a->target;
    o.dry_run = a->dry_run;
    o.on_width = quantize_widths_add;
    o.on_width_ctx = widths;
    o.measuring = show_groups;
    o.force = a->force;
    o.threads = (int)a->threads;
    o.progress = quantize_show;
    o.progress_ctx = &start_ms;
    o.note = on_note;
    o.warn = on_warning;
    o.interrupt = signals_flag();
    int status = open_model_find(p);
    if (status)
        return status;
    o.place = p->models.place;
    o.loras = p->models.loras;
    o.n_loras = p->models.n_loras;
    signals_catch();
    if (a->report && (status = quantize_report_open(losses, p)) != 0)
        return status;
    signals_at_bus(qwick_quantize_abandon);
    progress_start("quantize");
    int rc = qwick_quantize(model, a->output, &o, &r, &e);
    progress_stop();
    if (rc)
        return *signals_flag() ? (int)QWICK_ERR_RUNTIME : msg_fail(&e);
    if (!a->dry_run)
        print_report(a, isatty(STDERR_FILENO) && !a->quiet, &r);
    if (widths->failed)
        return msg_oom();
    if (has_budget(a) && !a->json &&
        (status = quantize_widths_print(widths, &r)) != 0)
        return status;
    if (a->report && (status = quantize_report_run(losses)) != 0)
        return status;
    return a->json     ? print_json(a, model, &o, &r, losses, widths)
           : a->report ? quantize_report_print(losses, &r)
                       : 0;
}

static int quantize_run(struct opt_parsed *p, struct qwick_engine *eng)
{
    struct quantize_report losses = {0};
    struct quantize_widths widths = {0};
    (void)eng;
    int status = quantize(p, &losses, &widths);
    quantize_widths_free(&widths);
    quantize_report_close(&losses);
    return status;
}

static int quantize_check(struct opt_parsed *p)
{
    const struct args *a = &p->a;
    const enum opt_id mlx_only[] = {
        OPT_bits, OPT_group, OPT_head_bits,
        OPT_only, OPT_skip,  calibrates(a) ? OPT_NONE : OPT_scales,
        OPT_NONE};
    if (p->n_args)
        return opt_usage(p->verb,
                         "\"%s\": unexpected, the source goes with -m, the "
                         "result with -o",
                         p->args[0]);
    if (has_budget(a) && !calibrates(a))
        return opt_usage(p->verb, "--%s: the loss of each width is measured on "
                                  "texts: add --calibrate FILE",
                         a->target ? "target" : "bpw");
    if (!a->output && !a->dry_run)
        return opt_usage(p->verb, "no --output; usage: qwick quantize [-m "
                                  "MODEL] -o PATH");
    if (a->output && strcmp(a->output, "-") == 0)
        return opt_usage(p->verb, "-o -: the result is a directory or a file "
                                  "with a name, not standard output");
    if (has_gguf_name(a) && !is_gguf(a))
        return msg_refuse(
            "-o %s: a name that ends in .gguf is of --format gguf, but "
            "--format is %s",
            a->output, a->format);
    return is_gguf(a)
               ? opt_no_effects(p, mlx_only, OPT_format, "with --format gguf")
               : opt_no_effect(p, OPT_type, OPT_format,
                               "without --format gguf");
}

const struct verb verb_quantize = {
    .bit = V_QUANTIZE,
    .name = "quantize",
    .group = VERBS_MODELS,
    .args = "-o PATH",
    .summary = "write a checkpoint with fewer bits a weight",
    .about =
        "Write a checkpoint whose weight matrices are rounded to few bits "
        "in groups:\nin MLX's affine format, for qwick and mlx-lm, or as a "
        "GGUF file, for qwick and\nprograms of llama.cpp's kind. Norms and "
        "biases stay as they are. The source of a\nGGUF file may be another "
        "GGUF file.",
    .examples = "  qwick quantize --bits 8 -o demo-8bit\n"
                "  qwick quantize --skip \"*.mlp.*\" -o demo-4bit\n"
                "  qwick quantize --format gguf --type Q4_K_M -o "
                "demo-Q4_K_M.gguf\n",
    .check = quantize_check,
    .run = quantize_run,
};
