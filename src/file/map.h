/* Files as read-only memory. */
#ifndef FILE_MAP_H
#define FILE_MAP_H

#include <stdbool.h>
#include <stddef.h>

#include "base/err.h"

/* data[0..size) stays valid until map_close, even if the path is replaced. An
 * empty file has size 0 and a non-NULL data. */
struct map {
    const unsigned char *data;
    size_t size;
    bool mapped; /* ours to unmap; false for data inside the binary */
};

/* Map a regular file; symbolic links are followed. Directories, devices, FIFOs
 * and sockets are refused without blocking. Errors have code MODEL (code
 * MEMORY when the address space is full) and name the path. */
int map_open(struct map *out, const char *path, struct qwick_err *e);
void map_close(struct map *m);

/* Read a whole file or stream (path "-": standard input; FIFOs and terminals
 * are fine here) into memory, NUL-terminated, *n without the NUL. More than
 * max bytes is an error. For prompts; errors have code RUNTIME. */
int map_read_all(const char *path, size_t max, char **data, size_t *n,
                 struct qwick_err *e);

#endif
