/* Charts in SVG, for pages of html.h. */
#ifndef CLI_CHART_H
#define CLI_CHART_H

#include <stdbool.h>
#include <stddef.h>

#include "cli/report/html.h"
#include "cli/report/scale.h"

enum { CHART_WIDTH = 560, CHART_HEIGHT = 340, CHART_SERIES = 6 };

/* Title and axes. A chart draws its description for people who do not see it:
 * say what the picture shows. Texts are plain text; they are escaped. */
struct chart_axes {
    const char *title, *about;
    const char *x, *y; /* names of the axes, with their units */
    double x_lo, x_hi, y_lo, y_hi; /* of all values */
    bool x_log, y_log;
    bool x_tight; /* the axis ends at x_lo and x_hi, not at round numbers */
    size_t width, height; /* 0: CHART_WIDTH and CHART_HEIGHT */
};

struct chart {
    struct html *h;
    struct scale x, y;
    size_t width, height;
    size_t n_keys;    /* entries of the legend */
    struct chart_key {
        const char *name; /* borrowed */
        size_t style;
        bool mark, dash;
    } keys[2 * CHART_SERIES];
    size_t id;
};

/* Begin a chart: a figure with an SVG of CHART_WIDTH x CHART_HEIGHT, with its
 * frame, grid and ticks. */
void chart_begin(struct chart *c, struct html *h, const struct chart_axes *a);
/* End it with its legend. caption: plain text below the chart; NULL: none. */
void chart_end(struct chart *c, const char *caption);

/* How a series looks. */
struct chart_style {
    size_t style;     /* its colour and mark, modulo CHART_SERIES */
    bool dash;        /* of lines */
    bool thin;        /* a line is thin, a mark lets others shine through */
    const char *name; /* for the legend; NULL: not there. Borrowed until
                         chart_end */
};

/* Draw a line through the points. Points that are not finite interrupt it. A
 * line of more points than pixels shows the least and the largest value of each
 * pixel, and is interrupted only where a pixel has none. */
void chart_line(struct chart *c, const struct chart_style *s, const double *x,
                const double *y, size_t n);
/* Draw one mark, with a text that shows when the pointer is over it. */
void chart_mark(struct chart *c, const struct chart_style *s, double x,
                double y, const char *tip);
/* Draw a bar from x0 to x1 and from the axis to y. */
void chart_bar(struct chart *c, const struct chart_style *s, double x0,
               double x1, double y, const char *tip);

#endif
