/* The grids of ggml's types IQ1, IQ2 and IQ3: a number in a block of weights
 * names a grid point, which is the magnitudes of eight or four elements, one a
 * byte, the first one lowest. */
#ifndef KERNEL_IQ_GRIDS_H
#define KERNEL_IQ_GRIDS_H

#include <stdint.h>

extern const uint64_t iq2_xxs_grid[256], iq2_xs_grid[512], iq2_s_grid[1024];
extern const uint32_t iq3_xxs_grid[256], iq3_s_grid[512];

/* The same grids, packed in two bytes a point, 64-byte aligned: [0] has the
 * first half of the elements. Four elements of IQ2 have two bits each, which
 * stand for 8, 25 and 43. Two elements of IQ3 have a nibble each: a number i
 * that stands for 2 i + 1 in IQ3_S, and in IQ3_XXS for 4 + 8 i, except 7, which
 * stands for 62. */
extern const unsigned char iq2_xxs_bytes[2][256], iq2_xs_bytes[2][512],
    iq2_s_bytes[2][1024], iq3_xxs_bytes[2][256], iq3_s_bytes[2][512];

/* Seven signs as masks of eight bytes: all ones where the sign is minus. The
 * eighth sign makes the number of minus signs even. */
extern const uint64_t iq_minus[128];

/* Of IQ1_S and IQ1_M: eight elements -1, 0 or 1, plus 1, of two bits each. */
extern const uint16_t iq1_grid[2048];

#endif
