/* Linux: sets of CPUs. Only the files os_linux*.c use this.
 *
 * Any thread may call these functions. */
#ifndef BASE_CPUS_LINUX_H
#define BASE_CPUS_LINUX_H

#include <sched.h>
#include <stdbool.h>
#include <stddef.h>

/* Where the system describes its CPUs and its memory nodes. */
#define CPUS_SYSTEM "/sys/devices/system"

/* A set of CPUs of any length. Usual machines need no allocation. A failed one
 * would silently give a single thread. The struct must not move. */
struct cpu_mask {
    cpu_set_t fixed, *set;
    size_t bytes;
};

/* Make an empty set for n_cpus CPUs. Returns false when out of memory. */
bool cpu_mask_init(struct cpu_mask *m, size_t n_cpus);
void cpu_mask_free(struct cpu_mask *m);

/* Get the affinity mask of this thread, which the caller frees. Returns false
 * on failure. */
bool cpu_mask_of_thread(struct cpu_mask *m);

/* Return the lowest number among a CPU and its siblings if it is below n, else
 * the CPU's own number. system: CPUS_SYSTEM, or another directory in tests. */
size_t cpu_first_sibling(const char *system, size_t cpu, size_t n);

#endif
