/* Functions that write whole buffers to a descriptor. */
#ifndef FILE_WRITE_H
#define FILE_WRITE_H

#include <stddef.h>

/* Write all of p[0..n) at the descriptor's position, in as many calls as
 * needed. Returns 0, or -1 with errno set; then a part may have been
 * written. */
int write_all(int fd, const void *p, size_t n);
/* Do the same at offset `at` of the file. Several threads may write at the same
 * time. */
int write_all_at(int fd, const void *p, size_t n, size_t at);

#endif
