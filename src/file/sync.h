/* Writing directories to the disk. After a crash a renamed file keeps its new
 * name only if its directory was also written. */
#ifndef FILE_SYNC_H
#define FILE_SYNC_H

/* Write a directory (sync_dir), or the directory that holds path (sync_parent),
 * to the disk. Return 0, or -1 with errno set. If the file system cannot sync
 * directories, or if we may not read the directory, they return 0. */
int sync_dir(const char *path);
int sync_parent(const char *path);
/* Do the same with an open directory. */
int sync_open_dir(int fd);

#endif
