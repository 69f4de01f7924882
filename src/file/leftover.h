/* Names that say which process made a temporary file or directory, so that a
 * later run can remove what a dead one has left. */
#ifndef FILE_LEFTOVER_H
#define FILE_LEFTOVER_H

#include <stdbool.h>

/* "HOST-BOOT-PID-START-RANDOM": hashes of the host's name and of the kernel's
 * boot id, the process id and the time at which the process started, which is
 * what a reused id does not share. NUL included. */
enum { LEFTOVER_MARK = 64 };
void leftover_mark(char out[LEFTOVER_MARK]);

/* Whether mark is such a name, complete, of a process of this host that is not
 * running: it is gone, or ran before the last boot. Processes of other hosts,
 * and those that cannot be looked at, count as running. Those of another pid
 * namespace look dead though they may run: the caller must hold a lock, too. */
bool leftover_dead(const char *mark);

#endif
