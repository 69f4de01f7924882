/* The strings that a set of schemas admits: patterns, formats, lengths, and
 * excluded values. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "text/chat/call_forms.h"
#include "text/chat/tool_value.h"
#include "text/grammar/automaton.h"
#include "text/grammar/regex.h"
#include "text/schema/schema.h"
#include "text/schema/schema_int.h"

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
#define IPV4  OCTET "(\\." OCTET "){3}"
#define H16   HEX "{1,4}"
#define LS32  "(" H16 ":" H16 "|" IPV4 ")"
/* "::" stands for at least one group. */
#define IPV6                                                                   \
    "((" H16 ":){6}" LS32 "|::(" H16 ":){5}" LS32 "|(" H16 ")?::(" H16         \
    ":){4}" LS32 "|(" H16 "(:" H16 "){0,1})?::(" H16 ":){3}" LS32 "|(" H16     \
    "(:" H16 "){0,2})?::(" H16 ":){2}" LS32 "|(" H16 "(:" H16 "){0,3})?::" H16 \
    ":" LS32 "|(" H16 "(:" H16 "){0,4})?::" LS32 "|(" H16 "(:" H16             \
    "){0,5})?::" H16 "|(" H16 "(:" H16 "){0,6})?::)"

#define ATEXT         "-A-Za-z0-9!#$%&'*+/=?^_`{|}~"
#define LABEL         "[A-Za-z0-9]([A-Za-z0-9-]{0,61}[A-Za-z0-9])?"
#define DOMAIN        LABEL "(\\." LABEL ")*"
#define EMAIL(others) "[" ATEXT others "]+(\\.[" ATEXT others "]+)*@" DOMAIN
/* Labels with "--" in the third place are encoded names, which have rules of
 * their own. */
#define HOST_LABEL "(?!..--)" LABEL

/* URIs (RFC 3986); with `others`, IRIs (RFC 3987). `privates` may be in a
 * query. */
#define PCT                "%" HEX HEX
#define UNRESERVED(others) "-A-Za-z0-9._~!$&'()*+,;=" others
#define PCHAR(others)      "([" UNRESERVED(others) ":@]|" PCT ")"
#define AUTHORITY(others)                                                    \
    "(([" UNRESERVED(others) ":]|" PCT ")*@)?(\\[(" IPV6 "|[vV]" HEX         \
                             "+\\.[" UNRESERVED("") ":]+)\\]|([" UNRESERVED( \
                                 others) "]|" PCT ")*)(:\\d*)?"
#define PATH(others) "(/" PCHAR(others) "*)*"
#define END(others, privates) \
    "(\\?(" PCHAR(others) "|[/?" privates "])*)?(#(" PCHAR(others) "|[/?])*)?"
#define SCHEME "[A-Za-z][A-Za-z0-9+.-]*:"
#define HIER(others)                                                   \
    "(//" AUTHORITY(others) PATH(others) "|/(" PCHAR(others) "+" PATH( \
        others) ")?|" PCHAR(others) "+" PATH(others) ")?"
#define RELATIVE(others)                                               \
    "(//" AUTHORITY(others) PATH(others) "|/(" PCHAR(others) "+" PATH( \
        others) ")?|([" UNRESERVED(others) "@]|" PCT ")+" PATH(others) ")?"
#define URI(others, privates) SCHEME HIER(others) END(others, privates)
#define URI_REFERENCE(others, privates) \
    "(" SCHEME HIER(others) "|" RELATIVE(others) ")" END(others, privates)

#define UCS                                                              \
    "\\u00A0-\\uD7FF\\uF900-\\uFDCF\\uFDF0-\\uFFEF\\u{10000}-\\u{1FFFD}" \
    "\\u{20000}-\\u{2FFFD}\\u{30000}-\\u{3FFFD}\\u{40000}-\\u{4FFFD}"    \
    "\\u{50000}-\\u{5FFFD}\\u{60000}-\\u{6FFFD}\\u{70000}-\\u{7FFFD}"    \
    "\\u{80000}-\\u{8FFFD}\\u{90000}-\\u{9FFFD}\\u{A0000}-\\u{AFFFD}"    \
    "\\u{B0000}-\\u{BFFFD}\\u{C0000}-\\u{CFFFD}\\u{D0000}-\\u{DFFFD}"    \
    "\\u{E1000}-\\u{EFFFD}"
#define UCS_PRIVATE \
    "\\uE000-\\uF8FF\\u{F0000}-\\u{FFFFD}\\u{100000}-\\u{10FFFD}"

#define VARIABLE \
    "([A-Za-z0-9_]|" PCT ")(\\.?([A-Za-z0-9_]|" PCT "))*(:[1-9]\\d{0,3}|\\*)?"
#define POINTER    "(/([^/~]|~[01])*)*"
#define SIXTY_FOUR "[A-Za-z0-9+/]"

/* Regular expressions that all dialects read: with groups up to three levels
 * deep and few ranges of characters, without lookaround, back references and
 * flags. */
#define RX_RANGE "0-[1-9]|1-[2-9]|a-[fz]|A-[FZ]"
#define RX_CLASS                                                          \
    "\\[\\^?(-|-?(" RX_RANGE "|[^\\\\\\[\\]^-]|\\\\[dDwWsStnrfv" RX_MARKS \
    "])+-?)\\]"
#define RX_MARKS ".*+?()\\[\\]{}|^$/\\\\-"
#define RX_MANY                                                                \
    "([*+?]|\\{(\\d{1,3},?|\\d,[1-9]\\d{1,2}|[1-9]\\d,[1-9]\\d\\d|0,\\d|1,[1-" \
    "9]"                                                                       \
    "|2,[2-9]|3,[3-9]|4,[4-9]|5,[5-9]|6,[6-9]|7,[7-9]|8,[89]|9,9|1\\d,[2-"     \
    "9]\\d|2\\d,[3-9]\\d|3\\d,[4-9]\\d|4\\d,[5-9]\\d)\\})\\??"
#define RX_0                                                                \
    "([^\\\\^$.*+?()\\[\\]{}|]|\\\\[dDwWsStnrfv" RX_MARKS "]|\\.|" RX_CLASS \
    ")(" RX_MANY ")?|[|^$]|\\\\[bB]"
#define RX_GROUP(inner) RX_0 "|\\((\\?:)?(" inner ")*\\)(" RX_MANY ")?"

/* Formats are held by languages that all validators accept; they may leave out
 * texts that are rare or that some validators do not read.
 *
 * date and time: RFC 3339, with upper case T and Z, without year 0 and leap
 * seconds. duration: RFC 3339, appendix A. uuid: RFC 9562. email: RFC 5321
 * without quoted names and addresses in brackets; idn-email: other characters
 * only before the "@". hostname: RFC 1123 without encoded names, also for
 * idn-hostname. uri-template: RFC 6570. Pointers: RFC 6901. byte: base64 (RFC
 * 4648). */
static const struct schema_format {
    const char *name, *re;
    int64_t most; /* characters; 0: any number */
} formats[] = {
    {"date", DATE, 0},
    {"time", TIME, 0},
    {"date-time", DATE "T" TIME, 0},
    {"duration",
     "P((\\d+D|\\d+M(\\d+D)?|\\d+Y(\\d+M(\\d+D)?)?)(T(\\d+H(\\d+M(\\d+S)?)?|"
     "\\d+M(\\d+S)?|\\d+S))?|T(\\d+H(\\d+M(\\d+S)?)?|\\d+M(\\d+S)?|\\d+S)|\\d+"
     "W)",
     0},
    {"uuid", HEX "{8}-" HEX "{4}-" HEX "{4}-" HEX "{4}-" HEX "{12}", 0},
    {"email", EMAIL(""), 0},
    {"idn-email", EMAIL("\\u00A0-\\u{10FFFF}"), 0},
    {"hostname", HOST_LABEL "(\\." HOST_LABEL ")*", 253},
    {"idn-hostname", HOST_LABEL "(\\." HOST_LABEL ")*", 253},
    {"ipv4", IPV4, 0},
    {"ipv6", IPV6, 0},
    {"uri", URI("", ""), 0},
    {"uri-reference", URI_REFERENCE("", ""), 0},
    {"iri", URI(UCS, UCS_PRIVATE), 0},
    {"iri-reference", URI_REFERENCE(UCS, UCS_PRIVATE), 0},
    {"uri-template",
     "([!#$&(-;=?-\\[\\]_a-z~" UCS UCS_PRIVATE "]|" PCT
     "|\\{[+#./;?&=,!@|]?" VARIABLE "(," VARIABLE ")*\\})*",
     0},
    {"regex", "(" RX_GROUP(RX_GROUP(RX_GROUP(RX_0))) ")*", 0},
    {"json-pointer", POINTER, 0},
    {"relative-json-pointer", "(0|[1-9]\\d*)(#|" POINTER ")", 0},
    {"byte",
     "(" SIXTY_FOUR "{4})*(" SIXTY_FOUR "[AQgw]==|" SIXTY_FOUR
     "{2}[AEIMQUYcgkosw048]=)?",
     0},
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
static const struct dfa *compile_regex(const char *re, size_t n,
                                       enum regex_mode mode,
                                       const struct dfa_place *at)
{
    struct grammar *g = NULL;
    const struct dfa *p = NULL;
    if (grammar_create(&g, "the pattern", at->e))
        return NULL;
    bool looks;
    uint32_t node = regex_parse(g, NULL, re, n, mode, &looks);
    if (grammar_error(g, at->e) == 0)
        p = dfa_of_node(g, node, at);
    grammar_free(g);
    return p;
}

const struct dfa *schema_pattern(struct schema *s, const struct json_value *re,
                                 struct qwick_err *e)
{
    size_t most = s->steps_left / 2, left = most;
    struct dfa_place place = {&s->mem, &left, e};
    const struct dfa *p = compile_regex(re->str, re->len, REGEX_SEARCH, &place);
    s->steps_left -= most - left;
    return p;
}

const struct dfa *schema_regex(struct schema *s, const char *re)
{
    struct dfa_place at = {&s->mem, &s->steps_left, s->e};
    return compile_regex(re, strlen(re), REGEX_WHOLE, &at);
}

int schema_pattern_matches(struct schema *s, const struct json_value *re,
                           const char *text, size_t n)
{
    struct grammar *g = NULL;
    struct automaton *a = NULL;
    int rc = -1;
    if (schema_step(s, n) || grammar_create(&g, "the pattern", s->e))
        return -1;
    uint32_t node = regex_compile(g, NULL, re->str, re->len, REGEX_SEARCH);
    uint32_t root = grammar_new_rule(g, "root", 4);
    grammar_define(g, root, node);
    if (!grammar_finish(g, root, s->e) && !automaton_create(&a, g, s->e)) {
        uint32_t state = automaton_start(a);
        for (size_t i = 0; i < n && state != AUTOMATON_DEAD; i++)
            state = automaton_advance(a, state, (unsigned char)text[i]);
        rc = automaton_error(a, s->e)
                 ? -1
                 : state != AUTOMATON_DEAD && automaton_accepts(a, state);
    }
    automaton_free(a);
    grammar_free(g);
    return rc;
}

int64_t schema_format_most(const struct schema_format *f)
{
    return f->most ? f->most : -1;
}

const struct dfa *schema_format_points(struct schema *s,
                                       const struct schema_format *f)
{
    const struct dfa **p = &s->formats[f - formats];
    _Static_assert(sizeof s->formats / sizeof *s->formats >=
                       sizeof formats / sizeof *formats,
                   "one place for each format");
    if (!*p)
        *p = schema_regex(s, f->re);
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

/* Print a regular expression of the texts that have a tag. Returns its length.
 */
static size_t put_bytewise(char *re, size_t size, const char *tag)
{
    size_t n = (size_t)snprintf(re, size, ANY);
    for (; *tag; tag++)
        n += (size_t)snprintf(re + n, size - n, "[%c]", *tag);
    return n + (size_t)snprintf(re + n, size - n, ANY);
}

const struct dfa *schema_unreadable(struct schema *s, unsigned types)
{
    char re[512];
    struct dfa_place at = {&s->mem, &s->steps_left, s->e};
    const struct dfa **p = &s->unreadable[types & ~(unsigned)TOOL_STRING];
    _Static_assert(sizeof s->unreadable / sizeof *s->unreadable >= TOOL_STRING,
                   "one place for each combination of types");
    size_t n = 0;
    if (s->form == SCHEMA_PARAMETERS)
        n = (size_t)snprintf(re, sizeof re, ANY "(%s|%s)" ANY, s->call->key_end,
                             s->call->last);
    else
        n = put_bytewise(re, sizeof re, s->call->quote);
    for (size_t i = 0; i < sizeof readings / sizeof *readings; i++)
        if (types & readings[i].types)
            n += (size_t)snprintf(re + n, sizeof re - n, "|%s", readings[i].re);
    if (!*p)
        *p = compile_regex(re, n, REGEX_WHOLE, &at);
    return *p;
}

/* ---- sets ---------------------------------------------------------------- */

const struct dfa *schema_combine(struct schema *s, const struct dfa *a,
                                 const struct dfa *b, bool minus,
                                 const struct dfa_place *at)
{
    uint64_t h = hash_mix((uintptr_t)a ^ minus, (uintptr_t)b);
    struct schema_product **first = &s->products[h % SCHEMA_BUCKETS];
    for (const struct schema_product *x = *first; x; x = x->next)
        if (x->a == a && x->b == b && x->minus == minus)
            return x->out;
    struct schema_product *x = schema_alloc(s, 1, sizeof *x);
    const struct dfa *out = x ? dfa_combine(a, b, minus, at) : NULL;
    if (!out)
        return NULL;
    *x = (struct schema_product){a, b, out, minus, *first};
    *first = x;
    return out;
}

/* Intersect *all, NULL for all strings, with p. */
static int narrow(struct schema *s, const struct dfa **all, const struct dfa *p,
                  bool minus, const struct dfa_place *at)
{
    if (!*all && !minus) {
        *all = p;
        return 0;
    }
    if (!*all)
        *all = schema_any_text(s);
    if (*all)
        *all = schema_combine(s, *all, p, minus, at);
    return *all ? 0 : -1;
}

static int narrow_excluded(struct schema *s, const struct dfa **all,
                           const struct schema_node *node,
                           const struct dfa_place *at)
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
    const struct dfa *p = dfa_words(words, lens, n, at);
    return p ? narrow(s, all, p, true, at) : -1;
}

/* Apply a node's keywords except lengths. */
static int narrow_node(struct schema *s, const struct dfa **all,
                       const struct schema_node *node,
                       const struct dfa_place *at)
{
    if (node->pattern_dfa && narrow(s, all, node->pattern_dfa, false, at))
        return -1;
    if (node->format) {
        const struct dfa *p = schema_format_points(s, node->format);
        if (!p || narrow(s, all, p, false, at))
            return -1;
    }
    if (node->not_pattern && narrow(s, all, node->not_pattern, true, at))
        return -1;
    return node->excluded.n ? narrow_excluded(s, all, node, at) : 0;
}

const struct dfa *schema_any_text(struct schema *s)
{
    struct dfa_place at = {&s->mem, &s->steps_left, s->e};
    if (!s->any_text)
        s->any_text = dfa_any(&at);
    return s->any_text;
}

/* Make the minimum of a length part of the automaton, if it cannot be
 * counted. */
static int apply_minimum(struct schema_string *x, const struct dfa_place *at)
{
    int waits = dfa_can_wait(x->points, at->e);
    if (waits)
        return waits < 0 ? -1 : 0;
    const struct dfa *p = dfa_length(x->length.min, -1, at);
    p = p ? dfa_combine(x->points, p, false, at) : NULL;
    x->points = p;
    x->length.min = 0;
    return p ? 0 : -1;
}

/* Apply a maximum; < 0: none. */
static void limit_length(struct schema_string *x, int64_t max)
{
    if (max >= 0 && (x->length.max < 0 || max < x->length.max))
        x->length.max = max;
}

/* Count lengths that are part of the automaton. */
static int fold_lengths(struct schema_string *x, const struct dfa_place *at)
{
    int64_t min, max;
    x->points = dfa_fold(x->points, &min, &max, at);
    if (min > x->length.min)
        x->length.min = min;
    limit_length(x, max);
    return x->points ? 0 : -1;
}

/* Let strings without a text have an empty automaton. */
static int check_length(struct schema_string *x, struct qwick_err *e)
{
    static const struct dfa nothing = {0};
    int64_t *distance = dfa_distances(x->points, e);
    if (!distance)
        return -1;
    if (x->points->n_states == 0 || x->length.min > x->length.max ||
        distance[0] > x->length.max)
        x->points = &nothing;
    free(distance);
    return 0;
}

/* Go on without the demands of a set whose automaton is too large. */
static int any_string(struct schema *s, const struct schema_node *node,
                      const struct dfa *without, const struct qwick_err *why,
                      struct schema_string *out)
{
    struct dfa_place at = {&s->mem, &s->steps_left, s->e};
    const char *keyword = node->pattern  ? "pattern"
                          : node->format ? "format"
                                         : "minLength";
    if (schema_cannot_hold(s, node->at, keyword, "%s", why->msg))
        return -1;
    *out = (struct schema_string){.points = schema_any_text(s),
                                  .length = TEXT_ANY_LENGTH,
                                  .free_form = !without};
    if (out->points && without)
        out->points = dfa_combine(out->points, without, true, &at);
    return out->points ? 0 : -1;
}

int schema_string_of(struct schema *s, struct schema_node *const *v, size_t n,
                     const struct dfa *without, struct schema_string *out)
{
    struct qwick_err err = {0};
    struct dfa_place at = {&s->mem, &s->steps_left, &err};
    const struct schema_node *culprit = n ? v[0] : NULL;
    const struct dfa *all = NULL;
    int rc = 0;
    *out = (struct schema_string){.length = TEXT_ANY_LENGTH};
    for (size_t i = 0; i < n && !rc; i++) {
        if (v[i]->min_length > out->length.min)
            out->length.min = v[i]->min_length;
        limit_length(out, v[i]->max_length);
        if (v[i]->format)
            limit_length(out, schema_format_most(v[i]->format));
        rc = narrow_node(s, &all, v[i], &at);
        culprit = rc ? v[i] : culprit;
    }
    out->free_form = !all;
    if (!rc && without)
        rc = narrow(s, &all, without, true, &at);
    out->points = all ? all : schema_any_text(s);
    if (!rc && out->points)
        rc = fold_lengths(out, &at);
    if (!rc && out->points && out->length.min > 0)
        rc = apply_minimum(out, &at);
    if (!rc && out->points && out->length.max >= 0)
        rc = check_length(out, &err);
    if (err.code == QWICK_ERR_USAGE && culprit && s->lenient)
        return any_string(s, culprit, without, &err, out);
    if (err.code)
        schema_refuse_err(s, culprit ? culprit->at : s->root, NULL, &err);
    return rc || !out->points ? -1 : 0;
}
