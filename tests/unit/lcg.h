/* Small random numbers, equal in each run: below_state is the seed. */
#ifndef TEST_LCG_H
#define TEST_LCG_H

#include <stdint.h>

static uint32_t below_state;

/* A number below n. */
static inline uint32_t below(uint32_t n)
{
    below_state = below_state * 1664525u + 1013904223u;
    return (uint32_t)(((uint64_t)(below_state >> 4) * n) >> 28);
}

/* A number in [0, 1). */
static inline double uniform(void)
{
    return (double)below(1u << 28) / (double)(1u << 28);
}

#endif
