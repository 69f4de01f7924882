#include "cli/io/term.h"

#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>

bool term_moves(void)
{
    const char *term = getenv("TERM");
    return term && *term && strcmp(term, "dumb") != 0;
}

bool term_colours(const char *when, bool tty)
{
    const char *no = getenv("NO_COLOR");
    if (when && strcmp(when, "auto") != 0)
        return strcmp(when, "always") == 0;
    return tty && !(no && *no) && term_moves();
}

bool term_truecolor(void)
{
    const char *s = getenv("COLORTERM");
    return s && (strcmp(s, "truecolor") == 0 || strcmp(s, "24bit") == 0);
}

bool term_utf8(void)
{
    /* the first one that is set and not empty counts (POSIX) */
    static const char *const names[] = {"LC_ALL", "LC_CTYPE", "LANG"};
    for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++) {
        const char *s = getenv(names[i]);
        if (s && *s)
            return strcasestr(s, "UTF-8") || strcasestr(s, "utf8");
    }
    return false;
}

static size_t size_from(unsigned short reported, const char *name, size_t other)
{
    const char *s = getenv(name);
    long n = s ? strtol(s, NULL, 10) : 0;
    return reported ? reported : n > 0 && n < 10000 ? (size_t)n : other;
}

size_t term_rows(int fd)
{
    struct winsize w = {0};
    return size_from(ioctl(fd, TIOCGWINSZ, &w) ? 0 : w.ws_row, "LINES", 24);
}

size_t term_columns(int fd)
{
    struct winsize w = {0};
    return size_from(ioctl(fd, TIOCGWINSZ, &w) ? 0 : w.ws_col, "COLUMNS", 80);
}
