#include "cli/answer/token_records.h"

#include <stdlib.h>

#include "base/buf.h"
#include "cli/answer/answer_json.h"

int tokens_encode(const struct qwick_engine *eng, const struct args *a,
                  const char *text, size_t n, int32_t **ids, size_t *n_ids,
                  struct qwick_err *e)
{
    return qwick_tokenize(eng, text, n, !a->no_special, ids, n_ids, e);
}

void tokens_put_ids(struct json_writer *w, bool count, const int32_t *ids,
                    size_t n)
{
    if (count)
        jw_uint(w, "count", n);
    else
        json_ids(w, "ids", ids, n);
}

void tokens_put_text(struct json_writer *w, const char *text, size_t n)
{
    static const char hex[] = "0123456789abcdef";
    struct buf bytes = {0};
    for (size_t i = 0; i < n && !w->failed; i++) {
        unsigned char c = (unsigned char)text[i];
        const char pair[] = {hex[c >> 4], hex[c & 15]};
        w->failed |= buf_append(&bytes, pair, 2) != 0;
    }
    jw_string(w, "text", text, n);
    jw_buf(w, "bytes_hex", &bytes);
    buf_free(&bytes);
}

int tokenize_record(const struct qwick_engine *eng, const struct args *a,
                    bool count, const struct json_value *v,
                    struct json_writer *w, struct qwick_err *e)
{
    const struct json_value *text = json_get(v, "text");
    int32_t *ids;
    size_t n;
    if (!json_is(text, JSON_STRING))
        return err_usage(e, "text: not a string");
    if (tokens_encode(eng, a, text->str, text->len, &ids, &n, e))
        return -1;
    tokens_put_ids(w, count, ids, n);
    free(ids);
    return jw_status(w) ? err_oom(e, text->len) : 0;
}

int token_ids_read(const struct json_value *list, const char *name, int32_t max,
                   int32_t **ids, struct qwick_err *e)
{
    *ids = NULL;
    if (!json_is(list, JSON_ARRAY))
        return err_usage(e, "%s: not an array", name);
    int32_t *v = malloc((list->len + 1) * sizeof(*v));
    if (!v)
        return err_oom(e, list->len * sizeof(*v));
    for (size_t i = 0; i < list->len; i++) {
        int64_t x;
        if (json_int(&list->items[i], 0, max, &x)) {
            free(v);
            return err_usage(e, "%s: item %zu is not a token id", name, i);
        }
        v[i] = (int32_t)x;
    }
    *ids = v;
    return 0;
}

int detokenize_record(const struct qwick_engine *eng, const struct args *a,
                      const struct json_value *v, struct json_writer *w,
                      struct qwick_err *e)
{
    const struct json_value *list = json_get(v, "ids");
    const struct json_value *skip = json_member(v, "skip_special");
    bool skip_special = a->skip_special;
    int32_t *ids;
    char *text;
    size_t n;
    int r;
    if (token_ids_read(list, "ids", INT32_MAX, &ids, e))
        return -1;
    if (json_is(skip, JSON_BOOL))
        skip_special = skip->boolean;
    if (skip && !json_is(skip, JSON_BOOL))
        r = err_usage(e, "skip_special: not true or false");
    else
        r = qwick_detokenize(eng, ids, list->len, skip_special, &text, &n, e);
    free(ids);
    if (r)
        return -1;
    tokens_put_text(w, text, n);
    free(text);
    return jw_status(w) ? err_oom(e, n) : 0;
}
