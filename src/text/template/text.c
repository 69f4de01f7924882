/* Strings whose bytes remember where they come from. */
#include <stdlib.h>
#include <string.h>

#include "base/utf8.h"
#include "text/template/template.h"
#include "text/template/value.h"
#include "text/unicode.h"

/* ---- buffers ---- */

static int sbuf_grow(struct rt *rt, struct sbuf *b, size_t n)
{
    size_t cap = b->cap ? b->cap : 32;
    while (cap - b->len < n) {
        if (cap > rt->max_output)
            return rt_fail_bound(rt, "bytes of text", rt->max_output);
        cap *= 2;
    }
    char *p = b->heap ? realloc(b->p, cap) : rt_alloc(rt, cap);
    if (!p)
        return b->heap ? err_oom(rt->e, cap) : -1;
    if (!b->heap && b->len)
        memcpy(p, b->p, b->len);
    b->p = p;
    if (b->mark) {
        uint8_t *m = b->heap ? realloc(b->mark, cap) : rt_alloc(rt, cap);
        if (!m)
            return b->heap ? err_oom(rt->e, cap) : -1;
        if (!b->heap && b->len)
            memcpy(m, b->mark, b->len);
        b->mark = m;
    }
    b->cap = cap;
    return 0;
}

/* Give every byte a mark of its own. */
static int sbuf_marks(struct rt *rt, struct sbuf *b)
{
    if (b->mark)
        return 0;
    b->mark = b->heap ? malloc(b->cap) : rt_alloc(rt, b->cap);
    if (!b->mark)
        return b->heap ? err_oom(rt->e, b->cap) : -1;
    memset(b->mark, b->has_outside, b->len);
    return 0;
}

static int sbuf_put(struct rt *rt, struct sbuf *b, const char *p, size_t n,
                    bool outside, const uint8_t *mark)
{
    if (n == 0)
        return 0;
    if (n > rt->max_output || b->len > rt->max_output - n)
        return rt_fail_bound(rt, "bytes of text", rt->max_output);
    if (rt_bytes(rt, n) || (b->cap - b->len < n && sbuf_grow(rt, b, n)))
        return -1;
    if ((mark || (outside ? b->has_own : b->has_outside)) && sbuf_marks(rt, b))
        return -1;
    memcpy(b->p + b->len, p, n);
    if (mark) {
        memcpy(b->mark + b->len, mark, n);
        b->has_own = b->has_outside = true;
    } else {
        if (b->mark)
            memset(b->mark + b->len, outside, n);
        b->has_own |= !outside;
        b->has_outside |= outside;
    }
    b->len += n;
    return 0;
}

int sbuf_add(struct rt *rt, struct sbuf *b, const char *p, size_t n,
             bool outside)
{
    return sbuf_put(rt, b, p, n, outside, NULL);
}

int sbuf_add_str(struct rt *rt, struct sbuf *b, const struct str *s)
{
    return sbuf_put(rt, b, s->p, s->n, s->outside, s->mark);
}

int sbuf_puts(struct rt *rt, struct sbuf *b, const char *s, bool outside)
{
    return sbuf_put(rt, b, s, strlen(s), outside, NULL);
}

int sbuf_fill(struct rt *rt, struct sbuf *b, char c, size_t n)
{
    for (; n > 0; n--)
        if (sbuf_put(rt, b, &c, 1, false, NULL))
            return -1;
    return 0;
}

const struct str *sbuf_str(struct rt *rt, const struct sbuf *b)
{
    struct str *s = rt_alloc(rt, sizeof *s);
    if (!s)
        return NULL;
    *s = (struct str){.p = b->p ? b->p : "",
                      .mark = b->mark,
                      .n = b->len,
                      .n_chars = SIZE_MAX,
                      .outside = b->has_outside};
    return s;
}

void sbuf_free(struct sbuf *b)
{
    if (b->heap) {
        free(b->p);
        free(b->mark);
    }
    *b = (struct sbuf){.heap = b->heap};
}

/* ---- strings ---- */

const struct str *str_new(struct rt *rt, const char *p, size_t n, bool outside)
{
    struct str *s = rt_alloc(rt, sizeof *s);
    if (s)
        *s = (struct str){
            .p = p, .n = n, .n_chars = SIZE_MAX, .outside = outside && n > 0};
    return s;
}

const struct str *str_literal(struct rt *rt, const char *text)
{
    return str_new(rt, text, strlen(text), false);
}

const struct str *str_sub(struct rt *rt, const struct str *s, size_t begin,
                          size_t end)
{
    if (begin == 0 && end == s->n)
        return s;
    struct str *r = rt_alloc(rt, sizeof *r);
    if (!r)
        return NULL;
    *r = *s;
    r->p += begin;
    r->n = end - begin;
    r->fixed = false;
    r->mark = s->mark ? s->mark + begin : NULL;
    r->n_chars = s->n_chars == s->n ? r->n : SIZE_MAX;
    return r;
}

bool str_has_outside(const struct str *s)
{
    return s->mark ? memchr(s->mark, 1, s->n) != NULL : s->outside && s->n > 0;
}

bool str_equal(const struct str *a, const struct str *b)
{
    return a->n == b->n && (a->n == 0 || memcmp(a->p, b->p, a->n) == 0);
}

bool str_is(const struct str *s, const char *literal)
{
    size_t n = strlen(literal);
    return s->n == n && (n == 0 || memcmp(s->p, literal, n) == 0);
}

size_t str_step(const struct str *s, size_t i)
{
    size_t n = utf8_decode(s->p + i, s->n - i, NULL, NULL);
    return n ? n : 1;
}

/* Continuation bytes are counted out; the text is valid UTF-8. */
size_t str_chars(const struct str *s)
{
    size_t n = 0;
    if (s->n_chars != SIZE_MAX)
        return s->n_chars;
    for (size_t i = 0; i < s->n; i++)
        n += ((unsigned char)s->p[i] & 0xC0) != 0x80;
    /* Strings of a template, which threads share, are counted when it is
     * parsed; this one belongs to one rendering. */
    ((struct str *)s)->n_chars = n;
    return n;
}

size_t str_offset(const struct str *s, size_t i)
{
    size_t at = 0;
    if (s->n_chars == s->n)
        return i;
    for (; i > 0 && at < s->n; i--)
        at += str_step(s, at);
    return at;
}

size_t str_find(const struct str *s, const struct str *needle, size_t from)
{
    if (from > s->n || needle->n > s->n - from)
        return SIZE_MAX;
    if (needle->n == 0)
        return from;
    const char *at = memmem(s->p + from, s->n - from, needle->p, needle->n);
    return at ? (size_t)(at - s->p) : SIZE_MAX;
}

/* Backwards, for needles of a few bytes. */
static size_t rfind_short(const struct str *s, const struct str *needle,
                          size_t to)
{
    for (size_t i = to + 1; i-- > 0;)
        if (needle->n == 0 || memcmp(s->p + i, needle->p, needle->n) == 0)
            return i;
    return SIZE_MAX;
}

static char *reversed(struct rt *rt, const char *p, size_t n)
{
    char *out = rt_alloc(rt, n);
    for (size_t i = 0; out && i < n; i++)
        out[i] = p[n - 1 - i];
    return out;
}

/* A long needle is searched forwards in reversed copies: memmem takes linear
 * time, comparing at each place would not. */
int str_rfind(struct rt *rt, const struct str *s, const struct str *needle,
              size_t to, size_t *out)
{
    enum { SHORT = 32 };
    *out = SIZE_MAX;
    if (needle->n > s->n)
        return 0;
    if (to > s->n - needle->n)
        to = s->n - needle->n;
    if (needle->n <= SHORT) {
        *out = rfind_short(s, needle, to);
        size_t scanned = to + 1 - (*out == SIZE_MAX ? 0 : *out);
        return rt_bytes(rt, scanned * 4); /* slower than memmem */
    }
    size_t n = to + needle->n;
    char *text = reversed(rt, s->p, n);
    char *what = text ? reversed(rt, needle->p, needle->n) : NULL;
    if (!what || rt_bytes(rt, n))
        return -1;
    const char *at = memmem(text, n, what, needle->n);
    if (at)
        *out = n - (size_t)(at - text) - needle->n;
    return 0;
}

int str_concat(struct rt *rt, const struct str *a, const struct str *b,
               const struct str **out)
{
    struct sbuf buf = {0};
    if (a->safe != b->safe && (a->n || b->n) &&
        str_escape(rt, a->safe ? b : a, a->safe ? &b : &a))
        return -1;
    if (sbuf_add_str(rt, &buf, a) || sbuf_add_str(rt, &buf, b))
        return -1;
    struct str *r = (struct str *)sbuf_str(rt, &buf);
    if (r)
        r->safe = a->safe;
    *out = r;
    return r ? 0 : -1;
}

int str_repeat(struct rt *rt, const struct str *s, int64_t n,
               const struct str **out)
{
    struct sbuf buf = {0};
    for (; n > 0 && s->n > 0; n--)
        if (sbuf_add_str(rt, &buf, s))
            return -1;
    *out = sbuf_str(rt, &buf);
    return *out ? 0 : -1;
}

/* As Python's str.isspace: White_Space and four control characters. */
bool char_is_space(uint32_t cp)
{
    return (cp >= 0x1C && cp <= 0x1F) || unicode_class(cp) == UC_SPACE;
}

static bool strips(const struct str *chars, const char *p, size_t n)
{
    uint32_t cp;
    if (chars)
        return memmem(chars->p, chars->n, p, n) != NULL;
    return utf8_decode(p, n, &cp, NULL) && char_is_space(cp);
}

/* Start of the character that ends at byte i > 0. */
static size_t step_back(const struct str *s, size_t i)
{
    i--;
    while (i > 0 && ((unsigned char)s->p[i] & 0xC0) == 0x80)
        i--;
    return i;
}

int str_strip(struct rt *rt, const struct str *s, const struct str *chars,
              int sides, const struct str **out)
{
    size_t begin = 0, end = s->n, n;
    if (sides & 1) {
        while (begin < end) {
            n = str_step(s, begin);
            if (chars && rt_bytes(rt, chars->n))
                return -1;
            if (!strips(chars, s->p + begin, n))
                break;
            begin += n;
        }
    }
    if (sides & 2) {
        while (end > begin) {
            n = step_back(s, end);
            if (chars && rt_bytes(rt, chars->n))
                return -1;
            if (!strips(chars, s->p + n, end - n))
                break;
            end = n;
        }
    }
    *out = str_sub(rt, s, begin, end);
    return *out ? rt_bytes(rt, s->n - (end - begin)) : -1;
}

int str_replace(struct rt *rt, const struct str *s, const struct str *old,
                const struct str *with, int64_t max, const struct str **out)
{
    struct sbuf b = {0};
    size_t at = 0, hit = 0;
    if (rt_bytes(rt, s->n))
        return -1;
    for (; max != 0; max--) {
        hit = str_find(s, old, at);
        if (hit == SIZE_MAX)
            break;
        const struct str *before = str_sub(rt, s, at, hit);
        if (!before || sbuf_add_str(rt, &b, before) ||
            sbuf_add_str(rt, &b, with) || rt_steps(rt, 1))
            return -1;
        at = hit + old->n;
        if (old->n == 0) { /* between all characters */
            if (at == s->n) {
                at = SIZE_MAX;
                break;
            }
            size_t n = str_step(s, at);
            const struct str *c = str_sub(rt, s, at, at + n);
            if (!c || sbuf_add_str(rt, &b, c))
                return -1;
            at += n;
        }
    }
    if (at == 0) {
        *out = s;
        return 0;
    }
    if (at != SIZE_MAX) {
        const struct str *rest = str_sub(rt, s, at, s->n);
        if (!rest || sbuf_add_str(rt, &b, rest))
            return -1;
    }
    *out = sbuf_str(rt, &b);
    return *out ? 0 : -1;
}

static int add_part(struct rt *rt, struct seq *list, const struct str *s,
                    size_t begin, size_t end)
{
    const struct str *part = str_sub(rt, s, begin, end);
    return part ? seq_add(rt, list, value_str(part)) : -1;
}

/* First byte at or after i that begins a space (or none: is_space false). */
static size_t scan_space(const struct str *s, size_t i, bool is_space)
{
    while (i < s->n) {
        size_t n = str_step(s, i);
        if (strips(NULL, s->p + i, n) == is_space)
            break;
        i += n;
    }
    return i;
}

static size_t scan_space_back(const struct str *s, size_t i, bool is_space)
{
    while (i > 0) {
        size_t b = step_back(s, i);
        if (strips(NULL, s->p + b, i - b) == is_space)
            break;
        i = b;
    }
    return i;
}

static int split_left(struct rt *rt, const struct str *s, const struct str *sep,
                      int64_t max, struct seq *list)
{
    size_t at = sep ? 0 : scan_space(s, 0, false);
    for (; max != 0; max--) {
        size_t hit = sep ? str_find(s, sep, at) : scan_space(s, at, true);
        if (hit == SIZE_MAX || (!sep && hit == s->n))
            break;
        if (add_part(rt, list, s, at, hit))
            return -1;
        at = sep ? hit + sep->n : scan_space(s, hit, false);
    }
    /* What is left after max parts keeps its inner white space only. */
    if (!sep && at == s->n)
        return 0;
    size_t end = sep ? s->n : max == 0 ? s->n : scan_space_back(s, s->n, false);
    return add_part(rt, list, s, at, end);
}

static int split_right(struct rt *rt, const struct str *s,
                       const struct str *sep, int64_t max, struct seq *list)
{
    size_t end = sep ? s->n : scan_space_back(s, s->n, false);
    for (; max != 0; max--) {
        size_t hit = SIZE_MAX;
        if (!sep)
            hit = scan_space_back(s, end, true);
        else if (end >= sep->n && str_rfind(rt, s, sep, end - sep->n, &hit))
            return -1;
        if (hit == SIZE_MAX || (!sep && hit == 0))
            break;
        if (add_part(rt, list, s, sep ? hit + sep->n : hit, end))
            return -1;
        end = sep ? hit : scan_space_back(s, hit, false);
    }
    if (!sep && end == 0)
        return 0;
    size_t begin = sep || max == 0 ? 0 : scan_space(s, 0, false);
    return add_part(rt, list, s, begin, end);
}

int str_split(struct rt *rt, const struct str *s, const struct str *sep,
              int64_t max, bool from_right, struct seq **out)
{
    struct seq *list = seq_new(rt, 0);
    if (!list || rt_bytes(rt, s->n))
        return -1;
    if (sep && sep->n == 0)
        return rt_fail(rt, "split: the separator is empty");
    if (from_right ? split_right(rt, s, sep, max, list)
                   : split_left(rt, s, sep, max, list))
        return -1;
    for (size_t i = 0; from_right && i < list->n / 2; i++) {
        struct value v = list->v[i];
        list->v[i] = list->v[list->n - 1 - i];
        list->v[list->n - 1 - i] = v;
    }
    *out = list;
    return 0;
}

/* Length of the line end at byte i, as str.splitlines knows them. */
static size_t line_end(const struct str *s, size_t i)
{
    uint32_t cp;
    size_t n = utf8_decode(s->p + i, s->n - i, &cp, NULL);
    if (cp == '\r')
        return i + 1 < s->n && s->p[i + 1] == '\n' ? 2 : 1;
    return (cp >= 0x0A && cp <= 0x0C) || (cp >= 0x1C && cp <= 0x1E) ||
                   cp == 0x85 || cp == 0x2028 || cp == 0x2029
               ? n
               : 0;
}

int str_splitlines(struct rt *rt, const struct str *s, bool keep_ends,
                   struct seq **out)
{
    struct seq *list = seq_new(rt, 0);
    size_t begin = 0;
    if (!list || rt_bytes(rt, s->n))
        return -1;
    for (size_t i = 0; i < s->n;) {
        size_t n = line_end(s, i);
        if (!n) {
            i += str_step(s, i);
            continue;
        }
        if (add_part(rt, list, s, begin, keep_ends ? i + n : i))
            return -1;
        begin = i += n;
    }
    if (begin < s->n && add_part(rt, list, s, begin, s->n))
        return -1;
    *out = list;
    return 0;
}

/* The words of `title` begin after these, as Jinja's filter has it. */
static bool begins_word(uint32_t cp)
{
    return cp == '-' || cp == '(' || cp == '{' || cp == '[' || cp == '<' ||
           char_is_space(cp);
}

int str_case(struct rt *rt, const struct str *s, enum str_case how,
             const struct str **out)
{
    struct sbuf b = {0};
    bool outside = str_has_outside(s), first = true;
    for (size_t i = 0; i < s->n;) {
        uint32_t cp = 0xFFFD;
        char mapped[UNICODE_MAX_CASE];
        size_t n = utf8_decode(s->p + i, s->n - i, &cp, NULL);
        n = n ? n : 1;
        bool upper = how == CASE_SWAP
                         ? unicode_is_lower(cp)
                         : how == CASE_UPPER || (first && how != CASE_LOWER);
        size_t len = upper && how == CASE_CAPITAL ? unicode_title(cp, mapped)
                     : upper                      ? unicode_upper(cp, mapped)
                             : unicode_lower(s->p, s->n, i, mapped);
        if (sbuf_add(rt, &b, mapped, len, outside))
            return -1;
        first = how == CASE_TITLE && begins_word(cp);
        i += n;
    }
    struct str *r = (struct str *)sbuf_str(rt, &b);
    if (r)
        r->safe = s->safe;
    *out = r;
    return r ? 0 : -1;
}

/* All characters with a case have this one, and there is one. */
bool str_is_case(const struct str *s, bool upper)
{
    bool found = false;
    for (size_t i = 0; i < s->n; i += str_step(s, i)) {
        uint32_t cp = 0;
        utf8_decode(s->p + i, s->n - i, &cp, NULL);
        if (upper ? unicode_is_lower(cp) : unicode_is_upper(cp))
            return false;
        found |= upper ? unicode_is_upper(cp) : unicode_is_lower(cp);
    }
    return found;
}

int str_escape(struct rt *rt, const struct str *s, const struct str **out)
{
    static const char from[] = "&<>'\"";
    static const char *const to[] = {"&amp;", "&lt;", "&gt;", "&#39;", "&#34;"};
    struct sbuf b = {0};
    for (size_t i = 0; i < s->n; i++) {
        const char *at = s->p[i] ? strchr(from, s->p[i]) : NULL;
        bool outside = s->mark ? s->mark[i] : s->outside;
        if (at ? sbuf_puts(rt, &b, to[at - from], outside)
               : sbuf_add(rt, &b, s->p + i, 1, outside))
            return -1;
    }
    struct str *r = (struct str *)sbuf_str(rt, &b);
    if (r)
        r->safe = true;
    *out = r;
    return r ? 0 : -1;
}
