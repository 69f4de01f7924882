/* BertNormalizer and BertPreTokenizer of `tokenizers`, and the other
 * normalizers and pre-tokenizers that files with WordPiece have. Their
 * categories are from Unicode 8, decompositions and combining classes from
 * Unicode 9, and lower case is from Unicode 17. */
#include <stdlib.h>

#include "base/array.h"
#include "base/utf8.h"
#include "text/bpe/bpe_wordpiece.h"
#include "text/unicode.h"

/* ---- characters ---- */

enum {
    C_SPACE = 1,   /* White_Space */
    C_PUNCT = 2,   /* a part of its own */
    C_REMOVED = 4, /* dropped by BERT_CLEAN */
    C_MARK = 8,    /* dropped by BERT_STRIP */
    C_HAN = 16,
    C_CHANGES = 32,  /* has a decomposition, a combining class, or lower case */
    C_ANY_MARK = 64, /* dropped by BERT_STRIP_ALL */
    C_WORD = 128,    /* \w of regular expressions */
    C_KNOWN = 256    /* the entry is filled */
};

struct range {
    uint32_t first, last;
};

static bool in_ranges(const struct range *r, size_t n, uint32_t cp)
{
    size_t lo = 0, hi = n;
    while (lo < hi) {
        size_t mid = lo + (hi - lo) / 2;
        if (r[mid].last < cp)
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo < n && r[lo].first <= cp;
}

/* Whether a mark, a sign, a format character or a character with a
 * decomposition is younger than Unicode 8. (The ranges also have other and
 * older characters.) */
static bool is_late(uint32_t cp)
{
    static const struct range late[] = {
        {0x61D, 0x61D},     {0x7FD, 0x7FD},     {0x890, 0x8E2},
        {0x9FD, 0x9FE},     {0xA76, 0xA76},     {0xAFA, 0xAFF},
        {0xB55, 0xB55},     {0xC04, 0xC3C},     {0xC77, 0xC77},
        {0xC84, 0xC84},     {0xD00, 0xD00},     {0xD3B, 0xD3C},
        {0xD81, 0xD81},     {0xEBA, 0xEBA},     {0xECE, 0xECE},
        {0x1715, 0x1715},   {0x180F, 0x1886},   {0x1ABF, 0x1AEB},
        {0x1B4E, 0x1B4F},   {0x1B7D, 0x1B7F},   {0x1DF6, 0x1DFB},
        {0x2E43, 0x2E5D},   {0xA82C, 0xA82C},   {0xA8C5, 0xA8C5},
        {0xA8FF, 0xA8FF},   {0xA9BD, 0xA9BD},   {0x105C9, 0x105E4},
        {0x10D24, 0x10F89}, {0x11070, 0x11074}, {0x110C2, 0x110CD},
        {0x111C9, 0x111C9}, {0x111CF, 0x111CF}, {0x1123E, 0x11241},
        {0x1133B, 0x1133B}, {0x11383, 0x1145E}, {0x11660, 0x1166C},
        {0x116B9, 0x116B9}, {0x1182F, 0x11FFF}, {0x12FF1, 0x1612F},
        {0x16D68, 0x16F4F}, {0x16FE2, 0x16FF1}, {0x1CF00, 0x1CF46},
        {0x1E000, 0x1E6F5}, {0x1E944, 0x1E95F}};
    return in_ranges(late, sizeof late / sizeof *late, cp);
}

/* The combining class in Unicode 9. */
static unsigned combining_class(uint32_t cp)
{
    static const struct range nine[] = {{0x8D4, 0x8E1},     {0x1DFB, 0x1DFB},
                                        {0x11442, 0x11446}, {0x11C3F, 0x11C3F},
                                        {0x1E000, 0x1E02A}, {0x1E944, 0x1E94A}};
    return is_late(cp) && !in_ranges(nine, sizeof nine / sizeof *nine, cp)
               ? 0
               : unicode_combining(cp);
}

static bool is_han(uint32_t cp)
{
    static const struct range han[] = {{0x3400, 0x4DBF},   {0x4E00, 0x9FFF},
                                       {0xF900, 0xFAFF},   {0x20000, 0x2A6DF},
                                       {0x2A700, 0x2B81F}, {0x2B920, 0x2CEAF},
                                       {0x2F800, 0x2FA1F}};
    return in_ranges(han, sizeof han / sizeof *han, cp);
}

static bool is_punct(uint32_t cp, const char *category)
{
    if (cp < 0x80)
        return cp > ' ' && cp < 0x7F &&
               !((cp >= '0' && cp <= '9') || (cp >= 'A' && cp <= 'Z') ||
                 (cp >= 'a' && cp <= 'z'));
    return *category == 'P' || cp == 0x166D;
}

/* Controls, formats and private characters. */
static bool is_removed(uint32_t cp, const char *category)
{
    if (cp == '\t' || cp == '\n' || cp == '\r')
        return false;
    return (*category == 'C' && category[1] != 'n') || cp == 0xFFFD;
}

/* StripAccents has the marks of Unicode 9. */
static bool is_any_mark(uint32_t cp)
{
    static const struct range not_yet[] = {
        {0xCF3, 0xCF3},     {0x1CF7, 0x1CF7},   {0x11145, 0x11146},
        {0x111CE, 0x111CE}, {0x1182C, 0x1182E}, {0x16F7F, 0x16F87}};
    static const struct range nine[] = {
        {0x8D4, 0x8E1},     {0x1885, 0x1886},   {0x1CF2, 0x1CF3},
        {0x1DFB, 0x1DFB},   {0xA8C5, 0xA8C5},   {0xA9BD, 0xA9BD},
        {0x1123E, 0x1123E}, {0x11435, 0x11446}, {0x11C2F, 0x11C36},
        {0x11C38, 0x11C3F}, {0x11C92, 0x11CA7}, {0x11CA9, 0x11CB6},
        {0x1E000, 0x1E02A}, {0x1E944, 0x1E94A}};
    if (in_ranges(nine, sizeof nine / sizeof *nine, cp))
        return *unicode_category(cp) == 'M' || cp == 0x1CF2 || cp == 0x1CF3;
    return !is_late(cp) && *unicode_category(cp) == 'M' &&
           !in_ranges(not_yet, sizeof not_yet / sizeof *not_yet, cp);
}

/* \w: Alphabetic, marks, decimal digits, connectors and joiners. Letters in
 * circles and squares are symbols that are Alphabetic. Letters that utf8proc
 * does not know yet are none. */
static bool is_word(uint32_t cp)
{
    static const struct range other[] = {{0x200C, 0x200D},
                                         {0x24B6, 0x24E9},
                                         {0x1F130, 0x1F149},
                                         {0x1F150, 0x1F169},
                                         {0x1F170, 0x1F189}};
    const char *c = unicode_category(cp);
    return *c == 'L' || *c == 'M' || memcmp(c, "Nd", 2) == 0 ||
           memcmp(c, "Nl", 2) == 0 || memcmp(c, "Pc", 2) == 0 ||
           in_ranges(other, sizeof other / sizeof *other, cp);
}

static bool changes(uint32_t cp)
{
    uint32_t d[UNICODE_MAX_DECOMP];
    char self[4], lower[UNICODE_MAX_CASE];
    size_t n = utf8_encode(cp, self);
    if (unicode_lower_alone(cp, lower) != n || memcmp(self, lower, n) != 0)
        return true;
    return combining_class(cp) != 0 ||
           (!is_late(cp) && (unicode_decompose(cp, d) != 1 || *d != cp));
}

static unsigned class_of(uint32_t cp)
{
    const char *category = is_late(cp) ? "Cn" : unicode_category(cp);
    unsigned c = C_KNOWN;
    c |= unicode_class(cp) == UC_SPACE ? C_SPACE : 0;
    c |= is_punct(cp, category) || cp == 0x111C9 ? C_PUNCT : 0;
    c |= is_removed(cp, category) ? C_REMOVED : 0;
    c |= memcmp(category, "Mn", 2) == 0 || cp == 0x1734 ? C_MARK : 0;
    c |= is_han(cp) ? C_HAN : 0;
    c |= is_any_mark(cp) ? C_ANY_MARK : 0;
    c |= is_word(cp) ? C_WORD : 0;
    c |= c & (C_MARK | C_ANY_MARK) || changes(cp) ? C_CHANGES : 0;
    return c;
}

/* Entries are filled in blocks when they are first needed. Threads may fill a
 * block at the same time: they store equal values, each entry atomically. */
static uint16_t classes[0x110000];
enum { BLOCK = 128 };

__attribute__((noinline)) static unsigned fill_classes(uint32_t cp)
{
    uint32_t first = cp - cp % BLOCK;
    for (uint32_t c = first; c < first + BLOCK; c++)
        __atomic_store_n(&classes[c], (uint16_t)class_of(c), __ATOMIC_RELAXED);
    return __atomic_load_n(&classes[cp], __ATOMIC_RELAXED);
}

static inline unsigned bert_class(uint32_t cp)
{
    unsigned c = __atomic_load_n(&classes[cp], __ATOMIC_RELAXED);
    return c ? c : fill_classes(cp);
}

/* ---- normalising ---- */

/* A text while a step changes it. */
struct bert_step {
    unsigned step;
    struct buf *out;
    struct qwick_err *e;
    /* With BERT_NFD: marks with a combining class, which are not in order
     * yet. */
    uint32_t *marks; /* [n_marks] */
    size_t n_marks, cap_marks;
};

static int put_char(struct bert_step *s, uint32_t cp)
{
    char text[UNICODE_MAX_CASE];
    size_t n = s->step & BERT_LOWER ? unicode_lower_alone(cp, text)
                                    : utf8_encode(cp, text);
    return buf_append(s->out, text, n) ? err_oom(s->e, n) : 0;
}

static bool is_dropped(const struct bert_step *s, uint32_t cp)
{
    unsigned class = bert_class(cp);
    return (s->step & BERT_STRIP && class & C_MARK) ||
           (s->step & BERT_STRIP_ALL && class & C_ANY_MARK);
}

static int put_marks(struct bert_step *s)
{
    size_t n = s->n_marks;
    int rc = 0;
    s->n_marks = 0;
    if (n > 1) {
        if (ARRAY_RESERVE(s->marks, s->cap_marks, 2 * n, s->e))
            return -1;
        unicode_order_marks(s->marks, s->marks + n, n);
    }
    for (size_t i = 0; i < n && !rc; i++)
        rc = put_char(s, s->marks[i]);
    return rc;
}

/* Append a character of a decomposition. */
static int put_decomposed(struct bert_step *s, uint32_t cp)
{
    unsigned combining = combining_class(cp);
    if (!combining && s->n_marks && put_marks(s))
        return -1;
    if (is_dropped(s, cp))
        return 0;
    if (!combining)
        return put_char(s, cp);
    if (ARRAY_RESERVE(s->marks, s->cap_marks, s->n_marks + 1, s->e))
        return -1;
    s->marks[s->n_marks++] = cp;
    return 0;
}

/* Append a character of class C_CHANGES. */
static int put_changed(struct bert_step *s, uint32_t cp)
{
    uint32_t d[UNICODE_MAX_DECOMP] = {cp};
    size_t n = 1;
    int rc = 0;
    if (!(s->step & BERT_NFD))
        return is_dropped(s, cp) ? 0 : put_char(s, cp);
    if (!is_late(cp))
        n = unicode_decompose(cp, d);
    for (size_t i = 0; i < n && !rc; i++)
        rc = put_decomposed(s, d[i]);
    return rc;
}

/* Append the character that p[0..n) is; if n is 0, U+FFFD. */
static int put_step(struct bert_step *s, uint32_t cp, const char *p, size_t n)
{
    unsigned class = bert_class(cp);
    if (s->step & BERT_CLEAN && class & C_REMOVED)
        return 0;
    bool space = s->step & BERT_CLEAN && class & C_SPACE;
    bool han = s->step & BERT_HAN && class & C_HAN;
    if (class & C_CHANGES && !han)
        return put_changed(s, cp);
    if ((s->n_marks && put_marks(s)) ||
        ((space || han) && buf_putc(s->out, ' ')))
        return -1;
    if (space)
        return 0;
    if (han)
        return put_changed(s, cp) || put_marks(s) || buf_putc(s->out, ' ') ? -1
                                                                           : 0;
    return n ? buf_append(s->out, p, n) : buf_puts(s->out, "\xEF\xBF\xBD");
}

/* The result of a step for ASCII. */
#define DROPPED 0x80
static void fill_ascii(unsigned step, uint8_t ascii[128])
{
    for (unsigned c = 0; c < 128; c++) {
        unsigned class = bert_class(c);
        bool lower = step & BERT_LOWER && class & C_CHANGES;
        ascii[c] = (uint8_t)(lower ? c + ('a' - 'A') : c);
        if (step & BERT_CLEAN && class & (C_REMOVED | C_SPACE))
            ascii[c] = class & C_REMOVED ? DROPPED : ' ';
    }
}

/* Append the ASCII text p[0..n). */
static int put_ascii(struct bert_step *s, const uint8_t ascii[128],
                     const char *p, size_t n)
{
    while (n > 0 && ascii[(unsigned char)*p] == DROPPED) {
        p++;
        n--;
    }
    if ((n > 0 && s->n_marks && put_marks(s)) || buf_reserve(s->out, n))
        return -1;
    char *out = s->out->data + s->out->len;
    for (size_t i = 0; i < n; i++) {
        uint8_t c = ascii[(unsigned char)p[i]];
        *out = (char)c;
        out += c != DROPPED;
    }
    s->out->len = (size_t)(out - s->out->data);
    return 0;
}

int bert_normalise(unsigned step, const char *p, size_t n, struct buf *out,
                   struct qwick_err *e)
{
    struct bert_step s = {.step = step, .out = out, .e = e};
    uint8_t ascii[128];
    int rc = 0;
    if (step & BERT_NFC)
        return unicode_nfc(out, p, n, e);
    fill_ascii(step, ascii);
    for (size_t i = 0, len; i < n && !rc; i += len) {
        uint32_t cp = 0xFFFD;
        len = utf8_ascii(p + i, n - i);
        if (len) {
            rc = put_ascii(&s, ascii, p + i, len);
            continue;
        }
        len = utf8_decode(p + i, n - i, &cp, NULL);
        rc = put_step(&s, cp, p + i, len);
        len = len ? len : 1;
    }
    rc = rc || put_marks(&s);
    free(s.marks);
    return rc ? err_oom(e, n) : 0;
}

/* ---- splitting ---- */

size_t bert_next(enum bert_split split, const char *p, size_t n, bool *space)
{
    static const unsigned by_split[] = {C_SPACE | C_PUNCT, C_SPACE,
                                        C_SPACE | C_WORD};
    unsigned first = 0;
    size_t i = 0, len;
    for (; i < n; i += len) {
        uint32_t cp = (unsigned char)p[i];
        len = 1;
        if (cp >= 0x80) {
            len = utf8_decode(p + i, n - i, &cp, NULL);
            cp = len ? cp : 0xFFFD;
            len = len ? len : 1;
        }
        unsigned class = bert_class(cp) & by_split[split];
        if (i > 0 && (class != first || class & C_PUNCT))
            break;
        first = class;
    }
    *space = first & C_SPACE;
    return i;
}
