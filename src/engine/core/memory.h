/* How much memory is available for KV caches. */
#ifndef ENGINE_MEMORY_H
#define ENGINE_MEMORY_H

#include <stdbool.h>
#include <stddef.h>

/* Reading the available memory opens 15 files and takes 0.1 to 0.2 ms, as long
 * as a pass of a small model. So a reading is used again for MEMORY_AGE_MS,
 * while less than a MEMORY_PART-th of it was granted since then. */
#define MEMORY_AGE_MS 100
#define MEMORY_PART   16

/* The last reading. All zeros: no reading yet. */
struct memory {
    bool known;
    double at;      /* clock_ms() */
    size_t bytes;   /* os_available_memory(); 0: unknown */
    size_t granted; /* bytes granted since then */
};

/* Bytes that may still be allocated; SIZE_MAX if unknown. need: bytes that the
 * caller is about to ask for, so that a large request gets a new reading. */
size_t memory_available(struct memory *m, size_t need);

/* Count bytes that the caller is about to allocate. */
void memory_grant(struct memory *m, size_t bytes);

#endif
