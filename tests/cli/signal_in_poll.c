/* For LD_PRELOAD: send SIGINT after the program has read its flag and before it
 * begins to wait for input. Only waits without a time limit count. */
#define _GNU_SOURCE
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

static void strike(int forever)
{
    static int done;
    if (!forever || done || !getenv("SIGNAL_IN_POLL"))
        return;
    done = 1;
    kill(getpid(), SIGINT);
    /* by now the handler has run, in this thread or another one */
    usleep(100000);
}

int poll(struct pollfd *fds, nfds_t n, int timeout)
{
    struct timespec t = {timeout / 1000, timeout % 1000 * 1000000L};
    strike(timeout < 0);
    return (int)syscall(SYS_ppoll, fds, n, timeout < 0 ? NULL : &t, NULL, 0);
}

int ppoll(struct pollfd *fds, nfds_t n, const struct timespec *timeout,
          const sigset_t *mask)
{
    strike(!timeout);
    return (int)syscall(SYS_ppoll, fds, n, timeout, mask, 8);
}
