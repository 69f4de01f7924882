#include "file/write.h"

#include <errno.h>
#include <stdbool.h>
#include <unistd.h>

/* Linux writes at most 2 GiB per call; stay far below. */
enum { MAX_CALL = 1 << 26 };

static int write_pieces(int fd, const char *p, size_t n, bool placed, size_t at)
{
    while (n > 0) {
        size_t want = n < MAX_CALL ? n : MAX_CALL;
        ssize_t k =
            placed ? pwrite(fd, p, want, (off_t)at) : write(fd, p, want);
        if (k < 0 && errno == EINTR)
            continue;
        if (k <= 0) {
            errno = k < 0 ? errno : EIO;
            return -1;
        }
        p += k;
        at += (size_t)k;
        n -= (size_t)k;
    }
    return 0;
}

int write_all(int fd, const void *p, size_t n)
{
    return write_pieces(fd, p, n, false, 0);
}

int write_all_at(int fd, const void *p, size_t n, size_t at)
{
    return write_pieces(fd, p, n, true, at);
}
