#include "cli/chat/chat_editor.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cli/io/prompt.h"
#include "cli/io/signals.h"
#include "file/fs.h"

/* The value has options, too, so a shell splits it. */
static const char *editor_command(void)
{
    static const char *const variables[] = {"VISUAL", "EDITOR"};
    for (size_t i = 0; i < 2; i++) {
        const char *value = getenv(variables[i]);
        if (value && *value)
            return value;
    }
    return "vi";
}

/* Run a command with the file as its argument, and wait for its end. Keys such
 * as Ctrl-C are the editor's: the shell and this process stay. Returns its status as waitpid does, or -1. */
static int editor_wait(const char *command, const char *path)
{
    static const int keys[] = {SIGINT, SIGQUIT};
    struct sigaction before[2], ignore = {.sa_handler = SIG_IGN};
    struct buf script = {0};
    int status = -1;
    if (buf_printf(&script, "trap : INT QUIT; %s \"$@\"", command)) {
        buf_free(&script);
        errno = ENOMEM;
        return -1;
    }
    pid_t pid = fork();
    if (pid == 0) {
        signals_forked();
        execl("/bin/sh", "sh", "-c", script.data, command, path, (char *)NULL);
        _exit(127);
    }
    for (size_t i = 0; i < 2; i++)
        sigaction(keys[i], &ignore, &before[i]);
    while (pid > 0 && waitpid(pid, &status, 0) < 0 && errno == EINTR)
        continue;
    for (size_t i = 0; i < 2; i++)
        sigaction(keys[i], &before[i], NULL);
    buf_free(&script);
    return status;
}

/* Append what the file has now. */
static int editor_read(const char *path, struct buf *out, struct qwick_err *e)
{
    const struct strings files = {.v = &path, .n = 1};
    const struct prompt_sources sources = {.files = &files, .no_stdin = true};
    struct prompt_faults faults = {0};
    int rc = prompt_compose(out, &sources, &faults, e);
    if (!rc)
        prompt_warn_faults(&faults, "the text");
    return rc;
}

int chat_editor_run(const char *text, size_t n, struct buf *out,
                    struct qwick_err *e)
{
    static const char suffix[] = ".md";
    const char *dir = getenv("TMPDIR"), *command = editor_command();
    struct buf path = {0};
    if (buf_printf(&path, "%s/qwick-XXXXXX%s", dir && *dir ? dir : "/tmp",
                   suffix)) {
        buf_free(&path);
        return err_oom(e, 1);
    }
    int fd = mkstemps(path.data, sizeof(suffix) - 1), rc = -1;
    if (fd < 0) {
        err_errno(e, path.data, "cannot create");
    } else {
        int bad = write_all(fd, text, n) ||
                  (n && text[n - 1] != '\n' && write_all(fd, "\n", 1));
        bad |= close(fd);
        int status = bad ? -1 : editor_wait(command, path.data);
        if (bad)
            err_errno(e, path.data, "cannot write");
        else if (status < 0)
            err_errno(e, command, "cannot run");
        else if (status)
            err_set(
                e, QWICK_ERR_RUNTIME,
                WIFSIGNALED(status) ? "%s: the editor was ended by signal %d"
                                    : "%s: the editor ended with status %d",
                command,
                WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status));
        else
            rc = editor_read(path.data, out, e);
        unlink(path.data);
    }
    buf_free(&path);
    return rc;
}
