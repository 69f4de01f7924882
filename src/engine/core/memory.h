/* How much memory is available for KV caches. */
#ifndef ENGINE_MEMORY_H
#define ENGINE_MEMORY_H

#include <stdbool.h>
#include <stddef.h>

/* To find the available memory we open 15 files, which takes 0.1 to 0.2 ms, as
 * long as a pass of a small model. So one reading serves for MEMORY_AGE_MS, or
 * until a MEMORY_PART-th of it has been granted. */
#define MEMORY_AGE_MS 100
#define MEMORY_PART   16

/* The last reading. A struct of all zeros has none yet. */
struct memory {
    bool known;
    double at;      /* clock_ms() */
    size_t bytes;   /* os_available_memory(); 0: unknown */
    size_t granted; /* bytes granted since the reading */
};

/* Return the bytes that may still be allocated; SIZE_MAX if unknown. need is
 * the number of bytes that the caller is about to allocate: for a large number
 * the function takes a new reading. */
size_t memory_available(struct memory *m, size_t need);

/* Count bytes that the caller is about to allocate. */
void memory_grant(struct memory *m, size_t bytes);

#endif
