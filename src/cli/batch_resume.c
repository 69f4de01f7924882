#include "cli/batch_resume.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cli/batch_lines.h"
#include "cli/batch_record.h"
#include "cli/out.h"
#include "file/json.h"

/* Lines and samples as one number: RECORD_MAX_N is below 2^10. */
enum { SAMPLE_BITS = 10 };
#define MAX_LINE ((int64_t)1 << 53)

_Static_assert(RECORD_MAX_N <= 1 << SAMPLE_BITS, "samples have a number each");

/* How every line begins, so that what was cut off can be told from what is not
 * ours. */
static const char head[] = "{\"line\":";

static uint64_t key_of(uint64_t line, size_t sample)
{
    return line << SAMPLE_BITS | sample;
}

static int foreign(const struct batch_out *o, const struct lines *l,
                   struct qwick_err *e)
{
    return err_set(e, QWICK_ERR_USAGE,
                   "%s: line %llu: was not written by qwick batch; left alone",
                   o->path, (unsigned long long)l->number);
}

static int add(struct batch_out *o, struct answered a, struct qwick_err *e)
{
    if (o->n_answered == o->cap_answered) {
        size_t cap = o->cap_answered ? 2 * o->cap_answered : 1024;
        struct answered *v = realloc(o->answered, cap * sizeof(*v));
        if (!v)
            return err_oom(e, cap * sizeof(*v));
        o->answered = v;
        o->cap_answered = cap;
    }
    o->answered[o->n_answered++] = a;
    return 0;
}

/* The id as record_parse has it, hashed. */
static int id_of(const struct json_value *v, uint64_t *hash)
{
    struct buf id = {0};
    int r = 0;
    if (json_is(v, JSON_STRING))
        r = buf_json_string(&id, v->str, v->len);
    else if (json_is(v, JSON_NUMBER))
        r = buf_append(&id, v->str, v->len);
    *hash = record_id_hash(id.data, id.len);
    buf_free(&id);
    return r;
}

static int note_line(struct batch_out *o, const struct lines *l,
                     const char *text, size_t n, struct qwick_err *e)
{
    struct json_doc *doc;
    struct answered a = {0};
    int64_t line = 0, index = 0;
    if (json_parse(&doc, o->path, text, n, QWICK_ERR_USAGE, NULL))
        return foreign(o, l, e);
    const struct json_value *v = json_root(doc);
    const struct json_value *i = json_get(v, "index");
    bool error = json_get(v, "error") != NULL;
    int rc;
    if (json_int(json_get(v, "line"), 1, MAX_LINE, &line) ||
        (i && json_int(i, 0, RECORD_MAX_N - 1, &index)) ||
        (!error && !json_get(v, "finish_reason"))) {
        rc = foreign(o, l, e);
    } else if (id_of(json_get(v, "id"), &a.id)) {
        rc = err_oom(e, n);
    } else {
        a.key = key_of((uint64_t)line, (size_t)index);
        a.whole = error && !i;
        o->had_errors |= error;
        rc = add(o, a, e);
    }
    json_free(doc);
    return rc;
}

/* Remove the last n bytes. */
static int cut(struct batch_out *o, const struct lines *l, const char *text,
               size_t n, struct qwick_err *e)
{
    size_t same = n < sizeof(head) - 1 ? n : sizeof(head) - 1;
    if (memcmp(text, head, same) != 0)
        return foreign(o, l, e);
    if (ftruncate(o->fd, (off_t)(l->consumed - n)))
        return err_set(e, QWICK_ERR_RUNTIME, "%s: cannot be cut: %s", o->path,
                       strerror(errno));
    msg_note("%s: line %llu was cut off, removed", o->path,
             (unsigned long long)l->number);
    return 0;
}

static int by_key(const void *a, const void *b)
{
    const struct answered *x = a, *y = b;
    return (x->key > y->key) - (x->key < y->key);
}

static int read_lines(struct batch_out *o, struct lines *l, struct qwick_err *e)
{
    const char *text;
    size_t n;
    bool torn;
    for (;;) {
        switch (lines_next(l, -1, &text, &n, &torn, e)) {
        case LINES_GOT:
            if (torn ? cut(o, l, text, n, e) : note_line(o, l, text, n, e))
                return -1;
            break;
        case LINES_WAIT:
            break;
        case LINES_END:
            return 0;
        case LINES_FAILED:
            return -1;
        }
    }
}

int batch_resume(struct batch_out *o, struct qwick_err *e)
{
    struct stat st;
    struct lines l;
    if (fstat(o->fd, &st) || !S_ISREG(st.st_mode))
        return 0;
    if (flock(o->fd, LOCK_EX | LOCK_NB) && errno == EWOULDBLOCK)
        return err_set(e, QWICK_ERR_USAGE,
                       "%s: another qwick batch is writing it", o->path);
    lines_init(&l, o->path, o->fd);
    int r = read_lines(o, &l, e);
    lines_free(&l);
    if (r)
        return -1;
    if (o->n_answered > 0)
        qsort(o->answered, o->n_answered, sizeof(*o->answered), by_key);
    return 0;
}

static const struct answered *find(const struct batch_out *o, uint64_t line,
                                   size_t sample)
{
    const struct answered want = {.key = key_of(line, sample)};
    return o->n_answered ? bsearch(&want, o->answered, o->n_answered,
                                   sizeof(want), by_key)
                         : NULL;
}

int batch_out_answered(const struct batch_out *o, uint64_t line, size_t i,
                       uint64_t id, bool *yes, struct qwick_err *e)
{
    const struct answered *a = find(o, line, 0);
    if (!(a && a->whole))
        a = find(o, line, i);
    *yes = a != NULL;
    if (a && a->id != id)
        return err_set(e, QWICK_ERR_USAGE,
                       "%s: its answer to line %llu has another id: it "
                       "belongs to another input",
                       o->path, (unsigned long long)line);
    return 0;
}
