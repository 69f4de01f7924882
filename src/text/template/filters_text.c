/* Filters that make strings. */
#include <stdio.h>
#include <string.h>

#include "base/utf8.h"
#include "text/template/interp.h"
#include "text/unicode.h"

static int out_str(const struct str *s, struct value *out)
{
    *out = value_str(s);
    return s ? 0 : -1;
}

/* ---- strings ---- */

static int f_case(struct rt *rt, const struct args *a, struct value *out)
{
    const struct str *s;
    if (value_to_str(rt, a->self, &s) || str_case(rt, s, a->row->tag, &s))
        return -1;
    return out_str(s, out);
}

static int f_trim(struct rt *rt, const struct args *a, struct value *out)
{
    const struct str *s, *chars = NULL;
    if (value_to_str(rt, a->self, &s) ||
        (a->v[0].type != V_NONE &&
         arg_str(rt, a->v[0], "trim: the characters", &chars)) ||
        str_strip(rt, s, chars, 3, &s))
        return -1;
    return out_str(s, out);
}

static int f_string(struct rt *rt, const struct args *a, struct value *out)
{
    const struct str *s;
    if (value_to_str(rt, a->self, &s))
        return -1;
    return out_str(s, out);
}

static int f_safe(struct rt *rt, const struct args *a, struct value *out)
{
    const struct str *s;
    struct str *safe = rt_alloc(rt, sizeof *safe);
    if (!safe || value_to_str(rt, a->self, &s))
        return -1;
    *safe = *s;
    safe->safe = true;
    return out_str(safe, out);
}

static int f_escape(struct rt *rt, const struct args *a, struct value *out)
{
    const struct str *s;
    if (value_to_str(rt, a->self, &s) ||
        ((!s->safe || a->row->tag) && str_escape(rt, s, &s)))
        return -1;
    return out_str(s, out);
}

static int f_replace(struct rt *rt, const struct args *a, struct value *out)
{
    const struct str *s, *old, *with;
    int64_t max = -1;
    if (value_to_str(rt, a->self, &s) || value_to_str(rt, a->v[0], &old) ||
        value_to_str(rt, a->v[1], &with) ||
        (a->v[2].type != V_NONE &&
         arg_int(rt, a->v[2], "replace: the count", &max)) ||
        str_replace(rt, s, old, with, max, &s))
        return -1;
    return out_str(s, out);
}

static int f_center(struct rt *rt, const struct args *a, struct value *out)
{
    const struct str *s;
    int64_t width = 80;
    if (value_to_str(rt, a->self, &s) ||
        arg_int(rt, a->v[0], "center: the width", &width))
        return -1;
    int64_t n = (int64_t)str_chars(s), pad = width > n ? width - n : 0;
    int64_t left = pad / 2 + (pad & width & 1);
    struct sbuf b = {0};
    if (sbuf_fill(rt, &b, ' ', (size_t)left) || sbuf_add_str(rt, &b, s) ||
        sbuf_fill(rt, &b, ' ', (size_t)(pad - left)))
        return -1;
    return out_str(sbuf_str(rt, &b), out);
}

static int f_format(struct rt *rt, const struct args *a, struct value *out)
{
    const struct str *s;
    struct value with;
    if (value_to_str(rt, a->self, &s))
        return -1;
    if (a->raw.n_pos && a->raw.n_kw)
        return rt_fail(rt, "format: values with and without names");
    if (a->raw.n_kw) {
        struct dict *d = dict_new(rt, a->raw.n_kw);
        for (size_t i = 0; d && i < a->raw.n_kw; i++)
            if (dict_set(rt, d, value_str(a->raw.kw[i].name), a->raw.kw[i].v))
                return -1;
        if (!d)
            return -1;
        with = (struct value){.type = V_DICT, .d = d};
    } else {
        struct seq *t = seq_new(rt, a->raw.n_pos);
        for (size_t i = 0; t && i < a->raw.n_pos; i++)
            if (seq_add(rt, t, a->raw.pos[i]))
                return -1;
        if (!t)
            return -1;
        with = value_seq(V_TUPLE, t);
    }
    return format_percent(rt, s, with, out);
}

static int indent_width(struct rt *rt, struct value v, const struct str **out)
{
    int64_t n = 4;
    struct sbuf b = {0};
    if (v.type == V_STR) {
        *out = v.s;
        return 0;
    }
    if (arg_int(rt, v, "indent: the width", &n) ||
        sbuf_fill(rt, &b, ' ', n > 0 ? (size_t)n : 0))
        return -1;
    *out = sbuf_str(rt, &b);
    return *out ? 0 : -1;
}

static int f_indent(struct rt *rt, const struct args *a, struct value *out)
{
    const struct str *by, *s = NULL;
    bool first = value_truth(a->v[1]), blank = value_truth(a->v[2]);
    struct seq *lines;
    struct sbuf b = {0};
    if (indent_width(rt, a->v[0], &by) ||
        arg_str(rt, a->self, "indent: the text", &s) ||
        str_splitlines(rt, s, false, &lines))
        return -1;
    /* A final newline makes one more line, which is empty. */
    const struct str *empty = str_literal(rt, "");
    bool ends = s->n && s->p[s->n - 1] == '\n';
    if (!empty || ((ends || !lines->n) && seq_add(rt, lines, value_str(empty))))
        return -1;
    for (size_t i = 0; i < lines->n; i++) {
        const struct str *line = lines->v[i].s;
        bool indents = i == 0 ? first : blank || line->n;
        if ((i && sbuf_puts(rt, &b, "\n", false)) ||
            (indents && sbuf_add_str(rt, &b, by)) || sbuf_add_str(rt, &b, line))
            return -1;
    }
    return out_str(sbuf_str(rt, &b), out);
}

static int f_truncate(struct rt *rt, const struct args *a, struct value *out)
{
    const struct str *s = NULL, *end = str_literal(rt, "...");
    int64_t length = 255, leeway = 5;
    struct sbuf b = {0};
    if (!end || arg_str(rt, a->self, "truncate: the text", &s) ||
        arg_int(rt, a->v[0], "truncate: the length", &length) ||
        arg_str(rt, a->v[2], "truncate: the end", &end) ||
        (a->v[3].type != V_NONE &&
         arg_int(rt, a->v[3], "truncate: the leeway", &leeway)))
        return -1;
    int64_t n_end = (int64_t)str_chars(end);
    if (length < n_end || leeway < 0)
        return rt_fail(rt, "truncate: the length or leeway is too small");
    if ((int64_t)str_chars(s) - leeway <= length)
        return out_str(s, out);
    const struct str *head =
        str_sub(rt, s, 0, str_offset(s, (size_t)(length - n_end)));
    const struct str blank = {.p = " ", .n = 1, .n_chars = 1};
    size_t cut = SIZE_MAX;
    if (!head || str_rfind(rt, head, &blank, head->n, &cut))
        return -1;
    if (!value_truth(a->v[1]) && cut != SIZE_MAX)
        head = str_sub(rt, head, 0, cut);
    if (!head || sbuf_add_str(rt, &b, head) || sbuf_add_str(rt, &b, end))
        return -1;
    return out_str(sbuf_str(rt, &b), out);
}

static int f_wordcount(struct rt *rt, const struct args *a, struct value *out)
{
    const struct str *s;
    int64_t n = 0;
    bool inside = false;
    if (value_to_str(rt, a->self, &s))
        return -1;
    for (size_t i = 0; i < s->n; i += str_step(s, i)) {
        uint32_t cp = 0;
        utf8_decode(s->p + i, s->n - i, &cp, NULL);
        enum uclass k = unicode_class(cp);
        bool word = k == UC_LETTER || k == UC_NUMBER || cp == '_';
        n += word && !inside;
        inside = word;
    }
    *out = value_int(n);
    return rt_bytes(rt, s->n);
}

/* form: of a query string, where a blank becomes + and a slash is quoted. */
static int put_url(struct rt *rt, struct sbuf *b, struct value v, bool form)
{
    static const char plain[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrst"
                                "uvwxyz0123456789_.-~";
    const struct str *s;
    if (value_to_str(rt, v, &s))
        return -1;
    for (size_t i = 0; i < s->n; i++) {
        char c = s->p[i], text[8] = {c};
        if (form && c == ' ')
            text[0] = '+';
        else if (!c || !(strchr(plain, c) || (c == '/' && !form)))
            snprintf(text, sizeof text, "%%%02X", (unsigned char)c);
        if (sbuf_puts(rt, b, text, s->mark ? s->mark[i] : s->outside))
            return -1;
    }
    return 0;
}

static int f_urlencode(struct rt *rt, const struct args *a, struct value *out)
{
    struct sbuf b = {0};
    const struct seq *items, *pair;
    struct seq *view;
    if (!value_is_seq(a->self) && a->self.type != V_DICT) {
        if (put_url(rt, &b, a->self, false))
            return -1;
        return out_str(sbuf_str(rt, &b), out);
    }
    if (a->self.type == V_DICT) {
        if (dict_view(rt, a->self.d, DICT_ITEMS, &view))
            return -1;
        items = view;
    } else if (value_items(rt, a->self, &items)) {
        return -1;
    }
    for (size_t i = 0; i < items->n; i++) {
        if (value_items(rt, items->v[i], &pair))
            return -1;
        if (pair->n != 2)
            return rt_fail(rt, "urlencode: item %zu is not a pair", i);
        if ((i && sbuf_puts(rt, &b, "&", false)) ||
            put_url(rt, &b, pair->v[0], true) ||
            sbuf_puts(rt, &b, "=", false) || put_url(rt, &b, pair->v[1], true))
            return -1;
    }
    return out_str(sbuf_str(rt, &b), out);
}

/* ---- JSON ---- */

static int json_indent(struct rt *rt, struct value v, struct json_style *style)
{
    int64_t n = 0;
    struct sbuf b = {0};
    if (v.type == V_ABSENT || v.type == V_NONE)
        return 0;
    if (v.type == V_STR) {
        style->indent = v.s;
        return 0;
    }
    if (arg_int(rt, v, "tojson: indent", &n) ||
        sbuf_fill(rt, &b, ' ', n > 0 ? (size_t)n : 0))
        return -1;
    style->indent = sbuf_str(rt, &b);
    return style->indent ? 0 : -1;
}

static int json_separators(struct rt *rt, struct value v,
                           struct json_style *style)
{
    const struct seq *pair;
    style->item_sep = str_literal(rt, style->indent ? "," : ", ");
    style->key_sep = str_literal(rt, ": ");
    if (!style->item_sep || !style->key_sep)
        return -1;
    if (v.type == V_ABSENT || v.type == V_NONE)
        return 0;
    if (value_items(rt, v, &pair))
        return -1;
    if (pair->n != 2)
        return rt_fail(rt, "tojson: separators needs two strings");
    if (arg_str(rt, pair->v[0], "tojson: a separator", &style->item_sep) ||
        arg_str(rt, pair->v[1], "tojson: a separator", &style->key_sep))
        return -1;
    return 0;
}

static int f_tojson(struct rt *rt, const struct args *a, struct value *out)
{
    struct json_style style = {.ensure_ascii = value_truth(a->v[0]),
                               .sort_keys = value_truth(a->v[3])};
    struct sbuf b = {0};
    if (json_indent(rt, a->v[1], &style) ||
        json_separators(rt, a->v[2], &style) ||
        value_to_json(rt, &b, a->self, &style))
        return -1;
    return out_str(sbuf_str(rt, &b), out);
}

const struct builtin filters_text[] = {
    {"capitalize", "", f_case, CASE_CAPITAL, false},
    {"center", "!width?", f_center, 0, false},
    {"e", "", f_escape, 0, false},
    {"escape", "", f_escape, 0, false},
    {"forceescape", "", f_escape, 1, false},
    {"format", "*", f_format, 0, true},
    {"indent", "!width? !first? !blank?", f_indent, 0, false},
    {"lower", "", f_case, CASE_LOWER, false},
    {"replace", "!old new !count?", f_replace, 0, false},
    {"safe", "", f_safe, 0, false},
    {"string", "", f_string, 0, false},
    {"title", "", f_case, CASE_TITLE, false},
    {"tojson", "ensure_ascii? indent? separators? sort_keys?", f_tojson, 0,
     true},
    {"trim", "!chars?", f_trim, 0, false},
    {"truncate", "!length? !killwords? end? !leeway?", f_truncate, 0, false},
    {"upper", "", f_case, CASE_UPPER, false},
    {"urlencode", "", f_urlencode, 0, true},
    {"wordcount", "", f_wordcount, 0, false},
};
const size_t n_filters_text = sizeof filters_text / sizeof *filters_text;
