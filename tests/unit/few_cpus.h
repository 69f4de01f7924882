/* Run a part of a test with one CPU, or with all: the runner of the tests gives
 * each file one CPU, and some code starts a thread only if there are two. */
#ifndef TEST_FEW_CPUS_H
#define TEST_FEW_CPUS_H

#include <sched.h>
#include <stdbool.h>
#include <string.h>

/* Allow this process one CPU, or all that the machine gives it. */
static inline void use_cpus(bool all)
{
    cpu_set_t set;
    int cpu = sched_getcpu();
    CPU_ZERO(&set);
    if (all)
        memset(&set, 0xff, sizeof set);
    else
        CPU_SET((size_t)(cpu < 0 ? 0 : cpu), &set);
    (void)sched_setaffinity(0, sizeof set, &set); /* else as it was */
}

#endif
