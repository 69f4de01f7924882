/* seccomp: which system calls the process may still make.
 *
 * A call that is in no table fails with EPERM, so that a C library that tries
 * one goes on without it. Calls with which a library looks for a newer kernel
 * fail with ENOSYS, because libraries fall back only on that. Calls that
 * qwick and its libraries never make, and an attacker would, end the process.
 *
 * We assemble the filter ourselves, because libseccomp 2.5.4 cannot be used when
 * memory is short. It makes 1581 allocations for these rules. We let each of them
 * fail in turn: it returned an error 562 times and the right filter 332 times,
 * crashed 130 times, hung 92 times, and 465 times returned a filter with other
 * actions and no error. It is also slower, but not too slow: it takes 0.37 ms to
 * make and load the filter, and this file 0.18 ms. */
#include "cli/sandbox/sandbox_parts.h"

#if SANDBOX_BUILT

#include <errno.h>
#include <fcntl.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <netinet/in.h>
#include <sched.h>
#include <signal.h>
#include <stddef.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include "cli/io/signals.h"

#if defined(__x86_64__)
#define ARCH AUDIT_ARCH_X86_64
#elif defined(__aarch64__)
#define ARCH AUDIT_ARCH_AARCH64
#else
#define ARCH 0
#endif

/* A condition on an argument. The kernel uses the lower 32 bits of these
 * arguments, except for IS_NULL, a pointer. */
struct condition {
    enum { ANY, EQUALS, MASKED, OWN_PID, IS_NULL } kind;
    unsigned arg;
    uint32_t mask, value;
};

struct call {
    uint32_t number;
    unsigned group; /* 0: every verb needs it */
    struct condition if_arg;
};

#define CALL(name)          {SYS_##name, 0, {ANY, 0, 0, 0}}
#define OF(group, name)     {SYS_##name, group, {ANY, 0, 0, 0}}
#define IF(name, ...)       {SYS_##name, 0, {__VA_ARGS__}}
#define OF_IF(g, name, ...) {SYS_##name, g, {__VA_ARGS__}}

#define NEW_NAMESPACE                                                       \
    (CLONE_NEWNS | CLONE_NEWCGROUP | CLONE_NEWUTS | CLONE_NEWIPC |          \
     CLONE_NEWUSER | CLONE_NEWPID | CLONE_NEWNET)
/* O_TMPFILE without O_DIRECTORY */
#define WRITES (O_ACCMODE | O_CREAT | O_TRUNC | (O_TMPFILE & ~O_DIRECTORY))
/* struct termios2, which later C libraries ask for */
#define TCGETS_2 0x802c542a

static const struct call allowed[] = {
    /* open files */
    CALL(read), CALL(write), CALL(readv), CALL(writev), CALL(pread64),
    CALL(pwrite64), CALL(lseek), CALL(close), CALL(fstat), CALL(fsync),
    CALL(fdatasync), CALL(ftruncate), CALL(fallocate), CALL(fadvise64),
    CALL(flock), CALL(dup), CALL(pipe2), CALL(ppoll), CALL(pselect6),
    IF(ioctl, EQUALS, 1, 0, TCGETS), IF(ioctl, EQUALS, 1, 0, TCGETS_2),
    IF(ioctl, EQUALS, 1, 0, TIOCGWINSZ), IF(ioctl, EQUALS, 1, 0, FIONREAD),
    IF(fcntl, EQUALS, 1, 0, F_GETFD), IF(fcntl, EQUALS, 1, 0, F_SETFD),
    IF(fcntl, EQUALS, 1, 0, F_GETFL), IF(fcntl, EQUALS, 1, 0, F_SETFL),
    IF(fcntl, EQUALS, 1, 0, F_DUPFD_CLOEXEC),
    OF_IF(CALLS_LOCK, fcntl, EQUALS, 1, 0, F_SETLK),
    OF_IF(CALLS_LOCK, fcntl, EQUALS, 1, 0, F_GETLK),
    /* facts about files */
    CALL(newfstatat), CALL(statx), CALL(faccessat), CALL(faccessat2),
    CALL(readlinkat), CALL(getcwd), CALL(fstatfs),
    /* files by name */
    OF_IF(CALLS_READ, openat, MASKED, 2, WRITES, O_RDONLY),
    OF(CALLS_WRITE, openat), OF(CALLS_WRITE, fchmod), OF(CALLS_WRITE, fchown),
    /* the times of open files only: Landlock does not guard those of names */
    OF_IF(CALLS_WRITE, utimensat, IS_NULL, 1, 0, 0),
    OF(CALLS_WRITE, getdents64),
    OF(CALLS_NAMES, renameat), OF(CALLS_NAMES, renameat2),
    OF(CALLS_NAMES | CALLS_UNLINK, unlinkat), OF(CALLS_NAMES, mkdirat),
    /* connections of sockets that listen already. No recvmsg: a client could send
     * descriptors with it. */
    OF(CALLS_SERVE, accept4), OF(CALLS_SERVE, getsockname),
    OF(CALLS_SERVE, getpeername), OF(CALLS_SERVE, getsockopt),
    OF_IF(CALLS_SERVE, setsockopt, EQUALS, 1, 0, SOL_SOCKET),
    OF_IF(CALLS_SERVE, setsockopt, EQUALS, 1, 0, IPPROTO_TCP),
    OF(CALLS_SERVE, recvfrom), OF(CALLS_SERVE, sendto),
    OF(CALLS_SERVE, sendmsg), OF(CALLS_SERVE, shutdown),
    OF(CALLS_SERVE, epoll_ctl), OF(CALLS_SERVE, epoll_pwait),
    OF(CALLS_SERVE, epoll_create1), OF(CALLS_SERVE, eventfd2),
    OF_IF(CALLS_SERVE, sched_getattr, EQUALS, 0, 0, 0),
    OF_IF(CALLS_SERVE, sched_setattr, EQUALS, 0, 0, 0),
    /* new code: of OpenBLAS, in the first part */
    OF(CALLS_LOAD, mmap), OF(CALLS_LOAD, mprotect),
    /* memory nodes, tiles of AMX (below); whether a process still runs */
    OF(CALLS_LOAD, mbind),
    OF_IF(CALLS_LOAD, kill, EQUALS, 1, 0, 0),
    /* the second part */
    OF_IF(CALLS_LOAD, prctl, EQUALS, 0, 0, PR_SET_NO_NEW_PRIVS),
    OF(CALLS_LOAD, seccomp), OF(CALLS_LOAD, landlock_create_ruleset),
    OF(CALLS_LOAD, landlock_add_rule), OF(CALLS_LOAD, landlock_restrict_self),
    /* memory, but no new code */
    IF(mmap, MASKED, 2, PROT_EXEC, 0), IF(mprotect, MASKED, 2, PROT_EXEC, 0),
    CALL(munmap), CALL(mremap), CALL(madvise), CALL(brk), CALL(mincore),
    CALL(membarrier),
    /* threads, but no processes */
    IF(clone, MASKED, 0, CLONE_THREAD | NEW_NAMESPACE, CLONE_THREAD),
    CALL(futex), CALL(set_robust_list), CALL(get_robust_list), CALL(rseq),
    CALL(set_tid_address), CALL(sched_yield), CALL(sched_getaffinity),
    IF(sched_setaffinity, EQUALS, 0, 0, 0), /* --numa: of the calling thread */
    CALL(getcpu), CALL(exit), CALL(exit_group), CALL(restart_syscall),
    IF(prctl, EQUALS, 0, 0, PR_SET_NAME),
    /* signals, but only to itself */
    CALL(rt_sigaction), CALL(rt_sigprocmask), CALL(rt_sigreturn),
    CALL(sigaltstack), IF(kill, OWN_PID, 0, 0, 0),
    IF(tgkill, OWN_PID, 0, 0, 0),
    /* facts about the process and the machine */
    CALL(getpid), CALL(gettid), CALL(getuid), CALL(geteuid), CALL(getgid),
    CALL(getegid), CALL(getrusage), CALL(times), CALL(sysinfo), CALL(uname),
    CALL(getrandom), IF(prlimit64, IS_NULL, 2, 0, 0), CALL(getrlimit),
    /* time */
    CALL(clock_gettime), CALL(clock_getres), CALL(clock_nanosleep),
    CALL(nanosleep), CALL(gettimeofday),
#ifdef __x86_64__
    OF(CALLS_LOAD, arch_prctl),
    /* older names of calls above */
    CALL(poll), CALL(select), CALL(stat), CALL(lstat), CALL(access),
    CALL(readlink), CALL(pause), CALL(time),
    OF_IF(CALLS_READ, open, MASKED, 1, WRITES, O_RDONLY),
    OF(CALLS_WRITE, open), OF(CALLS_NAMES, rename),
    OF(CALLS_NAMES | CALLS_UNLINK, unlink), OF(CALLS_NAMES, rmdir),
    OF(CALLS_NAMES, mkdir), OF(CALLS_SERVE, epoll_wait),
#endif
};

/* A library tries these first, and falls back on older calls. */
static const uint32_t absent[] = {SYS_clone3, SYS_openat2, SYS_close_range};

/* Calls from this number on are younger than the kernel headers of Debian 12. All
 * CPUs have the same numbers from 424 on. */
enum { FIRST_YOUNG = SYS_futex_waitv };

static const struct {
    uint32_t number;
    const char *name;
} deadly[] = {
    {SYS_execve, "execve"},
    {SYS_execveat, "execveat"},
    {SYS_ptrace, "ptrace"},
    {SYS_process_vm_readv, "process_vm_readv"},
    {SYS_process_vm_writev, "process_vm_writev"},
    {SYS_socket, "socket"},
    {SYS_socketpair, "socketpair"},
    {SYS_connect, "connect"},
    {SYS_bind, "bind"},
};

#define COUNT(table) (sizeof(table) / sizeof(*(table)))

/* Seccomp sends SIGSYS instead of making the call. Say which call it was, and
 * die by the signal. */
static void on_deadly(int sig, siginfo_t *info, void *ctx)
{
    static const char before[] = "qwick: sandbox: ";
    static const char after[] = " was called: a defect or an attack\n";
    const char *name = "a system call";
    (void)ctx;
    for (size_t i = 0; i < COUNT(deadly); i++)
        if (deadly[i].number == (uint32_t)info->si_syscall)
            name = deadly[i].name;
    const struct iovec line[] = {
        {(void *)(uintptr_t)before, sizeof(before) - 1},
        {(void *)(uintptr_t)name, strlen(name)},
        {(void *)(uintptr_t)after, sizeof(after) - 1},
    };
    ssize_t r = writev(STDERR_FILENO, line, 3);
    (void)r;
    signals_die(sig);
}

enum { MAX_INSTRUCTIONS = 1200 };

/* The program of the filter, while it is made. All jumps are forward and short:
 * a rule is skipped where it does not hold, and the next one follows. */
struct filter {
    struct sock_filter code[MAX_INSTRUCTIONS];
    unsigned short n;
};

static void filter_put(struct filter *f, unsigned code, uint32_t k,
                       unsigned skip)
{
    f->code[f->n++] = (struct sock_filter)BPF_JUMP((uint16_t)code, k, 0,
                                                   (uint8_t)skip);
}

static void filter_load(struct filter *f, size_t offset)
{
    filter_put(f, BPF_LD | BPF_W | BPF_ABS, (uint32_t)offset, 0);
}

/* Go on if the loaded word is k, else skip some instructions. */
static void expect(struct filter *f, uint32_t k, unsigned skip)
{
    filter_put(f, BPF_JMP | BPF_JEQ | BPF_K, k, skip);
}

static void filter_answer(struct filter *f, uint32_t action)
{
    filter_put(f, BPF_RET | BPF_K, action, 0);
}

#define NUMBER offsetof(struct seccomp_data, nr)

/* The number of the call is loaded before and after a rule. */
static void filter_add(struct filter *f, uint32_t number, uint32_t action)
{
    expect(f, number, 1);
    filter_answer(f, action);
}

static void allow_if(struct filter *f, uint32_t number,
                     const struct condition *c)
{
    /* both CPUs are little-endian */
    size_t low = offsetof(struct seccomp_data, args) + c->arg * sizeof(uint64_t);
    uint32_t mask = c->kind == MASKED ? c->mask : UINT32_MAX;
    uint32_t value = c->kind == OWN_PID ? (uint32_t)getpid() : c->value;
    bool null = c->kind == IS_NULL;
    expect(f, number, null ? 7 : 5);
    filter_load(f, low);
    filter_put(f, BPF_ALU | BPF_AND | BPF_K, mask, 0);
    expect(f, value, null ? 3 : 1);
    if (null) {
        filter_load(f, low + 4);
        expect(f, 0, 1);
    }
    filter_answer(f, SECCOMP_RET_ALLOW);
    filter_load(f, NUMBER);
}

static void add_rules(struct filter *f, unsigned groups)
{
    for (size_t i = 0; i < COUNT(allowed); i++) {
        const struct call *c = &allowed[i];
        if (c->group && !(c->group & groups))
            continue;
        if (c->if_arg.kind == ANY)
            filter_add(f, c->number, SECCOMP_RET_ALLOW);
        else
            allow_if(f, c->number, &c->if_arg);
    }
    for (size_t i = 0; i < COUNT(deadly); i++)
        filter_add(f, deadly[i].number, SECCOMP_RET_TRAP);
    for (size_t i = 0; i < COUNT(absent); i++)
        filter_add(f, absent[i], SECCOMP_RET_ERRNO | ENOSYS);
}

static void filter_make(struct filter *f, unsigned groups)
{
    f->n = 0;
    filter_load(f, offsetof(struct seccomp_data, arch));
    expect(f, ARCH, 1);
    filter_put(f, BPF_JMP | BPF_JA, 1, 0);
    filter_answer(f, SECCOMP_RET_KILL_PROCESS);
    filter_load(f, NUMBER);
#ifdef __x86_64__
    /* the x32 calls have the same architecture */
    filter_put(f, BPF_JMP | BPF_JGE | BPF_K, 0x40000000, 1);
    filter_answer(f, SECCOMP_RET_KILL_PROCESS);
#endif
    add_rules(f, groups);
    filter_put(f, BPF_JMP | BPF_JGE | BPF_K, FIRST_YOUNG, 1);
    filter_answer(f, SECCOMP_RET_ERRNO | ENOSYS);
    filter_answer(f, SECCOMP_RET_ERRNO | EPERM);
}

/* Each rule fits. */
_Static_assert(16 + 8 * COUNT(allowed) + 2 * (COUNT(deadly) + COUNT(absent)) <
                   MAX_INSTRUCTIONS,
               "the program is too long");

int sandbox_calls_restrict(unsigned groups)
{
    struct sigaction sa = {.sa_sigaction = on_deadly, .sa_flags = SA_SIGINFO};
    struct filter f;
    if (!ARCH)
        return ENOSYS;
    filter_make(&f, groups);
    const struct sock_fprog program = {f.n, f.code};
    sigemptyset(&sa.sa_mask);
    sigaction(SIGSYS, &sa, NULL);
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0))
        return errno;
    /* all threads; a thread with other filters is named in the result */
    long rc = syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER,
                      SECCOMP_FILTER_FLAG_TSYNC, &program);
    return rc < 0 ? errno : rc > 0 ? EBUSY : 0;
}

#endif
