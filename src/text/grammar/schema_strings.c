/* The strings that a set of schemas admits: patterns, formats, lengths, and
 * excluded values. */
#include <stdio.h>
#include <string.h>

#include "text/grammar/regex.h"
#include "text/grammar/schema.h"
#include "text/grammar/schema_int.h"
#include "text/tool_value.h"

/* ---- formats ------------------------------------------------------------- */

#define YEAR "(000[1-9]|00[1-9]\\d|0[1-9]\\d\\d|[1-9]\\d{3})"
#define LEAP                                                            \
    "(\\d\\d(0[48]|[2468][048]|[13579][26])|(0[48]|[2468][048]|[13579]" \
    "[26])00)"
#define DATE                                                              \
    "(" YEAR "-((0[13578]|1[02])-(0[1-9]|[12]\\d|3[01])|(0[469]|11)-(0[1" \
    "-9]|[12]\\d|30)|02-(0[1-9]|1\\d|2[0-8]))|" LEAP "-02-29)"
#define TIME                                                                  \
    "([01]\\d|2[0-3]):[0-5]\\d:[0-5]\\d(\\.\\d{1,9})?(Z|[+-]([01]\\d|2[0-3])" \
    ":[0-5]\\d)"
#define HEX   "[0-9a-fA-F]"
#define OCTET "(25[0-5]|2[0-4]\\d|1\\d\\d|[1-9]?\\d)"
#define ATOM  "[A-Za-z0-9!#$%&'*+/=?^_`{|}~-]+"
#define LABEL "[A-Za-z0-9]([A-Za-z0-9-]{0,61}[A-Za-z0-9])?"
#define PCT   "%" HEX HEX
#define PCHAR "([A-Za-z0-9._~!$&'()*+,;=:@-]|" PCT ")"
#define USER  "([A-Za-z0-9._~!$&'()*+,;=:-]|" PCT ")*@"
#define HOST  "([A-Za-z0-9._~!$&'()*+,;=-]|" PCT ")*"
#define PATH  "(/" PCHAR "*)*"

/* date and time: RFC 3339, with upper case T and Z, without year 0 and leap
 * seconds, which common libraries do not read. uuid: RFC 9562. email: RFC 5321
 * without quoted names and addresses in brackets. uri: RFC 3986, with a
 * scheme, without IPv6 addresses. */
static const struct schema_format {
    const char *name, *re;
} formats[] = {
    {"date", DATE},
    {"time", TIME},
    {"date-time", DATE "T" TIME},
    {"uuid", HEX "{8}-" HEX "{4}-" HEX "{4}-" HEX "{4}-" HEX "{12}"},
    {"email", ATOM "(\\." ATOM ")*@" LABEL "(\\." LABEL ")*"},
    {"ipv4", OCTET "(\\." OCTET "){3}"},
    {"uri", "[A-Za-z][A-Za-z0-9+.-]*:(//(" USER ")?" HOST "(:\\d*)?" PATH
            "|/(" PCHAR "+" PATH ")?|" PCHAR "+" PATH ")?(\\?(" PCHAR
            "|[/?])*)?(#(" PCHAR "|[/?])*)?"},
};

const struct schema_format *schema_format_find(const struct json_value *name)
{
    for (size_t i = 0; i < sizeof formats / sizeof *formats; i++)
        if (json_equals(name, formats[i].name))
            return &formats[i];
    return NULL;
}

/* ---- regular expressions ------------------------------------------------- */

/* Compile an expression with a grammar of its own, which only serves to read
 * its nodes. Returns NULL with *at->e set. */
static const struct points *compile_regex(const char *re, size_t n,
                                          enum regex_mode mode,
                                          const struct points_place *at)
{
    struct grammar *g = NULL;
    const struct points *p = NULL;
    if (grammar_create(&g, "the pattern", at->e))
        return NULL;
    uint32_t node = regex_compile(g, NULL, re, n, mode, NULL, NULL);
    if (grammar_error(g, at->e) == 0)
        p = points_of_node(g, node, at);
    grammar_free(g);
    return p;
}

const struct points *schema_pattern(struct schema *s,
                                    const struct json_value *at,
                                    const char *keyword,
                                    const struct json_value *re)
{
    struct qwick_err err = {0};
    struct points_place place = {&s->mem, &s->steps_left, &err};
    const struct points *p =
        compile_regex(re->str, re->len, REGEX_SEARCH, &place);
    if (!p)
        schema_refuse_err(s, at, keyword, &err);
    return p;
}

const struct points *schema_format_points(struct schema *s,
                                          const struct schema_format *f)
{
    struct points_place at = {&s->mem, &s->steps_left, s->e};
    const struct points **p = &s->formats[f - formats];
    _Static_assert(sizeof s->formats / sizeof *s->formats >=
                       sizeof formats / sizeof *formats,
                   "one place for each format");
    if (!*p)
        *p = compile_regex(f->re, strlen(f->re), REGEX_WHOLE, &at);
    return *p;
}

/* ---- texts of parameters ------------------------------------------------- */

#define ANY   "[\\s\\S]*"
#define BLANK "[ \\t\\r\\n]*"

/* The types of tool_value.h, and the texts that might be taken for them. Some
 * of these texts are no JSON: then a string is not written that could be. */
static const struct {
    unsigned types;
    const char *re;
} readings[] = {
    {TOOL_NULL, BLANK "(null|None)" BLANK},
    {TOOL_BOOLEAN, BLANK "(true|false|True|False)" BLANK},
    {TOOL_INTEGER | TOOL_NUMBER, BLANK "-?[0-9][0-9.eE+-]*" BLANK},
    {TOOL_ARRAY, BLANK "\\[" ANY},
    {TOOL_OBJECT, BLANK "\\{" ANY},
};

const struct points *schema_unreadable(struct schema *s, unsigned types)
{
    char re[512] = ANY "</(parameter|function)>" ANY;
    struct points_place at = {&s->mem, &s->steps_left, s->e};
    const struct points **p = &s->unreadable[types & ~(unsigned)TOOL_STRING];
    _Static_assert(sizeof s->unreadable / sizeof *s->unreadable >= TOOL_STRING,
                   "one place for each combination of types");
    size_t n = strlen(re);
    for (size_t i = 0; i < sizeof readings / sizeof *readings; i++)
        if (types & readings[i].types)
            n += (size_t)snprintf(re + n, sizeof re - n, "|%s", readings[i].re);
    if (!*p)
        *p = compile_regex(re, n, REGEX_WHOLE, &at);
    return *p;
}

/* ---- sets ---------------------------------------------------------------- */

/* Intersect *all, NULL for all strings, with p. */
static int narrow(const struct points **all, const struct points *p, bool minus,
                  const struct points_place *at)
{
    if (!*all && !minus) {
        *all = p;
        return 0;
    }
    if (!*all)
        *all = points_any(at);
    if (*all)
        *all = points_combine(*all, p, minus, at);
    return *all ? 0 : -1;
}

static int narrow_excluded(struct schema *s, const struct points **all,
                           const struct schema_node *node,
                           const struct points_place *at)
{
    const char **words = schema_alloc(s, node->excluded.n, sizeof *words);
    size_t *lens = schema_alloc(s, node->excluded.n, sizeof *lens), n = 0;
    if (!words || !lens)
        return -1;
    for (size_t i = 0; i < node->excluded.n; i++)
        if (node->excluded.v[i]->type == JSON_STRING) {
            words[n] = node->excluded.v[i]->str;
            lens[n++] = node->excluded.v[i]->len;
        }
    if (n == 0)
        return 0;
    const struct points *p = points_words(words, lens, n, at);
    return p ? narrow(all, p, true, at) : -1;
}

/* Apply a node's keywords except lengths. */
static int narrow_node(struct schema *s, const struct points **all,
                       const struct schema_node *node,
                       const struct points_place *at)
{
    if (node->pattern_points && narrow(all, node->pattern_points, false, at))
        return -1;
    if (node->format) {
        const struct points *p = schema_format_points(s, node->format);
        if (!p || narrow(all, p, false, at))
            return -1;
    }
    return node->excluded.n ? narrow_excluded(s, all, node, at) : 0;
}

const struct points *schema_string_points(struct schema *s,
                                          struct schema_node *const *v,
                                          size_t n, int64_t *min, int64_t *max,
                                          bool *free_form)
{
    static const struct points nothing = {0};
    struct qwick_err err = {0};
    struct points_place at = {&s->mem, &s->steps_left, &err};
    const struct points *all = NULL;
    *min = 0;
    *max = -1;
    *free_form = false;
    for (size_t i = 0; i < n; i++) {
        if (v[i]->min_length > *min)
            *min = v[i]->min_length;
        if (v[i]->max_length >= 0 && (*max < 0 || v[i]->max_length < *max))
            *max = v[i]->max_length;
        if (narrow_node(s, &all, v[i], &at)) {
            if (err.code)
                schema_refuse_err(s, v[i]->at, NULL, &err);
            return NULL;
        }
    }
    if (*max >= 0 && *min > *max)
        return &nothing;
    *free_form = all == NULL;
    if (all && (*min > 0 || *max >= 0)) {
        const struct points *length = points_length(*min, *max, &at);
        all = length ? points_combine(all, length, false, &at) : NULL;
        if (!all)
            schema_refuse_err(s, v[0]->at, NULL, &err);
    }
    return all;
}
