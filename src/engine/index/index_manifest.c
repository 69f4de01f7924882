/* index.json: properties that all vectors share, and how many are committed. */
#include "engine/index/index.h"

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "file/json.h"
#include "file/json_writer.h"
#include "file/save.h"

enum { MAX_MANIFEST = 1 << 20 };

static const char FORMAT[] = "qwick index";

/* ---- names and messages -------------------------------------------------- */

const char *index_name(const struct qwick_index_info *info, enum index_file f)
{
    static const char *const names[] = {"vectors.f32", "offsets.u64", "ids.txt",
                                        "texts.txt", "dead.u64"};
    return f == INDEX_VECTORS && info->f16 ? "vectors.f16" : names[f];
}

char *index_path(const struct qwick_index *ix, const char *name,
                 struct qwick_err *e)
{
    char *path;
    if (asprintf(&path, "%s/%s", ix->dir, name) >= 0)
        return path;
    err_oom(e, strlen(ix->dir) + strlen(name) + 2);
    return NULL;
}

int index_bad(const struct qwick_index *ix, const char *name,
              struct qwick_err *e, const char *fmt, ...)
{
    char why[300];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(why, sizeof why, fmt, ap);
    va_end(ap);
    return err_set(e, QWICK_ERR_RUNTIME, "%s/%s: %s", ix->dir, name, why);
}

int index_map_file(const struct qwick_index *ix, const char *name,
                   struct map *m, struct qwick_err *e)
{
    char *path = index_path(ix, name, e);
    struct qwick_err own = {0};
    if (!path)
        return -1;
    int rc = map_open(m, path, &own);
    free(path);
    if (!rc)
        return 0;
    return err_set(
        e, own.code == QWICK_ERR_MEMORY ? QWICK_ERR_MEMORY : QWICK_ERR_RUNTIME,
        "%s", own.msg);
}

static int manifest_bad(const struct qwick_index *ix, const char *key,
                        const struct json_value *v, const char *want,
                        struct qwick_err *e)
{
    bool shown = json_is(v, JSON_STRING) || json_is(v, JSON_NUMBER);
    return index_bad(ix, INDEX_MANIFEST, e, "%s: is %s, not %s", key,
                     shown ? ERR_SHOW(v->str, v->len) : json_type_name(v),
                     want);
}

/* ---- reading ------------------------------------------------------------- */

static int read_count(const struct qwick_index *ix, const struct json_value *v,
                      const char *key, size_t min, size_t max, size_t *out,
                      struct qwick_err *e)
{
    int64_t n;
    if (json_int(json_get(v, key), (int64_t)min, (int64_t)max, &n)) {
        char want[80];
        snprintf(want, sizeof want, "an integer from %zu to %zu", min, max);
        return manifest_bad(ix, key, json_get(v, key), want, e);
    }
    *out = (size_t)n;
    return 0;
}

static int read_flag(const struct qwick_index *ix, const struct json_value *v,
                     const char *key, bool *out, struct qwick_err *e)
{
    const struct json_value *x = json_get(v, key);
    if (!json_is(x, JSON_BOOL))
        return manifest_bad(ix, key, x, "true or false", e);
    *out = x->boolean;
    return 0;
}

/* A text is a C string. or_null: it may be null. */
static int read_text(const struct qwick_index *ix, const struct json_value *v,
                     const char *key, bool or_null, const char **out,
                     struct qwick_err *e)
{
    const struct json_value *x = json_get(v, key);
    *out = NULL;
    if (or_null && json_is(x, JSON_NULL))
        return 0;
    if (!json_is(x, JSON_STRING) || strlen(x->str) != x->len)
        return manifest_bad(ix, key, x, "a text without NUL", e);
    *out = x->str;
    return 0;
}

static int read_type(const struct qwick_index *ix, const struct json_value *v,
                     bool *f16, struct qwick_err *e)
{
    const struct json_value *x = json_get(v, "type");
    *f16 = json_equals(x, "f16");
    return *f16 || json_equals(x, "f32")
               ? 0
               : manifest_bad(ix, "type", x, "f32 or f16", e);
}

static int read_hash(const struct qwick_index *ix, const struct json_value *v,
                     uint64_t hash[2], struct qwick_err *e)
{
    const struct json_value *x = json_get(v, "model_hash");
    if (!json_is(x, JSON_STRING) || x->len != 32 ||
        strspn(x->str, "0123456789abcdef") != 32 ||
        sscanf(x->str, "%16" SCNx64 "%16" SCNx64, &hash[0], &hash[1]) != 2)
        return manifest_bad(ix, "model_hash", x, "32 hexadecimal digits", e);
    return 0;
}

/* The sizes of all files, and the rows. */
static int read_counts(struct qwick_index *ix, const struct json_value *v,
                       struct qwick_err *e)
{
    struct qwick_index_info *info = &ix->info;
    size_t most = (size_t)1 << 50, *sizes = ix->sizes;
    if (read_count(ix, v, "dim", 1, INDEX_MAX_DIM, &info->dim, e) ||
        read_count(ix, v, "rows", 0, INDEX_MAX_ROWS, &info->n_rows, e) ||
        read_count(ix, v, "dead", 0, info->n_rows, &info->n_dead, e) ||
        read_count(ix, v, "id_bytes", 0, most, &sizes[INDEX_IDS], e) ||
        read_count(ix, v, "text_bytes", 0, most, &sizes[INDEX_TEXTS], e))
        return -1;
    /* at most 2^31 * 2^20 * 4 */
    sizes[INDEX_VECTORS] = info->n_rows * info->dim * index_number_bytes(info);
    sizes[INDEX_OFFSETS] = info->n_rows * 2 * sizeof(uint64_t);
    sizes[INDEX_DEAD] = info->n_dead * sizeof(uint64_t);
    ix->n_rows = info->n_rows;
    return 0;
}

static int read_tree(struct qwick_index *ix, const struct json_value *v,
                     struct qwick_err *e)
{
    struct qwick_index_info info = qwick_index_info_defaults();
    size_t version;
    if (!json_equals(json_get(v, "format"), FORMAT))
        return manifest_bad(ix, "format", json_get(v, "format"), FORMAT, e);
    if (read_count(ix, v, "version", 1, INT32_MAX, &version, e))
        return -1;
    if (version != INDEX_VERSION)
        return index_bad(ix, INDEX_MANIFEST, e,
                         "version: is %zu, this version of qwick reads %d",
                         version, INDEX_VERSION);
    if (read_text(ix, v, "model", true, &info.model, e) ||
        read_hash(ix, v, info.model_hash, e) ||
        read_text(ix, v, "prompt", false, &info.prompt, e) ||
        read_flag(ix, v, "normalized", &info.normalized, e) ||
        read_type(ix, v, &info.f16, e) || index_copy_info(&ix->info, &info, e))
        return -1;
    return read_counts(ix, v, e);
}

int index_read_manifest(struct qwick_index *ix, bool *found,
                        struct qwick_err *e)
{
    struct json_doc *doc = NULL;
    struct stat st;
    struct map m;
    char *path = index_path(ix, INDEX_MANIFEST, e);
    int rc = -1;
    *found = false;
    if (!path)
        return -1;
    if (lstat(path, &st) && (errno == ENOENT || errno == ENOTDIR)) {
        free(path);
        return 0;
    }
    *found = true;
    if (index_map_file(ix, INDEX_MANIFEST, &m, e) == 0) {
        if (m.size > MAX_MANIFEST)
            index_bad(ix, INDEX_MANIFEST, e, "has %zu bytes, more than %d",
                      m.size, MAX_MANIFEST);
        else if (json_parse(&doc, path, (const char *)m.data, m.size,
                            QWICK_ERR_RUNTIME, e) == 0)
            rc = json_is(json_root(doc), JSON_OBJECT)
                     ? read_tree(ix, json_root(doc), e)
                     : index_bad(ix, INDEX_MANIFEST, e, "is no object");
        map_close(&m);
    }
    json_free(doc);
    free(path);
    return rc;
}

/* ---- writing ------------------------------------------------------------- */

int index_write_manifest(const struct qwick_index *ix, struct qwick_err *e)
{
    const struct qwick_index_info *info = &ix->info;
    struct buf b = {0};
    struct json_writer w = jw_line(&b);
    char hash[33];
    snprintf(hash, sizeof hash, "%016" PRIx64 "%016" PRIx64,
             info->model_hash[0], info->model_hash[1]);
    jw_cstr(&w, "format", FORMAT);
    jw_uint(&w, "version", INDEX_VERSION);
    jw_cstr(&w, "model", info->model);
    jw_cstr(&w, "model_hash", hash);
    jw_cstr(&w, "prompt", info->prompt);
    jw_bool(&w, "normalized", info->normalized);
    jw_cstr(&w, "type", info->f16 ? "f16" : "f32");
    jw_uint(&w, "dim", info->dim);
    jw_uint(&w, "rows", info->n_rows);
    jw_uint(&w, "dead", info->n_dead);
    jw_uint(&w, "id_bytes", ix->sizes[INDEX_IDS] + ix->added[INDEX_IDS].len);
    jw_uint(&w, "text_bytes",
            ix->sizes[INDEX_TEXTS] + ix->added[INDEX_TEXTS].len);
    char *path = index_path(ix, INDEX_MANIFEST, e);
    int rc = !path             ? -1
             : jw_end_line(&w) ? err_oom(e, b.len)
                               : save_put(path, SAVE_SHARED, b.data, b.len, e);
    free(path);
    buf_free(&b);
    return rc;
}
