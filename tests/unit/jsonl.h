/* Goldens in JSONL, one tree a line:
 *
 *     struct jsonl in = jsonl_open(path);
 *     while (jsonl_next(&in))
 *         ... in.root, the line's tree ...
 *
 * A line that is no JSON fails the test. jsonl_next frees the tree before, and
 * jsonl_close the last one. */
#ifndef TEST_JSONL_H
#define TEST_JSONL_H

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "file/json.h"
#include "file/map.h"
#include "test.h"

struct jsonl {
    struct map map;
    const char *path, *at;
    struct json_doc *doc;
    const struct json_value *root;
    size_t n_lines; /* read so far */
};

static inline struct jsonl jsonl_open(const char *path)
{
    struct jsonl in = {.path = path};
    struct qwick_err e;
    assert_ok(map_open(&in.map, path, &e), &e);
    in.at = (const char *)in.map.data;
    return in;
}

static inline void jsonl_close(struct jsonl *in)
{
    json_free(in->doc);
    map_close(&in->map);
}

static inline bool jsonl_next(struct jsonl *in)
{
    const char *end = (const char *)in->map.data + in->map.size;
    size_t rest = (size_t)(end - in->at);
    struct qwick_err e;
    json_free(in->doc);
    in->doc = NULL;
    if (!rest)
        return false;
    const char *nl = memchr(in->at, '\n', rest);
    size_t len = nl ? (size_t)(nl - in->at) : rest;
    assert_ok(
        json_parse(&in->doc, in->path, in->at, len, QWICK_ERR_RUNTIME, &e), &e);
    in->root = json_root(in->doc);
    in->at += nl ? len + 1 : len;
    in->n_lines++;
    return true;
}

struct ids {
    int32_t *v; /* the caller frees it */
    size_t n;
};

/* The ids in an array of JSON. */
static inline struct ids ids_of(const struct json_value *list)
{
    assert_true(json_is(list, JSON_ARRAY));
    struct ids r = {calloc(list->len + 1, sizeof *r.v), list->len};
    assert_non_null(r.v);
    for (size_t i = 0; i < r.n; i++) {
        int64_t id;
        assert_int_equal(json_int(&list->items[i], 0, INT32_MAX, &id), 0);
        r.v[i] = (int32_t)id;
    }
    return r;
}

/* Visit all lines of a file, and return their number. */
static inline size_t jsonl_each(const char *path,
                                void (*visit)(const struct json_value *line))
{
    struct jsonl in = jsonl_open(path);
    while (jsonl_next(&in))
        visit(in.root);
    jsonl_close(&in);
    return in.n_lines;
}

#endif
