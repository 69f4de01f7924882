#include "engine/core/channels.h"

#include <string.h>

#include "engine/core/engine.h"

void channels_open(struct qwick_engine *eng)
{
    struct config *c = &eng->model.config;
    struct channel_ids *ids = &eng->channels;
    static const char *const stops[] = {"<|return|>", "<|call|>"};
    size_t n = 0;
    *ids = (struct channel_ids){
        .start = bpe_added_id(eng->bpe, HARMONY_START),
        .channel = bpe_added_id(eng->bpe, HARMONY_CHANNEL),
        .message = bpe_added_id(eng->bpe, HARMONY_MESSAGE),
        .end = bpe_added_id(eng->bpe, HARMONY_END),
        .constrain = bpe_added_id(eng->bpe, "<|constrain|>")};
    ids->found = ids->start >= 0 && ids->channel >= 0 && ids->message >= 0 &&
                 ids->end >= 0;
    if (!ids->found)
        return;
    for (size_t i = 0; i < c->n_stop_ids; i++)
        if (c->stop_ids[i] != ids->end)
            c->stop_ids[n++] = c->stop_ids[i];
    c->n_stop_ids = n;
    for (size_t i = 0; i < sizeof stops / sizeof *stops; i++) {
        int32_t id = bpe_added_id(eng->bpe, stops[i]);
        if (id >= 0)
            (void)config_add_stop(c, id);
    }
    eng->think_close = ids->end;
}

int channels_begin(struct channels *c, const struct qwick_engine *eng,
                   const int32_t *prompt, size_t n, bool on,
                   struct qwick_err *e)
{
    const struct channel_ids *ids = &eng->channels;
    enum channels_step what;
    size_t from = n;
    *c = (struct channels){.on = on && ids->found,
                           .ids = *ids,
                           .eng = eng,
                           .place = CHANNELS_BODY};
    if (!c->on)
        return 0;
    while (from > 0 && prompt[from - 1] != ids->start)
        from--;
    for (size_t i = from ? from - 1 : n; i < n; i++)
        if (channels_accept(c, prompt[i], &what))
            return err_oom(e, c->header.len);
    c->said = false;
    c->opening.len = 0;
    return 0;
}

void channels_free(struct channels *c)
{
    buf_free(&c->header);
    buf_free(&c->opening);
    *c = (struct channels){0};
}

bool channels_think(const struct channels *c)
{
    return c->place == CHANNELS_BODY && c->kind == HARMONY_IS_THINKING;
}

bool channels_ends(const struct channels *c, int32_t id)
{
    return c->on && c->place == CHANNELS_BODY && c->final && id == c->ids.end;
}

/* The header is complete. */
static int open_message(struct channels *c)
{
    struct harmony_header h =
        harmony_read(c->header.data ? c->header.data : "", c->header.len);
    c->place = CHANNELS_BODY;
    c->kind = h.kind;
    c->final = h.final && h.kind == HARMONY_IS_TEXT;
    c->opening.len = 0;
    if (h.kind == HARMONY_IS_CALL)
        return harmony_put_call(&c->opening, &h);
    int rc = h.kind == HARMONY_IS_TEXT && c->said
                 ? buf_puts(&c->opening, "\n\n")
                 : 0;
    c->said |= h.kind == HARMONY_IS_TEXT;
    return rc;
}

int channels_accept(struct channels *c, int32_t id, enum channels_step *what)
{
    const struct channel_ids *ids = &c->ids;
    size_t n;
    *what = CHANNELS_FORM;
    if (id == ids->start ||
        (id == ids->channel && c->place == CHANNELS_BETWEEN)) {
        c->place = CHANNELS_HEADER;
        c->header.len = 0;
    }
    if (c->place == CHANNELS_HEADER && id == ids->message) {
        *what = CHANNELS_OPENED;
        return open_message(c);
    }
    if (c->place == CHANNELS_HEADER) {
        const char *p = bpe_token(c->eng->bpe, id, &n);
        return p ? buf_append(&c->header, p, n) : 0;
    }
    if (id == ids->end)
        c->place = CHANNELS_BETWEEN;
    else if (c->place == CHANNELS_BODY)
        *what = CHANNELS_TEXT;
    return 0;
}

int channels_in_thinking(const struct qwick_engine *eng, const int32_t *ids,
                         size_t n, bool *yes, struct qwick_err *e)
{
    struct channels c;
    int rc = channels_begin(&c, eng, ids, n, true, e);
    *yes = !rc && channels_think(&c);
    channels_free(&c);
    return rc;
}
