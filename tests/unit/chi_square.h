/* Chi-square tests, for draws from a distribution. */
#ifndef TEST_CHI_SQUARE_H
#define TEST_CHI_SQUARE_H

#include <math.h>
#include <stddef.h>

/* A generous limit of chi-square with df degrees of freedom, by Wilson and
 * Hilferty: 5 standard deviations. */
static inline double most_chi(double df)
{
    double t = 2 / (9 * df);
    return df * pow(1 - t + 5 * sqrt(t), 3);
}

/* Chi-square of two samples of equal size, a[i] and b[i] draws of kind i. Rare
 * kinds count together. Sets *df to the degrees of freedom. */
static inline double chi_of_two(const double *a, const double *b, size_t n,
                                double *df)
{
    double chi = 0, rest[2] = {0};
    *df = -1;
    for (size_t i = 0; i <= n; i++) {
        /* the rare ones come last */
        double x = i < n ? a[i] : rest[0], y = i < n ? b[i] : rest[1];
        if (i < n && x + y < 16) {
            rest[0] += x;
            rest[1] += y;
        } else if (i < n || x + y > 16) {
            chi += (x - y) * (x - y) / (x + y);
            ++*df;
        }
    }
    return chi;
}

#endif
