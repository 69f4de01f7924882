#include "cli/group_lines.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "cli/batch_lines.h"
#include "cli/out.h"
#include "cli/progress.h"
#include "cli/prompt.h"
#include "cli/signals.h"

/* Bytes of lines that end a group. */
enum { GROUP_BYTES = 1 << 20 };

/* The place of one line. */
struct place {
    struct buf id;    /* JSON; empty: none */
    struct buf error; /* why there is no answer; empty: there is one */
};

struct group {
    const struct group_work *w;
    void *ctx;
    size_t n, bytes;
    uint64_t n_done, n_total; /* records; total 0: nobody knows */
    struct place places[GROUP_MAX];
    struct buf out;
    bool bad_lines;
};

/* Read one line into its place. */
static int begin(struct group *g, const char *where, const char *s, size_t n,
                 struct qwick_err *e)
{
    struct place *p = &g->places[g->n];
    struct json_doc *doc;
    struct qwick_err bad = {0};
    int oom = 0;
    int r = json_parse(&doc, where, s, n, QWICK_ERR_USAGE, &bad);
    if (r == 0) {
        const struct json_value *v = json_root(doc), *id = json_get(v, "id");
        if (id)
            oom |= json_dump_python(&p->id, id);
        r = json_is(v, JSON_OBJECT)
                ? g->w->read(g->ctx, g->n, v, &bad)
                : err_set(&bad, QWICK_ERR_USAGE, "is no object");
        json_free(doc);
    }
    if (r) {
        bool named = strncmp(bad.msg, where, strlen(where)) == 0;
        oom |= named ? buf_puts(&p->error, bad.msg)
                     : buf_printf(&p->error, "%s: %s", where, bad.msg);
        g->bad_lines = true;
    }
    g->n++;
    g->bytes += n;
    return oom ? err_oom(e, n) : 0;
}

static void clear(struct group *g)
{
    for (size_t i = 0; i < g->n; i++) {
        buf_free(&g->places[i].id);
        buf_free(&g->places[i].error);
    }
    g->w->drop(g->ctx);
    g->n = g->bytes = 0;
}

/* Answer the group and write it. Returns an exit status. */
static int answer(struct group *g)
{
    struct qwick_err e = {0};
    if (g->n == 0)
        return 0;
    progress_items("records", g->n_done, g->n, g->n_total, 0);
    int failed = g->w->work(g->ctx, &e);
    progress_clear();
    g->n_done += g->n;
    if (failed)
        return *signals_flag() ? (int)QWICK_ERR_RUNTIME : msg_fail(&e);
    g->out.len = 0;
    struct json_writer w = json_writer(&g->out);
    for (size_t i = 0; i < g->n; i++) {
        const struct place *p = &g->places[i];
        size_t before = g->out.len;
        jw_object(&w, NULL);
        if (p->id.len)
            jw_raw(&w, "id", p->id.data, p->id.len);
        if (p->error.len)
            jw_string(&w, "error", p->error.data, p->error.len);
        else if (g->w->write(g->ctx, i, &w, &e))
            return msg_fail(&e);
        jw_end_object(&w);
        jw_newline(&w);
        if (g->w->silent && !p->error.len)
            g->out.len = before;
    }
    clear(g);
    if (jw_status(&w))
        return msg_oom();
    if (g->out.len)
        progress_output(STDOUT_FILENO);
    return out_write(g->out.data, g->out.len) ? (int)QWICK_ERR_RUNTIME : 0;
}

static int one_file(struct group *g, const char *name, int fd)
{
    struct lines l;
    struct qwick_err e = {0};
    enum lines_status got;
    int status = 0;
    lines_init(&l, name, fd);
    do {
        const char *text;
        size_t n;
        bool torn;
        /* records that are there do not wait for ones that are not */
        got = lines_next(&l, g->n ? 0 : -1, &text, &n, &torn, &e);
        if (got == LINES_GOT) {
            char where[512];
            snprintf(where, sizeof(where), "%.400s: line %llu", name,
                     (unsigned long long)l.number);
            if (begin(g, where, text, n, &e))
                got = LINES_FAILED;
        }
        if (got == LINES_FAILED)
            status = msg_fail(&e);
        else if (*signals_flag())
            status = QWICK_ERR_RUNTIME;
        else if (got == LINES_WAIT || g->n == GROUP_MAX ||
                 g->bytes >= GROUP_BYTES)
            status = answer(g);
    } while (!status && got != LINES_END);
    lines_free(&l);
    return status;
}

int group_run(const struct verb *v, const struct opt_texts *files,
              const struct group_work *w, void *ctx)
{
    struct group g = {.w = w, .ctx = ctx};
    int status = 0;
    progress_start(v->name);
    g.n_total = progress_on() ? lines_total(files, true) : 0;
    if (!files->n) {
        if (!stdin_is_source())
            status = opt_usage(v, "no input: --jsonl reads standard input");
        else
            status = one_file(&g, "stdin", STDIN_FILENO);
    }
    for (size_t i = 0; i < files->n && !status; i++) {
        const char *path = files->v[i];
        bool dash = strcmp(path, "-") == 0;
        int fd = dash ? STDIN_FILENO : open(path, O_RDONLY | O_CLOEXEC);
        if (fd < 0) {
            msg_error("%s: open: %s", path, strerror(errno));
            status = QWICK_ERR_RUNTIME;
            break;
        }
        status = one_file(&g, dash ? "stdin" : path, fd);
        if (!dash)
            close(fd);
    }
    if (!status)
        status = answer(&g);
    progress_stop();
    clear(&g);
    buf_free(&g.out);
    return status ? status : g.bad_lines;
}
