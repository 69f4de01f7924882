/* Files as read-only memory. */
#ifndef FILE_MAP_H
#define FILE_MAP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

/* Identifies a file and its content. Programs can set every field except ctime,
 * the system's time of the last change to the file or its metadata. */
struct map_id {
    uint64_t dev, ino, size;
    int64_t mtime[2], ctime[2]; /* seconds, nanoseconds */
};

/* A mapped file. data[0..size) stays valid until map_close, even if the path is
 * replaced. An empty file has size 0 and data that is not NULL. */
struct map {
    const unsigned char *data;
    size_t size;
    bool mapped;      /* map_close must unmap it; false: data inside the
                         binary */
    struct map_id id; /* as map_open found it; zeros: inside the binary */
};

/* Map a regular file; symbolic links are followed. Directories, devices, FIFOs
 * and sockets are refused without blocking. Errors name the path. Their code is
 * QWICK_ERR_MODEL, or QWICK_ERR_MEMORY if the address space is full. */
int map_open(struct map *out, const char *path, struct qwick_err *e);
void map_close(struct map *m);

/* Tell the system that the whole file will be read, again and again. What is
 * not in the page cache yet then comes in huge pages, where the file system can
 * (Linux's ext4 and xfs): there are far fewer page faults, and memory is read
 * faster. A fault at one place then reads 2 MB. Only a hint. */
void map_expect_all(const struct map *m);
/* Whether a page fault also reads what follows; it does by default. A hint. */
void map_readahead(const struct map *m, bool on);

/* Expect reads of a few bytes here and there in a part of a mapping: without
 * readahead, and without huge pages. */
void map_expect_few(const void *p, size_t n);

/* Let go of the whole pages of p[0..n), a part of m, which is not read again
 * soon: they no longer count as this process's memory. Does nothing for data
 * inside the binary or outside of m. */
void map_drop(const struct map *m, const void *p, size_t n);

/* Write the current identity of the file at path to *out. Returns 0, or -1 if
 * the file does not exist. */
int map_id_now(struct map_id *out, const char *path);

/* Read a whole file or stream into malloc'ed memory. path "-" is standard
 * input; FIFOs and terminals are accepted. A NUL follows the *n bytes. More
 * than max bytes are an error. For prompts, so errors are QWICK_ERR_RUNTIME. */
int map_read_all(const char *path, size_t max, char **data, size_t *n,
                 struct qwick_err *e);

#endif
