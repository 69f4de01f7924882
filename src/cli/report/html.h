/* Pages in HTML: self-contained, for light and dark screens and for paper.
 *
 * All functions append and return nothing; html_write refuses a page whose
 * buffer has failed. Text from outside goes through html_text. */
#ifndef CLI_HTML_H
#define CLI_HTML_H

#include <stdbool.h>
#include <stddef.h>

#include "base/buf.h"

struct html {
    struct buf out;
    size_t n_ids; /* numbers for ids of elements */
};

/* Begin a page, with its title as the heading. */
void html_begin(struct html *h, const char *title);
void html_end(struct html *h);

struct qwick_engine;

/* Begin a page, and a table of facts about the model and the program, to which
 * the caller adds rows, and which it ends. */
void html_begin_model(struct html *h, const char *title,
                      const struct qwick_engine *eng);

/* Append markup unchanged. html_markup is like printf; its %s must not be text
 * from outside. */
#define html_puts(h, s)     ((void)buf_puts(&(h)->out, (s)))
#define html_markup(h, ...) ((void)buf_printf(&(h)->out, __VA_ARGS__))

/* Append text for an element or for an attribute in double quotes. Characters
 * of markup are escaped, control characters other than newline and tab and
 * invalid UTF-8 become \xNN. */
void html_text(struct html *h, const char *s, size_t n);
void html_cstr(struct html *h, const char *s);

/* A row of a table of facts: a name, and a text as by printf, of which at most
 * 4095 bytes are shown. */
void html_fact(struct html *h, const char *name, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

/* Write the page to path, see file/save.h, and free it. Returns 0, or an exit
 * status after printing a message. */
int html_write(struct html *h, const char *path);

#endif
