/* Text in and out of an engine: tokens and chats. */
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "engine/core/engine.h"
#include "engine/core/options.h"
#include "text/conversation.h"

int qwick_tokenize(const struct qwick_engine *eng, const char *text,
                   size_t n_bytes, bool special, int32_t **ids, size_t *n_ids,
                   struct qwick_err *e)
{
    return qwick_tokenize_some(eng, text, n_bytes, special, 0, ids, n_ids, e);
}

int qwick_tokenize_some(const struct qwick_engine *eng, const char *text,
                        size_t n_bytes, bool special, size_t enough,
                        int32_t **ids, size_t *n_ids, struct qwick_err *e)
{
    const struct bpe_span all = {0, n_bytes};
    *ids = NULL;
    *n_ids = 0;
    if (engine_need_tokenizer(eng, e))
        return -1;
    if (!bpe_encode_spans(eng->bpe, text, n_bytes, &all, special ? 1 : 0,
                          enough, ids, n_ids, e))
        return 0;
    free(*ids);
    *ids = NULL;
    *n_ids = 0;
    return -1;
}

int engine_token_bytes(const struct qwick_engine *eng, int32_t id,
                       bool skip_special, const char **p, size_t *n,
                       struct qwick_err *e)
{
    size_t end = eng->model.config.vocab_size;
    if (end < bpe_size(eng->bpe))
        end = bpe_size(eng->bpe);
    *p = "";
    *n = 0;
    if (id < 0 || (size_t)id >= end)
        return err_set(e, QWICK_ERR_USAGE,
                       "token id %d: is out of range, ids go from 0 to %zu", id,
                       end - 1);
    if (bpe_has(eng->bpe, id) &&
        !(skip_special && bpe_is_special(eng->bpe, id)))
        *p = bpe_token(eng->bpe, id, n);
    return 0;
}

int qwick_detokenize(const struct qwick_engine *eng, const int32_t *ids,
                     size_t n_ids, bool skip_special, char **text,
                     size_t *n_bytes, struct qwick_err *e)
{
    *text = NULL;
    *n_bytes = 0;
    if (engine_need_tokenizer(eng, e))
        return -1;
    struct buf out = {0};
    for (size_t i = 0; i < n_ids; i++) {
        const char *p;
        size_t n;
        if (engine_token_bytes(eng, ids[i], skip_special, &p, &n, e)) {
            buf_free(&out);
            return -1;
        }
        if (n && buf_append(&out, p, n))
            goto oom;
    }
    if (buf_reserve(&out, 0))
        goto oom;
    *text = buf_take(&out, n_bytes);
    return 0;
oom:
    err_oom(e, out.len + 1);
    buf_free(&out);
    return -1;
}

static enum chat_bool think_value(enum qwick_think think)
{
    return think == QWICK_THINK_ON    ? CHAT_TRUE
           : think == QWICK_THINK_OFF ? CHAT_FALSE
                                      : CHAT_UNSET;
}

/* Render a conversation by the checkpoint's template. *o gets the options with
 * their defaults. */
static int render(const struct qwick_chat *c, const struct qwick_engine *eng,
                  const struct qwick_chat_options *asked,
                  struct qwick_chat_options *o, struct chat_prompt *out,
                  struct qwick_err *e)
{
    struct chat_source in;
    memset(out, 0, sizeof *out);
    *o = qwick_chat_defaults();
    if (options_read(o, sizeof *o, asked, "chat", e))
        return -1;
    if (eng->template == CHAT_NONE)
        return err_set(e, QWICK_ERR_MODEL, "%s: has no chat template",
                       checkpoint_dir(eng->ck));
    if (conversation_source(c, o->add_generation_prompt, think_value(o->think),
                            &in, e))
        return -1;
    int rc = chat_render(out, &in, e);
    if (rc)
        chat_prompt_free(out);
    return rc;
}

int qwick_chat_render(const struct qwick_chat *c,
                      const struct qwick_engine *eng,
                      const struct qwick_chat_options *o, char **text,
                      size_t *n_text, struct qwick_err *e)
{
    struct qwick_chat_options opts;
    struct chat_prompt p;
    *text = NULL;
    *n_text = 0;
    if (render(c, eng, o, &opts, &p, e))
        return -1;
    int rc = buf_reserve(&p.text, 0);
    if (rc)
        err_oom(e, 1);
    else
        *text = buf_take(&p.text, n_text);
    chat_prompt_free(&p);
    return rc;
}

/* Where the start of an answer may hold control tokens, its last think tag says
 * whether a block is open. */
static void prefill_think(const char *p, size_t n, bool *in_think)
{
    static const char open[] = "<think>", close[] = "</think>";
    for (size_t i = 0; i < n; i++) {
        if (n - i >= strlen(open) && !memcmp(p + i, open, strlen(open)))
            *in_think = true;
        if (n - i >= strlen(close) && !memcmp(p + i, close, strlen(close)))
            *in_think = false;
    }
}

int qwick_chat_encode(const struct qwick_chat *c,
                      const struct qwick_engine *eng,
                      const struct qwick_chat_options *o, const char *prefill,
                      size_t n_prefill, int32_t **ids, size_t *n_ids,
                      bool *in_think, struct qwick_err *e)
{
    struct qwick_chat_options opts;
    struct chat_prompt p;
    *ids = NULL;
    *n_ids = 0;
    *in_think = false;
    if (engine_need_tokenizer(eng, e) || render(c, eng, o, &opts, &p, e))
        return -1;
    int rc = -1;
    if (n_prefill && buf_append(&p.text, prefill, n_prefill)) {
        err_oom(e, n_prefill);
        goto done;
    }
    const struct bpe_span all = {0, p.text.len};
    rc = bpe_encode_spans(
        eng->bpe, p.text.data, p.text.len, opts.allow_special ? &all : p.pieces,
        opts.allow_special ? 1 : p.n_pieces, opts.enough, ids, n_ids, e);
    *in_think = p.in_think;
    if (opts.allow_special)
        prefill_think(prefill, n_prefill, in_think);
    if (rc) {
        free(*ids);
        *ids = NULL;
        *n_ids = 0;
    }
done:
    chat_prompt_free(&p);
    return rc;
}
