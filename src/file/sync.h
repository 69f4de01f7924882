/* Names on the disk. A file that was renamed keeps its new name after a crash
 * only when its directory has been written too. */
#ifndef FILE_SYNC_H
#define FILE_SYNC_H

/* Write a directory, or the one that path is in, to the disk. -1 with errno.
 * File systems that cannot sync directories, and directories that may not be
 * read, are no failure. */
int sync_dir(const char *path);
int sync_parent(const char *path);

#endif
