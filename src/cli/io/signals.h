/* Signals. The first SIGINT, SIGTERM or SIGHUP asks the program to stop, a
 * second one kills it. */
#ifndef CLI_SIGNALS_H
#define CLI_SIGNALS_H

#include <stdbool.h>

/* Set up signals at the start of the program. Afterwards SIGBUS (a mapped file
 * was truncated) prints one line and exits with 1. Writes beyond the file size
 * limit and to closed pipes fail with an error instead of a signal. */
void signals_init(void);

/* Set a function that SIGBUS calls after printing its line; NULL: none. fn must
 * be async-signal-safe. */
void signals_at_bus(void (*fn)(void));

/* Set a function that is called before the program dies by SIGSEGV, SIGABRT,
 * SIGILL, SIGFPE, SIGQUIT and others that end it at once, or a SIGBUS that
 * somebody sent; NULL: none. fn must be
 * async-signal-safe. */
void signals_at_crash(void (*fn)(void));

/* Catch SIGINT, SIGTERM and SIGHUP: from now on the first one only sets the
 * flag. Signals that were ignored when the program started stay ignored. */
void signals_catch(void);

/* Forget a caught SIGINT, so that the program goes on and the next SIGINT is a
 * first one again. Other signals stay caught. */
void signals_forget_int(void);

/* Forget the signal that was caught: the program has ended as it was told, and
 * need not die by it. */
void signals_forget(void);

/* Let SIGHUP no longer stop the program: signals_reload then returns whether one
 * has come since its last call. It also ends a signals_poll, as a signal that
 * was caught does. Call it after signals_catch. */
void signals_catch_reload(void);
bool signals_reload(void);

/* Return whether the signal of the flag was sent by a process. A terminal sends
 * its signals to all processes that run on it, so they need not be passed on. */
bool signals_were_sent(void);

/* In a child process: forget what the parent has set and caught, so that signals
 * act as usual until signals_catch. */
void signals_forked(void);

/* Set a function that is called before a second signal kills the program; NULL:
 * none. fn must be async-signal-safe. */
void signals_at_kill(void (*fn)(void));

/* Catch SIGTSTP, SIGCONT and SIGWINCH, or (on false) treat them as before. Such
 * a signal ends the wait of signals_poll with -1 and EINTR. Call
 * signals_watched then: it returns one that came, or 0 if there are no more. A
 * SIGTSTP that was ignored when the program started stays ignored. */
void signals_watch(bool on);
int signals_watched(void);

/* Return the address of the flag: the signal that was caught, or 0. The library
 * accepts it as an interrupt flag. The handler runs in the main thread, because
 * all others block signals; code of another thread reads the flag with
 * flag_get. */
const volatile int *signals_flag(void);

/* Wait until fd is ready, as poll does with one descriptor, for at most
 * timeout_ms (-1: without limit). Once a signal was caught, even just before
 * the wait or in another thread, this returns -1 with EINTR at once. */
int signals_poll(int fd, short events, int timeout_ms);

/* Die by sig as if it had never been caught. */
_Noreturn void signals_die(int sig);

/* Die by the signal that was caught, if any. */
void signals_finish(void);

#endif
