/* What memory there is for KV caches. */
#ifndef ENGINE_MEMORY_H
#define ENGINE_MEMORY_H

#include <stdbool.h>
#include <stddef.h>

/* To read what is available takes 15 files and 0.1 to 0.2 ms, as long as a
 * small model's pass. A reading is used again for so long, while what was
 * granted since is less than so small a part of it. */
#define MEMORY_AGE_MS 100
#define MEMORY_PART   16

/* The last reading. Zeros: none. */
struct memory {
    bool known;
    double at;      /* clock_ms() */
    size_t bytes;   /* os_available_memory(); 0: unknown */
    size_t granted; /* since */
};

/* Bytes that may still be allocated, `need` of which are asked for; SIZE_MAX
 * when that is unknown. */
size_t memory_available(struct memory *m, size_t need);

/* Count bytes that are going to be allocated. */
void memory_grant(struct memory *m, size_t bytes);

#endif
