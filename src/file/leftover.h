/* Names of temporary files and directories that identify the process that made
 * them, so that a later run can remove the leftovers of dead processes. */
#ifndef FILE_LEFTOVER_H
#define FILE_LEFTOVER_H

#include <stdbool.h>

/* "HOST-BOOT-PID-START-RANDOM": hashes of the host's name and of the kernel's
 * boot id, the process id, and the start time of the process, which
 * distinguishes uses of the same process id. The size includes the NUL. */
enum { LEFTOVER_MARK = 64 };
void leftover_mark(char out[LEFTOVER_MARK]);

/* Whether mark is a whole mark of a process of this host that no longer runs:
 * it has ended, or ran before the last boot. Processes of other hosts, and
 * processes that we cannot inspect, count as running. A running process in
 * another pid namespace looks dead, so the caller must also hold a lock. */
bool leftover_dead(const char *mark);

#endif
