/* Linux: facts from /proc, /sys and cgroups, and system calls without a
 * function in the C library. What is about memory is in os_linux_memory.c, and
 * what is about memory nodes in os_linux_nodes.c. */
#include "base/os.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/futex.h>
#include <math.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/cpus_linux.h"
#include "base/proc_linux.h"

/* ---- CPUs ---------------------------------------------------------------- */

bool cpu_mask_init(struct cpu_mask *m, size_t n_cpus)
{
    memset(&m->fixed, 0, sizeof m->fixed);
    m->bytes = CPU_ALLOC_SIZE(n_cpus);
    m->set = m->bytes <= sizeof m->fixed ? &m->fixed : calloc(1, m->bytes);
    return m->set != NULL;
}

void cpu_mask_free(struct cpu_mask *m)
{
    if (m->set != &m->fixed)
        free(m->set);
}

/* The kernel refuses masks that are shorter than its own, and does not tell the
 * length of its own (sched_getaffinity(2)). CONFIG_NR_CPUS may be more than a
 * cpu_set_t holds. */
bool cpu_mask_of_thread(struct cpu_mask *m)
{
    enum { MAX_CPUS = 1 << 20 };
    for (size_t n = CPU_SETSIZE; n <= MAX_CPUS; n *= 2) {
        if (!cpu_mask_init(m, n))
            return false;
        if (!sched_getaffinity(0, m->bytes, m->set))
            return true;
        cpu_mask_free(m);
        if (errno != EINVAL)
            break;
    }
    return false;
}

int os_cpus(void)
{
    struct cpu_mask m;
    if (!cpu_mask_of_thread(&m))
        return 1;
    int n = CPU_COUNT_S(m.bytes, m.set);
    cpu_mask_free(&m);
    return n > 0 ? n : 1;
}

size_t cpu_first_sibling(const char *system, size_t cpu, size_t n)
{
    char path[1100], line[256], *end;
    snprintf(path, sizeof path, "%s/cpu/cpu%zu/topology/thread_siblings_list",
             system, cpu);
    if (!proc_read(path, line, sizeof line))
        return cpu;
    /* "0,4" or "0-1": the first number is the lowest */
    long v = strtol(line, &end, 10);
    return end != line && v >= 0 && (size_t)v < n ? (size_t)v : cpu;
}

/* Count the CPUs of the affinity mask, one per group of siblings. */
static int physical_cores(void)
{
    struct cpu_mask m, seen;
    int n = 0;
    if (!cpu_mask_of_thread(&m))
        return 1;
    size_t n_cpus = m.bytes * CHAR_BIT;
    if (cpu_mask_init(&seen, n_cpus)) {
        for (size_t cpu = 0; cpu < n_cpus; cpu++)
            if (CPU_ISSET_S(cpu, m.bytes, m.set))
                CPU_SET_S(cpu_first_sibling(CPUS_SYSTEM, cpu, n_cpus),
                          seen.bytes, seen.set);
        n = CPU_COUNT_S(seen.bytes, seen.set);
        cpu_mask_free(&seen);
    }
    cpu_mask_free(&m);
    return n > 0 ? n : 1;
}

static double read_number(const char *dir, const char *file)
{
    char path[1100], text[128];
    snprintf(path, sizeof path, "%s/%s", dir, file);
    return proc_read(path, text, sizeof text) ? proc_number(text) : NAN;
}

static void quota_v2(void *ctx, const char *dir)
{
    double *least = ctx;
    char path[1100], line[128];
    snprintf(path, sizeof path, "%s/cpu.max", dir);
    long long quota, period;
    if (proc_read(path, line, sizeof line) &&
        sscanf(line, "%lld %lld", &quota, &period) == 2 && period > 0)
        *least = fmin(*least, (double)quota / (double)period);
}

static void quota_v1(void *ctx, const char *dir)
{
    double *least = ctx;
    double quota = read_number(dir, "cpu.cfs_quota_us");
    double period = read_number(dir, "cpu.cfs_period_us");
    if (quota > 0 && period > 0)
        *least = fmin(*least, quota / period);
}

static double cpu_quota(void)
{
    double least = INFINITY;
    proc_each_cgroup("/sys/fs/cgroup", "", quota_v2, &least);
    proc_each_cgroup("/sys/fs/cgroup/cpu", "cpu", quota_v1, &least);
    return least;
}

const char *os_slurm_cpus(int *out)
{
    const char *text = getenv("SLURM_CPUS_PER_TASK");
    *out = 0;
    if (!text || !*text)
        return NULL;
    errno = 0;
    long n = strtol(text, NULL, 10);
    if (text[strspn(text, "0123456789")] || errno || n < 1 || n > INT_MAX)
        return text;
    *out = (int)n;
    return NULL;
}

void os_cpu_limits(struct os_cpu_limits *out)
{
    long online = sysconf(_SC_NPROCESSORS_ONLN);
    out->online = online > 0 && online < INT_MAX ? (int)online : 1;
    out->affinity = os_cpus();
    out->cores = physical_cores();
    out->quota = cpu_quota();
    os_slurm_cpus(&out->slurm);
}

size_t os_cache_bytes(void)
{
    long n = sysconf(_SC_LEVEL3_CACHE_SIZE);
    if (n <= 0)
        n = sysconf(_SC_LEVEL2_CACHE_SIZE);
    return n > 0 ? (size_t)n : 0;
}

int os_default_threads(void)
{
    int n = physical_cores(), slurm;
    double quota = cpu_quota();
    if (quota < n)
        n = (int)quota;
    os_slurm_cpus(&slurm);
    if (slurm && slurm < n)
        n = slurm;
    return n > 0 ? n : 1;
}

/* /proc/cpuinfo has "model name : NAME" on x86; on other CPUs there may be no
 * name. */
bool os_cpu_name(char *out, size_t size)
{
    static const char key[] = "model name";
    char line[512];
    FILE *f = fopen("/proc/cpuinfo", "re");
    out[0] = '\0';
    while (f && !out[0] && fgets(line, sizeof line, f)) {
        char *value = strchr(line, ':');
        if (strncmp(line, key, sizeof key - 1) != 0 || !value)
            continue;
        value += 1 + strspn(value + 1, " \t");
        value[strcspn(value, "\n")] = '\0';
        snprintf(out, size, "%s", value);
    }
    if (f)
        fclose(f);
    return out[0] != '\0';
}

/* ---- threads ------------------------------------------------------------- */

static void futex(atomic_uint *word, int op, unsigned value)
{
    syscall(SYS_futex, word, op, value, NULL, NULL, 0);
}

void os_wait(atomic_uint *word, unsigned old)
{
    futex(word, FUTEX_WAIT_PRIVATE, old);
}

void os_wake(atomic_uint *word)
{
    futex(word, FUTEX_WAKE_PRIVATE, INT_MAX);
}

/* The first version of the system's struct (sched_setattr(2)); the C library has
 * none. */
struct os_sched_attr {
    uint32_t size, policy;
    uint64_t flags;
    int32_t nice;
    uint32_t priority;
    uint64_t runtime, deadline, period; /* nanoseconds */
};

void os_wake_early(void)
{
    struct os_sched_attr a = {.size = sizeof a};
    if (syscall(SYS_sched_getattr, 0, &a, sizeof a, 0) ||
        a.policy != SCHED_OTHER)
        return;
    a.runtime = 100000; /* the shortest slice */
    syscall(SYS_sched_setattr, 0, &a, 0);
}

/* ---- processes ----------------------------------------------------------- */

unsigned long long os_process_start(long pid)
{
    char path[64], text[1024];
    snprintf(path, sizeof path, "/proc/%ld/stat", pid);
    /* the name in parentheses may itself contain parentheses */
    char *at = proc_read(path, text, sizeof text) ? strrchr(text, ')') : NULL;
    for (int field = 2; at && field < 22; field++)
        at = strchr(at + 1, ' ');
    return at ? strtoull(at, NULL, 10) : 0;
}

bool os_boot_id(char *out, size_t size)
{
    return proc_read("/proc/sys/kernel/random/boot_id", out, size);
}

/* ---- directories --------------------------------------------------------- */

void os_empty_dir(int fd)
{
    _Alignas(struct dirent64) char list[4096];
    bool removed = true;
    while (removed && lseek(fd, 0, SEEK_SET) == 0) {
        long n;
        removed = false;
        while ((n = syscall(SYS_getdents64, fd, list, sizeof list)) > 0)
            for (long at = 0; at < n;) {
                const struct dirent64 *f =
                    (const struct dirent64 *)(const void *)(list + at);
                removed |= unlinkat(fd, f->d_name, 0) == 0;
                at += f->d_reclen;
            }
    }
}
