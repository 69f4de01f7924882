/* A library for LD_PRELOAD that plays a program whose code an attacker has
 * taken over. When the program writes its answer to standard output, or sends
 * one to a client, the library first makes system calls, a list of words
 * "CALL[:PATH]", and prints "CALL: done" or "CALL: REASON" on stderr.
 *
 *   ATTACK=WORDS        the calls of the first thread
 *   ATTACK_CHILD=1      only a process whose input is no terminal makes them
 *   ATTACK_LOAD=WORDS   its calls when it maps the first file of a model
 *   ATTACK_WORKER=WORDS the calls of other threads, when they wait for work
 *   ATTACK_WORKERS=N    how many threads make them; 1 by default
 *   NO_LANDLOCK=1, NO_SECCOMP=1  the kernel has none of it
 *   wait:PATH           is no attack: it waits until there is a file
 *   LACK=ERRNO          which error it gives then; ENOSYS by default
 *
 * The calls are made with syscall numbers: a real attacker needs no libc. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <netinet/in.h>
#include <sched.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/ptrace.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static long raw6(long nr, long a, long b, long c, long d, long f, long g)
{
    long rc;
    register long r10 __asm__("r10") = d;
    register long r8 __asm__("r8") = f;
    register long r9 __asm__("r9") = g;
    __asm__ volatile("syscall"
                     : "=a"(rc)
                     : "a"(nr), "D"(a), "S"(b), "d"(c), "r"(r10), "r"(r8), "r"(r9)
                     : "rcx", "r11", "memory");
    return rc;
}

static long raw(long nr, long a, long b, long c, long d, long f)
{
    return raw6(nr, a, b, c, d, f, 0);
}

static long attack(const char *call, const char *path)
{
    const char *argv[] = {"/bin/true", NULL};
    long p = (long)path;
    if (!strcmp(call, "read"))
        return raw(SYS_openat, AT_FDCWD, p, O_RDONLY, 0, 0);
    if (!strcmp(call, "write"))
        return raw(SYS_openat, AT_FDCWD, p, O_WRONLY, 0, 0);
    if (!strcmp(call, "create"))
        return raw(SYS_openat, AT_FDCWD, p, O_WRONLY | O_CREAT, 0600, 0);
    if (!strcmp(call, "open"))
        return raw(SYS_open, p, O_RDONLY, 0, 0, 0);
    if (!strcmp(call, "unlink"))
        return raw(SYS_unlink, p, 0, 0, 0, 0);
    if (!strcmp(call, "rename"))
        return raw(SYS_rename, p, (long)"stolen", 0, 0, 0);
    if (!strcmp(call, "chmod"))
        return raw(SYS_chmod, p, 0777, 0, 0, 0);
    if (!strcmp(call, "times"))
        return raw(SYS_utimensat, AT_FDCWD, p, 0, 0, 0);
    if (!strcmp(call, "exec"))
        return raw(SYS_execve, (long)argv[0], (long)argv, 0, 0, 0);
    if (!strcmp(call, "fork"))
        return raw(SYS_clone, SIGCHLD, 0, 0, 0, 0);
    if (!strcmp(call, "clone3"))
        return raw(SYS_clone3, 0, 0, 0, 0, 0);
    if (!strcmp(call, "socket"))
        return raw(SYS_socket, AF_INET, SOCK_STREAM, 0, 0, 0);
    if (!strcmp(call, "bind"))
        return raw(SYS_bind, -1, 0, 0, 0, 0);
    if (!strcmp(call, "connect"))
        return raw(SYS_connect, -1, 0, 0, 0, 0);
    if (!strcmp(call, "recvmsg")) /* with descriptors of a client */
        return raw(SYS_recvmsg, -1, 0, 0, 0, 0);
    if (!strcmp(call, "ptrace"))
        return raw(SYS_ptrace, PTRACE_ATTACH, getppid(), 0, 0, 0);
    if (!strcmp(call, "kill"))
        return raw(SYS_kill, getppid(), SIGTERM, 0, 0, 0);
    if (!strcmp(call, "code"))
        return raw(SYS_mmap, 0, 4096, PROT_READ | PROT_WRITE | PROT_EXEC,
                   MAP_PRIVATE | MAP_ANONYMOUS, -1);
    if (!strcmp(call, "ioctl"))
        return raw(SYS_ioctl, 2, 0x5412 /* TIOCSTI */, (long)"x", 0, 0);
    if (!strcmp(call, "bpf"))
        return raw(SYS_bpf, 0, 0, 0, 0, 0);
    if (!strcmp(call, "wait")) { /* until there is such a file */
        struct timespec t = {0, 10000000};
        while (raw(SYS_faccessat, AT_FDCWD, p, F_OK, 0, 0))
            raw(SYS_nanosleep, (long)&t, 0, 0, 0, 0);
        return 0;
    }
    if (!strcmp(call, "unknown"))
        return raw(900, 0, 0, 0, 0, 0);
    return -EINVAL;
}

static void attack_all(const char *variable)
{
    const char *words = getenv(variable);
    char copy[4096], line[256];
    if (!words || strlen(words) >= sizeof(copy))
        return;
    strcpy(copy, words);
    for (char *save, *w = strtok_r(copy, " ", &save); w;
         w = strtok_r(NULL, " ", &save)) {
        char *path = strchr(w, ':');
        if (path)
            *path++ = 0;
        long rc = attack(w, path);
        if (rc == 0 && !strcmp(w, "fork"))
            _exit(0);
        int n = snprintf(line, sizeof(line), "%s: %s\n", w,
                         rc >= 0 ? "done" : strerror((int)-rc));
        raw(SYS_write, 2, (long)line, n, 0, 0);
    }
}

/* Set by the first thread: others may make their calls. How many have. */
static atomic_int armed, n_done;

/* The answer. Messages go to fd 2. */
ssize_t write(int fd, const void *p, size_t n)
{
    static int done;
    bool other = getenv("ATTACK_CHILD") && isatty(0);
    if (fd == 1 && !other && !done++) {
        const char *workers = getenv("ATTACK_WORKERS");
        attack_all("ATTACK");
        armed = 1;
        for (int i = 0; i < 10000 && getenv("ATTACK_WORKER") &&
                        n_done < (workers ? atoi(workers) : 1);
             i++)
            usleep(1000);
    }
    long rc = raw(SYS_write, fd, (long)p, (long)n, 0, 0);
    errno = rc < 0 ? (int)-rc : errno;
    return rc < 0 ? -1 : rc;
}

/* The answer of a server. */
static void attack_by_socket(void)
{
    static atomic_int done;
    if (!done++)
        attack_all("ATTACK");
}

ssize_t send(int fd, const void *p, size_t n, int flags)
{
    attack_by_socket();
    long rc = raw6(SYS_sendto, fd, (long)p, (long)n, flags, 0, 0);
    errno = rc < 0 ? (int)-rc : errno;
    return rc < 0 ? -1 : rc;
}

ssize_t sendmsg(int fd, const struct msghdr *m, int flags)
{
    attack_by_socket();
    long rc = raw(SYS_sendmsg, fd, (long)m, flags, 0, 0);
    errno = rc < 0 ? (int)-rc : errno;
    return rc < 0 ? -1 : rc;
}

/* A file of a model is about to be parsed. */
void *mmap(void *at, size_t n, int prot, int flags, int fd, off_t from)
{
    static int done;
    char link[64], path[4096] = "";
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    if (fd >= 0 && !done && getenv("ATTACK_LOAD") &&
        readlink(link, path, sizeof path - 1) > 0 &&
        (strstr(path, "config.json") || strstr(path, ".gguf"))) {
        done = 1;
        attack_all("ATTACK_LOAD");
    }
    long rc = raw6(SYS_mmap, (long)at, (long)n, prot, flags, fd, (long)from);
    errno = rc < 0 && rc > -4096 ? (int)-rc : errno;
    return rc < 0 && rc > -4096 ? MAP_FAILED : (void *)rc;
}

/* Threads of the pool wait with futex, which has no function of its own. Here
 * they look every few milliseconds for the order to attack. */
long syscall(long nr, ...)
{
    static __thread int done;
    struct timespec soon = {0, 5000000};
    va_list ap;
    long a[6];
    va_start(ap, nr);
    for (int i = 0; i < 6; i++)
        a[i] = va_arg(ap, long);
    va_end(ap);
    if ((nr == SYS_landlock_create_ruleset && getenv("NO_LANDLOCK")) ||
        (nr == SYS_seccomp && getenv("NO_SECCOMP"))) {
        const char *why = getenv("LACK");
        errno = why ? atoi(why) : ENOSYS;
        return -1;
    }
    bool waits = nr == SYS_futex && a[1] == FUTEX_WAIT_PRIVATE &&
                 raw(SYS_gettid, 0, 0, 0, 0, 0) != getpid() &&
                 getenv("ATTACK_WORKER");
    if (waits && armed && !done++) {
        attack_all("ATTACK_WORKER");
        n_done++;
    }
    if (waits && !a[3])
        a[3] = (long)&soon;
    long rc = raw(nr, a[0], a[1], a[2], a[3], a[4]);
    if (rc >= 0)
        return rc;
    errno = (int)-rc;
    return -1;
}
