/* A file that appears at its path only when it is complete. */
#ifndef CLI_OUTFILE_H
#define CLI_OUTFILE_H

#include <stddef.h>

struct outfile {
    const char *path; /* borrowed */
    char *temp;       /* NULL: the target is written directly */
    int fd;           /* -1: closed */
};

/* Open the target. A new or regular file is written under a temporary name
 * beside it and renamed by outfile_commit. Others, such as devices, pipes and
 * symbolic links, are written directly. Returns 0, or an exit status after
 * printing a message. */
int outfile_open(struct outfile *f, const char *path);

/* Append bytes. Returns 0, or an exit status after printing a message. */
int outfile_write(struct outfile *f, const void *p, size_t n);

/* Bring the file to the disk and to its path. Returns 0, or an exit status
 * after printing a message; call outfile_abort then. */
int outfile_commit(struct outfile *f);

/* Remove the temporary file; does nothing after outfile_commit. */
void outfile_abort(struct outfile *f);

/* Print "PATH: cannot WHAT: " and the reason in errno. Returns exit status
 * 1. */
int outfile_cannot(const struct outfile *f, const char *what);

/* Write a whole file. Returns 0, or an exit status after printing a message. */
int outfile_put(const char *path, const void *p, size_t n);

/* Check, before the work is done, whether outfile_open could succeed. Returns
 * 0, or an exit status after printing a message. */
int outfile_check(const char *path);

#endif
