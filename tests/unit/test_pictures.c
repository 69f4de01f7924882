/* Sparklines, histograms, percentiles, scales, charts, the colour scale, and
 * texts in colour. The command line is not a library, so its files are compiled
 * into the test. */
#include "test.h"

#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

#include "cli/report/chart.c"
#include "cli/report/heat.c"
#include "cli/report/html.c"
#include "cli/report/machine.c"
#include "cli/report/paint.c"
#include "cli/report/plot_text.c"
#include "cli/report/scale.c"

/* ---- what these files need of others ---- */

static char written[1 << 16];

int msg_fail(const struct qwick_err *e)
{
    fail_msg("%s", e->msg);
    return 1;
}

int msg_oom(void)
{
    return 5;
}

bool msg_quiet(void)
{
    return true;
}

bool err_is_tty(void)
{
    return false;
}

bool term_colours(const char *when, bool tty)
{
    (void)when;
    return tty;
}

bool term_truecolor(void)
{
    return false;
}

int fd_write(int fd, const void *p, size_t n)
{
    (void)fd;
    (void)p;
    (void)n;
    return 0;
}

int out_escape(struct buf *out, const char *s, size_t n)
{
    return buf_append(out, s, n);
}

double *sorted_doubles(const double *from, size_t n)
{
    double *v = malloc((n + 1) * sizeof(*v));
    assert_non_null(v);
    for (size_t i = 0; i < n; i++) {
        size_t k = i;
        for (; k && v[k - 1] > from[i]; k--)
            v[k] = v[k - 1];
        v[k] = from[i];
    }
    return v;
}

double quantile(const double *v, size_t n, double q)
{
    double x = q * (double)(n - 1);
    size_t i = (size_t)x;
    return i + 1 >= n ? v[n - 1] : v[i] + (x - (double)i) * (v[i + 1] - v[i]);
}

/* ---- sparkline and histogram ---- */

static const char *spark(const double *v, size_t n, size_t columns, bool utf8)
{
    static struct buf b;
    b.len = 0;
    assert_int_equal(buf_puts(&b, ""), 0);
    assert_int_equal(plot_sparkline(&b, v, n, columns, utf8), 0);
    return b.data;
}

static void sparklines(void **state)
{
    const double up[] = {0, 1, 2, 3, 4, 5, 6, 7}, flat[] = {2, 2, 2};
    assert_string_equal(spark(up, 8, 80, false), "_.:-=+*#");
    assert_string_equal(spark(up, 8, 80, true), "▁▂▃▄▅▆▇█");
    assert_string_equal(spark(flat, 3, 80, false), "___");
    assert_string_equal(spark(up, 1, 80, false), "_");
    assert_string_equal(spark(up, 0, 80, false), "");
    /* a column shows the largest of its values */
    assert_string_equal(spark(up, 8, 4, false), ".-+#");
    assert_string_equal(spark(up, 8, 1, false), "#");
    const double down[] = {7, 6, 5, 4, 3, 2, 1, 0};
    assert_string_equal(spark(down, 8, 4, false), "#+-.");
    /* one outlier of 100 does not flatten the rest */
    double v[100];
    for (size_t i = 0; i < 100; i++)
        v[i] = (double)(i % 2);
    v[50] = 1e9;
    const char *s = spark(v, 100, 100, false);
    assert_true(s[0] == '_' && s[1] == '#' && s[50] == '#' && s[52] == '_');
}

static void histograms(void **state)
{
    double v[1000];
    struct plot_bin bins[PLOT_BINS];
    for (size_t i = 0; i < 1000; i++)
        v[i] = (double)((i * 7919) % 1000);
    v[17] = 1e6;
    size_t m = plot_bins(v, 1000, bins), sum = 0;
    assert_int_equal(m, PLOT_BINS);
    for (size_t i = 0; i < m; i++) {
        size_t n = 0;
        for (size_t k = 0; k < 1000; k++)
            n += v[k] >= bins[i].lo &&
                 (v[k] < bins[i].hi || (i + 1 == m && v[k] <= bins[i].hi));
        assert_int_equal(n, bins[i].n);
        assert_true(i == 0 || bins[i].lo == bins[i - 1].hi);
        sum += bins[i].n;
    }
    assert_int_equal(sum, 1000);
    assert_true(bins[m - 1].hi == 1e6);
    const double same[] = {3, 3};
    assert_int_equal(plot_bins(same, 2, bins), 1);
    assert_int_equal(bins[0].n, 2);
    assert_int_equal(plot_bins(same, 0, bins), 0);
    /* no line is wider than the terminal */
    for (size_t columns = 30; columns < 100; columns += 7) {
        struct buf b = {0};
        assert_int_equal(plot_times(&b, "t", v, 1000, columns, false), 0);
        for (char *s = b.data; s && *s;) {
            size_t n = strcspn(s, "\n");
            assert_true(n <= (columns < 45 ? 45 : columns));
            s += n + 1;
        }
        buf_free(&b);
    }
    struct buf one = {0};
    assert_int_equal(plot_times(&one, "t", v, 1, 80, false), 0);
    assert_int_equal(one.len, 0);
}

/* ---- scales ---- */

static void check_scale(double lo, double hi, bool log)
{
    struct scale s = scale_make(lo, hi, log, 10, 500);
    double t[SCALE_TICKS];
    size_t n = scale_ticks(&s, t);
    char last[SCALE_TEXT] = "", text[SCALE_TEXT];
    assert_true(isfinite(s.lo) && isfinite(s.hi) && s.lo < s.hi);
    if (isfinite(lo) && isfinite(hi) && lo <= hi && (!log || lo > 0)) {
        assert_true(s.lo <= lo + 1e-8 * (fabs(hi) + fabs(lo)));
        /* rounding: less than a pixel */
        if (!(s.hi >= hi - 1e-8 * (fabs(hi) + fabs(lo))))
            fail_msg("%g..%g: ends at %g", lo, hi, s.hi);
    }
    assert_true(n >= 2 && n <= SCALE_TICKS);
    for (size_t i = 0; i < n; i++) {
        assert_true(i == 0 || t[i] > t[i - 1]);
        assert_true(t[i] >= s.lo - 1e-9 * fabs(s.lo));
        scale_label(&s, t[i], text);
        assert_string_not_equal(text, last); /* labels tell ticks apart */
        memcpy(last, text, sizeof last);
        double at = scale_at(&s, t[i]);
        assert_true(at >= 10 && at <= 500);
    }
    const double odd[] = {NAN, INFINITY, -INFINITY, 0, -1, 1e300};
    for (size_t i = 0; i < 6; i++) {
        double at = scale_at(&s, odd[i]);
        assert_true(at >= 10 && at <= 500);
    }
}

static void scales_are_finite_and_round(void **state)
{
    const double v[] = {0,    1e-9, 0.013, 0.5, 1,       1.5,     9.99, 10,
                        63.0, 64,   1023,  1e4, 1234567, 4.2e9,   -3,   NAN,
                        INFINITY,   -INFINITY};
    size_t n = sizeof(v) / sizeof(*v);
    for (size_t i = 0; i < n; i++)
        for (size_t k = 0; k < n; k++) {
            check_scale(v[i], v[k], false);
            check_scale(v[i], v[k], true);
        }
    struct scale s = scale_make(0, 0.42, false, 0, 1);
    char text[SCALE_TEXT];
    assert_true(s.lo == 0 && fabs(s.hi - 0.5) < 1e-12);
    scale_label(&s, 0.1, text);
    assert_string_equal(text, "0.1");
    s = scale_make(0, 23000, false, 0, 1);
    scale_label(&s, 15000, text);
    assert_string_equal(text, "15k");
    s = scale_make(1, 1e6, true, 0, 60);
    assert_true(fabs(scale_at(&s, 1e3) - 30) < 1e-9);
}

static void numbers_have_three_digits(void **state)
{
    const struct {
        double v;
        const char *text;
    } cases[] = {
        {0, "0.00"},       {0.0123, "0.0123"},  {0.5, "0.500"},
        {0.9996, "1.00"},  {1, "1.00"},         {9.994, "9.99"},
        {9.996, "10.0"},   {99.94, "99.9"},     {99.96, "100"},
        {123.4, "123"},    {1234, "1,234"},     {1234567, "1,234,567"},
        {-2.5, "-2.50"},   {-1234, "-1,234"},   {1e-7, "1.00e-07"},
        {1e20, "1.00e+20"}, {NAN, "-"},         {INFINITY, "-"},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        char text[SCALE_TEXT];
        scale_number(cases[i].v, text);
        assert_string_equal(text, cases[i].text);
    }
}

/* ---- pages ---- */

static size_t count_of(const char *s, const char *word)
{
    size_t n = 0;
    for (; (s = strstr(s, word)); s++)
        n++;
    return n;
}

static void charts_hold_no_odd_number(void **state)
{
    double x[5000], y[5000];
    struct html h;
    struct chart c;
    for (size_t i = 0; i < 5000; i++) {
        x[i] = (double)i;
        y[i] = i % 100 == 3 ? NAN : i % 100 == 4 ? INFINITY : (double)(i % 7);
    }
    y[2501] = 1000; /* must not get lost among the points of its pixel */
    y[2503] = INFINITY;
    struct chart_axes a = {.title = "<b>&\"",
                           .about = "about",
                           .x = "x<",
                           .y = "y",
                           .x_hi = 4999,
                           .y_hi = 1000};
    html_begin(&h, "</title><script>");
    chart_begin(&c, &h, &a);
    struct chart_style s = {.style = 7, .name = "a<b"};
    chart_line(&c, &s, x, y, 5000);
    chart_mark(&c, &s, NAN, 1, "tip");
    chart_mark(&c, &s, 1, INFINITY, "tip");
    chart_mark(&c, &s, -5, 1e9, "\"><script>");
    chart_bar(&c, &s, 1, 1, 5, NULL);
    chart_line(&c, &s, x, y, 0);
    chart_end(&c, "caption");
    html_end(&h);
    char path[] = "/tmp/qwick-page-XXXXXX";
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    assert_int_equal(html_write(&h, path), 0);
    close(fd);
    fd = open(path, O_RDONLY);
    ssize_t n = read(fd, written, sizeof written - 1);
    assert_true(n > 0 && (size_t)n < sizeof written - 1);
    written[n] = 0;
    close(fd);
    unlink(path);
    assert_null(strstr(written, "nan"));
    assert_null(strstr(written, "inf"));
    assert_null(strstr(written, "<script"));
    assert_null(strstr(written, "<b>"));
    assert_non_null(strstr(written, "&lt;b&gt;&amp;&quot;"));
    assert_int_equal(count_of(written, "<svg"), count_of(written, "</svg>"));
    assert_int_equal(count_of(written, "<figure"), 1);
    /* the outlier reaches the top of the frame */
    assert_non_null(strstr(written, " 40.0L"));
}

static void text_is_escaped(void **state)
{
    struct html h = {0};
    static const char text[] = "<a href='x'>&\"\n\t\033[31m\xff\xc3\xa9\xc2\x85";
    html_text(&h, text, sizeof text); /* with its NUL */
    assert_string_equal(h.out.data,
                        "&lt;a href=&#39;x&#39;&gt;&amp;&quot;&#10;\t\\x1b[31m"
                        "\\xff\xc3\xa9\\xc2\\x85\\x00");
    buf_free(&h.out);
}

/* ---- colours ---- */

static double luminance(const uint8_t rgb[3])
{
    static const double w[] = {0.2126, 0.7152, 0.0722};
    double sum = 0;
    for (size_t i = 0; i < 3; i++) {
        double v = rgb[i] / 255.0;
        sum += w[i] * (v <= 0.04045 ? v / 12.92 : pow((v + 0.055) / 1.055, 2.4));
    }
    return sum;
}

/* The colour of an index in xterm's cube of 6 x 6 x 6 colours. */
static void cube(uint8_t index, uint8_t rgb[3])
{
    static const uint8_t levels[] = {0, 95, 135, 175, 215, 255};
    int i = index - 16;
    rgb[0] = levels[i / 36];
    rgb[1] = levels[i / 6 % 6];
    rgb[2] = levels[i % 6];
}

/* WCAG 2.1: at least 4.5 between text and background. The classes are ordered by
 * lightness, in steps that are visible without hues: a contrast of 1.15. */
static void colours_are_readable_and_ordered(void **state)
{
    double last[2] = {1.05, 1.05};
    for (size_t i = 1; i < HEAT_CLASSES; i++) {
        const struct heat_class *c = &heat_classes[i];
        uint8_t rgb[3];
        cube(c->index, rgb);
        const uint8_t *both[] = {c->rgb, rgb};
        assert_true(c->p < heat_classes[i - 1].p);
        for (size_t k = 0; k < 2; k++) {
            double y = luminance(both[k]);
            double contrast =
                c->white ? 1.05 / (y + 0.05) : (y + 0.05) / 0.05;
            assert_true(contrast >= 4.5);
            assert_true(last[k] / (y + 0.05) >= (i == 1 ? 1.0 : 1.15));
            last[k] = y + 0.05;
        }
    }
    assert_int_equal(heat_class_of(NAN), 0);
    assert_int_equal(heat_class_of(0), 0);
    assert_int_equal(heat_class_of(1), 1);    /* 50% */
    assert_int_equal(heat_class_of(1.01), 2); /* below */
    assert_int_equal(heat_class_of(1e9), HEAT_CLASSES - 1);
    assert_int_equal(heat_class_of(INFINITY), HEAT_CLASSES - 1);
}

/* Paint pieces of a text; '[N' begins class N, ']' ends it. */
static const char *painted(struct paint *p, const char *text)
{
    static struct buf b, out;
    b.len = out.len = 0;
    assert_int_equal(paint_text(p, text, strlen(text), &b), 0);
    assert_int_equal(buf_puts(&out, ""), 0);
    for (size_t i = 0; i < b.len;) {
        size_t k;
        for (k = 0; b.data[i] == '\033' && k < HEAT_CLASSES; k++) {
            char seq[40];
            snprintf(seq, sizeof seq, "\033[38;5;%d;48;5;%dm",
                     heat_classes[k].white ? 231 : 16, heat_classes[k].index);
            if (strncmp(b.data + i, seq, strlen(seq)) == 0) {
                buf_printf(&out, "[%zu", k);
                i += strlen(seq);
                break;
            }
        }
        if (k && k < HEAT_CLASSES)
            continue;
        if (b.data[i] == '\033') {
            assert_memory_equal(b.data + i, "\033[0m", 4);
            buf_putc(&out, ']');
            i += 4;
        } else {
            buf_putc(&out, b.data[i++]);
        }
    }
    return out.data;
}

static void token(struct paint *p, const char *s, double prob)
{
    assert_int_equal(paint_token(p, s, strlen(s), -log2(prob)), 0);
}

static void texts_get_the_colours_of_their_tokens(void **state)
{
    struct paint p = {0};
    token(&p, "sure", 1);
    token(&p, "even", 0.6);
    assert_string_equal(painted(&p, "sureeven"), "sure[1even]");
    /* text that comes late, after two tokens; and a part of a token */
    token(&p, "ab", 0.001);
    token(&p, "cd", 0.3);
    assert_string_equal(painted(&p, "abc"), "[5ab][2c]");
    token(&p, "ef", 1);
    assert_string_equal(painted(&p, "def"), "[2d]ef");
    /* a character of two tokens: 0.6 * 0.6 */
    token(&p, "\xc3", 0.6);
    token(&p, "\xa9x", 0.6);
    assert_string_equal(painted(&p, "\xc3\xa9x"), "[2\xc3\xa9][1x]");
    /* a newline has no background, and ends none */
    token(&p, "a\n\nb\n", 0.02);
    assert_string_equal(painted(&p, "a\n\nb\n"), "[4a]\n\n[4b]\n");
    /* invalid bytes that became U+FFFD; bytes that the text lacks */
    token(&p, "\xff", 0.3);
    token(&p, "ok", 1);
    assert_string_equal(painted(&p, "\xef\xbf\xbdok"), "[2\xef\xbf\xbd]ok");
    token(&p, "\n\n", 0.3);
    token(&p, "ls", 0.6);
    assert_string_equal(painted(&p, "ls"), "[1ls]");
    /* text of no token is plain */
    assert_string_equal(painted(&p, "more"), "more");
    assert_string_equal(painted(&p, ""), "");
    paint_free(&p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sparklines),
        cmocka_unit_test(histograms),
        cmocka_unit_test(scales_are_finite_and_round),
        cmocka_unit_test(numbers_have_three_digits),
        cmocka_unit_test(charts_hold_no_odd_number),
        cmocka_unit_test(text_is_escaped),
        cmocka_unit_test(colours_are_readable_and_ordered),
        cmocka_unit_test(texts_get_the_colours_of_their_tokens),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
