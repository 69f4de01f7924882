/* The addresses of --listen, and their sockets. */
#ifndef CLI_LISTEN_H
#define CLI_LISTEN_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/socket.h>
#include <sys/un.h>

#include "base/err.h"

enum listen_kind { LISTEN_TCP, LISTEN_UNIX, LISTEN_SYSTEMD };

/* An address. */
struct listen_addr {
    enum listen_kind kind;
    struct sockaddr_storage addr; /* TCP: an IPv4 or IPv6 address and a port */
    socklen_t n_addr;
    char path[sizeof((struct sockaddr_un *)0)->sun_path]; /* UNIX */
};

/* Read an address: PORT, 127.0.0.1:PORT, [::1]:PORT, localhost:PORT, unix:PATH
 * or fd:systemd. Other hosts are IP addresses; names are refused, because we
 * look up none. Returns 0, or -1 with *e set to QWICK_ERR_USAGE. */
int listen_parse(const char *text, struct listen_addr *out,
                 struct qwick_err *e);

/* Sockets that listen. */
struct listeners {
    struct listener {
        int fd;               /* -1: it belongs to http */
        struct listen_addr a; /* LISTEN_SYSTEMD: what the socket is bound to,
                                 TCP or UNIX */
        bool unlink;          /* we have made the path, and remove it */
    } * v;
    size_t n;
};

/* Open the sockets of all addresses; systemd's may be several. A port of 0 gets
 * one from the system. Returns 0, or -1 with *e set and nothing open.
 * Everything but the path of a unix socket is ready for the sandbox. */
int listen_open(struct listeners *out, const struct listen_addr *addrs,
                size_t n, struct qwick_err *e);
/* Close what http does not own, and remove the paths that we have made. */
void listen_close(struct listeners *l);
/* Remove the paths of unix sockets, so that no client connects any more. */
void listen_unlink(struct listeners *l);

/* Return whether only this machine reaches the address: a loopback address or a
 * unix socket. */
bool listen_is_local(const struct listen_addr *a);
/* Return whether the address stands for all of the machine. */
bool listen_is_wildcard(const struct listen_addr *a);

/* Write the address for people: "http://127.0.0.1:8080", "unix:/run/x". Returns
 * out. */
enum { LISTEN_SHOWN = 128 };
const char *listen_show(const struct listen_addr *a, char out[LISTEN_SHOWN]);
#define LISTEN_SHOW(a) listen_show((a), (char[LISTEN_SHOWN]){""})

#endif
