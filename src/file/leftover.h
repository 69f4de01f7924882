/* Names of temporary files and directories that say which process made them, so
 * that a later run can remove the leftovers of dead processes. */
#ifndef FILE_LEFTOVER_H
#define FILE_LEFTOVER_H

#include <stdbool.h>

/* Write a mark to out: "HOST-BOOT-PID-START-RANDOM". HOST and BOOT are hashes
 * of the host's name and of the kernel's boot id. START is the start time of
 * the process, because process ids are used again. The size includes the
 * NUL. */
enum { LEFTOVER_MARK = 64 };
void leftover_mark(char out[LEFTOVER_MARK]);

/* Return whether mark is a complete mark of a process of this host that no
 * longer runs: it has ended, or ran before the last boot. Processes of other
 * hosts, and processes that we cannot inspect, count as running. A running
 * process in another pid namespace looks dead, so the caller must also hold a
 * lock. */
bool leftover_dead(const char *mark);

#endif
