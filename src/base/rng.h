/* Random numbers from counters: draw i of a seed needs no draw before it. */
#ifndef BASE_RNG_H
#define BASE_RNG_H

#include <stdint.h>

/* Return a number that is uniform in [0, 1), with 53 bits. It depends only on
 * (seed, counter): two rounds of the SplitMix64 finaliser (Steele, Lea, Flood
 * 2014) over both words. */
double rng_uniform(uint64_t seed, uint64_t counter);

/* Return a random seed from the operating system. */
uint64_t rng_random_seed(void);

#endif
