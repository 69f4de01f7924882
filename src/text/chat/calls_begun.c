#include "text/chat/calls_begun.h"

#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "text/chat/call_parts.h"

void tool_call_free(struct tool_call *v, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        free(v[i].name);
        buf_free(&v[i].arguments);
    }
}

void calls_begun_drop(struct tool_calls *c)
{
    struct calls_begun *x = &c->begun;
    tool_call_free(x->v, x->n);
    json_pieces_free(&x->json);
    x->n = x->at = 0;
    x->in_json = false;
}

/* Find the name at the end of what is held: the arguments begin now. Returns
 * false if it is not there, or not certain. */
static bool find_name(const struct tool_calls *c, const struct call_form *f,
                      struct span *name)
{
    const struct calls_begun *x = &c->begun;
    const size_t from =
        x->n ? x->at : c->body - (f->open ? strlen(f->open) : 0);
    bool json = f->kind == CALL_OBJECT || f->kind == CALL_NAMED;
    struct span s = {c->held.data + from, c->held.len - from};
    if (x->n ? !call_skip_part(&s, f->post) || !call_skip_part(&s, f->sep)
             : !call_skip_part(&s, f->begin))
        return false;
    if (!call_skip_part(&s, f->pre))
        return false;
    if (f->kind == CALL_OBJECT) {
        size_t n = s.n && s.p[0] == '"' ? strcspn(s.p + 1, "\"\\") : s.n;
        if (n + 2 > s.n || s.p[n + 1] != '"')
            return false;
        *name = (struct span){s.p + 1, n};
        s = span_after(s, n + 2);
    } else {
        *name = call_split_name(f, &s);
        call_skip_id(f, &s);
    }
    return !json || (call_skip_part(&s, f->mid) && s.n == 1);
}

/* Whether the name of a call may end here. */
static bool may_name(const struct call_form *f, char b)
{
    char ends[3];
    if (f->kind == CALL_OBJECT || f->kind == CALL_NAMED)
        return b == '{';
    return b && strchr(call_form_name_end(f, ends), b);
}

int calls_begun_feed(struct tool_calls *c, const struct call_form *f, char b)
{
    struct calls_begun *x = &c->begun;
    struct span name;
    if (x->in_json) {
        struct tool_call *call = &x->v[x->n - 1];
        if (json_pieces_feed(&x->json, &call->arguments, b))
            return -1;
        x->in_json = !x->json.ended;
        x->at = c->held.len;
        return 0;
    }
    if (!may_name(f, b) || (c->one && c->n + x->n) || !find_name(c, f, &name) ||
        !tool_find(c->tools, name.p, name.n))
        return 0;
    if (ARRAY_RESERVE(x->v, x->cap, x->n + 1, NULL))
        return -1;
    struct tool_call *call = &x->v[x->n];
    *call =
        (struct tool_call){.name = strndup(name.p, name.n), .at = c->text.len};
    if (!call->name)
        return -1;
    x->n++;
    x->at = c->held.len;
    x->in_json = b == '{' && f->kind != CALL_BARE;
    json_pieces_free(&x->json);
    return x->in_json ? json_pieces_feed(&x->json, &call->arguments, b) : 0;
}

bool calls_begun_go_on(const struct tool_calls *c, size_t n)
{
    bool same = c->begun.n <= n;
    for (size_t i = 0; same && i < c->begun.n; i++) {
        const struct tool_call *a = &c->begun.v[i], *b = &c->v[c->n + i];
        same =
            strcmp(a->name, b->name) == 0 &&
            a->arguments.len <= b->arguments.len &&
            (!a->arguments.len || memcmp(a->arguments.data, b->arguments.data,
                                         a->arguments.len) == 0);
    }
    return same;
}

const struct tool_call *tool_calls_at(const struct tool_calls *c, size_t i,
                                      bool *whole)
{
    const struct calls_begun *x = &c->begun;
    *whole = i < c->n || i - c->n + 1 < x->n;
    return i < c->n ? &c->v[i] : i - c->n < x->n ? &x->v[i - c->n] : NULL;
}
