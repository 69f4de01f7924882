/* Specialisations: macros that write a tile once for each value of a number, and
 * the widths of codes that are such numbers. */
#ifndef KERNEL_SPECIALISE_H
#define KERNEL_SPECIALISE_H

#include <stdbool.h>
#include <stddef.h>

#include "kernel/kernel.h"

/* A tile takes the numbers of its rows and tokens as constants, so that gcc
 * unrolls its loops and keeps sums in registers. The macros of this header write
 * a tile once for each constant. */

/* Run a statement with T, a constant, in place of n_tokens, which is 1 to 4. */
#define WITH_TOKENS(n_tokens, ...)    \
    do {                              \
        if ((n_tokens) == 1) {        \
            enum { T = 1 };           \
            __VA_ARGS__;              \
        } else if ((n_tokens) == 2) { \
            enum { T = 2 };           \
            __VA_ARGS__;              \
        } else if ((n_tokens) == 3) { \
            enum { T = 3 };           \
            __VA_ARGS__;              \
        } else {                      \
            enum { T = 4 };           \
            __VA_ARGS__;              \
        }                             \
    } while (0)

/* Run a statement with `name`, a constant, in place of the flag. */
#define WITH_FLAG(name, flag, ...) \
    do {                           \
        if (flag) {                \
            enum { name = true };  \
            __VA_ARGS__;           \
        } else {                   \
            enum { name = false }; \
            __VA_ARGS__;           \
        }                          \
    } while (0)

/* The width of the codes of affine weights, for which kernels are compiled:
 * their bits; E2M1 for its 4 bits; SIGNED for signed codes of 8 bits. In
 * comparisons, E2M1 is one of the narrow widths and SIGNED a wide one. */
enum { E2M1 = 1, SIGNED = 7, N_WIDTHS = 9 };

static inline int code_width(const struct affine *w)
{
    return w->codes == AFFINE_E2M1     ? E2M1
           : w->codes == AFFINE_SIGNED ? SIGNED
                                       : w->bits;
}

static inline size_t width_bits(int width)
{
    return width == E2M1 ? 4 : width == SIGNED ? 8 : (size_t)width;
}

/* Run a statement with BITS, a constant, in place of `bits`, a code_width. */
#define BITS_CASE(label, n, ...) \
    label : {                    \
        enum { BITS = n };       \
        __VA_ARGS__;             \
        break;                   \
    }
#define WITH_BITS(bits, ...)                        \
    switch (bits) {                                 \
        BITS_CASE(case E2M1, E2M1, __VA_ARGS__)     \
        BITS_CASE(case 2, 2, __VA_ARGS__)           \
        BITS_CASE(case 3, 3, __VA_ARGS__)           \
        BITS_CASE(case 4, 4, __VA_ARGS__)           \
        BITS_CASE(case 5, 5, __VA_ARGS__)           \
        BITS_CASE(case 6, 6, __VA_ARGS__)           \
        BITS_CASE(case SIGNED, SIGNED, __VA_ARGS__) \
        BITS_CASE(default, 8, __VA_ARGS__)          \
    }

/* Write DEFINE(..., n) for n = 1 to 3, 4 or 6. */
#define EACH_3(DEFINE, ...) \
    DEFINE(__VA_ARGS__, 1) DEFINE(__VA_ARGS__, 2) DEFINE(__VA_ARGS__, 3)
#define EACH_4(DEFINE, ...) EACH_3(DEFINE, __VA_ARGS__) DEFINE(__VA_ARGS__, 4)
#define EACH_6(DEFINE, ...)     \
    EACH_4(DEFINE, __VA_ARGS__) \
    DEFINE(__VA_ARGS__, 5) DEFINE(__VA_ARGS__, 6)
/* A row of a table of these functions. */
#define ROW_3(name)                  \
    {                                \
        name##_1, name##_2, name##_3 \
    }
#define ROW_4(name)                            \
    {                                          \
        name##_1, name##_2, name##_3, name##_4 \
    }
#define ROW_6(name)                                                \
    {                                                              \
        name##_1, name##_2, name##_3, name##_4, name##_5, name##_6 \
    }

/* Write DEFINE(bits) for each code_width. */
#define EACH_WIDTH(DEFINE) \
    DEFINE(E2M1)           \
    DEFINE(2) DEFINE(3) DEFINE(4) DEFINE(5) DEFINE(6) DEFINE(SIGNED) DEFINE(8)

#endif
