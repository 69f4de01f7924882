#include "file/sync.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <string.h>
#include <unistd.h>

int sync_open_dir(int fd)
{
    /* EBADF: opened by O_PATH, because we may not read it */
    return fsync(fd) == 0 || errno == EINVAL || errno == ENOTSUP ||
                   errno == ENOSYS || errno == EROFS || errno == EBADF
               ? 0
               : -1;
}

int sync_dir(const char *path)
{
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0)
        return errno == EACCES ? 0 : -1;
    int rc = sync_open_dir(fd), why = errno;
    close(fd);
    errno = why;
    return rc;
}

int sync_parent(const char *path)
{
    /* On the stack: a failed allocation would report a failure for a file that
     * already has its name. The system accepts no longer paths. */
    char parent[PATH_MAX];
    const char *slash = strrchr(path, '/');
    if (!slash)
        return sync_dir(".");
    size_t n = slash == path ? 1 : (size_t)(slash - path);
    if (n >= sizeof(parent)) {
        errno = ENAMETOOLONG;
        return -1;
    }
    memcpy(parent, path, n);
    parent[n] = '\0';
    return sync_dir(parent);
}
