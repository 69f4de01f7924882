#include "cli/report/chart.h"

#include <math.h>
#include <string.h>

/* The frame, in units of the drawing. */
enum { LEFT = 64, RIGHT = 18, TOP = 40, BOTTOM = 52 };

static double right(const struct chart *c)
{
    return (double)c->width - RIGHT;
}

static double bottom(const struct chart *c)
{
    return (double)c->height - BOTTOM;
}

/* ---- the frame ---------------------------------------------------------- */

static void put_tick_x(struct chart *c, double v)
{
    char text[SCALE_TEXT];
    double at = scale_at(&c->x, v);
    scale_label(&c->x, v, text);
    html_markup(c->h,
                "<path class=\"grid\" d=\"M%.1f %dV%.1f\"/><text class=\"tick\""
                " x=\"%.1f\" y=\"%.1f\" text-anchor=\"middle\">%s</text>\n",
                at, TOP, bottom(c), at, bottom(c) + 17, text);
}

static void put_tick_y(struct chart *c, double v)
{
    char text[SCALE_TEXT];
    double at = scale_at(&c->y, v);
    scale_label(&c->y, v, text);
    html_markup(c->h,
                "<path class=\"grid\" d=\"M%d %.1fH%.1f\"/><text class=\"tick\""
                " x=\"%d\" y=\"%.1f\" text-anchor=\"end\">%s</text>\n",
                LEFT, at, right(c), LEFT - 7, at + 4, text);
}

static void put_axis_names(struct chart *c, const struct chart_axes *a)
{
    struct html *h = c->h;
    html_markup(h,
                "<text class=\"tick\" x=\"%.1f\" y=\"%zu\" "
                "text-anchor=\"middle\">",
                (LEFT + right(c)) / 2, c->height - 12);
    html_cstr(h, a->x);
    html_markup(h,
                "</text><text class=\"tick\" x=\"14\" y=\"%.1f\" "
                "text-anchor=\"middle\" transform=\"rotate(-90 14 %.1f)\">",
                (TOP + bottom(c)) / 2, (TOP + bottom(c)) / 2);
    html_cstr(h, a->y);
    html_puts(h, "</text>\n");
}

void chart_begin(struct chart *c, struct html *h, const struct chart_axes *a)
{
    double ticks[SCALE_TICKS];
    *c = (struct chart){.h = h,
                        .width = a->width ? a->width : CHART_WIDTH,
                        .height = a->height ? a->height : CHART_HEIGHT,
                        .id = h->n_ids++};
    c->x = scale_make(a->x_lo, a->x_hi, a->x_log, LEFT, right(c));
    c->y = scale_make(a->y_lo, a->y_hi, a->y_log, bottom(c), TOP);
    if (a->x_tight && isfinite(a->x_lo) && a->x_lo < a->x_hi &&
        isfinite(a->x_hi)) {
        c->x.lo = a->x_lo;
        c->x.hi = a->x_hi;
    }
    html_markup(h,
                "<figure>\n<svg viewBox=\"0 0 %zu %zu\" role=\"img\" "
                "aria-labelledby=\"t%zu d%zu\">\n<title id=\"t%zu\">",
                c->width, c->height, c->id, c->id, c->id);
    html_cstr(h, a->title);
    html_markup(h, "</title><desc id=\"d%zu\">", c->id);
    html_cstr(h, a->about);
    html_markup(h, "</desc>\n<text class=\"title\" x=\"%d\" y=\"20\">", LEFT);
    html_cstr(h, a->title);
    html_puts(h, "</text>\n");
    size_t n = scale_ticks(&c->x, ticks);
    for (size_t i = 0; i < n; i++)
        put_tick_x(c, ticks[i]);
    n = scale_ticks(&c->y, ticks);
    for (size_t i = 0; i < n; i++)
        put_tick_y(c, ticks[i]);
    html_markup(h,
                "<path class=\"axis\" fill=\"none\" d=\"M%d %dV%.1fH%.1f\"/>"
                "\n",
                LEFT, TOP, bottom(c), right(c));
    put_axis_names(c, a);
}

/* ---- marks -------------------------------------------------------------- */

/* Series have marks of different shapes. */
static void put_shape(struct html *h, size_t style, bool thin, double x,
                      double y)
{
    static const char *const shapes[CHART_SERIES] = {
        "a4.5 4.5 0 1 0 .01 0z",            /* circle; from its top */
        "l4 0 0 8-8 0 0-8z",                /* square */
        "l5.2 9-10.4 0z",                   /* triangle */
        "l5.5 5.5-5.5 5.5-5.5-5.5z",        /* diamond */
        "l4.5 0-4.5 9-4.5-9z",              /* triangle on its point */
        "m-1.5 0h3v3h3v3h-3v3h-3v-3h-3v-3h3z" /* plus */
    };
    static const double tops[CHART_SERIES] = {4.5, 4, 6, 5.5, 4.5, 4.5};
    size_t i = style % CHART_SERIES;
    html_markup(h, "<path class=\"f%zu%s\" d=\"M%.1f %.1f%s\">", i,
                thin ? " thin" : "", x, y - tops[i], shapes[i]);
}

static void add_key(struct chart *c, const struct chart_style *s, bool mark)
{
    size_t most = sizeof(c->keys) / sizeof(*c->keys);
    if (!s->name)
        return;
    for (size_t i = 0; i < c->n_keys; i++)
        if (strcmp(c->keys[i].name, s->name) == 0)
            return;
    if (c->n_keys < most)
        c->keys[c->n_keys++] =
            (struct chart_key){s->name, s->style, mark, s->dash};
}

/* End a mark, with a text that shows when the pointer is over it. */
static void end_mark(struct html *h, const char *tip)
{
    if (tip) {
        html_puts(h, "<title>");
        html_cstr(h, tip);
        html_puts(h, "</title>");
    }
    html_puts(h, "</path>\n");
}

void chart_mark(struct chart *c, const struct chart_style *s, double x,
                double y, const char *tip)
{
    if (!isfinite(x) || !isfinite(y))
        return;
    add_key(c, s, true);
    put_shape(c->h, s->style, s->thin, scale_at(&c->x, x), scale_at(&c->y, y));
    end_mark(c->h, tip);
}

void chart_bar(struct chart *c, const struct chart_style *s, double x0,
               double x1, double y, const char *tip)
{
    double a = scale_at(&c->x, x0), b = scale_at(&c->x, x1);
    double top = scale_at(&c->y, y);
    add_key(c, s, true);
    html_markup(c->h,
                "<path class=\"bar f%zu\" d=\"M%.1f %.1fV%.1fH%.1fV%.1fz\">",
                s->style % CHART_SERIES, a + 1, bottom(c), top,
                fmax(b - 1, a + 2), bottom(c));
    end_mark(c->h, tip);
}

/* ---- lines -------------------------------------------------------------- */

/* The path of a line, point by point. */
struct path {
    struct chart *c;
    bool open;
};

static void path_point(struct path *p, double x, double y)
{
    bool known = isfinite(x) && isfinite(y);
    if (known)
        html_markup(p->c->h, "%c%.1f %.1f", p->open ? 'L' : 'M',
                    scale_at(&p->c->x, x), scale_at(&p->c->y, y));
    p->open = known;
}

/* The least and the largest of points [begin, end), in their order. Without a
 * finite one, the line is interrupted. */
static void path_extremes(struct path *p, const double *x, const double *y,
                          size_t begin, size_t end)
{
    size_t lo = begin, hi = begin;
    for (size_t i = begin; i < end; i++) {
        if (!isfinite(y[i]))
            continue;
        if (!isfinite(y[lo]) || y[i] < y[lo])
            lo = i;
        if (!isfinite(y[hi]) || y[i] > y[hi])
            hi = i;
    }
    size_t first = lo < hi ? lo : hi, second = lo < hi ? hi : lo;
    path_point(p, x[first], y[first]);
    if (second != first)
        path_point(p, x[second], y[second]);
}

void chart_line(struct chart *c, const struct chart_style *s, const double *x,
                const double *y, size_t n)
{
    struct path p = {.c = c};
    size_t cells = c->width;
    if (n == 0)
        return;
    add_key(c, s, false);
    html_markup(c->h, "<path class=\"curve s%zu%s%s\" d=\"",
                s->style % CHART_SERIES, s->thin ? " thin" : "",
                s->dash ? " dash" : "");
    if (n <= 2 * cells)
        for (size_t i = 0; i < n; i++)
            path_point(&p, x[i], y[i]);
    else
        for (size_t i = 0; i < cells; i++)
            path_extremes(&p, x, y, n / cells * i,
                          i + 1 < cells ? n / cells * (i + 1) : n);
    html_puts(c->h, "\"/>\n");
}

/* ---- the end ------------------------------------------------------------ */

/* The legend is below the drawing, where its entries can wrap. */
static void put_key(struct chart *c, size_t i)
{
    const struct chart_key *k = &c->keys[i];
    html_puts(c->h, "<span class=\"key\"><svg viewBox=\"0 0 26 14\" "
                    "aria-hidden=\"true\">");
    if (k->mark) {
        put_shape(c->h, k->style, false, 13, 7);
        html_puts(c->h, "</path>");
    } else {
        html_markup(c->h, "<path class=\"curve s%zu%s\" d=\"M2 7h22\"/>",
                    k->style % CHART_SERIES, k->dash ? " dash" : "");
    }
    html_puts(c->h, "</svg>");
    html_cstr(c->h, k->name);
    html_puts(c->h, "</span>\n");
}

void chart_end(struct chart *c, const char *caption)
{
    html_puts(c->h, "</svg>\n");
    if (c->n_keys)
        html_puts(c->h, "<p class=\"keys\">");
    for (size_t i = 0; i < c->n_keys; i++)
        put_key(c, i);
    if (c->n_keys)
        html_puts(c->h, "</p>\n");
    if (caption) {
        html_puts(c->h, "<figcaption>");
        html_cstr(c->h, caption);
        html_puts(c->h, "</figcaption>\n");
    }
    html_puts(c->h, "</figure>\n");
}
