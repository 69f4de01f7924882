#include "file/leftover.h"

#include <errno.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/hash.h"
#include "base/os.h"
#include "base/rng.h"

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
