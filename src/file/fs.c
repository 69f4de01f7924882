#include "file/fs.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/array.h"
#include "base/hash.h"
#include "base/os.h"
#include "base/rng.h"

/* ---- opening and writing -----------------------------------------------
 */

int fs_open(const char *path, int flags, mode_t mode)
{
    int fd;
    do
        fd = open(path, flags | O_CLOEXEC | O_NOCTTY, mode);
    while (fd < 0 && errno == EINTR);
    return fd;
}

/* Linux writes at most 2 GiB per call; stay far below. */
enum { MAX_CALL = 1 << 26 };

static int write_pieces(int fd, const char *p, size_t n, bool placed, size_t at)
{
    while (n > 0) {
        size_t want = n < MAX_CALL ? n : MAX_CALL;
        ssize_t k =
            placed ? pwrite(fd, p, want, (off_t)at) : write(fd, p, want);
        if (k < 0 && errno == EINTR)
            continue;
        if (k <= 0) {
            errno = k < 0 ? errno : EIO;
            return -1;
        }
        p += k;
        at += (size_t)k;
        n -= (size_t)k;
    }
    return 0;
}

int write_all(int fd, const void *p, size_t n)
{
    return write_pieces(fd, p, n, false, 0);
}

int write_all_at(int fd, const void *p, size_t n, size_t at)
{
    return write_pieces(fd, p, n, true, at);
}

int read_all_at(int fd, void *p, size_t n, size_t at)
{
    for (char *to = p; n;) {
        ssize_t k = pread(fd, to, n, (off_t)at);
        if (k < 0 && errno == EINTR)
            continue;
        if (k == 0)
            errno = ENODATA;
        if (k <= 0)
            return -1;
        to += k;
        n -= (size_t)k;
        at += (size_t)k;
    }
    return 0;
}

/* ---- on the disk -------------------------------------------------------
 */

int sync_open(int fd)
{
    /* EBADF: a directory opened by O_PATH, because we may not read it */
    return fsync(fd) == 0 || errno == EINVAL || errno == ENOTSUP ||
                   errno == ENOSYS || errno == EROFS || errno == EBADF
               ? 0
               : -1;
}

int sync_close(int fd)
{
    int why = sync_open(fd) ? errno : 0;
    if (close(fd) && errno != EINTR && !why)
        why = errno;
    errno = why;
    return why ? -1 : 0;
}

int sync_dir(const char *path)
{
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0)
        return errno == EACCES ? 0 : -1;
    int rc = sync_open(fd), why = errno;
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

/* ---- directories -------------------------------------------------------
 */

size_t dir_length(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash ? (size_t)(slash - path) + 1 : 0;
}

/* Make one directory. One that is there is accepted, whatever mkdir says about
 * it, as on a read-only file system. Returns 0, or -1 with errno set. */
static int make_dir(const char *path, mode_t mode)
{
    struct stat st;
    if (mkdir(path, mode) == 0)
        return sync_parent(path);
    int why = errno;
    if (stat(path, &st) == 0) {
        if (S_ISDIR(st.st_mode))
            return 0;
        why = ENOTDIR;
    }
    errno = why;
    return -1;
}

int make_dirs(const char *path, size_t n, mode_t mode, struct qwick_err *e)
{
    while (n > 1 && path[n - 1] == '/')
        n--;
    char *dir = strndup(path, n);
    int rc = 0, why = 0;
    if (!dir)
        return err_oom(e, n + 1);
    for (char *at = dir + strspn(dir, "/"); *at && !rc;) {
        at += strcspn(at, "/");
        char end = *at;
        *at = '\0';
        rc = make_dir(dir, mode);
        why = errno;
        *at = end;
        at += strspn(at, "/");
    }
    if (rc)
        err_set(e, QWICK_ERR_RUNTIME, "%s: cannot create: %s", dir,
                strerror(why));
    free(dir);
    return rc;
}

bool ends_in(const char *s, const char *end)
{
    size_t n = strlen(s), m = strlen(end);
    return n >= m && strcmp(s + n - m, end) == 0;
}

static int by_name(const void *a, const void *b)
{
    const struct dir_entry *x = a, *y = b;
    return strcmp(x->name, y->name);
}

/* The type in the entry saves a call of stat for most files. */
static bool is_directory(DIR *d, const struct dirent *ent)
{
    struct stat st;
    if (ent->d_type != DT_LNK && ent->d_type != DT_UNKNOWN)
        return ent->d_type == DT_DIR;
    return fstatat(dirfd(d), ent->d_name, &st, 0) == 0 && S_ISDIR(st.st_mode);
}

static int add(struct dir_list *l, DIR *d, const struct dirent *ent,
               struct qwick_err *e)
{
    if (ARRAY_RESERVE(l->v, l->cap, l->n + 1, e))
        return -1;
    char *name = strdup(ent->d_name);
    if (!name)
        return err_oom(e, strlen(ent->d_name) + 1);
    l->v[l->n++] = (struct dir_entry){name, is_directory(d, ent)};
    return 0;
}

int dir_list_fail(const char *path, int err, int code, struct qwick_err *e)
{
    err_set(e, err == ENOMEM ? QWICK_ERR_MEMORY : code, "%s: cannot list: %s",
            path, strerror(err));
    errno = err;
    return -1;
}

int dir_list_read(struct dir_list *l, const char *path, size_t max,
                  struct qwick_err *e)
{
    *l = (struct dir_list){0};
    DIR *d = opendir(path);
    struct dirent *ent;
    int rc = 0, err = errno;
    if (!d)
        return dir_list_fail(path, err, QWICK_ERR_MODEL, e);
    while (!rc && l->n < max && (errno = 0, ent = readdir(d)) != NULL)
        if (ent->d_name[0] != '.')
            rc = add(l, d, ent, e);
    err = rc ? 0 : errno;
    closedir(d);
    if (err && l->n < max)
        rc = dir_list_fail(path, err, QWICK_ERR_MODEL, e);
    if (rc) {
        dir_list_free(l);
        errno = err;
        return -1;
    }
    if (l->n)
        qsort(l->v, l->n, sizeof *l->v, by_name);
    return 0;
}

void dir_list_free(struct dir_list *l)
{
    for (size_t i = 0; i < l->n; i++)
        free(l->v[i].name);
    free(l->v);
    *l = (struct dir_list){0};
}

bool dir_list_has(const struct dir_list *l, const char *name)
{
    const struct dir_entry want = {.name = (char *)name};
    return l->n && bsearch(&want, l->v, l->n, sizeof *l->v, by_name);
}

int place_path(const struct place *p, struct buf *out)
{
    const char *v = p->variable ? getenv(p->variable) : "";
    out->len = 0;
    if (!v || (p->variable && !*v))
        return 0;
    return buf_puts(out, v) || buf_puts(out, p->below) ? -1 : 1;
}

/* ---- owners ------------------------------------------------------------
 */

int owner_check(const struct stat *st, const char *path, mode_t writers,
                struct qwick_err *e)
{
    uid_t me = geteuid();
    if (st->st_uid != me && st->st_uid != 0)
        return err_set(e, QWICK_ERR_RUNTIME,
                       "%s: belongs to user %u, this is user %u", path,
                       (unsigned)st->st_uid, (unsigned)me);
    if (st->st_mode & writers)
        return err_set(
            e, QWICK_ERR_RUNTIME, "%s: %s may write to it (mode %03o)", path,
            st->st_mode & writers & S_IWOTH ? "everybody" : "its group",
            (unsigned)st->st_mode & 0777);
    return 0;
}

int owner_check_dir(const char *path, bool inside, struct qwick_err *e)
{
    struct stat st;
    if (inside ? lstat(path, &st) : stat(path, &st))
        return errno == ENOENT
                   ? 0
                   : err_set(e, QWICK_ERR_RUNTIME, "%s: cannot open: %s", path,
                             strerror(errno));
    if (!S_ISDIR(st.st_mode))
        return err_set(e, QWICK_ERR_RUNTIME, "%s: is %s", path,
                       S_ISLNK(st.st_mode) ? "a symbolic link"
                                           : "not a directory");
    mode_t writers = inside                 ? S_IWGRP | S_IWOTH
                     : st.st_mode & S_ISVTX ? 0
                                            : S_IWOTH;
    return owner_check(&st, path, writers, e);
}

/* ---- leftovers ---------------------------------------------------------
 */

static uint32_t host_hash(void)
{
    char name[256] = "";
    (void)gethostname(name, sizeof name - 1);
    return (uint32_t)hash_bytes(6, name, strlen(name));
}

/* A hash of the kernel's boot id; 0: unknown. */
static uint32_t boot_hash(void)
{
    char id[64];
    if (!os_boot_id(id, sizeof id))
        return 0;
    uint32_t h = (uint32_t)hash_bytes(7, id, strlen(id));
    return h ? h : 1;
}

void leftover_mark(char out[LEFTOVER_MARK])
{
    snprintf(out, LEFTOVER_MARK, "%08x-%08x-%ld-%llx-%06x", host_hash(),
             boot_hash(), (long)getpid(), os_process_start((long)getpid()),
             (unsigned)rng_random_seed() & 0xffffff);
}

bool leftover_dead(const char *mark)
{
    unsigned host, boot, random;
    unsigned long long start, now;
    long pid;
    char again[LEFTOVER_MARK];
    if (sscanf(mark, "%8x-%8x-%ld-%llx-%6x", &host, &boot, &pid, &start,
               &random) != 5 ||
        pid <= 0)
        return false;
    snprintf(again, sizeof again, "%08x-%08x-%ld-%llx-%06x", host, boot, pid,
             start, random);
    if (strcmp(mark, again) != 0 || host != host_hash() || !boot ||
        !boot_hash())
        return false;
    if (boot != boot_hash())
        return true;
    if (kill((pid_t)pid, 0) && errno == ESRCH)
        return true;
    now = os_process_start(pid);
    return start && now && start != now;
}
