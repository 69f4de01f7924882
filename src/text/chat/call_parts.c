#include "text/chat/call_parts.h"

#include <string.h>

bool span_is_space(char c)
{
    return c == ' ' || c == '\t' || c == '\r' || c == '\n';
}

struct span span_after(struct span s, size_t n)
{
    return (struct span){s.p + n, s.n - n};
}

struct span span_trim_left(struct span s)
{
    while (s.n && span_is_space(s.p[0]))
        s = span_after(s, 1);
    return s;
}

bool span_begins(struct span s, const char *tag)
{
    return s.n >= strlen(tag) && memcmp(s.p, tag, strlen(tag)) == 0;
}

bool call_skip_part(struct span *s, const char *part)
{
    struct span at = span_trim_left(*s);
    for (; part && *part; part++) {
        if (span_is_space(*part)) {
            at = span_trim_left(at);
            continue;
        }
        if (!at.n || at.p[0] != *part)
            return false;
        at = span_after(at, 1);
    }
    *s = at;
    return true;
}

struct span call_split_name(const struct call_form *f, struct span *s)
{
    char ends[3];
    struct span name = span_trim_left(*s);
    call_form_name_end(f, ends);
    for (size_t i = 0; i < name.n; i++)
        if (strchr(ends, name.p[i])) {
            *s = span_after(name, i);
            name.n = i;
        }
    while (name.n && span_is_space(name.p[name.n - 1]))
        name.n--;
    return name;
}

void call_skip_id(const struct call_form *f, struct span *s)
{
    struct span id = *s;
    if (!f->id_open || !call_skip_part(&id, f->id_open))
        return;
    const char *end = memchr(id.p, f->mid[0], id.n);
    if (end)
        *s = span_after(id, (size_t)(end - id.p));
}
