#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "cli/answer/answer_json.h"
#include "cli/io/out.h"
#include "cli/io/units.h"
#include "cli/opt/common.h"
#include "cli/opt/opt.h"
#include "cli/opt/verbs.h"
#include "qwick_tools.h"

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

static void fact_json(struct json_writer *w, const struct fact *f)
{
    switch (f->type) {
    case FACT_TEXT:
        jw_cstr(w, f->name, f->text);
        break;
    case FACT_SIZE:
    case FACT_COUNT:
    case FACT_BYTES:
        jw_uint(w, f->name, f->size);
        break;
    case FACT_REAL:
        jw_double(w, f->name, f->real);
        break;
    case FACT_BOOL:
        jw_bool(w, f->name, f->size);
        break;
    }
}

static int fact_line(struct buf *b, const struct fact *f)
{
    char name[32], size[32];
    size_t n = 0;
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

/* Lines, or with w members of an object. */
static int put_facts(struct buf *b, struct json_writer *w,
                     const struct qwick_info *i)
{
    const struct fact facts[] = {
        TEXT("model", i->model),
        TEXT("path", i->path),
        TEXT("model_type", i->model_type),
        TEXT("weights_dtype", i->weights_dtype),
        COUNT("n_params", i->n_params),
        COUNT("n_active_params", i->n_active_params),
        BYTES("weight_bytes", i->weight_bytes),
        BYTES("decode_bytes", i->decode_bytes),
        BYTES("kv_token_bytes", i->kv_token_bytes),
        BYTES("kv_state_bytes", i->kv_state_bytes),
        BYTES("kv_context_bytes",
              i->kv_token_bytes * i->n_ctx_max + i->kv_state_bytes),
        SIZE("vocab_size", i->vocab_size),
        SIZE("tokenizer_size", i->tokenizer_size),
        SIZE("d_model", i->d_model),
        SIZE("d_ff", i->d_ff),
        SIZE("n_experts", i->n_experts),
        SIZE("n_active_experts", i->n_active_experts),
        SIZE("expert_d_ff", i->expert_d_ff),
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
        TEXT("core", i->core),
        TEXT("kv_dtype", i->kv_dtype),
        TEXT("gemm", i->gemm),
        SIZE("threads", (size_t)i->threads),
        REAL("load_ms", round(i->load_ms * 1e3) / 1e3),
    };
    int bad = 0;
    for (size_t k = 0; k < sizeof(facts) / sizeof(*facts) && !bad; k++) {
        if (w)
            fact_json(w, &facts[k]);
        else
            bad |= fact_line(b, &facts[k]);
    }
    return bad ? -1 : 0;
}

static int stop_ids_line(struct buf *b, const struct qwick_engine *eng)
{
    const struct qwick_info *info = qwick_engine_info(eng);
    int bad = buf_puts(b, "stop ids          ");
    for (size_t i = 0; i < info->n_stop_ids && !bad; i++) {
        int32_t id = info->stop_ids[i];
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
    if (!info->n_stop_ids)
        bad |= buf_puts(b, " none");
    return buf_putc(b, '\n') || bad ? -1 : 0;
}

/* ---- quantization ---- */

static double bits_per_param(const struct qwick_info *i)
{
    return 8 * (double)i->weight_bytes / (double)i->n_params;
}

/* The name of a width of quantized weights, or of 0, what is not quantized. */
static void width_name(int bits, char out[16])
{
    if (bits)
        snprintf(out, 16, "%d", bits);
    else
        snprintf(out, 16, "dense");
}

static bool is_quantized(const struct qwick_info *i)
{
    return i->n_params != i->params_by_bits[0];
}

static void quantization_json(struct json_writer *w, const struct qwick_info *i)
{
    if (!is_quantized(i)) {
        jw_null(w, "quantization");
        return;
    }
    jw_object(w, "quantization");
    /* a GGUF file may have several types, so it has no single number of bits */
    if (i->quant_bits) {
        jw_int(w, "bits", i->quant_bits);
        jw_uint(w, "group_size", i->quant_group);
        jw_uint(w, "overrides", i->quant_overrides);
    }
    jw_double(w, "bits_per_param", round(bits_per_param(i) * 1e3) / 1e3);
    jw_object(w, "params_by_bits");
    for (int bits = 8; bits >= 0; bits--) {
        char name[16];
        width_name(bits, name);
        if (i->params_by_bits[bits])
            jw_uint(w, name, i->params_by_bits[bits]);
    }
    jw_end_object(w);
    jw_end_object(w);
}

static int quantization_lines(struct buf *b, const struct qwick_info *i)
{
    if (!is_quantized(i))
        return buf_puts(b, "quantization       none\n");
    int bad =
        i->quant_bits
            ? buf_printf(b,
                         "quantization       %d bits, group size %zu, "
                         "overrides %zu\n",
                         i->quant_bits, i->quant_group, i->quant_overrides)
            : buf_printf(b, "quantization       %s\n", i->weights_dtype);
    bad |= buf_printf(b, "bits per param     %.3f\n", bits_per_param(i));
    bad |= buf_puts(b, "params by bits     ");
    const char *between = "";
    for (int bits = 8; bits >= 0; bits--) {
        size_t n = i->params_by_bits[bits];
        char name[16];
        if (!n)
            continue;
        width_name(bits, name);
        bad |= buf_printf(b, "%s%s: %.4g %%", between, name,
                          100 * (double)n / (double)i->n_params);
        between = ", ";
    }
    return buf_putc(b, '\n') || bad ? -1 : 0;
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
    for (size_t i = 0; qwick_tensor_at(eng, i, &t, NULL) == 0; i++) {
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

static void shape_json(struct json_writer *w, const struct qwick_tensor *t)
{
    struct buf shape = {0};
    if (put_shape(&shape, t))
        w->failed = true;
    jw_raw(w, "shape", shape.data, shape.len);
    buf_free(&shape);
}

static void tensor_json(struct json_writer *w, const struct qwick_tensor *t)
{
    jw_object(w, NULL);
    jw_cstr(w, "name", t->name);
    jw_cstr(w, "dtype", t->dtype);
    shape_json(w, t);
    jw_uint(w, "bytes", t->bytes);
    jw_bool(w, "used", t->used);
    jw_cstr(w, "file", t->file);
    jw_end_object(w);
}

static void kind_json(struct json_writer *w, const struct kind *k)
{
    jw_object(w, NULL);
    jw_string(w, "name", k->name.data, k->name.len);
    jw_uint(w, "count", k->n);
    jw_cstr(w, "dtype", k->same ? k->dtype : NULL);
    if (k->same)
        shape_json(w, &k->first);
    else
        jw_null(w, "shape");
    jw_uint(w, "bytes", k->bytes);
    jw_bool(w, "used", k->first.used);
    jw_end_object(w);
}

/* The end of a row that began at start: blanks up to a column, the name, and
 * whether the model uses it. The name comes from the file: it is quoted, so
 * that no control byte gets out. */
static int put_name(struct buf *b, size_t start, size_t column, const char *s,
                    size_t n, bool used)
{
    size_t at = b->len - start;
    int bad = buf_printf(b, "%*s", at < column ? (int)(column - at) : 1, "");
    bad |= buf_json_string(b, s, n);
    return buf_puts(b, used ? "\n" : " (not used)\n") || bad ? -1 : 0;
}

static int tensor_line(struct buf *b, const struct qwick_tensor *t)
{
    char size[32];
    size_t start = b->len;
    size_text(t->bytes, "B", size);
    int bad = buf_printf(b, "%-5s %9s  ", t->dtype, size);
    bad |= put_shape(b, t);
    bad |= put_name(b, start, 35, t->name, strlen(t->name), t->used);
    return bad;
}

static int kind_line(struct buf *b, const struct kind *k)
{
    char size[32];
    size_t start = b->len;
    size_text(k->bytes, "B", size);
    int bad = buf_printf(b, "%4zu x %-5s %9s  ", k->n,
                         k->same ? k->dtype : "mixed", size);
    bad |= k->same ? put_shape(b, &k->first) : buf_puts(b, "-");
    bad |= put_name(b, start, 41, k->name.data, k->name.len, k->first.used);
    return bad;
}

static int put_kinds(struct buf *b, struct json_writer *w,
                     const struct qwick_engine *eng)
{
    struct kind *kinds;
    size_t n, n_rest;
    int bad = 0;
    if (collect_kinds(eng, &kinds, &n, &n_rest))
        return -1;
    for (size_t i = 0; i < n && !bad; i++) {
        if (w)
            kind_json(w, &kinds[i]);
        else
            bad |= kind_line(b, &kinds[i]);
    }
    if (n_rest && !w)
        bad |= buf_printf(b, "and %zu more, see --tensors\n", n_rest);
    free_kinds(kinds, n);
    return bad;
}

static int put_all(struct buf *b, struct json_writer *w,
                   const struct qwick_engine *eng)
{
    struct qwick_tensor t;
    int bad = 0;
    for (size_t i = 0; !bad && qwick_tensor_at(eng, i, &t, NULL) == 0; i++) {
        if (w)
            tensor_json(w, &t);
        else
            bad |= tensor_line(b, &t);
    }
    return bad;
}

/* ---- choices between kernels ---- */

/* Lines, or with w members of an object. */
static int put_tuning(struct buf *b, struct json_writer *w,
                      const struct qwick_engine *eng)
{
    const struct qwick_info *info = qwick_engine_info(eng);
    struct qwick_tuning t;
    int bad = 0;
    if (w) {
        jw_cstr(w, "core_evidence", info->core_evidence);
        jw_array(w, "tuning");
    } else {
        bad |= buf_printf(b, "\nkernels for %s, %s\n", info->core,
                          info->core_evidence);
    }
    for (size_t i = 0; !bad && !qwick_tuning_at(eng, i, &t, NULL); i++) {
        if (!w) {
            bad |= buf_printf(b, "%-20s %6zu  %-8s  %s%s\n", t.name, t.value,
                              t.evidence, t.about, t.used ? "" : " (not used)");
            continue;
        }
        jw_object(w, NULL);
        jw_cstr(w, "name", t.name);
        jw_uint(w, "value", t.value);
        jw_cstr(w, "evidence", t.evidence);
        jw_bool(w, "used", t.used);
        jw_end_object(w);
    }
    if (w)
        jw_end_array(w);
    return bad;
}

/* ---- the verb ---- */

static int put_json(struct buf *b, const struct qwick_engine *eng, bool all)
{
    const struct qwick_info *info = qwick_engine_info(eng);
    struct json_writer w = json_writer(b);
    jw_object(&w, NULL);
    put_facts(NULL, &w, info);
    quantization_json(&w, info);
    json_ids(&w, "stop_ids", info->stop_ids, info->n_stop_ids);
    put_tuning(NULL, &w, eng);
    jw_array(&w, all ? "tensors" : "tensor_kinds");
    int bad = all ? put_all(NULL, &w, eng) : put_kinds(NULL, &w, eng);
    jw_end_array(&w);
    jw_end_object(&w);
    jw_newline(&w);
    return jw_status(&w) | bad;
}

static int put_lines(struct buf *b, const struct qwick_engine *eng, bool all,
                     bool verbose)
{
    const struct qwick_info *info = qwick_engine_info(eng);
    int bad = put_facts(b, NULL, info);
    bad |= quantization_lines(b, info);
    bad |= stop_ids_line(b, eng);
    if (verbose)
        bad |= put_tuning(b, NULL, eng);
    bad |= buf_puts(b, all ? "\ndtype      size  shape             name\n"
                           : "\ncount  dtype      size  shape            "
                             "name\n");
    bad |= all ? put_all(b, NULL, eng) : put_kinds(b, NULL, eng);
    return bad;
}

static int inspect_run(struct opt_parsed *p, struct qwick_engine *eng)
{
    const struct args *a = &p->a;
    struct buf b = {0};
    int bad = a->json ? put_json(&b, eng, a->tensors)
                      : put_lines(&b, eng, a->tensors, a->verbose);
    int status = bad ? msg_oom() : out_write_names(b.data, b.len) ? 1 : 0;
    buf_free(&b);
    return status;
}

const struct verb verb_inspect = {
    .bit = V_INSPECT,
    .name = "inspect",
    .args = "",
    .summary = "what a checkpoint holds",
    .about = "Print a checkpoint's configuration, sizes, stop ids, template "
             "and tensors;\nwith -v also the choices between kernels for this "
             "CPU.",
    .examples = "  qwick inspect\n"
                "  qwick inspect --tensors --json\n",
    .opens = OPENS_MODEL,
    .check = common_check_no_args,
    .run = inspect_run,
};
