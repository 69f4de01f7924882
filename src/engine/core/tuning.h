/* The choices between kernels that this process uses (kernel/cores.h), and where
 * they come from: the record of a core, or a probe.
 *
 * A probe measures a few choices when the first engine opens on a core without a
 * record. Its result is kept in a file, because measuring takes up to 30 ms and
 * because another measurement might choose differently. In exact mode no choice
 * changes a bit. In default mode only the choice of bf16 over f32 can change the
 * rounding of floats' products; the ratio that decides it is near 2 or near 1/2
 * on all CPUs that have the instruction, so that noise does not move it. */
#ifndef ENGINE_TUNING_H
#define ENGINE_TUNING_H

#include <stdbool.h>
#include <stddef.h>

#include "base/err.h"
#include "kernel/kernel.h"

/* The most milliseconds that a probe takes. */
#define TUNING_PROBE_MS 30

struct tuning {
    const struct core *core; /* the record; with a probe, its starting point */
    struct core_choices choices;
    bool probed;
    char date[16];      /* of the probe, "2026-11-24"; "" without one */
    char evidence[200]; /* of the whole record, for people */
    char cpu[64];       /* core_cpu_text */
};

/* Return the choices of this process. The first call decides; kernels must not
 * run meanwhile. Later calls return the same choices, also to engines with other
 * arguments.
 *   name  the record of another core, or "probe" to measure; NULL: the record of
 *         this core. A later call must name what the first one used.
 *   dir   where the result of a probe is kept (tuning_file.h). NULL: without
 *         the name "probe", an unknown core is not measured. If the directory
 *         cannot be used, the core is measured again next time.
 * Returns NULL with QWICK_ERR_USAGE if the name is not that of a core, or with
 * QWICK_ERR_MEMORY; a later call then decides. */
const struct tuning *tuning_settle(const char *name, const char *dir,
                                   struct qwick_err *e);

/* Return choice i = 0, 1, … of a probe; NULL after the last one. */
const struct core_knob *tuning_probed(size_t i);

/* Measure the choices tuning_probed in *c; all others stay as they are. Measures
 * one thread, reading memory that is in no cache with the kernels of this CPU's
 * best level. The choices in use change meanwhile. A choice changes only if
 * another is faster by more than 3%, and not if the machine is too slow to
 * measure in TUNING_PROBE_MS. Returns 0, or -1 when out of memory. */
int tuning_probe(struct core_choices *c, struct qwick_err *e);

#endif
