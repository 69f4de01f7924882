/* Services of the operating system. os_linux.c implements them; a port to
 * another system replaces that file.
 *
 * Any thread may call these functions. */
#ifndef BASE_OS_H
#define BASE_OS_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>

/* Return the default number of threads: the physical cores in the affinity mask
 * (one per group of siblings), at most the cgroup's CPU quota rounded down, at
 * least 1. */
int os_default_threads(void);
/* Return the number of logical CPUs in the affinity mask, at least 1. */
int os_cpus(void);

/* Write the name of the first CPU to out[size], size > 0, for people: "Intel(R)
 * Xeon(R) …". Returns false, and writes an empty string, if it is unknown. */
bool os_cpu_name(char *out, size_t size);

/* Return the bytes that can still be allocated without swapping: MemAvailable
 * of /proc/meminfo, at most the rest of the cgroup's limit. 0 if unknown. */
size_t os_available_memory(void);

/* Sleep while *word is `old`, until os_wake is called for it. May return
 * early. */
void os_wait(atomic_uint *word, unsigned old);
/* Wake all threads that sleep in os_wait for word. */
void os_wake(atomic_uint *word);

/* Return the time when a process started, in ticks since boot; 0 if unknown. */
unsigned long long os_process_start(long pid);
/* Write a name of this boot of the machine to out[size], size > 0. Returns
 * false, and writes an empty string, if it is unknown. */
bool os_boot_id(char *out, size_t size);

/* Remove the files in the open directory fd, except those that cannot be
 * removed. Allocates nothing, opens no descriptor, and is async-signal-safe; it
 * does not use readdir, which is not. */
void os_empty_dir(int fd);

#endif
