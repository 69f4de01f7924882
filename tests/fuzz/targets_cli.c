/* Records and the command line. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/lines.h"
#include "cli/opt.h"
#include "cli/records.h"
#include "cli/verbs.h"
#include "targets.h"

/* Lines of JSON from a file. */
int fuzz_records(const char *in, size_t n, struct qwick_err *e)
{
    struct lines l;
    const char *text;
    size_t len, total = 0;
    bool torn;
    int fd = open(fuzz_file("records.jsonl", in, n), O_RDONLY | O_CLOEXEC);
    CHECK(fd >= 0);
    lines_init(&l, "records.jsonl", fd);
    while (lines_next(&l, -1, &text, &len, &torn, e) == LINES_GOT) {
        struct line line = {"records.jsonl: line 1", text, len};
        struct record r;
        CHECK(!memchr(text, '\n', len));
        CHECK(record_read(&r, &line) == 0);
        CHECK((r.value != NULL) == (r.error.len == 0));
        record_free(&r);
        total += len;
    }
    CHECK(l.consumed == n && total <= n);
    lines_free(&l);
    close(fd);
    return 0;
}

/* Send standard output, which --help has, to nowhere, or back. */
static void hide_output(bool hide)
{
    static int shown = -1, nowhere = -1;
    if (shown < 0) {
        shown = dup(STDOUT_FILENO);
        nowhere = open("/dev/null", O_WRONLY | O_CLOEXEC);
        CHECK(shown >= 0 && nowhere >= 0);
    }
    fflush(stdout);
    CHECK(dup2(hide ? nowhere : shown, STDOUT_FILENO) >= 0);
}

/* The first byte is the number of a verb; its words follow, each with a NUL. */
int fuzz_options(const char *in, size_t n, struct qwick_err *e)
{
    enum { WORDS = 64, ROOM = 4096 };
    char *argv[WORDS + 1], *text = malloc(n + 1);
    size_t n_verbs = 0;
    int argc = 0;
    (void)e;
    CHECK(text);
    memcpy(text, in, n);
    text[n] = '\0';
    while (verbs[n_verbs])
        n_verbs++;
    const struct verb *v = verbs[n ? (unsigned char)in[0] % n_verbs : 0];
    for (size_t at = 1; at < n && argc < WORDS; at += strlen(text + at) + 1)
        argv[argc++] = text + at;
    argv[argc] = NULL;
    for (size_t i = 0; i < v->n_opts; i++)
        CHECK(v->opts[i].offset + sizeof(struct opt_texts) <= ROOM);
    void *args = calloc(1, ROOM);
    struct opt_parsed p;
    CHECK(args);
    if (argc)
        CHECK(opt_words(argc, argv) <= 2);
    hide_output(true);
    int rc = opt_parse(&p, v, argc, argv, args);
    hide_output(false);
    CHECK(rc == -1 || rc == 0 || rc == 2);
    CHECK(p.n_args <= (size_t)argc);
    opt_free(&p, args);
    free(args);
    free(text);
    return 0;
}
