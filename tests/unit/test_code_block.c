/* The first fenced code block of a text. The command line is not a library, so
 * its file is compiled into the test. */
#include "test.h"

#include <stdlib.h>
#include <string.h>

#include "text/chat/code_block.h"

/* Text, and the content of its first block when the text is complete; NULL:
 * it has no block. */
static const struct {
    const char *text, *content;
} cases[] = {
    {"", NULL},
    {"no block", NULL},
    {"```\nls\n```\n", "ls\n"},
    {"```\nls\n```", "ls\n"},
    {"Use this:\n\n```sh\nls -la\n```\n\nor\n```\ndir\n```\n", "ls -la\n"},
    {"~~~\nls\n~~~\n", "ls\n"},
    {"```\n~~~\n```", "~~~\n"},
    {"~~~ a`b`c ~~~\nls\n~~~\n", "ls\n"},
    /* a line of backticks with a backtick in its info is inline code */
    {"```ls```\n```\nx\n```\n", "x\n"},
    {"``` a`b\nls\n```\n", ""},
    /* two are no fence */
    {"``\nls\n``\n", NULL},
    {"a ```\nls\n", NULL},
    /* a closing fence is at least as long, and has nothing behind it */
    {"````\n```\nls\n```\n````\n", "```\nls\n```\n"},
    {"```\nls\n``\n`````\n", "ls\n``\n"},
    {"```\nls\n``` sh\n```  \t\n", "ls\n``` sh\n"},
    {"```\nls\n~~~\n```", "ls\n~~~\n"},
    {"```\nls\n```\r\n", "ls\n"},
    {"```\r\nls\r\n```\r\n", "ls\r\n"},
    {"```\nls\n   ```\n", "ls\n"},
    {"```\nls\n    ```\n", "ls\n    ```\n"},
    {"```\nls\n\t```\n", "ls\n\t```\n"},
    /* the content loses the indent of the fence, as far as it has it */
    {"  ```\n  a\n b\nc\n    d\n  ```\n", "a\nb\nc\n  d\n"},
    {"1. so:\n\n   ```sh\n   ls\n\n     x\n   ```\n", "ls\n\n  x\n"},
    {"      ```\n      ls\n      ```\n", "ls\n"},
    {"\t```\n\tls\n    x\n\t```\n", "ls\nx\n"},
    {"  ```\n\tls\n  ```\n", "  ls\n"},
    {" \t```\n  \tls\n\t```\n", "ls\n"},
    /* the end of the text closes the block */
    {"```\n", ""},
    {"```", ""},
    {"```\n```", ""},
    {"```\n\n\n```", "\n\n"},
    {"```\nls", "ls"},
    {"```\nls\n", "ls\n"},
    {"```\nls\n``", "ls\n``"},
    {"> ```\n> ls\n> ```\n", NULL},
    {"- ```\n  ls\n", NULL},
};

enum { N_CASES = sizeof(cases) / sizeof(*cases) };

static void check(const struct code_block *c, size_t i)
{
    const char *want = cases[i].content;
    if (want
            ? c->state != CODE_BLOCK_CLOSED || c->content.len != strlen(want) ||
                  memcmp(want, c->content.data ? c->content.data : "",
                         c->content.len) != 0
            : c->state != CODE_BLOCK_NONE)
        fail_msg("case %zu, \"%s\": state %d, content \"%.*s\"", i,
                 cases[i].text, c->state, (int)c->content.len,
                 c->content.data ? c->content.data : "");
}

static void whole_texts(void **state)
{
    for (size_t i = 0; i < N_CASES; i++) {
        struct code_block c = {0};
        assert_int_equal(
            code_block_feed(&c, cases[i].text, strlen(cases[i].text)), 0);
        assert_int_equal(code_block_end(&c, true), 0);
        check(&c, i);
        code_block_free(&c);
    }
}

static void feed(struct code_block *c, const char *text, size_t n)
{
    assert_int_equal(code_block_feed(c, text, n), 0);
}

/* Each text in two pieces at every place, and byte by byte. */
static void pieces_make_no_difference(void **state)
{
    for (size_t i = 0; i < N_CASES; i++) {
        const char *text = cases[i].text;
        size_t n = strlen(text);
        for (size_t cut = 0; cut <= n; cut++) {
            struct code_block c = {0};
            feed(&c, text, cut);
            feed(&c, text + cut, n - cut);
            assert_int_equal(code_block_end(&c, true), 0);
            check(&c, i);
            code_block_free(&c);
        }
        struct code_block c = {0};
        for (size_t k = 0; k < n; k++)
            feed(&c, text + k, 1);
        assert_int_equal(code_block_end(&c, true), 0);
        check(&c, i);
        code_block_free(&c);
    }
}

static enum code_block_state state_of(const char *text, bool end)
{
    struct code_block c = {0};
    assert_int_equal(code_block_feed(&c, text, strlen(text)), 0);
    if (end)
        assert_int_equal(code_block_end(&c, false), 0);
    enum code_block_state s = c.state;
    code_block_free(&c);
    return s;
}

/* A cut text closes no block, unless its last line is the closing fence. */
static void cut_texts(void **state)
{
    assert_int_equal(state_of("```\nls\n``", true), CODE_BLOCK_OPEN);
    assert_int_equal(state_of("```\nls\n", true), CODE_BLOCK_OPEN);
    assert_int_equal(state_of("```sh", true), CODE_BLOCK_OPEN);
    assert_int_equal(state_of("```\nls\n```", true), CODE_BLOCK_CLOSED);
    assert_int_equal(state_of("text", true), CODE_BLOCK_NONE);
    /* the rest of the line may still make it content */
    assert_int_equal(state_of("```\nls\n```", false), CODE_BLOCK_OPEN);
    assert_int_equal(state_of("```\nls\n```\n", false), CODE_BLOCK_CLOSED);
}

static void nothing_is_read_after_the_end(void **state)
{
    struct code_block c = {0};
    const char text[] = "```\nls\n```\nrest\n```\nx\n```\n";
    for (int i = 0; i < 3; i++)
        assert_int_equal(code_block_feed(&c, text, strlen(text)), 0);
    assert_string_equal(c.content.data, "ls\n");
    assert_int_equal(c.line.len, 0);
    code_block_free(&c);
}

static void empty_contents(void **state)
{
    struct code_block c = {0};
    assert_true(code_block_is_empty(&c));
    assert_int_equal(buf_puts(&c.content, " \t\r\n"), 0);
    assert_true(code_block_is_empty(&c));
    assert_int_equal(buf_append(&c.content, "", 1), 0);
    assert_false(code_block_is_empty(&c));
    code_block_free(&c);
}

/* Texts may hold any bytes. */
static void random_bytes_are_read_in_any_pieces(void **state)
{
    static const char alphabet[] = "``~~ \t\r\n\n\0a";
    uint64_t seed = 12345;
    for (int round = 0; round < 20000; round++) {
        char text[40];
        struct code_block a = {0}, b = {0};
        for (size_t i = 0; i < sizeof(text); i++) {
            seed = seed * 6364136223846793005u + 1442695040888963407u;
            text[i] = alphabet[(seed >> 33) % (sizeof(alphabet) - 1)];
        }
        if (round % 2) /* half of them begin with a fence */
            memcpy(text, "```\n", 4);
        assert_int_equal(code_block_feed(&a, text, sizeof(text)), 0);
        for (size_t i = 0; i < sizeof(text); i++)
            assert_int_equal(code_block_feed(&b, text + i, 1), 0);
        assert_int_equal(code_block_end(&a, round % 3), 0);
        assert_int_equal(code_block_end(&b, round % 3), 0);
        assert_int_equal(a.state, b.state);
        assert_int_equal(a.content.len, b.content.len);
        if (a.content.len)
            assert_memory_equal(a.content.data, b.content.data, a.content.len);
        code_block_free(&a);
        code_block_free(&b);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(whole_texts),
        cmocka_unit_test(pieces_make_no_difference),
        cmocka_unit_test(cut_texts),
        cmocka_unit_test(nothing_is_read_after_the_end),
        cmocka_unit_test(empty_contents),
        cmocka_unit_test(random_bytes_are_read_in_any_pieces),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
