#include "text/chat/chat_templates.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/arena.h"
#include "base/array.h"
#include "base/hash.h"
#include "text/chat/chat_fit.h"
#include "text/chat/harmony.h"
#include "text/template/template.h"

struct chat_template {
    const char *name;
    struct template *template; /* NULL: it cannot be parsed */
    struct qwick_err broken;   /* why not */
    struct arena arena;        /* of the variables' names and texts */
    struct template_var *vars; /* [n_vars] special tokens, then arguments */
    size_t n_vars, cap_vars;
    struct json_doc *args;
    struct tm time;
    bool has_time;
    bool harmony; /* the answers of its model are messages, see harmony.h */
    struct chat_traits traits;
};

/* ---- settings ---- */

/* n digits at *s as a number in [min, max]; *s moves behind them. */
static int read_digits(const char **s, int n, int min, int max, int *out)
{
    int v = 0;
    for (int i = 0; i < n; i++) {
        if (**s < '0' || **s > '9')
            return -1;
        v = v * 10 + (*(*s)++ - '0');
    }
    *out = v;
    return v < min || v > max ? -1 : 0;
}

static int read_field(const char **s, char before, int max, int *out)
{
    if (**s != before)
        return -1;
    ++*s;
    return read_digits(s, 2, 0, max, out);
}

static int read_time(const char *s, struct tm *out)
{
    struct tm t = {0}, day;
    if (read_digits(&s, 4, 1900, 9999, &t.tm_year) || *s++ != '-' ||
        read_digits(&s, 2, 1, 12, &t.tm_mon) || *s++ != '-' ||
        read_digits(&s, 2, 1, 31, &t.tm_mday))
        return -1;
    t.tm_year -= 1900;
    t.tm_mon--;
    if (*s && (read_field(&s, *s == 'T' ? 'T' : ' ', 23, &t.tm_hour) ||
               read_field(&s, ':', 59, &t.tm_min) ||
               (*s && read_field(&s, ':', 60, &t.tm_sec)) || *s))
        return -1;
    day = t;
    day.tm_hour = day.tm_min = day.tm_sec = 0;
    if (timegm(&day) == (time_t)-1 || day.tm_mday != t.tm_mday)
        return -1; /* such as 30 February */
    t.tm_wday = day.tm_wday;
    t.tm_yday = day.tm_yday;
    *out = t;
    return 0;
}

static int add_var(struct chat_template *f, const char *name,
                   const struct json_value *v, bool outside,
                   struct qwick_err *e)
{
    if (ARRAY_RESERVE(f->vars, f->cap_vars, f->n_vars + 1, e))
        return -1;
    f->vars[f->n_vars++] = (struct template_var){name, v, outside};
    return 0;
}

int chat_template_check_args(const struct json_value *args, struct qwick_err *e)
{
    static const char *const of_chats[] = {"messages", "tools",
                                           "add_generation_prompt"};
    if (!args)
        return 0;
    if (!json_is(args, JSON_OBJECT))
        return err_usage(e, "template arguments: must be an object, is %s",
                         json_type_name(args));
    for (size_t i = 0; i < args->len; i++)
        for (size_t k = 0; k < sizeof of_chats / sizeof *of_chats; k++)
            if (json_equals(&args->keys[i], of_chats[k]))
                return err_usage(e, "template argument %s: the chat gives it",
                                 of_chats[k]);
    return 0;
}

static int open_args(struct chat_template *f, const char *json,
                     struct qwick_err *e)
{
    if (json_parse(&f->args, "template arguments", json, strlen(json),
                   QWICK_ERR_USAGE, e))
        return -1;
    const struct json_value *root = json_root(f->args);
    if (chat_template_check_args(root, e))
        return -1;
    for (size_t i = 0; i < root->len; i++)
        if (add_var(f, root->keys[i].str, &root->items[i], true, e))
            return -1;
    return 0;
}

static int read_settings(struct chat_template *f,
                         const struct chat_template_settings *s,
                         struct qwick_err *e)
{
    if (s->args && open_args(f, s->args, e))
        return -1;
    if (!s->time)
        return 0;
    if (read_time(s->time, &f->time))
        return err_usage(
            e, "template time: must be \"YYYY-MM-DD HH:MM:SS\", is \"%s\"",
            ERR_SHOW(s->time, strlen(s->time)));
    f->has_time = true;
    return 0;
}

/* ---- special tokens ---- */

/* A token is its text, or an object that has it as "content". */
static int add_token(struct chat_template *f, const char *name,
                     const struct json_value *v, struct qwick_err *e)
{
    if (json_is(v, JSON_OBJECT))
        v = json_get(v, "content");
    if (!json_is(v, JSON_STRING))
        return 0;
    struct json_value *copy =
        arena_alloc(&f->arena, sizeof *copy, _Alignof(struct json_value));
    char *key = arena_copy(&f->arena, name, strlen(name));
    char *text = arena_copy(&f->arena, v->str, v->len);
    if (!copy || !key || !text)
        return err_oom(e, v->len);
    *copy =
        (struct json_value){.type = JSON_STRING, .str = text, .len = v->len};
    return add_var(f, key, copy, false, e);
}

static int add_tokens(struct chat_template *f, const struct json_value *config,
                      struct qwick_err *e)
{
    static const char *const names[] = {"bos_token", "eos_token", "unk_token",
                                        "sep_token", "pad_token", "cls_token",
                                        "mask_token"};
    const struct json_value *extra = json_get(config, "extra_special_tokens");
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (add_token(f, names[i], json_get(config, names[i]), e))
            return -1;
    for (size_t i = 0; json_is(extra, JSON_OBJECT) && i < extra->len; i++)
        if (add_token(f, extra->keys[i].str, &extra->items[i], e))
            return -1;
    return 0;
}

/* ---- open, render ---- */

/* The name of a known text, which has this length and hash_bytes(0, …). */
static const char *name_template(const char *text, size_t n)
{
    static const char space[] = " \t\n\v\f\r";
    static const struct {
        const char *name;
        size_t n;
        uint64_t hash;
    } known[] = {{"qwen3", 4168, 0x746e508dedbaacf5}};
    while (n && memchr(space, text[0], sizeof space - 1)) {
        text++;
        n--;
    }
    while (n && memchr(space, text[n - 1], sizeof space - 1))
        n--;
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (n == known[i].n && hash_bytes(0, text, n) == known[i].hash)
            return known[i].name;
    return "jinja";
}

static int open_template(struct chat_template *f, const char *name,
                         const char *text, size_t n, struct qwick_err *e)
{
    f->name = name_template(text, n);
    f->harmony = n && memmem(text, n, HARMONY_FINAL, strlen(HARMONY_FINAL));
    if (!template_open(&f->template, name, text, n, &f->broken))
        return 0;
    if (f->broken.code != QWICK_ERR_MEMORY)
        return 0;
    *e = f->broken;
    return -1;
}

int chat_template_open(struct chat_template **out, const char *name, const char *text,
                   size_t n, const struct json_value *tokenizer_config,
                   const struct chat_template_settings *settings,
                   struct qwick_err *e)
{
    struct chat_template *f = calloc(1, sizeof *f);
    *out = NULL;
    if (!f)
        return err_oom(e, sizeof *f);
    if (add_tokens(f, tokenizer_config, e) || read_settings(f, settings, e) ||
        open_template(f, name, text, n, e)) {
        chat_template_close(f);
        return -1;
    }
    *out = f;
    return 0;
}

void chat_template_close(struct chat_template *f)
{
    if (!f)
        return;
    template_close(f->template);
    json_free(f->args);
    arena_free(&f->arena);
    free(f->vars);
    free(f);
}

const char *chat_template_name(const struct chat_template *f)
{
    return f->name;
}

struct chat_traits *chat_template_traits(const struct chat_template *f)
{
    return (struct chat_traits *)&f->traits; /* a cache of atomic values */
}

/* The names by which templates ask for thinking, with their values. */
static const struct {
    const char *name;
    struct json_value off, on; /* JSON_NULL: the template's default */
} switches[] = {
    {"enable_thinking",
     {.type = JSON_BOOL},
     {.type = JSON_BOOL, .boolean = true}},
    {"thinking", {.type = JSON_BOOL}, {.type = JSON_BOOL, .boolean = true}},
    /* tokens: Seed-OSS */
    {"thinking_budget",
     {.type = JSON_NUMBER, .str = "0", .len = 1},
     {.type = JSON_NULL}},
};

enum { N_SWITCHES = sizeof switches / sizeof *switches };

/* Append the variables that turn thinking on or off. Returns how many. */
static size_t put_switches(struct template_var *out, enum chat_bool think)
{
    size_t n = 0;
    for (size_t i = 0; i < N_SWITCHES && think != CHAT_UNSET; i++) {
        const struct json_value *v =
            think == CHAT_TRUE ? &switches[i].on : &switches[i].off;
        if (v->type != JSON_NULL)
            out[n++] = (struct template_var){switches[i].name, v, false};
    }
    return n;
}

/* Append the effort of a model that cannot go without thinking, unless the
 * caller has set it. Returns how many variables these are. */
static size_t put_effort(const struct chat_template *f,
                         struct template_var *vars, size_t n,
                         enum chat_bool think)
{
    static const struct json_value low = {
        .type = JSON_STRING, .str = "low", .len = 3};
    static const char name[] = "reasoning_effort";
    if (!f->harmony || think != CHAT_FALSE)
        return 0;
    for (size_t i = 0; i < n; i++)
        if (strcmp(vars[i].name, name) == 0)
            return 0;
    vars[n] = (struct template_var){name, &low, false};
    return 1;
}

int chat_template_render_as_is(struct chat_prompt *out,
                               const struct chat_template *f,
                               const struct chat_source *in,
                               struct qwick_err *e)
{
    static const struct json_value null = {.type = JSON_NULL};
    const struct json_value add = {.type = JSON_BOOL,
                                   .boolean = in->add_generation_prompt};
    const struct template_var of_chat[] = {
        {"messages", &in->messages, true},
        {"tools", in->tools ? in->tools : &null, true},
        {"add_generation_prompt", &add, false},
    };
    const size_t n_chat = sizeof of_chat / sizeof *of_chat;
    const size_t n_args = in->args ? in->args->len : 0;
    size_t n = 1 + f->n_vars;
    struct template_var *vars =
        calloc(n + n_args + n_chat + N_SWITCHES + 1, sizeof *vars);
    struct template_result r;
    *out = (struct chat_prompt){0};
    if (!vars)
        return err_oom(e, f->n_vars * sizeof *vars);
    vars[0] = (struct template_var){"documents", &null, true};
    if (f->n_vars)
        memcpy(vars + 1, f->vars, f->n_vars * sizeof *vars);
    for (size_t i = 0; i < n_args; i++)
        vars[n++] = (struct template_var){in->args->keys[i].str,
                                          &in->args->items[i], true};
    memcpy(vars + n, of_chat, sizeof of_chat);
    n += n_chat;
    n += put_switches(vars + n, in->enable_thinking);
    n += put_effort(f, vars, n, in->enable_thinking);
    int rc =
        template_render_within(&r, f->template, vars, n,
                               f->has_time ? &f->time : NULL, in->max_bytes, e);
    free(vars);
    if (rc) {
        template_result_free(&r);
        return -1;
    }
    *out = (struct chat_prompt){.text = r.text,
                                .pieces = r.own,
                                .n_pieces = r.n_own,
                                .in_think = r.in_think,
                                .think_close = r.think_close,
                                .has_tools = in->tools && in->tools->len,
                                .think = in->enable_thinking};
    return 0;
}

int chat_template_render(struct chat_prompt *out, const struct chat_template *f,
                     const struct chat_source *in, struct qwick_err *e)
{
    struct chat_fit fit;
    *out = (struct chat_prompt){0};
    if (!f->template) {
        if (e)
            *e = f->broken;
        return -1;
    }
    int rc = chat_fit(&fit, f, in, e) ||
                     chat_template_render_as_is(out, f, &fit.source, e)
                 ? -1
                 : 0;
    chat_fit_free(&fit);
    return rc;
}

/* ---- prompts ---- */

int chat_prompt_cut(struct chat_prompt *p, const char *s)
{
    const char *found =
        p->text.len ? memmem(p->text.data, p->text.len, s, strlen(s)) : NULL;
    size_t cut, n = 0;
    if (!found)
        return -1;
    cut = (size_t)(found - p->text.data) + strlen(s);
    p->text.len -= cut;
    memmove(p->text.data, p->text.data + cut, p->text.len + 1);
    for (size_t i = 0; i < p->n_pieces; i++) {
        struct bpe_span at = p->pieces[i];
        if (at.end > cut)
            p->pieces[n++] = (struct bpe_span){
                at.begin > cut ? at.begin - cut : 0, at.end - cut};
    }
    p->n_pieces = n;
    return 0;
}

void chat_prompt_free(struct chat_prompt *p)
{
    if (!p)
        return;
    buf_free(&p->text);
    free(p->pieces);
    *p = (struct chat_prompt){0};
}
