#include "cli/io/signals.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <unistd.h>

#include "base/flag.h"

/* If the pipe below is missing, a signal may not end a wait. This is the
 * longest wait then. */
enum { BLIND_WAIT_MS = 250 };

static volatile int caught;
static volatile sig_atomic_t caught_sent; /* by a process, not by the terminal */
static volatile int reload; /* a SIGHUP of signals_catch_reload has come */
static void (*_Atomic at_bus)(void);
static void (*_Atomic at_crash)(void);
static void (*_Atomic at_kill)(void);

/* Signals of signals_watch, and whether each has come. */
enum { N_WATCHED = 3 };
static const int watched[N_WATCHED] = {SIGTSTP, SIGCONT, SIGWINCH};
static volatile int came[N_WATCHED];
static struct sigaction unwatched[N_WATCHED]; /* as they were before */
static bool watching;

/* The handler writes a byte here, so that a poll sees a signal that came right
 * before it. ppoll is not enough: if one thread blocks a signal, another thread
 * gets it, and the wait goes on. */
static int wake[2] = {-1, -1};

static void wake_up(void)
{
    int saved = errno;
    ssize_t r = wake[1] >= 0 ? write(wake[1], "", 1) : 0;
    (void)r;
    errno = saved;
}

static void on_stop(int sig, siginfo_t *info, void *context)
{
    (void)context;
    if (flag_is_set(&caught)) {
        void (*fn)(void) = at_kill;
        if (fn)
            fn();
        /* delivered when this handler returns and unblocks it */
        signal(sig, SIG_DFL);
        raise(sig);
        return;
    }
    caught_sent = info->si_code <= 0;
    flag_set(&caught, sig);
    wake_up();
}

static void on_watched(int sig)
{
    for (size_t i = 0; i < N_WATCHED; i++)
        if (watched[i] == sig)
            flag_set(&came[i], 1);
    wake_up();
}

/* A mapped file was truncated. */
static void on_truncated(void)
{
    static const char msg[] =
        "qwick: a mapped file was truncated while in use\n";
    static atomic_flag said = ATOMIC_FLAG_INIT;
    /* Several threads may get here at once. The first one prints the line and
     * ends the program; the others wait. */
    if (atomic_flag_test_and_set(&said))
        for (;;)
            pause();
    ssize_t r = write(STDERR_FILENO, msg, sizeof(msg) - 1);
    void (*fn)(void) = at_bus;
    if (fn)
        fn();
    (void)r;
    _exit(1);
}

/* Signals that end the program at once, and what they did before. The first
 * N_FAULTS of them may be faults of its own. */
enum { N_FAULTS = 4, N_CRASHES = 11 };
static const int crashes[N_CRASHES] = {
    SIGBUS,  SIGSEGV, SIGILL,  SIGFPE,  SIGABRT, SIGQUIT,
    SIGUSR1, SIGUSR2, SIGALRM, SIGXCPU, SIGTRAP};
static struct sigaction before[N_CRASHES];

static void on_crash(int sig, siginfo_t *info, void *context)
{
    bool fault = false; /* else somebody sent the signal */
    for (size_t i = 0; i < N_FAULTS; i++)
        fault = fault || (crashes[i] == sig && info->si_code > 0);
    void (*fn)(void) = at_crash;
    (void)context;
    if (sig == SIGBUS && fault)
        on_truncated();
    if (fn)
        fn();
    for (size_t i = 0; i < N_CRASHES; i++)
        if (crashes[i] == sig)
            sigaction(sig, &before[i], NULL);
    if (!fault)
        raise(sig); /* a fault comes again when this handler returns */
}

static void catch_crash(size_t i)
{
    const struct sigaction sa = {.sa_sigaction = on_crash,
                                 .sa_flags = SA_SIGINFO | SA_ONSTACK};
    struct sigaction old;
    if (!sigaction(crashes[i], &sa, &old) && old.sa_sigaction != on_crash)
        before[i] = old;
}

void signals_at_bus(void (*fn)(void))
{
    at_bus = fn;
}

void signals_at_crash(void (*fn)(void))
{
    /* a handler needs a stack of its own when the program's is full */
    static char stack[1 << 16];
    const stack_t ss = {.ss_sp = stack, .ss_size = sizeof(stack)};
    at_crash = fn;
    if (!fn)
        return;
    sigaltstack(&ss, NULL);
    for (size_t i = 0; i < N_CRASHES; i++)
        catch_crash(i);
}

void signals_init(void)
{
    catch_crash(0); /* SIGBUS; the others act as usual */
    signal(SIGXFSZ, SIG_IGN);
    /* out_write turns EPIPE on stdout back into death by SIGPIPE; a closed
     * stderr must not end an answer */
    signal(SIGPIPE, SIG_IGN);
}

static const int stops[] = {SIGINT, SIGTERM, SIGHUP};
enum { N_STOPS = sizeof(stops) / sizeof(*stops) };

void signals_catch(void)
{
    /* no SA_RESTART: a write to a reader that has stopped must return */
    const struct sigaction sa = {.sa_sigaction = on_stop,
                                 .sa_flags = SA_SIGINFO};
    struct sigaction old;
    if (wake[0] < 0 && pipe2(wake, O_CLOEXEC | O_NONBLOCK))
        wake[0] = wake[1] = -1;
    for (size_t i = 0; i < N_STOPS; i++)
        if (sigaction(stops[i], NULL, &old) || old.sa_handler != SIG_IGN)
            sigaction(stops[i], &sa, NULL);
}

/* Empty the pipe, as no signal is left that a wait must see. */
static void drain(void)
{
    char bytes[64];
    while (wake[0] >= 0 && read(wake[0], bytes, sizeof(bytes)) > 0)
        ;
}

void signals_forget(void)
{
    drain();
    flag_set(&caught, 0);
}

void signals_forget_int(void)
{
    if (flag_get(&caught) == SIGINT)
        signals_forget();
}

static void on_reload(int sig)
{
    (void)sig;
    flag_set(&reload, 1);
    wake_up();
}

void signals_catch_reload(void)
{
    const struct sigaction sa = {.sa_handler = on_reload};
    sigaction(SIGHUP, &sa, NULL);
}

bool signals_reload(void)
{
    if (!flag_is_set(&reload))
        return false;
    if (!flag_is_set(&caught))
        drain();
    flag_set(&reload, 0);
    return true;
}

bool signals_were_sent(void)
{
    return caught_sent;
}

void signals_forked(void)
{
    struct sigaction sa;
    signals_watch(false);
    signals_at_bus(NULL);
    signals_at_kill(NULL);
    signals_at_crash(NULL);
    for (size_t i = 0; i < N_STOPS; i++)
        if (!sigaction(stops[i], NULL, &sa) && sa.sa_sigaction == on_stop)
            signal(stops[i], SIG_DFL);
    for (int i = 0; i < 2; i++) {
        if (wake[i] >= 0)
            close(wake[i]);
        wake[i] = -1;
    }
    flag_set(&caught, 0);
}

void signals_at_kill(void (*fn)(void))
{
    at_kill = fn;
}

void signals_watch(bool on)
{
    const struct sigaction sa = {.sa_handler = on_watched};
    if (on == watching)
        return;
    watching = on;
    for (size_t i = 0; i < N_WATCHED; i++) {
        if (!on) {
            sigaction(watched[i], &unwatched[i], NULL);
            flag_set(&came[i], 0);
            continue;
        }
        sigaction(watched[i], NULL, &unwatched[i]);
        if (unwatched[i].sa_handler != SIG_IGN)
            sigaction(watched[i], &sa, NULL);
    }
}

int signals_watched(void)
{
    drain();
    for (size_t i = 0; i < N_WATCHED; i++)
        if (flag_is_set(&came[i])) {
            flag_set(&came[i], 0);
            return watched[i];
        }
    return 0;
}

/* Whether any signal has come that ends a wait. */
static bool any_came(void)
{
    for (size_t i = 0; i < N_WATCHED; i++)
        if (flag_is_set(&came[i]))
            return true;
    return flag_is_set(&caught) || flag_is_set(&reload);
}

const volatile int *signals_flag(void)
{
    return &caught;
}

int signals_poll(int fd, short events, int timeout_ms)
{
    struct pollfd fds[] = {{.fd = fd, .events = events},
                           {.fd = wake[0], .events = POLLIN}};
    bool blind = wake[0] < 0 && (timeout_ms < 0 || timeout_ms > BLIND_WAIT_MS);
    int r;
    do
        r = any_came() ? 0 : poll(fds, 2, blind ? BLIND_WAIT_MS : timeout_ms);
    while (r == 0 && blind && timeout_ms < 0 && !any_came());
    if (any_came()) {
        errno = EINTR;
        return -1;
    }
    return r;
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
    if (flag_is_set(&caught))
        signals_die(flag_get(&caught));
}
