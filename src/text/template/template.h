/* Chat templates: an interpreter for the part of Jinja that they use, set up as
 * Hugging Face's transformers sets it up (Jinja2's sandbox with trim_blocks and
 * lstrip_blocks, loop controls, a generation block, raise_exception,
 * strftime_now and a tojson like Python's json.dumps).
 *
 * Values behave as in Python: integers (64 bit; larger ones can only be passed
 * on), doubles, strings indexed by character, lists, dicts that keep their
 * order.
 *
 * A template is a program from a file, so everything about it is bounded: the
 * constants below. A template that exceeds one fails with an error.
 *
 * Each byte of a string is marked: either the template wrote it, or it came
 * from outside (a message, a tool, an argument). Slices, concatenation, strip,
 * split, join and replace keep the marks. Other functions give text that counts
 * as from outside if any of their input does. Numbers are marked too: those
 * from outside, lengths and positions in what came from outside, and results of
 * arithmetic and comparison. What such a number or text chooses counts as from
 * outside: an item, a character, a slice, a repetition, a range. The exception
 * is the role of a message. What an if, a conditional expression, and, or or
 * the number of rounds of a loop decides is not tracked, because the template
 * then says itself what it writes. The caller lets only the template's own text
 * become control tokens. */
#ifndef TEXT_TEMPLATE_H
#define TEXT_TEMPLATE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/err.h"
#include "file/json.h"
#include "text/bpe/bpe.h"

/* Bounds. Real templates stay below a hundredth of each. */
#define TEMPLATE_MAX_SOURCE  ((size_t)1 << 20)    /* bytes of source */
#define TEMPLATE_MAX_NESTING 150                  /* of tags and expressions */
#define TEMPLATE_MAX_DEPTH   700                  /* of evaluation */
#define TEMPLATE_MAX_STEPS   ((uint64_t)50 << 20) /* of evaluation */
#define TEMPLATE_MAX_OUTPUT  ((size_t)64 << 20)   /* bytes of a prompt */
#define TEMPLATE_MAX_MEMORY  ((size_t)256 << 20)  /* bytes of all values */
#define TEMPLATE_MAX_RANGE   100000               /* items of range() */

struct template;

/* Parse text[0..n). name is for messages, as "NAME: line N: ..."; it and the
 * text are copied. Error code MODEL. */
int template_open(struct template **out, const char *name, const char *text,
                  size_t n, struct qwick_err *e);
void template_close(struct template *t);

/* A variable. value is JSON, borrowed during the call. outside: its strings
 * count as from outside; false for special tokens. */
struct template_var {
    const char *name;
    const struct json_value *value;
    bool outside;
};

/* The time of strftime_now. */
struct tm;

struct template_result {
    struct buf text;
    struct bpe_span *own; /* [n_own] parts that are the template's own text,
                             ascending; adjacent parts are joined */
    size_t n_own;
    bool in_think; /* text ends inside a think block that the template opened */
    const char *think_close; /* the tag that ends it, or NULL */
};

/* Render with the variables vars[0..n_vars); a later one replaces an earlier
 * one of the same name. now: NULL means the local time of the call. The "role"
 * of an object in the variable "messages" counts as the template's own text if
 * it is one of the common roles, because templates build control tokens from
 * it.
 *
 * Errors of the template or of the variables have the code USAGE, and so has a
 * rendering that takes longer than the thread may (text/deadline.h); exceeded
 * bounds have MODEL. Call template_result_free even after a failure. Threads
 * may render one template at the same time. */
int template_render(struct template_result *out, const struct template *t,
                    const struct template_var *vars, size_t n_vars,
                    const struct tm *now, struct qwick_err *e);
/* Do the same with at most max_bytes of memory, of which a half is for values
 * and a quarter for the text; 0: the bounds above. Exceeding a bound has the
 * code USAGE then: the variables are to blame. */
int template_render_within(struct template_result *out,
                           const struct template *t,
                           const struct template_var *vars, size_t n_vars,
                           const struct tm *now, size_t max_bytes,
                           struct qwick_err *e);
void template_result_free(struct template_result *r);

/* Return whether the template's source uses a variable of this name
 * anywhere. */
bool template_uses(const struct template *t, const char *name);

#endif
