/* The text of calls, part by part. */
#ifndef TEXT_CALL_PARTS_H
#define TEXT_CALL_PARTS_H

#include <stdbool.h>
#include <stddef.h>

#include "text/chat/call_forms.h"

struct span {
    const char *p;
    size_t n;
};

bool span_is_space(char c);
/* The span without its first n bytes. */
struct span span_after(struct span s, size_t n);
struct span span_trim_left(struct span s);
bool span_begins(struct span s, const char *tag);

/* Skip a part of a form at the start of *s; NULL: nothing. Where the part has
 * white space, and before it, the text may have any. Returns false if the part
 * is not there. */
bool call_skip_part(struct span *s, const char *part);

/* Split a plain name off the start of *s. */
struct span call_split_name(const struct call_form *f, struct span *s);

/* Skip an id that may come before the arguments. */
void call_skip_id(const struct call_form *f, struct span *s);

#endif
