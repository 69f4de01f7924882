/* The rules between options: each is a row. A rule about the value of an option
 * has a condition; a rule about files, arguments or the model is in the verb's
 * check. */
#include <stdio.h>
#include <string.h>

#include "base/buf.h"
#include "cli/io/out.h"
#include "cli/opt/opt.h"

enum { MAX_IDS = 24 };

enum relation_kind {
    EXCLUDES,         /* an option of `of` and one of `by` cannot be combined; a
                         setting yields to the command line */
    NO_EFFECT_WITH,   /* options of `of` have no effect if one of `by` is given */
    NO_EFFECT_WITHOUT /* options of `of` have no effect if none of `by` is given */
};

struct relation {
    unsigned verbs;
    enum relation_kind kind;
    enum opt_id of[MAX_IDS], by[MAX_IDS];
    bool (*when)(const struct args *a); /* NULL: always */
    const char *why; /* the end of "has no effect …"; NULL: "with --NAME" */
};

/* ---- conditions ---- */

static bool several_samples(const struct args *a)
{
    return a->samples > 1;
}

static bool temp_is_0(const struct args *a)
{
    return a->temp == 0;
}

static bool temp_is_not_0(const struct args *a)
{
    return a->temp != 0;
}

static bool samples_at_temp_0(const struct args *a)
{
    return several_samples(a) && temp_is_0(a);
}

static bool one_text(const struct args *a)
{
    return !a->json && !a->jsonl && !a->input.n;
}

static bool format_is_jsonl(const struct args *a)
{
    return a->input_format && strcmp(a->input_format, "jsonl") == 0;
}

static bool format_is_not_jsonl(const struct args *a)
{
    return a->input_format && !format_is_jsonl(a);
}

static bool scales_are_mlx(const struct args *a)
{
    return a->scales && strcmp(a->scales, "mlx") == 0;
}

static bool scales_are_feedback(const struct args *a)
{
    return a->scales && strcmp(a->scales, "feedback") == 0;
}

/* ---- rows ---- */

#define TEMPLATE OPT_chat_template, OPT_template_arg, OPT_template_time
#define SYSTEM   OPT_system, OPT_system_file
#define TOOLS    OPT_tools, OPT_tool_choice

#define RECORDS  OPT_jsonl, OPT_lines, OPT_input_format, OPT_input

#define IDS(...)    \
    {               \
        __VA_ARGS__ \
    }
#define RULE(verbs, kind, of, by)       \
    {                                   \
        verbs, kind, of, by, NULL, NULL \
    }
#define RULE_IF(verbs, kind, of, by, when, why) \
    {                                           \
        verbs, kind, of, by, when, why          \
    }

/* clang-format off */
static const struct relation rows[] = {
    /* What is read */
    RULE(V_ALL, EXCLUDES, IDS(OPT_preset), IDS(OPT_prompt_template)),
    RULE(V_ALL, NO_EFFECT_WITHOUT, IDS(OPT_set), IDS(OPT_preset,
         OPT_prompt_template)),
    RULE(V_ALL, EXCLUDES, IDS(OPT_prompt_ids), IDS(OPT_prompt, OPT_file,
         OPT_chat_json, OPT_preset, OPT_prompt_template, OPT_chat)),
    RULE(V_ALL & ~V_CHAT, EXCLUDES, IDS(OPT_chat_json), IDS(OPT_preset,
         OPT_prompt_template)),
    RULE(V_EMBED | V_RERANK, EXCLUDES, IDS(OPT_prompt_ids), IDS(RECORDS,
         OPT_query, OPT_instruct, OPT_prompt_name, OPT_truncate)),
    RULE(V_EMBED | V_SIMILAR, EXCLUDES, IDS(OPT_prompt_name),
         IDS(OPT_instruct)),
    RULE(V_ALL, EXCLUDES, IDS(OPT_system), IDS(OPT_system_file)),
    RULE(V_SERVE, EXCLUDES, IDS(OPT_no_auth), IDS(OPT_api_key_file)),
    RULE(V_ALL, EXCLUDES, IDS(OPT_given), IDS(OPT_given_file)),
    RULE(V_ALL, EXCLUDES, IDS(OPT_answer), IDS(OPT_yes)),
    RULE(V_ALL, EXCLUDES, IDS(OPT_lines), IDS(OPT_jsonl, OPT_input_format)),
    RULE(V_SERVE, EXCLUDES, IDS(OPT_no_auth), IDS(OPT_api_key_file)),
    RULE(V_ALL & ~V_CHAT, NO_EFFECT_WITHOUT, IDS(OPT_file_names),
         IDS(OPT_file)),
    RULE(V_GENERATE | V_CHOOSE, NO_EFFECT_WITH, IDS(SYSTEM),
         IDS(OPT_chat_json)),
    RULE(V_CHOOSE, EXCLUDES, IDS(OPT_json), IDS(RECORDS)),
    RULE(V_CHOOSE, EXCLUDES, IDS(OPT_jsonl), IDS(OPT_input_format)),
    RULE(V_CHOOSE, NO_EFFECT_WITH, IDS(OPT_prompt, OPT_chat_json,
         OPT_prompt_ids, OPT_no_stdin, OPT_overflow), IDS(RECORDS)),
    RULE(V_CHOOSE, NO_EFFECT_WITH, IDS(OPT_in_order), IDS(OPT_lines, OPT_csv)),
    RULE_IF(V_CHOOSE, NO_EFFECT_WITH, IDS(OPT_in_order), IDS(OPT_input_format),
         format_is_not_jsonl, NULL),
    RULE(V_CHOOSE, NO_EFFECT_WITHOUT, IDS(OPT_csv), IDS(RECORDS)),
    RULE(V_CHOOSE, NO_EFFECT_WITH, IDS(OPT_with_input), IDS(OPT_csv)),
    RULE(V_CHOOSE, NO_EFFECT_WITHOUT, IDS(OPT_with_input), IDS(OPT_lines,
         OPT_input_format)),
    RULE_IF(V_CHOOSE, NO_EFFECT_WITH, IDS(OPT_with_input),
         IDS(OPT_input_format), format_is_jsonl, "with --input-format jsonl"),

    /* The chat template */
    RULE(V_ALL, NO_EFFECT_WITH, IDS(TEMPLATE), IDS(OPT_raw, OPT_suffix,
         OPT_prompt_ids)),
    RULE(V_ALL, NO_EFFECT_WITHOUT, IDS(TEMPLATE), IDS(OPT_chat)),
    RULE(V_ALL, NO_EFFECT_WITH, IDS(SYSTEM, OPT_chat_json, OPT_prefill,
         OPT_show_thinking, OPT_think_file, OPT_allow_special, TOOLS),
         IDS(OPT_raw, OPT_suffix)),
    RULE(V_GENERATE, EXCLUDES, IDS(OPT_suffix), IDS(OPT_prompt_ids,
         OPT_chat_json, OPT_session, OPT_go_on, OPT_keep, OPT_overflow)),
    RULE(V_ALL, NO_EFFECT_WITH, IDS(SYSTEM, OPT_prefill, OPT_allow_special,
         TOOLS), IDS(OPT_prompt_ids)),
    RULE(V_GENERATE, NO_EFFECT_WITHOUT, IDS(OPT_tool_choice), IDS(OPT_tools,
         OPT_chat_json)),

    /* Conversations */
    RULE(V_GENERATE, EXCLUDES, IDS(OPT_session), IDS(SYSTEM, OPT_chat_json,
         OPT_overflow, TOOLS)),
    RULE(V_GENERATE, EXCLUDES, IDS(OPT_go_on), IDS(OPT_session, OPT_chat_json,
         OPT_prompt_ids, OPT_raw, SYSTEM, TOOLS, OPT_repeat,
         OPT_allow_special)),
    RULE(V_GENERATE, EXCLUDES, IDS(OPT_keep), IDS(OPT_prompt_ids, OPT_raw,
         OPT_repeat)),
    RULE(V_CHAT, EXCLUDES, IDS(OPT_go_on), IDS(OPT_chat_json, OPT_session,
         OPT_allow_special)),
    RULE(V_CHAT, EXCLUDES, IDS(OPT_chat_json), IDS(OPT_session)),
    RULE(V_GENERATE, EXCLUDES, IDS(OPT_conversation), IDS(OPT_keep, OPT_go_on,
         OPT_session, OPT_chat_json, OPT_prompt_ids, OPT_raw, OPT_repeat,
         OPT_allow_special)),
    RULE(V_CHAT, EXCLUDES, IDS(OPT_conversation), IDS(OPT_go_on, OPT_session,
         OPT_chat_json, OPT_allow_special)),
    RULE(V_ALL, EXCLUDES, IDS(OPT_log), IDS(OPT_no_log)),

    /* Answers */
    RULE_IF(V_ALL, EXCLUDES, IDS(OPT_temp), IDS(OPT_greedy), temp_is_not_0,
         NULL),
    RULE(V_ALL, NO_EFFECT_WITH, IDS(OPT_top_k, OPT_top_p, OPT_min_p),
         IDS(OPT_greedy)),
    RULE_IF(V_ALL, NO_EFFECT_WITH, IDS(OPT_top_k, OPT_top_p, OPT_min_p),
         IDS(OPT_temp), temp_is_0, "with --temp 0"),
    RULE(V_ALL, EXCLUDES, IDS(OPT_regex), IDS(OPT_choices, OPT_grammar,
         OPT_json_schema)),
    RULE(V_ALL, EXCLUDES, IDS(OPT_choices), IDS(OPT_grammar, OPT_json_schema)),
    RULE(V_ALL, EXCLUDES, IDS(OPT_grammar), IDS(OPT_json_schema)),
    RULE(V_ALL, EXCLUDES, IDS(OPT_regex, OPT_choices, OPT_grammar,
         OPT_json_schema), IDS(OPT_ignore_eos)),
    RULE(V_ALL, NO_EFFECT_WITHOUT, IDS(OPT_json_indent), IDS(OPT_json_schema)),
    RULE(V_GENERATE | V_CHAT, NO_EFFECT_WITHOUT, IDS(OPT_schema_lenient),
         IDS(OPT_json_schema, OPT_tools, OPT_chat_json)),
    RULE(V_GENERATE | V_CHAT, NO_EFFECT_WITHOUT, IDS(OPT_json_order),
         IDS(OPT_json_schema)),
    RULE_IF(V_ALL, EXCLUDES, IDS(OPT_samples), IDS(OPT_session,
         OPT_save_session, OPT_lookup, OPT_draft, OPT_think_file,
         OPT_profile_file, OPT_profile_timing, OPT_no_newline),
         several_samples, NULL),
    RULE_IF(V_ALL, NO_EFFECT_WITH, IDS(OPT_keep, OPT_go_on,
         OPT_conversation), IDS(OPT_samples),
         several_samples, NULL),
    RULE_IF(V_ALL, NO_EFFECT_WITH, IDS(OPT_samples), IDS(OPT_greedy),
         several_samples, NULL),
    RULE_IF(V_ALL, NO_EFFECT_WITH, IDS(OPT_samples), IDS(OPT_temp),
         samples_at_temp_0, "with --temp 0"),
    RULE_IF(V_CHOOSE, NO_EFFECT_WITH, IDS(OPT_in_order), IDS(OPT_yes),
         one_text, NULL),

    /* A budget */
    RULE(V_QUANTIZE, EXCLUDES, IDS(OPT_bpw), IDS(OPT_target)),
    RULE(V_QUANTIZE, EXCLUDES, IDS(OPT_bpw, OPT_target), IDS(OPT_bits,
         OPT_head_bits, OPT_type)),
    RULE(V_QUANTIZE, NO_EFFECT_WITHOUT, IDS(OPT_dry_run), IDS(OPT_bpw,
         OPT_target)),
    RULE(V_QUANTIZE, NO_EFFECT_WITH, IDS(OPT_report, OPT_force),
         IDS(OPT_dry_run)),

    /* Calibration */
    RULE(V_QUANTIZE, EXCLUDES, IDS(OPT_calibrate), IDS(OPT_calibrate_self)),
    RULE(V_QUANTIZE, NO_EFFECT_WITHOUT, IDS(OPT_seed),
         IDS(OPT_calibrate_self)),
    RULE(V_QUANTIZE, NO_EFFECT_WITHOUT, IDS(OPT_calibrate_memory),
         IDS(OPT_calibrate, OPT_calibrate_self)),
    RULE_IF(V_QUANTIZE, NO_EFFECT_WITH, IDS(OPT_calibrate, OPT_calibrate_self),
         IDS(OPT_scales), scales_are_mlx, "with --scales mlx"),
    RULE_IF(V_QUANTIZE, NO_EFFECT_WITHOUT, IDS(OPT_scales),
         IDS(OPT_calibrate, OPT_calibrate_self), scales_are_feedback,
         "without texts for calibration"),

    /* Output */
    RULE(V_ALL, EXCLUDES, IDS(OPT_json), IDS(OPT_jsonl)),
    RULE(V_ALL, EXCLUDES, IDS(OPT_md), IDS(OPT_json, OPT_csv)),
    RULE(V_ALL, EXCLUDES, IDS(OPT_json), IDS(OPT_csv)),
    RULE(V_ALL, EXCLUDES, IDS(OPT_no_newline), IDS(OPT_null)),
    RULE(V_BATCH, EXCLUDES, IDS(OPT_text, OPT_csv), IDS(OPT_unordered)),
    RULE(V_BATCH, EXCLUDES, IDS(OPT_text), IDS(OPT_csv)),
    RULE(V_BATCH, NO_EFFECT_WITH, IDS(OPT_logprobs, TOOLS), IDS(OPT_text,
         OPT_csv)),
    RULE(V_BATCH, NO_EFFECT_WITHOUT, IDS(OPT_null), IDS(OPT_text)),
    RULE(V_GENERATE, NO_EFFECT_WITH, IDS(OPT_show_thinking, OPT_confidence),
         IDS(OPT_extract)),
    RULE(V_GENERATE, NO_EFFECT_WITH, IDS(OPT_show_thinking, OPT_no_newline,
         OPT_null, OPT_confidence), IDS(OPT_json, OPT_jsonl)),
    RULE(V_GENERATE, NO_EFFECT_WITHOUT, IDS(OPT_logprobs), IDS(OPT_json,
         OPT_jsonl)),
    RULE(V_LOGITS, NO_EFFECT_WITH, IDS(OPT_top, OPT_json), IDS(OPT_output)),
    RULE(V_SCORE, NO_EFFECT_WITH, IDS(OPT_by), IDS(OPT_perplexity, OPT_heat)),
    RULE(V_SCORE, NO_EFFECT_WITH, IDS(OPT_heat), IDS(OPT_json, OPT_perplexity)),
    RULE(V_SCORE, NO_EFFECT_WITH, IDS(OPT_html, OPT_heat), IDS(OPT_jsonl,
         OPT_input)),
    RULE(V_SCORE, NO_EFFECT_WITH, IDS(OPT_by, OPT_heat, OPT_html),
         IDS(OPT_against)),
    RULE(V_EMBED, EXCLUDES, IDS(OPT_index), IDS(OPT_output, OPT_format,
         OPT_redo, OPT_html, OPT_prompt_ids)),
    RULE(V_EMBED, NO_EFFECT_WITHOUT, IDS(OPT_index_type), IDS(OPT_index)),
    RULE(V_SIMILAR, EXCLUDES, IDS(OPT_id), IDS(OPT_file, OPT_input, OPT_lines,
         OPT_jsonl)),
    RULE(V_SIMILAR, NO_EFFECT_WITH, IDS(OPT_model, OPT_instruct, OPT_prompt_name,
         OPT_truncate,
         OPT_allow_special, OPT_max_batch, OPT_ctx, OPT_isa, OPT_exact, OPT_kv,
         OPT_prefill_chunk, OPT_preload, OPT_numa, OPT_lora), IDS(OPT_id)),
    RULE(V_SIMILAR, EXCLUDES, IDS(OPT_ids_only), IDS(OPT_json, OPT_jsonl)),
    RULE(V_MODELS, EXCLUDES, IDS(OPT_names), IDS(OPT_json)),
    RULE(V_MODELS, NO_EFFECT_WITH, IDS(OPT_no_speed, OPT_threads),
         IDS(OPT_names)),
    RULE(V_MODELS, NO_EFFECT_WITH, IDS(OPT_threads), IDS(OPT_no_speed)),

    /* Measurements */
    RULE(V_ALL, NO_EFFECT_WITHOUT, IDS(OPT_repeat), IDS(OPT_profile_timing,
         OPT_profile_file)),
    RULE(V_ALL, EXCLUDES, IDS(OPT_repeat), IDS(OPT_session, OPT_save_session,
         OPT_prefix_cache, OPT_cache_dir)),
    RULE(V_BENCH, NO_EFFECT_WITH, IDS(OPT_models, OPT_prompt_lens, OPT_gen,
         OPT_depths, OPT_batches, OPT_thread_list, OPT_warmup, OPT_parts,
         OPT_md, OPT_csv, OPT_html, OPT_compare, OPT_fail_below,
         OPT_compare_any, OPT_exact, OPT_kv, OPT_preload, OPT_numa, OPT_lora,
         OPT_prefill_chunk), IDS(OPT_tune)),
    RULE(V_BENCH, NO_EFFECT_WITHOUT, IDS(OPT_fail_below, OPT_compare_any),
         IDS(OPT_compare)),

    /* The model */
    RULE(V_ALL, NO_EFFECT_WITHOUT, IDS(OPT_prefix_cache_size),
         IDS(OPT_prefix_cache, OPT_cache_dir, OPT_conversation)),
};
/* clang-format on */

enum { N_ROWS = sizeof(rows) / sizeof(*rows) };

/* ---- checks ---- */

static int relation_exclude(struct opt_parsed *p, const struct relation *r)
{
    for (const enum opt_id *of = r->of; *of; of++)
        for (const enum opt_id *by = r->by; *by; by++) {
            int status = opt_conflict(p, *of, *by);
            if (status >= 0)
                return status;
        }
    return -1;
}

static int relation_with(struct opt_parsed *p, const struct relation *r)
{
    char why[80];
    int status = -1;
    for (const enum opt_id *by = r->by; *by && status < 0; by++) {
        if (!opt_given(p, *by))
            continue;
        snprintf(why, sizeof(why), "with --%s", opt_name(*by));
        status = opt_no_effects(p, r->of, *by, r->why ? r->why : why);
    }
    return status;
}

/* Append the names of the options that a verb has: "--a or --b". */
static void append_names(struct buf *out, const struct verb *v,
                         const enum opt_id *ids)
{
    size_t n = 0;
    for (; *ids; ids++)
        if (opt_row(v, *ids))
            buf_printf(out, "%s--%s", n++ ? " or " : "", opt_name(*ids));
}

static int relation_without(struct opt_parsed *p, const struct relation *r)
{
    struct buf why = {0};
    bool has_any = false, matters = false;
    int status = -1;
    for (const enum opt_id *of = r->of; *of; of++)
        matters |= opt_given(p, *of);
    for (const enum opt_id *by = r->by; *by; by++) {
        has_any |= opt_row(p->verb, *by) != NULL;
        if (opt_given(p, *by))
            return -1;
    }
    if (has_any && matters) { /* else the verb knows only half of the rule */
        buf_puts(&why, "without ");
        append_names(&why, p->verb, r->by);
        status = why.failed ? msg_oom()
                            : opt_no_effects(p, r->of, OPT_NONE, why.data);
    }
    buf_free(&why);
    return status;
}

int opt_check_relations(struct opt_parsed *p)
{
    static int (*const checks[])(struct opt_parsed *,
                                 const struct relation *) = {
        [EXCLUDES] = relation_exclude,
        [NO_EFFECT_WITH] = relation_with,
        [NO_EFFECT_WITHOUT] = relation_without,
    };
    int status = -1;
    for (size_t i = 0; i < N_ROWS && status < 0; i++)
        if (rows[i].verbs & p->verb->bit &&
            (!rows[i].when || rows[i].when(&p->a)))
            status = checks[rows[i].kind](p, &rows[i]);
    return status;
}

static bool has_id(const enum opt_id *ids, enum opt_id id)
{
    while (*ids && *ids != id)
        ids++;
    return *ids;
}

bool opt_excludes(const struct verb *v, enum opt_id a, enum opt_id b)
{
    for (const struct relation *r = rows; r < rows + N_ROWS; r++)
        if (r->verbs & v->bit && r->kind != NO_EFFECT_WITHOUT && !r->when &&
            ((has_id(r->of, a) && has_id(r->by, b)) ||
             (has_id(r->of, b) && has_id(r->by, a))))
            return true;
    return false;
}

void opt_needs(struct buf *out, const struct verb *v, enum opt_id id)
{
    for (const struct relation *r = rows; r < rows + N_ROWS; r++)
        if (r->verbs & v->bit && r->kind == NO_EFFECT_WITHOUT && !r->when &&
            has_id(r->of, id)) {
            append_names(out, v, r->by);
            return;
        }
}
