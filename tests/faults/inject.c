/* A library for LD_PRELOAD that makes calls of the system fail.
 *
 *   FAULT_CALL=C   the kind of call, a name of `kinds` below; default: alloc
 *   FAULT_AT=N     the N-th call of this kind fails, from 1; 0 or unset: none
 *   FAULT_FROM=1   all later ones fail, too
 *   FAULT_HOW=H    how it fails, a name of `ways` below; default: ENOMEM
 *   FAULT_CONTROL=F  in place of FAULT_AT: an int at the start of the file F,
 *                  which the process maps; while it is above 0, each call of the
 *                  kind takes 1 from it, and the last of these calls fails
 *   FAULT_COUNT=F  write the number of calls of each kind to F at exit
 *   FAULT_CLOCK=S  the clock of the day jumps: every second reading of it is S
 *                  seconds late, and the others are S seconds early
 *
 * It counts calls from the program's start on, by the program or by a library.
 * Two callers of the allocator never fail and are not counted, because they end
 * the process themselves, and no program can prevent that: libgomp ("libgomp:
 * Out of memory allocating …", exit 1) and the dynamic linker (thread-local
 * data). Writes to standard error are not counted either, so that messages
 * arrive. The C library's calls of itself do not pass through here. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <link.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

/* glibc's own allocator under its internal names. We do not use dlsym, because
 * it allocates. */
extern void *__libc_malloc(size_t);
extern void *__libc_calloc(size_t, size_t);
extern void *__libc_realloc(void *, size_t);
extern void *__libc_memalign(size_t, size_t);

enum kind {
    ALLOC,
    MMAP,
    OPEN,
    READ,
    WRITE,
    SYNC,
    RENAME,
    SPACE,
    MKDIR,
    THREAD,
    N_KINDS
};

static const char *const kinds[N_KINDS] = {
    [ALLOC] =
        "alloc", /* malloc, calloc, realloc, posix_memalign, aligned_alloc */
    [MMAP] = "mmap",     /* mmap */
    [OPEN] = "open",     /* open, openat, fopen, opendir */
    [READ] = "read",     /* read, pread */
    [WRITE] = "write",   /* write, pwrite, writev */
    [SYNC] = "sync",     /* fsync, fdatasync */
    [RENAME] = "rename", /* rename, renameat, renameat2 */
    [SPACE] = "space",   /* ftruncate, fallocate */
    [MKDIR] = "mkdir",   /* mkdir */
    [THREAD] = "thread", /* pthread_create */
};

/* Ways without an error number: one byte is read or written; half of the bytes
 * are; half of them, and nothing by all later calls; SIGKILL comes before the
 * call; or after half of the bytes. */
enum { ONE = -1, HALF = -2, FULL = -3, KILLED = -4, TORN = -5 };

static const struct {
    const char *name;
    int how;
} ways[] = {
    {"ENOMEM", ENOMEM}, {"EIO", EIO},       {"ENOSPC", ENOSPC},
    {"EINTR", EINTR},   {"EMFILE", EMFILE}, {"EACCES", EACCES},
    {"EAGAIN", EAGAIN}, {"EROFS", EROFS},   {"one", ONE},
    {"half", HALF},     {"kill", KILLED},   {"torn", TORN},
    {"full", FULL},
};

enum { MAX_SPARED = 16 };

static struct {
    uintptr_t begin, end;
} spared[MAX_SPARED];
static size_t n_spared;
static atomic_long n_calls[N_KINDS];
static long fail_at;
static atomic_int *control; /* of FAULT_CONTROL; NULL: none */
static int fail_from, fail_how = ENOMEM, counting;
static enum kind fail_kind;
static int count_fd = -1;
static long clock_jump;
static atomic_uint n_times;

static int find_spared(struct dl_phdr_info *info, size_t size, void *ctx)
{
    (void)size;
    (void)ctx;
    if (!strstr(info->dlpi_name, "libgomp") &&
        !strstr(info->dlpi_name, "ld-linux"))
        return 0;
    for (int i = 0; i < info->dlpi_phnum && n_spared < MAX_SPARED; i++) {
        const ElfW(Phdr) *p = &info->dlpi_phdr[i];
        if (p->p_type != PT_LOAD)
            continue;
        spared[n_spared].begin = info->dlpi_addr + p->p_vaddr;
        spared[n_spared].end = spared[n_spared].begin + p->p_memsz;
        n_spared++;
    }
    return 0;
}

/* The C library's functions that are more than a system call. */
static FILE *(*real_fopen)(const char *, const char *);
static void *(*real_opendir)(const char *);
static int (*real_thread)(pthread_t *, const pthread_attr_t *,
                          void *(*)(void *), void *);

static void find_real(void *to, const char *name)
{
    void *p = dlsym(RTLD_NEXT, name);
    memcpy(to, &p, sizeof p);
}

static void map_control(const char *path)
{
    int fd = (int)syscall(SYS_openat, AT_FDCWD, path, O_RDWR | O_CLOEXEC, 0);
    void *p = (void *)syscall(SYS_mmap, NULL, sizeof *control,
                              PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (p == MAP_FAILED)
        _exit(99);
    control = p;
    syscall(SYS_close, fd);
}

__attribute__((constructor)) static void start(void)
{
    const char *s = getenv("FAULT_CONTROL");
    if (s)
        map_control(s);
    s = getenv("FAULT_AT");
    fail_at = s ? atol(s) : 0;
    fail_from = getenv("FAULT_FROM") != NULL;
    s = getenv("FAULT_CLOCK");
    clock_jump = s ? atol(s) : 0;
    for (int i = 0; (s = getenv("FAULT_CALL")) && i < N_KINDS; i++)
        if (strcmp(s, kinds[i]) == 0)
            fail_kind = (enum kind)i;
    for (size_t i = 0;
         (s = getenv("FAULT_HOW")) && i < sizeof ways / sizeof *ways; i++)
        if (strcmp(s, ways[i].name) == 0)
            fail_how = ways[i].how;
    find_real(&real_fopen, "fopen");
    find_real(&real_opendir, "opendir");
    find_real(&real_thread, "pthread_create");
    /* now: at exit, the sandbox forbids it */
    s = getenv("FAULT_COUNT");
    if (s && (count_fd = open(s, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC,
                              0600)) < 0)
        _exit(99);
    dl_iterate_phdr(find_spared, NULL);
    counting = 1;
}

__attribute__((destructor)) static void stop(void)
{
    char text[64 * N_KINDS];
    int n = 0;
    counting = 0;
    if (count_fd < 0)
        return;
    for (int i = 0; i < N_KINDS; i++)
        n += snprintf(text + n, sizeof(text) - (size_t)n, "%s %ld\n", kinds[i],
                      (long)n_calls[i]);
    if (write(count_fd, text, (size_t)n) != n)
        _exit(99);
    close(count_fd);
}

/* 0, or how this call fails: an error number, which is in errno then, or ONE or
 * HALF. */
static int fails(enum kind kind, void *caller)
{
    uintptr_t at = (uintptr_t)caller;
    if (!counting)
        return 0;
    for (size_t i = 0; i < n_spared; i++)
        if (at >= spared[i].begin && at < spared[i].end)
            return 0;
    long n = atomic_fetch_add(&n_calls[kind], 1) + 1;
    if (control)
        fail_at = kind == fail_kind && atomic_load(control) > 0 &&
                          atomic_fetch_sub(control, 1) == 1
                      ? n
                      : 0;
    if (kind != fail_kind || !fail_at || n < fail_at ||
        (n > fail_at && !fail_from))
        return 0;
    int how = fail_how;
    /* a call that is always interrupted would never end */
    if (how == EINTR && (n - fail_at) % 2)
        return 0;
    if (how == KILLED)
        kill(getpid(), SIGKILL);
    if (how == FULL)
        how = n == fail_at ? HALF : ENOSPC;
    if (how > 0)
        errno = how;
    return how;
}

#define FAILS(kind) fails(kind, __builtin_return_address(0))

/* The number of bytes that a read or write of n is given, or 0 if it fails. */
static size_t part(int how, size_t n)
{
    return how > 0 ? 0 : how == 0 || n < 2 ? n : how == ONE ? 1 : n / 2;
}

/* The result of a write, unless SIGKILL comes after it. */
static ssize_t torn(int how, ssize_t result)
{
    if (how == TORN)
        kill(getpid(), SIGKILL);
    return result;
}

void *malloc(size_t n)
{
    return FAILS(ALLOC) ? NULL : __libc_malloc(n);
}

void *calloc(size_t k, size_t n)
{
    return FAILS(ALLOC) ? NULL : __libc_calloc(k, n);
}

void *realloc(void *p, size_t n)
{
    return FAILS(ALLOC) ? NULL : __libc_realloc(p, n);
}

void *aligned_alloc(size_t align, size_t n)
{
    return FAILS(ALLOC) ? NULL : __libc_memalign(align, n);
}

int posix_memalign(void **p, size_t align, size_t n)
{
    void *q = FAILS(ALLOC) ? NULL : __libc_memalign(align, n);
    if (!q)
        return ENOMEM;
    *p = q;
    return 0;
}

void *mmap(void *at, size_t n, int protection, int flags, int fd, off_t from)
{
    return FAILS(MMAP) > 0
               ? MAP_FAILED
               : (void *)syscall(SYS_mmap, at, n, protection, flags, fd, from);
}

/* The mode of an open that creates a file. */
#define MODE_OF(flags)                                      \
    mode_t mode = 0;                                        \
    if ((flags) & (O_CREAT | (O_TMPFILE & ~O_DIRECTORY))) { \
        va_list ap;                                         \
        va_start(ap, flags);                                \
        mode = va_arg(ap, mode_t);                          \
        va_end(ap);                                         \
    }

int open(const char *path, int flags, ...)
{
    MODE_OF(flags)
    return FAILS(OPEN) ? -1
                       : (int)syscall(SYS_openat, AT_FDCWD, path, flags, mode);
}

int __open_2(const char *path, int flags);
int __open_2(const char *path, int flags)
{
    return FAILS(OPEN) ? -1
                       : (int)syscall(SYS_openat, AT_FDCWD, path, flags, 0);
}

int openat(int dir, const char *path, int flags, ...)
{
    MODE_OF(flags)
    return FAILS(OPEN) ? -1 : (int)syscall(SYS_openat, dir, path, flags, mode);
}

FILE *fopen(const char *path, const char *mode)
{
    return FAILS(OPEN) ? NULL : real_fopen(path, mode);
}

void *opendir(const char *path);
void *opendir(const char *path)
{
    return FAILS(OPEN) ? NULL : real_opendir(path);
}

static ssize_t do_read(int how, int fd, void *p, size_t n)
{
    return how > 0 ? -1 : syscall(SYS_read, fd, p, part(how, n));
}

ssize_t read(int fd, void *p, size_t n)
{
    return do_read(FAILS(READ), fd, p, n);
}

ssize_t __read_chk(int fd, void *p, size_t n, size_t room);
ssize_t __read_chk(int fd, void *p, size_t n, size_t room)
{
    (void)room;
    return do_read(FAILS(READ), fd, p, n);
}

ssize_t pread(int fd, void *p, size_t n, off_t at)
{
    int how = FAILS(READ);
    return how > 0 ? -1 : syscall(SYS_pread64, fd, p, part(how, n), at);
}

/* SQLite calls these names, which mean the same on 64-bit machines. */
int open64(const char *path, int flags, ...) __attribute__((alias("open")));
ssize_t pread64(int fd, void *p, size_t n, off64_t at)
    __attribute__((alias("pread")));
ssize_t pwrite64(int fd, const void *p, size_t n, off64_t at)
    __attribute__((alias("pwrite")));

ssize_t write(int fd, const void *p, size_t n)
{
    int how = fd == STDERR_FILENO ? 0 : FAILS(WRITE);
    return torn(how, how > 0 ? -1 : syscall(SYS_write, fd, p, part(how, n)));
}

ssize_t pwrite(int fd, const void *p, size_t n, off_t at)
{
    int how = FAILS(WRITE);
    return torn(how,
                how > 0 ? -1 : syscall(SYS_pwrite64, fd, p, part(how, n), at));
}

ssize_t writev(int fd, const struct iovec *v, int n)
{
    int how = fd == STDERR_FILENO ? 0 : FAILS(WRITE);
    if (how < 0 && n > 0)
        return syscall(SYS_write, fd, v->iov_base, part(how, v->iov_len));
    return how > 0 ? -1 : syscall(SYS_writev, fd, v, n);
}

int fsync(int fd)
{
    return FAILS(SYNC) ? -1 : (int)syscall(SYS_fsync, fd);
}

int fdatasync(int fd)
{
    return FAILS(SYNC) ? -1 : (int)syscall(SYS_fdatasync, fd);
}

int rename(const char *from, const char *to)
{
    return FAILS(RENAME)
               ? -1
               : (int)syscall(SYS_renameat2, AT_FDCWD, from, AT_FDCWD, to, 0);
}

int renameat(int from_dir, const char *from, int to_dir, const char *to)
{
    return FAILS(RENAME)
               ? -1
               : (int)syscall(SYS_renameat2, from_dir, from, to_dir, to, 0);
}

int renameat2(int from_dir, const char *from, int to_dir, const char *to,
              unsigned flags)
{
    return FAILS(RENAME)
               ? -1
               : (int)syscall(SYS_renameat2, from_dir, from, to_dir, to, flags);
}

int ftruncate(int fd, off_t n)
{
    return FAILS(SPACE) ? -1 : (int)syscall(SYS_ftruncate, fd, n);
}

int fallocate(int fd, int mode, off_t at, off_t n)
{
    return FAILS(SPACE) ? -1 : (int)syscall(SYS_fallocate, fd, mode, at, n);
}

int mkdir(const char *path, mode_t mode)
{
    return FAILS(MKDIR) ? -1 : (int)syscall(SYS_mkdirat, AT_FDCWD, path, mode);
}

int pthread_create(pthread_t *t, const pthread_attr_t *a, void *(*run)(void *),
                   void *arg)
{
    return FAILS(THREAD) ? EAGAIN : real_thread(t, a, run, arg);
}

/* How far this reading of the clock is off. */
static long jump(void)
{
    return atomic_fetch_add(&n_times, 1) % 2 ? clock_jump : -clock_jump;
}

int clock_gettime(clockid_t clock, struct timespec *t)
{
    int rc = (int)syscall(SYS_clock_gettime, clock, t);
    if (!rc && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE))
        t->tv_sec += jump();
    return rc;
}

time_t time(time_t *out)
{
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    if (out)
        *out = t.tv_sec;
    return t.tv_sec;
}

int gettimeofday(struct timeval *restrict out, void *restrict zone)
{
    struct timespec t;
    (void)zone;
    clock_gettime(CLOCK_REALTIME, &t);
    *out = (struct timeval){t.tv_sec, t.tv_nsec / 1000};
    return 0;
}
