#include "file/json.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/utf8.h"
#include "file/json_int.h"
#include "file/json_scan.h"

struct reader {
    struct json_input *in;
    const struct json_handler *h;
    void *ctx;
    const char *p, *end; /* position, end of the text */
    char *text;          /* [in->n] the decoded text of a string */
    size_t gap;          /* gaps that are behind p */
    size_t depth;
    bool in_object[JSON_MAX_DEPTH]; /* [depth] otherwise in an array */
};

/* ---- faults -------------------------------------------------------------- */

int json_err_at(struct json_input *in, size_t offset, const char *why)
{
    in->bad = offset;
    return err_set(in->e, in->code, "%s: offset %zu: %s", in->name, offset,
                   why);
}

static int fault_at(struct reader *r, const char *p, const char *why)
{
    return json_err_at(r->in, (size_t)(p - r->in->text), why);
}

/* Report that the text at p does not match the syntax: why, unless the fault is
 * more basic. */
static int unexpected_at(struct reader *r, const char *p, const char *why)
{
    if (p == r->end)
        why = "the text ends too early";
    else if ((unsigned char)*p < ' ')
        why = "invalid control character";
    else if (!utf8_decode(p, (size_t)(r->end - p), NULL, NULL))
        why = "invalid UTF-8";
    return fault_at(r, p, why);
}

/* Report the first fault of the string whose text begins at p. */
static int bad_string(struct reader *r, const char *p)
{
    while (p < r->end && (unsigned char)*p >= ' ') {
        char *at = r->text;
        uint32_t c;
        if (*p != '\\') {
            size_t k = utf8_decode(p, (size_t)(r->end - p), NULL, NULL);
            if (!k)
                break;
            p += k;
            continue;
        }
        const char *escape = p++;
        if (p == r->end)
            break;
        p = json_copy_escape(escape, r->end, &at);
        if (!p && escape[1] == 'u' && json_read_hex4(escape + 2, r->end, &c))
            return fault_at(r, escape, "lone surrogate in a \\u escape");
        if (!p)
            return fault_at(r, escape, "invalid escape");
    }
    return unexpected_at(r, p, NULL);
}

/* ---- values -------------------------------------------------------------- */

/* Each of these functions returns 0, or -1 with the error set. Those that may
 * reach another value return 1 if r->p is where it must begin. */

/* Decode the string at r->p to r->text. */
static int read_string(struct reader *r, size_t *n)
{
    const char *close = json_copy_string(r->p + 1, r->end, r->text, n);
    if (!close)
        return bad_string(r, r->p + 1);
    r->p = close + 1;
    return 0;
}

/* Read a key and its colon. */
static int read_key(struct reader *r)
{
    size_t n;
    r->p = json_skip_space(r->p, r->end);
    if (r->p == r->end || *r->p != '"')
        return unexpected_at(r, r->p, "expected a key, a string");
    r->in->key_at = (size_t)(r->p - r->in->text);
    if (read_string(r, &n) || (r->h->key && r->h->key(r->ctx, r->text, n)))
        return -1;
    r->p = json_skip_space(r->p, r->end);
    if (r->p == r->end || *r->p != ':')
        return unexpected_at(r, r->p, "expected a colon after a key");
    r->p++;
    return 1;
}

static int end_container(struct reader *r)
{
    bool object = r->in_object[--r->depth];
    int (*end)(void *) = object ? r->h->end_object : r->h->end_array;
    r->p++;
    return end && end(r->ctx) ? -1 : 0;
}

static int begin_container(struct reader *r, bool object)
{
    int (*begin)(void *) = object ? r->h->begin_object : r->h->begin_array;
    if (r->depth == JSON_MAX_DEPTH) {
        char why[64];
        snprintf(why, sizeof why, "nested deeper than %d levels",
                 JSON_MAX_DEPTH);
        return fault_at(r, r->p, why);
    }
    r->in_object[r->depth++] = object;
    return begin && begin(r->ctx) ? -1 : 0;
}

/* Move *p behind one digit or more. */
static int skip_digits(struct reader *r, const char **p)
{
    const char *first = *p;
    while (*p < r->end && **p >= '0' && **p <= '9')
        ++*p;
    return *p > first ? 0 : unexpected_at(r, first, "expected a digit");
}

static int end_number(struct reader *r, const char *end)
{
    const char *s = r->p;
    r->p = end;
    return r->h->number && r->h->number(r->ctx, s, (size_t)(end - s)) ? -1 : 0;
}

static int read_number(struct reader *r)
{
    const char *p = r->p + (*r->p == '-');
    if (p < r->end && *p == '0')
        p++;
    else if (skip_digits(r, &p))
        return -1;
    if (p < r->end && *p == '.') {
        p++;
        if (skip_digits(r, &p))
            return -1;
    }
    if (p < r->end && (*p == 'e' || *p == 'E')) {
        p++;
        p += p < r->end && (*p == '+' || *p == '-');
        if (skip_digits(r, &p))
            return -1;
    }
    return end_number(r, p);
}

/* The position after a word at r->p, or NULL. */
static const char *word_end(const struct reader *r, const char *word)
{
    size_t n = strlen(word);
    return (size_t)(r->end - r->p) >= n && memcmp(r->p, word, n) == 0 ? r->p + n
                                                                      : NULL;
}

static int read_word(struct reader *r)
{
    static const char *const literals[] = {"null", "false", "true"};
    static const char *const numbers[] = {"NaN", "Infinity", "-Infinity"};
    const char *end;
    for (size_t i = 0; i < 3; i++) {
        if ((end = word_end(r, literals[i])) != NULL) {
            r->p = end;
            int rc = i == 0 ? r->h->null && r->h->null(r->ctx)
                            : r->h->boolean && r->h->boolean(r->ctx, i == 2);
            return rc ? -1 : 0;
        }
        if (r->in->python && (end = word_end(r, numbers[i])) != NULL)
            return end_number(r, end);
    }
    return *r->p == '-' ? read_number(r)
                        : unexpected_at(r, r->p, "expected a value");
}

/* Read an empty container in place of a gap. */
static int read_gap(struct reader *r)
{
    const struct json_gap *gap = &r->in->gaps[r->gap++];
    if (begin_container(r, *r->p == '{') || end_container(r))
        return -1;
    r->p = r->in->text + gap->end;
    return 0;
}

/* Read a value, of a container only its beginning. */
static int read_value(struct reader *r)
{
    size_t n;
    r->p = json_skip_space(r->p, r->end);
    if (r->p == r->end)
        return unexpected_at(r, r->p, NULL);
    if (r->gap < r->in->n_gaps &&
        r->p == r->in->text + r->in->gaps[r->gap].begin)
        return read_gap(r);
    bool object = *r->p == '{';
    if (object || *r->p == '[') {
        if (begin_container(r, object))
            return -1;
        r->p = json_skip_space(r->p + 1, r->end);
        if (r->p < r->end && *r->p == (object ? '}' : ']'))
            return end_container(r);
        return object ? read_key(r) : 1;
    }
    if (*r->p == '"') {
        if (read_string(r, &n))
            return -1;
        return r->h->string && r->h->string(r->ctx, r->text, n) ? -1 : 0;
    }
    return *r->p >= '0' && *r->p <= '9' ? read_number(r) : read_word(r);
}

/* End the containers that end after a value, and move to the next value. */
static int read_next(struct reader *r)
{
    while (r->depth > 0) {
        bool object = r->in_object[r->depth - 1];
        r->p = json_skip_space(r->p, r->end);
        if (r->p < r->end && *r->p == ',') {
            r->p++;
            return object ? read_key(r) : 1;
        }
        if (r->p == r->end || *r->p != (object ? '}' : ']'))
            return unexpected_at(
                r, r->p, object ? "expected , or }" : "expected , or ]");
        if (end_container(r))
            return -1;
    }
    return 0;
}

static int read_text(struct reader *r)
{
    int more = 1;
    while (more > 0) {
        more = read_value(r);
        if (more == 0)
            more = read_next(r);
    }
    r->p = json_skip_space(r->p, r->end);
    return more == 0 && r->p < r->end
               ? unexpected_at(r, r->p, "text after the value")
               : more;
}

int json_read(struct json_input *in, const struct json_handler *h, void *ctx)
{
    struct reader r = {.in = in, .h = h, .ctx = ctx, .p = in->text};
    if (in->n >= 2 && (memcmp(in->text, "\xff\xfe", 2) == 0 ||
                       memcmp(in->text, "\xfe\xff", 2) == 0))
        return json_err_at(in, 0, "UTF-16 is not supported, JSON is UTF-8");
    r.end = in->text + in->n;
    if (in->n >= 3 && memcmp(in->text, "\xef\xbb\xbf", 3) == 0)
        r.p += 3;
    /* No string is longer than the text. Pages that are not touched cost
     * nothing. */
    r.text = malloc(in->n + 1);
    int rc = r.text ? read_text(&r) : err_oom(in->e, in->n);
    free(r.text);
    return rc;
}

int json_events(const char *name, const char *text, size_t n,
                enum qwick_err_code code, const struct json_handler *h,
                void *ctx, struct qwick_err *e)
{
    struct json_input in = {
        .name = name, .text = text, .n = n, .code = code, .e = e};
    return json_read(&in, h, ctx);
}

int json_check(const char *name, const char *text, size_t n,
               enum qwick_err_code code, size_t *at, struct qwick_err *e)
{
    static const struct json_handler ignore_all = {.null = NULL};
    struct json_input in = {
        .name = name, .text = text, .n = n, .code = code, .e = e};
    int rc = json_read(&in, &ignore_all, NULL);
    *at = in.bad;
    return rc;
}
