/* Models in Ollama's store:
 *   manifests/registry.ollama.ai/library/NAME/TAG   JSON; "NAME:TAG"
 *   manifests/registry.ollama.ai/USER/NAME/TAG      "USER/NAME:TAG"
 *   manifests/HOST/ORG/NAME/TAG                     "HOST/ORG/NAME:TAG"
 *   blobs/sha256-HEX                                files
 * In a manifest, the layer whose mediaType ends in "image.model" names a GGUF
 * file by its digest, "sha256:HEX". */
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/buf.h"
#include "file/fs.h"
#include "file/json.h"
#include "file/map.h"
#include "file/stores.h"

enum { MAX_MANIFEST = 1 << 20, MAX_PARTS = 5, HEX = 64 };

struct search {
    struct store_scan *scan;
    const char *root;
};

static bool is_digest(const struct json_value *v)
{
    static const char start[] = "sha256:";
    return json_is(v, JSON_STRING) && v->len == sizeof start - 1 + HEX &&
           memcmp(v->str, start, sizeof start - 1) == 0 &&
           strspn(v->str + sizeof start - 1, "0123456789abcdef") == HEX;
}

static bool is_layer(const struct json_value *layer, const char *kind)
{
    const struct json_value *type = json_get(layer, "mediaType");
    return json_is(type, JSON_STRING) && strlen(type->str) == type->len &&
           ends_in(type->str, kind);
}

/* Write the path of the model's blob to *path, nothing if memory ran out.
 * Returns what is wrong with the manifest, or NULL. */
static const char *read_blob(const struct search *s,
                             const struct json_value *manifest,
                             struct buf *path)
{
    const struct json_value *layers = json_get(manifest, "layers");
    const struct json_value *digest = NULL;
    struct stat st;
    for (size_t i = 0; json_is(layers, JSON_ARRAY) && i < layers->len; i++) {
        if (is_layer(&layers->items[i], "image.adapter"))
            return "adapters (LoRA) are not supported";
        if (is_layer(&layers->items[i], "image.model"))
            digest = json_get(&layers->items[i], "digest");
    }
    if (!digest)
        return "the manifest names no model";
    if (!is_digest(digest))
        return "the manifest has a malformed digest";
    path->len = 0;
    if (buf_puts(path, s->root) || buf_puts(path, "/blobs/sha256-") ||
        buf_puts(path, digest->str + strlen("sha256:"))) {
        path->len = 0;
        return NULL;
    }
    return stat(path->data, &st) ? "its file is missing: " ERR_INCOMPLETE_HINT
                                 : NULL;
}

static int add_manifest(const struct search *s, const char *file,
                        const char *id)
{
    struct qwick_err e = {0};
    struct buf path = {0};
    struct map map;
    struct json_doc *doc = NULL;
    const char *fault = NULL;
    if (map_open(&map, file, &e))
        return scan_add_unreadable(s->scan, id, id, file, &e);
    if (map.size > MAX_MANIFEST)
        fault = "the manifest is too large";
    else if (json_parse(&doc, "manifest", (const char *)map.data, map.size,
                        QWICK_ERR_MODEL, &e))
        fault = e.msg;
    else
        fault = read_blob(s, json_root(doc), &path);
    bool oom = e.code == QWICK_ERR_MEMORY || (!fault && !path.len);
    int rc = oom ? err_oom(s->scan->e, map.size)
                 : scan_add(s->scan, id, id, fault ? file : path.data, fault);
    json_free(doc);
    map_close(&map);
    buf_free(&path);
    return rc;
}

/* The id of parts[n], "HOST", "ORG", "NAME", "TAG". */
static int make_id(struct buf *id, const char *const *parts, size_t n)
{
    size_t from = 0;
    id->len = 0;
    if (strcmp(parts[0], "registry.ollama.ai") == 0)
        from = n > 3 && strcmp(parts[1], "library") == 0 ? 2 : 1;
    for (size_t i = from; i < n; i++) {
        const char *before = i == from ? "" : i + 1 == n ? ":" : "/";
        if (buf_puts(id, before) || buf_puts(id, parts[i]))
            return -1;
    }
    return 0;
}

static int search_dir(const struct search *s, const char *path,
                      const char **parts, size_t n)
{
    struct qwick_err why = {0};
    struct dir_list l;
    struct buf below = {0}, id = {0};
    int rc = 0;
    if (dir_list_read(&l, path, s->scan->entries, &why))
        return scan_add_unreadable(s->scan, path, NULL, path, &why);
    s->scan->entries -= l.n;
    for (size_t i = 0; i < l.n && !rc; i++) {
        parts[n] = l.v[i].name;
        below.len = 0;
        if (buf_puts(&below, path) || buf_puts(&below, "/") ||
            buf_puts(&below, parts[n]) || make_id(&id, parts, n + 1))
            rc = err_oom(s->scan->e, strlen(path) + strlen(parts[n]));
        else if (!l.v[i].is_dir)
            rc = n > 1 ? add_manifest(s, below.data, id.data) : 0;
        else if (n + 1 < MAX_PARTS)
            rc = search_dir(s, below.data, parts, n + 1);
    }
    buf_free(&below);
    buf_free(&id);
    dir_list_free(&l);
    return rc;
}

int scan_ollama(struct store_scan *scan, const char *root)
{
    struct search s = {scan, root};
    const char *parts[MAX_PARTS];
    struct buf path = {0};
    struct stat st;
    int rc = buf_puts(&path, root) || buf_puts(&path, "/manifests")
                 ? err_oom(scan->e, strlen(root) + 11)
             : stat(path.data, &st) ? 0
                                    : search_dir(&s, path.data, parts, 0);
    buf_free(&path);
    return rc;
}
