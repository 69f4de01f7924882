#include "file/json.h"

#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <yajl/yajl_parse.h>

#include "base/buf.h"
#include "base/utf8.h"
#include "file/json_int.h"

/* ---- what yajl lets pass ------------------------------------------------- */

/* yajl takes overlong forms and surrogates for UTF-8, turns lone surrogate
 * escapes into '?', and skips vertical tabs and form feeds as white space. So
 * the text is checked before yajl sees it, and yajl's own UTF-8 check, which
 * would cost as much again, is switched off. Work goes by blocks that stay in
 * the first-level cache. */
enum { SCAN_BLOCK = 16384 };

static int hex_digit(unsigned char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    c |= 0x20;
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* Value of the escape \uXXXX at p, -1 when it is none. */
static int unicode_escape(const unsigned char *p, size_t n)
{
    if (n < 6 || p[0] != '\\' || p[1] != 'u')
        return -1;
    int v = 0;
    for (int i = 2; i < 6; i++) {
        int d = hex_digit(p[i]);
        if (d < 0)
            return -1;
        v = v * 16 + d;
    }
    return v;
}

/* Check that \u escapes of surrogates that start in [*at, end) come in pairs;
 * moves *at behind the last escape. Other faults of escapes are yajl's. */
static int check_escapes(const unsigned char *p, size_t n, size_t end,
                         size_t *at)
{
    size_t i = *at;
    while (i < end) {
        const unsigned char *q = memchr(p + i, '\\', end - i);
        if (!q) {
            i = end;
            break;
        }
        i = (size_t)(q - p);
        int v = unicode_escape(q, n - i);
        if (v >= 0xd800 && v <= 0xdfff) {
            int low = v < 0xdc00 ? unicode_escape(q + 6, n - i - 6) : -1;
            if (low < 0xdc00 || low > 0xdfff) {
                *at = i;
                return -1;
            }
            i += 12;
        } else {
            i += 2;
        }
    }
    *at = i;
    return 0;
}

/* NULL when p[0..n) passes, else why not, with *at the offset. */
static const char *check_text(const unsigned char *p, size_t n, size_t *at)
{
    size_t chars = 0, escapes = 0;
    for (size_t i = 0; i < n;) {
        size_t end = n - i > SCAN_BLOCK ? i + SCAN_BLOCK : n;
        if (chars < end)
            chars += utf8_valid((const char *)p + chars, end - chars);
        if (chars < end) { /* unless the block's end cuts a character */
            size_t k =
                utf8_decode((const char *)p + chars, n - chars, NULL, NULL);
            if (k == 0) {
                *at = chars;
                return "invalid UTF-8";
            }
            chars += k;
        }
        if (escapes < end && check_escapes(p, n, end, &escapes)) {
            *at = escapes;
            return "lone surrogate in a \\u escape";
        }
        const unsigned char *q = memchr(p + i, '\v', end - i);
        if (!q)
            q = memchr(p + i, '\f', end - i);
        if (q) {
            *at = (size_t)(q - p);
            return "invalid control character";
        }
        i = end;
    }
    return NULL;
}

/* ---- events -------------------------------------------------------------- */

/* Memory that yajl holds. It does not check what it gets from its allocator,
 * so a failed allocation jumps out of it, and everything is freed here. */
struct block {
    _Alignas(16) struct block *next;
    struct block *prev;
};

enum stop { STOP_NOT, STOP_HANDLER, STOP_DEPTH };

struct parser {
    struct json_input *in;
    const struct json_handler *h;
    void *ctx;
    size_t depth;
    enum stop stop;
    size_t piece; /* offset of the piece that yajl reads now */
    const struct json_gap *word; /* the gap it reads a number for, or NULL */
    yajl_handle yajl;
    struct block blocks; /* ring */
    size_t oom_bytes;
    jmp_buf oom;
};

static void block_link(struct parser *p, struct block *b)
{
    b->next = p->blocks.next;
    b->prev = &p->blocks;
    b->next->prev = b;
    p->blocks.next = b;
}

static void block_unlink(struct block *b)
{
    b->next->prev = b->prev;
    b->prev->next = b->next;
}

static void *y_realloc(void *ctx, void *ptr, size_t n)
{
    struct parser *p = ctx;
    struct block *old = NULL;
    size_t total;
    if (ptr) {
        old = (struct block *)ptr - 1;
        block_unlink(old);
    }
    struct block *b = NULL;
    if (!size_add(n, sizeof *b, &total))
        b = realloc(old, total);
    if (!b) {
        if (old)
            block_link(p, old);
        p->oom_bytes = n;
        longjmp(p->oom, 1);
    }
    block_link(p, b);
    return b + 1;
}

static void *y_malloc(void *ctx, size_t n)
{
    return y_realloc(ctx, NULL, n);
}

static void y_free(void *ctx, void *ptr)
{
    (void)ctx;
    if (!ptr)
        return;
    struct block *b = (struct block *)ptr - 1;
    block_unlink(b);
    free(b);
}

static void blocks_free(struct parser *p)
{
    for (struct block *b = p->blocks.next, *next; b != &p->blocks; b = next) {
        next = b->next;
        free(b);
    }
}

/* yajl's callbacks return nonzero to go on. */
static int go_on(struct parser *p, int rc)
{
    if (rc)
        p->stop = STOP_HANDLER;
    return !rc;
}

static int on_null(void *ctx)
{
    struct parser *p = ctx;
    return go_on(p, p->h->null(p->ctx));
}

static int on_boolean(void *ctx, int v)
{
    struct parser *p = ctx;
    return go_on(p, p->h->boolean(p->ctx, v != 0));
}

static int on_number(void *ctx, const char *s, size_t n)
{
    struct parser *p = ctx;
    if (p->word) {
        s = p->in->text + p->word->begin;
        n = p->word->end - p->word->begin;
    }
    return go_on(p, p->h->number(p->ctx, s, n));
}

static int on_string(void *ctx, const unsigned char *s, size_t n)
{
    struct parser *p = ctx;
    return go_on(p, p->h->string(p->ctx, (const char *)s, n));
}

static int on_key(void *ctx, const unsigned char *s, size_t n)
{
    struct parser *p = ctx;
    p->in->key_end = p->piece + yajl_get_bytes_consumed(p->yajl);
    return go_on(p, p->h->key(p->ctx, (const char *)s, n));
}

static int deeper(struct parser *p)
{
    if (p->depth == JSON_MAX_DEPTH) {
        p->stop = STOP_DEPTH;
        return 0;
    }
    p->depth++;
    return 1;
}

static int on_begin_object(void *ctx)
{
    struct parser *p = ctx;
    if (!deeper(p))
        return 0;
    return !p->h->begin_object || go_on(p, p->h->begin_object(p->ctx));
}

static int on_end_object(void *ctx)
{
    struct parser *p = ctx;
    p->depth--;
    return !p->h->end_object || go_on(p, p->h->end_object(p->ctx));
}

static int on_begin_array(void *ctx)
{
    struct parser *p = ctx;
    if (!deeper(p))
        return 0;
    return !p->h->begin_array || go_on(p, p->h->begin_array(p->ctx));
}

static int on_end_array(void *ctx)
{
    struct parser *p = ctx;
    p->depth--;
    return !p->h->end_array || go_on(p, p->h->end_array(p->ctx));
}

int json_err_at(struct json_input *in, size_t offset, const char *why)
{
    in->bad = offset;
    return err_set(in->e, in->code, "%s: offset %zu: %s", in->name, offset,
                   why);
}

/* Report yajl's description of the error, on one line. */
static int err_yajl(struct parser *p, size_t offset)
{
    unsigned char *y = yajl_get_error(p->yajl, 0, NULL, 0);
    char why[160];
    snprintf(why, sizeof why, "%s", (const char *)y);
    size_t len = strlen(why);
    while (len > 0 && (why[len - 1] == '\n' || why[len - 1] == '.'))
        why[--len] = '\0';
    return json_err_at(p->in, offset, why);
}

/* Set *begin and *end to the i-th piece of the text between gaps. Returns false
 * if there is none. A byte order mark is not part of the first one. */
static bool piece_at(const struct parser *p, size_t i, size_t *begin,
                     size_t *end)
{
    if (i > p->in->n_gaps)
        return false;
    bool mark = p->in->n >= 3 && memcmp(p->in->text, "\xef\xbb\xbf", 3) == 0;
    *begin = i > 0 ? p->in->gaps[i - 1].end : mark ? 3 : 0;
    *end = i < p->in->n_gaps ? p->in->gaps[i].begin : p->in->n;
    return true;
}

/* Feed an empty container for a gap; for one that is no container, a number
 * whose text on_number replaces. */
static yajl_status feed_gap(struct parser *p, const struct json_gap *gap)
{
    char c = p->in->text[gap->begin];
    const char *stand_in = c == '{' ? "{}" : c == '[' ? "[]" : "0 ";
    p->word = c == '{' || c == '[' ? NULL : gap;
    yajl_status st = yajl_parse(p->yajl, (const unsigned char *)stand_in, 2);
    p->word = NULL;
    return st;
}

/* Feed the pieces and the gaps between them. */
static yajl_status feed_yajl(struct parser *p)
{
    size_t begin, end;
    yajl_status st = yajl_status_ok;
    for (size_t i = 0; st == yajl_status_ok && piece_at(p, i, &begin, &end);
         i++) {
        p->piece = begin;
        st = yajl_parse(p->yajl, (const unsigned char *)p->in->text + begin,
                        end - begin);
        if (i < p->in->n_gaps && st == yajl_status_ok)
            st = feed_gap(p, &p->in->gaps[i]);
    }
    return st;
}

/* The part in which yajl may jump out; locals do not change after setjmp. */
static int run_yajl(struct parser *p, const yajl_callbacks *cb)
{
    yajl_alloc_funcs alloc = {y_malloc, y_realloc, y_free, p};

    if (setjmp(p->oom))
        return err_oom(p->in->e, p->oom_bytes);
    p->yajl = yajl_alloc(cb, &alloc, p);
    yajl_config(p->yajl, yajl_dont_validate_strings, 1);
    yajl_status st = feed_yajl(p);
    bool whole = st == yajl_status_ok;
    if (whole)
        st = yajl_complete_parse(p->yajl);
    /* A string that begins after the value and has no end passes for white
     * space; a line break cannot be in it. */
    if (st == yajl_status_ok)
        st = yajl_parse(p->yajl, (const unsigned char *)"\n", 1);
    if (st == yajl_status_ok)
        return 0;
    /* The end is parsed as one more chunk; its offsets mean nothing. */
    size_t offset =
        whole ? p->in->n : p->piece + yajl_get_bytes_consumed(p->yajl);
    if (offset > p->in->n)
        offset = p->in->n;
    if (p->stop == STOP_HANDLER)
        return -1;
    if (p->stop == STOP_DEPTH) {
        char why[64];
        snprintf(why, sizeof why, "nested deeper than %d levels",
                 JSON_MAX_DEPTH);
        return json_err_at(p->in, offset > 0 ? offset - 1 : 0, why);
    }
    return err_yajl(p, offset);
}

int json_read(struct json_input *in, const struct json_handler *h, void *ctx)
{
    struct parser all = {.in = in, .h = h, .ctx = ctx}, *p = &all;
    yajl_callbacks cb = {
        .yajl_null = h->null ? on_null : NULL,
        .yajl_boolean = h->boolean ? on_boolean : NULL,
        .yajl_number = h->number ? on_number : NULL,
        .yajl_string = h->string ? on_string : NULL,
        .yajl_map_key = h->key ? on_key : NULL,
        .yajl_start_map = on_begin_object,
        .yajl_end_map = on_end_object,
        .yajl_start_array = on_begin_array,
        .yajl_end_array = on_end_array,
    };
    size_t begin, end, at;

    if (p->in->n >= 2 && (memcmp(p->in->text, "\xff\xfe", 2) == 0 ||
                          memcmp(p->in->text, "\xfe\xff", 2) == 0))
        return json_err_at(p->in, 0, "UTF-16 is not supported, JSON is UTF-8");
    for (size_t i = 0; piece_at(p, i, &begin, &end); i++) {
        const char *why = check_text((const unsigned char *)p->in->text + begin,
                                     end - begin, &at);
        if (why)
            return json_err_at(p->in, begin + at, why);
    }
    p->blocks.next = p->blocks.prev = &p->blocks;
    int rc = run_yajl(p, &cb);
    blocks_free(p);
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
