/* Linux: memory nodes, the CPUs on them, and where pages come from. */
#include <ctype.h>
#include <errno.h>
#include <limits.h>
#include <linux/mempolicy.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/cpus_linux.h"
#include "base/os.h"
#include "base/proc_linux.h"

/* More than any kernel has; its nodes are numbered from 0. */
enum { MAX_NODES = 4096 };

/* ---- lists --------------------------------------------------------------- */

enum item { ITEM_RANGE, ITEM_END, ITEM_BAD };

/* Read the next range of a list such as "0-3,8\n", and move *at behind it. A
 * number that is too large becomes ULONG_MAX. */
static enum item next_range(const char **at, unsigned long *first,
                            unsigned long *last)
{
    char *end;
    if (strcmp(*at, "") == 0 || strcmp(*at, "\n") == 0)
        return ITEM_END;
    if (!isdigit((unsigned char)**at))
        return ITEM_BAD;
    *first = *last = strtoul(*at, &end, 10);
    if (*end == '-') {
        if (!isdigit((unsigned char)*++end))
            return ITEM_BAD;
        *last = strtoul(end, &end, 10);
    }
    if (*end == ',' && isdigit((unsigned char)end[1]))
        end++;
    else if (strcmp(end, "") != 0 && strcmp(end, "\n") != 0)
        return ITEM_BAD;
    *at = end;
    return *last < *first ? ITEM_BAD : ITEM_RANGE;
}

/* Read the file of a list. One that does not exist or is too long is empty. */
static void read_list(const char *path, char text[PROC_BYTES])
{
    if (!proc_read(path, text, PROC_BYTES) || strlen(text) == PROC_BYTES - 1)
        text[0] = '\0';
}

/* ---- nodes --------------------------------------------------------------- */

/* What is known while the nodes are read. */
struct reader {
    const char *system;
    const int *cpus; /* [n_cpus] allowed ones */
    size_t n_cpus;
    int *node_of;  /* [n_cpus] the id of its node; -1: not found yet */
    size_t *first; /* [n_cpus] the lowest of its siblings */
};

/* Note the CPUs of a node. Returns false if its list is malformed, or if one of
 * them is on another node, too. */
static bool read_cpus(const struct reader *r, int id)
{
    char path[1100], text[PROC_BYTES];
    const char *at = text;
    unsigned long first, last;
    enum item item;
    snprintf(path, sizeof path, "%s/node/node%d/cpulist", r->system, id);
    read_list(path, text);
    while ((item = next_range(&at, &first, &last)) == ITEM_RANGE) {
        for (size_t i = 0; i < r->n_cpus; i++) {
            unsigned long cpu = (unsigned long)r->cpus[i];
            if (cpu < first || cpu > last)
                continue;
            if (r->node_of[i] >= 0)
                return false;
            r->node_of[i] = id;
        }
    }
    return item == ITEM_END;
}

/* Find the node of each CPU. Returns false if the system does not tell it. */
static bool find_nodes(const struct reader *r)
{
    char path[1100], text[PROC_BYTES];
    const char *at = text;
    unsigned long first, last;
    enum item item;
    snprintf(path, sizeof path, "%s/node/online", r->system);
    read_list(path, text);
    while ((item = next_range(&at, &first, &last)) == ITEM_RANGE) {
        if (last >= MAX_NODES)
            return false;
        for (unsigned long id = first; id <= last; id++)
            if (!read_cpus(r, (int)id))
                return false;
    }
    for (size_t i = 0; i < r->n_cpus; i++)
        if (r->node_of[i] < 0)
            return false;
    return item == ITEM_END;
}

/* Append CPU i to its node: the last one of out, or a new one with room for all
 * CPUs. */
static int add_cpu(struct os_nodes *out, const struct reader *r, size_t i)
{
    struct os_node *node = out->n ? &out->nodes[out->n - 1] : NULL;
    if (!node || node->id != r->node_of[i]) {
        node = &out->nodes[out->n];
        *node = (struct os_node){
            .id = r->node_of[i], .cpus = malloc(r->n_cpus * sizeof(int))};
        if (!node->cpus)
            return -1;
        out->n++;
    }
    bool sibling = false;
    for (size_t k = 0; k < i; k++)
        sibling = sibling || (r->node_of[k] == node->id &&
                              r->first[k] == r->first[i]);
    node->cpus[node->n_cpus++] = r->cpus[i];
    node->n_cores += !sibling;
    return 0;
}

static int group(struct os_nodes *out, const struct reader *r)
{
    int next, least = -1;
    out->nodes = malloc(r->n_cpus * sizeof *out->nodes);
    if (!out->nodes)
        return -1;
    for (;; least = next) {
        next = INT_MAX;
        for (size_t i = 0; i < r->n_cpus; i++)
            if (r->node_of[i] > least && r->node_of[i] < next)
                next = r->node_of[i];
        if (next == INT_MAX)
            return 0;
        for (size_t i = 0; i < r->n_cpus; i++)
            if (r->node_of[i] == next && add_cpu(out, r, i))
                return -1;
    }
}

/* Get the CPUs that this thread may use: *cpus [*n], which the caller frees.
 * Where the system does not tell, it is one CPU. Returns -1 when out of
 * memory. */
static int allowed_cpus(int **cpus, size_t *n)
{
    struct cpu_mask m;
    bool known = cpu_mask_of_thread(&m);
    int count = known ? CPU_COUNT_S(m.bytes, m.set) : 0;
    *cpus = calloc(count > 0 ? (size_t)count : 1, sizeof **cpus);
    *n = 0;
    for (size_t cpu = 0; *cpus && known && cpu < m.bytes * CHAR_BIT; cpu++)
        if (CPU_ISSET_S(cpu, m.bytes, m.set))
            (*cpus)[(*n)++] = (int)cpu;
    if (known)
        cpu_mask_free(&m);
    *n = *n ? *n : 1;
    return *cpus ? 0 : -1;
}

int os_nodes_read(struct os_nodes *out, const char *system, const int *cpus,
                  size_t n_cpus)
{
    int *own = NULL, rc = -1;
    *out = (struct os_nodes){0};
    if (!cpus && allowed_cpus(&own, &n_cpus))
        return -1;
    struct reader r = {.system = system ? system : CPUS_SYSTEM,
                       .cpus = own ? own : cpus,
                       .n_cpus = n_cpus,
                       .node_of = malloc(n_cpus * sizeof *r.node_of),
                       .first = malloc(n_cpus * sizeof *r.first)};
    if (r.node_of && r.first) {
        for (size_t i = 0; i < n_cpus; i++) {
            r.node_of[i] = -1;
            r.first[i] =
                cpu_first_sibling(r.system, (size_t)r.cpus[i], SIZE_MAX);
        }
        if (!find_nodes(&r))
            memset(r.node_of, 0, n_cpus * sizeof *r.node_of);
        rc = group(out, &r);
    }
    free(r.node_of);
    free(r.first);
    free(own);
    if (rc)
        os_nodes_free(out);
    return rc;
}

void os_nodes_free(struct os_nodes *nodes)
{
    for (size_t i = 0; i < nodes->n; i++)
        free(nodes->nodes[i].cpus);
    free(nodes->nodes);
    *nodes = (struct os_nodes){0};
}

/* ---- threads ------------------------------------------------------------- */

struct os_affinity {
    struct cpu_mask before, bound;
    struct cpu_mask now; /* for os_unbind_thread */
};

struct os_affinity *os_affinity_create(void)
{
    struct os_affinity *a = calloc(1, sizeof *a);
    if (!a)
        return NULL;
    if (!cpu_mask_of_thread(&a->before)) {
        free(a);
        return NULL;
    }
    size_t n_cpus = a->before.bytes * CHAR_BIT;
    bool bound = cpu_mask_init(&a->bound, n_cpus);
    bool now = cpu_mask_init(&a->now, n_cpus);
    if (bound && now)
        return a;
    os_affinity_free(a);
    return NULL;
}

void os_affinity_free(struct os_affinity *a)
{
    if (!a)
        return;
    cpu_mask_free(&a->before);
    cpu_mask_free(&a->bound);
    cpu_mask_free(&a->now);
    free(a);
}

bool os_bind_thread(struct os_affinity *a, const struct os_node *node)
{
    size_t bytes = a->before.bytes;
    if (sched_getaffinity(0, bytes, a->before.set))
        return false;
    CPU_ZERO_S(bytes, a->bound.set);
    for (size_t i = 0; i < node->n_cpus; i++) {
        size_t cpu = (size_t)node->cpus[i];
        if (CPU_ISSET_S(cpu, bytes, a->before.set))
            CPU_SET_S(cpu, bytes, a->bound.set);
    }
    return CPU_COUNT_S(bytes, a->bound.set) > 0 &&
           !sched_setaffinity(0, bytes, a->bound.set);
}

void os_unbind_thread(struct os_affinity *a)
{
    size_t bytes = a->before.bytes;
    if (!sched_getaffinity(0, bytes, a->now.set) &&
        CPU_EQUAL_S(bytes, a->now.set, a->bound.set))
        (void)sched_setaffinity(0, bytes, a->before.set);
}

/* ---- memory -------------------------------------------------------------- */

int os_interleave(void *p, size_t n, const struct os_nodes *nodes)
{
    enum { BITS = sizeof(unsigned long) * CHAR_BIT };
    unsigned long mask[MAX_NODES / BITS] = {0};
    for (size_t i = 0; i < nodes->n; i++) {
        size_t id = (size_t)nodes->nodes[i].id;
        mask[id / BITS] |= 1ul << id % BITS;
    }
    /* the call takes one bit less than it is told (mbind(2)) */
    return syscall(SYS_mbind, p, n, MPOL_INTERLEAVE, mask,
                   (unsigned long)MAX_NODES + 1, 0)
               ? errno
               : 0;
}
