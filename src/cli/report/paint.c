#include "cli/report/paint.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/array.h"
#include "base/utf8.h"
#include "cli/report/heat.h"
#include "cli/io/out.h"
#include "cli/io/term.h"

/* A token in the queue. */
struct paint_mark {
    size_t end; /* of its bytes in raw */
    double bits;
};

/* Drop what was used, so that the queue stays short. */
static void drop_used(struct paint *p)
{
    if (p->at == 0 || p->at < p->raw.len)
        return;
    p->raw.len = p->at = p->n_marks = p->mark = 0;
}

int paint_token(struct paint *p, const char *bytes, size_t n, double bits)
{
    drop_used(p);
    if (ARRAY_RESERVE(p->marks, p->cap_marks, p->n_marks + 1, NULL) ||
        buf_append(&p->raw, bytes, n))
        return -1;
    p->marks[p->n_marks++] = (struct paint_mark){p->raw.len, bits};
    return 0;
}

/* Return how many bytes of raw the character s[0..k) of the text stands for. If
 * raw has other bytes first, which the text lacks, p->at moves over them. */
static size_t match_char(struct paint *p, const char *s, size_t k)
{
    size_t left = p->raw.len - p->at, bad = 0;
    const char *raw = p->raw.data + p->at;
    if (left == 0)
        return 0;
    if (left >= k && memcmp(raw, s, k) == 0)
        return k;
    if (k == 3 && memcmp(s, "\xEF\xBF\xBD", 3) == 0 &&
        !utf8_decode(raw, left, NULL, &bad))
        return bad ? bad : 1;
    const char *found = memmem(raw, left, s, k);
    if (!found)
        return 0;
    p->at += (size_t)(found - raw);
    return k;
}

/* The bits of the next n bytes of raw, which are used then. */
static double use_bits(struct paint *p, size_t n)
{
    double bits = 0;
    if (n == 0)
        return NAN;
    while (p->mark < p->n_marks && p->marks[p->mark].end <= p->at)
        p->mark++;
    p->at += n;
    for (size_t i = p->mark; i < p->n_marks; i++) {
        bits += p->marks[i].bits;
        if (p->marks[i].end >= p->at)
            break;
    }
    return bits;
}

/* Append a run of characters of one class. */
static void put_run(const struct paint *p, const char *s, size_t n,
                    size_t class, struct buf *out)
{
    while (n && !out->failed) {
        const char *newline = memchr(s, '\n', n);
        size_t k = newline ? (size_t)(newline - s) : n;
        if (k) {
            heat_begin(out, class, p->truecolor);
            out_escape(out, s, k);
            heat_end(out, class);
        }
        if (newline)
            buf_putc(out, '\n');
        k += newline != NULL;
        s += k;
        n -= k;
    }
}

int paint_text(struct paint *p, const char *text, size_t n, struct buf *out)
{
    size_t begin = 0, at = 0, class = 0;
    while (at < n) {
        size_t bad = 0, k = utf8_decode(text + at, n - at, NULL, &bad);
        if (k == 0)
            k = bad ? bad : 1;
        size_t next = heat_class_of(use_bits(p, match_char(p, text + at, k)));
        if (next != class) {
            put_run(p, text + begin, at - begin, class, out);
            begin = at;
        }
        class = next;
        at += k;
    }
    put_run(p, text + begin, n - begin, class, out);
    return out->failed ? -1 : 0;
}

void paint_legend(const char *when)
{
    struct buf b = {0};
    if (!err_is_tty() || msg_quiet() || !term_colours(when, true))
        return;
    heat_legend(&b, term_truecolor());
    if (!b.failed)
        fd_write(STDERR_FILENO, b.data, b.len); /* no place for a failure */
    buf_free(&b);
}

void paint_free(struct paint *p)
{
    buf_free(&p->raw);
    free(p->marks);
    *p = (struct paint){0};
}
