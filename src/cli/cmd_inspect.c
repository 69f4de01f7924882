#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "cli/common.h"
#include "cli/json_out.h"
#include "cli/opt.h"
#include "cli/out.h"
#include "cli/verbs.h"
#include "qwick.h"

struct args {
    struct common_args c;
    bool tensors;
};

#define ARG(field) offsetof(struct args, field)

static const struct opt opts[] = {
    {.type = OPT_HEADING, .help = "Options"},
    {.name = "tensors",
     .type = OPT_FLAG,
     .help = "list every tensor, not one line a kind",
     .offset = ARG(tensors)},
    {.name = "json",
     .type = OPT_FLAG,
     .help = "print JSON",
     .offset = COMMON(json)},
    OPT_ROWS_MODEL,
    OPT_ROWS_THREADS,
    OPT_ROWS_KERNELS,
    OPT_ROWS_BASIC,
};

/* Tensors whose names differ in numbers only. */
struct kind {
    struct buf name; /* numbers between dots replaced by "*" */
    const char *dtype;
    struct qwick_tensor first;
    size_t n, bytes;
    bool same; /* all of the first's dtype and shape */
};

/* ---- facts ---- */

enum fact_type {
    FACT_TEXT,
    FACT_SIZE,
    FACT_COUNT, /* large: with "596 M" for people */
    FACT_BYTES, /* with "1.2 GB" for people */
    FACT_REAL,
    FACT_BOOL
};

struct fact {
    const char *name; /* in JSON, and with blanks for people */
    enum fact_type type;
    const char *text;
    size_t size;
    double real;
};

#define TEXT(n, v)                                \
    {                                             \
        .name = n, .type = FACT_TEXT, .text = (v) \
    }
#define SIZE(n, v)                                \
    {                                             \
        .name = n, .type = FACT_SIZE, .size = (v) \
    }
#define COUNT(n, v)                                \
    {                                              \
        .name = n, .type = FACT_COUNT, .size = (v) \
    }
#define BYTES(n, v)                                \
    {                                              \
        .name = n, .type = FACT_BYTES, .size = (v) \
    }
#define REAL(n, v)                                \
    {                                             \
        .name = n, .type = FACT_REAL, .real = (v) \
    }
#define BOOL(n, v)                                \
    {                                             \
        .name = n, .type = FACT_BOOL, .size = (v) \
    }

/* Three digits and a unit of powers of 1000, as in the figures of bench:
 * "1.19 GB", "596 M". */
static void size_text(size_t n, const char *unit, char out[32])
{
    static const char *const prefixes[] = {"", "k", "M", "G", "T", "P", "E"};
    double x = (double)n;
    size_t i = 0;
    for (; x >= 999.5 && i + 1 < sizeof(prefixes) / sizeof(*prefixes); i++)
        x /= 1000;
    int digits = i == 0 || x >= 99.95 ? 0 : x >= 9.995 ? 1 : 2;
    snprintf(out, 32, "%.*f %s%s", digits, x, prefixes[i], unit);
}

static int put_fact(struct buf *b, const struct fact *f, bool json)
{
    char name[32], size[32];
    size_t n = 0;
    if (json) {
        int bad = buf_printf(b, "\"%s\":", f->name);
        switch (f->type) {
        case FACT_TEXT:
            bad |= f->text ? buf_json_cstr(b, f->text) : buf_puts(b, "null");
            break;
        case FACT_SIZE:
        case FACT_COUNT:
        case FACT_BYTES:
            bad |= buf_printf(b, "%zu", f->size);
            break;
        case FACT_REAL:
            bad |= buf_json_double(b, f->real);
            break;
        case FACT_BOOL:
            bad |= buf_puts(b, f->size ? "true" : "false");
            break;
        }
        return bad ? -1 : 0;
    }
    for (; f->name[n] && n + 1 < sizeof(name); n++)
        name[n] = f->name[n] == '_' ? ' ' : f->name[n];
    name[n] = 0;
    switch (f->type) {
    case FACT_SIZE:
        return buf_printf(b, "%-18s %zu\n", name, f->size);
    case FACT_COUNT:
    case FACT_BYTES:
        size_text(f->size, f->type == FACT_BYTES ? "B" : "", size);
        return buf_printf(b, "%-18s %zu (%s)\n", name, f->size, size);
    case FACT_REAL:
        return buf_printf(b, "%-18s %g\n", name, f->real);
    case FACT_BOOL:
        return buf_printf(b, "%-18s %s\n", name, f->size ? "yes" : "no");
    case FACT_TEXT:
        break;
    }
    return buf_printf(b, "%-18s %s\n", name, f->text ? f->text : "-");
}

static int put_facts(struct buf *b, const struct qwick_info *i, bool json)
{
    const struct fact facts[] = {
        TEXT("model", i->model),
        TEXT("path", i->path),
        TEXT("model_type", i->model_type),
        TEXT("weights_dtype", i->weights_dtype),
        COUNT("n_params", i->n_params),
        BYTES("weight_bytes", i->weight_bytes),
        BYTES("decode_bytes", i->decode_bytes),
        BYTES("kv_token_bytes", i->kv_token_bytes),
        BYTES("kv_context_bytes", i->kv_token_bytes * i->n_ctx_max),
        SIZE("vocab_size", i->vocab_size),
        SIZE("tokenizer_size", i->tokenizer_size),
        SIZE("d_model", i->d_model),
        SIZE("d_ff", i->d_ff),
        SIZE("n_layers", i->n_layers),
        SIZE("n_heads", i->n_heads),
        SIZE("n_kv_heads", i->n_kv_heads),
        SIZE("head_dim", i->head_dim),
        SIZE("n_ctx_max", i->n_ctx_max),
        SIZE("sliding_window", i->sliding_window),
        TEXT("rope_type", i->rope_type),
        REAL("rope_theta", i->rope_theta),
        REAL("rms_eps", i->rms_eps),
        BOOL("tied_head", i->tied_head),
        BOOL("attention_bias", i->attention_bias),
        BOOL("has_tokenizer", i->has_tokenizer),
        TEXT("template", i->template_name),
        TEXT("isa", i->isa),
        TEXT("cpu", i->cpu),
        TEXT("kv_dtype", i->kv_dtype),
        TEXT("gemm", i->gemm),
        SIZE("threads", (size_t)i->threads),
        REAL("load_ms", round(i->load_ms * 1e3) / 1e3),
    };
    int bad = 0;
    for (size_t k = 0; k < sizeof(facts) / sizeof(*facts) && !bad; k++) {
        if (json && k)
            bad |= buf_putc(b, ',');
        bad |= put_fact(b, &facts[k], json);
    }
    return bad ? -1 : 0;
}

static int put_stop_ids(struct buf *b, const struct qwick_engine *eng,
                        bool json)
{
    const struct qwick_info *info = qwick_engine_info(eng);
    int bad = buf_puts(b, json ? ",\"stop_ids\":[" : "stop ids          ");
    for (size_t i = 0; i < info->n_stop_ids && !bad; i++) {
        int32_t id = info->stop_ids[i];
        if (json) {
            bad |= buf_printf(b, "%s%d", i ? "," : "", id);
            continue;
        }
        char *text;
        size_t n;
        bad |= buf_printf(b, " %d", id);
        bad |= token_text(eng, id, &text, &n);
        if (text) {
            bad |= buf_putc(b, ' ');
            bad |= buf_json_string(b, text, n);
        }
        free(text);
    }
    if (!json && !info->n_stop_ids)
        bad |= buf_puts(b, " none");
    return buf_puts(b, json ? "]" : "\n") || bad ? -1 : 0;
}

/* ---- quantization ---- */

/* A width of quantized weights, or 0 for what is not quantized. */
static int put_width(struct buf *b, const struct qwick_info *i, int bits,
                     bool first, bool json)
{
    size_t n = i->params_by_bits[bits];
    char name[16] = "dense";
    if (bits)
        snprintf(name, sizeof(name), "%d", bits);
    if (json)
        return buf_printf(b, "%s\"%s\":%zu", first ? "" : ",", name, n);
    return buf_printf(b, "%s%s: %.4g %%", first ? "" : ", ", name,
                      100 * (double)n / (double)i->n_params);
}

static int put_quantization(struct buf *b, const struct qwick_info *i,
                            bool json)
{
    if (!i->quant_bits)
        return buf_puts(b, json ? ",\"quantization\":null"
                                : "quantization       none\n");
    int bad = buf_printf(b,
                         json ? ",\"quantization\":{\"bits\":%d,"
                                "\"group_size\":%zu,\"overrides\":%zu"
                              : "quantization       %d bits, group size %zu, "
                                "overrides %zu\n",
                         i->quant_bits, i->quant_group, i->quant_overrides);
    double bits = 8 * (double)i->weight_bytes / (double)i->n_params;
    if (json) {
        bad |= buf_puts(b, ",\"bits_per_param\":");
        bad |= buf_json_double(b, round(bits * 1e3) / 1e3);
        bad |= buf_puts(b, ",\"params_by_bits\":{");
    } else {
        bad |= buf_printf(b, "bits per param     %.3f\n", bits);
        bad |= buf_puts(b, "params by bits     ");
    }
    bool first = true;
    for (int w = 8; w >= 0; w--) {
        if (!i->params_by_bits[w])
            continue;
        bad |= put_width(b, i, w, first, json);
        first = false;
    }
    return buf_puts(b, json ? "}}" : "\n") || bad ? -1 : 0;
}

/* ---- tensors ---- */

static int put_shape(struct buf *b, const struct qwick_tensor *t)
{
    int bad = buf_putc(b, '[');
    for (size_t i = 0; i < t->rank && !bad; i++)
        bad |= buf_printf(b, "%s%zu", i ? ", " : "", t->shape[i]);
    return buf_putc(b, ']') || bad ? -1 : 0;
}

static int kind_name(struct buf *out, const char *name)
{
    int bad = 0;
    while (*name && !bad) {
        size_t n = strcspn(name, ".");
        bad |= n && strspn(name, "0123456789") == n ? buf_putc(out, '*')
                                                    : buf_append(out, name, n);
        name += n;
        if (*name)
            bad |= buf_putc(out, *name++);
    }
    return bad ? -1 : 0;
}

static bool same_shape(const struct qwick_tensor *a,
                       const struct qwick_tensor *b)
{
    return a->rank == b->rank && strcmp(a->dtype, b->dtype) == 0 &&
           memcmp(a->shape, b->shape, a->rank * sizeof(*a->shape)) == 0;
}

static void free_kinds(struct kind *kinds, size_t n)
{
    for (size_t i = 0; i < n; i++)
        buf_free(&kinds[i].name);
    free(kinds);
}

/* Kinds in order of first appearance. There are a dozen, so a linear search
 * does; a checkpoint with many odd names is listed after this many. */
#define MAX_KINDS 256

static int collect_kinds(const struct qwick_engine *eng, struct kind **out,
                         size_t *n_out, size_t *n_rest)
{
    struct kind *kinds = calloc(MAX_KINDS, sizeof(*kinds));
    struct qwick_tensor t;
    size_t n = 0;
    *n_rest = 0;
    if (!kinds)
        return -1;
    for (size_t i = 0; qwick_tensor_at(eng, i, &t) == 0; i++) {
        struct buf name = {0};
        size_t k = 0;
        if (kind_name(&name, t.name)) {
            buf_free(&name);
            free_kinds(kinds, n);
            return -1;
        }
        while (k < n && (kinds[k].first.used != t.used ||
                         kinds[k].name.len != name.len ||
                         (name.len && memcmp(kinds[k].name.data, name.data,
                                             name.len) != 0)))
            k++;
        if (k == MAX_KINDS) {
            ++*n_rest;
            buf_free(&name);
            continue;
        }
        if (k == n) {
            n++;
            kinds[k] = (struct kind){name, t.dtype, t, 1, t.bytes, true};
            continue;
        }
        buf_free(&name);
        kinds[k].n++;
        kinds[k].bytes += t.bytes;
        kinds[k].same &= same_shape(&kinds[k].first, &t);
    }
    *out = kinds;
    *n_out = n;
    return 0;
}

static int put_tensor(struct buf *b, const struct qwick_tensor *t, bool json)
{
    int bad = 0;
    if (json) {
        bad |= buf_puts(b, "{\"name\":");
        bad |= buf_json_cstr(b, t->name);
        bad |= buf_puts(b, ",\"dtype\":");
        bad |= buf_json_cstr(b, t->dtype);
        bad |= buf_puts(b, ",\"shape\":");
        bad |= put_shape(b, t);
        bad |= buf_printf(b, ",\"bytes\":%zu,\"used\":%s,\"file\":", t->bytes,
                          t->used ? "true" : "false");
        bad |= buf_json_cstr(b, t->file);
        return buf_putc(b, '}') || bad ? -1 : 0;
    }
    char size[32];
    size_t start = b->len;
    size_text(t->bytes, "B", size);
    bad |= buf_printf(b, "%-5s %9s  ", t->dtype, size);
    bad |= put_shape(b, t);
    size_t col = b->len - start;
    bad |= buf_printf(b, "%*s", col < 35 ? (int)(35 - col) : 1, "");
    /* names come from the file: quoted, so that no control byte gets out */
    bad |= buf_json_cstr(b, t->name);
    return buf_puts(b, t->used ? "\n" : " (not used)\n") || bad ? -1 : 0;
}

static int put_kind(struct buf *b, const struct kind *k, bool json)
{
    int bad = 0;
    if (json) {
        bad |= buf_puts(b, "{\"name\":");
        bad |=
            buf_json_string(b, k->name.data ? k->name.data : "", k->name.len);
        bad |= buf_printf(b, ",\"count\":%zu,\"dtype\":", k->n);
        bad |= k->same ? buf_json_cstr(b, k->dtype) : buf_puts(b, "null");
        bad |= buf_puts(b, ",\"shape\":");
        bad |= k->same ? put_shape(b, &k->first) : buf_puts(b, "null");
        return buf_printf(b, ",\"bytes\":%zu,\"used\":%s}", k->bytes,
                          k->first.used ? "true" : "false") ||
                       bad
                   ? -1
                   : 0;
    }
    char size[32];
    size_t start = b->len;
    size_text(k->bytes, "B", size);
    bad |= buf_printf(b, "%4zu x %-5s %9s  ", k->n,
                      k->same ? k->dtype : "mixed", size);
    bad |= k->same ? put_shape(b, &k->first) : buf_puts(b, "-");
    size_t col = b->len - start;
    bad |= buf_printf(b, "%*s", col < 41 ? (int)(41 - col) : 1, "");
    bad |= buf_json_string(b, k->name.data ? k->name.data : "", k->name.len);
    return buf_puts(b, k->first.used ? "\n" : " (not used)\n") || bad ? -1 : 0;
}

static int put_tensors(struct buf *b, const struct qwick_engine *eng, bool all,
                       bool json)
{
    struct kind *kinds = NULL;
    struct qwick_tensor t;
    size_t n = 0, n_rest = 0, i;
    int bad = 0;
    if (!all && collect_kinds(eng, &kinds, &n, &n_rest))
        return -1;
    if (json)
        bad |= buf_printf(b, ",\"%s\":[", all ? "tensors" : "tensor_kinds");
    else
        bad |= buf_puts(b, all ? "\ndtype      size  shape             name\n"
                               : "\ncount  dtype      size  shape            "
                                 "name\n");
    for (i = 0; i < n && !bad; i++) {
        if (json && i)
            bad |= buf_putc(b, ',');
        bad |= put_kind(b, &kinds[i], json);
    }
    for (i = 0; all && !bad && qwick_tensor_at(eng, i, &t) == 0; i++) {
        if (json && i)
            bad |= buf_putc(b, ',');
        bad |= put_tensor(b, &t, json);
    }
    if (n_rest && !json)
        bad |= buf_printf(b, "and %zu more, see --tensors\n", n_rest);
    free_kinds(kinds, n);
    return (json && buf_putc(b, ']')) || bad ? -1 : 0;
}

static int inspect(const struct args *a, struct qwick_engine *eng)
{
    const struct qwick_info *info = qwick_engine_info(eng);
    struct buf b = {0};
    bool json = a->c.json;
    int bad = 0, status;
    if (json)
        bad |= buf_putc(&b, '{');
    bad |= put_facts(&b, info, json);
    bad |= put_quantization(&b, info, json);
    bad |= put_stop_ids(&b, eng, json);
    bad |= put_tensors(&b, eng, a->tensors, json);
    if (json)
        bad |= buf_puts(&b, "}\n");
    status = bad ? msg_oom() : out_write(b.data, b.len) ? 1 : 0;
    buf_free(&b);
    return status;
}

static int run(const struct verb *v, int argc, char **argv)
{
    struct args a = {0};
    struct opt_parsed p;
    struct qwick_engine *eng = NULL;
    int status = opt_parse(&p, v, argc, argv, &a);
    if (status < 0)
        status = common_check(&p, &a.c);
    if (status < 0 && p.n_args)
        status =
            opt_usage(v, "\"%s\": unexpected, a model goes with -m", p.args[0]);
    if (status < 0)
        status = common_open(&eng, &a.c, false);
    if (status == 0 && eng)
        status = inspect(&a, eng);
    qwick_engine_close(eng);
    opt_free(&p, &a);
    return status;
}

const struct verb verb_inspect = {
    .name = "inspect",
    .args = "",
    .summary = "what a checkpoint holds",
    .about = "Print a checkpoint's configuration, sizes, stop ids, template "
             "and tensors.",
    .opts = opts,
    .n_opts = sizeof(opts) / sizeof(*opts),
    .run = run,
};
