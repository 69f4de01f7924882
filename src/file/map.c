#include "file/map.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "file/fs.h"

static const char *kind_of(mode_t mode)
{
    if (S_ISDIR(mode))
        return "a directory";
    if (S_ISFIFO(mode))
        return "a FIFO";
    if (S_ISSOCK(mode))
        return "a socket";
    if (S_ISCHR(mode))
        return "a character device";
    if (S_ISBLK(mode))
        return "a block device";
    return "of an unknown kind";
}

static int err_kind(const char *path, mode_t mode, struct qwick_err *e)
{
    return err_set(e, QWICK_ERR_MODEL, "%s: is %s, not a regular file", path,
                   kind_of(mode));
}

static struct map_id id_of(const struct stat *st)
{
    return (struct map_id){
        .dev = st->st_dev,
        .ino = st->st_ino,
        .size = (uint64_t)st->st_size,
        .mtime = {st->st_mtim.tv_sec, st->st_mtim.tv_nsec},
        .ctime = {st->st_ctim.tv_sec, st->st_ctim.tv_nsec},
    };
}

int map_id_now(struct map_id *out, const char *path)
{
    struct stat st;
    if (stat(path, &st))
        return -1;
    *out = id_of(&st);
    return 0;
}

int map_open(struct map *out, const char *path, struct qwick_err *e)
{
    *out = (struct map){0};
    /* O_NONBLOCK: opening a FIFO or a device must not wait. It has no effect on
     * regular files. */
    int fd = fs_open(path, O_RDONLY | O_NONBLOCK, 0);
    struct stat st;
    if (fd < 0) {
        int err = errno;
        /* A socket cannot even be opened; name its kind as well. */
        if (err == ENXIO && stat(path, &st) == 0 && !S_ISREG(st.st_mode))
            return err_kind(path, st.st_mode, e);
        return err_set(e, QWICK_ERR_MODEL, "%s: cannot open: %s", path,
                       strerror(err));
    }
    int rc = 0;
    if (fstat(fd, &st)) {
        rc = err_set(e, QWICK_ERR_MODEL, "%s: cannot stat: %s", path,
                     strerror(errno));
    } else if (!S_ISREG(st.st_mode)) {
        rc = err_kind(path, st.st_mode, e);
    } else if (st.st_size == 0) {
        out->data = (const unsigned char *)"";
    } else {
        size_t n = (size_t)st.st_size;
        /* Private, because some file systems (FUSE, 9p) have no shared
         * mappings. Nothing writes, so the pages are still those of the page
         * cache. */
        void *p = mmap(NULL, n, PROT_READ, MAP_PRIVATE, fd, 0);
        if (p != MAP_FAILED) {
            out->data = p;
            out->size = n;
            out->mapped = true;
        } else if (errno == ENOMEM) {
            rc = err_set(e, QWICK_ERR_MEMORY,
                         "%s: out of memory: cannot map %zu bytes", path, n);
            if (e)
                e->kind = QWICK_KIND_ADDRESS_SPACE;
        } else {
            rc = err_set(e, QWICK_ERR_MODEL, "%s: cannot map %zu bytes: %s",
                         path, n, strerror(errno));
        }
    }
    if (!rc)
        out->id = id_of(&st);
    close(fd);
    return rc;
}

void map_close(struct map *m)
{
    if (!m)
        return;
    if (m->mapped)
        munmap((void *)(uintptr_t)m->data, m->size);
    *m = (struct map){0};
}

void map_expect_all(const struct map *m)
{
    if (m->mapped)
        (void)madvise((void *)(uintptr_t)m->data, m->size, MADV_HUGEPAGE);
}

void map_readahead(const struct map *m, bool on)
{
    if (m->mapped)
        (void)madvise((void *)(uintptr_t)m->data, m->size,
                      on ? MADV_NORMAL : MADV_RANDOM);
}

void map_expect_few(const void *p, size_t n)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    size_t skip = (page - (uintptr_t)p % page) % page;
    if (n < skip + page)
        return;
    void *at = (unsigned char *)(uintptr_t)p + skip;
    (void)madvise(at, (n - skip) / page * page, MADV_RANDOM);
    (void)madvise(at, (n - skip) / page * page, MADV_NOHUGEPAGE);
}

void map_drop(const struct map *m, const void *p, size_t n)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    size_t skip = (page - (uintptr_t)p % page) % page;
    const unsigned char *at = p;
    if (!m->mapped || at < m->data || at >= m->data + m->size ||
        n > (size_t)(m->data + m->size - at) || n < skip + page)
        return;
    (void)madvise((void *)(uintptr_t)(at + skip), (n - skip) / page * page,
                  MADV_DONTNEED);
}

/* Like read, but waits even if the descriptor is non-blocking, and continues
 * after signals. */
static ssize_t read_some(int fd, char *p, size_t n)
{
    for (;;) {
        ssize_t got = read(fd, p, n);
        if (got >= 0)
            return got;
        if (errno == EAGAIN) {
            struct pollfd wait = {.fd = fd, .events = POLLIN};
            if (poll(&wait, 1, -1) < 0 && errno != EINTR)
                return -1;
        } else if (errno != EINTR) {
            return -1;
        }
    }
}

static int read_fd(int fd, const char *name, size_t max, char **data, size_t *n,
                   struct qwick_err *e)
{
    struct stat st;
    size_t cap = 65536, len = 0;
    if (fstat(fd, &st))
        return err_set(e, QWICK_ERR_RUNTIME, "%s: cannot read: %s", name,
                       strerror(errno));
    if (S_ISDIR(st.st_mode))
        return err_set(e, QWICK_ERR_RUNTIME, "%s: is a directory", name);
    if (S_ISREG(st.st_mode) && st.st_size > 0) {
        /* One byte more, for the read that finds the end. */
        if ((uint64_t)st.st_size < max)
            cap = (size_t)st.st_size + 1;
        else
            cap = max;
    }
    if (max > SIZE_MAX - 2)
        max = SIZE_MAX - 2;
    if (cap > max)
        cap = max;
    if (cap == 0)
        cap = 1;
    char *buf = malloc(cap + 1);
    if (!buf)
        return err_oom(e, cap + 1);
    for (;;) {
        if (len == cap && cap <= max) {
            /* One byte above max, to detect a file longer than max. */
            size_t more = cap > max / 2 ? max + 1 : cap * 2;
            char *p = realloc(buf, more + 1);
            if (!p) {
                free(buf);
                return err_oom(e, more + 1);
            }
            buf = p;
            cap = more;
        }
        ssize_t got = read_some(fd, buf + len, cap - len);
        if (got < 0) {
            int err = errno;
            free(buf);
            return err_set(e, QWICK_ERR_RUNTIME, "%s: cannot read: %s", name,
                           strerror(err));
        }
        if (got == 0)
            break;
        len += (size_t)got;
        if (len > max) {
            free(buf);
            return err_set(e, QWICK_ERR_RUNTIME,
                           "%s: larger than the limit of %zu bytes", name, max);
        }
    }
    buf[len] = '\0';
    *data = buf;
    *n = len;
    return 0;
}

int map_read_all(const char *path, size_t max, char **data, size_t *n,
                 struct qwick_err *e)
{
    *data = NULL;
    *n = 0;
    if (strcmp(path, "-") == 0)
        return read_fd(STDIN_FILENO, "standard input", max, data, n, e);
    int fd = fs_open(path, O_RDONLY, 0);
    if (fd < 0)
        return err_set(e, QWICK_ERR_RUNTIME, "%s: cannot open: %s", path,
                       strerror(errno));
    int rc = read_fd(fd, path, max, data, n, e);
    close(fd);
    return rc;
}
