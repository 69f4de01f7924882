/* The sandbox: a verb that needs nothing but its declared files gives up all
 * other rights. A defect in a parser, kernel or template that a hostile file or
 * prompt exploits can then neither open other files nor use the network nor
 * start programs.
 *
 * It has two parts. The first begins before the model's files are parsed. It
 * allows to read these files, those that options name, and what the C library
 * and OpenBLAS load, and to write declared outputs and qwick's cache. The second
 * begins after the model is open, and leaves only what the verb still opens.
 *
 * Two parts of Linux enforce it. seccomp filters system calls by number and
 * plain arguments; Landlock restricts which files open(2) and its like may
 * reach. Files that are open stay usable.
 *
 * The access of each row of the option table declares the files. A verb whose row
 * says that it listens makes its sockets before the first part. In both parts it
 * may accept connections, but can make no other socket. */
#ifndef CLI_SANDBOX_H
#define CLI_SANDBOX_H

#include <stddef.h>

#include "cli/opt/opt.h"
#include "qwick.h"

/* Begin the first part, unless the verb has no sandbox, --no-sandbox is given, or
 * this is a build with sanitizers. places[n] are the models that the verb will
 * load (qwick_model_find); NULL: the built-in one. The process must have one
 * thread. What the kernel lacks is left out, with a note. Returns 0, or an exit
 * status after printing a message when out of memory. */
int sandbox_load(const struct opt_parsed *p, const char *const *places,
                 size_t n);

/* A thread that was started after the first part. */
struct sandbox_thread {
    /* Call fn(arg) on it, and wait until it has returned. */
    void (*call)(void *ctx, void (*fn)(void *arg), void *arg);
    void *ctx;
};

/* Begin the second part, unless --no-sandbox is given or this is a build with
 * sanitizers. p has the options of the verb. eng and
 * draft (NULL: none) are all engines that the verb will use: their threads are
 * restricted, too. No other thread but `other` may run yet, so call this before
 * progress_start. n_tokens is the length of the longest prompt, SIZE_MAX if it
 * is unknown: OpenBLAS is loaded now if such a prompt needs it. Returns 0, or
 * an exit status after printing a message when out of memory. */
int sandbox_enter_with(const struct opt_parsed *p,
                       const struct qwick_engine *eng,
                       const struct qwick_engine *draft, size_t n_tokens,
                       const struct sandbox_thread *other);

static inline int sandbox_enter(const struct opt_parsed *p,
                                const struct qwick_engine *eng,
                                const struct qwick_engine *draft,
                                size_t n_tokens)
{
    return sandbox_enter_with(p, eng, draft, n_tokens, NULL);
}

#endif
