/* Linux: facts from /proc, /sys and cgroups, and system calls without a
 * function in the C library. */
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
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

/* ---- CPUs ---------------------------------------------------------------- */

/* A set of CPUs of any length. Usual machines need no allocation. A failed one
 * would silently give a single thread. */
struct cpu_mask {
    cpu_set_t fixed, *set;
    size_t bytes;
};

static bool mask_init(struct cpu_mask *m, size_t n_cpus)
{
    memset(&m->fixed, 0, sizeof m->fixed);
    m->bytes = CPU_ALLOC_SIZE(n_cpus);
    m->set = m->bytes <= sizeof m->fixed ? &m->fixed : calloc(1, m->bytes);
    return m->set != NULL;
}

static void mask_free(struct cpu_mask *m)
{
    if (m->set != &m->fixed)
        free(m->set);
}

/* Get the affinity mask of this process, which the caller frees; false on
 * failure. The kernel refuses masks that are shorter than its own, and does not
 * tell the length of its own (sched_getaffinity(2)). CONFIG_NR_CPUS may be more
 * than a cpu_set_t holds. */
static bool affinity(struct cpu_mask *m)
{
    enum { MAX_CPUS = 1 << 20 };
    for (size_t n = CPU_SETSIZE; n <= MAX_CPUS; n *= 2) {
        if (!mask_init(m, n))
            return false;
        if (!sched_getaffinity(0, m->bytes, m->set))
            return true;
        mask_free(m);
        if (errno != EINVAL)
            break;
    }
    return false;
}

int os_cpus(void)
{
    struct cpu_mask m;
    if (!affinity(&m))
        return 1;
    int n = CPU_COUNT_S(m.bytes, m.set);
    mask_free(&m);
    return n > 0 ? n : 1;
}

/* Files that stay open; see os_hold_memory_files. The table is filled once and
 * then only read. */
enum { MAX_HELD = 64, FACT_BYTES = 16384 };
static struct {
    bool filling;
    size_t n;
    struct {
        char *path;
        int fd;
    } files[MAX_HELD];
} held;

static void hold(const char *path, int fd)
{
    if (held.n == MAX_HELD)
        return;
    char *name = strdup(path);
    int copy = name ? fcntl(fd, F_DUPFD_CLOEXEC, 3) : -1;
    if (copy < 0) {
        free(name);
        return;
    }
    held.files[held.n].path = name;
    held.files[held.n++].fd = copy;
}

/* Open a file of /proc or /sys for reading. A file that is held is copied to
 * text first, so that threads do not share an offset. */
static FILE *open_fact(const char *path, char text[FACT_BYTES])
{
    for (size_t i = 0; i < held.n && !held.filling; i++) {
        if (strcmp(held.files[i].path, path) != 0)
            continue;
        ssize_t n = pread(held.files[i].fd, text, FACT_BYTES, 0);
        return n > 0 ? fmemopen(text, (size_t)n, "r") : NULL;
    }
    FILE *f = fopen(path, "re");
    if (f && held.filling)
        hold(path, fileno(f));
    return f;
}

/* Read the first line of a small file; false if there is none. */
static bool read_line(const char *path, char *out, int n)
{
    char text[FACT_BYTES];
    FILE *f = open_fact(path, text);
    if (!f)
        return false;
    bool ok = fgets(out, n, f) != NULL;
    fclose(f);
    return ok;
}

/* The lowest number among a CPU and its siblings if it is below n, else the
 * CPU's own number. */
static size_t first_sibling(size_t cpu, size_t n)
{
    char path[96], line[256], *end;
    snprintf(path, sizeof path,
             "/sys/devices/system/cpu/cpu%zu/topology/thread_siblings_list",
             cpu);
    if (!read_line(path, line, sizeof line))
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
    if (!affinity(&m))
        return 1;
    size_t n_cpus = m.bytes * CHAR_BIT;
    if (mask_init(&seen, n_cpus)) {
        for (size_t cpu = 0; cpu < n_cpus; cpu++)
            if (CPU_ISSET_S(cpu, m.bytes, m.set))
                CPU_SET_S(first_sibling(cpu, n_cpus), seen.bytes, seen.set);
        n = CPU_COUNT_S(seen.bytes, seen.set);
        mask_free(&seen);
    }
    mask_free(&m);
    return n > 0 ? n : 1;
}

/* Whether a comma-separated list has the word ("cpuset" is not "cpu"). */
static bool has_word(const char *list, const char *word)
{
    size_t n = strlen(word);
    for (;;) {
        size_t len = strcspn(list, ",");
        if (len == n && !memcmp(list, word, n))
            return true;
        if (!list[len])
            return false;
        list += len + 1;
    }
}

/* Path of this process's cgroup for a controller ("" is the unified one). */
static bool cgroup_path(const char *controller, char *out, size_t n)
{
    char text[FACT_BYTES], line[1024];
    FILE *f = open_fact("/proc/self/cgroup", text);
    if (!f)
        return false;
    bool found = false;
    while (!found && fgets(line, sizeof line, f)) {
        line[strcspn(line, "\n")] = '\0';
        char *list = strchr(line, ':');
        char *path = list ? strchr(list + 1, ':') : NULL;
        if (!path)
            continue;
        *path++ = '\0';
        list++;
        if (has_word(list, controller)) {
            int len = snprintf(out, n, "%s", strcmp(path, "/") ? path : "");
            found = len >= 0 && (size_t)len < n;
        }
    }
    fclose(f);
    return found;
}

/* The smallest value that visit() returns for the process's group and its
 * ancestors. */
static double cgroup_min(const char *root, const char *controller,
                         double (*visit)(const char *dir))
{
    char group[900];
    double best = INFINITY;
    if (!cgroup_path(controller, group, sizeof group))
        return best;
    for (;;) {
        char dir[1024];
        snprintf(dir, sizeof dir, "%s%s", root, group);
        best = fmin(best, visit(dir));
        char *slash = strrchr(group, '/');
        if (!slash)
            return best;
        *slash = '\0';
    }
}

static double read_number(const char *dir, const char *file)
{
    char path[1100], line[128], *end;
    snprintf(path, sizeof path, "%s/%s", dir, file);
    if (!read_line(path, line, sizeof line))
        return NAN;
    double v = strtod(line, &end);
    return end == line ? NAN : v;
}

static double quota_v2(const char *dir)
{
    char path[1100], line[128];
    snprintf(path, sizeof path, "%s/cpu.max", dir);
    long long quota, period;
    if (!read_line(path, line, sizeof line) ||
        sscanf(line, "%lld %lld", &quota, &period) != 2 || period <= 0)
        return INFINITY;
    return (double)quota / (double)period;
}

static double quota_v1(const char *dir)
{
    double quota = read_number(dir, "cpu.cfs_quota_us");
    double period = read_number(dir, "cpu.cfs_period_us");
    return quota > 0 && period > 0 ? quota / period : INFINITY;
}

static double cpu_quota(void)
{
    return fmin(cgroup_min("/sys/fs/cgroup", "", quota_v2),
                cgroup_min("/sys/fs/cgroup/cpu", "cpu", quota_v1));
}

void os_cpu_limits(struct os_cpu_limits *out)
{
    long online = sysconf(_SC_NPROCESSORS_ONLN);
    out->online = online > 0 && online < INT_MAX ? (int)online : 1;
    out->affinity = os_cpus();
    out->cores = physical_cores();
    out->quota = cpu_quota();
}

int os_default_threads(void)
{
    int n = physical_cores();
    double quota = cpu_quota();
    if (quota < n)
        n = (int)quota;
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

/* Bytes of cached file pages in a group. The kernel reclaims them before memory
 * is short; MemAvailable counts them as available, too, and a mapped model
 * consists mostly of them. */
static double file_cache(const char *dir, const char *active,
                         const char *inactive)
{
    char text[FACT_BYTES], path[1100], line[128], name[64];
    double sum = 0;
    unsigned long long n;
    snprintf(path, sizeof path, "%s/memory.stat", dir);
    FILE *f = open_fact(path, text);
    if (!f)
        return 0;
    while (fgets(line, sizeof line, f))
        if (sscanf(line, "%63s %llu", name, &n) == 2 &&
            (!strcmp(name, active) || !strcmp(name, inactive)))
            sum += (double)n;
    fclose(f);
    return sum;
}

static double memory_left_v2(const char *dir)
{
    double max = read_number(dir, "memory.max"); /* "max" reads as NaN */
    double now = read_number(dir, "memory.current");
    if (!(max >= now))
        return INFINITY;
    return fmin(max,
                max - now + file_cache(dir, "active_file", "inactive_file"));
}

static double memory_left_v1(const char *dir)
{
    double max = read_number(dir, "memory.limit_in_bytes");
    double now = read_number(dir, "memory.usage_in_bytes");
    if (!(max >= now))
        return INFINITY;
    return fmin(
        max, max - now +
                 file_cache(dir, "total_active_file", "total_inactive_file"));
}

size_t os_available_memory(void)
{
    char text[FACT_BYTES];
    FILE *f = open_fact("/proc/meminfo", text);
    double avail = INFINITY;
    if (f) {
        char line[128];
        unsigned long long kb;
        while (fgets(line, sizeof line, f))
            if (sscanf(line, "MemAvailable: %llu", &kb) == 1)
                avail = (double)kb * 1024;
        fclose(f);
    }
    avail = fmin(avail, cgroup_min("/sys/fs/cgroup", "", memory_left_v2));
    avail = fmin(avail,
                 cgroup_min("/sys/fs/cgroup/memory", "memory", memory_left_v1));
    return isfinite(avail) ? (size_t)avail : 0;
}

void os_hold_memory_files(void)
{
    held.filling = held.n == 0;
    (void)os_available_memory();
    held.filling = false;
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

/* ---- processes ----------------------------------------------------------- */

/* Read the beginning of a small file as a string; false if it cannot be read.
 * It does not use stdio, which allocates. */
static bool read_small(const char *path, char *out, size_t size)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t n = fd < 0 ? -1 : read(fd, out, size - 1);
    if (fd >= 0)
        close(fd);
    out[n > 0 ? n : 0] = '\0';
    return n > 0;
}

/* "Anonymous:    1234 kB". RssAnon of /proc/self/status is a sum of counters
 * that lag behind by hundreds of kB. */
size_t os_private_bytes(void)
{
    static const char key[] = "\nAnonymous:";
    char text[2048];
    const char *at = read_small("/proc/self/smaps_rollup", text, sizeof text)
                         ? strstr(text, key)
                         : NULL;
    return at ? (size_t)strtoull(at + sizeof key - 1, NULL, 10) * 1024 : 0;
}

bool os_resident_bytes(const void *p, size_t n, size_t *out)
{
    enum { N_PAGES = 4096 };
    unsigned char in_memory[N_PAGES];
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    uintptr_t end = (uintptr_t)p + n;
    *out = 0;
    for (uintptr_t at = (uintptr_t)p / page * page; at < end;) {
        size_t left = (end - at + page - 1) / page;
        size_t n_pages = left < N_PAGES ? left : N_PAGES;
        if (mincore((void *)at, n_pages * page, in_memory))
            return false;
        for (size_t i = 0; i < n_pages; i++, at += page) {
            uintptr_t from = at > (uintptr_t)p ? at : (uintptr_t)p;
            uintptr_t to = at + page < end ? at + page : end;
            *out += in_memory[i] & 1 ? to - from : 0;
        }
    }
    return true;
}

unsigned long long os_process_start(long pid)
{
    char path[64], text[1024];
    snprintf(path, sizeof path, "/proc/%ld/stat", pid);
    /* the name in parentheses may itself contain parentheses */
    char *at = read_small(path, text, sizeof text) ? strrchr(text, ')') : NULL;
    for (int field = 2; at && field < 22; field++)
        at = strchr(at + 1, ' ');
    return at ? strtoull(at, NULL, 10) : 0;
}

bool os_boot_id(char *out, size_t size)
{
    return read_small("/proc/sys/kernel/random/boot_id", out, size);
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
