#include "file/leftover.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/rng.h"
#include "file/hash.h"

/* The beginning of a small file as a string; false: it cannot be read. */
static bool read_small(const char *path, char *out, size_t size)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t n = fd < 0 ? -1 : read(fd, out, size - 1);
    if (fd >= 0)
        close(fd);
    out[n > 0 ? n : 0] = '\0';
    return n > 0;
}

/* When a process started, in ticks since boot; 0: not known. */
static unsigned long long start_of(long pid)
{
    char path[64], text[1024];
    snprintf(path, sizeof path, "/proc/%ld/stat", pid);
    /* the name in parentheses may hold anything, parentheses too */
    char *at = read_small(path, text, sizeof text) ? strrchr(text, ')') : NULL;
    for (int field = 2; at && field < 22; field++)
        at = strchr(at + 1, ' ');
    return at ? strtoull(at, NULL, 10) : 0;
}

static uint32_t host_hash(void)
{
    char name[256] = "";
    (void)gethostname(name, sizeof name - 1);
    return (uint32_t)hash_bytes(6, name, strlen(name));
}

/* 0: not known. */
static uint32_t boot_hash(void)
{
    char id[64];
    if (!read_small("/proc/sys/kernel/random/boot_id", id, sizeof id))
        return 0;
    uint32_t h = (uint32_t)hash_bytes(7, id, strlen(id));
    return h ? h : 1;
}

void leftover_mark(char out[LEFTOVER_MARK])
{
    snprintf(out, LEFTOVER_MARK, "%08x-%08x-%ld-%llx-%06x", host_hash(),
             boot_hash(), (long)getpid(), start_of((long)getpid()),
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
    now = start_of(pid);
    return start && now && start != now;
}
