/* Services of the operating system. os_linux.c implements them; a port to
 * another system replaces that file.
 *
 * Any thread may call these functions. */
#ifndef BASE_OS_H
#define BASE_OS_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>

/* Threads to use by default: physical cores (one per sibling group) in the
 * affinity mask, at most the cgroup's CPU quota rounded down, at least 1. */
int os_default_threads(void);
/* Logical CPUs in the affinity mask, at least 1. */
int os_cpus(void);

/* Bytes that can still be allocated without swapping: MemAvailable of
 * /proc/meminfo, at most the cgroup's remaining limit. 0 when unknown. */
size_t os_available_memory(void);

/* Sleep while the word is `old`, until os_wake; may return early. */
void os_wait(atomic_uint *word, unsigned old);
/* Wake all threads that sleep in os_wait for the word. */
void os_wake(atomic_uint *word);

/* When a process started, in ticks since boot; 0 when unknown. */
unsigned long long os_process_start(long pid);
/* A name of this boot of the machine, as a string in out[size], size > 0.
 * Returns false, and an empty string, when unknown. */
bool os_boot_id(char *out, size_t size);

/* Remove the files in the open directory fd, except those that cannot be
 * removed. Allocates nothing, opens no descriptor, and is async-signal-safe; it
 * does not use readdir, which is not. */
void os_empty_dir(int fd);

#endif
