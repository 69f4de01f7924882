#include "engine/cache/kv_file.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/flag.h"
#include "base/hash.h"
#include "base/par.h"
#include "file/fs.h"
#include "file/save.h"

static const char MAGIC[8] = {'q', 'w', 'i', 'c', 'k', '-', 'k', 'v'};

/* A change of the layout must come with a change of the version. */
_Static_assert(sizeof(struct kv_file_head) == 296, "as in files");

/* ---- hashes ------------------------------------------------------------- */

static uint64_t hash_head(const struct kv_file_head *h)
{
    return hash_bytes(1, h, offsetof(struct kv_file_head, head_hash));
}

/* Whether a hash is wrong. Fuzz targets go on without comparing: no mutation of
 * a file hits a hash. */
static bool differ(uint64_t a, uint64_t b)
{
#ifdef FUZZING_BUILD_MODE_UNSAFE_FOR_PRODUCTION
    (void)a;
    (void)b;
    return false;
#else
    return a != b;
#endif
}

/* Pages, snapshots and the live state. */
static size_t n_pieces(const struct kv_file_head *h)
{
    return h->n_pages + h->n_states + (h->live_bytes != 0);
}

static uint64_t hash_tables(const struct kv_file_head *h, const int32_t *tokens,
                            const uint64_t *marks, const uint64_t *hashes,
                            const float *logits, const char *note)
{
    uint64_t x = hash_bytes(2, tokens, h->n_tokens * sizeof *tokens);
    if (h->n_states)
        x = hash_bytes(x, marks, h->n_states * sizeof *marks);
    x = hash_bytes(x, hashes, n_pieces(h) * sizeof *hashes);
    if (logits)
        x = hash_bytes(x, logits, h->n_logits * sizeof *logits);
    return h->n_note ? hash_bytes(x, note, h->n_note) : x;
}

/* Hashes of pieces are seeded: pages by their numbers, the others by these plus
 * the number of the page after which the state is. */
#define SEED_STATE ((uint64_t)1 << 62)
#define SEED_LIVE  ((uint64_t)1 << 63)

/* ---- sizes -------------------------------------------------------------- */

/* Compute the offsets of the pages and of the file's end. -1: overflow. */
static int layout(const struct kv_file_head *h, size_t *data_at, size_t *end)
{
    size_t n, at = sizeof *h;
    return size_mul(h->n_tokens, sizeof(int32_t), &n) || size_add(at, n, &at) ||
                   size_mul(h->n_states, 2 * sizeof(uint64_t), &n) ||
                   size_add(at, n, &at) ||
                   size_mul(h->n_pages, sizeof(uint64_t), &n) ||
                   size_add(at, n, &at) ||
                   size_add(at, h->live_bytes ? sizeof(uint64_t) : 0, &at) ||
                   size_mul(h->n_logits, sizeof(float), &n) ||
                   size_add(at, n, &at) || size_add(at, h->n_note, &at) ||
                   size_add(at, KV_FILE_ALIGN - 1, &at) ||
                   size_mul(h->n_pages, h->page_bytes, &n) ||
                   size_add(*data_at = at / KV_FILE_ALIGN * KV_FILE_ALIGN, n,
                            end) ||
                   size_mul(h->n_states, h->state_bytes, &n) ||
                   size_add(*end, n, end) || size_add(*end, h->live_bytes, end)
               ? -1
               : 0;
}

int kv_file_describe(struct kv_file_head *h, struct qwick_engine *eng,
                     size_t lora, enum kv_file_kind kind, struct qwick_err *e)
{
    struct fingerprint print;
    struct kv_cache kv; /* empty; tells the size of pages */
    if (engine_fingerprint(eng, lora, &print, e) ||
        kv_init(&kv, eng->kv, &eng->model.config, e))
        return -1;
    memset(h, 0, sizeof *h);
    memcpy(h->magic, MAGIC, sizeof MAGIC);
    h->version = KV_FILE_VERSION;
    h->kind = kind;
    h->model[0] = print.model[0];
    h->model[1] = print.model[1];
    h->files = print.files;
    h->n_layers = kv.n_layers;
    h->n_kv_heads = eng->model.config.n_kv_heads;
    h->head_dim = eng->model.config.head_dim;
    h->page_bytes = kv.page_bytes;
    h->state_bytes = state_snapshot_bytes(&kv.state);
    kv_free(&kv);
    h->exact = eng->model.exact;
    h->block = KV_BLOCK;
    snprintf(h->kv, sizeof h->kv, "%s", eng->info.kv_dtype);
    snprintf(h->isa, sizeof h->isa, "%s", eng->info.isa);
    snprintf(h->model_name, sizeof h->model_name, "%s", eng->info.model);
    return 0;
}

/* ---- writing ------------------------------------------------------------ */

/* The contents of a file. */
struct content {
    const int32_t *tokens;
    const float *logits;
    const char *note;
    uint64_t *marks, *hashes;
    struct kv_page **pages;
    struct kv_page *last; /* a copy of the last page in part, or NULL */
    float *live;          /* NULL: none */
    const struct timespec *time; /* NULL: now */
};

static int write_body(int fd, const struct kv_file_head *h, size_t data_at,
                      const struct content *c)
{
    static const char zeros[KV_FILE_ALIGN];
    size_t n = sizeof *h + h->n_tokens * sizeof *c->tokens +
               h->n_states * sizeof *c->marks +
               n_pieces(h) * sizeof *c->hashes + h->n_logits * sizeof(float) +
               h->n_note;
    if (write_all(fd, h, sizeof *h) ||
        write_all(fd, c->tokens, h->n_tokens * sizeof *c->tokens) ||
        write_all(fd, c->marks, h->n_states * sizeof *c->marks) ||
        write_all(fd, c->hashes, n_pieces(h) * sizeof *c->hashes) ||
        write_all(fd, c->logits, h->n_logits * sizeof *c->logits) ||
        write_all(fd, c->note, h->n_note) || write_all(fd, zeros, data_at - n))
        return -1;
    for (size_t i = 0; i < h->n_pages; i++)
        if (write_all(fd, c->pages[i]->data, h->page_bytes))
            return -1;
    for (size_t i = 0; i < h->n_states; i++)
        if (write_all(fd, c->pages[c->marks[i] - h->first_page]->state,
                      h->state_bytes))
            return -1;
    return write_all(fd, c->live, h->live_bytes);
}

static int write_file(const char *path, const struct kv_file_head *h,
                      size_t data_at, const struct content *c,
                      struct qwick_err *e)
{
    struct save s;
    if (save_begin(&s, path, SAVE_PRIVATE, e))
        return -1;
    if (write_body(s.fd, h, data_at, c) == 0) {
        if (c->time)
            (void)futimens(s.fd, (struct timespec[2]){*c->time, *c->time});
        return save_commit(&s, e);
    }
    err_set(e, QWICK_ERR_RUNTIME, "%s: cannot write: %s", path,
            strerror(errno));
    save_abort(&s);
    return -1;
}

/* Allocate the tables for the numbers of pages in head, and copies of a partly
 * used last page and of the live state, which are written instead of kv's
 * own. */
static int content_alloc(struct content *c, const struct kv_file_head *h,
                         const struct kv_cache *kv, size_t used,
                         struct qwick_err *e)
{
    size_t n = h->n_pages;
    c->pages = malloc((n + 1) * sizeof *c->pages);
    c->marks = malloc((n + 1) * sizeof *c->marks);
    c->hashes = malloc((2 * n + 2) * sizeof *c->hashes);
    if (!c->pages || !c->marks || !c->hashes)
        return err_oom(e, n * 3 * sizeof *c->hashes);
    for (size_t i = 0; i < n; i++)
        c->pages[i] = kv->pages[h->first_page + i];
    if (used) {
        c->last = kv_page_copy(kv, c->pages[n - 1], used);
        if (!c->last)
            return err_oom(e, kv->page_bytes);
        c->pages[n - 1] = c->last;
    }
    if (h->live_bytes && !(c->live = malloc(h->live_bytes)))
        return err_oom(e, h->live_bytes);
    return 0;
}

static void content_free(struct content *c, const struct kv_cache *kv)
{
    if (c->last)
        kv_page_drop(kv, c->last);
    free(c->pages);
    free(c->marks);
    free(c->hashes);
    free(c->live);
}

static void hash_pieces(struct kv_file_head *h, const struct content *c)
{
    size_t n = 0;
    for (size_t i = 0; i < h->n_pages; i++)
        c->hashes[n++] =
            hash_bulk(h->first_page + i, c->pages[i]->data, h->page_bytes);
    for (size_t i = 0; i < h->n_states; i++)
        c->hashes[n++] = hash_bulk(SEED_STATE + c->marks[i],
                                   c->pages[c->marks[i] - h->first_page]->state,
                                   h->state_bytes);
    if (h->live_bytes)
        c->hashes[n++] = hash_bulk(SEED_LIVE, c->live, h->live_bytes);
    h->table_hash =
        hash_tables(h, c->tokens, c->marks, c->hashes, c->logits, c->note);
    h->head_hash = hash_head(h);
}

/* Note the full pages whose snapshots are written. In a session they only serve
 * to go back, for which the last ones are enough. */
static void mark_states(struct kv_file_head *h, const struct kv_cache *kv,
                        uint64_t *marks)
{
    size_t end = h->n_tokens / KV_BLOCK, n = 0, extra;
    for (size_t i = h->first_page; i < end; i++)
        if (kv->pages[i]->state)
            marks[n++] = i;
    extra = h->kind == KV_FILE_SESSION && n > KV_SNAPSHOTS_FORWARD
                ? n - KV_SNAPSHOTS_FORWARD
                : 0;
    h->n_states = n - extra;
    memmove(marks, marks + extra, h->n_states * sizeof *marks);
}

int kv_file_write(const char *path, struct kv_file_head *head,
                  const int32_t *tokens, const float *logits, const char *note,
                  const struct kv_cache *kv, const struct timespec *time,
                  struct qwick_err *e)
{
    struct content c = {
        .tokens = tokens, .logits = logits, .note = note, .time = time};
    size_t end_page = head->n_tokens / KV_BLOCK;
    size_t used = head->n_tokens % KV_BLOCK, data_at, n_bytes;
    bool live = head->kind == KV_FILE_SESSION && kv->state.live && kv->n > 0 &&
                state_holds(&kv->state, kv->n, kv->n);
    int rc = -1;
    head->n_pages = end_page + (used != 0) - head->first_page;
    head->live_bytes = live ? state_packed_bytes(&kv->state) : 0;
    if (content_alloc(&c, head, kv, used, e))
        goto done;
    mark_states(head, kv, c.marks);
    if (layout(head, &data_at, &n_bytes)) {
        err_oom(e, SIZE_MAX);
        goto done;
    }
    head->n_bytes = n_bytes;
    if (live)
        state_pack(&kv->state, kv->n, c.live);
    hash_pieces(head, &c);
    rc = write_file(path, head, data_at, &c, e);
done:
    content_free(&c, kv);
    return rc;
}

int kv_file_check_target(const char *path, struct qwick_err *e)
{
    struct kv_file_head h = {0};
    struct stat st;
    /* O_NONBLOCK: opening a FIFO must not wait */
    int fd = lstat(path, &st) == 0 && S_ISREG(st.st_mode)
                 ? open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOFOLLOW)
                 : -2;
    if (fd == -2) /* new, or what save_begin refuses */
        return 0;
    if (fd < 0)
        return err_set(e, QWICK_ERR_RUNTIME, "%s: cannot open: %s", path,
                       strerror(errno));
    int why = read_all_at(fd, &h, sizeof h, 0) ? errno : 0;
    close(fd);
    if (why && why != ENODATA)
        return err_set(e, QWICK_ERR_RUNTIME, "%s: cannot read: %s", path,
                       strerror(why));
    if (st.st_size == 0 ||
        (!why && memcmp(h.magic, MAGIC, sizeof h.magic) == 0 &&
         h.kind == KV_FILE_SESSION))
        return 0;
    return err_set(e, QWICK_ERR_USAGE,
                   "%s: is not replaced: it is neither a session nor empty",
                   path);
}

/* ---- reading ------------------------------------------------------------ */

/* Report a damaged file. Call it only for bytes that were read: if memory is
 * short or a read fails, the file may be good. */
static int corrupt(const struct kv_file *f, enum kv_file_fault *fault,
                   struct qwick_err *e, const char *what)
{
    *fault = KV_FILE_DAMAGED;
    return err_set(e, QWICK_ERR_RUNTIME, "%s: is damaged: %s", f->path, what);
}

static int read_at(const struct kv_file *f, void *to, size_t n, size_t at,
                   enum kv_file_fault *fault, struct qwick_err *e)
{
    char *p = to;
    while (n) {
        ssize_t k = pread(f->fd, p, n, (off_t)at);
        if (k < 0 && errno != EINTR)
            return err_set(e, QWICK_ERR_RUNTIME, "%s: cannot read: %s", f->path,
                           strerror(errno));
        if (k == 0)
            return corrupt(f, fault, e, "it has become shorter");
        if (k > 0) {
            p += k;
            n -= (size_t)k;
            at += (size_t)k;
        }
    }
    return 0;
}

static int open_regular(struct kv_file *f, enum kv_file_kind kind, bool use,
                        size_t *n_bytes, enum kv_file_fault *fault,
                        struct qwick_err *e)
{
    struct stat st;
    /* O_NONBLOCK: opening a FIFO must not wait. We create no links in caches,
     * so O_NOFOLLOW refuses them there. A session may be a link of the user;
     * its target is checked. */
    f->fd = open(f->path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY |
                              (kind == KV_FILE_PREFIX ? O_NOFOLLOW : 0));
    if (f->fd < 0 && errno == ELOOP && kind == KV_FILE_PREFIX) {
        *fault = KV_FILE_DAMAGED;
        return err_set(e, QWICK_ERR_RUNTIME, "%s: is a symbolic link", f->path);
    }
    if (f->fd < 0 || fstat(f->fd, &st)) {
        *fault = errno == ENOENT || errno == ENOTDIR ? KV_FILE_MISSING
                                                     : KV_FILE_UNREADABLE;
        return err_set(e, QWICK_ERR_RUNTIME, "%s: cannot open: %s", f->path,
                       strerror(errno));
    }
    if (!S_ISREG(st.st_mode))
        return err_set(e, QWICK_ERR_RUNTIME, "%s: is not a regular file",
                       f->path);
    if (use && owner_check(&st, f->path, S_IWGRP | S_IWOTH, e))
        return -1;
    *n_bytes = (size_t)st.st_size;
    return 0;
}

static bool ended(const char *s, size_t n)
{
    return memchr(s, '\0', n) != NULL;
}

/* Check that the head and the file agree. After this, sizes can be trusted. */
static int check_head(struct kv_file *f, enum kv_file_kind kind, size_t n_bytes,
                      enum kv_file_fault *fault, struct qwick_err *e)
{
    const struct kv_file_head *h = &f->head;
    size_t end;
    *fault = KV_FILE_DAMAGED;
    if (h->version != KV_FILE_VERSION)
        return err_set(e, QWICK_ERR_RUNTIME,
                       "%s: has version %u, this program reads %d", f->path,
                       h->version, KV_FILE_VERSION);
    if (differ(h->head_hash, hash_head(h)))
        return corrupt(f, fault, e, "its head's checksum is wrong");
    if (h->kind != kind)
        return err_set(e, QWICK_ERR_RUNTIME, "%s: is not a saved %s", f->path,
                       kind == KV_FILE_SESSION ? "session" : "prefix");
    if (!ended(h->kv, sizeof h->kv) || !ended(h->isa, sizeof h->isa) ||
        !ended(h->model_name, sizeof h->model_name) || h->block != KV_BLOCK ||
        h->n_tokens > INT32_MAX || h->page_bytes == 0 ||
        (h->state_bytes == 0 && (h->n_states || h->live_bytes)) ||
        (kind == KV_FILE_PREFIX && (h->live_bytes || h->n_note)))
        return corrupt(f, fault, e, "its head makes no sense");
    uint64_t pages = (h->n_tokens + KV_BLOCK - 1) / KV_BLOCK;
    if (h->first_page > pages || h->n_pages != pages - h->first_page ||
        h->n_states > h->n_pages ||
        (kind == KV_FILE_SESSION ? h->first_page != 0
                                 : h->n_tokens % KV_BLOCK || !h->n_pages))
        return corrupt(f, fault, e, "its numbers of tokens and pages disagree");
    if (layout(h, &f->data_at, &end) || end != h->n_bytes)
        return corrupt(f, fault, e, "its sizes disagree");
    if (end != n_bytes)
        return err_set(e, QWICK_ERR_RUNTIME,
                       "%s: is damaged: has %zu bytes, should have %zu",
                       f->path, n_bytes, end);
    return 0;
}

/* Whether the marks are numbers of full pages of the file, in order. */
static bool good_marks(const struct kv_file *f)
{
    const struct kv_file_head *h = &f->head;
    uint64_t next = h->first_page, end = h->n_tokens / KV_BLOCK;
    for (size_t i = 0; i < h->n_states; i++) {
        if (f->marks[i] < next || f->marks[i] >= end)
            return false;
        next = f->marks[i] + 1;
    }
    return true;
}

static int read_tables(struct kv_file *f, enum kv_file_fault *fault,
                       struct qwick_err *e)
{
    const struct kv_file_head *h = &f->head;
    size_t at = sizeof *h, n_tokens = h->n_tokens * sizeof *f->tokens,
           n_marks = h->n_states * sizeof *f->marks,
           n_hashes = n_pieces(h) * sizeof *f->hashes,
           n_logits = h->n_logits * sizeof *f->logits, n_note = h->n_note;
    f->tokens = malloc(n_tokens + 1);
    f->marks = malloc(n_marks + 1);
    f->hashes = malloc(n_hashes + 1);
    f->logits = n_logits ? malloc(n_logits) : NULL;
    f->note = n_note ? malloc(n_note) : NULL;
    if (!f->tokens || !f->marks || !f->hashes || (n_logits && !f->logits) ||
        (n_note && !f->note))
        return err_oom(e, n_tokens + n_marks + n_hashes + n_logits + n_note);
    if (read_at(f, f->tokens, n_tokens, at, fault, e) ||
        read_at(f, f->marks, n_marks, at += n_tokens, fault, e) ||
        read_at(f, f->hashes, n_hashes, at += n_marks, fault, e) ||
        (n_logits &&
         read_at(f, f->logits, n_logits, at + n_hashes, fault, e)) ||
        (n_note &&
         read_at(f, f->note, n_note, at + n_hashes + n_logits, fault, e)))
        return -1;
    if (differ(h->table_hash, hash_tables(h, f->tokens, f->marks, f->hashes,
                                          f->logits, f->note)))
        return corrupt(f, fault, e, "its tables' checksum is wrong");
    if (!good_marks(f))
        return corrupt(f, fault, e, "its states are of pages that it lacks");
    return 0;
}

int kv_file_open(struct kv_file *f, const char *path, enum kv_file_kind kind,
                 bool use, enum kv_file_fault *fault, struct qwick_err *e)
{
    size_t n_bytes = 0;
    enum kv_file_fault why = KV_FILE_UNREADABLE;
    *f = (struct kv_file){.fd = -1, .path = strdup(path)};
    if (!f->path) {
        err_oom(e, strlen(path));
        goto fail;
    }
    if (open_regular(f, kind, use, &n_bytes, &why, e))
        goto fail;
    size_t n = n_bytes < sizeof f->head ? n_bytes : sizeof f->head;
    if (read_at(f, &f->head, n, 0, &why, e))
        goto fail;
    if (n < sizeof MAGIC || memcmp(f->head.magic, MAGIC, sizeof MAGIC) != 0) {
        why = KV_FILE_DAMAGED;
        err_set(e, QWICK_ERR_RUNTIME, "%s: is not a saved %s", path,
                kind == KV_FILE_SESSION ? "session" : "prefix");
        goto fail;
    }
    if (n < sizeof f->head) {
        corrupt(f, &why, e, "it ends within its head");
        goto fail;
    }
    if (check_head(f, kind, n_bytes, &why, e))
        goto fail;
    why = KV_FILE_UNREADABLE;
    if (read_tables(f, &why, e))
        goto fail;
    return 0;
fail:
    kv_file_close(f);
    if (fault)
        *fault = why;
    return -1;
}

void kv_file_close(struct kv_file *f)
{
    if (f->fd >= 0)
        close(f->fd);
    free(f->path);
    free(f->tokens);
    free(f->marks);
    free(f->hashes);
    free(f->logits);
    free(f->note);
    *f = (struct kv_file){.fd = -1};
}

/* Read piece i, whose n bytes are at `at`, and check it. */
static int read_piece(const struct kv_file *f, size_t i, void *to, size_t n,
                      size_t at, uint64_t seed, enum kv_file_fault *fault,
                      struct qwick_err *e)
{
    if (read_at(f, to, n, at, fault, e))
        return -1;
    if (differ(hash_bulk(seed, to, n), f->hashes[i]))
        return corrupt(f, fault, e, "a checksum is wrong");
    return 0;
}

/* The index of page i's snapshot; n_states: it has none. */
static size_t find_mark(const struct kv_file *f, size_t i)
{
    size_t k = 0;
    while (k < f->head.n_states && f->marks[k] != f->head.first_page + i)
        k++;
    return k;
}

bool kv_file_has_state(const struct kv_file *f, size_t i)
{
    return find_mark(f, i) < f->head.n_states;
}

static size_t states_at(const struct kv_file *f)
{
    return f->data_at + f->head.n_pages * f->head.page_bytes;
}

static int read_page(const struct kv_file *f, size_t i, struct kv_page *page,
                     enum kv_file_fault *fault, struct qwick_err *e)
{
    const struct kv_file_head *h = &f->head;
    if (read_piece(f, i, page->data, h->page_bytes,
                   f->data_at + i * h->page_bytes, h->first_page + i, fault, e))
        return -1;
    if (!page->state)
        return 0;
    size_t k = find_mark(f, i);
    return read_piece(f, h->n_pages + k, page->state, h->state_bytes,
                      states_at(f) + k * h->state_bytes,
                      SEED_STATE + h->first_page + i, fault, e);
}

int kv_file_live(const struct kv_file *f, float *packed, struct qwick_err *e)
{
    const struct kv_file_head *h = &f->head;
    enum kv_file_fault fault;
    return read_piece(f, h->n_pages + h->n_states, packed, h->live_bytes,
                      states_at(f) + h->n_states * h->state_bytes, SEED_LIVE,
                      &fault, e);
}

/* Pages being read. Each thread takes the next page. */
struct reading {
    const struct kv_file *f;
    size_t first;
    struct kv_page *const *pages;
    const volatile int *interrupt;
    pthread_mutex_t lock;     /* protects good, fault and e */
    size_t next;              /* page to read next */
    size_t good;              /* pages before the first bad one */
    enum kv_file_fault fault; /* of the first bad page, like e */
    struct qwick_err e;
};

static void read_body(void *ctx, struct par_team *team, int tid, int n_threads)
{
    struct reading *r = ctx;
    (void)team;
    (void)tid;
    (void)n_threads;
    for (;;) {
        struct qwick_err e;
        enum kv_file_fault fault = KV_FILE_UNREADABLE;
        size_t i = __atomic_fetch_add(&r->next, 1, __ATOMIC_RELAXED);
        if (i >= __atomic_load_n(&r->good, __ATOMIC_RELAXED))
            return;
        if (flag_is_set(r->interrupt))
            err_set(&e, QWICK_ERR_INTERRUPTED, "interrupted");
        else if (!read_page(r->f, r->first + i, r->pages[i], &fault, &e))
            continue;
        pthread_mutex_lock(&r->lock);
        if (i < r->good) {
            __atomic_store_n(&r->good, i, __ATOMIC_RELAXED);
            r->fault = fault;
            r->e = e;
        }
        pthread_mutex_unlock(&r->lock);
    }
}

size_t kv_file_pages(const struct kv_file *f, size_t i, size_t n,
                     struct kv_page *const *pages, struct par_pool *pool,
                     const volatile int *interrupt, enum kv_file_fault *fault,
                     struct qwick_err *e)
{
    struct reading r = {.f = f,
                        .first = i,
                        .pages = pages,
                        .interrupt = interrupt,
                        .good = n,
                        .lock = PTHREAD_MUTEX_INITIALIZER};
    if (n)
        par_run(n == 1 ? NULL : pool, read_body, &r);
    if (r.good < n && fault)
        *fault = r.fault;
    if (r.good < n && e)
        *e = r.e;
    return r.good;
}
