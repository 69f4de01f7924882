#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/array.h"
#include "cli/http/listen.h"

/* Connections that wait while we have as many as we take. */
#define BACKLOG 128
/* The first descriptor that systemd hands over (sd_listen_fds(3)). */
#define SYSTEMD_FIRST_FD 3

/* ---- addresses ---- */

static int bad_address(const char *text, const char *why, struct qwick_err *e)
{
    return err_usage(e,
                     "%s: %s; an address is 127.0.0.1:PORT, [::1]:PORT, "
                     "unix:PATH or fd:systemd",
                     ERR_SHOW(text, strlen(text)), why);
}

static bool parse_port(const char *s, in_port_t *out)
{
    unsigned long x = 0;
    size_t n = strlen(s);

    if (n == 0 || n > 5 || strspn(s, "0123456789") != n)
        return false;
    x = strtoul(s, NULL, 10);
    *out = htons((in_port_t)x);
    return x <= 65535;
}

static int parse_tcp(const char *text, struct listen_addr *out,
                     struct qwick_err *e)
{
    struct sockaddr_in *v4 = (struct sockaddr_in *)&out->addr;
    struct sockaddr_in6 *v6 = (struct sockaddr_in6 *)&out->addr;
    const char *colon = strrchr(text, ':'), *port = colon ? colon + 1 : text;
    char host[INET6_ADDRSTRLEN + 2] = "127.0.0.1";
    size_t n = colon ? (size_t)(colon - text) : 0;
    in_port_t number;

    if (!parse_port(port, &number))
        return bad_address(text, "the port is not a number up to 65535", e);
    if (n >= sizeof host || (colon && n == 0))
        return bad_address(text, "the host is not an IP address", e);
    if (colon && !(n == 9 && strncmp(text, "localhost", n) == 0)) {
        memcpy(host, text, n);
        host[n] = '\0';
    }
    out->kind = LISTEN_TCP;
    if (host[0] == '[' && host[strlen(host) - 1] == ']') {
        host[strlen(host) - 1] = '\0';
        v6->sin6_family = AF_INET6;
        v6->sin6_port = number;
        out->n_addr = sizeof *v6;
        if (inet_pton(AF_INET6, host + 1, &v6->sin6_addr) == 1)
            return 0;
    } else {
        v4->sin_family = AF_INET;
        v4->sin_port = number;
        out->n_addr = sizeof *v4;
        if (inet_pton(AF_INET, host, &v4->sin_addr) == 1)
            return 0;
    }
    return bad_address(text, "the host is not an IP address", e);
}

int listen_parse(const char *text, struct listen_addr *out, struct qwick_err *e)
{
    static const char unix_prefix[] = "unix:";
    const char *path = text + sizeof unix_prefix - 1;

    memset(out, 0, sizeof *out);
    if (strcmp(text, "fd:systemd") == 0) {
        out->kind = LISTEN_SYSTEMD;
        return 0;
    }
    if (strncmp(text, unix_prefix, sizeof unix_prefix - 1) != 0)
        return parse_tcp(text, out, e);
    if (!*path)
        return bad_address(text, "the path is empty", e);
    if (strlen(path) >= sizeof out->path)
        return err_usage(e, "%s: the path has %zu bytes, more than %zu",
                         ERR_SHOW(text, strlen(text)), strlen(path),
                         sizeof out->path - 1);
    out->kind = LISTEN_UNIX;
    memcpy(out->path, path, strlen(path) + 1);
    return 0;
}

bool listen_is_local(const struct listen_addr *a)
{
    const struct sockaddr_in *v4 = (const struct sockaddr_in *)&a->addr;
    const struct sockaddr_in6 *v6 = (const struct sockaddr_in6 *)&a->addr;

    if (a->kind != LISTEN_TCP)
        return a->kind == LISTEN_UNIX;
    if (v4->sin_family == AF_INET)
        return ntohl(v4->sin_addr.s_addr) >> 24 == 127;
    return IN6_IS_ADDR_LOOPBACK(&v6->sin6_addr);
}

bool listen_is_wildcard(const struct listen_addr *a)
{
    const struct sockaddr_in *v4 = (const struct sockaddr_in *)&a->addr;
    const struct sockaddr_in6 *v6 = (const struct sockaddr_in6 *)&a->addr;

    if (a->kind != LISTEN_TCP)
        return false;
    if (v4->sin_family == AF_INET)
        return v4->sin_addr.s_addr == htonl(INADDR_ANY);
    return IN6_IS_ADDR_UNSPECIFIED(&v6->sin6_addr);
}

const char *listen_show(const struct listen_addr *a, char out[LISTEN_SHOWN])
{
    const struct sockaddr_in *v4 = (const struct sockaddr_in *)&a->addr;
    const struct sockaddr_in6 *v6 = (const struct sockaddr_in6 *)&a->addr;
    char host[INET6_ADDRSTRLEN] = "";

    if (a->kind == LISTEN_SYSTEMD) {
        snprintf(out, LISTEN_SHOWN, "fd:systemd");
    } else if (a->kind == LISTEN_UNIX) {
        snprintf(out, LISTEN_SHOWN, "unix:%s", a->path);
    } else if (v4->sin_family == AF_INET) {
        inet_ntop(AF_INET, &v4->sin_addr, host, sizeof host);
        snprintf(out, LISTEN_SHOWN, "http://%s:%d", host, ntohs(v4->sin_port));
    } else {
        inet_ntop(AF_INET6, &v6->sin6_addr, host, sizeof host);
        snprintf(out, LISTEN_SHOWN, "http://[%s]:%d", host,
                 ntohs(v6->sin6_port));
    }
    return out;
}

/* ---- sockets ---- */

/* Set *e: "ADDRESS: WHAT: " and the reason in errno. Returns -1. */
static int socket_failed(const struct listen_addr *a, const char *what,
                         struct qwick_err *e)
{
    if (errno == EADDRINUSE)
        return err_set(e, QWICK_ERR_RUNTIME,
                       "%s: another program listens there", LISTEN_SHOW(a));
    return err_errno(e, LISTEN_SHOW(a), what);
}

static int open_tcp(struct listener *l, struct qwick_err *e)
{
    int on = 1;

    l->fd = socket(l->a.addr.ss_family,
                   SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (l->fd < 0)
        return socket_failed(&l->a, "cannot make a socket", e);
    /* without it a port is taken for a minute after its last use */
    (void)setsockopt(l->fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (l->a.addr.ss_family == AF_INET6)
        (void)setsockopt(l->fd, IPPROTO_IPV6, IPV6_V6ONLY, &on, sizeof on);
    if (bind(l->fd, (struct sockaddr *)&l->a.addr, l->a.n_addr) != 0 ||
        listen(l->fd, BACKLOG) != 0)
        return socket_failed(&l->a, "cannot listen", e);
    /* the port, if it was 0 */
    l->a.n_addr = sizeof l->a.addr;
    if (getsockname(l->fd, (struct sockaddr *)&l->a.addr, &l->a.n_addr) != 0)
        return socket_failed(&l->a, "cannot learn the port", e);
    return 0;
}

/* Remove an existing path if it is our own socket, and nobody listens there. */
static int remove_dead_socket(const struct listen_addr *a,
                              const struct sockaddr_un *addr,
                              struct qwick_err *e)
{
    struct stat st;
    int fd, r;

    if (lstat(a->path, &st) != 0)
        return errno == ENOENT ? 0 : err_errno(e, a->path, "cannot look at it");
    if (!S_ISSOCK(st.st_mode))
        return err_set(e, QWICK_ERR_RUNTIME, "%s: it exists, and is no socket",
                       a->path);
    if (st.st_uid != geteuid())
        return err_set(e, QWICK_ERR_RUNTIME,
                       "%s: it exists, and belongs to user %lu, not to %lu",
                       a->path, (unsigned long)st.st_uid,
                       (unsigned long)geteuid());
    fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0)
        return err_errno(e, a->path, "cannot make a socket");
    r = connect(fd, (const struct sockaddr *)addr, sizeof *addr);
    if (r != 0 && errno == ECONNREFUSED)
        r = unlink(a->path);
    else
        r = (errno = EADDRINUSE, -1);
    close(fd);
    return r == 0 ? 0 : socket_failed(a, "cannot remove the old socket", e);
}

static int open_unix(struct listener *l, struct qwick_err *e)
{
    struct sockaddr_un addr = {.sun_family = AF_UNIX};
    mode_t mask;
    int r;

    _Static_assert(sizeof addr.sun_path == sizeof l->a.path, "same size");
    memcpy(addr.sun_path, l->a.path, sizeof addr.sun_path);
    if (remove_dead_socket(&l->a, &addr, e) != 0)
        return -1;
    l->fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (l->fd < 0)
        return socket_failed(&l->a, "cannot make a socket", e);
    mask = umask(0177); /* mode 0600: at no time may others connect */
    r = bind(l->fd, (struct sockaddr *)&addr, sizeof addr);
    umask(mask);
    if (r != 0)
        return socket_failed(&l->a, "cannot listen", e);
    l->unlink = true;
    if (listen(l->fd, BACKLOG) != 0)
        return socket_failed(&l->a, "cannot listen", e);
    return 0;
}

/* Take over a socket of systemd. */
static int adopt(struct listener *l, int fd, struct qwick_err *e)
{
    socklen_t n = sizeof(int), n_addr = sizeof l->a.addr;
    int listens = 0, type = 0;

    memset(&l->a, 0, sizeof l->a);
    if (getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &listens, &n) != 0 ||
        getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &n) != 0 || !listens ||
        type != SOCK_STREAM ||
        getsockname(fd, (struct sockaddr *)&l->a.addr, &n_addr) != 0)
        return err_set(e, QWICK_ERR_RUNTIME,
                       "fd:systemd: descriptor %d is not a listening stream "
                       "socket",
                       fd);
    l->a.n_addr = n_addr;
    if (l->a.addr.ss_family == AF_UNIX) {
        const struct sockaddr_un *u = (const struct sockaddr_un *)&l->a.addr;

        l->a.kind = LISTEN_UNIX;
        memcpy(l->a.path, u->sun_path, sizeof l->a.path);
        l->a.path[sizeof l->a.path - 1] = '\0';
    } else if (l->a.addr.ss_family == AF_INET ||
               l->a.addr.ss_family == AF_INET6) {
        l->a.kind = LISTEN_TCP;
    } else {
        return err_set(
            e, QWICK_ERR_RUNTIME,
            "fd:systemd: descriptor %d has the address family %d, not "
            "IPv4, IPv6 or unix",
            fd, l->a.addr.ss_family);
    }
    if (fcntl(fd, F_SETFD, FD_CLOEXEC) != 0 ||
        fcntl(fd, F_SETFL, O_NONBLOCK) != 0)
        return err_errno(e, "fd:systemd", "cannot set a descriptor's flags");
    l->fd = fd;
    return 0;
}

/* The number of descriptors that systemd has handed over to this process. */
static size_t systemd_count(void)
{
    const char *pid = getenv("LISTEN_PID"), *n = getenv("LISTEN_FDS");
    char own[24];

    snprintf(own, sizeof own, "%ld", (long)getpid());
    if (!pid || !n || strcmp(pid, own) != 0 || strlen(n) > 3 ||
        strspn(n, "0123456789") != strlen(n))
        return 0;
    return strtoul(n, NULL, 10);
}

static int open_one(struct listener *l, const struct listen_addr *a,
                    struct qwick_err *e)
{
    l->a = *a;
    l->fd = -1;
    l->unlink = false;
    return a->kind == LISTEN_TCP ? open_tcp(l, e) : open_unix(l, e);
}

int listen_open(struct listeners *out, const struct listen_addr *addrs,
                size_t n, struct qwick_err *e)
{
    size_t cap = 0, n_systemd = systemd_count();
    int r = 0;

    *out = (struct listeners){0};
    for (size_t i = 0; i < n && r == 0; i++) {
        size_t m = addrs[i].kind == LISTEN_SYSTEMD ? n_systemd : 1;

        if (m == 0)
            r = err_set(e, QWICK_ERR_RUNTIME,
                        "fd:systemd: systemd has handed over no socket "
                        "(LISTEN_PID, LISTEN_FDS)");
        else
            r = ARRAY_RESERVE(out->v, cap, out->n + m, e);
        for (size_t j = 0; j < m && r == 0; j++) {
            struct listener *l = &out->v[out->n++];

            *l = (struct listener){.fd = -1};
            r = addrs[i].kind == LISTEN_SYSTEMD
                    ? adopt(l, SYSTEMD_FIRST_FD + (int)j, e)
                    : open_one(l, &addrs[i], e);
        }
    }
    if (r != 0)
        listen_close(out);
    return r;
}

void listen_unlink(struct listeners *l)
{
    for (size_t i = 0; i < l->n; i++) {
        if (l->v[i].unlink)
            unlink(l->v[i].a.path);
        l->v[i].unlink = false;
    }
}

void listen_close(struct listeners *l)
{
    listen_unlink(l);
    for (size_t i = 0; i < l->n; i++)
        if (l->v[i].fd >= 0)
            close(l->v[i].fd);
    free(l->v);
    *l = (struct listeners){0};
}
