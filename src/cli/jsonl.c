#include "cli/jsonl.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "cli/out.h"
#include "cli/prompt.h"

#define CHUNK 65536

struct filter {
    jsonl_fn fn;
    void *ctx;
    struct buf out;
    bool bad_lines;
};

/* {"error"}, which always says where: a message from below may not. */
static int put_error(struct json_writer *w, const char *where, const char *msg)
{
    struct buf text = {0};
    bool named = strncmp(msg, where, strlen(where)) == 0;
    int r =
        named ? buf_puts(&text, msg) : buf_printf(&text, "%s: %s", where, msg);
    jw_string(w, "error", text.data ? text.data : "", text.len);
    buf_free(&text);
    return r;
}

static int one_line(struct filter *f, const char *name, size_t number,
                    const char *s, size_t n)
{
    struct json_doc *doc = NULL;
    struct qwick_err e = {0};
    char where[512];
    size_t before = f->out.len;
    struct json_writer w = {.out = &f->out};
    int r;
    snprintf(where, sizeof(where), "%s: line %zu", name, number);
    r = json_parse(&doc, where, s, n, QWICK_ERR_USAGE, &e);
    if (r == 0) {
        struct jsonl_line line = {where, s, n, json_root(doc)};
        jw_object(&w, NULL);
        r = f->fn(f->ctx, &line, &w, &e);
    }
    json_free(doc);
    if (r) {
        f->bad_lines = true;
        f->out.len = before;
        w = (struct json_writer){.out = &f->out};
        jw_object(&w, NULL);
        r = put_error(&w, where, e.msg);
    }
    jw_end_object(&w);
    jw_newline(&w);
    return r ? -1 : jw_status(&w);
}

static int flush(struct filter *f)
{
    int r = f->out.len ? out_write(f->out.data, f->out.len) : 0;
    f->out.len = 0;
    return r ? (int)QWICK_ERR_RUNTIME : 0;
}

/* 1: got some, 0: end, -1: errno. */
static int read_some(int fd, struct buf *in)
{
    if (buf_reserve(in, CHUNK)) {
        /* EFBIG: a line that is longer than the limit */
        errno = in->len > in->max - CHUNK ? EFBIG : ENOMEM;
        return -1;
    }
    for (;;) {
        ssize_t k = read(fd, in->data + in->len, CHUNK);
        if (k >= 0) {
            in->len += (size_t)k;
            in->data[in->len] = 0;
            return k > 0;
        }
        if (errno == EAGAIN) {
            struct pollfd pf = {.fd = fd, .events = POLLIN};
            poll(&pf, 1, -1);
        } else if (errno != EINTR) {
            return -1;
        }
    }
}

static int read_failed(const char *name, size_t number, size_t max)
{
    if (errno == ENOMEM)
        return msg_oom();
    if (errno == EFBIG)
        msg_error("%s: line %zu: longer than the limit of %zu bytes", name,
                  number, max);
    else
        msg_error("%s: cannot read: %s", name, strerror(errno));
    return QWICK_ERR_RUNTIME;
}

static int one_file(struct filter *f, const char *name, int fd)
{
    struct buf in = {.max = PROMPT_MAX};
    size_t start = 0, scanned = 0, number = 0;
    int status = 0, more = 1;
    while (more > 0 && !status) {
        if ((status = flush(f)) != 0)
            break;
        /* drop the lines that are done */
        if (start) {
            memmove(in.data, in.data + start, in.len - start);
            in.len -= start;
            scanned -= start;
            start = 0;
        }
        more = read_some(fd, &in);
        if (more < 0) {
            status = read_failed(name, number + 1, in.max);
        }
        char *nl;
        while (!status && scanned < in.len &&
               (nl = memchr(in.data + scanned, '\n', in.len - scanned))) {
            size_t end = (size_t)(nl - in.data);
            if (one_line(f, name, ++number, in.data + start, end - start))
                status = msg_oom();
            start = scanned = end + 1;
            if (!status && f->out.len >= CHUNK)
                status = flush(f);
        }
        scanned = in.len;
    }
    if (!status && in.len > start &&
        one_line(f, name, ++number, in.data + start, in.len - start))
        status = msg_oom();
    buf_free(&in);
    return status ? status : flush(f);
}

int jsonl_run(const struct verb *v, const struct opt_texts *files, jsonl_fn fn,
              void *ctx)
{
    struct filter f = {.fn = fn, .ctx = ctx};
    int status = 0;
    if (!files->n) {
        if (!stdin_is_source())
            status = opt_usage(v, "no input: --jsonl reads standard input");
        else
            status = one_file(&f, "stdin", STDIN_FILENO);
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
        status = one_file(&f, dash ? "stdin" : path, fd);
        if (!dash)
            close(fd);
    }
    buf_free(&f.out);
    return status ? status : f.bad_lines;
}
