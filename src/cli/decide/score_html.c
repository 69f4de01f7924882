#include "cli/decide/score_html.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/utf8.h"
#include "cli/report/chart.h"
#include "cli/report/heat.h"

enum { SHOWN = 15 };

/* The library's callback for a scored token. */
static int keep_place(void *ctx, const struct qwick_score_event *ev)
{
    struct score_places *p = ctx;
    struct score_place *at =
        &p->v[ev->item][ev->index - p->texts[ev->item].item.n_given];
    at->rank = ev->rank;
    at->n_top = ev->n_top < SCORE_TOP ? ev->n_top : SCORE_TOP;
    memcpy(at->top, ev->top, at->n_top * sizeof(*at->top));
    return 0;
}

int score_places_make(struct score_places *p, const struct score_text *texts,
                      size_t n, struct qwick_score_options *o)
{
    *p = (struct score_places){.v = calloc(n, sizeof(*p->v)), .texts = texts};
    if (!p->v)
        return -1;
    for (; p->n < n; p->n++) {
        p->v[p->n] = calloc(texts[p->n].n_tokens + 1, sizeof(**p->v));
        if (!p->v[p->n])
            return -1;
    }
    o->on_score = keep_place;
    o->on_score_ctx = p;
    o->top = SCORE_TOP;
    return 0;
}

void score_places_free(struct score_places *p)
{
    for (size_t i = 0; i < p->n; i++)
        free(p->v[i]);
    free(p->v);
    *p = (struct score_places){0};
}

static void put_percent(struct html *h, double logprob)
{
    char text[SCALE_TEXT];
    double percent = 100 * exp(logprob);
    scale_number(percent, text);
    if (percent < 0.001)
        html_puts(h, "&lt;0.001%");
    else
        html_markup(h, "%s%%", text);
}

/* Append a token's text in quotes, with its blanks visible. */
static void put_token(struct html *h, const char *s, size_t n)
{
    html_puts(h, "\xE2\x80\x9C");
    for (size_t i = 0; i < n;) {
        size_t k = i; /* a text may hold NUL, which ends strings */
        while (k < n && s[k] != '\n' && s[k] != '\t')
            k++;
        html_text(h, s + i, k - i);
        if (k < n)
            html_puts(h, s[k++] == '\n' ? "\\n" : "\\t");
        i = k;
    }
    html_puts(h, "\xE2\x80\x9D");
}

static void put_id(struct html *h, const struct qwick_engine *eng, int32_t id)
{
    char *text;
    size_t n;
    if (qwick_token_text(eng, id, false, &text, &n, NULL)) {
        h->out.failed = true;
        return;
    }
    put_token(h, text, n);
    free(text);
}

/* Bits of token i; NAN: it is not scored. */
static double bits_of(const struct score_text *t,
                      const struct score_place *places, size_t i)
{
    return places[i].rank ? t->bits[i + 1] - t->bits[i] : NAN;
}

static double logprob_of(const struct score_text *t, size_t i)
{
    return t->item.logprobs[t->item.n_given + i];
}

/* ---- the text ----------------------------------------------------------- */

/* What shows when the pointer is over a token. */
static void put_tip(struct html *h, const struct qwick_engine *eng,
                    const struct score_text *t,
                    const struct score_place *places, size_t i)
{
    const struct score_place *p = &places[i];
    char bits[SCALE_TEXT];
    put_token(h, t->bytes + t->start[i], t->start[i + 1] - t->start[i]);
    if (!p->rank) {
        html_puts(h, ": not scored, nothing comes before it");
        return;
    }
    scale_number(bits_of(t, places, i), bits);
    html_puts(h, ": probability ");
    put_percent(h, logprob_of(t, i));
    html_markup(h, ", %s bits, rank %zu", bits, p->rank);
    for (size_t k = 0; k < p->n_top; k++) {
        html_markup(h, "&#10;%zu. ", k + 1);
        put_id(h, eng, p->top[k].id);
        html_puts(h, " ");
        put_percent(h, (double)p->top[k].logprob);
    }
}

/* The end of the tokens from i on that end in complete characters. */
static size_t group_end(const struct score_text *t, size_t i)
{
    size_t k = i + 1, begin = t->start[i];
    while (k < t->n_tokens && t->start[k] - begin < 16 &&
           utf8_complete(t->bytes + begin, t->start[k] - begin) !=
               t->start[k] - begin)
        k++;
    return k;
}

static void put_tokens(struct html *h, const struct qwick_engine *eng,
                       const struct score_text *t,
                       const struct score_place *places)
{
    html_puts(h, "<p class=\"text\">");
    for (size_t i = 0, end; i < t->n_tokens && !h->out.failed; i = end) {
        double bits = 0;
        end = group_end(t, i);
        for (size_t k = i; k < end; k++)
            bits += bits_of(t, places, k);
        html_markup(h, "<span class=\"c%zu\" title=\"", heat_class_of(bits));
        for (size_t k = i; k < end; k++) {
            if (k > i)
                html_puts(h, "&#10;");
            put_tip(h, eng, t, places, k);
        }
        html_puts(h, "\">");
        html_text(h, t->bytes + t->start[i], t->start[end] - t->start[i]);
        html_puts(h, "</span>");
    }
    html_puts(h, "</p>\n");
}

/* ---- charts and tables -------------------------------------------------- */

static void put_number(struct html *h, const char *name, double v)
{
    char text[SCALE_TEXT];
    scale_number(v, text);
    html_fact(h, name, "%s", text);
}

static void put_totals(struct html *h, const struct score_text *t)
{
    struct score_totals s = {0};
    score_add(&s, t);
    html_puts(h, "<table class=\"facts\">\n<caption>Summary</caption>\n");
    html_fact(h, "Tokens", "%zu", s.n_tokens);
    html_fact(h, "Tokens scored", "%zu", s.n_scored);
    html_fact(h, "Bytes", "%zu", s.n_bytes);
    html_fact(h, "Windows", "%zu", s.n_windows);
    put_number(h, "Bits", s.bits);
    put_number(h, "Bits per byte",
               s.n_scored_bytes ? s.bits / (double)s.n_scored_bytes : NAN);
    put_number(h, "Perplexity",
               s.n_scored ? exp(-s.logprob / (double)s.n_scored) : NAN);
    html_puts(h, "</table>\n");
}

static void put_series(struct html *h, const double *bits, size_t n)
{
    struct chart c;
    struct chart_axes a = {
        .title = "Surprise along the text",
        .about = "Bits of each token in the order of the text, and their mean "
                 "over the last 32 tokens.",
        .x = "token",
        .y = "bits",
        .x_hi = n > 1 ? (double)(n - 1) : 1,
        .x_tight = true,
    };
    double *x = calloc(2 * n, sizeof(*x)), *mean, sum = 0;
    size_t count = 0;
    if (!x) {
        h->out.failed = true;
        return;
    }
    mean = x + n;
    for (size_t i = 0; i < n; i++) {
        x[i] = (double)i;
        a.y_hi = fmax(a.y_hi, bits[i]);
        if (isfinite(bits[i])) {
            sum += bits[i];
            count++;
        }
        if (i >= 32 && isfinite(bits[i - 32])) {
            sum -= bits[i - 32];
            count--;
        }
        mean[i] = count ? sum / (double)count : NAN;
    }
    chart_begin(&c, h, &a);
    struct chart_style one = {.style = 0, .thin = true, .name = "token"},
                       smooth = {.style = 1, .name = "mean of 32 tokens"};
    chart_line(&c, &one, x, bits, n);
    chart_line(&c, &smooth, x, mean, n);
    chart_end(&c, NULL);
    free(x);
}

/* A bar for each class of probability, in its number of tokens. */
static void put_classes(struct html *h, const double *bits, size_t n)
{
    size_t counts[HEAT_CLASSES] = {0}, total = 0;
    for (size_t i = 0; i < n; i++)
        if (isfinite(bits[i])) {
            counts[heat_class_of(bits[i])]++;
            total++;
        }
    html_puts(h, "<table>\n<caption>Tokens by probability</caption>\n<thead>"
                 "<tr><th scope=\"col\">Probability</th><th scope=\"col\">"
                 "Tokens</th><th scope=\"col\">Share</th></tr></thead>\n"
                 "<tbody>\n");
    for (size_t i = 0; i < HEAT_CLASSES; i++) {
        html_markup(h,
                    "<tr><td><span class=\"c%zu chip\">%s%s</span></td><td>%zu"
                    "</td><td>%.1f%%</td></tr>\n",
                    i, i + 1 < HEAT_CLASSES ? "at least " : "below ",
                    heat_classes[i + 1 < HEAT_CLASSES ? i : i - 1].label,
                    counts[i],
                    total ? 100 * (double)counts[i] / (double)total : 0.0);
    }
    html_puts(h, "</tbody></table>\n");
}

/* The most surprising tokens. */
static void put_surprises(struct html *h, const struct qwick_engine *eng,
                          const struct score_text *t,
                          const struct score_place *places, const double *bits)
{
    size_t best[SHOWN], m = 0;
    for (size_t i = 0; i < t->n_tokens; i++) {
        if (!isfinite(bits[i]) || (m == SHOWN && bits[i] <= bits[best[m - 1]]))
            continue;
        size_t at = m < SHOWN ? m++ : m - 1;
        for (; at && bits[best[at - 1]] < bits[i]; at--)
            best[at] = best[at - 1];
        best[at] = i;
    }
    html_puts(h, "<div class=\"wide\"><table>\n<caption>The most surprising "
                 "tokens</caption>\n<thead><tr><th scope=\"col\">Token</th>"
                 "<th scope=\"col\">Place</th><th scope=\"col\">Probability"
                 "</th><th scope=\"col\">Bits</th><th scope=\"col\">Rank</th>"
                 "<th scope=\"col\" class=\"left\">Likeliest instead</th>"
                 "</tr></thead>\n<tbody>\n");
    for (size_t k = 0; k < m; k++) {
        size_t i = best[k];
        char text[SCALE_TEXT];
        html_puts(h, "<tr><td>");
        put_token(h, t->bytes + t->start[i], t->start[i + 1] - t->start[i]);
        html_markup(h, "</td><td>%zu</td><td>", i);
        put_percent(h, logprob_of(t, i));
        scale_number(bits[i], text);
        html_markup(h, "</td><td>%s</td><td>%zu</td><td class=\"left\">", text,
                    places[i].rank);
        if (places[i].n_top) {
            put_id(h, eng, places[i].top[0].id);
            html_puts(h, " ");
            put_percent(h, (double)places[i].top[0].logprob);
        }
        html_puts(h, "</td></tr>\n");
    }
    html_puts(h, "</tbody></table></div>\n");
}

/* ---- the page ----------------------------------------------------------- */

void score_page_begin(struct html *h, const struct qwick_engine *eng)
{
    html_begin_model(h, "qwick score", eng);
    html_puts(h, "</table>\n<p class=\"soft\">Each token has the colour of its "
                 "probability after the tokens before it. Hold the pointer "
                 "over a token for its numbers and for the likeliest tokens at "
                 "its place.</p>\n");
}

void score_page_text(struct html *h, const struct qwick_engine *eng,
                     const char *name, const struct score_text *t,
                     const struct score_place *places)
{
    double *bits = calloc(t->n_tokens + 1, sizeof(*bits));
    if (!bits) {
        h->out.failed = true;
        return;
    }
    for (size_t i = 0; i < t->n_tokens; i++)
        bits[i] = bits_of(t, places, i);
    html_puts(h, "<section>\n<h2>");
    html_cstr(h, name ? name : "Text");
    html_puts(h, "</h2>\n");
    put_tokens(h, eng, t, places);
    html_puts(h, "<div class=\"tables\">");
    put_totals(h, t);
    put_classes(h, bits, t->n_tokens);
    html_puts(h, "</div>\n");
    if (t->n_tokens > 1) {
        html_puts(h, "<div class=\"charts\">\n");
        put_series(h, bits, t->n_tokens);
        html_puts(h, "</div>\n");
        put_surprises(h, eng, t, places, bits);
    }
    html_puts(h, "</section>\n");
    free(bits);
}
