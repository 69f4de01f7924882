/* Parsing the command line. */
#include <stdlib.h>
#include <string.h>

#include "cli/io/out.h"
#include "cli/opt/opt_int.h"
#include "cli/opt/settings.h"
#include "cli/opt/verbs.h"

/* ---- unknown options ---- */

static bool has_blank(const char *word)
{
    return strpbrk(word, " \t\n") != NULL;
}

/* Options of other programs that no option of qwick has the arguments of, and
 * what does the same here. The verb must have the option `id`. Names that
 * differ in nothing else are .peers of rows. */
static const struct {
    const char *word;
    enum opt_id id;
    const char *hint;
} foreign[] = {
    {"-hf", OPT_model,
     "qwick pull ORG/NAME downloads a model, -m ORG/NAME uses it"},
    {"--hf-repo", OPT_model,
     "qwick pull ORG/NAME downloads a model, -m ORG/NAME uses it"},
    {"-ngl", OPT_threads, "all layers run on the CPU, with -t N threads"},
    {"--n-gpu-layers", OPT_threads,
     "all layers run on the CPU, with -t N threads"},
    {"--gpu-layers", OPT_threads,
     "all layers run on the CPU, with -t N threads"},
    {"--no-think", OPT_think, "did you mean --think off?"},
    {"--nothink", OPT_think, "did you mean --think off?"},
    {"--template", OPT_preset,
     "-T NAME is your prompt template, --chat-template the model's"},
    {"--image", OPT_file, "models get text only, with -f FILE"},
    {"--mmproj", OPT_file, "models get text only, with -f FILE"},
    {"--format", OPT_json_schema, "--json-schema gives the form of an answer"},
    {"-o", OPT_no_newline, /* of generate, which has no -o */
     "> FILE keeps the answer; an option has a name of its own, as --temp 0.2"},
};

/* What does the same as another program's option, or NULL. */
static const char *foreign_hint(const struct verb *v, const char *word)
{
    for (size_t i = 0; i < sizeof(foreign) / sizeof(*foreign); i++)
        if (strcmp(foreign[i].word, word) == 0 && opt_row(v, foreign[i].id))
            return foreign[i].hint;
    return NULL;
}

/* Report an unknown option. name: the name of a long option, else NULL. */
static int unknown(const struct opt_parsed *p, const char *shown,
                   const char *name)
{
    const struct verb *v = p->verb, *other;
    const char *near = NULL;
    if (has_blank(shown))
        return opt_usage(v,
                         "\"%.60s\": unknown option; text that begins with "
                         "- follows --",
                         shown);
    const char *word = v->bit == V_GENERATE && p->n_plain ? p->args[0] : NULL;
    if (word && (near = verb_near(word)))
        return opt_usage(v,
                         "%s: unknown option; \"%s\" is not a verb, did you "
                         "mean %s?",
                         shown, word, near);
    if ((near = foreign_hint(v, shown)))
        return opt_usage(v, "%s: unknown option; %s", shown, near);
    if (name && (near = opt_meant(v, name)))
        return opt_usage(v, "%s: unknown option, did you mean --%s?", shown,
                         near);
    if (name && (other = opt_verb_with(name)))
        return opt_usage(v, "%s: unknown option of %s; %s has it", shown,
                         v->name, other->name);
    return opt_usage(v, "%s: unknown option%s", shown,
                     name ? "" : "; text that begins with - follows --");
}

/* ---- parsing ---- */

/* Set an option without a value. */
static int set_flag(const struct opt_parsed *p, const struct opt *o, void *dst)
{
    if (o->id == OPT_help)
        return opt_help(p->verb_is_named ? p->verb : NULL);
    if (o->id == OPT_version)
        return opt_version();
    if (o->type == OPT_FLAG_FILE)
        ((struct opt_flag_file *)dst)->on = true;
    else
        *(bool *)dst = true;
    return -1;
}

/* Position of the parser. */
struct cursor {
    int argc, i;
    char **argv;
    bool late; /* the verb was passed */
};

static const char *next_word(struct cursor *c)
{
    return c->i + 1 < c->argc ? c->argv[++c->i] : NULL;
}

static int set_next(const struct opt_parsed *p, const struct opt *o,
                    const char *shown, struct cursor *c)
{
    const char *value = next_word(c);
    if (!value)
        return opt_usage(p->verb, "%s: needs a value", shown);
    return opt_set_value(p->verb, o, shown, value, opt_value_at(p, o));
}

static int parse_long(struct opt_parsed *p, const char *arg, struct cursor *c)
{
    const struct verb *v = p->verb;
    char shown[64];
    const char *eq = strchr(arg, '=');
    size_t n = eq ? (size_t)(eq - arg) : strlen(arg);
    if (n >= sizeof(shown))
        return unknown(p, arg, NULL);
    memcpy(shown, arg, n);
    shown[n] = 0;
    const struct opt *o = opt_find(v, shown + 2);
    if (!o)
        return unknown(p, shown, shown + 2);
    p->sources[o->id].rank = OPT_LINE;
    if (eq)
        return opt_set_value(v, o, shown, eq + 1, opt_value_at(p, o));
    if (opt_takes_value(o))
        return set_next(p, o, shown, c);
    if (o->type == OPT_FLAG_FILE && !p->n_args)
        p->before = o;
    return set_flag(p, o, opt_value_at(p, o));
}

/* Whether a word is a text that only looks like an option: "- a", "-p means".
 */
static bool looks_like_text(const char *arg)
{
    return strcspn(arg, " \t\n") <= 2 && has_blank(arg);
}

/* Parse letters: "-qv", "-n5", "-n 5". */
static int parse_short(struct opt_parsed *p, const char *arg, struct cursor *c)
{
    const struct verb *v = p->verb;
    if (looks_like_text(arg) || foreign_hint(v, arg)) /* -hf is not -h -f */
        return unknown(p, arg, NULL);
    for (const char *at = arg + 1; *at; at++) {
        char shown[3] = {'-', *at, 0};
        const struct opt *o = opt_find_letter(v, *at, c->late);
        if (!o)
            return unknown(p, arg[2] ? arg : shown, NULL);
        p->sources[o->id].rank = OPT_LINE;
        if (opt_takes_value(o))
            return at[1]
                       ? opt_set_value(v, o, shown, at + 1, opt_value_at(p, o))
                       : set_next(p, o, shown, c);
        int r = set_flag(p, o, opt_value_at(p, o));
        if (r >= 0)
            return r;
    }
    return -1;
}

static bool is_option(const char *word)
{
    return word[0] == '-' && word[1];
}

static int parse_line(struct opt_parsed *p, int argc, char **argv)
{
    struct cursor c = {.argc = argc, .argv = argv};
    bool only_args = false;
    for (; c.i < argc; c.i++) {
        const struct opt *before = p->before;
        char *a = argv[c.i];
        int r = -1;
        if (!a) {
            c.late = true;
            continue;
        }
        if (!p->n_args)
            p->before = NULL;
        if (only_args || !is_option(a)) {
            if (!p->n_args)
                p->before = before;
            p->args[p->n_args++] = a;
            if (!only_args)
                p->n_plain = p->n_args;
        } else if (strcmp(a, "--") == 0) {
            only_args = true;
        } else if (a[1] == '-') {
            r = parse_long(p, a, &c);
        } else {
            r = parse_short(p, a, &c);
        }
        if (r >= 0)
            return r;
    }
    return -1;
}

/* The default of a number: the number at the beginning of its text. */
static void set_default_value(struct opt_parsed *p, const struct opt *o)
{
    char number[32];
    size_t n = o->def ? strcspn(o->def, ",; ") : 0;
    void *value = opt_value_at(p, o);
    if (n == 0 || n >= sizeof(number))
        return;
    memcpy(number, o->def, n);
    number[n] = 0;
    /* A default in words fails to parse, and leaves 0. */
    if (o->type == OPT_INT || o->type == OPT_SIZE)
        (void)opt_size(number, value);
    else if (o->type == OPT_NUMBER)
        (void)opt_number(number, value);
}

int opt_parse(struct opt_parsed *p, const struct verb *v, int argc, char **argv)
{
    int r;
    *p = (struct opt_parsed){.verb = v};
    for (int i = 0; i < argc; i++)
        p->verb_is_named |= !argv[i];
    for (const struct opt *o = NULL; (o = opt_next(v, o));)
        set_default_value(p, o);
    p->args = calloc((size_t)argc + 1, sizeof(*p->args));
    if (!p->args)
        return msg_oom();
    if ((r = parse_line(p, argc, argv)) >= 0 || (r = settings_apply(p)) >= 0)
        return r;
    return opt_check_relations(p);
}

/* ---- finding the verb ---- */

/* The number of words of a long option, of whichever verb. */
static int long_words(const char *arg)
{
    char name[64];
    size_t n = strcspn(arg, "=");
    if (n >= sizeof(name))
        return 0;
    memcpy(name, arg, n);
    name[n] = 0;
    const struct verb *v = opt_verb_with(name);
    if (!v)
        return 0;
    return !arg[n] && opt_takes_value(opt_find(v, name)) ? 2 : 1;
}

/* The number of words of a bundle of letters, of whichever verb. */
static int short_words(const char *letters)
{
    for (; *letters; letters++) {
        const struct opt *o = NULL;
        for (size_t i = 0; verbs[i] && !o; i++)
            o = opt_find_letter(verbs[i], *letters, false);
        if (!o)
            return 0;
        if (opt_takes_value(o))
            return letters[1] ? 1 : 2;
    }
    return 1;
}

int opt_words(int argc, char *const *argv)
{
    const char *a = argv[0];
    if (!is_option(a) || strcmp(a, "--") == 0)
        return 0;
    int n = a[1] == '-' ? long_words(a + 2) : short_words(a + 1);
    return n > argc ? argc : n;
}

void opt_free(struct opt_parsed *p)
{
    for (const struct opt *o = NULL; (o = opt_next(p->verb, o));)
        opt_value_free(o->type, opt_value_at(p, o));
    free(p->args);
    settings_free(p->settings);
}
