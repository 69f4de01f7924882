#include "cli/outfile.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cli/out.h"
#include "qwick.h"

int outfile_cannot(const struct outfile *f, const char *what)
{
    msg_error("%s: cannot %s: %s", f->path, what, strerror(errno));
    return QWICK_ERR_RUNTIME;
}

int outfile_open(struct outfile *f, const char *path)
{
    struct stat st;
    *f = (struct outfile){.path = path, .fd = -1};
    if (lstat(path, &st) == 0 && !S_ISREG(st.st_mode)) {
        do
            f->fd = open(path, O_WRONLY | O_TRUNC | O_CLOEXEC | O_NOCTTY);
        while (f->fd < 0 && errno == EINTR);
        return f->fd < 0 ? outfile_cannot(f, "create") : 0;
    }
    size_t n = strlen(path) + 48;
    f->temp = malloc(n);
    if (!f->temp)
        return msg_oom();
    /* the number avoids files left by a killed process with our id */
    for (int i = 0; i < 1000; i++) {
        snprintf(f->temp, n, i ? "%s.tmp.%ld.%d" : "%s.tmp.%ld", path,
                 (long)getpid(), i);
        f->fd = open(f->temp, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
        if (f->fd >= 0 || (errno != EEXIST && errno != EINTR))
            break;
    }
    if (f->fd >= 0)
        return 0;
    int status = outfile_cannot(f, "create");
    free(f->temp);
    f->temp = NULL;
    return status;
}

int outfile_write(struct outfile *f, const void *p, size_t n)
{
    return fd_write(f->fd, p, n) ? outfile_cannot(f, "write") : 0;
}

int outfile_commit(struct outfile *f)
{
    /* pipes and devices cannot be synced; these errors are fine */
    if (fsync(f->fd) && errno != EINVAL && errno != ENOTSUP && errno != EROFS)
        return outfile_cannot(f, "write");
    int fd = f->fd;
    f->fd = -1;
    if (close(fd) && errno != EINTR)
        return outfile_cannot(f, "write");
    if (!f->temp)
        return 0;
    if (rename(f->temp, f->path))
        return outfile_cannot(f, "rename to");
    free(f->temp);
    f->temp = NULL;
    return 0;
}

void outfile_abort(struct outfile *f)
{
    if (f->fd >= 0)
        close(f->fd);
    if (f->temp)
        unlink(f->temp);
    free(f->temp);
    *f = (struct outfile){.fd = -1};
}

int outfile_put(const char *path, const void *p, size_t n)
{
    struct outfile f;
    int status = outfile_open(&f, path);
    if (!status)
        status = outfile_write(&f, p, n);
    if (!status)
        status = outfile_commit(&f);
    if (status)
        outfile_abort(&f);
    return status;
}

int outfile_check(const char *path)
{
    struct outfile f = {.path = path};
    struct stat st;
    if (stat(path, &st) == 0 && !S_ISREG(st.st_mode)) {
        if (!S_ISDIR(st.st_mode) && access(path, W_OK) == 0)
            return 0;
        errno = S_ISDIR(st.st_mode) ? EISDIR : errno;
        return outfile_cannot(&f, "create");
    }
    char *dir = strdup(path);
    if (!dir)
        return msg_oom();
    char *slash = strrchr(dir, '/');
    if (slash)
        slash[slash == dir] = 0; /* keep that of the root */
    int status = access(slash ? dir : ".", W_OK | X_OK) ? outfile_cannot(&f, "create")
                                                         : 0;
    free(dir);
    return status;
}
