/* Linux: the small text files of /proc and /sys, and the groups of processes
 * (cgroups). Only the files os_linux*.c use this.
 *
 * Any thread may call these functions. They use no stdio, so that they allocate
 * nothing. */
#ifndef BASE_PROC_LINUX_H
#define BASE_PROC_LINUX_H

#include <stdbool.h>
#include <stddef.h>

/* Enough for the longest of these files that we read. */
enum { PROC_BYTES = 8192 };

/* Read an open file from its beginning as a string; false if it is empty or cannot
 * be read. Threads may share fd. */
bool proc_read_open(int fd, char *out, size_t size);
/* Read a file as a string. */
bool proc_read(const char *path, char *out, size_t size);

/* Return what follows key at the beginning of a line; NULL if no line begins with
 * it. */
const char *proc_line(const char *text, const char *key);
/* Return the number at the beginning of a text; NaN for others, such as "max". */
double proc_number(const char *text);

/* Call visit with each directory under root of this process's group and its
 * ancestors, beginning with its own. controller selects the hierarchy; "" is the
 * unified one of version 2. */
void proc_each_cgroup(const char *root, const char *controller,
                      void (*visit)(void *ctx, const char *dir), void *ctx);

#endif
