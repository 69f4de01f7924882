#include "cli/answer/score_text.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "cli/answer/answer_json.h"
#include "cli/report/paint.h"
#include "cli/io/term.h"

int score_begin(struct score_text *t, const struct qwick_engine *eng,
                const int32_t *context, size_t n_context, int32_t before,
                const char *text, size_t n, bool special, struct qwick_err *e)
{
    int32_t *ids;
    size_t n_ids, total, room;
    int32_t bos = qwick_engine_info(eng)->bos_id;
    memset(t, 0, sizeof(*t));
    if (qwick_tokenize_after(eng, before, text, n, special, 0, &ids, &n_ids, e))
        return -1;
    if (n_context == 0 && bos >= 0 && (n_ids == 0 || ids[0] != bos)) {
        context = &bos;
        n_context = 1;
    }
    if (size_add(n_context, n_ids, &total) ||
        size_mul(total + 1, sizeof(double), &room)) {
        free(ids);
        return err_oom(e, SIZE_MAX);
    }
    t->n_tokens = n_ids;
    t->n_input = n;
    t->ids = malloc(room);
    t->item.logprobs = calloc(total + 1, sizeof(double));
    t->start = calloc(n_ids + 1, sizeof(*t->start));
    t->bits = calloc(n_ids + 1, sizeof(*t->bits));
    if (!t->ids || !t->item.logprobs || !t->start || !t->bits) {
        free(ids);
        score_free(t);
        return err_oom(e, room);
    }
    if (n_context)
        memcpy(t->ids, context, n_context * sizeof(*t->ids));
    if (n_ids)
        memcpy(t->ids + n_context, ids, n_ids * sizeof(*t->ids));
    free(ids);
    t->item.tokens = t->ids;
    t->item.n = total;
    t->item.n_given = n_context;
    struct buf all = {0};
    for (size_t i = 0; i < n_ids; i++) {
        char *piece;
        size_t n_piece;
        const int32_t *id = t->ids + n_context + i;
        int r = i == 0 && before == -1
                    ? qwick_detokenize(eng, id, 1, false, &piece, &n_piece, e)
                    : qwick_token_text(eng, *id, false, &piece, &n_piece, e);
        if (r == 0 && buf_append(&all, piece, n_piece))
            r = err_oom(e, n_piece);
        free(piece);
        if (r) {
            buf_free(&all);
            score_free(t);
            return -1;
        }
        t->start[i + 1] = all.len;
    }
    t->n_bytes = all.len;
    t->bytes = buf_take(&all, NULL);
    return 0;
}

void score_free(struct score_text *t)
{
    free(t->ids);
    free(t->item.logprobs);
    free(t->bytes);
    free(t->start);
    free(t->bits);
    memset(t, 0, sizeof(*t));
}

/* The index of the first scored token: 1 if nothing precedes the text, else
 * 0. */
static size_t first_scored(const struct score_text *t)
{
    size_t first = qwick_score_first(&t->item) - t->item.n_given;
    return first < t->n_tokens ? first : t->n_tokens;
}

void score_end(struct score_text *t)
{
    const double *lp = t->item.logprobs + t->item.n_given;
    for (size_t i = 0; i < t->n_tokens; i++)
        t->bits[i + 1] = t->bits[i] - lp[i] / log(2);
}

void score_add(struct score_totals *sum, const struct score_text *t)
{
    const double *lp = t->item.logprobs + t->item.n_given;
    size_t first = first_scored(t);
    double s = 0;
    sum->n_texts++;
    sum->n_tokens += t->n_tokens;
    sum->n_scored += t->n_tokens - first;
    sum->n_bytes += t->n_bytes;
    sum->n_scored_bytes += t->n_bytes - t->start[first];
    sum->n_windows += t->item.n_windows;
    for (size_t i = first; i < t->n_tokens; i++)
        s += lp[i];
    sum->logprob += s;
    sum->bits += t->bits[t->n_tokens];
}

/* ---- units -------------------------------------------------------------- */

/* Whether a byte separates words: ASCII white space. */
static bool blank(char c)
{
    return c == ' ' || (c >= '\t' && c <= '\r');
}

struct unit {
    size_t begin, end; /* bytes */
    size_t token;      /* token to go on from; it begins at or before end */
    int64_t micro;     /* millionths of a bit from the text's start to the
                          unit's end */
    int64_t own;       /* millionths of a bit of the unit */
    bool scored;       /* at least a part is scored */
};

static size_t unit_end(const struct score_text *t, enum score_unit by,
                       const struct unit *u)
{
    const char *s = t->bytes;
    size_t at = u->end, n = t->n_bytes;
    const char *nl;
    switch (by) {
    case BY_TOKEN:
        return t->start[u->token + 1];
    case BY_WORD:
        while (at < n && blank(s[at]))
            at++;
        while (at < n && !blank(s[at]))
            at++;
        return at;
    case BY_LINE:
        nl = memchr(s + at, '\n', n - at);
        return nl ? (size_t)(nl - s) + 1 : n;
    case BY_BYTE:
        break;
    }
    return at + 1;
}

/* Bits of the text up to a byte within token i. A token's bits are spread
 * evenly over its bytes. */
static double bits_at(const struct score_text *t, size_t i, size_t at)
{
    if (i == t->n_tokens || at == t->start[i])
        return t->bits[i];
    double share =
        (double)(at - t->start[i]) / (double)(t->start[i + 1] - t->start[i]);
    return t->bits[i] + (t->bits[i + 1] - t->bits[i]) * share;
}

/* Move to the next unit; false at the end. We round the running sums, not the
 * units, so that the units add up to the total. */
static bool next_unit(const struct score_text *t, enum score_unit by,
                      struct unit *u)
{
    if (by == BY_TOKEN ? u->token >= t->n_tokens : u->end >= t->n_bytes)
        return false;
    size_t end = unit_end(t, by, u);
    u->begin = u->end;
    u->end = end;
    if (by == BY_TOKEN)
        u->token++;
    else
        while (u->token < t->n_tokens && t->start[u->token + 1] <= end)
            u->token++;
    int64_t micro = llround(bits_at(t, u->token, end) * 1e6);
    u->own = micro - u->micro;
    u->micro = micro;
    u->scored = by == BY_TOKEN ? u->token > first_scored(t)
                               : end > t->start[first_scored(t)];
    return true;
}

/* Write millionths of a bit as bits. Returns the length. */
enum { MICRO = 40 };
static size_t micro_text(char out[MICRO], int64_t v)
{
    return (size_t)snprintf(out, MICRO, "%" PRId64 ".%06" PRId64, v / 1000000,
                            v % 1000000);
}

/* Append them; "-" for NULL. */
static void put_micro(struct buf *b, const int64_t *v)
{
    char text[MICRO] = "-";
    buf_append(b, text, v ? micro_text(text, *v) : 1);
}

void score_put_tsv(struct buf *b, const struct score_text *t,
                   enum score_unit by)
{
    struct unit u = {0};
    while (next_unit(t, by, &u)) {
        buf_printf(b, "%zu\t", u.begin);
        put_micro(b, u.scored ? &u.own : NULL);
        buf_putc(b, '\t');
        buf_json_string(b, t->bytes + u.begin, u.end - u.begin);
        buf_putc(b, '\n');
    }
}

void score_put_heat(struct buf *b, const struct score_text *t)
{
    struct paint p = {.truecolor = term_truecolor()};
    size_t first = first_scored(t);
    int bad = 0;
    for (size_t i = 0; i < t->n_tokens && !bad; i++)
        bad = paint_token(&p, t->bytes + t->start[i],
                          t->start[i + 1] - t->start[i],
                          i < first ? NAN : t->bits[i + 1] - t->bits[i]);
    b->failed |= bad || paint_text(&p, t->bytes, t->n_bytes, b);
    paint_free(&p);
    if (t->n_bytes && t->bytes[t->n_bytes - 1] != '\n')
        buf_putc(b, '\n');
}

void score_put_units(struct json_writer *w, const struct score_text *t,
                     enum score_unit by)
{
    struct unit u = {0};
    jw_array(w, "units");
    while (!w->failed && next_unit(t, by, &u)) {
        jw_object(w, NULL);
        jw_uint(w, "offset", u.begin);
        if (by == BY_TOKEN) {
            size_t i = t->item.n_given + u.token - 1;
            jw_int(w, "id", t->ids[i]);
            jw_double(w, "logprob", u.scored ? t->item.logprobs[i] : NAN);
        }
        if (u.scored) {
            char bits[MICRO];
            jw_raw(w, "bits", bits, micro_text(bits, u.own));
        } else {
            jw_null(w, "bits");
        }
        json_text(w, t->bytes + u.begin, u.end - u.begin);
        jw_end_object(w);
    }
    jw_end_array(w);
}

/* ---- totals ------------------------------------------------------------- */

/* NaN if nothing was scored. It becomes null in JSON and "-" in a line. */
static double per_byte(const struct score_totals *s)
{
    return s->n_scored_bytes ? s->bits / (double)s->n_scored_bytes : NAN;
}

static double perplexity(const struct score_totals *s)
{
    return s->n_scored ? exp(-s->logprob / (double)s->n_scored) : NAN;
}

static void put_value(struct buf *b, const char *prefix, const char *name,
                      double v)
{
    buf_printf(b, "%s%s\t", prefix, name);
    /* below 2^53 millionths, round as for units */
    int64_t micro = isfinite(v) && v < 9e9 ? llround(v * 1e6) : 0;
    if (isfinite(v) && v >= 9e9)
        buf_printf(b, "%.0f", v);
    else
        put_micro(b, isfinite(v) ? &micro : NULL);
    buf_putc(b, '\n');
}

void score_put_totals(struct buf *b, const struct score_totals *s,
                      const char *prefix)
{
    const struct {
        const char *name;
        size_t v;
    } counts[] = {
        {"tokens", s->n_tokens},   {"scored_tokens", s->n_scored},
        {"bytes", s->n_bytes},     {"scored_bytes", s->n_scored_bytes},
        {"windows", s->n_windows},
    };
    for (size_t i = 0; i < sizeof(counts) / sizeof(*counts); i++)
        buf_printf(b, "%s%s\t%zu\n", prefix, counts[i].name, counts[i].v);
    put_value(b, prefix, "bits", s->bits);
    put_value(b, prefix, "bits_per_byte", per_byte(s));
    put_value(b, prefix, "perplexity", perplexity(s));
}

void score_put_json(struct json_writer *w, const struct score_totals *s)
{
    jw_double(w, "logprob", s->logprob + 0.0);
    jw_double(w, "bits", s->bits);
    jw_double(w, "bits_per_byte", per_byte(s));
    jw_double(w, "perplexity", perplexity(s));
    jw_uint(w, "n_tokens", s->n_tokens);
    jw_uint(w, "n_scored", s->n_scored);
    jw_uint(w, "n_bytes", s->n_bytes);
    jw_uint(w, "n_scored_bytes", s->n_scored_bytes);
    jw_uint(w, "n_windows", s->n_windows);
}

void score_put_text(struct json_writer *w, const struct score_text *t)
{
    struct score_totals sum = {0};
    score_add(&sum, t);
    score_put_json(w, &sum);
}
