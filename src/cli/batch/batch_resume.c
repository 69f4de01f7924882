/* Read the files of earlier runs: the output, and the pending file with answers
 * whose turn has not come. */
#include "cli/batch/batch_resume.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/array.h"
#include "cli/batch/batch_form.h"
#include "cli/batch/batch_pending.h"
#include "cli/batch/batch_request.h"
#include "cli/io/lines.h"
#include "cli/io/out.h"
#include "cli/io/signals.h"
#include "file/json.h"

/* A place is line << SAMPLE_BITS | sample. REQUEST_MAX_N is below 2^10. */
enum { SAMPLE_BITS = 10 };

_Static_assert(REQUEST_MAX_N <= 1 << SAMPLE_BITS, "samples have a number each");

static uint64_t place_of(uint64_t line, size_t sample)
{
    return line << SAMPLE_BITS | sample;
}

/* ---- reading lines ------------------------------------------------------ */

static int foreign(const struct lines *l, struct qwick_err *e)
{
    return err_set(e, QWICK_ERR_USAGE,
                   "%s: line %llu: was not written by qwick batch; left alone",
                   l->name, (unsigned long long)l->number);
}

static int add(struct answers *all, struct answered a, struct qwick_err *e)
{
    if (ARRAY_RESERVE(all->v, all->cap, all->n + 1, e))
        return -1;
    all->v[all->n++] = a;
    return 0;
}

/* Hash the id as request_open represents it. */
static int id_of(const struct json_value *v, uint64_t *hash)
{
    struct buf id = {0};
    int r = 0;
    if (json_is(v, JSON_STRING))
        r = buf_json_string(&id, v->str, v->len);
    else if (json_is(v, JSON_NUMBER))
        r = buf_append(&id, v->str, v->len);
    *hash = request_id_hash(id.data, id.len);
    buf_free(&id);
    return r;
}

static bool hex(const char *s, size_t n, uint64_t *out)
{
    *out = 0;
    for (size_t i = 0; i < n; i++) {
        const char *digits = "0123456789abcdef";
        const char *d = s[i] ? strchr(digits, s[i]) : NULL;
        if (!d)
            return false;
        *out = *out << 4 | (uint64_t)(d - digits);
    }
    return true;
}

/* Read the key that set_line of batch_feed.c writes; NULL: there is none. */
static void read_key(const char *key, struct answered *a)
{
    uint64_t run;
    if (!key || key[8] != '-' || !hex(key, 8, &run) ||
        !hex(key + 9, 16, &a->record))
        return;
    a->run = (uint32_t)run;
    a->has_key = true;
}

/* Whether the line's answer is cut or empty; see answer_is_cut and
 * answer_is_empty. */
static bool is_incomplete(const struct batch_read *b)
{
    struct qwick_result r = {0};
    if (b->skipped)
        return false;
    if (!b->finish ||
        (strcmp(b->finish, qwick_finish_name(QWICK_FINISH_STOP)) != 0 &&
         strcmp(b->finish, qwick_finish_name(QWICK_FINISH_STOP_STRING)) != 0))
        return true;
    if (json_is(b->calls, JSON_ARRAY) && b->calls->len)
        return false; /* an answer of calls needs no text */
    if (!json_is(b->text, JSON_STRING))
        return true;
    r.text = (char *)(uintptr_t)b->text->str;
    r.n_text = b->text->len;
    return answer_is_empty(&r);
}

static bool read_line(const struct json_value *v, struct batch_read *b)
{
    for (size_t i = 0; readable_forms[i]; i++)
        if (readable_forms[i]->read(v, b))
            return true;
    return false;
}

static int note_line(struct answers *all, const struct lines *l,
                     const char *text, size_t n, struct qwick_err *e)
{
    struct json_doc *doc;
    struct answered a = {.at = l->consumed - n - 1};
    struct batch_read b;
    int rc;
    struct qwick_err why;
    if (json_parse(&doc, l->name, text, n, QWICK_ERR_USAGE, &why))
        return why.code == QWICK_ERR_MEMORY ? err_oom(e, n) : foreign(l, e);
    if (!read_line(json_root(doc), &b)) {
        rc = foreign(l, e);
    } else if (id_of(b.id, &a.id)) {
        rc = err_oom(e, n);
    } else {
        a.place = place_of((uint64_t)b.line, (size_t)b.index);
        a.error = b.error;
        a.whole = a.error && !b.has_index;
        a.broken = b.incomplete;
        a.incomplete = !a.error && !a.broken && is_incomplete(&b);
        read_key(b.key, &a);
        rc = add(all, a, e);
    }
    json_free(doc);
    return rc;
}

/* Whether a line that was cut off is one of ours. */
static bool is_beginning(const char *text, size_t n)
{
    for (size_t i = 0; readable_forms[i]; i++) {
        const char *head = readable_forms[i]->head;
        size_t same = strlen(head);
        if (memcmp(text, head, n < same ? n : same) == 0)
            return true;
    }
    return false;
}

/* Remove the last n bytes. */
static int cut(const struct lines *l, const char *text, size_t n,
               struct qwick_err *e)
{
    if (!is_beginning(text, n))
        return foreign(l, e);
    if (ftruncate(l->fd, (off_t)(l->consumed - n)))
        return err_set(e, QWICK_ERR_RUNTIME, "%s: cannot be cut: %s", l->name,
                       strerror(errno));
    msg_note("%s: line %llu was cut off, removed", l->name,
             (unsigned long long)l->number);
    return 0;
}

static int read_lines(struct answers *all, struct lines *l, struct qwick_err *e)
{
    const char *text;
    size_t n;
    bool torn;
    for (;;) {
        switch (lines_next(l, -1, &text, &n, &torn, e)) {
        case LINES_GOT:
            if (torn ? cut(l, text, n, e) : note_line(all, l, text, n, e))
                return -1;
            break;
        case LINES_WAIT:
            if (*signals_flag())
                return err_set(e, QWICK_ERR_RUNTIME, "%s: interrupted",
                               l->name);
            break;
        case LINES_END:
            return 0;
        case LINES_FAILED:
            return -1;
        }
    }
}

static int read_answers(struct answers *all, const char *path, int fd,
                        struct qwick_err *e)
{
    struct lines l;
    lines_init(&l, path, fd);
    int r = read_lines(all, &l, e);
    lines_free(&l);
    return r;
}

/* ---- the pending file --------------------------------------------------- */

static int cannot(const char *path, const char *what, struct qwick_err *e)
{
    return err_set(e, QWICK_ERR_RUNTIME, "%s: %s: %s", path, what,
                   strerror(errno));
}

/* Whether two descriptors refer to the same file. */
static bool is_same(int a, int b)
{
    struct stat x, y;
    return !fstat(a, &x) && !fstat(b, &y) && x.st_dev == y.st_dev &&
           x.st_ino == y.st_ino;
}

static int open_pending(struct batch_out *o, int in_fd, struct qwick_err *e)
{
    struct stat st;
    int fd = open(o->pending, O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    if (fd < 0)
        return errno == ENOENT ? 0 : cannot(o->pending, "open", e);
    o->pending_fd = fd;
    if (fstat(fd, &st) || !S_ISREG(st.st_mode))
        return err_set(e, QWICK_ERR_USAGE, "%s: is not a regular file",
                       o->pending);
    if (is_same(fd, in_fd))
        return err_set(e, QWICK_ERR_USAGE, "%s: is the input as well",
                       o->pending);
    return read_answers(&o->held, o->pending, fd, e);
}

int batch_resume(struct batch_out *o, int in_fd, struct qwick_err *e)
{
    struct stat st;
    if (fstat(o->fd, &st) || !S_ISREG(st.st_mode))
        return 0;
    if (flock(o->fd, LOCK_EX | LOCK_NB) && errno == EWOULDBLOCK)
        return err_set(e, QWICK_ERR_USAGE,
                       "%s: another qwick batch is writing it", o->path);
    if (asprintf(&o->pending, "%s.pending", o->path) < 0) {
        o->pending = NULL;
        return err_oom(e, strlen(o->path));
    }
    return read_answers(&o->done, o->path, o->fd, e) ||
                   open_pending(o, in_fd, e)
               ? -1
               : 0;
}

/* ---- what there is ------------------------------------------------------ */

static int by_place(const void *a, const void *b)
{
    const struct answered *x = a, *y = b;
    return (x->place > y->place) - (x->place < y->place);
}

static void sort(struct answers *all)
{
    if (all->n > 0)
        qsort(all->v, all->n, sizeof(*all->v), by_place);
}

static int other_run(const char *path, const struct answered *a, uint64_t line,
                     struct qwick_err *e)
{
    return err_set(
        e, QWICK_ERR_USAGE,
        a->has_key
            ? "%s: line %llu: was written with another model, another "
              "--exact, --kv, --ctx or --logprobs, or in another form; left "
              "alone (--redo replaces it)"
            : "%s: line %llu: has no key, it was written by an "
              "earlier version; left alone (--redo replaces it)",
        path, (unsigned long long)line);
}

/* Every line of the file is in `all`, in order, so i + 1 is the line's
 * number. */
static int check_runs(const char *path, const struct answers *all, uint32_t run,
                      struct qwick_err *e)
{
    for (size_t i = 0; i < all->n; i++)
        if (!all->v[i].has_key || all->v[i].run != run)
            return other_run(path, &all->v[i], i + 1, e);
    return 0;
}

/* Copy the lines of this run's key to p. *kept gets their new offsets. */
static int keep_lines(struct batch_out *o, const struct answers *all,
                      const char *path, int fd, uint32_t run,
                      struct pending_file *p, struct answers *kept,
                      struct qwick_err *e)
{
    struct buf line = {0};
    int rc = 0;
    for (size_t i = 0; i < all->n && !rc; i++) {
        struct answered a = all->v[i];
        if (!a.has_key || a.run != run)
            continue;
        line.len = 0;
        rc = pending_copy_line(path, fd, a.at, &line, e);
        a.at = p->n_bytes;
        rc = rc || pending_add(o, p, line.data, line.len, e) || add(kept, a, e)
                 ? -1
                 : 0;
    }
    buf_free(&line);
    return rc;
}

/* Move all usable answers to the pending file, and empty the output. If the
 * program is killed at any point, each answer is in at least one of the two
 * files. */
static int start_over(struct batch_out *o, uint32_t run, struct qwick_err *e)
{
    struct pending_file p = {.fd = -1};
    struct answers kept = {0};
    if (keep_lines(o, &o->done, o->path, o->fd, run, &p, &kept, e) ||
        keep_lines(o, &o->held, o->pending, o->pending_fd, run, &p, &kept, e) ||
        pending_commit(o, &p, e) ||
        (ftruncate(o->fd, 0) && cannot(o->path, "cannot be emptied", e))) {
        pending_abort(&p);
        free(kept.v);
        return -1;
    }
    free(o->held.v);
    o->held = kept;
    o->done.n = 0;
    return 0;
}

int batch_out_begin(struct batch_out *o, uint32_t run, bool redo,
                    struct qwick_err *e)
{
    o->redo = redo;
    if (!o->pending)
        return 0;
    if (redo && o->done.n + o->held.n > 0 && start_over(o, run, e))
        return -1;
    if (check_runs(o->path, &o->done, run, e) ||
        check_runs(o->pending, &o->held, run, e))
        return -1;
    sort(&o->done);
    sort(&o->held);
    for (size_t i = 0; i < o->done.n; i++)
        o->n_errors += o->done.v[i].error;
    for (size_t i = 0; i < o->done.n; i++)
        o->n_incomplete += o->done.v[i].incomplete;
    for (size_t i = 0; i < o->done.n; i++)
        o->n_broken += o->done.v[i].broken;
    return 0;
}

/* Find the answers at a place: [*first, return value). */
static size_t find(const struct answers *all, uint64_t place, size_t *first)
{
    size_t lo = 0, hi = all->n;
    while (lo < hi) {
        size_t mid = lo + (hi - lo) / 2;
        if (all->v[mid].place < place)
            lo = mid + 1;
        else
            hi = mid;
    }
    *first = lo;
    while (lo < all->n && all->v[lo].place == place)
        lo++;
    return lo;
}

/* Find the answers to a sample. An error of the whole record answers all its
 * samples. */
static size_t find_sample(const struct answers *all, uint64_t line, size_t i,
                          size_t *first)
{
    size_t end = find(all, place_of(line, 0), first);
    if (*first < end && all->v[*first].whole)
        return end;
    return find(all, place_of(line, i), first);
}

static int other_record(const char *path, const struct answered *a,
                        uint64_t line, uint64_t id, struct qwick_err *e)
{
    return err_set(e, QWICK_ERR_USAGE,
                   a->id != id
                       ? "%s: its answer to line %llu has another id: it "
                         "belongs to another input; left alone (--redo "
                         "replaces it)"
                       : "%s: its answer to line %llu belongs to another "
                         "prompt, seed or other options; left alone (--redo "
                         "replaces it)",
                   path, (unsigned long long)line);
}

/* The answer with this id and key, or NULL. If it is NULL, *other is an answer
 * to the same sample with another id or key, or NULL. */
static struct answered *match(struct answers *all, uint64_t line, size_t i,
                              uint64_t id, uint64_t key,
                              struct answered **other)
{
    size_t first, end = find_sample(all, line, i, &first);
    *other = NULL;
    for (size_t k = first; k < end; k++) {
        struct answered *a = &all->v[k];
        if (a->id == id && a->record == key)
            return a;
        *other = a;
    }
    return NULL;
}

int batch_out_find(struct batch_out *o, uint64_t line, size_t i, uint64_t id,
                   uint64_t key, enum batch_out_found *found,
                   struct answered **held, struct qwick_err *e)
{
    struct answered *other;
    size_t first, end;
    *found = FOUND_NONE;
    if (match(&o->done, line, i, id, key, &other))
        *found = FOUND_DONE;
    else if (other)
        return other_record(o->path, other, line, id, e);
    if (*found == FOUND_NONE) {
        *held = match(&o->held, line, i, id, key, &other);
        if (*held)
            *found = (*held)->used ? FOUND_DONE : FOUND_HELD;
        else if (other && !o->redo)
            return other_record(o->pending, other, line, id, e);
    }
    /* mark all other held answers to this sample as stale */
    end = find_sample(&o->held, line, i, &first);
    for (; first < end; first++)
        if (*found != FOUND_HELD || &o->held.v[first] != *held)
            o->held.v[first].stale = true;
    return 0;
}
