/* Memory that is freed all at once. */
#ifndef BASE_ARENA_H
#define BASE_ARENA_H

#include <stddef.h>

/* Zero-initialise to start empty. */
struct arena {
    struct arena_block *blocks; /* the first one is being filled */
};

/* Allocate n bytes at a multiple of align, a power of two up to 16. NULL: out
 * of memory. Allocated memory never moves, and stays until arena_free. */
void *arena_alloc(struct arena *a, size_t n, size_t align);
/* A NUL-terminated copy of s[0..n). NULL: out of memory. */
char *arena_copy(struct arena *a, const char *s, size_t n);
/* Free everything; the arena is empty then. */
void arena_free(struct arena *a);

#endif
