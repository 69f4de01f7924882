/* Memory that is freed all at once. */
#ifndef BASE_ARENA_H
#define BASE_ARENA_H

#include <stddef.h>

/* An arena. A struct of all zeros is empty. */
struct arena {
    struct arena_block *blocks; /* list; new memory comes from the first
                                   block */
};

/* Allocate n bytes at a multiple of align, a power of two up to 16. Returns
 * NULL when out of memory. Allocated memory never moves, and stays until
 * arena_free. */
void *arena_alloc(struct arena *a, size_t n, size_t align);
/* Return a NUL-terminated copy of s[0..n), or NULL when out of memory. */
char *arena_copy(struct arena *a, const char *s, size_t n);
/* Free all memory. The arena is empty afterwards. */
void arena_free(struct arena *a);

#endif
