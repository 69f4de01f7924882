#include "cli/answer/body_members.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void body_reader_free(struct body_reader *x)
{
    free(x->model);
    x->model = NULL;
}

/* ---- errors ---- */

/* Set *e to a message about the member `name`. Returns -1. */
int body_refuse(struct body_reader *x, const char *name, const char *fmt, ...)
{
    char why[sizeof(x->e->msg)];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(why, sizeof(why), fmt, ap);
    va_end(ap);
    snprintf(x->fault, sizeof(x->fault), "%s", name);
    return err_usage(x->e, "%s%s: %s", x->warn ? "" : RECORD ": body.", name,
                     why);
}

/* For a member that has no effect. */
int body_unknown(struct body_reader *x, const struct json_value *key)
{
    if (!x->warn)
        return body_refuse(x, ERR_SHOW(key->str, key->len), "is not supported");
    request_warn_unknown(x->warn, key, x->number);
    return 0;
}

/* ---- members of any kind ---- */

int body_same(struct body_reader *x, const struct body_member *row,
              const struct json_value *m)
{
    jw_value(x->w, row->to ? row->to : row->name, m);
    return 0;
}

/* For members that change no answer. */
int body_nothing(struct body_reader *x, const struct body_member *row,
                 const struct json_value *m)
{
    (void)x, (void)row, (void)m;
    return 0;
}

/* For members that would change the answer if they had a value. */
int body_never(struct body_reader *x, const struct body_member *row,
               const struct json_value *m)
{
    (void)m;
    return body_refuse(x, row->name, "is not supported%s%s",
                       row->to ? "; " : "", row->to ? row->to : "");
}

/* Refuse every value but row->to. */
int body_only(struct body_reader *x, const struct body_member *row,
              const struct json_value *m)
{
    const char *value = json_is(m, JSON_BOOL) ? m->boolean ? "true" : "false"
                        : json_is(m, JSON_NUMBER) ? m->str
                                                  : "";
    return strcmp(value, row->to) == 0
               ? 0
               : body_refuse(x, row->name, "only %s is supported", row->to);
}

int body_model(struct body_reader *x, const struct body_member *row,
               const struct json_value *m)
{
    if (!json_is(m, JSON_STRING))
        return body_refuse(x, row->name, "must be a string");
    if (x->warn)
        return 0;
    if (!x->model && !(x->model = strdup(m->str)))
        return err_oom(x->e, m->len);
    return strcmp(x->model, m->str) == 0
               ? 0
               : body_refuse(x, row->name,
                             "is \"%s\", but the first request has \"%s\"",
                             ERR_SHOW(m->str, m->len),
                             ERR_SHOW(x->model, strlen(x->model)));
}

int body_stream(struct body_reader *x, const struct body_member *row,
                const struct json_value *m)
{
    static const struct body_member off = {"stream", body_only, "false"};
    if (!x->warn)
        return body_only(x, &off, m);
    if (!json_is(m, JSON_BOOL))
        return body_refuse(x, row->name, "must be true or false");
    x->stream = m->boolean;
    return 0;
}

int body_stop(struct body_reader *x, const struct body_member *row,
              const struct json_value *m)
{
    if (x->warn && json_is(m, JSON_ARRAY) && m->len > BODY_MAX_STOP)
        return body_refuse(x, row->name,
                           "must be at most %d strings, is an array of %zu",
                           BODY_MAX_STOP, m->len);
    return body_same(x, row, m);
}

int body_parallel(struct body_reader *x, const struct body_member *row,
                  const struct json_value *m)
{
    if (!json_is(m, JSON_BOOL))
        return body_refuse(x, row->name, "must be true or false");
    jw_value(x->w, row->name, m);
    return 0;
}

/* ---- rows ---- */

void body_begin(struct body_reader *x, const struct json_value *body,
                struct json_writer *w, struct qwick_err *e)
{
    x->e = e;
    x->body = body;
    x->w = w;
    x->stream = x->include_usage = false;
    x->fault[0] = '\0';
}

int body_read_member(struct body_reader *x, const struct body_member *rows,
                     size_t n, const struct json_value *key,
                     const struct json_value *m)
{
    size_t i = 0;
    while (i < n && !json_equals(key, rows[i].name))
        i++;
    if (json_is(m, JSON_NULL))
        return 0;
    return i < n ? rows[i].put(x, &rows[i], m) : body_unknown(x, key);
}

int body_read_members(struct body_reader *x, const struct body_member *rows,
                      size_t n)
{
    for (size_t i = 0; i < x->body->len; i++)
        if (body_read_member(x, rows, n, &x->body->keys[i], &x->body->items[i]))
            return -1;
    return 0;
}
