#include "cli/signals.h"

#include <signal.h>
#include <stdatomic.h>
#include <string.h>
#include <unistd.h>

static volatile int caught;
static void (*_Atomic at_bus)(void);

static void on_stop(int sig)
{
    if (caught) {
        /* delivered when this handler returns and unblocks it */
        signal(sig, SIG_DFL);
        raise(sig);
        return;
    }
    caught = sig;
}

static void on_bus(int sig)
{
    static const char msg[] =
        "qwick: a mapped file was truncated while in use\n";
    static atomic_flag said = ATOMIC_FLAG_INIT;
    /* several threads may run into it at once: one line, and the first one
     * ends the program when it is written */
    if (atomic_flag_test_and_set(&said))
        for (;;)
            pause();
    ssize_t r = write(STDERR_FILENO, msg, sizeof(msg) - 1);
    void (*fn)(void) = at_bus;
    if (fn)
        fn();
    (void)r;
    (void)sig;
    _exit(1);
}

void signals_at_bus(void (*fn)(void))
{
    at_bus = fn;
}

void signals_init(void)
{
    struct sigaction sa;
    memset(&sa, 0, sizeof(sa));
    sigemptyset(&sa.sa_mask);
    sa.sa_handler = on_bus;
    sigaction(SIGBUS, &sa, NULL);
    signal(SIGXFSZ, SIG_IGN);
    /* out_write turns EPIPE on stdout back into death by SIGPIPE; a closed
     * stderr must not end an answer */
    signal(SIGPIPE, SIG_IGN);
}

void signals_catch(void)
{
    static const int sigs[] = {SIGINT, SIGTERM, SIGHUP};
    for (size_t i = 0; i < sizeof(sigs) / sizeof(sigs[0]); i++) {
        struct sigaction old, sa;
        if (sigaction(sigs[i], NULL, &old) == 0 && old.sa_handler == SIG_IGN)
            continue;
        memset(&sa, 0, sizeof(sa));
        sigemptyset(&sa.sa_mask);
        /* no SA_RESTART: a write to a reader that has stopped must return */
        sa.sa_handler = on_stop;
        sigaction(sigs[i], &sa, NULL);
    }
}

const volatile int *signals_flag(void)
{
    return &caught;
}

_Noreturn void signals_die(int sig)
{
    sigset_t set;
    signal(sig, SIG_DFL);
    sigemptyset(&set);
    sigaddset(&set, sig);
    sigprocmask(SIG_UNBLOCK, &set, NULL);
    raise(sig);
    _exit(128 + sig);
}

void signals_finish(void)
{
    if (caught)
        signals_die(caught);
}
