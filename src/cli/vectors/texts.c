#include "cli/vectors/texts.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "cli/io/out.h"
#include "cli/io/progress.h"
#include "cli/io/prompt.h"
#include "cli/io/records.h"
#include "cli/io/signals.h"
#include "cli/opt/common.h"

struct run {
    const struct texts *t;
    void *ctx;
    size_t number;
    char where[512];
    struct buf text;
    struct prompt_faults faults;
};

enum texts_form texts_form(const struct args *a)
{
    return a->prompt_ids ? TEXTS_IDS
           : a->jsonl    ? TEXTS_JSONL
           : a->lines    ? TEXTS_LINES
                         : TEXTS_WHOLE;
}

/* The files that have the texts. */
static const struct strings *texts_files(const struct texts *t)
{
    const struct args *a = &t->p->a;
    return texts_form(a) == TEXTS_WHOLE ? &a->file : &a->input;
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
    for (size_t i = 0; i < r->t->p->n_args && !status; i++) {
        const char *text = r->t->p->args[i];
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
    if (n == 0 &&
        !texts_files(r->t)->n) { /* the user did not name standard input */
        free(data);
        return common_no_input(r->t->p->verb);
    }
    if (n == 0)
        prompt_warn_empty(path);
    n = prompt_drop_newline(data, prompt_unix_text(data, n));
    snprintf(r->where, sizeof r->where, "%.500s", dash ? "stdin" : path);
    int status = hand_out(r, &item, data, n);
    free(data);
    return status;
}

/* ---- ids ---------------------------------------------------------------- */

static int from_ids(struct run *r)
{
    const char *s = r->t->p->a.prompt_ids;
    int status = 0;
    for (size_t line = 1; *s && !status; line++) {
        size_t n = strcspn(s, "\n");
        struct texts_item item = {.is_ids = true};
        snprintf(r->where, sizeof r->where, "line %zu", line);
        if (strspn(s, " \t\r") < n)
            status = hand_out(r, &item, s, n);
        s += n + (s[n] == '\n');
    }
    return status || r->number
               ? status
               : opt_usage(r->t->p->verb, "--prompt-ids: no token ids");
}

/* The ids of a text, which may have two segments. */
static int parse_ids(const struct texts_item *item, int32_t **ids, size_t *n,
                     size_t *n_first, struct qwick_err *e)
{
    static const char name[] = "--prompt-ids";
    const char *bar = n_first ? memchr(item->text, '|', item->n) : NULL;
    size_t first = bar ? (size_t)(bar - item->text) : 0;
    if (!bar)
        return prompt_ids(name, item->text, item->n, false, ids, n, e);
    char *text = strndup(item->text, item->n);
    if (!text)
        return err_oom(e, item->n);
    int rc = prompt_ids(name, text, first, false, ids, n_first, e);
    free(*ids);
    text[first] = ' ';
    if (!rc)
        rc = prompt_ids(name, text, item->n, false, ids, n, e);
    free(text);
    return rc;
}

/* Append the ids of an array, which is not empty. */
static int append_ids(const struct json_value *v, int32_t **ids, size_t *n,
                      struct qwick_err *e)
{
    static const char want[] = "prompt_ids: not an array of token ids";
    if (!json_is(v, JSON_ARRAY) || !v->len)
        return err_usage(e, want);
    int32_t *all = realloc(*ids, (*n + v->len) * sizeof *all);
    if (!all)
        return err_oom(e, v->len * sizeof *all);
    *ids = all;
    for (size_t i = 0; i < v->len; i++, (*n)++) {
        int64_t id;
        if (json_int(&v->items[i], 0, INT32_MAX, &id))
            return err_usage(e, want);
        all[*n] = (int32_t)id;
    }
    return 0;
}

/* The ids of an object: an array, or two arrays, which are two segments. */
static int json_ids(const struct json_value *v, int32_t **ids, size_t *n,
                    size_t *n_first, struct qwick_err *e)
{
    bool pair = n_first && json_is(v, JSON_ARRAY) && v->len == 2 &&
                json_is(&v->items[0], JSON_ARRAY);
    if (!pair)
        return append_ids(v, ids, n, e);
    if (append_ids(&v->items[0], ids, n, e))
        return -1;
    *n_first = *n;
    return append_ids(&v->items[1], ids, n, e);
}

static int fit_ids(const struct texts *t, size_t n, struct qwick_err *e)
{
    size_t n_ctx = t->p->a.ctx ? (size_t)t->p->a.ctx : t->ids_of->n_ctx_max;
    return n <= n_ctx
               ? 0
               : err_set(e, QWICK_ERR_CONTEXT,
                         "%zu tokens do not fit the context of %zu", n, n_ctx);
}

int texts_ids(const struct texts *t, const struct texts_item *item,
              int32_t **ids, size_t *n, size_t *n_first, struct qwick_err *e)
{
    *ids = NULL;
    *n = 0;
    if (n_first)
        *n_first = 0;
    int rc = item->text ? parse_ids(item, ids, n, n_first, e)
                        : json_ids(json_get(item->value, "prompt_ids"), ids, n,
                                   n_first, e);
    if (!rc && !prompt_check_ids(*ids, *n, t->ids_of->vocab_size, e) &&
        !fit_ids(t, *n, e))
        return 0;
    free(*ids);
    *ids = NULL;
    return -1;
}

/* ---- lines -------------------------------------------------------------- */

static int one_record(struct run *r, const struct line *l)
{
    const struct strings *files = texts_files(r->t);
    struct texts_item item = {
        .where = l->where, .line = l, .number = ++r->number};
    struct record rec;
    int oom = record_read(&rec, l), status;
    const struct json_value *text = json_get(rec.value, "text");
    if (!rec.value && item.number == 1) {
        progress_clear();
        msg_warn("%s: the first record is no JSON object; --lines takes each "
                 "line as a text",
                 files->n ? files->v[0] : "stdin");
    }
    item.value = rec.value;
    item.id = rec.id.data;
    if (json_is(text, JSON_STRING)) {
        item.text = text->str;
        item.n = text->len;
    } else if (r->t->ids_of && !text && json_get(rec.value, "prompt_ids")) {
        item.is_ids = true;
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
    struct texts_item item = {.line = l};
    if (texts_form(&r->t->p->a) == TEXTS_JSONL)
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
    const struct strings *files = texts_files(t);
    enum texts_form form = texts_form(&t->p->a);
    bool whole = form == TEXTS_WHOLE;
    int status = 0;
    if (form == TEXTS_IDS)
        status = from_ids(&r);
    else if (t->p->n_args)
        status = from_args(&r);
    else if (!files->n && !stdin_is_source())
        return common_no_input(t->p->verb);
    else if (!whole)
        status = lines_run(files, &h, &r);
    else if (!files->n)
        status = whole_file(&r, "-");
    for (size_t i = 0; whole && i < files->n && !status; i++)
        status = whole_file(&r, files->v[i]);
    buf_free(&r.text);
    progress_clear();
    if (!status)
        prompt_warn_faults(&r.faults, "texts");
    return status;
}

int texts_check(struct opt_parsed *p)
{
    if (p->a.prompt_ids && p->n_args)
        return opt_usage(p->verb,
                         "--prompt-ids: cannot be combined with a text");
    return common_check_text(p, "text", TEXT_MANY);
}

uint64_t texts_total(const struct texts *t)
{
    const struct strings *files = texts_files(t);
    if (texts_form(&t->p->a) == TEXTS_IDS)
        return 0;
    if (t->p->n_args)
        return t->p->n_args;
    if (texts_form(&t->p->a) == TEXTS_WHOLE)
        return files->n ? files->n : 1;
    return lines_total(files, true);
}
