/* Names that tell which process made a temporary file or directory, so that a
 * later run can remove those of dead processes. */
#ifndef FILE_LEFTOVER_H
#define FILE_LEFTOVER_H

#include <stdbool.h>

/* "HOST-BOOT-PID-START-RANDOM": hashes of the host's name and of the kernel's
 * boot id, the process id, and the time at which the process started, which
 * tells a reused process id from its first use. The size includes the NUL. */
enum { LEFTOVER_MARK = 64 };
void leftover_mark(char out[LEFTOVER_MARK]);

/* Whether mark is a whole mark of a process of this host that no longer runs:
 * it has ended, or ran before the last boot. Processes of other hosts, and
 * those that we cannot look at, count as running. A process in another pid
 * namespace looks dead even if it runs, so the caller must hold a lock, too. */
bool leftover_dead(const char *mark);

#endif
