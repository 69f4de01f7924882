/* Passes of an engine's model. The first pass also finds the weights. */
#ifndef ENGINE_FIRST_PASS_H
#define ENGINE_FIRST_PASS_H

#include <stdbool.h>

struct pass_io;
struct qwick_engine;

/* Expect that passes read all weights: see map_expect_all. Call this as soon as
 * the weights are mapped, if they fit the memory, and a pass reads all of
 * them. */
void first_pass_expect(struct qwick_engine *eng);

/* If first_pass_expect has been called, and most of the weights are not in
 * memory, read them from the disk, in the order of their files. The system tells
 * that only to the owner of the files (os_resident_bytes). The threads of a pass
 * would read them at many places at a time: that takes twice as long, and leaves
 * them in pages of 4 KiB. Stops soon when *interrupt is not 0 (NULL: never), or
 * at deadline_ms of clock_ms (0: none). Sets eng->info.first_read_ms. Later
 * calls do nothing. */
void first_pass_read(struct qwick_engine *eng, const volatile int *interrupt,
                     double deadline_ms);

/* Expect that passes read single rows of tables (weights_table). Call this after
 * model_open and first_pass_expect. */
void first_pass_leave_tables(const struct qwick_engine *eng);

/* model_forward with the engine's scratch, and first_pass_read before it. Sets
 * eng->info.first_faults in the first pass. -1: stopped. */
int engine_pass(struct qwick_engine *eng, const struct pass_io *io);

#endif
