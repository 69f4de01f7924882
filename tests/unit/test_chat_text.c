/* Messages and commands of chat, as they are typed. The command line is not a
 * library, so its files are compiled into the test. */
#include "test.h"

#include <stdlib.h>
#include <string.h>

#include "cli/chat/chat_command.c"
#include "cli/chat/chat_text.c"

/* ---- messages ---- */

/* Type lines, which have NULL at the end. Returns whether the last one, and
 * only that one, completes the message. */
static bool type(struct chat_text *t, const char *const *lines)
{
    bool complete = false;
    chat_text_clear(t);
    for (; *lines; lines++) {
        assert_false(complete);
        assert_int_equal(chat_text_add(t, *lines, strlen(*lines), &complete),
                         0);
    }
    return complete;
}

/* Check a message, and that its entry of the history gives it again. */
static void check_message(const char *text, bool block, const char *entry,
                          const char *const *lines)
{
    struct chat_text t = {0}, again = {0};
    struct buf b = {0};
    assert_true(type(&t, lines));
    assert_int_equal(t.text.len, strlen(text));
    if (*text)
        assert_string_equal(t.text.data, text);
    assert_int_equal(t.block, block);
    assert_int_equal(chat_text_entry(&t, &b), 0);
    assert_int_equal(b.len, strlen(entry));
    if (b.len) {
        assert_string_equal(b.data, entry);
        assert_true(type(&again, (const char *const[]){b.data, NULL}));
        assert_string_equal(again.text.data, text);
    }
    buf_free(&b);
    chat_text_free(&t);
    chat_text_free(&again);
}

#define MESSAGE(text, block, entry, ...) \
    check_message(text, block, entry, (const char *const[]){__VA_ARGS__, NULL})

static void test_messages(void **state)
{
    MESSAGE("one", false, "one", "one");
    MESSAGE("one\ntwo", false, "one\ntwo", "one\\", "two");
    MESSAGE("one\n\ntwo", false, "one\n\ntwo", "one\\", "\\", "two");
    MESSAGE("one\\\ntwo", false, "one\\\ntwo", "one\\\ntwo"); /* a paste */
    MESSAGE("say \"\"\"", false, "say \"\"\"", "say \"\"\"");
    MESSAGE("a\nb", true, "a\nb", "\"\"\"", "a", "b", "\"\"\" ");
    MESSAGE("\na\n", true, "\na\n", "\"\"\"", "", "a", "", "\"\"\"");
    MESSAGE("a\nb\nc", true, "a\nb\nc", "\"\"\"", "a\nb", "c\n\"\"\"");
    MESSAGE("", true, "", "\"\"\"", "\"\"\"");
    /* as typed lines these would be something else */
    MESSAGE("/help", true, "\"\"\"\n/help\n\"\"\"", "\"\"\"", "/help",
            "\"\"\"");
    MESSAGE(" /help", true, "\"\"\"\n /help\n\"\"\"", "\"\"\"", " /help",
            "\"\"\"");
    MESSAGE("a\\", true, "\"\"\"\na\\\n\"\"\"", "\"\"\"", "a\\", "\"\"\"");
    MESSAGE("/help", false, "/help", "/help");
}

static void test_open(void **state)
{
    struct chat_text t = {0};
    assert_false(type(&t, (const char *const[]){"a\\", NULL}));
    assert_true(t.open);
    assert_false(type(&t, (const char *const[]){"\"\"\"", "a", NULL}));
    assert_true(t.open && t.block);
    assert_false(type(&t, (const char *const[]){"\"\"\"", "\"\"\"x", NULL}));
    chat_text_clear(&t);
    assert_false(t.open || t.block);
    chat_text_free(&t);
}

/* ---- commands ---- */

static const struct chat_command rows[] = {
    {.name = "help"},    {.name = "think"},
    {.name = "nothink"}, {.name = "stats"},
    {.name = "save"},    {.name = "system"},
    {.name = "?"},       {0},
};

static void test_form(void **state)
{
    static const char *const commands[] = {"/help", "/x",     "/HELP", "/a b",
                                           "/a\nb", "/help ", "/?",    "/? "};
    static const char *const texts[] = {"",    "/",     "//",      "/etc/fstab",
                                        "a",   "/ a",   "/* c */", "/1",
                                        "/a1", " /help"};
    for (size_t i = 0; i < sizeof(commands) / sizeof(*commands); i++)
        assert_true(chat_command_is(commands[i]));
    for (size_t i = 0; i < sizeof(texts) / sizeof(*texts); i++)
        assert_false(chat_command_is(texts[i]));
    assert_int_equal(chat_command_skip(" /help"), 1);
    assert_int_equal(chat_command_skip("\t /help me"), 2);
    assert_int_equal(chat_command_skip("/help"), 0);
    assert_int_equal(chat_command_skip(" /etc/fstab"), 0);
    assert_int_equal(chat_command_skip(" text"), 0);
}

static void test_find(void **state)
{
    const char *arg;
    assert_ptr_equal(chat_command_find(rows, "/think  on", &arg), &rows[1]);
    assert_string_equal(arg, "on");
    assert_ptr_equal(chat_command_find(rows, "/Help", &arg), &rows[0]);
    assert_string_equal(arg, "");
    assert_null(chat_command_find(rows, "/hel", &arg));
    assert_null(chat_command_find(rows, "/helpme", &arg));

    assert_string_equal(chat_command_near(rows, "/hlep"), "help");
    assert_string_equal(chat_command_near(rows, "/h x"), "help");
    assert_string_equal(chat_command_near(rows, "/THINGK"), "think");
    assert_string_equal(chat_command_near(rows, "/sy"), "system");
    assert_null(chat_command_near(rows, "/frobnicate"));
    assert_null(chat_command_near(rows, "/q"));
    assert_null(chat_command_near(
        rows, "/aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"));
}

static void check_file(const char *arg, bool whole, const char *file,
                       const char *rest)
{
    struct buf b = {0};
    const char *got;
    assert_null(chat_command_file(arg, whole, &b, &got));
    assert_int_equal(b.len, strlen(file));
    if (b.len)
        assert_string_equal(b.data, file);
    assert_string_equal(got, rest);
    buf_free(&b);
}

static void check_no_file(const char *arg, bool whole, const char *why)
{
    struct buf b = {0};
    const char *rest, *got = chat_command_file(arg, whole, &b, &rest);
    assert_non_null(got);
    assert_non_null(strstr(got, why));
    buf_free(&b);
}

static void test_files(void **state)
{
    setenv("HOME", "/home/x", 1);
    check_file("a.txt", false, "a.txt", "");
    check_file("a.txt  what is it?", false, "a.txt", "what is it?");
    check_file("a b.txt", true, "a b.txt", "");
    check_file("a\\ b.txt c", false, "a b.txt", "c");
    check_file("\"a b.txt\" c", false, "a b.txt", "c");
    check_file("\"a \\\"b\\\\\"", true, "a \"b\\", "");
    check_file("~/a", false, "/home/x/a", "");
    check_file("\"~/a b\"", true, "/home/x/a b", "");
    check_file("~a", false, "~a", "");
    check_file("", true, "", "");
    check_no_file("\"a", false, "second");
    check_no_file("\"a\"b", false, "without a blank");
    check_no_file("\"a\" b", true, "text follows");
    unsetenv("HOME");
    check_no_file("~/a", false, "HOME");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_messages), cmocka_unit_test(test_open),
        cmocka_unit_test(test_form),     cmocka_unit_test(test_find),
        cmocka_unit_test(test_files),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
