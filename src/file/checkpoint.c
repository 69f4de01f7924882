#include "file/checkpoint.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/array.h"
#include "base/buf.h"
#include "file/builtin.h"
#include "file/gguf.h"
#include "file/gguf_pick.h"

struct checkpoint {
    char *name;
    char *dir; /* or the GGUF file */
    bool builtin;
    struct gguf *gguf; /* or NULL */
};

enum { MAX_PATH_BYTES = 4096, MAX_REF_BYTES = 4096 };

/* ---- the Hugging Face cache ---------------------------------------------- */

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

/* One word of a repository's name, by the hub's own rules: letters, digits,
 * '_', '.', '-'; no "--" (which separates the words in the cache) or "..". */
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

/* path = all the parts; -1 when there is no memory for it. */
static int path_set(struct buf *path, const char *a, const char *b,
                    const char *c)
{
    path->len = 0;
    return buf_puts(path, a) || buf_puts(path, b) || buf_puts(path, c) ? -1 : 0;
}

/* The snapshot's name that the ref file at path holds, into name (empty: there
 * is no such file). */
static int read_ref(const char *path, struct buf *name, struct qwick_err *e)
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
    if (read_ref(path.data, &ref, e))
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
                "again with qwick-pull %s",
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

/* The i-th place where a cache may be; 1, 0 when its variable is unset, -1
 * out of memory, -2 from the end on. */
static int hub_root(size_t i, struct buf *root)
{
    static const struct {
        const char *variable, *below;
    } roots[] = {
        {"HF_HUB_CACHE", ""},
        {"HF_HOME", "/hub"},
        {"XDG_CACHE_HOME", "/huggingface/hub"},
        {"HOME", "/.cache/huggingface/hub"},
    };
    if (i >= sizeof roots / sizeof *roots)
        return -2;
    const char *v = getenv(roots[i].variable);
    if (!v || !*v)
        return 0;
    return path_set(root, v, roots[i].below, "") ? -1 : 1;
}

static int hub_find(const struct hub_id *id, const char *spec, char **dir,
                    struct qwick_err *e)
{
    struct buf root = {0}, looked = {0};
    bool partly = false;
    int rc = -1, has;

    for (size_t i = 0; !*dir && (has = hub_root(i, &root)) != -2; i++) {
        if (has == 0)
            continue;
        if (has < 0 || (looked.len > 0 && buf_puts(&looked, ", ")) ||
            buf_puts(&looked, root.data)) {
            err_oom(e, MAX_PATH_BYTES);
            goto done;
        }
        if (hub_find_in(root.data, id, dir, &partly, e))
            goto done;
    }
    if (*dir)
        rc = 0;
    else if (partly)
        err_set(e, QWICK_ERR_MODEL,
                "%s: no such directory, and the Hugging Face cache %s has not "
                "its revision %s: download it with qwick-pull %s",
                spec, looked.data, id->revision, spec);
    else
        err_set(e, QWICK_ERR_MODEL,
                "%s: no such directory, and not in the Hugging Face cache%s%s: "
                "download it with qwick-pull %s",
                spec, looked.len > 0 ? " " : "",
                looked.len > 0 ? looked.data : " (HOME is not set)", spec);
done:
    buf_free(&root);
    buf_free(&looked);
    return rc;
}

/* ---- checkpoints --------------------------------------------------------- */

static bool ends_in(const char *s, const char *end)
{
    size_t n = strlen(s), m = strlen(end);
    return n >= m && strcmp(s + n - m, end) == 0;
}

/* The directory or file that spec means, malloc'ed. */
static int resolve(char **dir, const char *spec, struct qwick_err *e)
{
    struct stat st;
    if (stat(spec, &st) == 0) {
        *dir = strdup(spec);
        return *dir ? 0 : err_oom(e, strlen(spec) + 1);
    }
    int err = errno;
    if (err != ENOENT && err != ENOTDIR)
        return err_set(e, QWICK_ERR_MODEL, "%s: cannot open: %s", spec,
                       strerror(err));
    if (ends_in(spec, ".gguf"))
        return err_set(e, QWICK_ERR_MODEL, "%s: no such file", spec);
    struct hub_id id;
    int is = hub_id_parse(&id, spec);
    if (is < 0)
        return err_oom(e, strlen(spec) + 1);
    if (is == 0)
        return err_set(e, QWICK_ERR_MODEL, "%s: no such directory", spec);
    int rc = hub_find(&id, spec, dir, e);
    hub_id_free(&id);
    return rc;
}

/* A clone of a repository without Git LFS has a few lines of text in place of
 * each large file: version, oid, size. */
static int check_pointer(struct map *m, const char *path, struct qwick_err *e)
{
    static const char magic[] = "version https://git-lfs.github.com/spec/";
    if (m->size < sizeof magic - 1 || m->size > 1024 ||
        memcmp(m->data, magic, sizeof magic - 1) != 0)
        return 0;
    map_close(m);
    return err_set(e, QWICK_ERR_MODEL,
                   "%s: is a Git LFS pointer, not the file itself: fetch it "
                   "with git lfs pull, or with qwick-pull",
                   path);
}

static const char *separator(const struct checkpoint *ck)
{
    return strcmp(ck->dir, "/") == 0 ? "" : "/";
}

/* The file at ck->dir, which must be GGUF's by its first bytes (stores of
 * models drop the suffix) or its name. */
static int open_file(struct checkpoint *ck, struct qwick_err *e)
{
    struct map map;
    if (map_open(&map, ck->dir, e))
        return -1;
    bool is = gguf_is(&map) || ends_in(ck->dir, ".gguf");
    int rc = is ? check_pointer(&map, ck->dir, e) : 0;
    if (!rc)
        map_close(&map);
    if (rc || is)
        return rc ? rc : gguf_open(&ck->gguf, ck->dir, e);
    return err_set(e, QWICK_ERR_MODEL,
                   "%s: is a file, not a checkpoint directory or a GGUF file: "
                   "name the directory that holds it",
                   ck->dir);
}

/* The directory at ck->dir: a checkpoint, or one with GGUF files, of which the
 * one of this type counts (NULL: the only one). */
static int open_dir(struct checkpoint *ck, const char *type,
                    struct qwick_err *e)
{
    char path[MAX_PATH_BYTES];
    struct stat st;
    char **names;
    size_t n;
    checkpoint_path(ck, "config.json", path, sizeof path);
    if (!type && lstat(path, &st) == 0)
        return 0;
    if (checkpoint_list(ck, ".gguf", &names, &n, e))
        return -1;
    int rc = 0;
    if (n > 0 || type) {
        struct buf file = {0};
        int at = gguf_pick((const char *const *)names, n, type, ck->dir, e);
        rc = at < 0 ? -1 : path_set(&file, ck->dir, separator(ck), names[at]);
        if (at >= 0 && rc)
            err_oom(e, MAX_PATH_BYTES);
        if (!rc) {
            free(ck->dir);
            ck->dir = buf_take(&file, NULL);
            rc = open_file(ck, e);
        }
        buf_free(&file);
    }
    checkpoint_list_free(names, n);
    return rc;
}

/* Where the type of a GGUF file begins in "ID:TYPE" or "DIRECTORY:TYPE", at the
 * colon; NULL: spec has none. */
static const char *find_type(const char *spec)
{
    struct stat st;
    const char *slash = strrchr(spec, '/');
    const char *colon = strchr(slash ? slash : spec, ':');
    return colon && stat(spec, &st) != 0 ? colon : NULL;
}

/* Find and open what spec names. */
static int open_spec(struct checkpoint *ck, const char *spec,
                     struct qwick_err *e)
{
    const char *colon = find_type(spec);
    char *base = colon ? strndup(spec, (size_t)(colon - spec)) : strdup(spec);
    if (!base)
        return err_oom(e, strlen(spec) + 1);
    int rc = resolve(&ck->dir, base, e);
    free(base);
    if (rc)
        return rc;
    /* "DIR//" and "DIR" read the same in messages. */
    size_t n = strlen(ck->dir);
    while (n > 1 && ck->dir[n - 1] == '/')
        ck->dir[--n] = '\0';
    return is_dir(ck->dir) ? open_dir(ck, colon ? colon + 1 : NULL, e)
                           : open_file(ck, e);
}

int checkpoint_open(struct checkpoint **out, const char *spec,
                    struct qwick_err *e)
{
    *out = NULL;
    if (spec && !*spec)
        return err_set(e, QWICK_ERR_MODEL,
                       "model: the name is empty: give a directory or a hub "
                       "id such as Qwen/Qwen3-0.6B");
    struct checkpoint *ck = calloc(1, sizeof *ck);
    if (!ck)
        return err_oom(e, sizeof *ck);
    ck->builtin = !spec;
    ck->name = strdup(spec ? spec : "qwick-demo");
    if (!ck->name) {
        err_oom(e, strlen(spec ? spec : "qwick-demo") + 1);
        goto fail;
    }
    if (spec) {
        if (open_spec(ck, spec, e))
            goto fail;
    } else {
        ck->dir = strdup("built-in");
        if (!ck->dir) {
            err_oom(e, sizeof "built-in");
            goto fail;
        }
    }
    *out = ck;
    return 0;
fail:
    checkpoint_close(ck);
    return -1;
}

void checkpoint_close(struct checkpoint *ck)
{
    if (!ck)
        return;
    gguf_close(ck->gguf);
    free(ck->name);
    free(ck->dir);
    free(ck);
}

const char *checkpoint_name(const struct checkpoint *ck)
{
    return ck->name;
}

const char *checkpoint_dir(const struct checkpoint *ck)
{
    return ck->dir;
}

const struct gguf *checkpoint_gguf(const struct checkpoint *ck)
{
    return ck->gguf;
}

int checkpoint_map(const struct checkpoint *ck, const char *name,
                   struct map *out, bool *found, struct qwick_err *e)
{
    *out = (struct map){0};
    *found = false;
    if (!*name || strchr(name, '/') || strcmp(name, ".") == 0 ||
        strcmp(name, "..") == 0)
        return err_set(e, QWICK_ERR_MODEL, "%s: %s: not a plain file name",
                       ck->dir, name);
    if (ck->gguf)
        return 0;
    if (ck->builtin) {
        struct builtin_file f;
        if (builtin_find(name, &f) == 0) {
            out->data = f.data;
            out->size = f.size;
            *found = true;
        }
        return 0;
    }
    struct buf path = {0};
    if (buf_puts(&path, ck->dir) || buf_puts(&path, separator(ck)) ||
        buf_puts(&path, name)) {
        buf_free(&path);
        return err_oom(e, strlen(ck->dir) + strlen(name) + 2);
    }
    struct stat st;
    int rc = 0;
    /* lstat, so that a link whose target is gone (a pruned or unfinished hub
     * cache) is an error, not a file that was never there. */
    if (lstat(path.data, &st)) {
        if (errno != ENOENT)
            rc = err_set(e, QWICK_ERR_MODEL, "%s: cannot open: %s", path.data,
                         strerror(errno));
    } else if (S_ISLNK(st.st_mode) && stat(path.data, &st) && errno == ENOENT) {
        rc = err_set(e, QWICK_ERR_MODEL,
                     "%s: a symbolic link to a file that is missing: "
                     "incomplete download?",
                     path.data);
    } else {
        rc = map_open(out, path.data, e);
        if (!rc)
            rc = check_pointer(out, path.data, e);
        *found = rc == 0;
    }
    buf_free(&path);
    return rc;
}

int checkpoint_map_small(const struct checkpoint *ck, const char *name,
                         struct map *out, bool *found, struct qwick_err *e)
{
    if (checkpoint_map(ck, name, out, found, e))
        return -1;
    size_t n = out->size;
    if (n <= CHECKPOINT_SMALL)
        return 0;
    map_close(out);
    *found = false;
    return err_set(e, QWICK_ERR_MODEL,
                   "%s%s%s: %zu bytes are above the limit of %zu", ck->dir,
                   separator(ck), name, n, CHECKPOINT_SMALL);
}

void checkpoint_path(const struct checkpoint *ck, const char *name, char *out,
                     size_t n)
{
    const char *slash = ck->gguf ? strrchr(ck->dir, '/') : NULL;
    if (ck->gguf)
        snprintf(out, n, "%.*s%s", slash ? (int)(slash + 1 - ck->dir) : 0,
                 ck->dir, name);
    else
        snprintf(out, n, "%s%s%s", ck->dir, separator(ck), name);
}

/* ---- listing ------------------------------------------------------------- */

struct names {
    char **v;
    size_t n, cap;
};

static int names_add(struct names *l, const char *name, const char *suffix)
{
    size_t n = strlen(name), m = strlen(suffix);
    if (n < m || strcmp(name + n - m, suffix) != 0)
        return 0;
    if (ARRAY_RESERVE(l->v, l->cap, l->n + 1, NULL))
        return -1;
    l->v[l->n] = strdup(name);
    if (!l->v[l->n])
        return -1;
    l->n++;
    return 0;
}

static int by_name(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

int checkpoint_list(const struct checkpoint *ck, const char *suffix,
                    char ***names, size_t *n, struct qwick_err *e)
{
    struct names l = {0};
    *names = NULL;
    *n = 0;
    if (ck->gguf)
        return 0;
    if (ck->builtin) {
        struct builtin_file f;
        for (size_t i = 0; builtin_at(i, &f) == 0; i++) {
            if (names_add(&l, f.name, suffix)) {
                err_oom(e, strlen(f.name) + 1);
                goto fail;
            }
        }
    } else {
        DIR *d = opendir(ck->dir);
        if (!d)
            return err_set(e, QWICK_ERR_MODEL, "%s: cannot list: %s", ck->dir,
                           strerror(errno));
        struct dirent *ent;
        int rc = 0;
        while (!rc && (errno = 0, ent = readdir(d)) != NULL) {
            /* Hidden files are no part of a checkpoint ("._model.safetensors"
             * of foreign file systems). */
            if (ent->d_name[0] != '.' && names_add(&l, ent->d_name, suffix))
                rc = err_oom(e, strlen(ent->d_name) + 1);
        }
        if (!rc && errno)
            rc = err_set(e, QWICK_ERR_MODEL, "%s: cannot list: %s", ck->dir,
                         strerror(errno));
        closedir(d);
        if (rc)
            goto fail;
    }
    if (l.n > 0)
        qsort(l.v, l.n, sizeof *l.v, by_name);
    *names = l.v;
    *n = l.n;
    return 0;
fail:
    checkpoint_list_free(l.v, l.n);
    return -1;
}

void checkpoint_list_free(char **names, size_t n)
{
    for (size_t i = 0; i < n; i++)
        free(names[i]);
    free(names);
}
