#include "file/hub_cache.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/buf.h"
#include "file/map.h"

const struct place hub_places[HUB_N_PLACES] = {
    {"HF_HUB_CACHE", ""},
    {"HF_HOME", "/hub"},
    {"XDG_CACHE_HOME", "/huggingface/hub"},
    {"HOME", "/.cache/huggingface/hub"},
};

enum { MAX_PATH_BYTES = 4096, MAX_REF_BYTES = 4096 };

/* org/name@revision, checked: no part can lead out of the cache. */
struct hub_id {
    const char *spec; /* as given, "org/name@revision"; borrowed */
    char *folder;     /* "models--org--name" */
    char *revision;   /* "main" unless given */
};

static void hub_id_free(struct hub_id *id)
{
    free(id->folder);
    free(id->revision);
    *id = (struct hub_id){0};
}

/* Whatever the locale. */
static bool is_alnum(char c)
{
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') ||
           (c >= 'A' && c <= 'Z');
}

static bool is_space(char c)
{
    return c == ' ' || (c >= '\t' && c <= '\r');
}

/* Whether s is one word of a repository's name: 1 to 96 letters, digits, '_',
 * '.' and '-', of which '.' and '-' do not come first. ".." is not allowed, nor
 * is "--", which separates the words in the cache. */
static bool is_repo_word(const char *s, size_t n)
{
    if (n == 0 || n > 96 || s[0] == '.' || s[0] == '-')
        return false;
    for (size_t i = 0; i < n; i++) {
        char c = s[i];
        bool mark = c == '.' || c == '-';
        if (!mark && c != '_' && !is_alnum(c))
            return false;
        if (mark && i > 0 && s[i - 1] == c)
            return false;
    }
    return true;
}

/* A branch, tag or hash: like a relative path without "." and ".." parts. */
static bool is_revision(const char *s)
{
    if (strlen(s) > 255)
        return false;
    for (;;) {
        size_t n = strcspn(s, "/");
        if (n == 0 || s[0] == '.' || s[0] == '-')
            return false;
        for (size_t i = 0; i < n; i++)
            if (!is_alnum(s[i]) && !strchr("._-+", s[i]))
                return false;
        if (s[n] == '\0')
            return true;
        s += n + 1;
    }
}

/* 1: it is a hub id, 0: it is none, -1: out of memory. */
static int hub_id_parse(struct hub_id *id, const char *spec)
{
    *id = (struct hub_id){0};
    size_t n = strcspn(spec, "@");
    const char *revision = spec[n] == '@' ? spec + n + 1 : "main";
    size_t org = 0;
    while (org < n && spec[org] != '/')
        org++;
    if (!is_repo_word(spec, org) || !is_revision(revision))
        return 0;
    if (org < n && !is_repo_word(spec + org + 1, n - org - 1))
        return 0;
    struct buf folder = {0};
    int rc = buf_puts(&folder, "models--") || buf_append(&folder, spec, org);
    if (!rc && org < n)
        rc = buf_puts(&folder, "--") ||
             buf_append(&folder, spec + org + 1, n - org - 1);
    id->folder = buf_take(&folder, NULL);
    id->spec = spec;
    id->revision = strdup(revision);
    if (!rc && id->folder && id->revision)
        return 1;
    hub_id_free(id);
    return -1;
}

static bool is_dir(const char *path)
{
    struct stat st;
    return stat(path, &st) == 0 && S_ISDIR(st.st_mode);
}

/* Set path to the parts joined together; -1 when out of memory. */
static int path_set(struct buf *path, const char *a, const char *b,
                    const char *c)
{
    path->len = 0;
    return buf_puts(path, a) || buf_puts(path, b) || buf_puts(path, c) ? -1 : 0;
}

int hub_read_ref(const char *path, struct buf *name, struct qwick_err *e)
{
    struct map m;
    struct stat st;
    name->len = 0;
    if (buf_puts(name, ""))
        return err_oom(e, 1);
    /* A directory, when other refs begin with this name and a slash. */
    if (lstat(path, &st) || S_ISDIR(st.st_mode))
        return 0;
    if (map_open(&m, path, e))
        return -1;
    const char *s = (const char *)m.data;
    size_t n = m.size < MAX_REF_BYTES ? m.size : MAX_REF_BYTES;
    while (n > 0 && is_space(s[n - 1]))
        n--;
    while (n > 0 && is_space(*s))
        s++, n--;
    int rc = 0;
    if (buf_append(name, s, n))
        rc = err_oom(e, n);
    else if (strlen(name->data) != n || n > 255 || strchr(name->data, '/') ||
             !is_revision(name->data))
        rc = err_set(e, QWICK_ERR_MODEL,
                     "%s: does not hold the name of a snapshot", path);
    map_close(&m);
    return rc;
}

/* Look for id in the cache at root. On success *dir is the snapshot, or NULL
 * when it is not here; *partly is set when other revisions are. */
static int hub_find_in(const char *root, const struct hub_id *id, char **dir,
                       bool *partly, struct qwick_err *e)
{
    struct buf repo = {0}, path = {0}, ref = {0};
    int rc = -1;

    if (path_set(&repo, root, "/", id->folder)) {
        err_oom(e, MAX_PATH_BYTES);
        goto done;
    }
    if (!is_dir(repo.data)) {
        rc = 0;
        goto done;
    }
    *partly = true;
    if (path_set(&path, repo.data, "/refs/", id->revision)) {
        err_oom(e, MAX_PATH_BYTES);
        goto done;
    }
    if (hub_read_ref(path.data, &ref, e))
        goto done;
    const char *snapshot = ref.len > 0 ? ref.data : id->revision;
    struct buf found = {0};
    if (path_set(&found, repo.data, "/snapshots/", snapshot)) {
        buf_free(&found);
        err_oom(e, MAX_PATH_BYTES);
        goto done;
    }
    if (is_dir(found.data)) {
        *dir = buf_take(&found, NULL);
        rc = 0;
    } else if (ref.len > 0) {
        err_set(e, QWICK_ERR_MODEL,
                "%s: the snapshot %s that it names is missing: download it "
                "again with qwick pull %s",
                path.data, snapshot, id->spec);
    } else {
        rc = 0;
    }
    buf_free(&found);
done:
    buf_free(&repo);
    buf_free(&path);
    buf_free(&ref);
    return rc;
}

int hub_find(struct hub_found *out, const char *spec, struct qwick_err *e)
{
    const char *at = strchr(spec, '@');
    struct hub_id id;
    struct buf root = {0};
    int rc = 0, is = hub_id_parse(&id, spec);
    *out =
        (struct hub_found){.is_id = is > 0,
                           .has_org = strcspn(spec, "/") < strcspn(spec, "@"),
                           .revision = at ? at + 1 : "main"};
    if (is <= 0)
        return is ? err_oom(e, strlen(spec) + 1) : 0;
    for (size_t i = 0; i < HUB_N_PLACES && !rc && !out->dir; i++) {
        int has = place_path(&hub_places[i], &root);
        if (has < 0)
            rc = err_oom(e, MAX_PATH_BYTES);
        else if (has)
            rc =
                hub_find_in(root.data, &id, &out->dir, &out->other_revision, e);
    }
    buf_free(&root);
    hub_id_free(&id);
    return rc;
}
