/* What tokenize, detokenize and score answer to one line of --jsonl. */
#include <stdlib.h>

#include "cli/answer/score_record.h"
#include "cli/answer/token_records.h"
#include "cli/serve/body.h"
#include "cli/serve/endpoints.h"

/* Begin the line that answers an object, with the object's id. */
static struct json_writer begin_answer(struct buf *out,
                                       const struct json_value *v)
{
    struct json_writer w = jw_line(out);
    const struct json_value *id = json_get(v, "id");
    if (id)
        jw_value(&w, "id", id);
    return w;
}

/* More text than this has more tokens than any context, and its ids would take
 * long to write. */
enum { MAX_TEXT = 4 << 20 };

/* Refuse a member that is a longer text. */
static int check_length(const struct json_value *v, const char *name,
                        struct serve_error *e)
{
    const struct json_value *text = json_get(v, name);
    return json_is(text, JSON_STRING) && text->len > MAX_TEXT
               ? serve_refuse(e, name,
                              "%s: has %zu bytes, at most %d are taken", name,
                              text->len, MAX_TEXT)
               : 0;
}

/* ---- without a model ---- */

static int put_ids(const struct serve *s, const struct json_value *v,
                   struct json_writer *w, struct serve_error *e)
{
    struct qwick_err why;
    return check_length(v, "text", e) ? -1
           : tokenize_record(s->g.eng, s->a, false, v, w, &why)
               ? body_fault(e, "text", &why)
               : 0;
}

static int put_text(const struct serve *s, const struct json_value *v,
                    struct json_writer *w, struct serve_error *e)
{
    struct qwick_err why;
    bool skip;
    return body_bool(v, "skip_special", &skip, e) ? -1
           : detokenize_record(s->g.eng, s->a, v, w, &why)
               ? body_fault(e, "ids", &why)
               : 0;
}

/* Answer a call at once. Returns 1, or -1 with *e set. */
static int
answer_object(struct serve_call *c, const char *const *names,
              int (*put)(const struct serve *s, const struct json_value *v,
                         struct json_writer *w, struct serve_error *e),
              struct serve_error *e)
{
    struct json_doc *doc = NULL;
    struct buf out = {0};
    int rc = body_read(c, names, &doc, e);
    if (!rc) {
        struct json_writer w = begin_answer(&out, json_root(doc));
        rc = put(c->s, json_root(doc), &w, e);
        jw_end_line(&w);
    }
    json_free(doc);
    if (rc) {
        buf_free(&out);
        return -1;
    }
    serve_reply(c, &out);
    return 1;
}

int tokenize_prepare(struct serve_call *c, struct serve_error *e)
{
    static const char *const names[] = {"id", "text", NULL};
    return answer_object(c, names, put_ids, e);
}

int detokenize_prepare(struct serve_call *c, struct serve_error *e)
{
    static const char *const names[] = {"id", "ids", "skip_special", NULL};
    return answer_object(c, names, put_text, e);
}

/* ---- /score ---- */

struct scoring {
    struct json_doc *doc; /* of the body */
    struct score_text text;
    struct qwick_scorer *scorer;
};

int scoring_prepare(struct serve_call *c, struct serve_error *e)
{
    static const char *const names[] = {"id", "text", "given", NULL};
    static const struct buf nothing = {0};
    struct scoring *t = body_state(c, sizeof(*t), e);
    struct qwick_err why;
    if (!t || body_read(c, names, &t->doc, e))
        return -1;
    const struct json_value *v = json_root(t->doc);
    const struct json_value *given = json_member(v, "given");
    bool bad_given = given && !json_is(given, JSON_STRING) &&
                     json_is(json_get(v, "text"), JSON_STRING);
    if (check_length(v, "text", e) || check_length(v, "given", e))
        return -1;
    return score_record_read(&t->text, c->s->g.eng, c->s->a, &nothing, &nothing,
                             v, &why)
               ? body_fault(e, bad_given ? "given" : "text", &why)
               : 0;
}

int scoring_start(struct serve_call *c, struct serve_error *e)
{
    struct scoring *t = c->state;
    const struct qwick_score_options o = {.size = sizeof(o),
                                          .n_ctx = (size_t)c->s->a->ctx,
                                          .progress = slice_layer,
                                          .progress_ctx = c->s,
                                          .interrupt = slice_interrupt(c)};
    struct qwick_err why;
    return qwick_scorer_create(&t->scorer, c->s->g.eng, &t->text.item, 1, &o,
                               &why)
               ? body_fault(e, "text", &why)
               : 1;
}

int scoring_slice(struct serve_call *c, struct serve_error *e)
{
    struct scoring *t = c->state;
    struct buf out = {0};
    struct qwick_err why;
    bool more;
    if (qwick_scorer_step(t->scorer, &more, &why))
        return slice_fault(e, &why);
    if (more)
        return 1;
    metric_add(&c->s->metrics.v[METRIC_PROMPT_TOKENS], t->text.item.n);
    score_end(&t->text);
    struct json_writer w = begin_answer(&out, json_root(t->doc));
    score_put_text(&w, &t->text);
    jw_end_line(&w);
    serve_reply(c, &out);
    return 0;
}

void scoring_free(struct serve_call *c)
{
    struct scoring *t = c->state;
    qwick_scorer_free(t->scorer);
    score_free(&t->text);
    json_free(t->doc);
    free(t);
}
