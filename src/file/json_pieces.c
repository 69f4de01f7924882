#include "file/json_pieces.h"

#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "file/json.h"

/* Append a value as it is written; a string without its quotes. */
static int put_value(struct json_pieces *p, struct buf *out,
                     const struct buf *text, bool quoted)
{
    struct json_doc *doc;
    struct qwick_err e;
    struct buf value = {0};
    if (json_parse(&doc, "JSON", text->data, text->len, QWICK_ERR_USAGE, &e)) {
        p->ended = true;
        return e.code == QWICK_ERR_MEMORY ? -1 : 0;
    }
    int rc = json_dump_python(&value, json_root(doc)) ||
             buf_append(out, value.data + quoted, value.len - 2 * quoted);
    buf_free(&value);
    json_free(doc);
    return rc ? -1 : 0;
}

/* The number or the word before this byte has ended. */
static int end_word(struct json_pieces *p, struct buf *out)
{
    int rc = p->unit.len ? put_value(p, out, &p->unit, false) : 0;
    p->unit.len = 0;
    return rc;
}

/* The number of bytes that an escape has at least, from those that are known.
 */
static size_t escape_length(const struct buf *unit)
{
    const char *s = unit->data;
    if (unit->len < 2 || s[1] != 'u')
        return 2;
    /* the first of two surrogates */
    bool pair = unit->len >= 6 && (s[2] == 'd' || s[2] == 'D') &&
                strchr("89abAB", s[3]);
    return pair ? 12 : 6;
}

static int feed_escape(struct json_pieces *p, struct buf *out, char byte)
{
    struct buf text = {0};
    if (buf_putc(&p->unit, byte))
        return -1;
    if (p->unit.len < escape_length(&p->unit))
        return 0;
    int rc = buf_putc(&text, '"') ||
             buf_append(&text, p->unit.data, p->unit.len) ||
             buf_putc(&text, '"') || put_value(p, out, &text, true);
    p->unit.len = 0;
    buf_free(&text);
    return rc ? -1 : 0;
}

static int feed_string(struct json_pieces *p, struct buf *out, char byte)
{
    if (p->unit.len || byte == '\\')
        return feed_escape(p, out, byte);
    p->in_string = byte != '"';
    return buf_putc(out, byte);
}

static int open_level(struct json_pieces *p, struct buf *out, char byte)
{
    p->depth++;
    return buf_putc(out, byte);
}

static int close_level(struct json_pieces *p, struct buf *out, char byte)
{
    if (end_word(p, out) || p->ended)
        return p->ended ? 0 : -1;
    p->ended = --p->depth == 0;
    return buf_putc(out, byte);
}

int json_pieces_feed(struct json_pieces *p, struct buf *out, char byte)
{
    if (p->ended)
        return 0;
    if (p->in_string)
        return feed_string(p, out, byte);
    switch (byte) {
    case '{':
    case '[':
        return open_level(p, out, byte);
    case '}':
    case ']':
        return close_level(p, out, byte);
    case '"':
        p->in_string = true;
        return buf_putc(out, byte);
    case ',':
        return end_word(p, out) || (!p->ended && buf_puts(out, ", ")) ? -1 : 0;
    case ':':
        return buf_puts(out, ": ");
    case ' ':
    case '\t':
    case '\r':
    case '\n':
        return end_word(p, out);
    default:
        return buf_putc(&p->unit, byte);
    }
}

void json_pieces_free(struct json_pieces *p)
{
    buf_free(&p->unit);
    *p = (struct json_pieces){0};
}
