#include "cli/batch/batch_form.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/answer/request.h"
#include "cli/io/escape.h"
#include "file/csv.h"
#include "text/chat/code_block.h"

/* Line numbers stay exact in every JSON reader. */
#define MAX_LINE ((int64_t)1 << 53)

const struct output_form *const readable_forms[] = {&form_jsonl, &form_openai,
                                                    NULL};

void batch_key_write(char out[BATCH_KEY_LEN + 1], uint32_t run, uint64_t record)
{
    snprintf(out, BATCH_KEY_LEN + 1, "%08x-%016llx", run,
             (unsigned long long)record);
}

bool batch_key_read(const char *key, uint32_t *run, uint64_t *record)
{
    char again[BATCH_KEY_LEN + 1];
    *run = (uint32_t)strtoul(key, NULL, 16);
    *record = strtoull(key + 9, NULL, 16);
    batch_key_write(again, *run, *record);
    return memcmp(again, key, BATCH_KEY_LEN) == 0;
}

/* ---- qwick's objects ---------------------------------------------------- */

static void jsonl_begin(struct json_writer *w, const struct batch_line *l)
{
    jw_object(w, NULL);
    jw_uint(w, "line", l->line);
    jw_raw(w, "id", l->id->data, l->id->len);
    if (l->index)
        jw_uint(w, "index", *l->index);
    jw_string(w, "key", l->key, BATCH_KEY_LEN);
}

static void jsonl_answer(struct json_writer *w, const struct batch_line *l,
                         const struct batch_answer *a)
{
    jsonl_begin(w, l);
    json_answer(w, &a->a);
    if (a->incomplete)
        jw_bool(w, "incomplete", true);
    if (a->skipped)
        jw_bool(w, "skipped", true);
    jw_end_object(w);
}

static void jsonl_error(struct json_writer *w, const struct batch_line *l,
                        const struct qwick_err *why)
{
    jsonl_begin(w, l);
    jw_cstr(w, "error", why->msg);
    if (why->kind == QWICK_KIND_SCHEMA)
        jw_bool(w, "schema_valid", false);
    jw_end_object(w);
}

static const char *string_of(const struct json_value *v)
{
    return json_is(v, JSON_STRING) ? v->str : NULL;
}

static bool jsonl_read(const struct json_value *v, struct batch_read *r)
{
    const struct json_value *index = json_get(v, "index");
    const struct json_value *key = json_get(v, "key");
    *r = (struct batch_read){
        .has_index = index,
        .id = json_get(v, "id"),
        .key = json_is(key, JSON_STRING) && key->len == BATCH_KEY_LEN ? key->str
                                                                      : NULL,
        .error = json_get(v, "error"),
        .incomplete = json_get(v, "incomplete"),
        .skipped = json_get(v, "skipped"),
        .finish = string_of(json_get(v, "finish_reason")),
        .text = json_get(v, "text"),
        .calls = json_get(v, "tool_calls"),
    };
    return !json_int(json_get(v, "line"), 1, MAX_LINE, &r->line) &&
           (!index || !json_int(index, 0, REQUEST_MAX_N - 1, &r->index)) &&
           (r->error || json_get(v, "finish_reason"));
}

const struct output_form form_jsonl = {
    .name = "JSON lines",
    .head = "{\"line\":",
    .max_samples = REQUEST_MAX_N,
    .answer = jsonl_answer,
    .error = jsonl_error,
    .token = json_logprobs,
    .read = jsonl_read,
};

/* ---- texts -------------------------------------------------------------- */

/* Append a text as one line: line ends and backslashes become \n, \r and \\.
 * The last line end of the text is dropped. */
static void text_escape(struct json_writer *w, const char *s, size_t n)
{
    escape_letters(w->out, s, n - (n && s[n - 1] == '\n'), "\n\r\\", "nr\\",
                   false);
    w->failed |= w->out->failed;
}

static void text_exact(struct json_writer *w, const char *s, size_t n)
{
    w->failed |= buf_append(w->out, s, n) != 0;
}

/* The text of an answer: with --extract its code block, if that is complete. */
static const char *answer_text(const struct batch_answer *a, size_t *n)
{
    const struct code_block *b = a->a.block;
    const struct qwick_result *r = a->a.r;
    bool has = b ? b->state == CODE_BLOCK_CLOSED : r->text != NULL;
    *n = !has ? 0 : b ? b->content.len : r->n_text;
    return !has ? "" : b ? buf_text(&b->content) : r->text;
}

static void text_answer(struct json_writer *w, const struct batch_line *l,
                        const struct batch_answer *a)
{
    size_t n;
    const char *text = answer_text(a, &n);
    (void)l;
    text_escape(w, text, n);
}

static void null_answer(struct json_writer *w, const struct batch_line *l,
                        const struct batch_answer *a)
{
    size_t n;
    const char *text = answer_text(a, &n);
    (void)l;
    text_exact(w, text, n);
}

static void text_error(struct json_writer *w, const struct batch_line *l,
                       const struct qwick_err *why)
{
    (void)w, (void)l, (void)why;
}

const struct output_form form_text = {
    .name = "texts",
    .max_samples = 1,
    .no_tools = true,
    .prints_errors = true,
    .answer = text_answer,
    .error = text_error,
};

const struct output_form form_text_null = {
    .name = "texts",
    .max_samples = 1,
    .no_tools = true,
    .ends_nul = true,
    .prints_errors = true,
    .answer = null_answer,
    .error = text_error,
};

/* ---- CSV ---------------------------------------------------------------- */

static const char *const csv_columns[] = {"answer", "finish_reason", "error",
                                          NULL};

/* Write a row: the columns of the input, and the added ones. */
static void csv_row(struct json_writer *w, const struct batch_line *l,
                    const char *text, size_t n, const char *finish,
                    const char *error)
{
    struct buf *b = w->out;
    buf_append(b, l->columns->data, l->columns->len);
    csv_put(b, text, n);
    buf_printf(b, ",%s,", finish);
    csv_put(b, error, strlen(error));
    w->failed |= b->failed;
}

static void csv_answer(struct json_writer *w, const struct batch_line *l,
                       const struct batch_answer *a)
{
    size_t n;
    const char *text = answer_text(a, &n);
    csv_row(w, l, text, n, a->skipped ? "" : qwick_finish_name(a->a.r->finish),
            "");
}

static void csv_error(struct json_writer *w, const struct batch_line *l,
                      const struct qwick_err *why)
{
    char text[sizeof(why->msg) + 40];
    snprintf(text, sizeof(text), "line %llu: %s", (unsigned long long)l->line,
             why->msg);
    csv_row(w, l, "", 0, "", text);
}

const struct output_form form_csv = {
    .name = "CSV",
    .max_samples = 1,
    .no_tools = true,
    .columns = csv_columns,
    .answer = csv_answer,
    .error = csv_error,
};
