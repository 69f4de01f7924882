/* Writing directories to the disk. After a crash a renamed file keeps its new
 * name only if its directory was also written. */
#ifndef FILE_SYNC_H
#define FILE_SYNC_H

/* Write a directory, or the directory that holds path, to the disk. Returns 0,
 * or -1 with errno set. It is not a failure if the file system cannot sync
 * directories, or if we may not read the directory. */
int sync_dir(const char *path);
int sync_parent(const char *path);

#endif
