#include "text/unicode.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>

#include "base/buf.h"
#include "base/utf8.h"

/* ---- the table ---- */

#define N_CODE_POINTS 0x110000u
#define BLOCK         128u

/* An entry: the class, whether the character is inert (see below), a bit that
 * says that the entry is filled, and the finer classes. Threads may fill a block
 * at the same time: they store equal values, each byte atomically. */
#define E_CLASS  3u
#define E_INERT  4u
#define E_KNOWN  8u
#define E_TRAITS ((unsigned)(UC_MARK | UC_UPPER | UC_LOWER | UC_SIGN))
static uint8_t entries[N_CODE_POINTS];

#define NFC_OPTIONS ((utf8proc_option_t)(UTF8PROC_STABLE | UTF8PROC_COMPOSE))
/* More than enough: the longest canonical decomposition of a character has
 * 4. */
#define MAX_DECOMP 32

static enum uclass class_of(uint32_t cp)
{
    /* All of White_Space (UCD, PropList.txt), a closed set. */
    if ((cp >= 0x09 && cp <= 0x0D) || cp == 0x20 || cp == 0x85 || cp == 0xA0 ||
        cp == 0x1680 || (cp >= 0x2000 && cp <= 0x200A) || cp == 0x2028 ||
        cp == 0x2029 || cp == 0x202F || cp == 0x205F || cp == 0x3000)
        return UC_SPACE;
    switch (utf8proc_category((utf8proc_int32_t)cp)) {
    case UTF8PROC_CATEGORY_LU:
    case UTF8PROC_CATEGORY_LL:
    case UTF8PROC_CATEGORY_LT:
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_LO:
        return UC_LETTER;
    case UTF8PROC_CATEGORY_ND:
    case UTF8PROC_CATEGORY_NL:
    case UTF8PROC_CATEGORY_NO:
        return UC_NUMBER;
    default:
        return UC_OTHER;
    }
}

static unsigned traits_of(uint32_t cp)
{
    utf8proc_category_t c = utf8proc_category((utf8proc_int32_t)cp);
    switch (c) {
    case UTF8PROC_CATEGORY_MN:
    case UTF8PROC_CATEGORY_MC:
    case UTF8PROC_CATEGORY_ME:
        return UC_MARK;
    case UTF8PROC_CATEGORY_LU:
    case UTF8PROC_CATEGORY_LT:
        return UC_UPPER;
    case UTF8PROC_CATEGORY_LL:
        return UC_LOWER;
    default: /* utf8proc numbers the categories of \p{P} and \p{S} in a row */
        return c >= UTF8PROC_CATEGORY_PC && c <= UTF8PROC_CATEGORY_SO ? UC_SIGN
                                                                      : 0;
    }
}

/* Whether cp may compose with, or change places with, the character before it.
 * It is a mark, a Hangul vowel or trailing consonant, or a Kirat Rai vowel
 * (Unicode 16). Marks that never compose are included, which only costs a
 * little time. U+11A7, next to the trailing consonants, must not be included:
 * utf8proc treats it as one and would drop it. */
static bool may_join(uint32_t cp)
{
    if ((cp >= 0x1161 && cp <= 0x1175) || (cp >= 0x11A8 && cp <= 0x11C2) ||
        (cp >= 0x16D63 && cp <= 0x16D6A))
        return true;
    const utf8proc_property_t *p = utf8proc_get_property((utf8proc_int32_t)cp);
    return p->combining_class != 0 || traits_of(cp) == UC_MARK;
}

/* Inert: NFC does not change the character, and normalises the text before it
 * as if the text ended there. A text of inert characters is in NFC. */
static bool is_inert(uint32_t cp)
{
    if (cp < 0xC0)
        return true;
    if (may_join(cp))
        return false;
    utf8proc_int32_t d[MAX_DECOMP];
    utf8proc_ssize_t n = utf8proc_decompose_char((utf8proc_int32_t)cp, d,
                                                 MAX_DECOMP, NFC_OPTIONS, NULL);
    if (n == 1 && d[0] == (utf8proc_int32_t)cp)
        return true;
    if (n < 1 || n > MAX_DECOMP || may_join((uint32_t)d[0]))
        return false;
    return utf8proc_normalize_utf32(d, n, NFC_OPTIONS) == 1 &&
           d[0] == (utf8proc_int32_t)cp;
}

__attribute__((noinline)) static unsigned fill_block(uint32_t cp)
{
    uint32_t first = cp - cp % BLOCK;
    for (uint32_t c = first; c < first + BLOCK; c++) {
        unsigned v = E_KNOWN | (unsigned)class_of(c) | traits_of(c);
        if (is_inert(c))
            v |= E_INERT;
        __atomic_store_n(&entries[c], (uint8_t)v, __ATOMIC_RELAXED);
    }
    /* Another thread may be storing the same value. */
    return __atomic_load_n(&entries[cp], __ATOMIC_RELAXED);
}

static inline unsigned entry(uint32_t cp)
{
    unsigned v = __atomic_load_n(&entries[cp], __ATOMIC_RELAXED);
    return v ? v : fill_block(cp);
}

enum uclass unicode_class(uint32_t cp)
{
    if (cp >= N_CODE_POINTS)
        return UC_OTHER;
    return (enum uclass)(entry(cp) & E_CLASS);
}

unsigned unicode_traits(uint32_t cp)
{
    return cp < N_CODE_POINTS ? entry(cp) & E_TRAITS : 0;
}

/* ---- general categories ---- */

const char *unicode_category(uint32_t cp)
{
    return utf8proc_category_string((utf8proc_int32_t)cp);
}

/* Unicode 16 has about 3,400 runs. */
static struct unicode_run runs[8192];
static size_t n_runs;

static void find_runs(void)
{
    const char *last = NULL;
    for (uint32_t cp = 0; cp < N_CODE_POINTS; cp++) {
        const char *c = utf8proc_category_string((utf8proc_int32_t)cp);
        if (c == last || (last && c[0] == last[0] && c[1] == last[1]))
            continue;
        if (n_runs == sizeof runs / sizeof *runs)
            break;
        runs[n_runs++] = (struct unicode_run){cp, {c[0], c[1]}};
        last = c;
    }
}

const struct unicode_run *unicode_runs(size_t *n)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, find_runs);
    *n = n_runs;
    return runs;
}

/* ---- NFC ---- */

/* The length of the character at p, and whether it is inert. A byte that is not
 * UTF-8 has length 1 and is inert. */
static size_t unicode_step(const char *p, size_t n, bool *inert)
{
    uint32_t cp;
    *inert = true;
    if ((unsigned char)*p < 0x80)
        return 1;
    size_t len = utf8_decode(p, n, &cp, NULL);
    if (len == 0)
        return 1;
    *inert = (entry(cp) & E_INERT) != 0;
    return len;
}

bool unicode_is_nfc(const char *p, size_t n)
{
    size_t i = 0;
    bool inert;
    while (i < n) {
        i += utf8_ascii(p + i, n - i);
        /* After at most 8 characters, look for ASCII again: text in mixed
         * scripts has runs of it that are worth skipping. */
        for (int k = 0; k < 8 && i < n; k++) {
            i += unicode_step(p + i, n - i, &inert);
            if (!inert)
                return false;
        }
    }
    return true;
}

unsigned unicode_combining(uint32_t cp)
{
    return (unsigned)utf8proc_get_property((utf8proc_int32_t)cp)
        ->combining_class;
}

/* It is a counting sort, so that a long run of marks takes linear time. */
void unicode_order_marks(uint32_t *d, uint32_t *tmp, size_t n)
{
    for (size_t i = 0; i < n;) {
        if (unicode_combining(d[i]) == 0) {
            i++;
            continue;
        }
        size_t end = i + 1;
        bool sorted = true;
        unsigned last = unicode_combining(d[i]), c;
        while (end < n && (c = unicode_combining(d[end])) != 0) {
            sorted = sorted && last <= c;
            last = c;
            end++;
        }
        if (!sorted) {
            size_t at[257] = {0};
            for (size_t k = i; k < end; k++)
                at[unicode_combining(d[k]) + 1]++;
            for (size_t k = 1; k < 257; k++)
                at[k] += at[k - 1];
            for (size_t k = i; k < end; k++)
                tmp[at[unicode_combining(d[k])]++] = d[k];
            memcpy(d + i, tmp, (end - i) * sizeof *d);
        }
        i = end;
    }
}

size_t unicode_decompose(uint32_t cp, uint32_t out[UNICODE_MAX_DECOMP])
{
    utf8proc_ssize_t n = utf8proc_decompose_char(
        (utf8proc_int32_t)cp, (utf8proc_int32_t *)out, UNICODE_MAX_DECOMP,
        (utf8proc_option_t)(UTF8PROC_STABLE | UTF8PROC_DECOMPOSE), NULL);
    if (n < 1 || n > UNICODE_MAX_DECOMP) {
        out[0] = cp;
        n = 1;
    }
    return (size_t)n;
}

/* Append the NFC form of p[0..n), valid UTF-8 and usually short. */
static int nfc_run(struct buf *out, const char *p, size_t n,
                   struct qwick_err *e)
{
    utf8proc_int32_t small[2 * 64 * 4], *d = small;
    size_t cap = 64 * 4;
    /* Here every character except the first has at least 2 bytes. */
    if (n / 2 + 1 > 64) {
        size_t bytes;
        cap = (n / 2 + 1) * 4;
        if (size_mul(cap, 2 * sizeof *d, &bytes) < 0 || !(d = malloc(bytes)))
            return err_oom(e, n);
    }
    size_t len = 0;
    for (size_t i = 0; i < n;) {
        uint32_t cp;
        i += utf8_decode(p + i, n - i, &cp, NULL);
        utf8proc_ssize_t k = utf8proc_decompose_char(
            (utf8proc_int32_t)cp, d + len, (utf8proc_ssize_t)(cap - len),
            NFC_OPTIONS, NULL);
        if (k < 0 || (size_t)k > cap - len) {
            if (d != small)
                free(d);
            return err_set(e, QWICK_ERR_RUNTIME, "utf8proc: U+%04X: %s",
                           (unsigned)cp,
                           k < 0 ? utf8proc_errmsg(k) : "long decomposition");
        }
        len += (size_t)k;
    }
    unicode_order_marks((uint32_t *)d, (uint32_t *)d + cap, len);
    utf8proc_ssize_t m =
        utf8proc_normalize_utf32(d, (utf8proc_ssize_t)len, NFC_OPTIONS);
    int rc = m < 0 ? err_set(e, QWICK_ERR_RUNTIME, "utf8proc: %s",
                             utf8proc_errmsg(m))
                   : 0;
    for (utf8proc_ssize_t i = 0; rc == 0 && i < m; i++) {
        char u[4];
        size_t k = utf8_encode((uint32_t)d[i], u);
        if (buf_append(out, u, k) < 0)
            rc = err_oom(e, k);
    }
    if (d != small)
        free(d);
    return rc;
}

int unicode_nfc(struct buf *out, const char *p, size_t n, struct qwick_err *e)
{
    size_t len0 = out->len;
    size_t copied = 0; /* p[0..copied) is in out */
    size_t before = 0; /* start of the inert character before i */
    bool has_before = false, inert;
    for (size_t i = 0; i < n;) {
        size_t len = unicode_step(p + i, n - i, &inert);
        if (inert) {
            /* A byte that is not UTF-8 ends the run: nothing joins it. */
            has_before = (unsigned char)p[i] < 0x80 || len > 1;
            before = i;
            i += len;
            continue;
        }
        size_t begin = has_before ? before : i, end = i + len;
        while (end < n) {
            len = unicode_step(p + end, n - end, &inert);
            if (inert)
                break;
            end += len;
        }
        if (buf_append(out, p + copied, begin - copied) < 0) {
            err_oom(e, begin - copied);
            goto fail;
        }
        if (nfc_run(out, p + begin, end - begin, e) < 0)
            goto fail;
        copied = i = end;
        has_before = false;
    }
    if (buf_append(out, p + copied, n - copied) == 0)
        return 0;
    err_oom(e, n - copied);
fail:
    out->len = len0;
    if (out->data)
        out->data[len0] = '\0';
    return -1;
}

/* Append the full compatibility decomposition of a character. */
static int decompose(struct buf *out, uint32_t cp, struct qwick_err *e)
{
    utf8proc_int32_t d[MAX_DECOMP];
    utf8proc_ssize_t n = utf8proc_decompose_char(
        (utf8proc_int32_t)cp, d, MAX_DECOMP,
        (utf8proc_option_t)(NFC_OPTIONS | UTF8PROC_COMPAT), NULL);
    if (n < 0 || n > MAX_DECOMP)
        return err_set(e, QWICK_ERR_RUNTIME, "utf8proc: U+%04X: %s",
                       (unsigned)cp,
                       n < 0 ? utf8proc_errmsg(n) : "long decomposition");
    for (utf8proc_ssize_t i = 0; i < n; i++) {
        char u[4];
        if (buf_append(out, u, utf8_encode((uint32_t)d[i], u)))
            return err_oom(e, 4);
    }
    return 0;
}

int unicode_nfkc(struct buf *out, const char *p, size_t n, struct qwick_err *e)
{
    struct buf all = {0};
    int rc = 0;
    for (size_t i = 0, len; i < n && !rc; i += len) {
        uint32_t cp;
        len = utf8_ascii(p + i, n - i);
        size_t k = len ? 0 : utf8_decode(p + i, n - i, &cp, NULL);
        len = k ? k : len ? len : 1;
        rc = k                               ? decompose(&all, cp, e)
             : buf_append(&all, p + i, len) ? err_oom(e, len)
                                             : 0;
    }
    rc = rc || unicode_nfc(out, buf_text(&all), all.len, e) ? -1 : 0;
    buf_free(&all);
    return rc;
}

size_t unicode_nfc_part(const char *p, size_t n, size_t least)
{
    size_t end = n < least ? n : least;
    bool inert = false;
    while (end < n && (unsigned char)p[end] >> 6 == 2)
        end++; /* not within a character */
    while (end < n) {
        size_t len = unicode_step(p + end, n - end, &inert);
        if (inert)
            break;
        end += len;
    }
    return end;
}

/* ---- case ---- */

/* Characters whose upper or title case is more than one character
 * (SpecialCasing.txt of Unicode, the mappings without a condition). */
static const struct {
    uint16_t cp, upper[3], title[3];
} special_case[] = {
    {0xDF, {0x53, 0x53}, {0x53, 0x73}},
    {0x149, {0x2BC, 0x4E}, {0x2BC, 0x4E}},
    {0x1F0, {0x4A, 0x30C}, {0x4A, 0x30C}},
    {0x390, {0x399, 0x308, 0x301}, {0x399, 0x308, 0x301}},
    {0x3B0, {0x3A5, 0x308, 0x301}, {0x3A5, 0x308, 0x301}},
    {0x587, {0x535, 0x552}, {0x535, 0x582}},
    {0x1E96, {0x48, 0x331}, {0x48, 0x331}},
    {0x1E97, {0x54, 0x308}, {0x54, 0x308}},
    {0x1E98, {0x57, 0x30A}, {0x57, 0x30A}},
    {0x1E99, {0x59, 0x30A}, {0x59, 0x30A}},
    {0x1E9A, {0x41, 0x2BE}, {0x41, 0x2BE}},
    {0x1F50, {0x3A5, 0x313}, {0x3A5, 0x313}},
    {0x1F52, {0x3A5, 0x313, 0x300}, {0x3A5, 0x313, 0x300}},
    {0x1F54, {0x3A5, 0x313, 0x301}, {0x3A5, 0x313, 0x301}},
    {0x1F56, {0x3A5, 0x313, 0x342}, {0x3A5, 0x313, 0x342}},
    {0x1F80, {0x1F08, 0x399}, {0x1F88}},
    {0x1F81, {0x1F09, 0x399}, {0x1F89}},
    {0x1F82, {0x1F0A, 0x399}, {0x1F8A}},
    {0x1F83, {0x1F0B, 0x399}, {0x1F8B}},
    {0x1F84, {0x1F0C, 0x399}, {0x1F8C}},
    {0x1F85, {0x1F0D, 0x399}, {0x1F8D}},
    {0x1F86, {0x1F0E, 0x399}, {0x1F8E}},
    {0x1F87, {0x1F0F, 0x399}, {0x1F8F}},
    {0x1F88, {0x1F08, 0x399}, {0x1F88}},
    {0x1F89, {0x1F09, 0x399}, {0x1F89}},
    {0x1F8A, {0x1F0A, 0x399}, {0x1F8A}},
    {0x1F8B, {0x1F0B, 0x399}, {0x1F8B}},
    {0x1F8C, {0x1F0C, 0x399}, {0x1F8C}},
    {0x1F8D, {0x1F0D, 0x399}, {0x1F8D}},
    {0x1F8E, {0x1F0E, 0x399}, {0x1F8E}},
    {0x1F8F, {0x1F0F, 0x399}, {0x1F8F}},
    {0x1F90, {0x1F28, 0x399}, {0x1F98}},
    {0x1F91, {0x1F29, 0x399}, {0x1F99}},
    {0x1F92, {0x1F2A, 0x399}, {0x1F9A}},
    {0x1F93, {0x1F2B, 0x399}, {0x1F9B}},
    {0x1F94, {0x1F2C, 0x399}, {0x1F9C}},
    {0x1F95, {0x1F2D, 0x399}, {0x1F9D}},
    {0x1F96, {0x1F2E, 0x399}, {0x1F9E}},
    {0x1F97, {0x1F2F, 0x399}, {0x1F9F}},
    {0x1F98, {0x1F28, 0x399}, {0x1F98}},
    {0x1F99, {0x1F29, 0x399}, {0x1F99}},
    {0x1F9A, {0x1F2A, 0x399}, {0x1F9A}},
    {0x1F9B, {0x1F2B, 0x399}, {0x1F9B}},
    {0x1F9C, {0x1F2C, 0x399}, {0x1F9C}},
    {0x1F9D, {0x1F2D, 0x399}, {0x1F9D}},
    {0x1F9E, {0x1F2E, 0x399}, {0x1F9E}},
    {0x1F9F, {0x1F2F, 0x399}, {0x1F9F}},
    {0x1FA0, {0x1F68, 0x399}, {0x1FA8}},
    {0x1FA1, {0x1F69, 0x399}, {0x1FA9}},
    {0x1FA2, {0x1F6A, 0x399}, {0x1FAA}},
    {0x1FA3, {0x1F6B, 0x399}, {0x1FAB}},
    {0x1FA4, {0x1F6C, 0x399}, {0x1FAC}},
    {0x1FA5, {0x1F6D, 0x399}, {0x1FAD}},
    {0x1FA6, {0x1F6E, 0x399}, {0x1FAE}},
    {0x1FA7, {0x1F6F, 0x399}, {0x1FAF}},
    {0x1FA8, {0x1F68, 0x399}, {0x1FA8}},
    {0x1FA9, {0x1F69, 0x399}, {0x1FA9}},
    {0x1FAA, {0x1F6A, 0x399}, {0x1FAA}},
    {0x1FAB, {0x1F6B, 0x399}, {0x1FAB}},
    {0x1FAC, {0x1F6C, 0x399}, {0x1FAC}},
    {0x1FAD, {0x1F6D, 0x399}, {0x1FAD}},
    {0x1FAE, {0x1F6E, 0x399}, {0x1FAE}},
    {0x1FAF, {0x1F6F, 0x399}, {0x1FAF}},
    {0x1FB2, {0x1FBA, 0x399}, {0x1FBA, 0x345}},
    {0x1FB3, {0x391, 0x399}, {0x1FBC}},
    {0x1FB4, {0x386, 0x399}, {0x386, 0x345}},
    {0x1FB6, {0x391, 0x342}, {0x391, 0x342}},
    {0x1FB7, {0x391, 0x342, 0x399}, {0x391, 0x342, 0x345}},
    {0x1FBC, {0x391, 0x399}, {0x1FBC}},
    {0x1FC2, {0x1FCA, 0x399}, {0x1FCA, 0x345}},
    {0x1FC3, {0x397, 0x399}, {0x1FCC}},
    {0x1FC4, {0x389, 0x399}, {0x389, 0x345}},
    {0x1FC6, {0x397, 0x342}, {0x397, 0x342}},
    {0x1FC7, {0x397, 0x342, 0x399}, {0x397, 0x342, 0x345}},
    {0x1FCC, {0x397, 0x399}, {0x1FCC}},
    {0x1FD2, {0x399, 0x308, 0x300}, {0x399, 0x308, 0x300}},
    {0x1FD3, {0x399, 0x308, 0x301}, {0x399, 0x308, 0x301}},
    {0x1FD6, {0x399, 0x342}, {0x399, 0x342}},
    {0x1FD7, {0x399, 0x308, 0x342}, {0x399, 0x308, 0x342}},
    {0x1FE2, {0x3A5, 0x308, 0x300}, {0x3A5, 0x308, 0x300}},
    {0x1FE3, {0x3A5, 0x308, 0x301}, {0x3A5, 0x308, 0x301}},
    {0x1FE4, {0x3A1, 0x313}, {0x3A1, 0x313}},
    {0x1FE6, {0x3A5, 0x342}, {0x3A5, 0x342}},
    {0x1FE7, {0x3A5, 0x308, 0x342}, {0x3A5, 0x308, 0x342}},
    {0x1FF2, {0x1FFA, 0x399}, {0x1FFA, 0x345}},
    {0x1FF3, {0x3A9, 0x399}, {0x1FFC}},
    {0x1FF4, {0x38F, 0x399}, {0x38F, 0x345}},
    {0x1FF6, {0x3A9, 0x342}, {0x3A9, 0x342}},
    {0x1FF7, {0x3A9, 0x342, 0x399}, {0x3A9, 0x342, 0x345}},
    {0x1FFC, {0x3A9, 0x399}, {0x1FFC}},
    {0xFB00, {0x46, 0x46}, {0x46, 0x66}},
    {0xFB01, {0x46, 0x49}, {0x46, 0x69}},
    {0xFB02, {0x46, 0x4C}, {0x46, 0x6C}},
    {0xFB03, {0x46, 0x46, 0x49}, {0x46, 0x66, 0x69}},
    {0xFB04, {0x46, 0x46, 0x4C}, {0x46, 0x66, 0x6C}},
    {0xFB05, {0x53, 0x54}, {0x53, 0x74}},
    {0xFB06, {0x53, 0x54}, {0x53, 0x74}},
    {0xFB13, {0x544, 0x546}, {0x544, 0x576}},
    {0xFB14, {0x544, 0x535}, {0x544, 0x565}},
    {0xFB15, {0x544, 0x53B}, {0x544, 0x56B}},
    {0xFB16, {0x54E, 0x546}, {0x54E, 0x576}},
    {0xFB17, {0x544, 0x53D}, {0x544, 0x56D}},
};

/* The row of special_case, which is sorted by cp, or -1. */
static int find_special(uint32_t cp)
{
    int lo = 0, hi = (int)(sizeof special_case / sizeof *special_case);
    if (cp < 0xDF)
        return -1;
    while (lo < hi) {
        int mid = (lo + hi) / 2;
        if (special_case[mid].cp < cp)
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo < (int)(sizeof special_case / sizeof *special_case) &&
                   special_case[lo].cp == cp
               ? lo
               : -1;
}

static size_t encode_special(const uint16_t to[3], char *out)
{
    size_t n = 0;
    for (int i = 0; i < 3 && to[i]; i++)
        n += utf8_encode(to[i], out + n);
    return n;
}

size_t unicode_upper(uint32_t cp, char out[UNICODE_MAX_CASE])
{
    int row = find_special(cp);
    if (row >= 0)
        return encode_special(special_case[row].upper, out);
    return utf8_encode((uint32_t)utf8proc_toupper((utf8proc_int32_t)cp), out);
}

int unicode_fold(struct buf *out, const char *p, size_t n)
{
    char upper[UNICODE_MAX_CASE];
    uint32_t cp;
    size_t bad = 0;
    while (n) {
        size_t ascii = utf8_ascii(p, n);
        if (buf_reserve(out, ascii))
            return -1;
        for (size_t i = 0; i < ascii; i++)
            out->data[out->len + i] =
                (char)(p[i] - (p[i] >= 'a' && p[i] <= 'z' ? 'a' - 'A' : 0));
        out->len += ascii;
        p += ascii;
        n -= ascii;
        if (!n)
            break;
        size_t k = utf8_decode(p, n, &cp, &bad);
        if (k ? buf_append(out, upper, unicode_upper(cp, upper))
              : buf_append(out, p, bad))
            return -1;
        p += k ? k : bad;
        n -= k ? k : bad;
    }
    return 0;
}

size_t unicode_title(uint32_t cp, char out[UNICODE_MAX_CASE])
{
    int row = find_special(cp);
    if (row >= 0)
        return encode_special(special_case[row].title, out);
    return utf8_encode((uint32_t)utf8proc_totitle((utf8proc_int32_t)cp), out);
}

bool unicode_is_upper(uint32_t cp)
{
    return utf8proc_isupper((utf8proc_int32_t)cp);
}

bool unicode_is_lower(uint32_t cp)
{
    return utf8proc_islower((utf8proc_int32_t)cp);
}

static bool is_case_ignorable(uint32_t cp)
{
    switch (utf8proc_category((utf8proc_int32_t)cp)) {
    case UTF8PROC_CATEGORY_MN:
    case UTF8PROC_CATEGORY_ME:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_SK:
        return true;
    default:
        return cp == '\'' || cp == '.' || cp == ':' || cp == 0xB7 ||
               cp == 0x2018 || cp == 0x2019;
    }
}

static bool is_cased(uint32_t cp)
{
    return unicode_is_upper(cp) || unicode_is_lower(cp) ||
           utf8proc_category((utf8proc_int32_t)cp) == UTF8PROC_CATEGORY_LT;
}

/* Whether a capital sigma at [i, i + 2) ends a word: ignoring marks, a cased
 * letter comes before it and none after it. */
static bool is_final_sigma(const char *p, size_t n, size_t i)
{
    uint32_t cp = 0;
    bool before = false;
    for (size_t b = i; b > 0;) {
        do
            b--;
        while (b > 0 && ((unsigned char)p[b] & 0xC0) == 0x80);
        if (!utf8_decode(p + b, i - b, &cp, NULL))
            return false;
        if (!is_case_ignorable(cp)) {
            before = is_cased(cp);
            break;
        }
    }
    for (size_t k = i + 2, len; before && k < n; k += len) {
        len = utf8_decode(p + k, n - k, &cp, NULL);
        if (!len)
            break;
        if (!is_case_ignorable(cp))
            return !is_cased(cp);
    }
    return before;
}

/* The lower case of a character that has a simple one. */
static uint32_t simple_lower(uint32_t cp)
{
    /* Mappings of Unicode 16 and 17, which utf8proc may be too old for. */
    static const struct {
        uint32_t first, last, to; /* to: of the first */
    } late[] = {{0x1C89, 0x1C89, 0x1C8A},    {0xA7CB, 0xA7CB, 0x264},
                {0xA7CC, 0xA7CC, 0xA7CD},    {0xA7CE, 0xA7CE, 0xA7CF},
                {0xA7D2, 0xA7D2, 0xA7D3},    {0xA7D4, 0xA7D4, 0xA7D5},
                {0xA7DA, 0xA7DA, 0xA7DB},    {0xA7DC, 0xA7DC, 0x19B},
                {0x10D50, 0x10D65, 0x10D70}, {0x16EA0, 0x16EB8, 0x16EBB}};
    uint32_t lower = (uint32_t)utf8proc_tolower((utf8proc_int32_t)cp);
    if (lower != cp || cp < late[0].first)
        return lower;
    for (size_t i = 0; i < sizeof late / sizeof *late; i++)
        if (cp >= late[i].first && cp <= late[i].last)
            return late[i].to + (cp - late[i].first);
    return cp;
}

size_t unicode_lower_alone(uint32_t cp, char out[UNICODE_MAX_CASE])
{
    if (cp == 0x130) { /* I with a dot: i and a combining dot */
        size_t len = utf8_encode('i', out);
        return len + utf8_encode(0x307, out + len);
    }
    return utf8_encode(simple_lower(cp), out);
}

size_t unicode_lower(const char *p, size_t n, size_t i,
                     char out[UNICODE_MAX_CASE])
{
    uint32_t cp = 0xFFFD;
    utf8_decode(p + i, n - i, &cp, NULL);
    if (cp == 0x3A3 && is_final_sigma(p, n, i))
        return utf8_encode(0x3C2, out);
    return unicode_lower_alone(cp, out);
}

bool unicode_printable(uint32_t cp)
{
    switch (utf8proc_category((utf8proc_int32_t)cp)) {
    case UTF8PROC_CATEGORY_CC:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_CS:
    case UTF8PROC_CATEGORY_CO:
    case UTF8PROC_CATEGORY_CN:
    case UTF8PROC_CATEGORY_ZL:
    case UTF8PROC_CATEGORY_ZP:
        return false;
    case UTF8PROC_CATEGORY_ZS:
        return cp == ' ';
    default:
        return true;
    }
}

/* ---- grapheme clusters ---- */

size_t unicode_grapheme(const char *p, size_t n)
{
    uint32_t c, next;
    utf8proc_int32_t state = 0;
    size_t len = utf8_decode(p, n, &c, NULL), k;
    if (n > 1 && (unsigned char)p[0] < 0x80 && (unsigned char)p[1] < 0x80)
        return p[0] == '\r' && p[1] == '\n' ? 2 : 1;
    while (len > 0 && len < n &&
           (k = utf8_decode(p + len, n - len, &next, NULL)) > 0 &&
           !utf8proc_grapheme_break_stateful((utf8proc_int32_t)c,
                                             (utf8proc_int32_t)next, &state)) {
        len += k;
        c = next;
    }
    return len ? len : 1;
}
