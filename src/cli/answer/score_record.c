#include "cli/answer/score_record.h"

#include <stdlib.h>
#include <string.h>

#include "cli/io/out.h"

/* Encode the text that comes before a scored text. */
static int encode_given(const struct qwick_engine *eng, const struct args *a,
                        const char *given, size_t n, int32_t **ids,
                        size_t *n_ids, struct qwick_err *e)
{
    const struct qwick_chat_options o = {.size = sizeof(o),
                                         .add_generation_prompt = true,
                                         .think = QWICK_THINK_OFF};
    struct qwick_chat *chat;
    bool in_think;
    int r = -1;
    if (!a->chat)
        return qwick_tokenize_prompt(eng, given, n, !a->no_special, 0, ids,
                                     n_ids, e);
    if (qwick_chat_create(&chat, e))
        return -1;
    if (!qwick_chat_add(chat, "user", given, n, e))
        r = qwick_chat_encode(chat, eng, &o, NULL, 0, ids, n_ids, &in_think, e);
    qwick_chat_free(chat);
    return r;
}

int score_prepare(struct score_text *t, const struct qwick_engine *eng,
                  const struct args *a, const char *given, size_t n_given,
                  const char *text, size_t n, struct qwick_err *e)
{
    int32_t *ids = NULL;
    size_t n_ids = 0;
    int r = 0;
    memset(t, 0, sizeof(*t));
    if (given)
        r = encode_given(eng, a, given, n_given, &ids, &n_ids, e);
    /* with --chat, text such as <|im_end|> stays plain text, and an answer
       begins as the model would begin it */
    if (r == 0)
        r = score_begin(t, eng, ids, n_ids,
                        n_ids && !a->chat ? ids[n_ids - 1] : -1, text, n,
                        !a->no_special && !a->chat, e);
    free(ids);
    if (r == 0 && t->n_bytes != t->n_input)
        msg_note("text: %zu bytes are %zu in normal form C, and these are "
                 "scored",
                 t->n_input, t->n_bytes);
    return r;
}

int score_record_read(struct score_text *t, const struct qwick_engine *eng,
                      const struct args *a, const struct buf *before,
                      const struct buf *filled, const struct json_value *v,
                      struct qwick_err *e)
{
    const struct json_value *text = json_get(v, "text");
    const struct json_value *given = json_member(v, "given");
    memset(t, 0, sizeof(*t));
    if (!filled->data && !json_is(text, JSON_STRING))
        return err_usage(e, "text: not a string");
    if (given && !json_is(given, JSON_STRING))
        return err_usage(e, "given: not a string");
    if (a->chat && !given && !before->data)
        return err_usage(e, "given: missing, --chat needs it");
    return score_prepare(t, eng, a, given ? given->str : before->data,
                         given ? given->len : before->len,
                         filled->data ? filled->data : text->str,
                         filled->data ? filled->len : text->len, e);
}
