#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/clock.h"
#include "cli/opt/common.h"
#include "cli/io/json_writer.h"
#include "cli/opt/opt.h"
#include "cli/io/out.h"
#include "cli/io/progress.h"
#include "cli/io/signals.h"
#include "cli/opt/verbs.h"
#include "qwick.h"

struct args {
    struct common_args c;
    const char *output;
    const char *format, *type;
    const char *bits, *group, *head_bits, *scales;
    struct opt_texts only, skip;
    bool force;
};

#define ARG(field) offsetof(struct args, field)

static const struct opt opts[] = {
    {.type = OPT_HEADING, .help = "Options"},
    {.name = "output",
     .letter = 'o',
     .type = OPT_FILE,
     .arg = "PATH",
     .help = "directory to create, or file with --format gguf; it appears when "
             "it is complete",
     .access = OPT_MAKES,
     .offset = ARG(output)},
    {.name = "format",
     .type = OPT_CHOICE,
     .choices = "mlx|gguf",
     .def = "mlx",
     .help = "write a directory in MLX's affine format, or one GGUF file; "
             "a name in -o that ends in .gguf means gguf",
     .offset = ARG(format)},
    {.name = "type",
     .type = OPT_CHOICE,
     .choices = "Q8_0|Q6_K|Q4_K_M|Q4_0|BF16|F16",
     .arg = "NAME",
     .def = "Q4_K_M",
     .help = "which types the matrices of a GGUF file get",
     .offset = ARG(type)},
    {.name = "bits",
     .type = OPT_CHOICE,
     .choices = "2|3|4|5|6|8",
     .arg = "N",
     .def = "4",
     .help = "bits of a weight",
     .offset = ARG(bits)},
    {.name = "group",
     .type = OPT_CHOICE,
     .choices = "32|64|128",
     .arg = "N",
     .def = "64",
     .help = "weights that share one scale and bias",
     .offset = ARG(group)},
    {.name = "head-bits",
     .type = OPT_CHOICE,
     .choices = "2|3|4|5|6|8",
     .arg = "N",
     .def = "as --bits",
     .help = "bits of lm_head, or of the embedding if that is the head",
     .offset = ARG(head_bits)},
    {.name = "only",
     .type = OPT_TEXTS,
     .arg = "PATTERN",
     .help = "quantize only modules whose names match a shell pattern such as "
             "\"*.mlp.*\"; repeatable",
     .offset = ARG(only)},
    {.name = "skip",
     .type = OPT_TEXTS,
     .arg = "PATTERN",
     .help = "leave modules whose names match unchanged; repeatable",
     .offset = ARG(skip)},
    {.name = "scales",
     .type = OPT_CHOICE,
     .choices = "mlx|lsq",
     .def = "mlx",
     .help = "choose scales as MLX does, or search for the least squared error",
     .offset = ARG(scales)},
    {.name = "force",
     .type = OPT_FLAG,
     .help = "replace an existing checkpoint or GGUF file",
     .offset = ARG(force)},
    {.name = "json",
     .type = OPT_FLAG,
     .help = "print JSON when done",
     .offset = COMMON(json)},
    OPT_ROWS_MODEL,
    OPT_ROWS_THREADS,
    OPT_ROWS_SANDBOX,
    OPT_ROWS_BASIC,
};

/* ---- standard error ---- */

static void show(void *ctx, size_t done, size_t total)
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

static double speed(const struct qwick_quantize_report *r)
{
    return r->total_ms > 0 ? (double)r->bytes_read / 1e3 / r->total_ms : 0;
}

static int print_json(const struct args *a, const char *model,
                      const struct qwick_quantize_options *o,
                      const struct qwick_quantize_report *r)
{
    struct buf b = {0};
    struct json_writer w = json_writer(&b);
    jw_object(&w, NULL);
    jw_cstr(&w, "model", model ? model : "qwick-demo");
    jw_cstr(&w, "output", a->output);
    if (is_gguf(a)) {
        jw_cstr(&w, "format", "gguf");
        jw_cstr(&w, "type", o->type);
    } else {
        jw_cstr(&w, "format", "mlx");
        jw_int(&w, "bits", o->bits);
        jw_int(&w, "group", o->group);
        jw_int(&w, "head_bits", o->head_bits ? o->head_bits : o->bits);
        jw_cstr(&w, "scales", a->scales ? a->scales : "mlx");
    }
    jw_uint(&w, "n_quantized", r->n_quantized);
    jw_uint(&w, "n_dense", r->n_dense);
    jw_uint(&w, "n_params", r->n_params);
    jw_uint(&w, "bytes_read", r->bytes_read);
    jw_uint(&w, "bytes_written", r->bytes_written);
    jw_double(&w, "bits_per_weight", r->bits_per_weight);
    jw_double(&w, "total_ms", r->total_ms);
    jw_double(&w, "mb_s", speed(r));
    jw_end_object(&w);
    jw_newline(&w);
    int status = jw_status(&w) ? msg_oom() : out_write_names(b.data, b.len) ? 1 : 0;
    buf_free(&b);
    return status;
}

/* Print the report for humans: on a terminal, or with -v. */
static void print_report(const struct args *a, bool terminal,
                         const struct qwick_quantize_report *r)
{
    if (!terminal && !a->c.verbose)
        return;
    msg_level(false, true);
    msg_note("%s: %zu %s quantized, %.1f MB of %.1f MB, %.2f bits a "
             "weight, %.1f s, %.0f MB/s",
             a->output, r->n_quantized, is_gguf(a) ? "matrices" : "modules",
             (double)r->bytes_written / 1e6, (double)r->bytes_read / 1e6,
             r->bits_per_weight, r->total_ms / 1e3, speed(r));
}

static int quantize(struct args *a)
{
    struct qwick_quantize_options o = qwick_quantize_defaults();
    struct qwick_quantize_report r;
    struct qwick_err e = {0};
    double start_ms = clock_ms();
    const char *model = a->c.model;
    if (a->c.json && out_check())
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
    if (a->scales && strcmp(a->scales, "lsq") == 0)
        o.scales = QWICK_SCALES_LSQ;
    if (is_gguf(a)) {
        o.format = QWICK_QUANTIZE_GGUF;
        o.type = a->type ? a->type : "Q4_K_M";
    }
    o.force = a->force;
    o.threads = (int)a->c.threads;
    o.progress = show;
    o.progress_ctx = &start_ms;
    o.note = on_note;
    o.warn = on_warning;
    o.interrupt = signals_flag();
    int status = common_find(&a->c);
    if (status)
        return status;
    o.place = a->c.place;
    signals_catch();
    signals_at_bus(qwick_quantize_abandon);
    progress_start("quantize");
    int rc = qwick_quantize(model, a->output, &o, &r, &e);
    progress_stop();
    if (rc)
        return *signals_flag() ? (int)QWICK_ERR_RUNTIME : msg_fail(&e);
    print_report(a, isatty(STDERR_FILENO) && !a->c.quiet, &r);
    return a->c.json ? print_json(a, model, &o, &r) : 0;
}

/* Refuse options that have no effect with the format asked for. */
static int check_format(const struct opt_parsed *p, const struct args *a)
{
    static const char *const gguf_only[] = {"type", NULL};
    static const char *const mlx_only[] = {
        "bits", "group", "head-bits", "only", "skip", "scales", NULL};
    if (has_gguf_name(a) && !is_gguf(a)) {
        msg_error("-o %s: a name that ends in .gguf is of --format gguf, but "
                  "--format is %s",
                  a->output, a->format);
        return QWICK_ERR_USAGE;
    }
    return is_gguf(a) ? opt_no_effect(p, mlx_only, "with --format gguf")
                      : opt_no_effect(p, gguf_only, "without --format gguf");
}

static int run(const struct verb *v, int argc, char **argv)
{
    struct args a = {0};
    struct opt_parsed p;
    int status = opt_parse(&p, v, argc, argv, &a);
    if (status < 0)
        status = common_check(&p, &a.c);
    if (status < 0 && p.n_args)
        status = opt_usage(v,
                           "\"%s\": unexpected, the source goes with -m, the "
                           "result with -o",
                           p.args[0]);
    if (status < 0 && a.output && strcmp(a.output, "-") == 0)
        status = opt_usage(v, "-o -: the result is a directory or a file with a "
                              "name, not standard output");
    if (status < 0 && !a.output)
        status = opt_usage(v, "no --output; usage: qwick quantize [-m MODEL] "
                              "-o PATH");
    if (status < 0)
        status = check_format(&p, &a);
    if (status < 0)
        status = quantize(&a);
    opt_free(&p, &a);
    return status;
}

const struct verb verb_quantize = {
    .name = "quantize",
    .args = "-o PATH",
    .summary = "write a checkpoint with fewer bits a weight",
    .about =
        "Write a checkpoint whose weight matrices are rounded to few bits "
        "in groups:\nin MLX's affine format, for qwick and mlx-lm, or as a "
        "GGUF file, for qwick and\nprograms of llama.cpp's kind. Norms and "
        "biases stay as they are.",
    .examples = "  qwick quantize --bits 8 -o demo-8bit\n"
                "  qwick quantize --skip \"*.mlp.*\" -o demo-4bit\n"
                "  qwick quantize --format gguf --type Q4_K_M -o "
                "demo-Q4_K_M.gguf\n",
    OPT_TABLE(opts),
    .run = run,
};
