/* Vectors of four floats, for code that runs on any CPU and gives the same bits
 * everywhere. The compiler makes SSE2 of them on x86-64. */
#ifndef MODEL_LANES_H
#define MODEL_LANES_H

#include <stdint.h>

enum { LANES = 4 };

typedef float vec __attribute__((vector_size(16), may_alias));
typedef int32_t ivec __attribute__((vector_size(16), may_alias));

static inline vec lanes_splat(float v)
{
    return (vec){v, v, v, v};
}

static inline vec lanes_choose(ivec mask, vec a, vec b)
{
    return (vec)(((ivec)a & mask) | ((ivec)b & ~mask));
}

static inline vec lanes_smaller(vec a, vec b)
{
    return lanes_choose(a < b, a, b);
}

static inline vec lanes_larger(vec a, vec b)
{
    return lanes_choose(a > b, a, b);
}

static inline float lanes_sum(vec v)
{
    return (v[0] + v[1]) + (v[2] + v[3]);
}

#endif
