/* Constraints of the public interface: a text in one of several languages
 * becomes a grammar, and with the engine's tokens a constraint. */
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/utf8.h"
#include "engine/core/engine.h"
#include "engine/core/options.h"
#include "engine/generate/answer_check.h"
#include "engine/generate/constraint.h"
#include "engine/generate/token_trie.h"
#include "text/chat/call_forms.h"
#include "text/grammar/choices.h"
#include "text/grammar/gbnf.h"
#include "text/grammar/grammar.h"
#include "text/lark/lark.h"
#include "text/grammar/regex.h"
#include "text/schema/schema.h"
#include "text/tools/tools_grammar.h"

/* Longer texts are refused before anything is done with them. */
enum { MAX_TEXT = 1 << 20 };

/* Names of weakened keywords in a warning. */
enum { MAX_WEAKENED = 16 };

/* Add the text to the grammar, and set *root to the rule to begin with. */
typedef int (*compile_fn)(struct grammar *g, const struct qwick_engine *eng,
                          const struct qwick_constraint_options *o,
                          uint32_t *root, struct qwick_err *e);

/* Make the node of a whole text the root. */
static int take_node(struct grammar *g, uint32_t node, uint32_t *root,
                     struct qwick_err *e)
{
    *root = grammar_new_rule(g, "root", 4);
    grammar_define(g, *root, node);
    return grammar_error(g, e);
}

static int compile_regex(struct grammar *g, const struct qwick_engine *eng,
                         const struct qwick_constraint_options *o,
                         uint32_t *root, struct qwick_err *e)
{
    (void)eng;
    uint32_t node = regex_compile(g, NULL, o->text, o->n_text, REGEX_WHOLE);
    return take_node(g, node, root, e);
}

static int compile_choices(struct grammar *g, const struct qwick_engine *eng,
                           const struct qwick_constraint_options *o,
                           uint32_t *root, struct qwick_err *e)
{
    (void)eng;
    return take_node(g, choices_compile(g, o->text, o->n_text), root, e);
}

static int compile_gbnf(struct grammar *g, const struct qwick_engine *eng,
                        const struct qwick_constraint_options *o,
                        uint32_t *root, struct qwick_err *e)
{
    (void)eng;
    *root = gbnf_compile(g, o->text, o->n_text);
    return grammar_error(g, e);
}

static int compile_lark(struct grammar *g, const struct qwick_engine *eng,
                        const struct qwick_constraint_options *o,
                        uint32_t *root, struct qwick_err *e)
{
    (void)eng;
    *root = lark_compile(g, o->text, o->n_text);
    return grammar_error(g, e);
}

static int compile_schema(struct grammar *g, const struct qwick_engine *eng,
                          const struct qwick_constraint_options *o,
                          uint32_t *root, struct qwick_err *e)
{
    (void)eng;
    const struct schema_options so = {
        .indent =
            o->json_indent == QWICK_INDENT_FREE ? SCHEMA_FREE : o->json_indent,
        .lenient = o->lenient,
        .any_order = o->json_any_order};
    return schema_compile(g, o->text, o->n_text, &so, root, e);
}

static int compile_calls(struct grammar *g, const struct qwick_engine *eng,
                         const struct qwick_constraint_options *o,
                         struct tools_options to, uint32_t *root,
                         struct qwick_err *e)
{
    to.form = eng->call_form;
    to.lenient = o->lenient;
    if (!to.form)
        return err_set(e, QWICK_ERR_USAGE,
                       "%s: the chat template shows no calls of tools in a "
                       "form that qwick knows",
                       checkpoint_name(eng->ck));
    return tools_compile(g, o->text, o->n_text, &to, root, e);
}

static int compile_tools(struct grammar *g, const struct qwick_engine *eng,
                         const struct qwick_constraint_options *o,
                         uint32_t *root, struct qwick_err *e)
{
    const struct tools_options to = {.tool = o->tool};
    return compile_calls(g, eng, o, to, root, e);
}

/* Log a warning about tools. */
static void warn_tools(void *ctx, const char *text)
{
    const struct qwick_constraint_options *o = ctx;
    struct buf line = {0};
    if (o->log && !buf_printf(&line, "%s: %s", o->name, text))
        o->log(o->log_ctx, QWICK_LOG_WARNING, line.data);
    buf_free(&line);
}

static int compile_auto(struct grammar *g, const struct qwick_engine *eng,
                        const struct qwick_constraint_options *o,
                        uint32_t *root, struct qwick_err *e)
{
    struct qwick_constraint_options log = *o;
    const struct tools_options to = {
        .optional = true, .warn = warn_tools, .warn_ctx = &log};
    return compile_calls(g, eng, o, to, root, e);
}

static int compile_unchecked(struct grammar *g, const struct qwick_engine *eng,
                             const struct qwick_constraint_options *o,
                             uint32_t *root, struct qwick_err *e)
{
    const struct tools_options to = {.optional = true, .unchecked = true};
    return compile_calls(g, eng, o, to, root, e);
}

static int compile_no_call(struct grammar *g, const struct qwick_engine *eng,
                           const struct qwick_constraint_options *o,
                           uint32_t *root, struct qwick_err *e)
{
    (void)o;
    const struct call_form *f = eng->call_form;
    return take_node(g, tools_no_call(g, f ? f : call_form_at(0)), root, e);
}

static const struct {
    const char *name; /* for messages, if the caller gives none */
    compile_fn compile;
} kinds[] = {
    [QWICK_CONSTRAINT_REGEX] = {"regular expression", compile_regex},
    [QWICK_CONSTRAINT_CHOICES] = {"choices", compile_choices},
    [QWICK_CONSTRAINT_GBNF] = {"grammar", compile_gbnf},
    [QWICK_CONSTRAINT_JSON_SCHEMA] = {"JSON schema", compile_schema},
    [QWICK_CONSTRAINT_TOOLS] = {"tools", compile_tools},
    [QWICK_CONSTRAINT_NO_CALL] = {"no call", compile_no_call},
    [QWICK_CONSTRAINT_TOOLS_AUTO] = {"tools", compile_auto},
    [QWICK_CONSTRAINT_LARK] = {"grammar", compile_lark},
};

/* The tokens of the engine, listed when they are first needed. */
static int need_trie(struct qwick_engine *eng, struct qwick_err *e)
{
    if (engine_need_tokenizer(eng, e))
        return -1;
    if (!eng->weights)
        return err_set(e, QWICK_ERR_USAGE,
                       "%s: was opened for its tokenizer only",
                       checkpoint_name(eng->ck));
    pthread_mutex_lock(&eng->trie_lock);
    int rc = eng->trie
                 ? 0
                 : token_trie_create(&eng->trie, eng->bpe,
                                     eng->model.config.vocab_size, eng->blocked,
                                     eng->call_tags, eng->n_call_tags, e);
    pthread_mutex_unlock(&eng->trie_lock);
    return rc;
}

static int check(const struct qwick_constraint_options *o, struct qwick_err *e)
{
    if ((size_t)o->kind >= sizeof kinds / sizeof *kinds)
        return err_set(e, QWICK_ERR_USAGE, "constraint: kind %d is unknown",
                       (int)o->kind);
    if (!o->text && o->kind != QWICK_CONSTRAINT_NO_CALL)
        return err_set(e, QWICK_ERR_USAGE, "constraint: has no text");
    if (o->tool && o->kind != QWICK_CONSTRAINT_TOOLS)
        return err_set(e, QWICK_ERR_USAGE,
                       "constraint: tool has no effect on a %s",
                       kinds[o->kind].name);
    if (o->json_indent != QWICK_INDENT_FREE &&
        (o->json_indent < 0 || o->json_indent > SCHEMA_MAX_INDENT))
        return err_set(e, QWICK_ERR_USAGE,
                       "constraint: json_indent is %d, must be from 0 to %d",
                       o->json_indent, SCHEMA_MAX_INDENT);
    if (o->n_text > MAX_TEXT && o->kind != QWICK_CONSTRAINT_TOOLS_AUTO)
        return err_set(
            e, QWICK_ERR_USAGE, "%s: has %zu bytes, at most %d are supported",
            o->name ? o->name : kinds[o->kind].name, o->n_text, MAX_TEXT);
    return 0;
}

/* Log the names of a kind of remarks in one line, at most `most` of them. */
static void log_names(const struct qwick_constraint_options *o,
                      const struct grammar *g, enum grammar_remark kind,
                      const char *name, const char *what, size_t most)
{
    struct buf line = {0};
    size_t n, i;
    const char *names = grammar_remarks(g, kind, &n);
    if (n == 0)
        return;
    bool bad = buf_printf(&line, "%s: %s", name, what);
    for (i = 0; *names && i < most && !bad; i++) {
        size_t len = strcspn(names, "\n");
        bad = buf_puts(&line, i ? ", " : ": ") || buf_append(&line, names, len);
        names += len + 1;
    }
    if (i < n)
        bad = bad || buf_printf(&line, " and %zu more", n - i);
    if (!bad)
        o->log(o->log_ctx, QWICK_LOG_WARNING, line.data);
    buf_free(&line);
}

static void log_problems(const struct qwick_constraint_options *o,
                         const struct grammar *g, const char *name)
{
    size_t n, i = 0;
    const char *lines = grammar_remarks(g, GRAMMAR_PROBLEM, &n);
    struct buf line = {0};
    for (; *lines; i++) {
        size_t len = strcspn(lines, "\n");
        line.len = 0;
        if (!buf_printf(&line, "%s: %.*s", name, (int)len, lines))
            o->log(o->log_ctx, QWICK_LOG_ERROR, line.data);
        lines += len + 1;
    }
    line.len = 0;
    if (i < n && !buf_printf(&line, "%s: and %zu more", name, n - i))
        o->log(o->log_ctx, QWICK_LOG_ERROR, line.data);
    buf_free(&line);
}

/* Log what the compiler says. If memory is short, lines are dropped. */
static void log_remarks(const struct qwick_constraint_options *o,
                        const struct grammar *g, const char *name)
{
    if (!o->log)
        return;
    log_names(o, g, GRAMMAR_IGNORED, name, "without effect", GRAMMAR_MAX_NAMES);
    log_names(o, g, GRAMMAR_WEAKENED, name, "weakened", MAX_WEAKENED);
    log_problems(o, g, name);
}

/* Give a constraint the check of its answers. On failure free it. */
static int add_check(struct qwick_constraint **c,
                     const struct qwick_constraint_options *o,
                     const struct call_form *form, struct qwick_err *e)
{
    struct answer_check *check;
    if (answer_check_create(&check, o, form, e)) {
        constraint_free(*c);
        *c = NULL;
        return -1;
    }
    constraint_set_check(*c, check);
    return 0;
}

/* Find the token with this text. */
static int32_t find_token(void *ctx, const char *text, size_t n)
{
    const struct qwick_engine *eng = ctx;
    const struct bpe_span all = {0, n};
    int32_t *ids = NULL, id = -1;
    size_t n_ids = 0;
    if (bpe_encode_spans(eng->bpe, text, n, &all, 1, false, 0, &ids, &n_ids,
                         NULL))
        id = -2;
    else if (n_ids == 1)
        id = ids[0];
    free(ids);
    return id;
}

static int build(struct qwick_constraint **out, struct qwick_engine *eng,
                 const struct qwick_constraint_options *o, compile_fn compile,
                 struct qwick_err *e)
{
    struct grammar *g = NULL;
    uint32_t root;
    int rc = -1;
    *out = NULL;
    if (grammar_create(&g, o->name, e))
        return -1;
    const struct config *config = &eng->model.config;
    grammar_set_tokens(g, config->vocab_size, find_token, eng);
    grammar_set_ends(g, config->stop_ids, config->n_stop_ids);
    if (!compile(g, eng, o, &root, e) && !grammar_finish(g, root, e))
        rc = constraint_create(out, g, o->name, eng->trie, e) ||
             add_check(out, o, eng->call_form, e);
    log_remarks(o, g, o->name);
    grammar_free(g);
    return rc ? -1 : 0;
}

/* Calls that the model may leave out must not make a request fail: a chat with
 * tools was possible before their arguments were checked. */
static int build_auto(struct qwick_constraint **out, struct qwick_engine *eng,
                      const struct qwick_constraint_options *o,
                      struct qwick_err *e)
{
    struct qwick_err why, other;
    int rc = build(out, eng, o, compile_auto, &why);
    if (rc && why.code == QWICK_ERR_USAGE &&
        !build(out, eng, o, compile_unchecked, &other)) {
        const char *text = why.msg + strlen(o->name) + 2; /* ": " */
        struct qwick_constraint_options log = *o;
        struct qwick_err line;
        err_usage(&line, "the arguments of calls are not checked: %s", text);
        warn_tools(&log, line.msg);
        rc = 0;
    }
    if (!rc)
        constraint_set_free(*out);
    else if (e)
        *e = why;
    return rc;
}

int qwick_constraint_create(struct qwick_constraint **out,
                            struct qwick_engine *eng,
                            const struct qwick_constraint_options *given,
                            struct qwick_err *e)
{
    struct qwick_constraint_options o;
    *out = NULL;
    qwick_constraint_options_init(&o, sizeof o);
    if (options_read(&o, sizeof o, given, "constraint", e) || check(&o, e) ||
        need_trie(eng, e))
        return -1;
    if (!o.name)
        o.name = kinds[o.kind].name;
    const bool is_auto = o.kind == QWICK_CONSTRAINT_TOOLS_AUTO;
    if (is_auto ? build_auto(out, eng, &o, e)
                : build(out, eng, &o, kinds[o.kind].compile, e))
        return -1;
    if (is_auto || o.kind == QWICK_CONSTRAINT_TOOLS)
        constraint_set_calls(*out);
    return 0;
}

bool qwick_constraint_is_lenient(const struct qwick_constraint *c)
{
    return constraint_get_check(c);
}

int qwick_constraint_check(const struct qwick_constraint *c, const char *text,
                           size_t n, bool *valid, struct qwick_err *e)
{
    const struct answer_check *check = constraint_get_check(c);
    *valid = true;
    return check ? answer_check_run(check, text, n, valid, e) : 0;
}

void qwick_constraint_free(struct qwick_constraint *c)
{
    constraint_free(c);
}
