#include "engine/cache/prefix_disk.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/hash.h"
#include "engine/cache/kv_file.h"
#include "file/fs.h"
#include "qwick_tools.h"

struct prefix_disk {
    char *dir, *root;         /* root: DIR/prefix-1 */
    char *class;              /* the directory of our entries, in root */
    struct kv_file_head mine; /* the head of our entries */
    struct kv_cache shape;    /* empty; gives the size of pages */
    const struct qwick_engine *eng;
    size_t max_bytes;
    struct par_pool *pool;
    bool warned;
    bool told_size;     /* that a prompt is larger than max_bytes */
    bool told_released; /* that a prompt has no keys of old windows */
};

/* ---- names -------------------------------------------------------------- */

/* Text fields are padded with zeros, so all bytes can be hashed. */
static uint64_t hash_class(uint64_t seed, const struct kv_file_head *h)
{
    const uint64_t v[] = {h->version,  h->model[0],   h->model[1],   h->files,
                          h->n_layers, h->n_kv_heads, h->head_dim,   h->exact,
                          h->block,    h->page_bytes, h->state_bytes};
    uint64_t x = hash_bytes(seed, v, sizeof v);
    x = hash_bytes(x, h->kv, sizeof h->kv);
    return hash_bytes(x, h->isa, sizeof h->isa);
}

static bool same_class(const struct kv_file_head *a,
                       const struct kv_file_head *b)
{
    return a->model[0] == b->model[0] && a->model[1] == b->model[1] &&
           a->files == b->files && a->n_layers == b->n_layers &&
           a->n_kv_heads == b->n_kv_heads && a->head_dim == b->head_dim &&
           a->exact == b->exact && a->block == b->block &&
           a->page_bytes == b->page_bytes && a->state_bytes == b->state_bytes &&
           !strcmp(a->kv, b->kv) && !strcmp(a->isa, b->isa);
}

/* Path of the entry that begins with page number `page`; NULL: out of
 * memory. */
static char *entry_path(const struct prefix_disk *d, const int32_t *tokens,
                        size_t page)
{
    size_t n = (page + 1) * KV_BLOCK;
    char *path;
    uint64_t h = hash_bytes(3, tokens, n * sizeof *tokens);
    if (asprintf(&path, "%s/%06zx-%016" PRIx64 ".kv", d->class, page, h) < 0)
        return NULL;
    return path;
}

static int check_dirs(const struct prefix_disk *d, struct qwick_err *e)
{
    return owner_check_dir(d->dir, false, e) ||
                   owner_check_dir(d->root, true, e) ||
                   owner_check_dir(d->class, true, e)
               ? -1
               : 0;
}

int prefix_disk_open(struct prefix_disk **out, struct qwick_engine *eng,
                     size_t lora, const char *dir, size_t max_bytes, struct qwick_err *e)
{
    struct prefix_disk *d = *out = calloc(1, sizeof *d);
    if (!d)
        return err_oom(e, sizeof *d);
    d->eng = eng;
    d->max_bytes = max_bytes;
    d->pool = eng->pool;
    if (!dir && qwick_cache_dir(&d->dir, e))
        goto fail;
    if (dir && !(d->dir = strdup(dir))) {
        err_oom(e, strlen(dir));
        goto fail;
    }
    if (kv_file_describe(&d->mine, eng, lora, KV_FILE_PREFIX, e) ||
        kv_init(&d->shape, eng->kv, &eng->model.config, e))
        goto fail;
    if (asprintf(&d->root, "%s/prefix-%d", d->dir, PREFIX_DIR_VERSION) < 0)
        d->root = NULL;
    if (!d->root ||
        asprintf(&d->class, "%s/%016" PRIx64 "%016" PRIx64, d->root,
                 hash_class(4, &d->mine), hash_class(5, &d->mine)) < 0) {
        d->class = NULL;
        err_oom(e, strlen(d->dir));
        goto fail;
    }
    if (check_dirs(d, e))
        goto fail;
    return 0;
fail:
    prefix_disk_close(d);
    *out = NULL;
    return -1;
}

void prefix_disk_close(struct prefix_disk *d)
{
    if (!d)
        return;
    free(d->dir);
    free(d->root);
    free(d->class);
    kv_free(&d->shape);
    free(d);
}

/* ---- reading ------------------------------------------------------------ */

static bool recurrent(const struct prefix_disk *d)
{
    return d->shape.state.n_layers != 0;
}

static size_t common(const int32_t *a, const int32_t *b, size_t n)
{
    size_t i = 0;
    while (i < n && a[i] == b[i])
        i++;
    return i;
}

/* One search. All entries that it uses get the same time. */
struct walk {
    struct prefix_disk *d;
    const int32_t *tokens;
    size_t n;
    struct timespec now;
    const volatile int *interrupt;
    struct qwick_err *bad;
};

/* Report the first fault only. */
static void tell(struct walk *w, const struct qwick_err *e)
{
    if (!w->d->warned && w->bad) {
        *w->bad = *e;
        w->d->warned = true;
    }
}

static void damaged(struct walk *w, const char *path, const struct qwick_err *e)
{
    unlink(path);
    tell(w, e);
    w->d->warned = true;
}

/* Record the use of an entry. Fails if we may only read it. */
static void touch_entry(const struct walk *w, const struct kv_file *f)
{
    const struct timespec times[2] = {w->now, w->now};
    struct stat st;
    if (fstat(f->fd, &st) || st.st_mtim.tv_sec < w->now.tv_sec ||
        (st.st_mtim.tv_sec == w->now.tv_sec &&
         st.st_mtim.tv_nsec < w->now.tv_nsec))
        (void)futimens(f->fd, times);
}

/* Open the entry that begins with page number `page`. Returns the number of
 * matching tokens, at least up to the end of that page; 0: there is no entry,
 * and f is closed. */
static size_t open_entry(struct walk *w, size_t page, struct kv_file *f)
{
    struct prefix_disk *d = w->d;
    struct qwick_err e;
    enum kv_file_fault fault;
    size_t n = 0;
    *f = (struct kv_file){.fd = -1};
    if ((page + 1) * KV_BLOCK > w->n)
        return 0;
    char *path = entry_path(d, w->tokens, page);
    if (!path)
        return 0;
    if (kv_file_open(f, path, KV_FILE_PREFIX, true, &fault, &e)) {
        if (fault == KV_FILE_DAMAGED)
            damaged(w, path, &e);
        else if (fault == KV_FILE_UNREADABLE)
            tell(w, &e);
    } else if (!same_class(&f->head, &d->mine) || f->head.first_page != page) {
        err_set(&e, QWICK_ERR_RUNTIME, "%s: belongs to another model or place",
                path);
        damaged(w, path, &e);
    } else {
        size_t most = f->head.n_tokens < w->n ? f->head.n_tokens : w->n;
        n = common(f->tokens, w->tokens, most);
        if (n < (page + 1) * KV_BLOCK)
            n = 0;
    }
    if (n) {
        touch_entry(w, f);
    } else {
        kv_file_close(f);
    }
    free(path);
    return n;
}

/* Give memory for its snapshot to the last of n pages, of the file's from page
 * i on, that carries one: a sequence goes on there. */
static void want_snapshot(struct walk *w, const struct kv_file *f, size_t i,
                          size_t n, struct kv_page **pages)
{
    while (n && !kv_file_has_state(f, i + n - 1))
        n--;
    if (n)
        pages[n - 1]->state = state_snapshot_new(&w->d->shape.state);
}

/* Read pages [page, end) of the context from the entry. Returns the number of
 * good pages. */
static size_t read_pages(struct walk *w, const struct kv_file *f, size_t page,
                         size_t end, struct kv_page **pages)
{
    struct prefix_disk *d = w->d;
    struct qwick_err e;
    enum kv_file_fault fault;
    size_t n = 0, good;
    while (n < end - page && (pages[n] = kv_page_new(&d->shape)) != NULL)
        n++;
    want_snapshot(w, f, page - f->head.first_page, n, pages);
    good = kv_file_pages(f, page - f->head.first_page, n, pages, d->pool,
                         w->interrupt, &fault, &e);
    if (good < n && fault == KV_FILE_DAMAGED)
        damaged(w, f->path, &e);
    else if (good < n && e.code != QWICK_ERR_INTERRUPTED)
        tell(w, &e);
    while (n > good)
        kv_page_drop(&d->shape, pages[--n]);
    return good;
}

static struct walk begin(struct prefix_disk *d, const int32_t *tokens, size_t n,
                         struct qwick_err *bad)
{
    struct walk w = {.d = d, .tokens = tokens, .n = n, .bad = bad};
    clock_gettime(CLOCK_REALTIME, &w.now);
    return w;
}

size_t prefix_disk_find(struct prefix_disk *d, const int32_t *tokens, size_t n,
                        size_t first, struct kv_page **pages, size_t *n_pages,
                        const volatile int *interrupt, struct qwick_err *bad)
{
    struct walk w = begin(d, tokens, n, bad);
    struct kv_file last = {.fd = -1}, f;
    size_t at = first, done = 0, m, n_read;
    *n_pages = 0;
    w.interrupt = interrupt;
    while ((m = open_entry(&w, at, &f)) != 0) {
        size_t end = m / KV_BLOCK;
        kv_file_close(&last);
        last = f;
        n_read = read_pages(&w, &f, at, end, pages + *n_pages);
        *n_pages += n_read;
        at += n_read;
        done = at * KV_BLOCK;
        if (at < end)
            goto end;
        done = m;
    }
    /* no other entry matches more of the next page than the last entry */
    if (done > at * KV_BLOCK && !recurrent(d)) {
        n_read = read_pages(&w, &last, at, at + 1, pages + *n_pages);
        *n_pages += n_read;
        if (!n_read)
            done = at * KV_BLOCK;
    }
end:
    kv_file_close(&last);
    if (recurrent(d)) {
        while (*n_pages && !pages[*n_pages - 1]->state)
            kv_page_drop(&d->shape, pages[--*n_pages]);
        done = (first + *n_pages) * KV_BLOCK;
    }
    return *n_pages ? done : 0;
}

/* ---- writing ------------------------------------------------------------ */

static int write_entry(struct walk *w, size_t first, const struct kv_cache *kv,
                       struct qwick_err *e)
{
    struct prefix_disk *d = w->d;
    char *path = entry_path(d, w->tokens, first);
    int rc = -1;
    if (!path)
        return err_oom(e, strlen(d->class));
    /* try twice: another process may remove the empty directory in between */
    for (int i = 0; i < 2 && rc; i++) {
        struct kv_file_head head = d->mine;
        head.n_tokens = w->n;
        head.first_page = first;
        if (make_dirs(d->class, strlen(d->class), 0700, e) || check_dirs(d, e))
            break;
        rc = kv_file_write(path, &head, w->tokens, NULL, NULL, kv, &w->now, e);
        if (!rc || access(d->class, F_OK) == 0)
            break;
    }
    free(path);
    return rc;
}

/* How many of the first n_pages pages are worth an entry: with recurrent layers
 * those up to the last one with a snapshot. */
static size_t worth_storing(const struct prefix_disk *d,
                            const struct kv_cache *kv, size_t n_pages)
{
    while (recurrent(d) && n_pages && !kv->pages[n_pages - 1]->state)
        n_pages--;
    return n_pages;
}

static void warn_size(struct prefix_disk *d, size_t n_tokens, size_t bytes)
{
    if (!d->told_size)
        engine_warn(d->eng,
                    "prefix cache: %zu tokens take %.3g MB, the limit is %.3g "
                    "MB: not stored",
                    n_tokens, (double)bytes / 1e6, (double)d->max_bytes / 1e6);
    d->told_size = true;
}

/* Sessions from files have such pages (see session_file.c). */
static void warn_released(struct prefix_disk *d)
{
    if (!d->told_released)
        engine_warn(d->eng, "prefix cache: the session's file has no keys and "
                            "values before the sliding window: not stored");
    d->told_released = true;
}

/* The pages of kv that are not on disk. */
struct unstored {
    size_t first, end;
    size_t bytes;
};

/* Find the pages of the walk that no entry has, and check that they can be
 * stored; otherwise there are none. */
static struct unstored find_unstored(struct walk *w, const struct kv_cache *kv)
{
    struct prefix_disk *d = w->d;
    struct unstored u = {.end = w->n / KV_BLOCK};
    struct kv_file f;
    size_t m;
    while (u.first < u.end && (m = open_entry(w, u.first, &f)) != 0) {
        kv_file_close(&f);
        u.first = m / KV_BLOCK;
    }
    for (size_t i = u.first; i < u.end; i++) {
        if (kv->pages[i]->released) {
            warn_released(d);
            u.end = u.first;
        }
        u.bytes += kv_page_bytes(kv, kv->pages[i]);
    }
    if (u.first < u.end && u.bytes > d->max_bytes) {
        warn_size(d, w->n, u.bytes);
        u.end = u.first;
    }
    return u;
}

int prefix_disk_store(struct prefix_disk *d, const int32_t *tokens, size_t n,
                      const struct kv_cache *kv, struct qwick_err *e)
{
    size_t whole = worth_storing(d, kv, n / KV_BLOCK);
    struct walk w = begin(d, tokens, whole * KV_BLOCK, NULL);
    struct unstored u = find_unstored(&w, kv);
    if (u.first == u.end)
        return 0;
    if (engine_check_unchanged(d->eng, e) || write_entry(&w, u.first, kv, e))
        return -1;
    return prefix_disk_trim(d, e);
}

/* An entry of prefix_disk_put ends after this many bytes. Writing it takes a
 * fraction of a second. */
enum { PUT_BYTES = 64 << 20 };

/* Where an entry that begins with page `first` ends. */
static size_t entry_end(const struct prefix_disk *d, const struct kv_cache *kv,
                        const struct unstored *u, size_t first)
{
    size_t bytes = 0, i = first;
    while (i < u->end) {
        const struct kv_page *page = kv->pages[i++];
        bytes += kv_page_bytes(kv, page);
        if (bytes >= PUT_BYTES && (!recurrent(d) || page->state))
            break;
    }
    return i;
}

int prefix_disk_put(struct prefix_disk *d, const int32_t *tokens, size_t n,
                    const struct kv_cache *kv, const struct prefix_put *how,
                    struct qwick_err *e)
{
    size_t whole = worth_storing(d, kv, n / KV_BLOCK);
    struct walk w = begin(d, tokens, whole * KV_BLOCK, NULL);
    w.now = how->time;
    struct unstored u = find_unstored(&w, kv);
    if (u.first < u.end && engine_check_unchanged(d->eng, e))
        return -1;
    for (size_t i = u.first; i < u.end; i = w.n / KV_BLOCK) {
        if (flag_is_set(how->interrupt) ||
            (how->deadline_ms > 0 && clock_ms() >= how->deadline_ms))
            return 1;
        w.n = entry_end(d, kv, &u, i) * KV_BLOCK;
        if (write_entry(&w, i, kv, e))
            return -1;
    }
    return 0;
}

int prefix_disk_trim(struct prefix_disk *d, struct qwick_err *e)
{
    return qwick_cache_gc(d->dir, d->max_bytes, NULL, NULL, e);
}

size_t prefix_disk_budget(const struct prefix_disk *d)
{
    return d->max_bytes;
}
