/* Files as read-only memory. */
#ifndef FILE_MAP_H
#define FILE_MAP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

/* Identifies a file and its content. A program can set every field except
 * ctime, the system's time of the last change to the file or its metadata. */
struct map_id {
    uint64_t dev, ino, size;
    int64_t mtime[2], ctime[2]; /* seconds, nanoseconds */
};

/* data[0..size) stays valid until map_close, even if the path is replaced. An
 * empty file has size 0 and a non-NULL data. */
struct map {
    const unsigned char *data;
    size_t size;
    bool mapped;      /* map_close unmaps it; false: data inside the binary */
    struct map_id id; /* at map_open; zeros: inside the binary */
};

/* Map a regular file; symbolic links are followed. Directories, devices, FIFOs
 * and sockets are refused without blocking. Errors name the path and have the
 * code MODEL, or MEMORY if the address space is full. */
int map_open(struct map *out, const char *path, struct qwick_err *e);
void map_close(struct map *m);

/* Get the present identity of the file at path. Returns -1 if there is no
 * file. */
int map_id_now(struct map_id *out, const char *path);

/* Read a whole file or stream (path "-": standard input; FIFOs and terminals
 * are fine here) into malloc'ed memory. A NUL follows the *n bytes. More than
 * max bytes is an error. For prompts: errors have the code RUNTIME. */
int map_read_all(const char *path, size_t max, char **data, size_t *n,
                 struct qwick_err *e);

#endif
