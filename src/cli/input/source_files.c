#include "cli/input/source_files.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "cli/io/out.h"
#include "cli/io/progress.h"
#include "cli/io/signals.h"
#include "cli/opt/common.h"

static void close_file(struct source_files *f)
{
    source_free(&f->source);
    lines_free(&f->in);
    if (f->in.fd > STDIN_FILENO)
        close(f->in.fd);
    f->in.fd = -1;
}

static int open_next(struct source_files *f)
{
    const struct strings *files = &f->p->a.input;
    const char *path = files->n ? files->v[f->next] : "-";
    struct qwick_err e;
    bool dash = strcmp(path, "-") == 0;
    int fd = dash ? STDIN_FILENO : open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return msg_errno(path, "open");
    f->next++;
    lines_init(&f->in, dash ? "stdin" : path, fd);
    return msg_result(source_open(&f->source, &f->in, f->format, f->p, &e), &e);
}

int source_files_open(struct source_files *f, const struct opt_parsed *p,
                      const char *format)
{
    *f = (struct source_files){.p = p, .format = format, .in.fd = -1};
    if (!p->a.input.n && !stdin_is_source())
        return common_no_input(p->verb);
    return open_next(f);
}

void source_files_free(struct source_files *f)
{
    close_file(f);
}

/* Hand out a record. */
static int give(struct source_files *f, const struct source_record *r,
                const struct lines_handler *h, void *h_ctx)
{
    struct line line = {.blank = r->blank};
    struct qwick_err e = {0};
    char where[512];
    snprintf(where, sizeof(where), "%.400s: line %llu", f->in.name,
             (unsigned long long)r->line);
    line.where = where;
    if (!r->blank && source_translate(&f->source, r, &line.text, &line.n, &e)) {
        if (e.code == QWICK_ERR_MEMORY)
            return msg_oom();
        line.error = e.msg;
    }
    return h->line(h_ctx, &line);
}

static int run_file(struct source_files *f,
                    int (*take)(void *ctx, const struct source_record *r),
                    void *ctx, const struct lines_handler *h, void *h_ctx)
{
    struct source_record r;
    struct qwick_err e = {0};
    enum lines_status got;
    bool waits = false; /* the handler was told that no input is available */
    int status = 0;
    do {
        got = source_next(&f->source, waits ? -1 : 0, &r, &e);
        if (got == LINES_FAILED)
            status = msg_fail(&e);
        else if (got == LINES_GOT && (status = take(ctx, &r)) == 0)
            status = give(f, &r, h, h_ctx);
        else if (got == LINES_WAIT && !waits && !*signals_flag())
            status = h->wait(h_ctx);
        if (!status && *signals_flag())
            status = QWICK_ERR_RUNTIME;
        waits = got == LINES_WAIT;
    } while (!status && got != LINES_END);
    progress_clear();
    if (!status)
        prompt_warn_faults(&f->source.faults, f->in.name);
    return status;
}

int source_files_run(struct source_files *f,
                     int (*take)(void *ctx, const struct source_record *r),
                     void *ctx, const struct lines_handler *h, void *h_ctx)
{
    int status = run_file(f, take, ctx, h, h_ctx);
    while (!status && f->next < f->p->a.input.n) {
        close_file(f);
        if ((status = open_next(f)) == 0)
            status = run_file(f, take, ctx, h, h_ctx);
    }
    return status;
}
