/* A growing byte buffer with a maximum. */
#ifndef BASE_BUF_H
#define BASE_BUF_H

#include <stddef.h>
#include <stdint.h>

/* Zero-initialise to start empty. max 0 means SIZE_MAX / 2. data is
 * NUL-terminated after every successful append; len excludes the NUL. */
struct buf {
    char *data;
    size_t len, cap, max;
};

/* All return 0, or -1 with the content unchanged when memory runs out or max is
 * exceeded. */
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

/* Append a finite double as JSON with the fewest digits that read back equal;
 * NaN and infinities become null. Independent of the locale. */
int buf_json_double(struct buf *b, double v);

/* Hand the memory to the caller, who frees it with free(). NULL stays NULL.
 * Resets b. */
char *buf_take(struct buf *b, size_t *n);
void buf_free(struct buf *b);

/* Overflow-checked a * b and a + b; return -1 on overflow. */
int size_mul(size_t a, size_t b, size_t *out);
int size_add(size_t a, size_t b, size_t *out);

#endif
