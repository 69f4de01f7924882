/* The machine that a report comes from. */
#ifndef CLI_MACHINE_H
#define CLI_MACHINE_H

#include <stddef.h>

#include "cli/report/report.h"

/* Texts for reports that people share: they hold no name of the host or the
 * user. */
struct machine {
    char system[160]; /* "Linux 6.1.0-18-amd64 x86_64" */
    char cpu[160];    /* "Intel(R) Xeon(R) …", or "unknown" */
    int cpus;         /* logical CPUs that this process may use */
    size_t memory;    /* available bytes; 0: unknown */
    char date[32];    /* local date, "2026-11-23" */
};

/* Read the facts. What cannot be read is "unknown". */
void machine_read(struct machine *m);

/* Write the facts about the program and the machine to out, MACHINE_FACTS of
 * them. Returns their number. */
enum { MACHINE_FACTS = 6 };
size_t machine_facts(struct fact *out, const struct machine *m);

#endif
