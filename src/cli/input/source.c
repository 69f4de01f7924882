#include "cli/input/source.h"

#include <stdlib.h>
#include <string.h>

#include "cli/answer/request.h"
#include "cli/io/out.h"
#include "cli/io/progress.h"
#include "cli/io/signals.h"
#include "file/json.h"
#include "file/json_writer.h"

static int source_interrupted(const struct source *s, struct qwick_err *e)
{
    return err_set(e, QWICK_ERR_RUNTIME, "%s: interrupted", s->in->name);
}

/* ---- templates ---------------------------------------------------------- */

/* A field has the value that the record gives, or else that of --set. */
static int field_value(void *ctx, const struct template_part *field,
                       const char **s, size_t *n, struct qwick_err *e)
{
    const struct source *src = ctx;
    int r = src->form->value(src, field, s, n, e);
    if (r <= 0)
        return r;
    const char *value = preset_value(&src->p->a, field->s, field->n);
    if (!value)
        return preset_unset(&src->t, field, e);
    *s = value;
    *n = strlen(value);
    return 0;
}

/* Write the member "prompt" of the record: the filled template. */
static int put_prompt(struct json_writer *w, struct source *s,
                      struct qwick_err *e)
{
    struct buf text = {.max = s->in->in.max};
    int rc = prompt_template_fill(&s->t, field_value, s, &text, e);
    if (!rc)
        jw_string(w, "prompt", buf_text(&text), text.len);
    buf_free(&text);
    return rc;
}

/* Parse the template of the options, or {} if there is none. */
static int open_template(struct source *s, const struct template_names *known,
                         struct qwick_err *e)
{
    if (!preset_given(&s->p->a))
        return prompt_template_parse(&s->t, "the prompt", "{}", 2, 1, NULL, e);
    return preset_template(&s->t, s->p, known, e) ||
                   preset_check_values(&s->t, &s->p->a, e)
               ? -1
               : 0;
}

/* Lines give no values to named fields; --set must do so. */
static int source_begin_lines(struct source *s, struct qwick_err *e)
{
    if (open_template(s, NULL, e))
        return -1;
    for (size_t i = 0; i < s->t.n; i++)
        if (s->t.v[i].is_field && s->t.v[i].n &&
            !preset_value(&s->p->a, s->t.v[i].s, s->t.v[i].n))
            return preset_unset(&s->t, &s->t.v[i], e);
    return prompt_template_find(&s->t, "", 0)
               ? 0
               : err_usage(e, "%s: has no {} for the lines", s->t.name);
}

/* The length of a line without its CR. */
static size_t line_length(const char *line, size_t n)
{
    return n - (n && line[n - 1] == '\r');
}

static int line_value(const struct source *src,
                      const struct template_part *field, const char **s,
                      size_t *n, struct qwick_err *e)
{
    (void)e;
    if (field->n)
        return 1;
    *s = src->record->text;
    *n = line_length(*s, src->record->n);
    return 0;
}

/* ---- tables ------------------------------------------------------------- */

/* The first column of a name, from the index `from` on; header.n if there is
 * none. */
static size_t find_column(const struct csv *header, size_t from,
                          const char *name, size_t n)
{
    size_t i = from;
    while (i < header->n &&
           (header->v[i].n != n || memcmp(csv_value(header, i), name, n) != 0))
        i++;
    return i;
}

/* The column of a template's field; {} is the column "prompt". */
static size_t column_of(const struct csv *header,
                        const struct template_part *field)
{
    return field->n ? find_column(header, 0, field->s, field->n)
                    : find_column(header, 0, "prompt", 6);
}

static int unknown_column(const struct source *s,
                          const struct template_part *field,
                          struct qwick_err *e)
{
    struct buf b = {.max = 299}; /* the names of the columns, as many as fit */
    for (size_t i = 0; i < s->header.n; i++)
        if (buf_puts(&b, i ? ", " : "") ||
            buf_json_string(&b, csv_value(&s->header, i), s->header.v[i].n))
            break;
    const char *names = buf_text(&b);
    if (!preset_given(&s->p->a))
        err_usage(e,
                  "%s: has no column \"prompt\", so that --prompt-template or "
                  "-T must name columns; there are: %s",
                  s->in->name, names);
    else
        err_usage(e, "%s:%zu: {%s} is no column of %s%s; there are: %s",
                  s->t.name, field->line, ERR_SHOW(field->s, field->n),
                  s->in->name, field->n ? "" : ", since none is named prompt",
                  names);
    buf_free(&b);
    return -1;
}

/* Check the template against the header. */
static int check_columns(const struct source *s, struct qwick_err *e)
{
    const struct csv *h = &s->header;
    bool any = false;
    for (size_t i = 0; i < s->t.n; i++) {
        const struct template_part *f = &s->t.v[i];
        size_t k = f->is_field ? column_of(h, f) : h->n;
        const char *set = preset_value(&s->p->a, f->s, f->n);
        if (!f->is_field)
            continue;
        if (k == h->n && !set)
            return unknown_column(s, f, e);
        if (k == h->n)
            continue;
        if (set)
            return err_usage(e, "--set %s: is a column of %s",
                             ERR_SHOW(f->s, f->n), s->in->name);
        size_t again = find_column(h, k + 1, csv_value(h, k), h->v[k].n);
        if (again < h->n)
            return err_usage(e,
                             "%s: columns %zu and %zu have the same name, %s",
                             s->in->name, k + 1, again + 1,
                             ERR_SHOW(csv_value(h, k), h->v[k].n));
        any = true;
    }
    return any ? 0
               : err_usage(e, "%s: has no column of %s", s->t.name,
                           s->in->name);
}

static int open_table_template(struct source *s, struct qwick_err *e)
{
    const struct csv *h = &s->header;
    const char **names = calloc(h->n + 1, sizeof(*names));
    if (!names)
        return err_oom(e, h->n * sizeof(*names));
    for (size_t i = 0; i < h->n; i++)
        names[i] = csv_value(h, i);
    struct template_names known = {names, h->n};
    int rc = open_template(s, &known, e);
    free(names);
    return rc ? -1 : check_columns(s, e);
}

/* Read the header. */
static int source_begin_table(struct source *s, struct qwick_err *e)
{
    struct source_record r;
    enum lines_status got;
    s->csv.dialect = s->form->csv;
    while ((got = source_next(s, -1, &r, e)) == LINES_WAIT)
        if (*signals_flag())
            return source_interrupted(s, e);
    if (got == LINES_FAILED)
        return -1;
    if (got == LINES_END)
        return err_usage(e,
                         "%s: is empty; its first line must name the columns",
                         s->in->name);
    if (r.why.code)
        return err_usage(e, "%s: line %llu: %s", s->in->name,
                         (unsigned long long)r.line, r.why.msg);
    s->header = s->csv;
    s->csv = (struct csv){.dialect = s->form->csv};
    return open_table_template(s, e);
}

static int cell_value(const struct source *src,
                      const struct template_part *field, const char **s,
                      size_t *n, struct qwick_err *e)
{
    size_t k = column_of(&src->header, field);
    (void)e;
    if (k == src->header.n)
        return 1;
    *s = csv_value(&src->csv, k);
    *n = src->csv.v[k].n;
    return 0;
}

/* Translate a row, or a line, which has no columns. */
static int translate_row(struct source *s, struct buf *json,
                         struct qwick_err *e)
{
    const struct csv *c = &s->csv;
    size_t id = find_column(&s->header, 0, "id", 2);
    struct json_writer w = json_writer(json);
    if (c->n != s->header.n)
        return record_fault(e, "has %zu fields, the header has %zu", c->n,
                            s->header.n);
    jw_object(&w, NULL);
    if (id < c->n)
        jw_string(&w, "id", csv_value(c, id), c->v[id].n);
    if (put_prompt(&w, s, e)) {
        json->len = 0;
        return -1;
    }
    jw_end_object(&w);
    return jw_status(&w) ? err_oom(e, json->len) : 0;
}

/* ---- JSON lines --------------------------------------------------------- */

/* A template's fields may be members of the records, so only --set is
 * checked. */
static int source_begin_json(struct source *s, struct qwick_err *e)
{
    return preset_given(&s->p->a) ? open_template(s, NULL, e) : 0;
}

static int member_value(const struct source *src,
                        const struct template_part *field, const char **s,
                        size_t *n, struct qwick_err *e)
{
    const struct json_value *v =
        field->n ? json_get_n(src->value, field->s, field->n)
                 : json_get(src->value, "prompt");
    if (!v || json_is(v, JSON_NULL))
        return field->n ? 1 : record_fault(e, "has no \"prompt\" for {}");
    if (json_is(v, JSON_BOOL)) {
        *s = v->boolean ? "true" : "false";
        *n = strlen(*s);
        return 0;
    }
    if (!json_is(v, JSON_STRING) && !json_is(v, JSON_NUMBER))
        return record_fault(e, "%s: must be a string or a number for {%s}",
                            field->n ? ERR_SHOW(field->s, field->n) : "prompt",
                            ERR_SHOW(field->s, field->n));
    *s = v->str;
    *n = v->len;
    return 0;
}

/* Write the filled template, and the members that are not only fields of it. */
static int put_members(struct source *s, struct json_writer *w,
                       struct qwick_err *e)
{
    static const char *const others[] = {"messages", "prompt_ids"};
    const struct json_value *v = s->value;
    if (!json_is(v, JSON_OBJECT))
        return record_fault(e, "is not an object");
    for (size_t i = 0; i < 2; i++)
        if (json_get(v, others[i]))
            return record_fault(e, "%s: cannot be combined with %s", others[i],
                                s->t.name);
    if (json_get(v, "prompt") && !prompt_template_find(&s->t, "", 0))
        return record_fault(e, "prompt: %s has no {} for it", s->t.name);
    for (size_t i = 0; i < v->len; i++) {
        const struct json_value *k = &v->keys[i];
        if (json_equals(k, "prompt") ||
            (prompt_template_find(&s->t, k->str, k->len) &&
             !request_has_key(k)))
            continue;
        jw_key(w, k->str, k->len);
        jw_value(w, NULL, &v->items[i]);
    }
    return put_prompt(w, s, e);
}

static int translate_json(struct source *s, struct buf *json,
                          struct qwick_err *e)
{
    const struct source_record *r = s->record;
    struct json_writer w = json_writer(json);
    struct json_doc *doc;
    if (!s->t.name)
        return buf_append(json, r->text, r->n) ? err_oom(e, r->n) : 0;
    if (json_parse(&doc, RECORD, r->text, r->n, QWICK_ERR_USAGE, e))
        return -1;
    s->value = json_root(doc);
    jw_object(&w, NULL);
    int rc = put_members(s, &w, e);
    if (rc) { /* keep only its id */
        const struct json_value *id = json_get(s->value, "id");
        json->len = 0;
        w = json_writer(json);
        jw_object(&w, NULL);
        if (json_is(id, JSON_STRING) || json_is(id, JSON_NUMBER))
            jw_value(&w, "id", id);
    }
    jw_end_object(&w);
    json_free(doc);
    if (!jw_status(&w))
        return rc;
    json->len = 0;
    return rc ? -1 : err_oom(e, 0);
}

/* ---- the forms ---------------------------------------------------------- */

static int translate_openai(struct source *s, struct buf *json,
                            struct qwick_err *e)
{
    return openai_request(&s->openai, s->record->text, s->record->n, json, e);
}

static const struct input_form forms[] = {
    {.name = "jsonl",
     .begin = source_begin_json,
     .value = member_value,
     .translate = translate_json},
    {.name = "openai", .is_openai = true, .translate = translate_openai},
    {.name = "lines",
     .keeps_blank = true,
     .begin = source_begin_lines,
     .value = line_value,
     .translate = translate_row},
    {.name = "csv",
     .csv = &csv_comma,
     .begin = source_begin_table,
     .value = cell_value,
     .translate = translate_row},
    {.name = "tsv",
     .csv = &csv_tab,
     .begin = source_begin_table,
     .value = cell_value,
     .translate = translate_row},
};

static int source_set_form(struct source *s, const char *name,
                           struct qwick_err *e)
{
    s->form = forms;
    while (strcmp(s->form->name, name) != 0)
        s->form++;
    if (s->form->is_openai && preset_given(&s->p->a))
        return err_usage(e,
                         "%s: has whole chats, in OpenAI's batch format; a "
                         "prompt template does not apply",
                         s->in->name);
    return s->form->begin ? s->form->begin(s, e) : 0;
}

int source_open(struct source *s, struct lines *in, const char *format,
                const struct opt_parsed *p, struct qwick_err *e)
{
    *s = (struct source){.in = in, .p = p, .raw.max = in->in.max};
    return format ? source_set_form(s, format, e) : 0;
}

void source_free(struct source *s)
{
    prompt_template_free(&s->t);
    csv_free(&s->csv);
    csv_free(&s->header);
    body_reader_free(&s->openai);
    buf_free(&s->raw);
    buf_free(&s->json);
    buf_free(&s->cell);
}

void source_warn_no_json(const char *name)
{
    progress_clear();
    msg_warn("%s: the first record is no JSON object; --input-format takes "
             "lines, csv and tsv",
             name);
}

int source_detect(struct source *s, struct qwick_err *e)
{
    enum lines_status got;
    const char *text;
    size_t n;
    bool is_openai = false;
    if (s->form)
        return 0;
    while ((got = lines_peek(s->in, &text, &n, e)) == LINES_WAIT)
        if (*signals_flag())
            return source_interrupted(s, e);
    if (got == LINES_FAILED)
        return -1;
    if (got == LINES_GOT) {
        s->no_json = text[strspn(text, " \t")] != '{';
        if (openai_is_request(text, n, &is_openai, e))
            return -1;
    }
    return source_set_form(s, is_openai ? "openai" : "jsonl", e);
}

/* ---- reading ------------------------------------------------------------ */

/* Set *r to the lines that were taken into raw. */
static void source_set_raw(const struct source *s, struct source_record *r)
{
    *r = (struct source_record){
        .text = buf_text(&s->raw), .n = s->raw.len, .line = s->line};
}

/* Take a line into the record. Returns whether the record is complete; *r then
 * is the record. A line that belongs to no record completes none. */
static bool source_take_line(struct source *s, const char *text, size_t n,
                             struct source_record *r, struct qwick_err *e)
{
    bool table = s->form->csv, goes_on = s->csv.open;
    bool blank = table ? !goes_on && (n == 0 || (n == 1 && *text == '\r'))
                       : line_is_blank(text, n);
    *r = (struct source_record){
        .text = text, .n = n, .line = s->in->number, .blank = blank};
    if (blank)
        return s->form->keeps_blank;
    if (!table)
        return true;
    if (!goes_on) {
        s->raw.len = 0;
        s->line = s->in->number;
    }
    if ((goes_on && buf_putc(&s->raw, '\n')) || buf_append(&s->raw, text, n)) {
        err_oom(e, n);
        return false;
    }
    source_set_raw(s, r);
    if (csv_line(&s->csv, text, n, &r->why) &&
        r->why.code == QWICK_ERR_MEMORY) {
        *e = r->why;
        return false;
    }
    return !s->csv.open;
}

enum lines_status source_next(struct source *s, int timeout_ms,
                              struct source_record *r, struct qwick_err *e)
{
    const char *text;
    size_t n;
    bool torn;
    for (;;) {
        struct qwick_err fault = {0};
        enum lines_status got =
            lines_next(s->in, timeout_ms, &text, &n, &torn, e);
        if (got == LINES_END && s->csv.open) { /* inside a record */
            source_set_raw(s, r);
            csv_open_end(&s->csv, &r->why);
            return LINES_GOT;
        }
        if (got != LINES_GOT)
            return got;
        if (source_take_line(s, text, n, r, &fault))
            return LINES_GOT;
        if (fault.code) {
            *e = fault;
            return LINES_FAILED;
        }
    }
}

int source_translate(struct source *s, const struct source_record *r,
                     const char **json, size_t *n, struct qwick_err *e)
{
    s->json.len = 0;
    if (s->form->csv || s->form->keeps_blank) /* no JSON */
        prompt_count_faults(&s->faults, r->text, r->n);
    s->record = r;
    int rc = r->why.code ? -1 : s->form->translate(s, &s->json, e);
    if (r->why.code)
        err_set(e, r->why.code, "record: %s", r->why.msg);
    *json = s->json.data;
    *n = s->json.len;
    return rc;
}

uint64_t source_count(const struct source *s)
{
    return s->form->csv ? 0 : lines_left(s->in, s->form->keeps_blank);
}

/* ---- columns ------------------------------------------------------------ */

/* Append the id of a record of JSON; a record without one has none. */
static void put_id(struct buf *out, const struct source_record *r)
{
    struct json_doc *doc;
    struct qwick_err e;
    if (json_parse(&doc, RECORD, r->text, r->n, QWICK_ERR_USAGE, &e)) {
        out->failed |= e.code == QWICK_ERR_MEMORY;
        return;
    }
    const struct json_value *id = json_get(json_root(doc), "id");
    if (json_is(id, JSON_STRING) || json_is(id, JSON_NUMBER))
        buf_append(out, id->str, id->len);
    json_free(doc);
}

/* Set s->cell to column i of a record, or if r is NULL, to its name. */
static void cell_set(struct source *s, const struct source_record *r, size_t i)
{
    const struct csv *c = r ? &s->csv : &s->header;
    bool lines = s->form->keeps_blank;
    s->cell.len = 0;
    if (s->form->csv) {
        if ((!r || !r->why.code) && i < c->n)
            buf_append(&s->cell, csv_value(c, i), c->v[i].n);
    } else if (!r) {
        buf_puts(&s->cell, lines ? "input" : "id");
    } else if (lines) {
        buf_append(&s->cell, r->text, line_length(r->text, r->n));
    } else {
        put_id(&s->cell, r);
    }
}

int source_put_columns(struct source *s, const struct source_record *r,
                       void (*put)(struct buf *out, const char *text, size_t n),
                       char before, char after, struct buf *out)
{
    size_t n = s->form->csv ? s->header.n : 1;
    for (size_t i = 0; i < n; i++) {
        cell_set(s, r, i);
        if (before)
            buf_putc(out, before);
        put(out, buf_text(&s->cell), s->cell.len);
        if (after)
            buf_putc(out, after);
    }
    return out->failed || s->cell.failed ? -1 : 0;
}

int source_check_columns(struct source *s, const char *option,
                         const char *const *names, struct qwick_err *e)
{
    for (; s->form->csv && *names; names++)
        if (find_column(&s->header, 0, *names, strlen(*names)) < s->header.n)
            return err_usage(e,
                             "%s: has a column \"%s\" already, which --%s "
                             "would add; rename it",
                             s->in->name, *names, option);
    return 0;
}
