#include "file/sync.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int sync_dir(const char *path)
{
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0)
        return errno == EACCES ? 0 : -1;
    int why = fsync(fd) ? errno : 0;
    close(fd);
    if (!why || why == EINVAL || why == ENOTSUP || why == ENOSYS)
        return 0;
    errno = why;
    return -1;
}

int sync_parent(const char *path)
{
    char *parent = strdup(path);
    if (!parent)
        return -1;
    char *slash = strrchr(parent, '/');
    if (slash)
        slash[slash == parent] = '\0';
    int rc = sync_dir(slash ? parent : "."), why = errno;
    free(parent);
    errno = why;
    return rc;
}
