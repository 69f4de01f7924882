/* What one run leaves to the next: the output, and the pending file with
 * answers whose turn has not come. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/array.h"
#include "base/clock.h"
#include "cli/answer/answer_opts.h"
#include "cli/answer/request.h"
#include "cli/batch/batch_form.h"
#include "cli/batch/batch_out.h"
#include "cli/io/lines.h"
#include "cli/io/out.h"
#include "cli/io/signals.h"
#include "file/json.h"
#include "file/save.h"

/* A place is line << SAMPLE_BITS | sample. REQUEST_MAX_N is below 2^10. */
enum { SAMPLE_BITS = 10 };

_Static_assert(REQUEST_MAX_N <= 1 << SAMPLE_BITS, "samples have a number each");

static uint64_t place_of(uint64_t line, size_t sample)
{
    return line << SAMPLE_BITS | sample;
}

/* ---- reading lines ------------------------------------------------------ */

static int resume_foreign(const struct lines *l, struct qwick_err *e)
{
    return err_usage(
        e, "%s: line %llu: was not written by qwick batch; left alone", l->name,
        (unsigned long long)l->number);
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

static int answer_add(struct out_file *f, const struct batch_read *b,
                      uint64_t at, struct qwick_err *e)
{
    struct answered a = {.at = at,
                         .place = place_of((uint64_t)b->line, (size_t)b->index),
                         .error = b->error,
                         .whole = b->error && !b->has_index,
                         .broken = b->incomplete};
    struct buf id = {0};
    int rc = request_id(&id, b->id) ? err_oom(e, id.len)
                                    : ARRAY_RESERVE(f->v, f->cap, f->n + 1, e);
    a.id = request_id_hash(&id);
    a.incomplete = !a.error && !a.broken && is_incomplete(b);
    a.has_key = b->key && batch_key_read(b->key, &a.run, &a.record);
    buf_free(&id);
    if (!rc)
        f->v[f->n++] = a;
    return rc;
}

static bool answer_read_line(const struct json_value *v, struct batch_read *b)
{
    for (size_t i = 0; readable_forms[i]; i++)
        if (readable_forms[i]->read(v, b))
            return true;
    return false;
}

static int answer_note(struct out_file *f, const struct lines *l,
                       const char *text, size_t n, struct qwick_err *e)
{
    struct json_doc *doc;
    struct batch_read b;
    struct qwick_err why;
    if (json_parse(&doc, l->name, text, n, QWICK_ERR_USAGE, &why))
        return why.code == QWICK_ERR_MEMORY ? err_oom(e, n)
                                            : resume_foreign(l, e);
    int rc = answer_read_line(json_root(doc), &b)
                 ? answer_add(f, &b, l->consumed - n - 1, e)
                 : resume_foreign(l, e);
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
static int cut_line(const struct lines *l, const char *text, size_t n,
                    struct qwick_err *e)
{
    if (!is_beginning(text, n))
        return resume_foreign(l, e);
    if (ftruncate(l->fd, (off_t)(l->consumed - n)))
        return err_errno(e, l->name, "cannot be cut");
    msg_note("%s: line %llu was cut off, removed", l->name,
             (unsigned long long)l->number);
    return 0;
}

/* Note the lines of an open file. */
static int answers_read(struct out_file *f, struct qwick_err *e)
{
    enum lines_status got;
    struct lines l;
    const char *text;
    size_t n;
    bool torn;
    int rc = 0;
    lines_init(&l, f->path, f->fd);
    while (!rc && (got = lines_next(&l, -1, &text, &n, &torn, e)) != LINES_END)
        if (got == LINES_GOT)
            rc = torn ? cut_line(&l, text, n, e)
                      : answer_note(f, &l, text, n, e);
        else if (got == LINES_FAILED)
            rc = -1;
        else if (*signals_flag())
            rc = err_set(e, QWICK_ERR_RUNTIME, "%s: interrupted", f->path);
    lines_free(&l);
    return rc;
}

/* ---- opening ------------------------------------------------------------ */

/* Refuse to read an output file as input: the run would never end. */
static int check_same(int in_fd, int out_fd, const char *name,
                      struct qwick_err *e)
{
    struct stat in, out;
    if (fstat(in_fd, &in) || fstat(out_fd, &out) || !S_ISREG(in.st_mode) ||
        in.st_dev != out.st_dev || in.st_ino != out.st_ino)
        return 0;
    return err_usage(e, "%s: is the input as well", name);
}

static int pending_open(struct out_file *f, int in_fd, struct qwick_err *e)
{
    struct stat st;
    f->fd = open(f->path, O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    if (f->fd < 0)
        return errno == ENOENT ? 0 : err_errno(e, f->path, "open");
    if (fstat(f->fd, &st) || !S_ISREG(st.st_mode))
        return err_usage(e, "%s: is not a regular file", f->path);
    return check_same(in_fd, f->fd, f->path, e) || answers_read(f, e) ? -1 : 0;
}

int batch_out_open(struct batch_out *o, const char *path, bool unordered,
                   int in_fd, struct qwick_err *e)
{
    struct stat st;
    *o = (struct batch_out)BATCH_OUT_NONE;
    o->unordered = unordered;
    o->synced_ms = clock_ms();
    if (!path)
        return check_same(in_fd, STDOUT_FILENO, "stdout", e);
    if (!(o->file.path = strdup(path)))
        return err_oom(e, strlen(path));
    bool stream = !stat(path, &st) && !S_ISREG(st.st_mode);
    int flags = stream ? O_WRONLY : O_RDWR | O_CREAT;
    o->file.fd = open(path, flags | O_APPEND | O_CLOEXEC, 0666);
    if (o->file.fd < 0)
        return err_errno(e, path, "open");
    if (check_same(in_fd, o->file.fd, path, e))
        return -1;
    if (fstat(o->file.fd, &st) || !S_ISREG(st.st_mode))
        return 0;
    if (flock(o->file.fd, LOCK_EX | LOCK_NB) && errno == EWOULDBLOCK)
        return err_usage(e, "%s: another qwick batch is writing it", path);
    if (asprintf(&o->pending.path, "%s.pending", path) < 0) {
        o->pending.path = NULL;
        return err_oom(e, strlen(path));
    }
    return answers_read(&o->file, e) || pending_open(&o->pending, in_fd, e) ? -1
                                                                            : 0;
}

/* ---- the next version of the pending file ------------------------------- */

/* Append s[0..n). The file gets the permissions of the output. */
static int pending_add(const struct batch_out *o, struct save *next,
                       const char *s, size_t n, struct qwick_err *e)
{
    const char *path = o->pending.path;
    struct stat st;
    if (n == 0)
        return 0;
    if (next->fd < 0) {
        if (save_begin(next, path, SAVE_PRIVATE, e))
            return -1;
        if (!fstat(o->file.fd, &st) && fchmod(next->fd, st.st_mode & 0666))
            return err_errno(e, path, "cannot set its rights");
    }
    return save_write(next, s, n, e);
}

/* Replace the file by its next version; an empty one removes it. */
static int pending_commit(const struct batch_out *o, struct save *next,
                          struct qwick_err *e)
{
    if (next->fd >= 0)
        return save_commit(next, e);
    return unlink(o->pending.path) && errno != ENOENT
               ? err_errno(e, o->pending.path, "cannot be removed")
               : 0;
}

/* Append the line at offset `at` of a file to out, with its newline. */
static int answer_copy(const struct out_file *f, uint64_t at, struct buf *out,
                       struct qwick_err *e)
{
    char part[4096];
    for (;;) {
        ssize_t k = pread(f->fd, part, sizeof(part), (off_t)at);
        if (k < 0 && errno == EINTR)
            continue;
        if (k <= 0)
            return err_set(e, QWICK_ERR_RUNTIME, "%s: cannot read: %s", f->path,
                           k ? strerror(errno) : "it became shorter meanwhile");
        const char *nl = memchr(part, '\n', (size_t)k);
        size_t n = nl ? (size_t)(nl - part) + 1 : (size_t)k;
        if (buf_append(out, part, n))
            return err_oom(e, n);
        if (nl)
            return 0;
        at += n;
    }
}

/* Copy the lines of a file that are not over to the next version, or if it is
 * NULL, to the output. *n counts them. */
static int answers_copy(struct batch_out *o, const struct out_file *f,
                        struct save *next, size_t *n, struct qwick_err *e)
{
    struct buf line = {0};
    int rc = 0;
    for (size_t i = 0; i < f->n && !rc; i++) {
        if (f->v[i].over)
            continue;
        line.len = 0;
        rc = answer_copy(f, f->v[i].at, next ? &line : &o->ready, e);
        if (!rc)
            rc = next ? pending_add(o, next, line.data, line.len, e)
                      : batch_out_flush(o, e);
        ++*n;
    }
    buf_free(&line);
    return rc;
}

/* ---- the beginning of a run --------------------------------------------- */

static int answers_by_place(const void *a, const void *b)
{
    const struct answered *x = a, *y = b;
    return (x->place > y->place) - (x->place < y->place);
}

static bool is_of_run(const struct answered *a, uint32_t run)
{
    return a->has_key && a->run == run;
}

/* Refuse lines of another run, and sort the lines. Every line of the file is in
 * f, in order, so i + 1 is the line's number. */
static int answers_check(struct out_file *f, uint32_t run, struct qwick_err *e)
{
    for (size_t i = 0; i < f->n; i++)
        if (!is_of_run(&f->v[i], run))
            return err_usage(
                e,
                f->v[i].has_key
                    ? "%s: line %llu: was written with another model, another "
                      "--exact, --kv, --ctx or --logprobs, or in another form; "
                      "left alone (--redo replaces it)"
                    : "%s: line %llu: has no key, it was written by an earlier "
                      "version; left alone (--redo replaces it)",
                f->path, (unsigned long long)i + 1);
    if (f->n > 0)
        qsort(f->v, f->n, sizeof(*f->v), answers_by_place);
    return 0;
}

/* Move all usable answers to the pending file, and empty the output. If the
 * program is killed at any point, each answer is in at least one of the two
 * files. retry: errors are not usable. */
static int resume_start_over(struct batch_out *o, uint32_t run, bool retry,
                             struct qwick_err *e)
{
    struct out_file *const files[] = {&o->file, &o->pending};
    struct save next = SAVE_NONE;
    size_t n = 0;
    int rc = 0;
    for (size_t k = 0; k < 2 && !rc; k++) {
        for (size_t i = 0; i < files[k]->n; i++)
            files[k]->v[i].over = !is_of_run(&files[k]->v[i], run) ||
                                  (retry && files[k]->v[i].error);
        rc = answers_copy(o, files[k], &next, &n, e);
        files[k]->n = 0;
    }
    if (rc || pending_commit(o, &next, e) ||
        (ftruncate(o->file.fd, 0) &&
         err_errno(e, o->file.path, "cannot be emptied"))) {
        save_abort(&next);
        return -1;
    }
    if (o->pending.fd >= 0)
        close(o->pending.fd);
    return pending_open(&o->pending, -1, e);
}

/* Count an answer of an earlier run that the output keeps. */
static void resume_count(struct batch_out *o, const struct answered *a)
{
    o->n_errors += a->error;
    o->n_incomplete += a->incomplete;
    o->n_broken += a->broken;
}

static bool has_errors(const struct out_file *f)
{
    for (size_t i = 0; i < f->n; i++)
        if (f->v[i].error)
            return true;
    return false;
}

int batch_out_begin(struct batch_out *o, uint32_t run, bool redo, bool retry,
                    struct qwick_err *e)
{
    o->redo = redo;
    if (!o->pending.path)
        return 0;
    o->replaces =
        redo ? o->file.n + o->pending.n > 0
             : retry && (has_errors(&o->file) || has_errors(&o->pending));
    /* without redo, lines of another run are refused before anything changes */
    if ((!redo && (answers_check(&o->file, run, e) ||
                   answers_check(&o->pending, run, e))) ||
        (o->replaces && resume_start_over(o, run, retry, e)) ||
        answers_check(&o->file, run, e) || answers_check(&o->pending, run, e))
        return -1;
    for (size_t i = 0; i < o->file.n; i++)
        resume_count(o, &o->file.v[i]);
    return 0;
}

/* ---- lookups ------------------------------------------------------------ */

/* Find the answers to a sample: [*first, return value). An error of the whole
 * record answers all its samples. */
static size_t answers_of_sample(struct out_file *f, uint64_t line, size_t i,
                                size_t *first)
{
    uint64_t place = place_of(line, 0);
    while (f->next < f->n && f->v[f->next].place < place)
        f->next++;
    size_t k = f->next;
    if (k == f->n || f->v[k].place != place || !f->v[k].whole)
        place = place_of(line, i);
    while (k < f->n && f->v[k].place < place)
        k++;
    *first = k;
    while (k < f->n && f->v[k].place == place)
        k++;
    return k;
}

/* Set *found to the answer with this id and key, or NULL. Without redo, an
 * answer to the same sample with another id or key is refused. */
static int answers_find(struct out_file *f, uint64_t line, size_t i,
                        uint64_t id, uint64_t key, bool redo,
                        const struct answered **found, struct qwick_err *e)
{
    size_t k, end = answers_of_sample(f, line, i, &k);
    const struct answered *a = NULL;
    *found = NULL;
    for (; k < end && !*found; k++) {
        a = &f->v[k];
        if (a->id == id && a->record == key)
            *found = a;
    }
    if (*found || !a || redo)
        return 0;
    return err_usage(
        e,
        a->id != id ? "%s: its answer to line %llu has another id: it belongs "
                      "to another input; left alone (--redo replaces it)"
                    : "%s: its answer to line %llu belongs to another prompt, "
                      "seed or other options; left alone (--redo replaces it)",
        f->path, (unsigned long long)line);
}

/* Write a held line at the next place. */
static int pending_put(struct batch_out *o, const struct answered *a,
                       struct qwick_err *e)
{
    struct buf line = {0};
    uint64_t place;
    int rc = answer_copy(&o->pending, a->at, &line, e) ||
                     batch_out_place(o, &place, e) ||
                     batch_out_put(o, place, &line, e)
                 ? -1
                 : 0;
    resume_count(o, a);
    buf_free(&line);
    return rc;
}

int batch_out_reuse(struct batch_out *o, uint64_t line, size_t i, uint64_t id,
                    uint64_t key, bool *found, struct qwick_err *e)
{
    const struct answered *a;
    size_t k, end;
    if (answers_find(&o->file, line, i, id, key, o->redo, &a, e))
        return -1;
    *found = a;
    if (!a && (answers_find(&o->pending, line, i, id, key, o->redo, &a, e) ||
               (a && pending_put(o, a, e))))
        return -1;
    *found |= a != NULL;
    for (end = answers_of_sample(&o->pending, line, i, &k); k < end; k++)
        o->pending.v[k].over = true;
    return 0;
}

/* ---- the end of a run --------------------------------------------------- */

/* Hold the finished answers whose turn has not come. next NULL: only count
 * them. */
static int pending_add_slots(const struct batch_out *o, struct save *next,
                             size_t *n, struct qwick_err *e)
{
    for (size_t i = 0; i < o->n_slots; i++) {
        const struct out_slot *s = batch_out_slot(o, o->base + i);
        if (next && pending_add(o, next, s->text, s->n, e))
            return -1;
        *n += s->n > 0;
    }
    return 0;
}

int batch_out_end(struct batch_out *o, bool complete, size_t *n_held,
                  size_t *n_lost, struct qwick_err *e)
{
    struct save next = SAVE_NONE;
    bool release = complete && o->replaces;
    size_t n = 0;
    int rc = 0;
    *n_held = *n_lost = 0;
    if (!o->pending.path)
        return pending_add_slots(o, NULL, n_lost, e);
    /* the output is on the disk before the pending file changes */
    if (!o->failed && ((release && answers_copy(o, &o->pending, NULL, &n, e)) ||
                       batch_out_sync(o, e))) {
        rc = -1;
        e = NULL; /* *e keeps the first error */
    }
    n = 0;
    /* Also hold lines whose write failed. If a part of them did reach the
     * output, the next run finds a line twice or cuts it off. */
    if (pending_add_slots(o, &next, &n, e) ||
        (!(release && !rc) && answers_copy(o, &o->pending, &next, &n, e)) ||
        (o->failed && pending_add(o, &next, o->ready.data, o->ready.len, e)) ||
        pending_commit(o, &next, e))
        rc = -1;
    else
        *n_held = n;
    save_abort(&next);
    return rc;
}
