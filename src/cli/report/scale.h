/* Scales of charts: a map from values to positions, and its ticks. */
#ifndef CLI_SCALE_H
#define CLI_SCALE_H

#include <stdbool.h>
#include <stddef.h>

enum { SCALE_TICKS = 16, SCALE_TEXT = 24 };

struct scale {
    double lo, hi; /* values at the ends; finite, lo < hi, with log lo > 0 */
    bool log;
    double a, b; /* positions of lo and hi */
};

/* Make a scale for values from lo to hi, which are widened to round numbers; a
 * linear scale whose values begin near zero begins at zero. Values that are not
 * finite, or not positive on a logarithmic scale, count as missing; without any
 * value the scale is 0..1, logarithmic 1..10. */
struct scale scale_make(double lo, double hi, bool log, double a, double b);

/* Return the position of a value, within the ends. Always finite. */
double scale_at(const struct scale *s, double v);

/* Write the values of the ticks, ascending, and return their number. A linear
 * scale has 3 to 8, one, two or five times a power of ten apart. A logarithmic
 * one has powers of ten, and 2 and 5 times these if there are few. */
size_t scale_ticks(const struct scale *s, double out[SCALE_TICKS]);

/* Write the label of a tick: with as many decimals as the ticks need, and with
 * k, M or G for thousands, millions or billions. */
void scale_label(const struct scale *s, double tick, char out[SCALE_TEXT]);

/* Write a value with three significant digits, without an exponent where people
 * would not write one: "0.0123", "1.23", "123", "1,234". "-" if it is not
 * finite. */
void scale_number(double v, char out[SCALE_TEXT]);

#endif
