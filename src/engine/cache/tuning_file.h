/* The file that keeps the result of a probe (engine/core/tuning.h):
 *
 *     DIR/tuning-1-HASH.txt
 *
 * HASH is of the CPU, its level of kernels and qwick's version, which are in the
 * file as well, so machines that share a home directory have one each. The file
 * is text:
 *
 *     qwick tuning 1
 *     version 0.1.0
 *     cpu GenuineIntel 6 143
 *     kernels amx
 *     date 2026-11-24
 *     sweep_ahead 8192
 *     …                      a line for each choice of the probe
 *     sum 0123456789abcdef   a hash of the lines above
 *
 * It gets its name when it is complete, and never changes. */
#ifndef ENGINE_TUNING_FILE_H
#define ENGINE_TUNING_FILE_H

#include <stdbool.h>

#include "engine/core/tuning.h"

/* Read the choices of this machine's file in dir into t->choices, and the date.
 * Returns false, with *t unchanged, if there is no file, or if it is damaged, of
 * another CPU, level or version, or could have been written by another user. */
bool tuning_file_read(struct tuning *t, const char *dir);

/* Write the choices. Creates dir if only its last two parts are missing. Returns
 * 0, or -1 with *e set. */
int tuning_file_write(const struct tuning *t, const char *dir,
                      struct qwick_err *e);

/* Return whether a name in the directory is that of such a file. *temporary: of
 * one that is being written, or was left over. */
bool tuning_file_name(const char *name, bool *temporary);

#endif
