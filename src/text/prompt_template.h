/* Prompt templates: texts with fields for the input and for named values.
 *
 *   {}          the input
 *   {name}      a value. A name has letters, digits, "_", "-", ".", and blanks
 *               inside; it may also be a name that the caller knows.
 *   {{ and }}   the braces { and }
 *
 * Any other brace is a brace, as in JSON and in programs. A template with such
 * a brace cannot also have {{ or }}: "{"a": {"b": 1}}" would lose a brace. This
 * is an error, and so is a brace that looks like a misspelt field. */
#ifndef TEXT_PROMPT_TEMPLATE_H
#define TEXT_PROMPT_TEMPLATE_H

#include <stdbool.h>
#include <stddef.h>

#include "base/buf.h"
#include "base/err.h"

/* A piece of text, or a field. */
struct template_part {
    bool is_field;
    const char *s; /* [n] the text, or the name of the field; n 0: the input */
    size_t n;
    size_t line; /* of the part's beginning */
};

/* A template. All zeros is none. */
struct prompt_template {
    char *name; /* of the file, for messages; NULL: there is no template */
    char *text;
    struct template_part *v; /* [n] */
    size_t n, cap;
};

/* Names that a template may use in addition to plain ones. */
struct template_names {
    const char *const *v; /* [n], each ends with a NUL */
    size_t n;
};

/* Return whether s[0..n) is a plain name. */
bool template_is_name(const char *s, size_t n);

/* Parse text[0..n), whose first line has the number `line`. name and text are
 * copied. known may be NULL. Returns 0, or -1 with *e set (QWICK_ERR_USAGE),
 * which names the template and the line. Call prompt_template_free in both
 * cases. */
int prompt_template_parse(struct prompt_template *t, const char *name,
                          const char *text, size_t n, size_t line,
                          const struct template_names *known,
                          struct qwick_err *e);
void prompt_template_free(struct prompt_template *t);

/* Return the first field of this name (n 0: the input), or NULL. */
const struct template_part *
prompt_template_find(const struct prompt_template *t, const char *name,
                     size_t n);

/* Gives the value of a field: *s, *n bytes. Returns 0, or -1 with *e set. */
typedef int (*template_value_fn)(void *ctx, const struct template_part *field,
                                 const char **s, size_t *n,
                                 struct qwick_err *e);

/* Append the template with its fields replaced. Values are not searched for
 * fields. Returns 0, or -1 with *e set. */
int prompt_template_fill(const struct prompt_template *t, template_value_fn get,
                         void *ctx, struct buf *out, struct qwick_err *e);

#endif
