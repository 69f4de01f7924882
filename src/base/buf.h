/* A growing byte buffer with a maximum. */
#ifndef BASE_BUF_H
#define BASE_BUF_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* A buffer. A struct of all zeros is empty. max is the maximum of len (0:
 * SIZE_MAX / 2). After every successful append, data ends with a NUL, which len
 * does not count. */
struct buf {
    char *data;
    size_t len, cap, max;
    bool
        failed; /* a call below has failed: what was composed is not complete */
};

/* Append to the buffer; buf_reserve only makes room for n_more bytes. They all
 * return 0, or -1 with the content unchanged and `failed` set when memory runs
 * out or max would be exceeded. Who composes a text may ignore that, and look
 * at `failed` at the end. */
int buf_reserve(struct buf *b, size_t n_more);
int buf_append(struct buf *b, const void *p, size_t n);
int buf_puts(struct buf *b, const char *s);
int buf_putc(struct buf *b, char c);
int buf_printf(struct buf *b, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));

/* Append p[0..n) as a JSON string with its quotes. Invalid UTF-8 becomes
 * U+FFFD; control characters, quotes and backslashes are escaped; all other
 * text stays UTF-8. */
int buf_json_string(struct buf *b, const char *p, size_t n);
int buf_json_cstr(struct buf *b, const char *s);

/* Append a finite double as JSON, with the fewest digits that read back equal.
 * NaN and infinities become null. Does not depend on the locale. */
int buf_json_double(struct buf *b, double v);
/* buf_json_double for a float, whose digits are those that give back a float. */
int buf_json_float(struct buf *b, float v);

/* Return the text; "" if there is none. */
static inline const char *buf_text(const struct buf *b)
{
    return b->data ? b->data : "";
}

/* Hand the memory to the caller, who frees it with free(), and empty b. Returns
 * NULL if b has no memory. */
char *buf_take(struct buf *b, size_t *n);
void buf_free(struct buf *b);
/* Free a buffer that was needed to compose `whole`, which fails with it. */
void buf_free_part(struct buf *part, struct buf *whole);

/* Compute a * b or a + b. Return 0, or -1 on overflow. */
int size_mul(size_t a, size_t b, size_t *out);
int size_add(size_t a, size_t b, size_t *out);

#endif
