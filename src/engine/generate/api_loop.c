/* Sampler and detokenizer for programs with their own decode loop. */
#include <stdlib.h>

#include "engine/core/engine.h"
#include "engine/generate/generate.h"
#include "engine/generate/guide.h"
#include "engine/generate/sampler.h"
#include "engine/generate/stream.h"

struct qwick_sampler {
    const struct qwick_engine *eng;
    struct sampler *sampler;
    struct guide guide; /* keeps the constraint, if there is one */
    bool ended;         /* the text under the constraint has its stop id */
    size_t vocab_size;
};

int qwick_sampler_create(struct qwick_sampler **out,
                         const struct qwick_engine *eng,
                         const struct qwick_sampling *given,
                         struct qwick_err *e)
{
    struct qwick_sampling o;
    *out = NULL;
    if (!eng->weights)
        return err_set(e, QWICK_ERR_USAGE,
                       "%s: was opened for its tokenizer only",
                       checkpoint_name(eng->ck));
    if (generation_read_sampling(&o, given, e) ||
        qwick_check_generation(eng, &o, e))
        return -1;
    struct qwick_sampler *s = calloc(1, sizeof *s);
    if (!s)
        return err_oom(e, sizeof *s);
    s->eng = eng;
    s->vocab_size = eng->model.config.vocab_size;
    if (sampler_create(&s->sampler, &o, s->vocab_size, eng->blocked,
                       eng->model.k, e)) {
        free(s);
        return -1;
    }
    generation_set_start(eng, s->sampler);
    *out = s;
    return 0;
}

void qwick_sampler_free(struct qwick_sampler *s)
{
    if (!s)
        return;
    sampler_free(s->sampler);
    guide_free(&s->guide);
    free(s);
}

int qwick_sampler_constrain(struct qwick_sampler *s, struct qwick_constraint *c,
                            struct qwick_err *e)
{
    struct guide next = {0};
    if (c && guide_begin(&next, s->eng, c, GUIDE_TEXT, NULL, false, e)) {
        guide_free(&next);
        return -1;
    }
    guide_free(&s->guide);
    s->guide = next;
    s->ended = false;
    sampler_set_allowed(s->sampler, next.allowed);
    return 0;
}

/* Follow the text under the constraint. */
static int follow(struct qwick_sampler *s, int32_t id, struct qwick_err *e)
{
    const struct config *c = &s->eng->model.config;
    bool stop = false;
    for (size_t i = 0; i < c->n_stop_ids; i++)
        stop |= c->stop_ids[i] == id;
    if (s->ended || (stop && !(s->guide.allowed[id / 64] >> (id & 63) & 1)))
        return err_set(e, QWICK_ERR_RUNTIME,
                       "constraint: token %d does not fit the text so far", id);
    s->ended = stop;
    return stop || (!guide_accept(&s->guide, id, e) &&
                    !guide_prepare(&s->guide, e))
               ? 0
               : -1;
}

void qwick_sampler_bias(struct qwick_sampler *s, qwick_bias_fn fn, void *ctx)
{
    sampler_set_bias(s->sampler, fn, ctx);
}

static int check_id(const struct qwick_sampler *s, int32_t id,
                    struct qwick_err *e)
{
    if (id >= 0 && (size_t)id < s->vocab_size)
        return 0;
    return err_set(e, QWICK_ERR_USAGE,
                   "sampler: token id %d is out of range, the vocabulary has "
                   "%zu",
                   id, s->vocab_size);
}

int qwick_sampler_accept_prompt(struct qwick_sampler *s, const int32_t *tokens,
                                size_t n, struct qwick_err *e)
{
    for (size_t i = 0; i < n; i++)
        if (check_id(s, tokens[i], e))
            return -1;
    for (size_t i = 0; i < n; i++)
        sampler_see_prompt(s->sampler, tokens[i]);
    return 0;
}

int qwick_sampler_draw(struct qwick_sampler *s, const float *logits,
                       int32_t *id, struct qwick_err *e)
{
    *id = -1;
    if (!logits)
        return err_set(e, QWICK_ERR_USAGE, "sampler: there are no logits");
    return sampler_peek(s->sampler, logits, id, e);
}

int qwick_sampler_accept(struct qwick_sampler *s, int32_t id,
                         struct qwick_err *e)
{
    if (check_id(s, id, e) || (s->guide.matcher && follow(s, id, e)))
        return -1;
    sampler_accept(s->sampler, id);
    return 0;
}

struct qwick_detokenizer {
    const struct qwick_engine *eng;
    bool skip_special;
    struct bpe_decoder decoder;
    struct buf piece; /* text of the last token */
    struct stream stream;
};

int qwick_detokenizer_create(struct qwick_detokenizer **out,
                             const struct qwick_engine *eng, bool skip_special,
                             struct qwick_err *e)
{
    *out = NULL;
    if (engine_need_tokenizer(eng, e))
        return -1;
    struct qwick_detokenizer *d = calloc(1, sizeof *d);
    if (!d)
        return err_oom(e, sizeof *d);
    d->eng = eng;
    d->skip_special = skip_special;
    stream_init(&d->stream, NULL, 0, false, NULL);
    *out = d;
    return 0;
}

void qwick_detokenizer_free(struct qwick_detokenizer *d)
{
    if (!d)
        return;
    stream_free(&d->stream);
    bpe_decoder_free(&d->decoder);
    buf_free(&d->piece);
    free(d);
}

/* Add the piece, and hand out the complete characters; with `last`, everything.
 */
static int feed(struct qwick_detokenizer *d, bool last, const char **text,
                size_t *n_text, struct qwick_err *e)
{
    struct buf *out = &d->stream.text, *piece = &d->piece;
    size_t from;
    bool stopped;
    out->len = 0; /* the previous call handed it out */
    if (stream_add(&d->stream, piece->len ? piece->data : "", piece->len, last,
                   &from, &stopped))
        return err_oom(e, piece->len);
    *text = out->len ? out->data : "";
    *n_text = out->len;
    return 0;
}

int qwick_detokenizer_add(struct qwick_detokenizer *d, int32_t id,
                          const char **text, size_t *n_text,
                          struct qwick_err *e)
{
    *text = "";
    *n_text = 0;
    d->piece.len = 0;
    if (engine_decode_token(d->eng, &d->decoder, id, d->skip_special, &d->piece,
                            e))
        return -1;
    return feed(d, false, text, n_text, e);
}

int qwick_detokenizer_flush(struct qwick_detokenizer *d, const char **text,
                            size_t *n_text, struct qwick_err *e)
{
    *text = "";
    *n_text = 0;
    d->piece.len = 0;
    if (bpe_decode_end(&d->decoder, &d->piece))
        return err_oom(e, d->decoder.run.len);
    d->decoder.goes_on = false;
    return feed(d, true, text, n_text, e);
}
