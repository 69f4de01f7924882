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
#include "cli/report/report.h"
#include "qwick_tools.h"

/* Tensors whose names differ in numbers only. */
struct kind {
    struct buf name; /* numbers between dots replaced by "*" */
    struct qwick_tensor first;
    size_t n, bytes;
    bool same; /* all of the first's dtype and shape */
};

/* ---- facts ---- */

/* Lines, or with w members of an object. */
static void put_facts(struct buf *b, struct json_writer *w,
                      const struct qwick_info *i)
{
    const struct fact facts[] = {
        FACT("model", AS_TEXT(i->model)),
        FACT("path", AS_TEXT(i->path)),
        FACT("model_type", AS_TEXT(i->model_type)),
        FACT("weights_dtype", AS_TEXT(i->weights_dtype)),
        FACT("n_params", AS_LARGE(i->n_params)),
        FACT("n_active_params", AS_LARGE(i->n_active_params)),
        FACT("weight_bytes", AS_BYTES(i->weight_bytes)),
        FACT("decode_bytes", AS_BYTES(i->decode_bytes)),
        FACT("table_bytes", AS_BYTES(i->table_bytes)),
        FACT("lora_bytes", AS_BYTES(i->lora_bytes)),
        FACT("kv_token_bytes", AS_BYTES(i->kv_token_bytes)),
        FACT("kv_state_bytes", AS_BYTES(i->kv_state_bytes)),
        FACT("kv_context_bytes",
             AS_BYTES(i->kv_token_bytes * i->n_ctx_max + i->kv_state_bytes)),
        FACT("vocab_size", AS_COUNT(i->vocab_size)),
        FACT("tokenizer_size", AS_COUNT(i->tokenizer_size)),
        FACT("d_model", AS_COUNT(i->d_model)),
        FACT("d_ff", AS_COUNT(i->d_ff)),
        FACT("n_experts", AS_COUNT(i->n_experts)),
        FACT("n_active_experts", AS_COUNT(i->n_active_experts)),
        FACT("expert_d_ff", AS_COUNT(i->expert_d_ff)),
        FACT("n_layers", AS_COUNT(i->n_layers)),
        FACT("n_heads", AS_COUNT(i->n_heads)),
        FACT("n_kv_heads", AS_COUNT(i->n_kv_heads)),
        FACT("head_dim", AS_COUNT(i->head_dim)),
        FACT("n_ctx_max", AS_COUNT(i->n_ctx_max)),
        FACT("sliding_window", AS_COUNT(i->sliding_window)),
        FACT("rope_type", AS_TEXT(i->rope_type)),
        FACT("rope_theta", AS_REAL(i->rope_theta, 0, 0)),
        FACT("rms_eps", AS_REAL(i->rms_eps, 0, 0)),
        FACT("tied_head", AS_BOOL(i->tied_head)),
        FACT("attention_bias", AS_BOOL(i->attention_bias)),
        FACT("has_tokenizer", AS_BOOL(i->has_tokenizer)),
        FACT("template", AS_TEXT(i->template_name)),
        FACT("tool_calls", AS_TEXT(i->call_form ? i->call_form : "none")),
        FACT("isa", AS_TEXT(i->isa)),
        FACT("cpu", AS_TEXT(i->cpu)),
        FACT("core", AS_TEXT(i->core)),
        FACT("kv_dtype", AS_TEXT(i->kv_dtype)),
        FACT("gemm", AS_TEXT(i->gemm)),
        FACT("threads", AS_COUNT((size_t)i->threads)),
        FACT("load_ms", AS_REAL(round(i->load_ms * 1e3) / 1e3, 0, 0)),
    };
    size_t n = sizeof(facts) / sizeof(*facts);
    if (w)
        report_json(w, facts, n);
    else
        report_lines(b, facts, n);
}

static void stop_ids_line(struct buf *b, const struct qwick_engine *eng)
{
    const struct qwick_info *info = qwick_engine_info(eng);
    buf_puts(b, "stop ids          ");
    for (size_t i = 0; i < info->n_stop_ids; i++) {
        int32_t id = info->stop_ids[i];
        char *text;
        size_t n;
        buf_printf(b, " %d", id);
        b->failed |= token_text(eng, id, &text, &n) != 0;
        if (text) {
            buf_putc(b, ' ');
            buf_json_string(b, text, n);
        }
        free(text);
    }
    if (!info->n_stop_ids)
        buf_puts(b, " none");
    buf_putc(b, '\n');
}

/* ---- vectors ---- */

static void prompts_json(struct json_writer *w, const struct qwick_engine *eng,
                         size_t n)
{
    jw_object(w, "prompts");
    for (size_t i = 0; i < n; i++) {
        const char *text, *name = qwick_vector_prompt(eng, i, &text);
        jw_cstr(w, name, text);
    }
    jw_end_object(w);
}

static void vectors_json(struct json_writer *w, const struct qwick_engine *eng,
                         const struct qwick_vector_info *v)
{
    jw_cstr(w, "pooling", v->pooling);
    jw_uint(w, "dense_modules", v->n_dense);
    jw_uint(w, "dim", v->dim);
    jw_uint(w, "default_dim", v->default_dim);
    jw_array(w, "trained_dims");
    for (size_t i = 0; i < v->n_dims; i++)
        jw_uint(w, NULL, v->dims[i]);
    jw_end_array(w);
    if (v->max_tokens)
        jw_uint(w, "max_tokens", v->max_tokens);
    else
        jw_null(w, "max_tokens");
    prompts_json(w, eng, v->n_prompts);
    jw_cstr(w, "default_prompt", v->default_prompt);
}

static void vectors_lines(struct buf *b, const struct qwick_engine *eng,
                          const struct qwick_vector_info *v)
{
    buf_printf(b, "pooling            %s", v->pooling);
    if (v->n_dense)
        buf_printf(b, ", %zu Dense modules", v->n_dense);
    buf_printf(b, "\nvectors            %zu numbers", v->dim);
    if (v->default_dim != v->dim)
        buf_printf(b, ", cut to %zu", v->default_dim);
    for (size_t i = 0; i < v->n_dims; i++)
        buf_printf(b, "%s%zu", i ? ", " : "; trained for ", v->dims[i]);
    buf_putc(b, '\n');
    if (v->max_tokens)
        buf_printf(b, "max text tokens    %zu\n", v->max_tokens);
    for (size_t i = 0; i < v->n_prompts; i++) {
        const char *text, *name = qwick_vector_prompt(eng, i, &text);
        bool used = v->default_prompt && strcmp(name, v->default_prompt) == 0;
        buf_puts(b, "prompt             ");
        buf_json_string(b, name, strlen(name));
        buf_puts(b, used ? " (default) " : " ");
        buf_json_string(b, text, strlen(text));
        buf_putc(b, '\n');
    }
}

/* Of models that embed is for. Lines, or with w a member. */
static void put_vectors(struct buf *b, struct json_writer *w,
                        struct qwick_engine *eng)
{
    const struct qwick_info *info = qwick_engine_info(eng);
    struct qwick_vector_info v;
    struct qwick_err e = {0};
    bool embeds = !info->is_classifier &&
                  (!info->generates || !qwick_embed_suitability(eng));
    int failed = embeds && qwick_engine_vectors(eng, &v, &e);
    if (w && !embeds)
        jw_null(w, "vectors");
    if (w && embeds) {
        jw_object(w, "vectors");
        if (failed)
            jw_cstr(w, "error", e.msg);
        else
            vectors_json(w, eng, &v);
        jw_end_object(w);
    }
    if (w)
        return;
    if (failed)
        buf_printf(b, "vectors            none: %s\n", e.msg);
    else if (embeds)
        vectors_lines(b, eng, &v);
}

/* ---- quantization ---- */

static double bits_per_param(const struct qwick_info *i)
{
    return 8 * (double)(i->weight_bytes + i->table_bytes) /
           (double)i->n_params;
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

static void quantization_lines(struct buf *b, const struct qwick_info *i)
{
    if (!is_quantized(i)) {
        buf_puts(b, "quantization       none\n");
        return;
    }
    if (i->quant_bits)
        buf_printf(
            b, "quantization       %d bits, group size %zu, overrides %zu\n",
            i->quant_bits, i->quant_group, i->quant_overrides);
    else
        buf_printf(b, "quantization       %s\n", i->weights_dtype);
    buf_printf(b, "bits per param     %.3f\n", bits_per_param(i));
    buf_puts(b, "params by bits     ");
    const char *between = "";
    for (int bits = 8; bits >= 0; bits--) {
        size_t n = i->params_by_bits[bits];
        char name[16];
        if (!n)
            continue;
        width_name(bits, name);
        buf_printf(b, "%s%s: %.4g %%", between, name,
                   100 * (double)n / (double)i->n_params);
        between = ", ";
    }
    buf_putc(b, '\n');
}

/* ---- adapters ---- */

/* Lines, or with w an array. */
static void put_loras(struct buf *b, struct json_writer *w,
                      const struct qwick_engine *eng)
{
    struct qwick_lora_info l;
    if (w)
        jw_array(w, "adapters");
    for (size_t i = 0; !qwick_engine_lora_at(eng, i, &l, NULL); i++) {
        if (!w) {
            buf_puts(b, "adapter            ");
            buf_json_string(b, l.name, strlen(l.name));
            buf_printf(b, ", %zu matrices, rank up to %zu\n", l.n_matrices,
                       l.max_rank);
            continue;
        }
        jw_object(w, NULL);
        jw_cstr(w, "name", l.name);
        jw_uint(w, "n_matrices", l.n_matrices);
        jw_uint(w, "max_rank", l.max_rank);
        jw_end_object(w);
    }
    if (w)
        jw_end_array(w);
}

/* ---- tensors ---- */

static void put_shape(struct buf *b, const struct qwick_tensor *t)
{
    buf_putc(b, '[');
    for (size_t i = 0; i < t->rank; i++)
        buf_printf(b, "%s%zu", i ? ", " : "", t->shape[i]);
    buf_putc(b, ']');
}

static void kind_name(struct buf *out, const char *name)
{
    while (*name) {
        size_t n = strcspn(name, ".");
        if (n && strspn(name, "0123456789") == n)
            buf_putc(out, '*');
        else
            buf_append(out, name, n);
        name += n;
        if (*name)
            buf_putc(out, *name++);
    }
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
        kind_name(&name, t.name);
        if (name.failed) {
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
            kinds[k] = (struct kind){name, t, 1, t.bytes, true};
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
    put_shape(&shape, t);
    w->failed |= shape.failed;
    jw_raw(w, "shape", shape.data, shape.len);
    buf_free(&shape);
}

static void kind_json(struct json_writer *w, const struct kind *k, bool all)
{
    jw_object(w, NULL);
    jw_buf(w, "name", &k->name);
    if (!all)
        jw_uint(w, "count", k->n);
    jw_cstr(w, "dtype", k->same ? k->first.dtype : NULL);
    if (k->same)
        shape_json(w, &k->first);
    else
        jw_null(w, "shape");
    jw_uint(w, "bytes", k->bytes);
    jw_bool(w, "used", k->first.used);
    if (all)
        jw_cstr(w, "file", k->first.file);
    jw_end_object(w);
}

/* A row, with all: of one tensor. The name comes from the file: it is quoted,
 * so that no control byte gets out. */
static void kind_line(struct buf *b, const struct kind *k, bool all)
{
    char size[32];
    size_t start = b->len, column = all ? 35 : 41;
    size_text(k->bytes, "B", size);
    if (!all)
        buf_printf(b, "%4zu x ", k->n);
    buf_printf(b, "%-5s %9s  ", k->same ? k->first.dtype : "mixed", size);
    if (k->same)
        put_shape(b, &k->first);
    else
        buf_puts(b, "-");
    size_t at = b->len - start;
    buf_printf(b, "%*s", at < column ? (int)(column - at) : 1, "");
    buf_json_string(b, k->name.data, k->name.len);
    buf_puts(b, k->first.used ? "\n" : " (not used)\n");
}

static void put_kind(struct buf *b, struct json_writer *w, const struct kind *k,
                     bool all)
{
    if (w)
        kind_json(w, k, all);
    else
        kind_line(b, k, all);
}

static void put_kinds(struct buf *b, struct json_writer *w,
                      const struct qwick_engine *eng)
{
    struct buf *out = w ? w->out : b;
    struct kind *kinds;
    size_t n, n_rest;
    if (collect_kinds(eng, &kinds, &n, &n_rest)) {
        out->failed = true;
        return;
    }
    for (size_t i = 0; i < n; i++)
        put_kind(b, w, &kinds[i], false);
    if (n_rest && !w)
        buf_printf(b, "and %zu more, see --tensors\n", n_rest);
    free_kinds(kinds, n);
}

/* Each tensor is a kind of its own. */
static void put_all(struct buf *b, struct json_writer *w,
                    const struct qwick_engine *eng)
{
    struct kind k = {.n = 1, .same = true};
    for (size_t i = 0; qwick_tensor_at(eng, i, &k.first, NULL) == 0; i++) {
        k.name.len = 0;
        k.bytes = k.first.bytes;
        buf_puts(&k.name, k.first.name);
        put_kind(b, w, &k, true);
    }
    buf_free_part(&k.name, w ? w->out : b);
}

/* ---- choices between kernels ---- */

/* Lines, or with w members of an object. */
static void put_tuning(struct buf *b, struct json_writer *w,
                       const struct qwick_engine *eng)
{
    const struct qwick_info *info = qwick_engine_info(eng);
    struct qwick_tuning t;
    if (w) {
        jw_cstr(w, "core_evidence", info->core_evidence);
        jw_array(w, "tuning");
    } else {
        buf_printf(b, "\nkernels for %s, %s\n", info->core,
                   info->core_evidence);
    }
    for (size_t i = 0; !qwick_tuning_at(eng, i, &t, NULL); i++) {
        if (!w) {
            buf_printf(b, "%-20s %6zu  %-8s  %s%s\n", t.name, t.value,
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
}

/* ---- the verb ---- */

static void inspect_json(struct buf *b, struct qwick_engine *eng, bool all)
{
    const struct qwick_info *info = qwick_engine_info(eng);
    struct json_writer w = jw_line(b);
    put_facts(NULL, &w, info);
    quantization_json(&w, info);
    json_ids(&w, "stop_ids", info->stop_ids, info->n_stop_ids);
    put_vectors(NULL, &w, eng);
    put_loras(NULL, &w, eng);
    put_tuning(NULL, &w, eng);
    jw_array(&w, all ? "tensors" : "tensor_kinds");
    (all ? put_all : put_kinds)(NULL, &w, eng);
    jw_end_line(&w);
}

static void inspect_lines(struct buf *b, struct qwick_engine *eng, bool all,
                          bool verbose)
{
    const struct qwick_info *info = qwick_engine_info(eng);
    put_facts(b, NULL, info);
    quantization_lines(b, info);
    stop_ids_line(b, eng);
    put_vectors(b, NULL, eng);
    put_loras(b, NULL, eng);
    if (verbose)
        put_tuning(b, NULL, eng);
    buf_puts(b, all ? "\ndtype      size  shape             name\n"
                    : "\ncount  dtype      size  shape            "
                      "name\n");
    (all ? put_all : put_kinds)(b, NULL, eng);
}

static int inspect_run(struct opt_parsed *p, struct qwick_engine *eng)
{
    const struct args *a = &p->a;
    struct buf b = {0};
    if (a->json)
        inspect_json(&b, eng, a->tensors);
    else
        inspect_lines(&b, eng, a->tensors, a->verbose);
    return out_print(&b, out_write_names);
}

const struct verb verb_inspect = {
    .bit = V_INSPECT,
    .name = "inspect",
    .group = VERBS_MODELS,
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
