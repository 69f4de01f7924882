/* Methods of values. Those that would change a list or a dict are missing, as
 * in Jinja's sandbox. Parameters that begin with # take no keyword. */
#include <string.h>

#include "base/utf8.h"
#include "text/template/interp.h"
#include "text/unicode.h"

static int out_str(const struct str *s, struct value *out)
{
    *out = value_str(s);
    return s ? 0 : -1;
}

/* ---- strings: parts ---- */

static int m_strip(struct rt *rt, const struct args *a, struct value *out)
{
    const struct str *chars = NULL, *s;
    if ((a->v[0].type != V_NONE &&
         arg_str(rt, a->v[0], "strip: the characters", &chars)) ||
        str_strip(rt, a->self.s, chars, a->row->tag, &s))
        return -1;
    return out_str(s, out);
}

static int m_split(struct rt *rt, const struct args *a, struct value *out)
{
    const struct str *sep = NULL;
    int64_t max = -1;
    struct seq *list;
    if ((a->v[0].type != V_NONE &&
         arg_str(rt, a->v[0], "split: the separator", &sep)) ||
        arg_int(rt, a->v[1], "split: maxsplit", &max) ||
        str_split(rt, a->self.s, sep, max, a->row->tag, &list))
        return -1;
    *out = value_seq(V_LIST, list);
    return 0;
}

static int m_splitlines(struct rt *rt, const struct args *a, struct value *out)
{
    struct seq *list;
    if (str_splitlines(rt, a->self.s, value_truth(a->v[0]), &list))
        return -1;
    *out = value_seq(V_LIST, list);
    return 0;
}

static int m_partition(struct rt *rt, const struct args *a, struct value *out)
{
    const struct str *s = a->self.s, *sep = NULL;
    bool right = a->row->tag;
    if (arg_str(rt, a->v[0], "partition: the separator", &sep))
        return -1;
    if (!sep->n)
        return rt_fail(rt, "partition: the separator is empty");
    size_t at = str_find(s, sep, 0);
    if (right && str_rfind(rt, s, sep, s->n, &at))
        return -1;
    size_t cut = at != SIZE_MAX ? at : right ? 0 : s->n;
    size_t end = at != SIZE_MAX ? at + sep->n : cut;
    struct seq *t = seq_new(rt, 3);
    const struct str *parts[3] = {str_sub(rt, s, 0, cut),
                                  str_sub(rt, s, cut, end),
                                  str_sub(rt, s, end, s->n)};
    for (int i = 0; i < 3; i++)
        if (!t || !parts[i] || seq_add(rt, t, value_str(parts[i])))
            return -1;
    *out = value_seq(V_TUPLE, t);
    return rt_bytes(rt, s->n);
}

static int m_replace(struct rt *rt, const struct args *a, struct value *out)
{
    const struct str *old = NULL, *with = NULL, *s;
    int64_t max = -1;
    if (arg_str(rt, a->v[0], "replace: the old text", &old) ||
        arg_str(rt, a->v[1], "replace: the new text", &with) ||
        arg_int(rt, a->v[2], "replace: the count", &max) ||
        str_replace(rt, a->self.s, old, with, max, &s))
        return -1;
    return out_str(s, out);
}

static int m_join(struct rt *rt, const struct args *a, struct value *out)
{
    struct sbuf b = {0};
    const struct seq *items;
    if (value_items(rt, a->v[0], &items))
        return -1;
    for (size_t i = 0; i < items->n; i++) {
        if (items->v[i].type != V_STR)
            return rt_fail(rt, "join: item %zu is a %s, not a string", i,
                           value_type_name(items->v[i]));
        if ((i && sbuf_add_str(rt, &b, a->self.s)) ||
            sbuf_add_str(rt, &b, items->v[i].s))
            return -1;
    }
    return out_str(sbuf_str(rt, &b), out);
}

static int m_case(struct rt *rt, const struct args *a, struct value *out)
{
    const struct str *s;
    if (str_case(rt, a->self.s, a->row->tag, &s))
        return -1;
    return out_str(s, out);
}

/* str.title begins a word after each character that has no case. */
static int m_title(struct rt *rt, const struct args *a, struct value *out)
{
    const struct str *s = a->self.s;
    struct sbuf b = {0};
    bool inside = false, outside = str_has_outside(s);
    for (size_t i = 0, n; i < s->n; i += n) {
        uint32_t cp = 0;
        char mapped[UNICODE_MAX_CASE];
        n = str_step(s, i);
        utf8_decode(s->p + i, n, &cp, NULL);
        size_t len = inside ? unicode_lower(s->p, s->n, i, mapped)
                            : unicode_title(cp, mapped);
        if (sbuf_add(rt, &b, mapped, len, outside))
            return -1;
        inside = unicode_is_upper(cp) || unicode_is_lower(cp);
    }
    return out_str(sbuf_str(rt, &b), out);
}

static int m_removefix(struct rt *rt, const struct args *a, struct value *out)
{
    const struct str *s = a->self.s, *fix = NULL;
    bool suffix = a->row->tag;
    if (arg_str(rt, a->v[0], "the prefix or suffix", &fix))
        return -1;
    bool has = fix->n <= s->n &&
               memcmp(s->p + (suffix ? s->n - fix->n : 0), fix->p, fix->n) == 0;
    return out_str(!has     ? s
                   : suffix ? str_sub(rt, s, 0, s->n - fix->n)
                            : str_sub(rt, s, fix->n, s->n),
                   out);
}

enum { PAD_LEFT = 1, PAD_RIGHT = 2, PAD_ZERO = 4 };

static int m_pad(struct rt *rt, const struct args *a, struct value *out)
{
    const struct str *s = a->self.s, *fill = str_literal(rt, " ");
    int64_t width = 0, n = (int64_t)str_chars(s);
    int tag = a->row->tag;
    struct sbuf b = {0};
    if (!fill || arg_int(rt, a->v[0], "the width", &width) ||
        arg_str(rt, a->v[1], "the filling", &fill))
        return -1;
    if (str_chars(fill) != 1)
        return rt_fail(rt, "the filling must be one character");
    int64_t pad = width > n ? width - n : 0;
    int64_t left = tag == PAD_LEFT    ? pad
                   : tag == PAD_RIGHT ? 0
                                      : pad / 2 + (pad & width & 1);
    for (int64_t i = 0; i < left; i++)
        if (sbuf_add_str(rt, &b, fill))
            return -1;
    if (sbuf_add_str(rt, &b, s))
        return -1;
    for (int64_t i = left; i < pad; i++)
        if (sbuf_add_str(rt, &b, fill))
            return -1;
    return out_str(sbuf_str(rt, &b), out);
}

static int m_zfill(struct rt *rt, const struct args *a, struct value *out)
{
    const struct str *s = a->self.s;
    int64_t width = 0, n = (int64_t)str_chars(s);
    struct sbuf b = {0};
    size_t sign = s->n && (*s->p == '+' || *s->p == '-');
    if (arg_int(rt, a->v[0], "the width", &width))
        return -1;
    const struct str *head = str_sub(rt, s, 0, sign);
    const struct str *rest = str_sub(rt, s, sign, s->n);
    if (!head || !rest || sbuf_add_str(rt, &b, head) ||
        (width > n && sbuf_fill(rt, &b, '0', (size_t)(width - n))) ||
        sbuf_add_str(rt, &b, rest))
        return -1;
    return out_str(sbuf_str(rt, &b), out);
}

/* ---- strings: questions ---- */

/* The part of s between the optional character offsets v[0] and v[1]. *base:
 * its byte offset; *valid: false if the start is after the end. */
static int window(struct rt *rt, const struct str *s, const struct value v[2],
                  const struct str **out, size_t *base, bool *valid)
{
    int64_t n = (int64_t)str_chars(s), start = 0, stop = n;
    if ((v[0].type != V_NONE && arg_int(rt, v[0], "the start", &start)) ||
        (v[1].type != V_NONE && arg_int(rt, v[1], "the end", &stop)))
        return -1;
    start = start < -n ? 0 : start < 0 ? start + n : start;
    stop = stop < -n ? 0 : stop < 0 ? stop + n : stop > n ? n : stop;
    *valid = start <= stop;
    if (!*valid)
        start = stop = 0;
    *base = str_offset(s, (size_t)start);
    *out = str_sub(rt, s, *base, str_offset(s, (size_t)stop));
    return *out ? rt_bytes(rt, s->n) : -1;
}

static bool has_fix(const struct str *s, const struct str *fix, bool suffix)
{
    return fix->n <= s->n &&
           memcmp(s->p + (suffix ? s->n - fix->n : 0), fix->p, fix->n) == 0;
}

static int m_startswith(struct rt *rt, const struct args *a, struct value *out)
{
    const struct str *s, *fix = NULL;
    const struct seq one = {.v = (struct value *)&a->v[0], .n = 1};
    const struct seq *all = a->v[0].type == V_TUPLE ? a->v[0].seq : &one;
    bool found = false, valid;
    size_t base;
    if (window(rt, a->self.s, a->v + 1, &s, &base, &valid))
        return -1;
    for (size_t i = 0; i < all->n && !found; i++) {
        if (arg_str(rt, all->v[i], "startswith, endswith: the argument", &fix))
            return -1;
        found = valid && has_fix(s, fix, a->row->tag);
    }
    *out = value_bool(found);
    return 0;
}

enum { FIND_RIGHT = 1, FIND_FAILS = 2 };

static int m_find(struct rt *rt, const struct args *a, struct value *out)
{
    const struct str *s, *needle = NULL;
    bool valid;
    size_t base;
    if (arg_str(rt, a->v[0], "find: the text", &needle) ||
        window(rt, a->self.s, a->v + 1, &s, &base, &valid))
        return -1;
    size_t at = SIZE_MAX;
    if (valid && !(a->row->tag & FIND_RIGHT))
        at = str_find(s, needle, 0);
    else if (valid && str_rfind(rt, s, needle, s->n, &at))
        return -1;
    if (at == SIZE_MAX && (a->row->tag & FIND_FAILS))
        return rt_fail(rt, "%s: the text is not in the string", a->row->name);
    if (at == SIZE_MAX) {
        *out = value_int(-1);
        return 0;
    }
    const struct str *before = str_sub(rt, a->self.s, 0, base + at);
    if (!before)
        return -1;
    *out = value_int((int64_t)str_chars(before));
    return 0;
}

static int m_count(struct rt *rt, const struct args *a, struct value *out)
{
    const struct str *s, *needle = NULL;
    int64_t n = 0;
    bool valid;
    size_t base;
    if (arg_str(rt, a->v[0], "count: the text", &needle) ||
        window(rt, a->self.s, a->v + 1, &s, &base, &valid))
        return -1;
    if (!needle->n)
        n = valid ? (int64_t)str_chars(s) + 1 : 0;
    else
        for (size_t at = 0; (at = str_find(s, needle, at)) != SIZE_MAX;
             at += needle->n)
            n++;
    *out = value_int(n);
    return 0;
}

enum { CHARS_ALPHA, CHARS_ALNUM, CHARS_DIGIT, CHARS_SPACE, CHARS_ASCII };

static int m_chars(struct rt *rt, const struct args *a, struct value *out)
{
    const struct str *s = a->self.s;
    bool all = s->n > 0 || a->row->tag == CHARS_ASCII;
    for (size_t i = 0; i < s->n && all; i += str_step(s, i)) {
        uint32_t cp = 0;
        utf8_decode(s->p + i, s->n - i, &cp, NULL);
        enum uclass k = unicode_class(cp);
        all = a->row->tag == CHARS_ALPHA   ? k == UC_LETTER
              : a->row->tag == CHARS_ALNUM ? k == UC_LETTER || k == UC_NUMBER
              : a->row->tag == CHARS_DIGIT ? k == UC_NUMBER
              : a->row->tag == CHARS_SPACE ? char_is_space(cp)
                                           : cp < 0x80;
    }
    *out = value_bool(all);
    return rt_bytes(rt, s->n);
}

static int m_is_case(struct rt *rt, const struct args *a, struct value *out)
{
    *out = value_bool(str_is_case(a->self.s, a->row->tag == CASE_UPPER));
    return rt_bytes(rt, a->self.s->n);
}

static int m_format(struct rt *rt, const struct args *a, struct value *out)
{
    return format_braces(rt, a->self.s, &a->raw, out);
}

/* ---- lists and dicts ---- */

static int m_seq_index(struct rt *rt, const struct args *a, struct value *out)
{
    const struct seq *s = a->self.seq;
    for (size_t i = 0; i < s->n; i++) {
        bool same;
        if (value_equal(rt, s->v[i], a->v[0], &same) || rt_steps(rt, 1))
            return -1;
        if (same) {
            *out = value_int((int64_t)i);
            return 0;
        }
    }
    return rt_fail(rt, "index: the value is not in the list");
}

static int m_seq_count(struct rt *rt, const struct args *a, struct value *out)
{
    const struct seq *s = a->self.seq;
    int64_t n = 0;
    for (size_t i = 0; i < s->n; i++) {
        bool same;
        if (value_equal(rt, s->v[i], a->v[0], &same) || rt_steps(rt, 1))
            return -1;
        n += same;
    }
    *out = value_int(n);
    return 0;
}

static int m_copy(struct rt *rt, const struct args *a, struct value *out)
{
    (void)rt;
    *out = a->self; /* nothing can change either of the two */
    return 0;
}

static int m_get(struct rt *rt, const struct args *a, struct value *out)
{
    struct value found;
    if (dict_get(rt, a->self.d, a->v[0], &found))
        return -1;
    *out = found.type != V_ABSENT     ? found
           : a->v[1].type != V_ABSENT ? a->v[1]
                                      : value_none();
    return 0;
}

static int m_view(struct rt *rt, const struct args *a, struct value *out)
{
    static const char *const names[] = {"dict_keys", "dict_values",
                                        "dict_items"};
    struct seq *s;
    if (dict_view(rt, a->self.d, a->row->tag, &s))
        return -1;
    s->what = names[a->row->tag];
    *out = value_seq(V_VIEW, s);
    return 0;
}

/* ---- objects ---- */

static int m_loop_cycle(struct rt *rt, const struct args *a, struct value *out)
{
    if (!a->raw.n_pos)
        return rt_fail(rt, "loop.cycle needs values");
    *out = a->raw.pos[a->self.loop->at % a->raw.n_pos];
    return a->self.outside ? value_mark(rt, out) : 0;
}

static int m_loop_changed(struct rt *rt, const struct args *a,
                          struct value *out)
{
    struct seq *now = seq_new(rt, a->raw.n_pos);
    bool same = false;
    for (size_t i = 0; now && i < a->raw.n_pos; i++)
        if (seq_add(rt, now, a->raw.pos[i]))
            return -1;
    if (!now)
        return -1;
    struct value v = value_seq(V_TUPLE, now);
    if (value_equal(rt, a->self.loop->changed, v, &same))
        return -1;
    a->self.loop->changed = v;
    *out = value_bool(!same);
    return 0;
}

static int m_cycler_next(struct rt *rt, const struct args *a, struct value *out)
{
    struct cycler *c = a->self.cycler;
    (void)rt;
    *out = c->v[c->at];
    c->at = (c->at + 1) % c->n;
    return 0;
}

static int m_cycler_reset(struct rt *rt, const struct args *a,
                          struct value *out)
{
    (void)rt;
    (void)out;
    a->self.cycler->at = 0;
    return 0;
}

/* ---- tables ---- */

static const struct builtin str_methods[] = {
    {"capitalize", "", m_case, CASE_CAPITAL, false},
    {"casefold", "", m_case, CASE_LOWER, false},
    {"center", "!#1 #2?", m_pad, PAD_LEFT | PAD_RIGHT, false},
    {"count", "#1 #2? #3?", m_count, 0, false},
    {"endswith", "#1 #2? #3?", m_startswith, 1, false},
    {"find", "#1 #2? #3?", m_find, 0, false},
    {"format", "*", m_format, 0, true},
    {"index", "#1 #2? #3?", m_find, FIND_FAILS, false},
    {"isalnum", "", m_chars, CHARS_ALNUM, false},
    {"isalpha", "", m_chars, CHARS_ALPHA, false},
    {"isascii", "", m_chars, CHARS_ASCII, false},
    {"isdecimal", "", m_chars, CHARS_DIGIT, false},
    {"isdigit", "", m_chars, CHARS_DIGIT, false},
    {"islower", "", m_is_case, CASE_LOWER, false},
    {"isnumeric", "", m_chars, CHARS_DIGIT, false},
    {"isspace", "", m_chars, CHARS_SPACE, false},
    {"isupper", "", m_is_case, CASE_UPPER, false},
    {"join", "#1", m_join, 0, false},
    {"ljust", "!#1 #2?", m_pad, PAD_RIGHT, false},
    {"lower", "", m_case, CASE_LOWER, false},
    {"lstrip", "!#1?", m_strip, 1, false},
    {"partition", "!#1", m_partition, 0, false},
    {"removeprefix", "!#1", m_removefix, 0, false},
    {"removesuffix", "!#1", m_removefix, 1, false},
    {"replace", "!#1 #2 !#3?", m_replace, 0, false},
    {"rfind", "#1 #2? #3?", m_find, FIND_RIGHT, false},
    {"rindex", "#1 #2? #3?", m_find, FIND_RIGHT | FIND_FAILS, false},
    {"rjust", "!#1 #2?", m_pad, PAD_LEFT, false},
    {"rpartition", "!#1", m_partition, 1, false},
    {"rsplit", "!sep? !maxsplit?", m_split, 1, false},
    {"rstrip", "!#1?", m_strip, 2, false},
    {"split", "!sep? !maxsplit?", m_split, 0, false},
    {"splitlines", "!keepends?", m_splitlines, 0, false},
    {"startswith", "#1 #2? #3?", m_startswith, 0, false},
    {"strip", "!#1?", m_strip, 3, false},
    {"swapcase", "", m_case, CASE_SWAP, false},
    {"title", "", m_title, 0, false},
    {"upper", "", m_case, CASE_UPPER, false},
    {"zfill", "!#1", m_zfill, 0, false},
};

static const struct builtin seq_methods[] = {
    {"copy", "", m_copy, 0, false},
    {"count", "#1", m_seq_count, 0, false},
    {"index", "#1", m_seq_index, 0, false},
};

static const struct builtin dict_methods[] = {
    {"copy", "", m_copy, 0, false},
    {"get", "!#1 #2?", m_get, 0, false},
    {"items", "", m_view, DICT_ITEMS, false},
    {"keys", "", m_view, DICT_KEYS, false},
    {"values", "", m_view, DICT_VALUES, false},
};

static const struct builtin loop_methods[] = {
    {"changed", "*", m_loop_changed, 0, false},
    {"cycle", "*", m_loop_cycle, 0, false},
};

static const struct builtin cycler_methods[] = {
    {"next", "", m_cycler_next, 0, false},
    {"reset", "", m_cycler_reset, 0, false},
};

#define TABLE(t) t, sizeof(t) / sizeof *(t)
static const struct {
    const struct builtin *rows;
    size_t n;
} tables[N_VALUE_TYPES] = {
    [V_STR] = {TABLE(str_methods)},       [V_LIST] = {TABLE(seq_methods)},
    [V_TUPLE] = {TABLE(seq_methods)},     [V_RANGE] = {TABLE(seq_methods)},
    [V_DICT] = {TABLE(dict_methods)},     [V_LOOP] = {TABLE(loop_methods)},
    [V_CYCLER] = {TABLE(cycler_methods)},
};

const struct builtin *method_find(enum value_type type, const char *name,
                                  size_t n)
{
    return function_find(tables[type].rows, tables[type].n, name, n);
}
