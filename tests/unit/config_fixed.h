/* Fields that must have one value. */
#ifndef TEST_CONFIG_FIXED_H
#define TEST_CONFIG_FIXED_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "config_file.h"
#include "file/map.h"
#include "model/arch.h"
#include "model/fixed.h"

/* A value that a row of arch.fixed refuses. */
static inline const char *other_value(const char *want)
{
    return strcmp(want, "true") == 0    ? "false"
           : strcmp(want, "false") == 0 ? "true"
           : strcmp(want, "null") == 0  ? "30.5"
           : strcmp(want, "{}") == 0    ? "{\"1\": {\"x\": 2}}"
           : want[0] == '"'             ? "\"other\""
                                        : "2";
}

/* The path a.b with a value as a member a: {"b": value}. *key: a. */
static inline const char *nest(char *out, size_t n, char *key, const char *path,
                               const char *value)
{
    size_t at = 0, depth = 0;
    const char *dot = strchr(path, '.');
    snprintf(key, 64, "%.*s", (int)(dot ? dot - path : 63), path);
    out[0] = '\0';
    for (; dot; dot = strchr(dot + 1, '.'), depth++) {
        const char *end = strchr(dot + 1, '.');
        int len = end ? (int)(end - dot - 1) : 63;
        at += (size_t)snprintf(out + at, n - at, "{\"%.*s\": ", len, dot + 1);
    }
    at += (size_t)snprintf(out + at, n - at, "%s", value);
    for (; depth; depth--)
        at += (size_t)snprintf(out + at, n - at, "}");
    return out;
}

/* A config.json of a family. */
struct fixed_family {
    const struct arch *arch;
    const struct member *base;
    size_t n;
};

/* Whether the family reads the field itself. */
static inline bool is_own_field(const struct arch *a, const char *path)
{
    for (size_t i = 0; a->own_fields && a->own_fields[i]; i++)
        if (!strcmp(a->own_fields[i], path))
            return true;
    return false;
}

/* Check that another value of each row is refused, that the row's and null are
 * not, and that the document doc names the field. */
static inline void refuses_others(const struct fixed_family *f,
                                  const struct fixed_field *table,
                                  const char *doc)
{
    for (; table->path; table++) {
        if (is_own_field(f->arch, table->path))
            continue;
        char key[64], text[256];
        const char *last = strrchr(table->path, '.');
        const char *other = other_value(table->expected);
        struct member change = {
            key, nest(text, sizeof text, key, table->path, other)};
        write_config(f->base, f->n, &change, 1);
        refuses("config.json", table->path, "must be");
        refuses("config.json",
                strcmp(table->expected, "{}") == 0 ? "empty" : table->expected,
                other[0] == '{' ? "is an object" : other);
        if (!strstr(doc, last ? last + 1 : table->path))
            fail_msg("docs/config-fields.md lacks %s", table->path);
        if (last)
            continue;
        /* the value that changes nothing, and none */
        change.value = table->expected;
        write_config(f->base, f->n, &change, 1);
        struct config c = loads();
        config_free(&c);
        change.value = "null";
        write_config(f->base, f->n, &change, 1);
        c = loads();
        config_free(&c);
    }
}

static inline void refuses_others_of(const struct fixed_family *families,
                                     size_t n_families)
{
    char *doc;
    size_t n;
    struct qwick_err e;
    assert_ok(map_read_all("docs/config-fields.md", 1 << 20, &doc, &n, &e), &e);
    for (size_t i = 0; i < n_families; i++) {
        const struct fixed_family *f = &families[i];
        refuses_others(f, fixed_common, doc);
        refuses_others(f, f->arch->fixed, doc);
    }
    free(doc);
}

#endif
