/* Messages to systemd. They are one datagram each, so we need no library. */
#include <errno.h>
#include <math.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "cli/io/out.h"
#include "cli/serve/serve.h"

void notify_open(int *fd)
{
    const char *path = getenv("NOTIFY_SOCKET");
    struct sockaddr_un at = {.sun_family = AF_UNIX};
    *fd = -1;
    if (!path || (path[0] != '/' && path[0] != '@'))
        return;
    size_t n = strlen(path);
    if (n >= sizeof(at.sun_path)) {
        msg_warn("NOTIFY_SOCKET: is too long, systemd gets no messages");
        return;
    }
    memcpy(at.sun_path, path, n);
    if (path[0] == '@') /* an abstract name */
        at.sun_path[0] = 0;
    socklen_t len = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + n);
    int s = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (s < 0 || connect(s, (const struct sockaddr *)&at, len)) {
        msg_warn("NOTIFY_SOCKET: %s, systemd gets no messages",
                 strerror(errno));
        if (s >= 0)
            close(s);
        return;
    }
    *fd = s;
}

double notify_watchdog_ms(void)
{
    const char *us = getenv("WATCHDOG_USEC"), *pid = getenv("WATCHDOG_PID");
    double ms = us ? strtod(us, NULL) / 2000 : 0;
    if (pid && strtol(pid, NULL, 10) != (long)getpid())
        ms = 0; /* it means a process that started this one */
    return ms > 0 ? ms : (double)INFINITY;
}

void notify_send(int fd, const char *text)
{
    if (fd >= 0 && send(fd, text, strlen(text), MSG_NOSIGNAL) < 0)
        msg_warn("systemd: %s: %s", text, strerror(errno));
}
