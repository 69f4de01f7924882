#include "cli/json_out.h"

#include <math.h>
#include <stdlib.h>

#include "base/utf8.h"

int json_ids(struct buf *b, const int32_t *ids, size_t n)
{
    if (buf_putc(b, '['))
        return -1;
    for (size_t i = 0; i < n; i++)
        if (buf_printf(b, "%s%d", i ? "," : "", ids[i]))
            return -1;
    return buf_putc(b, ']');
}

int token_text(const struct qwick_engine *eng, int32_t id, char **text,
               size_t *n)
{
    *text = NULL;
    *n = 0;
    if (!qwick_engine_info(eng)->has_tokenizer)
        return 0;
    /* the id is one of the model's, so that only memory can be missing */
    return qwick_detokenize(eng, &id, 1, false, text, n, NULL);
}

int json_token(struct buf *b, const struct qwick_engine *eng, int32_t id)
{
    char *text;
    size_t n, i = 0;
    int r;
    if (token_text(eng, id, &text, &n))
        return -1;
    r = buf_printf(b, "\"id\":%d,\"text\":", id);
    r |= buf_json_string(b, text ? text : "", n);
    while (i < n) {
        size_t k = utf8_decode(text + i, n - i, NULL, NULL);
        if (!k)
            break;
        i += k;
    }
    if (i < n) {
        r |= buf_puts(b, ",\"bytes\":[");
        for (i = 0; i < n; i++)
            r |= buf_printf(b, "%s%d", i ? "," : "", (unsigned char)text[i]);
        r |= buf_putc(b, ']');
    }
    free(text);
    return r ? -1 : 0;
}

int json_logprob(struct buf *b, const struct qwick_engine *eng,
                 const struct qwick_token_event *ev)
{
    int r = buf_puts(b, "\"logprob\":");
    r |= buf_json_double(b, (double)ev->logprob);
    r |= buf_puts(b, ",\"top\":[");
    for (size_t i = 0; i < ev->n_top && r == 0; i++) {
        r |= buf_puts(b, i ? ",{" : "{");
        r |= json_token(b, eng, ev->top[i].id);
        r |= buf_puts(b, ",\"logprob\":");
        r |= buf_json_double(b, (double)ev->top[i].logprob);
        r |= buf_putc(b, '}');
    }
    return buf_putc(b, ']') || r ? -1 : 0;
}

/* Milliseconds to the microsecond. */
static int json_ms(struct buf *b, double ms)
{
    return buf_json_double(b, round(ms * 1e3) / 1e3);
}

int json_timing(struct buf *b, const struct json_answer *a)
{
    const struct qwick_result *r = a->r;
    int bad = buf_puts(b, "\"timing\":{\"load_ms\":");
    bad |= json_ms(b, a->info->load_ms);
    bad |= buf_puts(b, ",\"tokenize_ms\":");
    bad |= json_ms(b, a->tokenize_ms);
    bad |= buf_puts(b, ",\"prefill_ms\":");
    bad |= json_ms(b, r->prefill_ms);
    bad |= buf_puts(b, ",\"per_token_ms\":[");
    for (size_t i = 0; i < r->n_per_token; i++) {
        if (i)
            bad |= buf_putc(b, ',');
        bad |= json_ms(b, r->per_token_ms[i]);
    }
    bad |= buf_puts(b, "],\"total_ms\":");
    bad |= json_ms(b, r->total_ms);
    if (a->profile) {
        bad |= buf_puts(b, ",\"summary\":");
        bad |= profile_json(b, a->profile);
    }
    return buf_putc(b, '}') || bad ? -1 : 0;
}

int json_answer(struct buf *b, const struct json_answer *a)
{
    const struct qwick_result *r = a->r;
    int bad = buf_puts(b, "\"text\":");
    bad |= buf_json_string(b, r->text ? r->text : "", r->n_text);
    bad |= buf_puts(b, ",\"thinking\":");
    bad |= r->thinking ? buf_json_string(b, r->thinking, r->n_thinking)
                       : buf_puts(b, "null");
    bad |= buf_puts(b, ",\"tokens\":");
    bad |= json_ids(b, r->tokens, r->n_tokens);
    bad |= buf_printf(b,
                      ",\"finish_reason\":\"%s\",\"usage\":{\"prompt_tokens\""
                      ":%zu,\"completion_tokens\":%zu,\"cached_tokens\":%zu",
                      qwick_finish_name(r->finish), r->n_prompt, r->n_tokens,
                      r->n_cached);
    if (a->show_dropped)
        bad |= buf_printf(b, ",\"dropped_tokens\":%zu", a->n_dropped);
    bad |= buf_printf(
        b, "},\"seed\":%llu,\"model\":", (unsigned long long)r->seed);
    bad |= buf_json_cstr(b, a->info->model);
    if (a->logprobs) {
        bad |= buf_puts(b, ",\"logprobs\":[");
        bad |= buf_append(b, a->logprobs->data ? a->logprobs->data : "",
                          a->logprobs->len);
        bad |= buf_putc(b, ']');
    }
    if (r->lookup.max)
        bad |= buf_printf(
            b, ",\"lookup\":{\"drafted\":%zu,\"accepted\":%zu,\"passes\":%zu}",
            r->lookup.n_drafted, r->lookup.n_accepted, r->lookup.n_passes);
    bad |= buf_putc(b, ',');
    bad |= json_timing(b, a);
    return bad ? -1 : 0;
}
