/* Interrupt flags. Signal handlers and other threads set them, so that each
 * access is atomic. Their type is volatile int, which C++ programs can declare,
 * too. */
#ifndef BASE_FLAG_H
#define BASE_FLAG_H

#include <stdbool.h>
#include <stddef.h>

/* Return the value of a flag; 0 if there is none (NULL). */
static inline int flag_get(const volatile int *flag)
{
    return flag ? __atomic_load_n(flag, __ATOMIC_RELAXED) : 0;
}

static inline void flag_set(volatile int *flag, int value)
{
    __atomic_store_n(flag, value, __ATOMIC_RELAXED);
}

static inline bool flag_is_set(const volatile int *flag)
{
    return flag_get(flag) != 0;
}

#endif
