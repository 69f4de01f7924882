#include "cli/vectors/texts.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/buf.h"
#include "cli/opt/common.h"
#include "cli/io/lines.h"
#include "cli/io/out.h"
#include "cli/io/progress.h"
#include "cli/io/prompt.h"
#include "cli/io/records.h"
#include "cli/io/signals.h"

struct run {
    const struct texts *t;
    void *ctx;
    size_t number;
    char where[512];
    struct buf text;
    struct prompt_faults faults;
};

int texts_form(struct opt_parsed *p, struct common_args *c,
               enum texts_form *form)
{
    int r = common_check_text(p, c, "text", TEXT_MANY);
    *form = c->jsonl ? TEXTS_JSONL : c->lines ? TEXTS_LINES : TEXTS_WHOLE;
    return r;
}

static int out_of_memory(size_t n)
{
    struct qwick_err e;
    err_oom(&e, n);
    return msg_fail(&e);
}

/* Set the text of *item to s[0..n), and hand it out. */
static int hand_out(struct run *r, struct texts_item *item, const char *s,
                    size_t n)
{
    r->text.len = 0;
    if (prompt_clean(&r->text, &r->faults, s, n) || buf_reserve(&r->text, 0))
        return out_of_memory(n);
    item->where = r->where;
    item->number = ++r->number;
    item->text = r->text.data;
    item->n = r->text.len;
    return r->t->take(r->ctx, item);
}

/* ---- whole texts -------------------------------------------------------- */

static int from_args(struct run *r)
{
    int status = 0;
    for (size_t i = 0; i < r->t->n_args && !status; i++) {
        const char *text = r->t->args[i];
        struct texts_item item = {0};
        snprintf(r->where, sizeof r->where, "argument %zu", i + 1);
        status =
            hand_out(r, &item, text, prompt_drop_newline(text, strlen(text)));
    }
    return status;
}

static int whole_file(struct run *r, const char *path)
{
    bool dash = strcmp(path, "-") == 0;
    struct texts_item item = {.file = path};
    struct qwick_err e = {0};
    char *data;
    size_t n;
    if (prompt_read(path, &data, &n, &e))
        return *signals_flag() ? (int)QWICK_ERR_RUNTIME : msg_fail(&e);
    if (n == 0 && !r->t->files->n) { /* the user did not name standard input */
        free(data);
        return common_no_input(r->t->verb);
    }
    if (n == 0)
        prompt_warn_empty(path);
    n = prompt_drop_newline(data, prompt_unix_text(data, n));
    snprintf(r->where, sizeof r->where, "%.500s", dash ? "stdin" : path);
    int status = hand_out(r, &item, data, n);
    free(data);
    return status;
}

/* ---- lines -------------------------------------------------------------- */

static int one_record(struct run *r, const struct line *l)
{
    struct texts_item item = {.where = l->where, .number = ++r->number};
    struct record rec;
    int oom = record_read(&rec, l), status;
    const struct json_value *text = json_get(rec.value, "text");
    if (!rec.value && item.number == 1) {
        progress_clear();
        msg_warn("%s: the first record is no JSON object; --lines takes each "
                 "line as a text",
                 r->t->files->n ? r->t->files->v[0] : "stdin");
    }
    item.value = rec.value;
    item.id = rec.id.data;
    if (json_is(text, JSON_STRING)) {
        item.text = text->str;
        item.n = text->len;
    } else if (rec.value && !oom) {
        oom = record_message(&rec.error, l->where, "text: not a string");
    }
    item.error = rec.error.data;
    status = oom ? out_of_memory(l->n) : r->t->take(r->ctx, &item);
    record_free(&rec);
    return status;
}

static int one_line(void *ctx, const struct line *l)
{
    struct run *r = ctx;
    struct texts_item item = {0};
    if (r->t->form == TEXTS_JSONL)
        return one_record(r, l);
    snprintf(r->where, sizeof r->where, "%s", l->where);
    return hand_out(r, &item, l->text,
                    l->n - (l->n && l->text[l->n - 1] == '\r'));
}

static int on_wait(void *ctx)
{
    const struct run *r = ctx;
    return r->t->wait ? r->t->wait(r->ctx) : 0;
}

/* ---- all of it ---------------------------------------------------------- */

int texts_run(const struct texts *t, void *ctx)
{
    static const struct lines_handler h = {one_line, on_wait};
    struct run r = {.t = t, .ctx = ctx};
    int status = 0;
    if (t->n_args)
        status = from_args(&r);
    else if (!t->files->n && !stdin_is_source())
        return common_no_input(t->verb);
    else if (t->form != TEXTS_WHOLE)
        status = lines_run(t->files, &h, &r);
    else if (!t->files->n)
        status = whole_file(&r, "-");
    for (size_t i = 0; i < t->files->n && t->form == TEXTS_WHOLE && !status;
         i++)
        status = whole_file(&r, t->files->v[i]);
    buf_free(&r.text);
    progress_clear();
    if (!status)
        prompt_warn_faults(&r.faults, "texts");
    return status;
}

uint64_t texts_total(const struct texts *t)
{
    if (t->n_args)
        return t->n_args;
    if (t->form == TEXTS_WHOLE)
        return t->files->n ? t->files->n : 1;
    return lines_total(t->files, true);
}
