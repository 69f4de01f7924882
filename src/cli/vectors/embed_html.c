#include "cli/vectors/embed_html.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/utf8.h"
#include "cli/io/out.h"
#include "cli/report/chart.h"
#include "cli/report/html.h"
#include "cli/vectors/pca.h"

/* Bytes of a text that its point shows. */
enum { SHOWN_TEXT = 200 };

char *embed_map_name(const struct texts_item *item)
{
    struct buf b = {0};
    size_t n = item->n;
    if (n > SHOWN_TEXT)
        n = utf8_complete(item->text, SHOWN_TEXT);
    if (item->id)
        buf_printf(&b, "%s, ", item->id);
    buf_printf(&b, "%s\n", item->where);
    buf_append(&b, item->text, n);
    if (n < item->n)
        buf_puts(&b, "\xE2\x80\xA6");
    if (!b.failed)
        return buf_take(&b, NULL);
    buf_free(&b);
    return NULL;
}

int embed_map_add(struct embed_map *m, const float *row, char *name,
                  struct qwick_err *e)
{
    if (ARRAY_RESERVE(m->rows, m->cap, (m->n + 1) * m->dim, e) ||
        ARRAY_RESERVE(m->names, m->cap_names, m->n + 1, e)) {
        free(name);
        return -1;
    }
    memcpy(m->rows + m->n * m->dim, row, m->dim * sizeof(*row));
    m->names[m->n++] = name;
    return 0;
}

static void put_map(struct html *h, const struct embed_map *m,
                    const struct pca *r)
{
    const struct chart_style point = {.thin = true};
    struct chart c;
    char names[PCA_AXES][80];
    struct chart_axes a = {
        .title = "Map of the texts",
        .about = "A point for each text, at its place along the two principal "
                 "components of the vectors.",
        .x = names[0],
        .y = names[1],
        .width = 1120,
        .height = 760,
    };
    for (size_t k = 0; k < PCA_AXES; k++)
        snprintf(names[k], sizeof(names[k]),
                 "%s component, %.1f%% of the variance", k ? "second" : "first",
                 100 * r->share[k]);
    for (size_t i = 0; i < m->n; i++) {
        const double *at = r->at + i * PCA_AXES;
        a.x_lo = fmin(a.x_lo, at[0]);
        a.x_hi = fmax(a.x_hi, at[0]);
        a.y_lo = fmin(a.y_lo, at[1]);
        a.y_hi = fmax(a.y_hi, at[1]);
    }
    chart_begin(&c, h, &a);
    for (size_t i = 0; i < m->n; i++)
        chart_mark(&c, &point, r->at[i * PCA_AXES], r->at[i * PCA_AXES + 1],
                   m->names[i]);
    chart_end(&c, NULL);
}

int embed_map_write(const struct embed_map *m, const struct qwick_engine *eng,
                    const char *path)
{
    struct html h;
    struct pca r;
    struct qwick_err e;
    if (pca_find(m->rows, m->n, m->dim, &r, &e)) {
        free(r.at);
        return msg_fail(&e);
    }
    html_begin_model(&h, "qwick embed", eng);
    html_fact(&h, "Texts", "%zu", m->n);
    html_fact(&h, "Numbers of a vector", "%zu", m->dim);
    html_fact(&h, "Variance in the map", "%.1f%%",
              100 * (r.share[0] + r.share[1]));
    html_puts(&h, "</table>\n<p class=\"soft\">Texts with similar vectors are "
                  "near each other, but two axes show only a part of the "
                  "differences: points may be near each other whose vectors "
                  "are not. Hold the pointer over a point for its text.</p>\n");
    put_map(&h, m, &r);
    html_end(&h);
    free(r.at);
    return html_write(&h, path);
}

void embed_map_free(struct embed_map *m)
{
    for (size_t i = 0; i < m->n; i++)
        free(m->names[i]);
    free(m->names);
    free(m->rows);
    *m = (struct embed_map){0};
}
