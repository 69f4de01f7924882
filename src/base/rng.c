#include "base/rng.h"

#include <stddef.h>
#include <sys/random.h>
#include <time.h>
#include <unistd.h>

static uint64_t mix(uint64_t z)
{
    z += 0x9E3779B97F4A7C15u;
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9u;
    z = (z ^ z >> 27) * 0x94D049BB133111EBu;
    return z ^ z >> 31;
}

double rng_uniform(uint64_t seed, uint64_t counter)
{
    return (double)(mix(mix(seed) ^ counter) >> 11) * 0x1p-53;
}

uint64_t rng_random_seed(void)
{
    uint64_t seed;
    if (getrandom(&seed, sizeof seed, 0) != (ssize_t)sizeof seed) {
        /* a kernel without getrandom: make the seed from time and process */
        struct timespec t;
        clock_gettime(CLOCK_REALTIME, &t);
        seed = mix((uint64_t)t.tv_nsec ^ (uint64_t)t.tv_sec << 30 ^
                   (uint64_t)getpid() << 48);
    }
    /* 53 bits survive JSON readers that keep numbers as doubles */
    return seed >> 11;
}
