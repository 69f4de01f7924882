/* A library for LD_PRELOAD that makes allocations fail.
 *
 *   FAULT_AT=N     the N-th allocation fails, from 1; 0 or unset: no failure
 *   FAULT_FROM=1   all later ones fail, too
 *   FAULT_COUNT=F  write the number of allocations to F at exit
 *
 * It counts malloc, calloc, realloc, posix_memalign and aligned_alloc from the
 * program's start on, called by the program or by a library. Two callers never
 * fail and are not counted, because they end the process themselves, and no
 * program can prevent that: libgomp ("libgomp: Out of memory allocating …",
 * exit 1) and the dynamic linker (thread-local data). */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <link.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* glibc's own allocator under its internal names. We do not use dlsym, because
 * it allocates. */
extern void *__libc_malloc(size_t);
extern void *__libc_calloc(size_t, size_t);
extern void *__libc_realloc(void *, size_t);
extern void *__libc_memalign(size_t, size_t);

enum { MAX_SPARED = 16 };

static struct {
    uintptr_t begin, end;
} spared[MAX_SPARED];
static size_t n_spared;
static atomic_long n_calls;
static long fail_at;
static int fail_from, counting;
static const char *count_file;

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

__attribute__((constructor)) static void start(void)
{
    const char *s = getenv("FAULT_AT");
    fail_at = s ? atol(s) : 0;
    fail_from = getenv("FAULT_FROM") != NULL;
    count_file = getenv("FAULT_COUNT");
    dl_iterate_phdr(find_spared, NULL);
    counting = 1;
}

__attribute__((destructor)) static void stop(void)
{
    char text[32];
    counting = 0;
    if (!count_file)
        return;
    int fd = open(count_file, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    int n = snprintf(text, sizeof(text), "%ld\n", (long)n_calls);
    if (fd < 0 || write(fd, text, (size_t)n) != n)
        _exit(99);
    close(fd);
}

static int fails(void *caller)
{
    uintptr_t at = (uintptr_t)caller;
    if (!counting)
        return 0;
    for (size_t i = 0; i < n_spared; i++)
        if (at >= spared[i].begin && at < spared[i].end)
            return 0;
    long n = atomic_fetch_add(&n_calls, 1) + 1;
    if (!fail_at || n < fail_at || (n > fail_at && !fail_from))
        return 0;
    errno = ENOMEM;
    return 1;
}

#define FAILS() fails(__builtin_return_address(0))

void *malloc(size_t n)
{
    return FAILS() ? NULL : __libc_malloc(n);
}

void *calloc(size_t k, size_t n)
{
    return FAILS() ? NULL : __libc_calloc(k, n);
}

void *realloc(void *p, size_t n)
{
    return FAILS() ? NULL : __libc_realloc(p, n);
}

void *aligned_alloc(size_t align, size_t n)
{
    return FAILS() ? NULL : __libc_memalign(align, n);
}

int posix_memalign(void **p, size_t align, size_t n)
{
    void *q = FAILS() ? NULL : __libc_memalign(align, n);
    if (!q)
        return ENOMEM;
    *p = q;
    return 0;
}
