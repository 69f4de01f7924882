#include "cli/io/confirm.h"

#include <poll.h>
#include <stdio.h>
#include <strings.h>
#include <unistd.h>

#include "cli/io/out.h"
#include "cli/io/signals.h"

int confirm_removal(const char *what, bool force)
{
    char line[16] = "";
    size_t n = 0;
    char c;
    if (force)
        return -1;
    if (!isatty(STDIN_FILENO) || !isatty(STDERR_FILENO))
        return msg_refuse("%s: without a terminal, --force removes them", what);
    msg_say(MSG_ERROR, "remove %s? Type yes to go on", what);
    while (signals_poll(STDIN_FILENO, POLLIN, -1) > 0 &&
           read(STDIN_FILENO, &c, 1) == 1 && c != '\n')
        if (n + 1 < sizeof(line))
            line[n++] = c;
    if (strcasecmp(line, "yes") == 0 || strcasecmp(line, "y") == 0)
        return -1;
    return msg_failure("nothing is removed");
}
