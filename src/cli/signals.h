/* Signals: the first SIGINT, SIGTERM or SIGHUP asks to stop, a second one kills
 * at once. */
#ifndef CLI_SIGNALS_H
#define CLI_SIGNALS_H

/* At start: a truncated mapping gives one line and exit 1 (SIGBUS), writes
 * beyond a limit and to closed pipes fail with an error. */
void signals_init(void);

/* What SIGBUS does after its line; async-signal-safe. NULL: nothing. */
void signals_at_bus(void (*fn)(void));

/* From here on the three signals only set the flag; those that were ignored
 * when the program started stay ignored. */
void signals_catch(void);

/* The signal that came, or 0; its address is for qwick_session_interrupt. */
const volatile int *signals_flag(void);

/* Wait until fd is ready, as poll does with one descriptor, for timeout_ms (-1:
 * any time). Once a signal was caught, also right before the wait or in another
 * thread: -1 with EINTR at once. */
int signals_poll(int fd, short events, int timeout_ms);

/* Die by sig as if it had never been caught. */
_Noreturn void signals_die(int sig);

/* End by the signal that was caught, if any. */
void signals_finish(void);

#endif
