/* Reading tokenizer.json.
 *
 * The vocabulary and the merges are nearly all of the file. They are read here,
 * directly from the text into arenas; the rest becomes a tree (file/json.h).
 * Writers put the same white space between all entries, and use only the
 * escapes \" and \\. Fast paths read that; slower code reads all other JSON.
 *
 * In a large file a second thread finds and reads the merges (bpe_merges.c). It
 * guesses where they are. After a wrong guess or any fault in the merges, this
 * thread reads them again alone. */
#include <string.h>

#include "file/json_scan.h"
#include "text/bpe/bpe_unigram.h"

/* ---- what repeats ---- */

/* The text between two strings: brackets, a comma and white space. A program
 * that writes a list puts the same text between all entries. Once we have read
 * this text, it is enough to compare. */
struct between {
    uint64_t word[4], mask[4];
    size_t n; /* 0: none */
};

static inline void between_learn(struct between *b, const char *from,
                                 const char *to)
{
    size_t n = (size_t)(to - from);
    *b = (struct between){.n = n <= sizeof b->word ? n : 0};
    memcpy(b->word, from, b->n);
    memset(b->mask, 0xFF, b->n);
}

static inline bool between_again(const struct between *b, const char *p,
                                 const char *end)
{
    uint64_t differ = 0;
    if (b->n == 0 || (size_t)(end - p) < sizeof b->word)
        return false;
    for (size_t i = 0; i < 4; i++)
        differ |= (bpe_load64(p + 8 * i) ^ b->word[i]) & b->mask[i];
    return differ == 0;
}

/* ---- faults -------------------------------------------------------------- */

/* Record a fault of the value that ends at p. Returns NULL. */
#define FAULT(f, p, ...)                                              \
    (err_set(&(f)->err, QWICK_ERR_MODEL, __VA_ARGS__), (f)->at = (p), \
     (const char *)NULL)

static bool is_number_char(char c)
{
    return (c >= '0' && c <= '9') || c == '+' || c == '-' || c == '.' ||
           c == 'e' || c == 'E';
}

/* The kind of the value at p, or NULL if no value begins there. *stop: the end
 * of a number. */
static const char *kind_of(const char *p, const char *end, const char **stop)
{
    const char *s = p;
    while (s < end && is_number_char(*s))
        s++;
    *stop = s > p ? s : p + 1;
    switch (p < end ? *p : '\0') {
    case '"':
        return "a string";
    case '{':
        return "an object";
    case '[':
        return "an array";
    case 't':
        return "true";
    case 'f':
        return "false";
    case 'n':
        return "null";
    default:
        return s > p ? "a number" : NULL;
    }
}

static const char *too_long(const char *name, struct bpe_fault *f,
                            const char *p, const char *s, size_t n)
{
    return FAULT(f, p, "%s: model: token \"%s\" has %zu bytes, more than %u",
                 name, ERR_SHOW(s, n), n, BPE_MAX_TOKEN);
}

/* Set *l->e to the reason why the text cannot be read. The first fault counts;
 * the JSON parser describes broken syntax. */
static int report_fault(struct bpe_load *l, const char *text, size_t n)
{
    struct qwick_err e;
    size_t at;
    const char *fault = l->fault.at;
    if (json_check(l->name, text, n, QWICK_ERR_MODEL, &at, &e) < 0 &&
        (!fault || at <= (size_t)(fault - text)))
        *l->e = e;
    else if (fault)
        *l->e = l->fault.err;
    else
        err_set(l->e, QWICK_ERR_MODEL, "%s: not JSON", l->name);
    return -1;
}

/* ---- vocabulary ---------------------------------------------------------- */

/* Report that the value at p is not a valid id of key[0..n). */
static const char *bad_id(struct bpe_load *l, const char *p, const char *end,
                          const char *key, size_t n)
{
    const char *stop, *kind = kind_of(p, end, &stop);
    if (!kind)
        return NULL;
    if (strcmp(kind, "a number") != 0)
        return FAULT(&l->fault, p + 1,
                     "%s: model.vocab: \"%s\": its id is %s, not an integer",
                     l->name, ERR_SHOW(key, n), kind);
    return FAULT(&l->fault, stop,
                 "%s: model.vocab: \"%s\": id %s is not an integer from 0 to "
                 "%d",
                 l->name, ERR_SHOW(key, n), ERR_SHOW(p, (size_t)(stop - p)),
                 BPE_MAX_ID);
}

/* Read the object at p. Returns the position after it. */
static const char *scan_vocab(struct bpe_load *l, const char *p,
                              const char *end)
{
    struct between entries = {.n = 0};
    const char *close = json_expect(p + 1, end, '}');
    if (close)
        return close + 1;
    p = json_expect(p + 1, end, '"');
    while (p) { /* at the quote of an entry */
        const char *key = l->vocab.p + l->vocab.len;
        size_t length;
        p = json_copy_string(p + 1, end, l->vocab.p + l->vocab.len, &length);
        if (!p || !(p = json_expect(p + 1, end, ':')))
            return NULL;
        if (length > BPE_MAX_TOKEN)
            return too_long(l->name, &l->fault, p, key, length);
        p = json_skip_space(p + 1, end);
        uint32_t id = 0;
        const char *digits = p;
        for (; p < end && p - digits < 8 && *p >= '0' && *p <= '9'; p++)
            id = id * 10 + (uint32_t)(*p - '0');
        if (p == digits || (*digits == '0' && p - digits > 1) ||
            id > BPE_MAX_ID)
            return bad_id(l, digits, end, key, length);
        const char *gap = p;
        bool again = between_again(&entries, p, end);
        if (!again) {
            close = json_expect(p, end, '}');
            p = json_expect(p, end, ',');
            if (!p && !close)
                return gap < end && is_number_char(*gap)
                           ? bad_id(l, digits, end, key, length)
                           : NULL;
        }
        if (bpe_vocab_put(l, length, id, gap) < 0)
            return NULL;
        if (again) {
            p += entries.n - 1;
            continue;
        }
        if (close)
            return close + 1;
        p = json_expect(p + 1, end, '"');
        if (p)
            between_learn(&entries, gap, p + 1);
    }
    return NULL;
}

/* ---- pieces -------------------------------------------------------------- */

/* Report that the item at p is not a piece with its score. */
static const char *bad_piece(struct bpe_load *l, const char *p, const char *end)
{
    const char *stop;
    if (!kind_of(p, end, &stop))
        return NULL;
    return FAULT(&l->fault, p + 1,
                 "%s: model.vocab: piece %zu is not an array of a text and a "
                 "number",
                 l->name, l->n_scores);
}

/* Skip the digits at p. Returns the position after them, or NULL if there are
 * none. */
static const char *skip_digits(const char *p, const char *end)
{
    const char *s = p;
    while (s < end && *s >= '0' && *s <= '9')
        s++;
    return s > p ? s : NULL;
}

/* Read the number at p. Returns the position after it, or NULL. */
static const char *scan_score(const char *p, const char *end, double *out)
{
    static const double powers[] = {1,   1e1, 1e2,  1e3,  1e4,  1e5,  1e6, 1e7,
                                    1e8, 1e9, 1e10, 1e11, 1e12, 1e13, 1e14};
    const char *start = p, *first = p + (p < end && *p == '-'), *point;
    uint64_t digits = 0;
    char text[64];
    point = skip_digits(first, end);
    if (!point || (*first == '0' && point - first > 1))
        return NULL;
    p = point < end && *point == '.' ? skip_digits(point + 1, end) : point;
    bool exponent = p && p < end && (*p == 'e' || *p == 'E');
    if (exponent) {
        p++;
        p = skip_digits(p + (p < end && (*p == '-' || *p == '+')), end);
    }
    if (!p || (size_t)(p - start) >= sizeof text)
        return NULL;
    if (!exponent && p - first <= 15 + (p > point)) {
        /* the digits and the power are exact, so that only the quotient is
         * rounded */
        for (const char *s = first; s < p; s++)
            if (s != point)
                digits = digits * 10 + (uint64_t)(*s - '0');
        *out = (double)digits / powers[p > point ? p - point - 1 : 0];
        *out = *start == '-' ? -*out : *out;
        return p;
    }
    memcpy(text, start, (size_t)(p - start));
    text[p - start] = '\0';
    const struct json_value number = {
        .type = JSON_NUMBER, .str = text, .len = (size_t)(p - start)};
    return json_double(&number, out) ? NULL : p;
}

/* Read the array of pieces at p. Returns the position after it. */
static const char *scan_pieces(struct bpe_load *l, const char *p,
                               const char *end)
{
    struct between parts = {.n = 0}, pieces = {.n = 0};
    const char *item = json_skip_space(p + 1, end);
    if (item < end && *item == ']')
        return item + 1;
    p = json_expect(p + 1, end, '[');
    p = p ? json_expect(p + 1, end, '"') : NULL;
    while (p) { /* at the quote of a piece */
        size_t n;
        double score;
        p = json_copy_string(p + 1, end, l->vocab.p + l->vocab.len, &n);
        if (!p)
            return NULL;
        const char *gap = ++p;
        if (between_again(&parts, p, end)) {
            p += parts.n;
        } else {
            p = json_expect(p, end, ',');
            p = p ? json_skip_space(p + 1, end) : NULL;
            if (!p)
                break;
            between_learn(&parts, gap, p);
        }
        p = scan_score(p, end, &score);
        if (!p)
            break;
        if (l->n_scores > BPE_MAX_ID)
            return FAULT(&l->fault, p, "%s: model.vocab: more than %d pieces",
                         l->name, BPE_MAX_ID + 1);
        gap = p;
        bool again = between_again(&pieces, p, end);
        if (!again && !json_expect(p, end, ']'))
            break;
        if (bpe_unigram_put(l, n, (uint32_t)l->n_scores, score, p))
            return NULL;
        if (again) {
            p += pieces.n - 1;
            continue;
        }
        p = json_expect(p, end, ']') + 1;
        const char *close = json_expect(p, end, ']');
        if (close)
            return close + 1;
        p = json_expect(p, end, ',');
        item = p ? json_skip_space(p + 1, end) : end;
        p = json_expect(item, end, '[');
        p = p ? json_expect(p + 1, end, '"') : NULL;
        if (p)
            between_learn(&pieces, gap, p + 1);
    }
    return bad_piece(l, item, end);
}

/* ---- merges -------------------------------------------------------------- */

/* Complete a merge that ends before p. -1: there are too many, or the other
 * thread has given up. */
static int record_done(struct merges *m, size_t left, size_t right,
                       const char *p)
{
    if (m->n + 1 == BPE_MERGES_MAX) {
        (void)FAULT(&m->fault, p, "%s: model.merges: too many", m->name);
        return -1;
    }
    return bpe_merge_done(m, left, right);
}

/* Report that the value at p is neither a string nor a pair. */
static const char *not_strings(struct merges *m, const char *p, const char *end)
{
    const char *stop, *kind = kind_of(p, end, &stop);
    if (!kind)
        return NULL;
    return FAULT(&m->fault, p + 1,
                 "%s: model.merges: merge %zu is %s, not two strings", m->name,
                 m->n, kind);
}

/* Find and report the fault of a pair whose contents begin at p. */
static const char *bad_pair(struct merges *m, const char *p, const char *end)
{
    char *s = m->arena.p + m->arena.len + HEAD;
    size_t n_parts = 0, n, total = 0;
    p = json_skip_space(p, end);
    while (p < end && *p != ']') {
        if (*p != '"')
            return not_strings(m, p, end);
        p = json_copy_string(p + 1, end, s + total, &n);
        if (!p)
            return NULL;
        if (n == 0 || n_parts == 2)
            return FAULT(&m->fault, p, "%s: model.merges: merge %zu has %s",
                         m->name, m->n,
                         n ? "more than two parts" : "an empty part");
        total += n;
        if (total > BPE_MAX_TOKEN)
            return too_long(m->name, &m->fault, p, s, total);
        n_parts++;
        p = json_skip_space(p + 1, end);
        if (p < end && *p == ',')
            p = json_skip_space(p + 1, end);
        else if (p < end && *p != ']')
            return NULL;
    }
    if (p == end || n_parts == 2)
        return NULL;
    return FAULT(&m->fault, p + 1,
                 "%s: model.merges: merge %zu has fewer than two parts",
                 m->name, m->n);
}

/* The position after an item of the array: the closing bracket, or the next
 * item. */
static const char *next_item(const char *p, const char *end)
{
    const char *close = json_expect(p, end, ']');
    if (close)
        return close;
    p = json_expect(p, end, ',');
    p = p ? json_skip_space(p + 1, end) : end;
    return p < end && *p != ']' ? p : NULL;
}

/* Read consecutive pairs, beginning at the bracket of the first. Returns
 * next_item after the last. */
static const char *scan_pairs(struct merges *m, const char *p, const char *end)
{
    struct between parts = {.n = 0}, pairs = {.n = 0};
    const char *inside = p + 1;
    p = json_expect(inside, end, '"');
    if (!p)
        return bad_pair(m, inside, end);
    for (;;) { /* at the first quote of a pair */
        char *r = m->arena.p + m->arena.len;
        size_t left, right;
        inside = p;
        p = json_copy_string(p + 1, end, r + HEAD, &left);
        if (!p)
            return NULL;
        const char *gap = ++p;
        if (between_again(&parts, p, end)) {
            p += parts.n - 1;
        } else {
            p = json_expect(p, end, ',');
            p = p ? json_expect(p + 1, end, '"') : NULL;
            if (!p)
                return bad_pair(m, inside, end);
            between_learn(&parts, gap, p + 1);
        }
        p = json_copy_string(p + 1, end, r + HEAD + left, &right);
        if (!p)
            return NULL;
        if (left == 0 || right == 0 || left > BPE_MAX_TOKEN ||
            right > BPE_MAX_TOKEN - left)
            return bad_pair(m, inside, end);
        gap = ++p;
        bool again = between_again(&pairs, p, end);
        if (!again && !(p = json_expect(p, end, ']')))
            return bad_pair(m, inside, end);
        bpe_record_head(r, left, right);
        if (record_done(m, left, right, p) < 0)
            return NULL;
        if (again) {
            p += pairs.n - 1;
            continue;
        }
        p = next_item(p + 1, end);
        if (!p || *p != '[')
            return p;
        inside = p + 1;
        p = json_expect(inside, end, '"');
        if (!p)
            return bad_pair(m, inside, end);
        between_learn(&pairs, gap, p + 1);
    }
}

/* scan_pairs for older files, which write merges as "left right". */
static const char *scan_lines(struct merges *m, const char *p, const char *end)
{
    struct between lines = {.n = 0};
    for (;;) {
        char *r = m->arena.p + m->arena.len, *s = r + HEAD;
        size_t n;
        p = json_copy_string(p + 1, end, s, &n);
        if (!p)
            return NULL;
        /* merges.txt starts with this line; the reference also skips it
         * here. */
        bool version = n >= 8 && !memcmp(s, "#version", 8);
        char *space = memchr(s, ' ', n);
        size_t left = space ? (size_t)(space - s) : 0;
        size_t right = space ? n - left - 1 : 0;
        if (!version &&
            (left == 0 || right == 0 || memchr(space + 1, ' ', right)))
            return FAULT(&m->fault, p,
                         "%s: model.merges: merge %zu, \"%s\", is not two "
                         "parts with a space between",
                         m->name, m->n, ERR_SHOW(s, n));
        if (!version && n > BPE_MAX_TOKEN)
            return too_long(m->name, &m->fault, p, s, n);
        if (!version) {
            memmove(space, space + 1, right);
            bpe_record_head(r, left, right);
            if (record_done(m, left, right, p) < 0)
                return NULL;
        }
        const char *gap = ++p;
        if (between_again(&lines, p, end)) {
            p += lines.n - 1;
            continue;
        }
        p = next_item(p, end);
        if (!p || *p != '"')
            return p;
        between_learn(&lines, gap, p + 1);
    }
}

/* Read the array at text + at. Afterwards all chunks are complete, and m->ended
 * is set. */
static void scan_merges(struct merges *m, size_t at)
{
    const char *end = m->text + m->n_text;
    const char *p = json_expect(m->text + at + 1, end, ']');
    m->begin = at;
    if (!p)
        p = json_skip_space(m->text + at + 1, end);
    while (p && p < end && *p != ']')
        p = *p == '['   ? scan_pairs(m, p, end)
            : *p == '"' ? scan_lines(m, p, end)
                        : not_strings(m, p, end);
    bool whole = p && p < end;
    m->end = whole ? (size_t)(p + 1 - m->text) : 0;
    bpe_merges_done(m, whole);
}

/* The probable offset of the array of merges; 0: not found. A token may be
 * spelled like the key, but then no bracket follows. */
static size_t find_merges(const struct merges *m)
{
    static const char key[] = "\"merges\"";
    const char *p = m->text, *end = p + m->n_text;
    while ((p = memmem(p, (size_t)(end - p), key, sizeof key - 1)) != NULL) {
        p += sizeof key - 1;
        const char *at = json_expect(p, end, ':');
        if (at && (at = json_expect(at + 1, end, '[')) != NULL)
            return (size_t)(at - m->text);
    }
    return 0;
}

/* bpe_merges_read for l->merges.text. */
static int read_ahead(struct bpe_load *l)
{
    size_t at = find_merges(&l->merges);
    if (!at)
        return -1;
    scan_merges(&l->merges, at);
    return 0;
}

/* ---- the file ------------------------------------------------------------ */

static const char *repeated_key(struct bpe_load *l, const char *p,
                                const char *key)
{
    return FAULT(&l->fault, p + 1, "%s: model: repeated key \"%s\"", l->name,
                 key);
}

/* Leave the text from p to end out of the tree. Returns end. */
static const char *leave_gap(struct bpe_load *l, const char *p, const char *end)
{
    const char *text = l->merges.text;
    if (end)
        l->gaps[l->n_gaps++] =
            (struct json_gap){(size_t)(p - text), (size_t)(end - text)};
    return end;
}

/* Index the vocabulary, which is the text from p to end; NULL: it is broken.
 * Returns end. */
static const char *vocab_read(struct bpe_load *l, const char *p,
                              const char *end)
{
    /* A lack of memory is reported before any other fault. */
    if (end && bpe_vocab_done(l, &l->fault.err) < 0) {
        l->fault.at = l->merges.text;
        return NULL;
    }
    if (end && l->rc == 0)
        bpe_merges_vocab_ready(l);
    return leave_gap(l, p, end);
}

static const char *read_vocab(struct bpe_load *l, const char *p,
                              const char *end)
{
    if (l->has_vocab || l->has_pieces)
        return repeated_key(l, p, "vocab");
    l->has_vocab = true;
    return vocab_read(l, p, scan_vocab(l, p, end));
}

static const char *read_pieces(struct bpe_load *l, const char *p,
                               const char *end)
{
    if (l->has_pieces || l->has_vocab)
        return repeated_key(l, p, "vocab");
    l->has_pieces = true;
    return vocab_read(l, p, scan_pieces(l, p, end));
}

static const char *read_merges(struct bpe_load *l, const char *p)
{
    struct merges *m = &l->merges;
    size_t at = (size_t)(p - m->text);
    if (l->has_merges)
        return repeated_key(l, p, "merges");
    l->has_merges = true;
    l->resolved = bpe_merges_join(l) && m->begin == at;
    if (m->ended != 1 || m->begin != at) {
        bpe_merges_reset(m);
        scan_merges(m, at);
    }
    if (m->ended == 1)
        return leave_gap(l, p, m->text + m->end);
    l->fault = m->fault;
    return NULL;
}

static bool is_key(const char *s, size_t n, const char *key)
{
    return n == strlen(key) && memcmp(s, key, n) == 0;
}

/* Walk through the object at p: the whole file, or its member "model". Returns
 * the position after it. */
static const char *walk_object(struct bpe_load *l, const char *p,
                               const char *end, bool model)
{
    const char *close = json_expect(p + 1, end, '}');
    if (close)
        return close + 1;
    p = json_expect(p + 1, end, '"');
    while (p) {
        /* Keep the key apart from the tokens, which the other thread may
         * read. */
        char *key = l->vocab.p + l->vocab.len + BPE_PAD;
        size_t n;
        p = json_copy_string(p + 1, end, key, &n);
        p = p ? json_expect(p + 1, end, ':') : NULL;
        p = p ? json_skip_space(p + 1, end) : end;
        if (p == end)
            return NULL;
        if (!model && *p == '{' && is_key(key, n, "model"))
            p = walk_object(l, p, end, true);
        else if (model && *p == '{' && is_key(key, n, "vocab"))
            p = read_vocab(l, p, end);
        else if (model && *p == '[' && is_key(key, n, "vocab"))
            p = read_pieces(l, p, end);
        else if (model && *p == '[' && is_key(key, n, "merges"))
            p = read_merges(l, p);
        else {
            if (model && is_key(key, n, "byte_fallback"))
                l->expect_fallback = *p == 't';
            p = json_skip_value(p, end);
        }
        if (!p)
            return NULL;
        close = json_expect(p, end, '}');
        if (close)
            return close + 1;
        p = json_expect(p, end, ',');
        p = p ? json_expect(p + 1, end, '"') : NULL;
    }
    return NULL;
}

int bpe_scan(struct bpe_load *l, const char *text, size_t n,
             struct json_doc **rest)
{
    const char *p = text, *end = text + n;
    *rest = NULL;
    l->merges.text = text;
    l->merges.n_text = n;
    bpe_merges_start(l, n, read_ahead);
    if (n >= 3 && !memcmp(p, "\xEF\xBB\xBF", 3))
        p += 3;
    p = json_expect(p, end, '{');
    bool read = !p || walk_object(l, p, end, false);
    bpe_merges_give_up(l);
    if (!read)
        return report_fault(l, text, n);
    if (json_parse_around(rest, l->name, text, n, l->gaps, l->n_gaps,
                          QWICK_ERR_MODEL, l->e) < 0)
        return -1;
    if (l->has_vocab && l->has_merges && l->rc == 0 && !l->resolved)
        bpe_resolve_all(l);
    l->b->n_merges = l->merges.n;
    return 0;
}
