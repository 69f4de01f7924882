/* Writing all of a piece of memory to a descriptor. */
#ifndef FILE_WRITE_H
#define FILE_WRITE_H

#include <stddef.h>

/* Write p[0..n) at the descriptor's position, however many calls that takes.
 * Returns 0, or -1 with errno set; part of it may be written then. */
int write_all(int fd, const void *p, size_t n);
/* The same from the offset `at` of the file; several threads may write. */
int write_all_at(int fd, const void *p, size_t n, size_t at);

#endif
