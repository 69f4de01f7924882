/* Linux: how much memory there is. */
#include <fcntl.h>
#include <inttypes.h>
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/os.h"
#include "base/proc_linux.h"

/* The files of a version of cgroups. */
static const struct memory_version {
    const char *root, *controller, *max, *now;
    const char *active, *inactive; /* lines of memory.stat */
} memory_versions[] = {
    {"/sys/fs/cgroup", "", "memory.max", "memory.current", "active_file ",
     "inactive_file "},
    {"/sys/fs/cgroup/memory", "memory", "memory.limit_in_bytes",
     "memory.usage_in_bytes", "total_active_file ", "total_inactive_file "},
};

/* A group and its open files; -1: cannot be opened. */
struct memory_group {
    const struct memory_version *version;
    int max, now, stat;
};

/* All files that tell the available memory. Nobody nests groups so deeply that
 * they do not fit. */
enum { MAX_GROUPS = 64 };
struct memory_files {
    int meminfo;
    size_t n;
    struct memory_group groups[MAX_GROUPS];
};

/* Those that stay open; see os_hold_memory_files. */
static struct {
    bool held;
    struct memory_files files;
} kept;

static int open_in(const char *dir, const char *file)
{
    char path[1100];
    snprintf(path, sizeof path, "%s/%s", dir, file);
    return open(path, O_RDONLY | O_CLOEXEC);
}

static void close_open(int fd)
{
    if (fd >= 0)
        close(fd);
}

static void close_group(const struct memory_group *g)
{
    close_open(g->max);
    close_open(g->now);
    close_open(g->stat);
}

struct group_search {
    struct memory_files *files;
    const struct memory_version *version;
};

/* Open a group's files. A group without a limit has none of them. */
static void add_group(void *ctx, const char *dir)
{
    const struct group_search *s = ctx;
    const struct memory_version *v = s->version;
    struct memory_group g = {v, open_in(dir, v->max), -1, -1};
    if (g.max < 0 || s->files->n == MAX_GROUPS) {
        close_group(&g);
        return;
    }
    g.now = open_in(dir, v->now);
    g.stat = open_in(dir, "memory.stat");
    s->files->groups[s->files->n++] = g;
}

static void open_memory_files(struct memory_files *f)
{
    f->meminfo = open("/proc/meminfo", O_RDONLY | O_CLOEXEC);
    f->n = 0;
    for (size_t i = 0; i < sizeof memory_versions / sizeof *memory_versions;
         i++) {
        const struct memory_version *v = &memory_versions[i];
        struct group_search s = {f, v};
        proc_each_cgroup(v->root, v->controller, add_group, &s);
    }
}

static void close_memory_files(const struct memory_files *f)
{
    close_open(f->meminfo);
    for (size_t i = 0; i < f->n; i++)
        close_group(&f->groups[i]);
}

static double number_in(int fd)
{
    char text[128];
    return proc_read_open(fd, text, sizeof text) ? proc_number(text) : NAN;
}

/* Bytes of cached file pages in a group. The kernel reclaims them before memory
 * is short; MemAvailable counts them as available, too, and a mapped model
 * consists mostly of them. */
static double file_cache(const struct memory_group *g)
{
    const char *keys[] = {g->version->active, g->version->inactive};
    char text[PROC_BYTES];
    double sum = 0;
    if (!proc_read_open(g->stat, text, sizeof text))
        return 0;
    for (size_t i = 0; i < 2; i++) {
        const char *at = proc_line(text, keys[i]);
        sum += at ? (double)strtoull(at, NULL, 10) : 0;
    }
    return sum;
}

/* The memory that a group leaves, if that is less than `least`, else least. */
static double least_memory(const struct memory_group *g, double least)
{
    double max = number_in(g->max); /* "max" reads as NaN */
    double now = number_in(g->now);
    if (!(max >= now && max - now < least))
        return least;
    return fmin(least, fmin(max, max - now + file_cache(g)));
}

static size_t available_memory(const struct memory_files *f)
{
    char text[PROC_BYTES];
    double least = INFINITY;
    const char *at = proc_read_open(f->meminfo, text, sizeof text)
                         ? proc_line(text, "MemAvailable:")
                         : NULL;
    if (at)
        least = (double)strtoull(at, NULL, 10) * 1024;
    for (size_t i = 0; i < f->n; i++)
        least = least_memory(&f->groups[i], least);
    return isfinite(least) ? (size_t)least : 0;
}

size_t os_available_memory(void)
{
    struct memory_files f;
    if (kept.held)
        return available_memory(&kept.files);
    open_memory_files(&f);
    size_t n = available_memory(&f);
    close_memory_files(&f);
    return n;
}

void os_hold_memory_files(void)
{
    if (kept.held)
        return;
    open_memory_files(&kept.files);
    kept.held = true;
}

/* "Anonymous:    1234 kB". RssAnon of /proc/self/status is a sum of counters
 * that lag behind by hundreds of kB. */
size_t os_private_bytes(void)
{
    char text[2048];
    const char *at = proc_read("/proc/self/smaps_rollup", text, sizeof text)
                         ? proc_line(text, "Anonymous:")
                         : NULL;
    return at ? (size_t)strtoull(at, NULL, 10) * 1024 : 0;
}

int os_memory_open(void)
{
    return open("/proc/self/statm", O_RDONLY | O_CLOEXEC);
}

size_t os_memory_read(int fd)
{
    char text[128];
    unsigned long long pages = 0;
    if (proc_read_open(fd, text, sizeof text))
        sscanf(text, "%*u %llu", &pages);
    return (size_t)pages * (size_t)sysconf(_SC_PAGESIZE);
}

uint64_t os_cpu_us(void)
{
    struct rusage u;
    if (getrusage(RUSAGE_SELF, &u))
        return 0;
    return (uint64_t)(u.ru_utime.tv_sec + u.ru_stime.tv_sec) * 1000000 +
           (uint64_t)(u.ru_utime.tv_usec + u.ru_stime.tv_usec);
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

/* Linux has it from 5.14 on; older headers do not. */
#ifndef MADV_POPULATE_READ
#define MADV_POPULATE_READ 22
#endif

bool os_read_mapping(const void *p, size_t n)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    size_t skip = (uintptr_t)p % page;
    return madvise((char *)(uintptr_t)p - skip, n + skip, MADV_POPULATE_READ) ==
           0;
}

size_t os_page_faults(void)
{
    struct rusage r;
    return getrusage(RUSAGE_SELF, &r)
               ? 0
               : (size_t)r.ru_minflt + (size_t)r.ru_majflt;
}

size_t os_disk_faults(void)
{
    struct rusage r;
    return getrusage(RUSAGE_SELF, &r) ? 0 : (size_t)r.ru_majflt;
}

/* "FilePmdMapped:   2048 kB": the bytes, if the line is this field. */
static size_t field_bytes(const char *line, const char *field)
{
    size_t n = strlen(field);
    return strncmp(line, field, n)
               ? 0
               : (size_t)strtoull(line + n, NULL, 10) * 1024;
}

bool os_huge_bytes(const void *p, size_t n, size_t *mapped, size_t *huge)
{
    FILE *f = fopen("/proc/self/smaps", "re");
    char *line = NULL;
    size_t cap = 0;
    bool inside = false, any = false;
    *mapped = *huge = 0;
    if (!f)
        return false;
    while (getline(&line, &cap, f) > 0) {
        uintptr_t begin, end;
        if (sscanf(line, "%" SCNxPTR "-%" SCNxPTR " ", &begin, &end) == 2) {
            inside = begin >= (uintptr_t)p && begin < (uintptr_t)p + n;
            any = any || inside;
        } else if (inside) {
            *mapped += field_bytes(line, "Rss:");
            *huge += field_bytes(line, "FilePmdMapped:");
        }
    }
    free(line);
    (void)fclose(f);
    return any;
}
