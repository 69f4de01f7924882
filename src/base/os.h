/* Services of the operating system. os_linux*.c implement them; a port to
 * another system replaces these files.
 *
 * Any thread may call these functions. */
#ifndef BASE_OS_H
#define BASE_OS_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The CPUs that this process may use. */
struct os_cpu_limits {
    int online;   /* logical CPUs of the machine; at least 1 */
    int affinity; /* of these, in the affinity mask: os_cpus */
    int cores;    /* physical cores of the mask: one per group of siblings */
    double quota; /* CPUs that the cgroup may keep busy; INFINITY: all */
    int slurm;    /* CPUs of this task in Slurm; 0: unknown, see below */
};
void os_cpu_limits(struct os_cpu_limits *out);

/* Read the CPUs that Slurm gave this task from $SLURM_CPUS_PER_TASK: a cluster
 * need not bind tasks to their CPUs. *out is 0 if the variable is unset, empty
 * or no number. Returns its value in the last case, which deserves a warning,
 * otherwise NULL. */
const char *os_slurm_cpus(int *out);

/* Return the default number of threads: the physical cores, at most the quota
 * rounded down and the CPUs of the task in Slurm, at least 1. */
int os_default_threads(void);
/* Return the number of logical CPUs in the affinity mask, at least 1. */
int os_cpus(void);

/* A memory node (NUMA): memory with CPUs near it. */
struct os_node {
    int id;         /* the system's number */
    int *cpus;      /* [n_cpus] ones that this thread may use, ascending */
    size_t n_cpus;  /* at least 1 */
    size_t n_cores; /* physical cores of these CPUs */
};
/* The nodes whose CPUs this thread may use, with ascending ids. No CPU is on
 * two of them. */
struct os_nodes {
    struct os_node *nodes;
    size_t n; /* at least 1 */
};

/* Read the nodes. A thread of one node, or of a system that says nothing or
 * contradicts itself, gets one node with all CPUs. system: NULL, or in tests a
 * directory in place of /sys/devices/system; cpus [n_cpus], n_cpus >= 1: NULL,
 * or in tests the CPUs that the thread may use, ascending. Returns 0, or -1
 * when out of memory. */
int os_nodes_read(struct os_nodes *out, const char *system, const int *cpus,
                  size_t n_cpus);
/* Free what os_nodes_read has set; nodes may also be all zero. */
void os_nodes_free(struct os_nodes *nodes);

/* Room for the CPUs that a thread had before os_bind_thread. NULL when out of
 * memory. */
struct os_affinity;
struct os_affinity *os_affinity_create(void);
void os_affinity_free(struct os_affinity *a);

/* Restrict this thread to its CPUs on the node. Keeps in *a
 * the ones from before. Allocates nothing. Returns false, and changes nothing,
 * if none of its CPUs is there, or if the system refuses. */
bool os_bind_thread(struct os_affinity *a, const struct os_node *node);
/* Give this thread back the CPUs that it had before os_bind_thread, unless
 * somebody has changed them since. Allocates nothing. */
void os_unbind_thread(struct os_affinity *a);

/* Ask the system to run this thread soon after it wakes, before threads that
 * compute: its time slices become short, of which an EEVDF scheduler (Linux
 * 6.12 and later) makes early deadlines. Its share of the time stays. Does
 * nothing on older systems. */
void os_wake_early(void);

/* Make the pages of p[0..n), which nobody has touched, come from all nodes in
 * turn. p is the begin of a page. Returns 0, or an errno value. */
int os_interleave(void *p, size_t n, const struct os_nodes *nodes);

/* Write the name of the first CPU to out[size], size > 0, for people: "Intel(R)
 * Xeon(R) …". Returns false, and writes an empty string, if it is unknown. */
bool os_cpu_name(char *out, size_t size);

/* Return the bytes of the CPU's last cache; 0 if unknown. */
size_t os_cache_bytes(void);

/* Return the bytes that can still be allocated without swapping: MemAvailable
 * of /proc/meminfo, at most the rest of the cgroup's limit. 0 if unknown. */
size_t os_available_memory(void);

/* Keep the files open that os_available_memory reads, from now to the end of
 * the process. The function then works in a process that may open no files.
 * Call this once, while no other thread uses os_available_memory. */
void os_hold_memory_files(void);

/* Count the bytes of the mapping p[0..n) whose pages are in memory, so that
 * reading them needs no disk. Returns false if that is unknown. Linux tells it
 * only to the owner of a file and to who may write it; for others all pages
 * count. */
bool os_resident_bytes(const void *p, size_t n, size_t *out);

/* Read the mapping p[0..n) of a file into memory, and map its pages. p need not
 * be at the begin of a page. Returns false if the system cannot do that, or if
 * reading fails. */
bool os_read_mapping(const void *p, size_t n);

/* Return the number of page faults of this process: all, and only the ones that
 * read from a disk. */
size_t os_page_faults(void);
size_t os_disk_faults(void);

/* Count the bytes of the mapping p[0..n) of a file that have been read:
 * *mapped, and of these the ones in huge pages. Returns false if that is
 * unknown. */
bool os_huge_bytes(const void *p, size_t n, size_t *mapped, size_t *huge);

/* Return the bytes of memory that this process has and that no file backs; 0 if
 * unknown. */
size_t os_private_bytes(void);

/* Open what os_memory_read reads; -1: unknown. */
int os_memory_open(void);
/* Return the bytes of memory of this process, mapped files included; 0 if
 * unknown. */
size_t os_memory_read(int fd);
/* Return the CPU time of this process in microseconds. */
uint64_t os_cpu_us(void);

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
