#include "model/section.h"

#include <stdio.h>
#include <string.h>

#include "base/utf8.h"

void section_describe(const struct json_value *v, char *out, size_t n)
{
    size_t len = v && v->len < 40 ? v->len : 40;
    if (!v)
        snprintf(out, n, "missing");
    else if (v->type == JSON_NUMBER)
        snprintf(out, n, "%.*s", (int)len, v->str);
    else if (v->type == JSON_STRING)
        snprintf(out, n, "\"%.*s\"", (int)utf8_complete(v->str, len), v->str);
    else
        snprintf(out, n, "%s",
                 v->type == JSON_NULL    ? "null"
                 : v->type == JSON_BOOL  ? (v->boolean ? "true" : "false")
                 : v->type == JSON_ARRAY ? "an array"
                                         : "an object");
}

struct section section_inner(const struct section *s, const char *key,
                             const char *in)
{
    struct section inner = *s;
    inner.v = json_get(s->v, key);
    inner.in = in;
    return inner;
}

/* The file's own name of a field. */
static void file_name(const struct section *s, const char *key, char *out,
                      size_t n)
{
    snprintf(out, n, "%s%s", s->in, key);
    for (const struct section_name *m = s->names; m && m->field; m++) {
        if (strcmp(m->field, out) != 0)
            continue;
        snprintf(out, n, "%s%s", m->key[0] == '.' ? s->prefix : "", m->key);
        return;
    }
}

int section_bad(const struct section *s, const char *key, const char *expected,
                struct qwick_err *e)
{
    const struct json_value *v = json_get(s->v, key);
    char got[64], name[160];
    section_describe(v, got, sizeof got);
    file_name(s, key, name, sizeof name);
    return err_set(e, QWICK_ERR_MODEL, "%s: %s: must be %s, is %s", s->path,
                   name, expected, got);
}

bool section_absent(const struct section *s, const char *key)
{
    const struct json_value *v = json_get(s->v, key);
    return !v || v->type == JSON_NULL;
}

int section_size(const struct section *s, const char *key, size_t max,
                 size_t *out, struct qwick_err *e)
{
    int64_t i;
    if (json_int(json_get(s->v, key), 1, (int64_t)max, &i)) {
        char expected[64];
        snprintf(expected, sizeof expected, "an integer from 1 to %zu", max);
        return section_bad(s, key, expected, e);
    }
    *out = (size_t)i;
    return 0;
}

int section_bool(const struct section *s, const char *key, bool *out,
                 struct qwick_err *e)
{
    const struct json_value *v = json_get(s->v, key);
    if (!json_is(v, JSON_BOOL))
        return section_bad(s, key, "true or false", e);
    *out = v->boolean;
    return 0;
}

int section_double(const struct section *s, const char *key, double min,
                   double max, double *out, struct qwick_err *e)
{
    double d;
    if (json_double(json_get(s->v, key), &d) || !(d >= min && d <= max)) {
        char expected[64];
        snprintf(expected, sizeof expected, "a number from %g to %g", min, max);
        return section_bad(s, key, expected, e);
    }
    *out = d;
    return 0;
}

int section_opt_size(const struct section *s, const char *key, size_t dflt,
                     size_t max, size_t *out, struct qwick_err *e)
{
    if (section_absent(s, key)) {
        *out = dflt;
        return 0;
    }
    return section_size(s, key, max, out, e);
}

int section_opt_double(const struct section *s, const char *key, double dflt,
                       double min, double max, double *out, struct qwick_err *e)
{
    if (section_absent(s, key)) {
        *out = dflt;
        return 0;
    }
    return section_double(s, key, min, max, out, e);
}

int section_opt_bool(const struct section *s, const char *key, bool dflt,
                     bool *out, struct qwick_err *e)
{
    if (section_absent(s, key)) {
        *out = dflt;
        return 0;
    }
    return section_bool(s, key, out, e);
}
