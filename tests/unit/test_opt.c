/* The table of options and the rules between them: all options alone and all pairs,
 * of every verb, in one process. */
#include "test.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/buf.h"
#include "cli/opt/opt.h"
#include "cli/opt/verbs.h"

static int messages; /* what stderr writes to */
static char preset[] = "/tmp/qwick-test-opt-XXXXXX";

static int setup(void **state)
{
    char name[] = "/tmp/qwick-test-stderr-XXXXXX";
    messages = mkstemp(name);
    unlink(name);
    int fd = mkstemp(preset);
    ssize_t n = write(fd, "{}", 2);
    close(fd);
    return messages < 0 || n != 2;
}

static int teardown(void **state)
{
    unlink(preset);
    return close(messages);
}

/* A value that the option takes. */
static const char *value_of(const struct opt *o)
{
    static char text[64];
    if (o->id == OPT_preset)
        return preset;
    switch (o->type) {
    case OPT_FLAG:
    case OPT_FLAG_FILE:
    case OPT_HEADING:
        return NULL;
    case OPT_INT:
    case OPT_INTS:
    case OPT_SIZE:
        snprintf(text, sizeof(text), "%lld", (long long)o->imin + 3);
        return text;
    case OPT_NUMBER:
        snprintf(text, sizeof(text), "%g", (o->min + o->max) / 2);
        return text;
    case OPT_CHOICE:
        snprintf(text, sizeof(text), "%.*s", (int)strcspn(o->choices, "|"),
                 o->choices);
        return text;
    default:
        return "x=y";
    }
}

/* Parse a command line of options, and get its message. */
static int parse(const struct verb *v, const struct opt *const *o, size_t n,
                 char *message, size_t size)
{
    char words[4][100], *argv[6];
    int argc = 0;
    struct opt_parsed p;
    for (size_t i = 0; i < n; i++) {
        const char *value = value_of(o[i]);
        snprintf(words[i], sizeof(words[i]), "--%s%s%s", o[i]->name,
                 value ? "=" : "", value ? value : "");
        argv[argc++] = words[i];
    }
    static char no_config[] = "--no-config";
    argv[argc++] = no_config;
    argv[argc] = NULL;
    int old = dup(STDERR_FILENO);
    assert_true(old >= 0 && ftruncate(messages, 0) == 0 &&
                lseek(messages, 0, SEEK_SET) == 0 &&
                dup2(messages, STDERR_FILENO) >= 0);
    int rc = opt_parse(&p, v, argc, argv);
    opt_free(&p);
    assert_true(dup2(old, STDERR_FILENO) >= 0);
    close(old);
    ssize_t k = pread(messages, message, size - 1, 0);
    message[k > 0 ? k : 0] = 0;
    return rc;
}

/* The option prints instead of setting something. */
static bool prints(const struct opt *o)
{
    return o->id == OPT_help || o->id == OPT_version ||
           o->id == OPT_show_config || o->id == OPT_no_config;
}

/* The rules of relations.c as numbers of pairs: a rule that is lost, or that names
 * another option, changes them. A new option without rules changes neither. Rules
 * with a condition are not counted; options.bats has those. */
enum { EXCLUDED = 346, NEEDS = 38 };

static void options_alone(void **state)
{
    char text[1000];
    size_t n_needs = 0;
    for (size_t i = 0; verbs[i]; i++)
        for (const struct opt *o = NULL; (o = opt_next(verbs[i], o));) {
            struct buf needs = {0};
            if (prints(o))
                continue;
            opt_needs(&needs, verbs[i], o->id);
            assert_false(needs.failed);
            n_needs += needs.len > 0;
            int rc = parse(verbs[i], &o, 1, text, sizeof(text));
            if (rc != (needs.len ? 2 : -1) ||
                (needs.len ? !strstr(text, needs.data) : *text != 0))
                fail_msg("%s --%s: %d, \"%s\"", verbs[i]->name, o->name, rc,
                         text);
            buf_free(&needs);
        }
    assert_int_equal(n_needs, NEEDS);
}

/* Check two options of a verb, in both orders. */
static void check_pair(const struct verb *v, const struct opt *a,
                       const struct opt *b)
{
    const struct opt *const ab[] = {a, b}, *const ba[] = {b, a};
    char text[1000], other[1000];
    bool excluded = opt_excludes(v, a->id, b->id);
    int rc = parse(v, ab, 2, text, sizeof(text));
    int rc2 = parse(v, ba, 2, other, sizeof(other));
    bool says = strstr(text, "cannot be combined") ||
                strstr(text, "has no effect");
    if (rc != rc2 || (rc != -1 && rc != 2) || (rc == 2) != says ||
        (excluded && rc != 2) || (rc == -1 && *text) ||
        strcmp(text, other) != 0)
        fail_msg("%s --%s --%s: %d and %d, %s; \"%s\", \"%s\"", v->name, a->name,
                 b->name, rc, rc2, excluded ? "excluded" : "not excluded", text,
                 other);
}

static void pairs(void **state)
{
    size_t n = 0, n_excluded = 0;
    for (size_t i = 0; verbs[i]; i++)
        for (const struct opt *a = NULL; (a = opt_next(verbs[i], a));)
            for (const struct opt *b = a; (b = opt_next(verbs[i], b));)
                if (!prints(a) && !prints(b)) {
                    check_pair(verbs[i], a, b);
                    n_excluded += opt_excludes(verbs[i], a->id, b->id);
                    n++;
                }
    print_message("%zu pairs\n", n);
    assert_true(n > 5000);
    assert_int_equal(n_excluded, EXCLUDED);
}

/* main.c finds the verb before it parses: a name must take a value in all verbs or
 * in none, and a letter must mean one option of a verb. */
static void rows_agree(void **state)
{
    for (size_t i = 0; verbs[i]; i++)
        for (const struct opt *o = NULL; (o = opt_next(verbs[i], o));) {
            const struct opt *first =
                opt_find(opt_verb_with(o->name), o->name);
            assert_int_equal(value_of(o) == NULL, value_of(first) == NULL);
            assert_ptr_equal(opt_find(verbs[i], o->name), o);
            assert_ptr_equal(opt_row(verbs[i], o->id), o);
            const struct opt *meant =
                o->letter ? opt_find_letter(verbs[i], o->letter, true) : o;
            assert_true(meant == o || (meant->letter_late && !o->letter_late));
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(options_alone),
        cmocka_unit_test(pairs),
        cmocka_unit_test(rows_agree),
    };
    for (char **at = environ; *at;)
        if (strncmp(*at, "QWICK_", 6) == 0) {
            char *name = strndup(*at, strcspn(*at, "="));
            unsetenv(name);
            free(name);
            at = environ;
        } else {
            at++;
        }
    return cmocka_run_group_tests(tests, setup, teardown);
}
