/* Growing arrays. */
#ifndef BASE_ARRAY_H
#define BASE_ARRAY_H

#include <stddef.h>

struct qwick_err;

/* Make room for `need` elements of `size` bytes each. p points to the pointer
 * to the array. That pointer is NULL or malloc'ed, has room for *cap elements,
 * and may change. The capacity doubles, and that of a large array grows by an
 * eighth, so appending one by one takes linear time. It never exceeds max
 * elements (0: limited only by the address space).
 *
 * Returns 0, or -1 with *e set (out of memory, or need exceeds max) and the
 * array unchanged. New elements are not initialised. */
int array_grow(void *p, size_t *cap, size_t need, size_t size, size_t max,
               struct qwick_err *e);

/* Make room for `need` elements in the array v, an lvalue, whose capacity is
 * cap. */
#define ARRAY_RESERVE(v, cap, need, e) \
    ((need) <= (cap) ? 0               \
                     : array_grow(&(v), &(cap), (need), sizeof *(v), 0, (e)))

#endif
