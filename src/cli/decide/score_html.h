/* The page of `score --html`: texts with a colour for each token. */
#ifndef CLI_SCORE_HTML_H
#define CLI_SCORE_HTML_H

#include <stddef.h>
#include <stdint.h>

#include "cli/answer/score_text.h"
#include "cli/report/html.h"
#include "qwick.h"

/* The likeliest tokens that the page names at each place. */
enum { SCORE_TOP = 5 };

/* A token at its place: its rank, and the likeliest tokens there. */
struct score_place {
    size_t rank; /* 0: not scored */
    size_t n_top;
    struct qwick_logprob top[SCORE_TOP];
};

/* The places of all texts. */
struct score_places {
    struct score_place **v; /* [n], each [n_tokens + 1] of its text */
    size_t n;
    const struct score_text *texts; /* borrowed */
};

/* Make room for the places of texts [n], and let qwick_score fill them in: *o
 * gets the callback. Returns 0, or -1 when out of memory; call
 * score_places_free in both cases. */
int score_places_make(struct score_places *p, const struct score_text *texts,
                      size_t n, struct qwick_score_options *o);
void score_places_free(struct score_places *p);

/* The section of one text; places [t->n_tokens]. name: of its file; NULL:
 * none. */
void score_page_text(struct html *h, const struct qwick_engine *eng,
                     const char *name, const struct score_text *t,
                     const struct score_place *places);
/* Begin the page, with the model and the legend. */
void score_page_begin(struct html *h, const struct qwick_engine *eng);

#endif
