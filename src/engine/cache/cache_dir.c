/* The directory of the prefix cache: lists its entries and removes old ones. The
 * results of probes are in it, too. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "engine/cache/kv_file.h"
#include "engine/cache/prefix_disk.h"
#include "engine/cache/tuning_file.h"
#include "qwick_tools.h"

/* A temporary file of this age is left over: its writer is gone. */
enum { STALE_SECONDS = 3600 };

/* A file that is newer than now by more than this was written before the clock was
 * set back. Clocks of machines that share a cache differ by less. */
enum { SKEW_SECONDS = 60 };

int qwick_cache_dir(char **dir, struct qwick_err *e)
{
    const char *base = getenv("XDG_CACHE_HOME"), *sub = "";
    *dir = NULL;
    if (!base || *base != '/') { /* XDG: a relative path is invalid */
        base = getenv("HOME");
        sub = "/.cache";
    }
    if (!base || !*base)
        return err_set(e, QWICK_ERR_USAGE,
                       "no directory for the cache: neither XDG_CACHE_HOME "
                       "nor HOME is set");
    if (asprintf(dir, "%s%s/qwick", base, sub) < 0) {
        *dir = NULL;
        return err_oom(e, strlen(base));
    }
    return 0;
}

/* ---- scanning ----------------------------------------------------------- */

struct found {
    char *path;
    struct timespec used;
    size_t n_bytes, page;
    bool temporary;
    bool tuning; /* the result of a probe */
    bool future; /* used at a time that has not come yet */
};

struct scan {
    char *root; /* DIR/prefix-1 */
    struct found *v;
    size_t n, cap;
    time_t now;
};

static size_t count_hex(const char *s)
{
    return strspn(s, "0123456789abcdef");
}

/* Whether a name is that of an entry: "PAGE-HASH.kv". */
static bool parse_name(const char *name, size_t *page, bool *temporary)
{
    size_t n = count_hex(name);
    *page = 0;
    if (n < 6 || n > 12 || name[n] != '-')
        return false;
    *page = strtoul(name, NULL, 16);
    name += n + 1;
    if (count_hex(name) != 16 || strncmp(name + 16, ".kv", 3) != 0)
        return false;
    name += 19;
    *temporary = *name != 0;
    return !*name || (!strncmp(name, ".tmp-", 5) && count_hex(name + 5) == 16 &&
                      !name[21]);
}

static int add(struct scan *s, struct found *f, struct qwick_err *e)
{
    if (s->n == s->cap) {
        size_t cap = s->cap ? 2 * s->cap : 64;
        struct found *v = realloc(s->v, cap * sizeof *v);
        if (!v)
            return err_oom(e, cap * sizeof *v);
        s->v = v;
        s->cap = cap;
    }
    s->v[s->n++] = *f;
    return 0;
}

/* Add the files of a directory: entries, or results of probes. */
static int scan_files(struct scan *s, const char *dir, bool tuning, int flags,
                      struct qwick_err *e)
{
    int fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC | flags);
    DIR *d = fd < 0 ? NULL : fdopendir(fd);
    int rc = 0;
    if (!d) {
        if (fd >= 0)
            close(fd);
        return 0; /* not a directory, or removed since */
    }
    for (struct dirent *entry; !rc && (entry = readdir(d)) != NULL;) {
        struct found f = {.tuning = tuning};
        struct stat st;
        if (!(tuning ? tuning_file_name(entry->d_name, &f.temporary)
                     : parse_name(entry->d_name, &f.page, &f.temporary)) ||
            fstatat(fd, entry->d_name, &st, AT_SYMLINK_NOFOLLOW) ||
            !S_ISREG(st.st_mode))
            continue;
        f.n_bytes = (size_t)st.st_size;
        f.used = st.st_mtim;
        f.future = st.st_mtim.tv_sec > s->now + SKEW_SECONDS;
        if (asprintf(&f.path, "%s/%s", dir, entry->d_name) < 0)
            rc = err_oom(e, strlen(dir));
        else if ((rc = add(s, &f, e)) != 0)
            free(f.path);
    }
    closedir(d);
    return rc;
}

static int scan_class(struct scan *s, const char *class, struct qwick_err *e)
{
    return scan_files(s, class, false, O_NOFOLLOW, e);
}

/* Call fn for each directory of a class. */
static int each_class(const char *root, struct qwick_err *e,
                      int (*fn)(struct scan *, const char *,
                                struct qwick_err *),
                      struct scan *s)
{
    DIR *d = opendir(root);
    int rc = 0;
    if (!d)
        return errno == ENOENT
                   ? 0
                   : err_set(e, QWICK_ERR_RUNTIME, "%s: cannot read: %s", root,
                             strerror(errno));
    for (struct dirent *entry; !rc && (entry = readdir(d)) != NULL;) {
        char *class;
        if (strlen(entry->d_name) != 32 || count_hex(entry->d_name) != 32)
            continue;
        if (asprintf(&class, "%s/%s", root, entry->d_name) < 0) {
            rc = err_oom(e, strlen(root));
            break;
        }
        rc = fn(s, class, e);
        free(class);
    }
    closedir(d);
    return rc;
}

/* Least recently used first. If the clock was set back, entries with later times
 * were used before all others; in their place by time they would stay for
 * good. At equal times, an entry goes before the entries that it depends on. */
static int by_use(const void *a, const void *b)
{
    const struct found *x = a, *y = b;
    if (x->future != y->future)
        return x->future ? -1 : 1;
    if (x->used.tv_sec != y->used.tv_sec)
        return x->used.tv_sec < y->used.tv_sec ? -1 : 1;
    if (x->used.tv_nsec != y->used.tv_nsec)
        return x->used.tv_nsec < y->used.tv_nsec ? -1 : 1;
    if (x->page != y->page)
        return x->page > y->page ? -1 : 1;
    return strcmp(x->path, y->path);
}

static void scan_free(struct scan *s)
{
    for (size_t i = 0; i < s->n; i++)
        free(s->v[i].path);
    free(s->v);
    free(s->root);
}

static int scan_open(struct scan *s, const char *dir, struct qwick_err *e)
{
    char *own = NULL;
    *s = (struct scan){.now = time(NULL)};
    if (!dir) {
        if (qwick_cache_dir(&own, e))
            return -1;
        dir = own;
    }
    if (asprintf(&s->root, "%s/prefix-%d", dir, PREFIX_DIR_VERSION) < 0) {
        s->root = NULL;
        err_oom(e, strlen(dir));
    }
    int bad = s->root ? scan_files(s, dir, true, 0, e) : -1;
    free(own);
    if (bad || each_class(s->root, e, scan_class, s)) {
        scan_free(s);
        return -1;
    }
    if (s->n)
        qsort(s->v, s->n, sizeof *s->v, by_use);
    return 0;
}

/* ---- what callers see --------------------------------------------------- */

static int drop_empty(struct scan *s, const char *class, struct qwick_err *e)
{
    (void)s;
    (void)e;
    (void)rmdir(class); /* fails unless it is empty */
    return 0;
}

/* Return whether a file counts against the maximum size. */
static bool counts(const struct found *f)
{
    return !f->temporary && !f->tuning;
}

int qwick_cache_gc(const char *dir, size_t max_bytes, size_t *n_removed,
                   size_t *bytes_removed, struct qwick_err *e)
{
    struct scan s;
    size_t total = 0, n = 0, bytes = 0;
    int rc = 0;
    if (scan_open(&s, dir, e))
        return -1;
    for (size_t i = 0; i < s.n; i++)
        total += counts(&s.v[i]) ? s.v[i].n_bytes : 0;
    for (size_t i = 0; i < s.n && !rc; i++) {
        const struct found *f = &s.v[i];
        bool stale = f->temporary &&
                     (f->future || s.now - f->used.tv_sec > STALE_SECONDS);
        if (counts(f) ? total <= max_bytes : !stale && max_bytes)
            continue;
        if (unlink(f->path) && errno != ENOENT) {
            rc = err_set(e, QWICK_ERR_RUNTIME, "%s: cannot remove: %s", f->path,
                         strerror(errno));
            break;
        }
        total -= counts(f) ? f->n_bytes : 0;
        bytes += f->n_bytes;
        n++;
    }
    if (n)
        each_class(s.root, NULL, drop_empty, &s);
    scan_free(&s);
    if (n_removed)
        *n_removed = n;
    if (bytes_removed)
        *bytes_removed = bytes;
    return rc;
}

int qwick_cache_list(const char *dir, struct qwick_cache_entry **out, size_t *n,
                     struct qwick_err *e)
{
    struct scan s;
    *out = NULL;
    *n = 0;
    if (scan_open(&s, dir, e))
        return -1;
    struct qwick_cache_entry *v = calloc(s.n + 1, sizeof *v);
    if (!v) {
        scan_free(&s);
        return err_oom(e, s.n * sizeof *v);
    }
    for (size_t i = s.n; i-- > 0;) {
        struct found *f = &s.v[i];
        struct qwick_cache_entry *entry = &v[*n];
        struct kv_file file;
        if (f->temporary)
            continue;
        *entry = (struct qwick_cache_entry){
            .path = f->path,
            .n_bytes = f->n_bytes,
            .used = (double)f->used.tv_sec + (double)f->used.tv_nsec / 1e9,
        };
        f->path = NULL;
        ++*n;
        entry->tuning = f->tuning;
        if (f->tuning)
            continue;
        struct qwick_err why;
        if (kv_file_open(&file, entry->path, KV_FILE_PREFIX, false, NULL,
                         &why)) {
            if (why.code == QWICK_ERR_MEMORY) {
                qwick_cache_list_free(v, *n);
                *n = 0;
                scan_free(&s);
                return err_set(e, why.code, "%s", why.msg);
            }
            entry->damaged = true;
            continue;
        }
        snprintf(entry->model, sizeof entry->model, "%s", file.head.model_name);
        snprintf(entry->kv, sizeof entry->kv, "%s", file.head.kv);
        snprintf(entry->isa, sizeof entry->isa, "%s", file.head.isa);
        entry->exact = file.head.exact != 0;
        entry->n_tokens = file.head.n_tokens;
        entry->first = file.head.first_page * KV_BLOCK;
        kv_file_close(&file);
    }
    scan_free(&s);
    *out = v;
    return 0;
}

void qwick_cache_list_free(struct qwick_cache_entry *v, size_t n)
{
    for (size_t i = 0; i < n; i++)
        free(v[i].path);
    free(v);
}
