/* Records and the command line. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "file/csv.h"
#include "cli/io/lines.h"
#include "cli/input/openai_request.h"
#include "cli/opt/opt.h"
#include "cli/opt/preset.h"
#include "cli/io/records.h"
#include "cli/opt/verbs.h"
#include "file/json.h"
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
        struct line line = {
            .where = "records.jsonl: line 1", .text = text, .n = len};
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
    enum { WORDS = 64 };
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
    struct opt_parsed p;
    if (argc)
        CHECK(opt_words(argc, argv) <= 2);
    hide_output(true);
    int rc = opt_parse(&p, v, argc, argv);
    hide_output(false);
    /* 1: the file of -T cannot be read */
    CHECK(rc == -1 || rc == 0 || rc == 2 ||
          (rc == 1 && opt_given(&p, OPT_preset)));
    CHECK(p.n_args <= (size_t)argc);
    opt_free(&p);
    free(text);
    return 0;
}

/* Lines of a table; the first byte says whether its delimiter is a tab. Taken
 * if no record is malformed. */
int fuzz_csv(const char *in, size_t n, struct qwick_err *e)
{
    struct csv c = {.dialect = n && *in == '\t' ? &csv_tab : &csv_comma};
    size_t at = n > 0, most = 0;
    int bad = 0;
    while (at < n) {
        const char *nl = memchr(in + at, '\n', n - at);
        size_t len = nl ? (size_t)(nl - in) - at : n - at;
        bad |= csv_line(&c, in + at, len, e);
        at += len + 1;
        if (c.open && at >= n)
            bad |= csv_open_end(&c, e);
        for (size_t i = 0; !c.open && i < c.n && !bad; i++) {
            CHECK(csv_value(&c, i)[c.v[i].n] == 0);
            most += c.v[i].n;
        }
        CHECK(bad || c.open || c.n > 0);
    }
    CHECK(most <= n); /* values are never longer than the lines */
    csv_free(&c);
    return bad;
}

/* Each field becomes its own text, so that a template with fields only, and
 * without doubled braces, becomes itself. */
static int put_field(void *ctx, const struct template_part *field,
                     const char **s, size_t *n, struct qwick_err *e)
{
    size_t *total = ctx;
    (void)e;
    *s = field->s;
    *n = field->n;
    *total += 2;
    return 0;
}

/* A prompt of the user: its options, and its text as a template. */
int fuzz_preset(const char *in, size_t n, struct qwick_err *e)
{
    struct preset s = {.path = "prompt.txt", .data = malloc(n + 1)};
    struct prompt_template t = {0};
    struct buf out = {0};
    size_t total = 0;
    CHECK(s.data);
    memcpy(s.data, in, n);
    s.data[n] = 0;
    if (memchr(in, 0, n)) {
        free(s.data);
        return 0; /* refused when the file is read */
    }
    int rc = preset_split(&s, n, e);
    if (!rc) {
        CHECK(s.text >= s.data && s.text + s.n <= s.data + n);
        CHECK(!s.options || s.options < s.text);
        CHECK(s.text_line >= 1);
        rc = prompt_template_parse(&t, s.path, s.text, s.n, s.text_line, NULL,
                                   e);
    }
    if (!rc) {
        CHECK(prompt_template_fill(&t, put_field, &total, &out, e) == 0);
        CHECK(out.len + total <= s.n);
    }
    buf_free(&out);
    prompt_template_free(&t);
    free(s.data);
    return rc;
}

/* A request of OpenAI's batch format becomes one object of JSON. */
int fuzz_openai(const char *in, size_t n, struct qwick_err *e)
{
    struct body_reader state = {0};
    struct json_doc *doc;
    struct buf json = {0};
    struct qwick_err why;
    int rc = openai_request(&state, in, n, &json, e);
    bool is;
    CHECK(openai_is_request(in, n, &is, NULL) == 0 && (rc || is));
    if (!json_parse(&doc, "record", json.data ? json.data : "", json.len,
                    QWICK_ERR_USAGE, &why)) {
        CHECK(json_is(json_root(doc), JSON_OBJECT));
        CHECK(json_is(json_get(json_root(doc), "id"), JSON_STRING));
        json_free(doc);
    } else {
        /* huge numbers and deep nesting are refused when the record is read */
        CHECK(!rc || json.len == 0);
    }
    buf_free(&json);
    body_reader_free(&state);
    return rc;
}
