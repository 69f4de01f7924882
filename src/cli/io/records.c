#include "cli/io/records.h"

#include <string.h>
#include <unistd.h>

#include "cli/io/out.h"
#include "cli/io/progress.h"
#include "cli/io/prompt.h"
#include "cli/io/signals.h"

/* A group ends when its lines have this many bytes. */
enum { GROUP_BYTES = 1 << 20 };

/* ---- one record --------------------------------------------------------- */

int record_message(struct buf *out, const char *where, const char *msg)
{
    bool named = strncmp(msg, where, strlen(where)) == 0;
    return named ? buf_puts(out, msg) : buf_printf(out, "%s: %s", where, msg);
}

int record_read(struct record *r, const struct line *l)
{
    struct qwick_err e = {0};
    *r = (struct record){0};
    if (l->error && !l->n)
        return record_message(&r->error, l->where, l->error);
    if (json_parse(&r->doc, l->where, l->text, l->n, QWICK_ERR_USAGE, &e))
        return record_message(&r->error, l->where, e.msg);
    const struct json_value *v = json_root(r->doc), *id = json_get(v, "id");
    if (!json_is(v, JSON_OBJECT))
        return record_message(&r->error, l->where, "is not an object");
    if (id && json_dump_python(&r->id, id))
        return -1;
    if (l->error)
        return record_message(&r->error, l->where, l->error);
    r->value = v;
    return 0;
}

void record_free(struct record *r)
{
    json_free(r->doc);
    buf_free(&r->id);
    buf_free(&r->error);
    *r = (struct record){0};
}

/* ---- a filter ----------------------------------------------------------- */

/* The place of one line in a group. */
struct place {
    struct buf id;     /* as in struct record */
    struct buf error;  /* as in struct record */
    struct buf answer; /* members of the answer, of a line that was answered at
                          once */
};

struct filter {
    const struct records_work *w;
    void *ctx;
    size_t n, bytes;
    uint64_t n_done, n_total; /* numbers of records; total 0: unknown */
    struct place places[RECORDS_GROUP];
    struct buf out;
    bool any, bad_lines;
};

/* Answer a line at once, into its place. Returns -1 when memory ran out. */
static int answer_line(struct filter *f, const struct line *l, struct place *p)
{
    struct json_writer w = json_writer(&p->answer);
    struct json_doc *doc = NULL;
    struct qwick_err e = {0};
    int r = json_parse(&doc, l->where, l->text, l->n, QWICK_ERR_USAGE, &e);
    if (r == 0)
        r = f->w->answer(f->ctx, l, json_root(doc), &w, &e);
    const struct json_value *id = doc ? json_get(json_root(doc), "id") : NULL;
    int oom = id ? json_dump_python(&p->id, id) : 0;
    json_free(doc);
    return oom || !r ? oom : record_message(&p->error, l->where, e.msg);
}

static int take_line(struct filter *f, const struct line *l, struct place *p)
{
    struct record r;
    struct qwick_err e = {0};
    if (l->blank)
        return 0;
    int oom = record_read(&r, l);
    if (r.value && !oom && f->w->read(f->ctx, f->n, r.value, &e))
        oom = record_message(&r.error, l->where, e.msg);
    p->id = r.id;
    p->error = r.error;
    r.id = r.error = (struct buf){0};
    record_free(&r);
    return oom;
}

static void clear(struct filter *f)
{
    for (size_t i = 0; i < f->n; i++) {
        buf_free(&f->places[i].id);
        buf_free(&f->places[i].error);
        buf_free(&f->places[i].answer);
    }
    if (f->w->drop)
        f->w->drop(f->ctx);
    f->n = f->bytes = 0;
}

/* Call the verb's `work`. Returns an exit status. */
static int work(struct filter *f)
{
    struct qwick_err e = {0};
    progress_items("records", f->n_done, f->n, f->n_total, 0);
    int failed = f->w->work(f->ctx, &e);
    progress_clear();
    f->n_done += f->n;
    if (!failed)
        return 0;
    return *signals_flag() ? (int)QWICK_ERR_RUNTIME : msg_fail(&e);
}

/* Append line i to the output. Returns an exit status. */
static int put_line(struct filter *f, struct json_writer *w, size_t i)
{
    const struct place *p = &f->places[i];
    struct qwick_err e = {0};
    size_t before = f->out.len;
    if (f->w->row) {
        f->w->row(f->ctx, i, p->error.len ? p->error.data : NULL, &f->out);
        return f->out.failed ? msg_oom() : 0;
    }
    jw_object(w, NULL);
    jw_raw(w, "id", p->id.data, p->id.len);
    if (p->error.len)
        jw_string(w, "error", p->error.data, p->error.len);
    else if (!f->w->write)
        jw_raw(w, NULL, p->answer.data, p->answer.len);
    else if (f->w->write(f->ctx, i, w, &e))
        return msg_fail(&e);
    jw_end_line(w);
    if (f->w->silent && !p->error.len)
        f->out.len = before;
    return jw_status(w) ? msg_oom() : 0;
}

/* Answer the group and write it. Returns an exit status. */
static int records_answer(void *ctx)
{
    struct filter *f = ctx;
    int status = 0;
    if (f->n == 0)
        return 0;
    if (f->w->work && (status = work(f)) != 0)
        return status;
    f->out.len = 0;
    struct json_writer w = json_writer(&f->out);
    for (size_t i = 0; i < f->n && !status; i++)
        status = put_line(f, &w, i);
    clear(f);
    if (status)
        return status;
    if (f->out.len)
        progress_output(STDOUT_FILENO);
    return out_write(f->out.data, f->out.len) ? (int)QWICK_ERR_RUNTIME : 0;
}

static int one_line(void *ctx, const struct line *l)
{
    struct filter *f = ctx;
    struct place *p = &f->places[f->n];
    int oom = f->w->answer ? answer_line(f, l, p) : take_line(f, l, p);
    f->n++;
    f->any = true;
    f->bytes += l->n;
    f->bad_lines |= p->error.len > 0;
    if (oom)
        return msg_oom();
    return f->n == RECORDS_GROUP || f->bytes >= GROUP_BYTES ? records_answer(f)
                                                            : 0;
}

int records_none(const char *verb, const char *name)
{
    return msg_usage(verb,
                     "%s: has no records; -i FILE names a file with records, "
                     "-f one with text before each of them",
                     name);
}

int records_run(const char *verb, const struct strings *files,
                const struct records_work *w, void *ctx)
{
    static const struct lines_handler h = {one_line, records_answer};
    struct filter f = {.w = w, .ctx = ctx};
    int status;
    if (w->work) {
        progress_start(verb);
        f.n_total = progress_on() ? lines_total(files, true) : 0;
    }
    if (!files->n && !stdin_is_source())
        status = msg_usage(verb, "no input: --jsonl reads standard input");
    else
        status = w->input ? w->input(ctx, &h, &f) : lines_run(files, &h, &f);
    if (!status)
        status = records_answer(&f);
    progress_stop();
    clear(&f);
    buf_free(&f.out);
    if (!status && w->required && !f.any)
        return records_none(verb, files->n ? files->v[0] : "stdin");
    return status ? status : f.bad_lines;
}
