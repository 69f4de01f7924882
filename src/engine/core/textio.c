/* Text in and out of an engine: tokens and chats. */
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "engine/core/engine.h"
#include "engine/core/options.h"
#include "text/chat/conversation.h"
#include "text/chat/harmony.h"
#include "text/deadline.h"

void qwick_text_timeout(double timeout_ms)
{
    text_set_deadline(timeout_ms > 0 ? clock_ms() + timeout_ms : 0);
}

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
    return qwick_tokenize_after(eng, -1, text, n_bytes, special, enough, ids,
                                n_ids, e);
}

int qwick_tokenize_after(const struct qwick_engine *eng, int32_t before,
                         const char *text, size_t n_bytes, bool special,
                         size_t enough, int32_t **ids, size_t *n_ids,
                         struct qwick_err *e)
{
    const struct bpe_span all = {0, n_bytes};
    *ids = NULL;
    *n_ids = 0;
    if (engine_need_tokenizer(eng, e))
        return -1;
    if (!bpe_encode_spans(eng->bpe, text, n_bytes, &all, special ? 1 : 0,
                          before != -1 && bpe_goes_on(eng->bpe, before), enough,
                          ids, n_ids, e))
        return 0;
    free(*ids);
    *ids = NULL;
    *n_ids = 0;
    return -1;
}

static int ids_status(int rc, int32_t **ids, size_t *n_ids)
{
    if (rc) {
        free(*ids);
        *ids = NULL;
        *n_ids = 0;
    }
    return rc;
}

/* Put the engine's bos_id, if it has one, before ids that do not begin with
 * it. */
static int need_bos(const struct qwick_engine *eng, int32_t **ids,
                    size_t *n_ids, struct qwick_err *e)
{
    if (eng->bos_id < 0 || (*n_ids && (*ids)[0] == eng->bos_id))
        return 0;
    int32_t *all = realloc(*ids, (*n_ids + 1) * sizeof *all);
    if (!all)
        return err_oom(e, sizeof *all);
    memmove(all + 1, all, *n_ids * sizeof *all);
    all[0] = eng->bos_id;
    *ids = all;
    ++*n_ids;
    return 0;
}

int qwick_tokenize_prompt(const struct qwick_engine *eng, const char *text,
                          size_t n_bytes, bool special, size_t enough,
                          int32_t **ids, size_t *n_ids, struct qwick_err *e)
{
    if (qwick_tokenize_some(eng, text, n_bytes, special, enough, ids, n_ids, e))
        return -1;
    return ids_status(need_bos(eng, ids, n_ids, e), ids, n_ids);
}

int engine_decode_token(const struct qwick_engine *eng, struct bpe_decoder *d,
                        int32_t id, bool skip_special, struct buf *out,
                        struct qwick_err *e)
{
    size_t end = eng->model.config.vocab_size;
    if (end < bpe_size(eng->bpe))
        end = bpe_size(eng->bpe);
    if (id < 0 || (size_t)id >= end)
        return err_set(e, QWICK_ERR_USAGE,
                       "token id %d: is out of range, ids go from 0 to %zu", id,
                       end - 1);
    if (!(skip_special && bpe_is_special(eng->bpe, id)) &&
        bpe_decode(eng->bpe, d, id, out))
        return err_oom(e, out->len + d->run.len);
    return 0;
}

/* Decode ids. d: the state of their text, which is freed. */
static int decode_all(const struct qwick_engine *eng, struct bpe_decoder d,
                      const int32_t *ids, size_t n_ids, bool skip_special,
                      char **text, size_t *n_bytes, struct qwick_err *e)
{
    *text = NULL;
    *n_bytes = 0;
    if (engine_need_tokenizer(eng, e))
        return -1;
    struct buf out = {0};
    int rc = 0;
    for (size_t i = 0; i < n_ids && !rc; i++)
        rc = engine_decode_token(eng, &d, ids[i], skip_special, &out, e);
    if (!rc && (bpe_decode_end(&d, &out) || buf_reserve(&out, 0)))
        rc = err_oom(e, out.len + 1);
    if (!rc)
        *text = buf_take(&out, n_bytes);
    bpe_decoder_free(&d);
    buf_free(&out);
    return rc;
}

int qwick_detokenize(const struct qwick_engine *eng, const int32_t *ids,
                     size_t n_ids, bool skip_special, char **text,
                     size_t *n_bytes, struct qwick_err *e)
{
    return decode_all(eng, (struct bpe_decoder){0}, ids, n_ids, skip_special,
                      text, n_bytes, e);
}

int qwick_token_text(const struct qwick_engine *eng, int32_t id,
                     bool skip_special, char **text, size_t *n_bytes,
                     struct qwick_err *e)
{
    return decode_all(eng, (struct bpe_decoder){.goes_on = true}, &id, 1,
                      skip_special, text, n_bytes, e);
}

static enum chat_bool think_value(enum qwick_think think)
{
    return think == QWICK_THINK_ON    ? CHAT_TRUE
           : think == QWICK_THINK_OFF ? CHAT_FALSE
                                      : CHAT_UNSET;
}

/* Render by the checkpoint's template. On failure *out is empty. */
static int render_source(const struct qwick_engine *eng,
                         const struct chat_source *in, struct chat_prompt *out,
                         struct qwick_err *e)
{
    memset(out, 0, sizeof *out);
    if (!eng->form)
        return err_set(e, QWICK_ERR_MODEL, "%s: has no chat template",
                       checkpoint_dir(eng->ck));
    const struct chat_template *form =
        in->tools && eng->form_tools ? eng->form_tools : eng->form;
    int rc = chat_template_render(out, form, in, e);
    if (rc)
        chat_prompt_free(out);
    return rc;
}

/* Collect the input of the template. *o gets the options with their
 * defaults. */
static int get_source(const struct qwick_chat *c,
                      const struct qwick_chat_options *asked,
                      struct qwick_chat_options *o, struct chat_source *in,
                      struct qwick_err *e)
{
    *o = qwick_chat_defaults();
    if (options_read(o, sizeof *o, asked, "chat", e) ||
        conversation_source(c, o->add_generation_prompt, think_value(o->think),
                            in, e))
        return -1;
    in->max_bytes = o->max_bytes;
    return 0;
}

int qwick_chat_render(const struct qwick_chat *c,
                      const struct qwick_engine *eng,
                      const struct qwick_chat_options *o, char **text,
                      size_t *n_text, struct qwick_err *e)
{
    struct qwick_chat_options opts;
    struct chat_source in;
    struct chat_prompt p;
    *text = NULL;
    *n_text = 0;
    if (get_source(c, o, &opts, &in, e) || render_source(eng, &in, &p, e))
        return -1;
    int rc = buf_reserve(&p.text, 0);
    if (rc)
        err_oom(e, 1);
    else
        *text = buf_take(&p.text, n_text);
    chat_prompt_free(&p);
    return rc;
}

/* Whether token id is at the start of p[0..n). */
static bool starts_with(const struct qwick_engine *eng, int32_t id,
                        const char *p, size_t n)
{
    size_t len;
    const char *text = bpe_token(eng->bpe, id, &len);
    return text && n >= len && !memcmp(p, text, len);
}

/* If the start of an answer may hold control tokens, its last think tag decides
 * whether a block is open. */
static void prefill_think(const struct qwick_engine *eng, const char *p,
                          size_t n, bool *in_think)
{
    if (eng->think_open < 0)
        return;
    for (size_t i = 0; i < n; i++) {
        if (starts_with(eng, eng->think_open, p + i, n - i))
            *in_think = true;
        if (starts_with(eng, eng->think_close, p + i, n - i))
            *in_think = false;
    }
}

/* Where answers are messages: begin the one that is the answer, if the answer
 * is to begin with a text, or without thinking. Where there are tools the model
 * must choose the channel itself, because a call has another one. */
static int add_channel(const struct qwick_engine *eng, struct chat_prompt *p,
                       const struct qwick_chat_options *o, size_t n_prefill,
                       struct qwick_err *e)
{
    static const char turn[] = HARMONY_TURN, header[] = HARMONY_FINAL;
    const size_t n = sizeof turn - 1;
    bool plain = p->think == CHAT_FALSE && !p->has_tools;
    if (!eng->channels.found || !(plain || (n_prefill && !o->allow_special)) ||
        p->text.len < n || !p->n_pieces ||
        p->pieces[p->n_pieces - 1].end != p->text.len ||
        memcmp(p->text.data + p->text.len - n, turn, n) != 0)
        return 0;
    if (buf_append(&p->text, header, sizeof header - 1))
        return err_oom(e, sizeof header);
    p->pieces[p->n_pieces - 1].end = p->text.len;
    return 0;
}

/* Append the ids of a prompt and of the start of its answer to *ids. */
static int encode_prompt(const struct qwick_engine *eng, struct chat_prompt *p,
                         const struct qwick_chat_options *o,
                         const char *prefill, size_t n_prefill, int32_t **ids,
                         size_t *n_ids, bool *in_think, struct qwick_err *e)
{
    if (add_channel(eng, p, o, n_prefill, e))
        return -1;
    if (n_prefill && buf_append(&p->text, prefill, n_prefill))
        return err_oom(e, n_prefill);
    const struct bpe_span all = {0, p->text.len};
    /* the engine can tell the end of a block only by its own closing token */
    *in_think = p->in_think &&
                (!p->think_close ||
                 (eng->think_close >= 0 &&
                  bpe_added_id(eng->bpe, p->think_close) == eng->think_close));
    if (o->allow_special)
        prefill_think(eng, prefill, n_prefill, in_think);
    int rc = bpe_encode_spans(
        eng->bpe, p->text.data, p->text.len,
        o->allow_special ? &all : p->pieces, o->allow_special ? 1 : p->n_pieces,
        *n_ids && bpe_goes_on(eng->bpe, (*ids)[*n_ids - 1]), o->enough, ids,
        n_ids, e);
    return !rc && eng->channels.found
               ? channels_in_thinking(eng, *ids, *n_ids, in_think, e)
               : rc;
}

int qwick_chat_encode(const struct qwick_chat *c,
                      const struct qwick_engine *eng,
                      const struct qwick_chat_options *o, const char *prefill,
                      size_t n_prefill, int32_t **ids, size_t *n_ids,
                      bool *in_think, struct qwick_err *e)
{
    struct qwick_chat_options opts;
    struct chat_source in;
    struct chat_prompt p;
    *ids = NULL;
    *n_ids = 0;
    *in_think = false;
    if (engine_need_tokenizer(eng, e) || get_source(c, o, &opts, &in, e) ||
        render_source(eng, &in, &p, e))
        return -1;
    int rc = encode_prompt(eng, &p, &opts, prefill, n_prefill, ids, n_ids,
                           in_think, e) ||
             need_bos(eng, ids, n_ids, e);
    chat_prompt_free(&p);
    return ids_status(rc ? -1 : 0, ids, n_ids);
}

/* ---- after an answer that a session has ---- */

#define TEXT_VALUE(s)                                       \
    {                                                       \
        .type = JSON_STRING, .str = s, .len = sizeof(s) - 1 \
    }
static const char stand_in[] = "STAND-IN ANSWER";

/* Render the messages after an answer, and keep only the text that follows it.
 * A made-up question and answer take the place of the turns that are not
 * known. */
static int render_after(const struct qwick_engine *eng,
                        const struct chat_source *in, struct chat_prompt *out,
                        struct qwick_err *e)
{
    static const struct json_value keys[] = {TEXT_VALUE("role"),
                                             TEXT_VALUE("content")},
                                   asked[] = {TEXT_VALUE("user"),
                                              TEXT_VALUE("?")},
                                   answered[] = {TEXT_VALUE("assistant"),
                                                 TEXT_VALUE(stand_in)};
    size_t n = in->messages.len;
    struct json_value *all = calloc(n + 2, sizeof *all);
    const struct json_value **parts = calloc(n + 2, sizeof *parts);
    struct chat_source longer = *in;
    if (!all || !parts) {
        free(all);
        free(parts);
        return err_oom(e, n * sizeof *all);
    }
    all[0] = all[1] = (struct json_value){
        .type = JSON_OBJECT, .len = 2, .items = asked, .keys = keys};
    all[1].items = answered;
    memcpy(all + 2, in->messages.items, n * sizeof *all);
    memcpy(parts + 2, in->parts, n * sizeof *parts);
    longer.messages.items = all;
    longer.messages.len = n + 2;
    longer.parts = parts;
    longer.follows = true;
    int rc = render_source(eng, &longer, out, e);
    free(all);
    free(parts);
    if (!rc && chat_prompt_cut(out, stand_in)) {
        chat_prompt_free(out);
        rc = err_set(e, QWICK_ERR_MODEL,
                     "%s: chat template: does not print an answer",
                     checkpoint_dir(eng->ck));
    }
    return rc;
}

static bool is_stop_id(const struct qwick_engine *eng, int32_t id)
{
    for (size_t i = 0; i < eng->info.n_stop_ids; i++)
        if (eng->info.stop_ids[i] == id)
            return true;
    return false;
}

/* The session's tokens as the first ones of a new array. */
static int copy_tokens(const struct qwick_session *s, int32_t **ids,
                       size_t *n_ids, struct qwick_err *e)
{
    *ids = malloc(s->kv.n * sizeof **ids);
    if (!*ids)
        return err_oom(e, s->kv.n * sizeof **ids);
    *n_ids = s->kv.n;
    memcpy(*ids, s->tokens, s->kv.n * sizeof **ids);
    return 0;
}

int qwick_chat_continue(const struct qwick_chat *c,
                        const struct qwick_session *s,
                        const struct qwick_chat_options *o, const char *prefill,
                        size_t n_prefill, int32_t **ids, size_t *n_ids,
                        bool *in_think, struct qwick_err *e)
{
    const struct qwick_engine *eng = s->eng;
    struct qwick_chat_options opts;
    struct chat_source in;
    struct chat_prompt p;
    size_t n = s->kv.n;
    if (n == 0)
        return qwick_chat_encode(c, eng, o, prefill, n_prefill, ids, n_ids,
                                 in_think, e);
    *ids = NULL;
    *n_ids = 0;
    *in_think = false;
    if (engine_need_tokenizer(eng, e) || get_source(c, o, &opts, &in, e) ||
        render_after(eng, &in, &p, e))
        return -1;
    if (opts.enough)
        opts.enough += n;
    int rc = copy_tokens(s, ids, n_ids, e) ||
             encode_prompt(eng, &p, &opts, prefill, n_prefill, ids, n_ids,
                           in_think, e);
    chat_prompt_free(&p);
    /* the model ends an answer itself, unless it was cut */
    if (!rc && *n_ids > n && is_stop_id(eng, (*ids)[n - 1]) &&
        (is_stop_id(eng, (*ids)[n]) ||
         (eng->channels.found && (*ids)[n] == eng->channels.end))) {
        memmove(*ids + n, *ids + n + 1, (*n_ids - n - 1) * sizeof **ids);
        --*n_ids;
    }
    return ids_status(rc ? -1 : 0, ids, n_ids);
}
