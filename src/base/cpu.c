#include "base/cpu.h"

#include <cpuid.h>
#include <errno.h>
#include <limits.h>
#include <math.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

static const char *const names[ISA_COUNT] = {"ref",    "avx2",       "avxvnni",
                                             "avx512", "avx512bf16", "amx"};

const char *isa_name(enum isa l)
{
    return names[l];
}

int isa_parse(const char *name, enum isa *out)
{
    for (int i = 0; i < ISA_COUNT; i++) {
        if (!strcmp(name, names[i])) {
            *out = (enum isa)i;
            return 0;
        }
    }
    return -1;
}

static uint64_t read_xcr0(void)
{
    uint32_t lo, hi;
    __asm__ volatile("xgetbv" : "=a"(lo), "=d"(hi) : "c"(0));
    return (uint64_t)hi << 32 | lo;
}

/* Linux hands out the tiles' large state on request only (arch_prctl(2)).
 * Threads that are made later inherit it. */
static bool get_tiles(void)
{
    enum { REQ_XCOMP_PERM = 0x1023, XTILEDATA = 18 };
    return (read_xcr0() & 0x60000) == 0x60000 &&
           !syscall(SYS_arch_prctl, REQ_XCOMP_PERM, XTILEDATA);
}

/* Register names follow Intel's manual, volume 2, CPUID. */
bool cpu_has(enum isa l)
{
    unsigned a, b, c, d;
    if (l == ISA_REF)
        return true;
    if (!__get_cpuid(1, &a, &b, &c, &d))
        return false;
    const unsigned fma = 1u << 12, osxsave = 1u << 27, avx = 1u << 28,
                   f16c = 1u << 29;
    const unsigned need = fma | osxsave | avx | f16c;
    if ((c & need) != need || (read_xcr0() & 0x6) != 0x6)
        return false;
    if (!__get_cpuid_count(7, 0, &a, &b, &c, &d) || !(b & 1u << 5))
        return false;
    if (l == ISA_AVX2)
        return true;
    bool avx512 = (read_xcr0() & 0xE6) == 0xE6 && (b & 1u << 16) /* F */ &&
                  (b & 1u << 17) /* DQ */ && (b & 1u << 30) /* BW */ &&
                  (b & 1u << 31) /* VL */ && (c & 1u << 11) /* VNNI */;
    if (l == ISA_AVX512)
        return avx512;
    bool tiles = (d & 1u << 22) /* AMX-BF16 */ && (d & 1u << 24) /* -TILE */;
    if (!__get_cpuid_count(7, 1, &a, &b, &c, &d))
        return false;
    if (l == ISA_AVXVNNI)
        return a & 1u << 4;
    bool bf16 = avx512 && (a & 1u << 5);
    return l == ISA_AMX ? bf16 && tiles && get_tiles() : bf16;
}

enum isa cpu_best(void)
{
    for (int l = ISA_COUNT - 1; l > 0; l--)
        if (cpu_has((enum isa)l))
            return (enum isa)l;
    return ISA_REF;
}

bool cpu_is_intel(void)
{
    unsigned a, b = 0, c = 0, d = 0;
    return __get_cpuid(0, &a, &b, &c, &d) && b == signature_INTEL_ebx &&
           c == signature_INTEL_ecx && d == signature_INTEL_edx;
}

/* A set of CPUs of any length. Those of usual machines need no allocation, which
 * could fail and leave one thread without a word. */
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

/* The affinity mask of this process, to be freed; false when it cannot be had.
 * The kernel refuses masks that are shorter than its own, whose length it does
 * not tell (sched_getaffinity(2)): CONFIG_NR_CPUS may be more than a cpu_set_t
 * holds. */
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

int cpu_logical(void)
{
    struct cpu_mask m;
    if (!affinity(&m))
        return 1;
    int n = CPU_COUNT_S(m.bytes, m.set);
    mask_free(&m);
    return n > 0 ? n : 1;
}

/* One line of a small file; false when there is none. */
static bool read_line(const char *path, char *out, int n)
{
    FILE *f = fopen(path, "re");
    if (!f)
        return false;
    bool ok = fgets(out, n, f) != NULL;
    fclose(f);
    return ok;
}

/* The lowest number among a CPU's siblings, its own included, if it is below n;
 * else the CPU's own. */
static size_t first_sibling(size_t cpu, size_t n)
{
    char path[96], line[256], *end;
    snprintf(path, sizeof path,
             "/sys/devices/system/cpu/cpu%zu/topology/thread_siblings_list",
             cpu);
    if (!read_line(path, line, sizeof line))
        return cpu;
    /* "0,4" or "0-1": the group is named by its lowest number */
    long v = strtol(line, &end, 10);
    return end != line && v >= 0 && (size_t)v < n ? (size_t)v : cpu;
}

/* CPUs of the affinity mask of which no sibling came before. */
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
    FILE *f = fopen("/proc/self/cgroup", "re");
    if (!f)
        return false;
    char line[1024];
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

/* Smallest value that visit() finds from the process's group up to the root. */
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

int cpu_default_threads(void)
{
    int n = physical_cores();
    double quota = fmin(cgroup_min("/sys/fs/cgroup", "", quota_v2),
                        cgroup_min("/sys/fs/cgroup/cpu", "cpu", quota_v1));
    if (quota < n)
        n = (int)quota;
    return n > 0 ? n : 1;
}

/* Cached pages of files in a group: the kernel takes them back before it calls
 * memory short, as MemAvailable reckons too. A mapped model is mostly that. */
static double file_cache(const char *dir, const char *active,
                         const char *inactive)
{
    char path[1100], line[128], name[64];
    double sum = 0;
    unsigned long long n;
    snprintf(path, sizeof path, "%s/memory.stat", dir);
    FILE *f = fopen(path, "re");
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

size_t cpu_available_memory(void)
{
    FILE *f = fopen("/proc/meminfo", "re");
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
