/* The text that a reader gets from a stream of tokens: the split between
 * thinking and text, stop strings, characters held back until they are
 * complete. */
#include "test.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/rng.h"
#include "base/utf8.h"
#include "engine/generate/stream.h"

#define FFFD "\xEF\xBF\xBD"

/* ---- by hand ---- */

struct reader {
    struct stream s;
    struct buf seen[2]; /* increments, by channel */
    bool stopped;
};

static void reader_init(struct reader *r, const char *const *stop,
                        size_t n_stop, bool in_think)
{
    *r = (struct reader){0};
    stream_init(&r->s, stop, n_stop, in_think, NULL);
}

static void reader_free(struct reader *r)
{
    stream_free(&r->s);
    buf_free(&r->seen[0]);
    buf_free(&r->seen[1]);
}

/* Whether p[0..n) is whole valid characters. */
static bool valid(const char *p, size_t n)
{
    size_t i = 0, len;
    while (i < n && (len = utf8_decode(p + i, n - i, NULL, NULL)) > 0)
        i += len;
    return i == n;
}

static void note(struct reader *r, enum qwick_channel c, size_t from)
{
    struct buf *b = stream_buf(&r->s, c);
    assert_true(from <= b->len);
    if (!b->len)
        return;
    assert_true(valid(b->data + from, b->len - from));
    assert_int_equal(buf_append(&r->seen[c], b->data + from, b->len - from), 0);
}

static void feed(struct reader *r, const char *p, size_t n, bool last)
{
    size_t from;
    enum qwick_channel c = r->s.channel;
    assert_int_equal(stream_add(&r->s, p, n, last, &from, &r->stopped), 0);
    note(r, c, from);
}

static void turn(struct reader *r, enum qwick_channel to)
{
    size_t from;
    enum qwick_channel c = r->s.channel;
    assert_int_equal(stream_switch(&r->s, to, &from), 0);
    note(r, c, from);
    assert_int_equal(r->s.channel, to);
}

static void add(struct reader *r, const char *text)
{
    feed(r, text, strlen(text), false);
}

static void end(struct reader *r)
{
    feed(r, "", 0, true);
}

static void expect(struct reader *r, const char *text, const char *thinking)
{
    const char *want[2] = {text, thinking};
    for (int c = 0; c < 2; c++) {
        struct buf *b = stream_buf(&r->s, (enum qwick_channel)c);
        const char *got = b->data ? b->data : "";
        assert_string_equal(got, want[c]);
        const char *seen = r->seen[c].data ? r->seen[c].data : "";
        assert_string_equal(seen, want[c]);
    }
}

/* The label of a block is dropped, however it is divided. Another beginning, or
 * a part of the label, is thinking. */
static void labels_are_dropped(void **state)
{
    static const struct {
        const char *thinking, *want;
    } rows[] = {
        {"thought\nI see.\n", "I see."},
        {"thought", ""},
        {"though", "though"},
        {"thus", "thus"},
        {"\nthought", "thought"},
        {"thoughts", "s"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        size_t n = strlen(rows[i].thinking);
        for (size_t cut = 0; cut <= n; cut++) {
            struct reader r;
            reader_init(&r, NULL, 0, false);
            r.s.label = "thought";
            add(&r, "thought ");
            turn(&r, QWICK_THINKING);
            feed(&r, rows[i].thinking, cut, false);
            feed(&r, rows[i].thinking + cut, n - cut, false);
            turn(&r, QWICK_TEXT);
            add(&r, "\nthought");
            end(&r);
            expect(&r, "thought thought", rows[i].want);
            reader_free(&r);
        }
    }
}

/* Bytes that are no part of stop strings are given at once. */
static void stop_strings_may_rest(void **state)
{
    static const char *const stop[] = {"abc", "x"};
    struct reader r;
    reader_init(&r, stop, 2, false);
    add(&r, "1ab");
    expect(&r, "1", "");
    r.s.unstopped = true;
    add(&r, "c x");
    expect(&r, "1abc x", "");
    add(&r, "ab");
    expect(&r, "1abc xab", "");
    r.s.unstopped = false;
    add(&r, "c");
    assert_false(r.stopped);
    add(&r, "2abc");
    assert_true(r.stopped);
    expect(&r, "1abc xabc2", "");
    reader_free(&r);
}

static void text_passes_through(void **state)
{
    struct reader r;
    reader_init(&r, NULL, 0, false);
    add(&r, "\nHello");
    expect(&r, "\nHello", ""); /* no think block, so nothing is trimmed */
    add(&r, "");
    add(&r, " world\n");
    expect(&r, "\nHello world\n", "");
    end(&r);
    expect(&r, "\nHello world\n", "");
    assert_false(r.s.thought);
    reader_free(&r);
}

static void thinking_is_split_and_trimmed(void **state)
{
    struct reader r;
    reader_init(&r, NULL, 0, false);
    turn(&r, QWICK_THINKING);
    add(&r, "\n");
    add(&r, "\nfirst\n");
    expect(&r, "", "first");
    add(&r, "\n");
    add(&r, "second");
    expect(&r, "", "first\n\nsecond");
    add(&r, "\n");
    turn(&r, QWICK_TEXT);
    add(&r, "\n\n");
    expect(&r, "", "first\n\nsecond");
    add(&r, "\nanswer\n");
    add(&r, "\nmore");
    end(&r);
    expect(&r, "answer\n\nmore", "first\n\nsecond");
    assert_true(r.s.thought);
    reader_free(&r);
    /* the template opened the block; the answer only closes it */
    reader_init(&r, NULL, 0, true);
    add(&r, "\nwhy");
    turn(&r, QWICK_TEXT);
    add(&r, "\n\nso");
    end(&r);
    expect(&r, "so", "why");
    assert_true(r.s.thought);
    reader_free(&r);
    /* an empty block does not count as thinking */
    reader_init(&r, NULL, 0, false);
    turn(&r, QWICK_THINKING);
    add(&r, "\n\n");
    turn(&r, QWICK_TEXT);
    add(&r, "\n\n x");
    end(&r);
    expect(&r, " x", "");
    assert_false(r.s.thought);
    reader_free(&r);
    /* cut off while it thinks */
    reader_init(&r, NULL, 0, true);
    add(&r, "hm\n\n");
    feed(&r, "\n", 1, true);
    expect(&r, "", "hm");
    reader_free(&r);
    /* a closing token without an opening one, and two blocks */
    reader_init(&r, NULL, 0, false);
    add(&r, "a");
    turn(&r, QWICK_TEXT);
    add(&r, "\nb");
    turn(&r, QWICK_THINKING);
    add(&r, "c\n");
    turn(&r, QWICK_TEXT);
    turn(&r, QWICK_THINKING);
    add(&r, "\nd");
    turn(&r, QWICK_TEXT);
    end(&r);
    assert_string_equal(r.s.text.data, "ab");
    assert_string_equal(r.seen[QWICK_TEXT].data, "ab");
    assert_memory_equal(r.s.thinking.data, "c", 1);
    assert_int_equal(r.s.thinking.data[r.s.thinking.len - 1], 'd');
    reader_free(&r);
}

static void stop_strings_cross_tokens(void **state)
{
    static const char *const stop[] = {"STOP"};
    struct reader r;
    reader_init(&r, stop, 1, false);
    add(&r, "go S");
    expect(&r, "go ", "");
    add(&r, "TO");
    expect(&r, "go ", "");
    assert_false(r.stopped);
    add(&r, "P on");
    assert_true(r.stopped);
    expect(&r, "go ", "");
    reader_free(&r);
    /* not a stop string after all: the held text is released */
    reader_init(&r, stop, 1, false);
    add(&r, "STO");
    expect(&r, "", "");
    add(&r, "RE STSTO");
    expect(&r, "STORE ST", "");
    add(&r, "P");
    assert_true(r.stopped);
    expect(&r, "STORE ST", "");
    reader_free(&r);
    /* the end releases a part of a stop string */
    reader_init(&r, stop, 1, false);
    add(&r, "xST");
    end(&r);
    assert_false(r.stopped);
    expect(&r, "xST", "");
    reader_free(&r);
    /* stop strings that end in the last token, or begin at the very start */
    reader_init(&r, stop, 1, false);
    feed(&r, "STOP", 4, true);
    assert_true(r.stopped);
    expect(&r, "", "");
    reader_free(&r);
    /* stop strings are searched only in the answer */
    reader_init(&r, stop, 1, true);
    add(&r, "a STOP b ST");
    assert_false(r.stopped);
    turn(&r, QWICK_TEXT);
    add(&r, "OP STO");
    expect(&r, "OP ", "a STOP b ST");
    turn(&r, QWICK_THINKING);
    expect(&r, "OP STO", "a STOP b ST");
    reader_free(&r);
}

static void the_first_complete_stop_string_wins(void **state)
{
    static const char *const stop[] = {"abcd", "bc", "c", "xabcd"};
    struct reader r;
    for (int whole = 0; whole < 2; whole++) {
        /* "c" and "bc" end together, before "abcd" does */
        reader_init(&r, stop, 4, false);
        for (size_t i = 0; i < 5 && !r.stopped; i++)
            feed(&r, &"zabcd"[i], whole ? 5 : 1, false);
        assert_true(r.stopped);
        expect(&r, "za", "");
        reader_free(&r);
    }
    static const char *const aa[] = {"aab"};
    reader_init(&r, aa, 1, false);
    add(&r, "aaa");
    expect(&r, "a", "");
    add(&r, "ab");
    assert_true(r.stopped);
    expect(&r, "aa", "");
    reader_free(&r);
}

/* Newlines after a think block are not part of the text, so they cannot
 * complete a stop string. */
static void stop_strings_of_new_lines(void **state)
{
    static const char *const stop[] = {"\n\n"};
    struct reader r;
    for (int whole = 0; whole < 2; whole++) {
        static const char text[] = "\n\n\nanswer\n\nmore";
        reader_init(&r, stop, 1, true);
        add(&r, "think\n\nmore");
        turn(&r, QWICK_TEXT);
        for (size_t i = 0; i < sizeof text - 1 && !r.stopped; i++)
            feed(&r, text + i, whole ? sizeof text - 1 : 1, false);
        assert_true(r.stopped);
        expect(&r, "answer", "think\n\nmore");
        reader_free(&r);
    }
}

static void characters_come_whole(void **state)
{
    struct reader r;
    reader_init(&r, NULL, 0, false);
    add(&r, "a\xF0");
    expect(&r, "a", "");
    add(&r, "\x9F\x98");
    expect(&r, "a", "");
    add(&r, "\x80\xC3");
    expect(&r, "a\xF0\x9F\x98\x80", "");
    add(&r, "\xA9");
    expect(&r, "a\xF0\x9F\x98\x80\xC3\xA9", "");
    add(&r, "\xE2\x82");
    end(&r);
    expect(&r, "a\xF0\x9F\x98\x80\xC3\xA9" FFFD, "");
    reader_free(&r);
    reader_init(&r, NULL, 0, true);
    add(&r, "b\xE2\x82");
    expect(&r, "", "b");
    turn(&r, QWICK_TEXT); /* now the stop string cannot be completed */
    expect(&r, "", "b" FFFD);
    add(&r, "\xAC\xFF\x80z");
    expect(&r, FFFD FFFD FFFD "z", "b" FFFD);
    reader_free(&r);
    reader_init(&r, NULL, 0, false);
    feed(&r, "x\0y", 3, true); /* NUL is an ordinary character */
    assert_int_equal(r.s.text.len, 3);
    assert_memory_equal(r.s.text.data, "x\0y", 3);
    reader_free(&r);
    /* a stop string of bytes inside a character */
    static const char *const stop[] = {"\x82\xAC"};
    reader_init(&r, stop, 1, false);
    add(&r, "x\xE2\x82");
    expect(&r, "x", "");
    add(&r, "\xAC");
    assert_true(r.stopped);
    expect(&r, "x" FFFD, "");
    reader_free(&r);
}

/* ---- at random ---- */

struct piece {
    bool turn;
    enum qwick_channel to;
    struct buf bytes;
};

static uint64_t seed, counter;

static size_t pick(size_t n)
{
    return (size_t)(rng_uniform(seed, counter++) * (double)n);
}

/* The expected result of the pieces, computed simply from whole blocks. */
static void whole(const struct piece *p, size_t n, bool in_think,
                  const char *const *stop, size_t n_stop, struct buf *out,
                  bool *stopped)
{
    bool trim = in_think;
    enum qwick_channel c = in_think ? QWICK_THINKING : QWICK_TEXT;
    *stopped = false;
    for (size_t i = 0; i < n && !*stopped; i++) {
        if (p[i].turn) {
            c = p[i].to;
            trim = true;
            continue;
        }
        const char *s = p[i].bytes.data;
        size_t len = p[i].bytes.len;
        while (trim && len && *s == '\n') {
            s++;
            len--;
        }
        while (c == QWICK_THINKING && len && s[len - 1] == '\n')
            len--;
        for (size_t e = 1; c == QWICK_TEXT && e <= len && !*stopped; e++) {
            size_t longest = 0;
            for (size_t k = 0; k < n_stop; k++) {
                size_t m = strlen(stop[k]);
                if (m <= e && m > longest && !memcmp(s + e - m, stop[k], m))
                    longest = m;
            }
            if (longest) {
                *stopped = true;
                len = e - longest;
            }
        }
        /* a second think block begins on a new line */
        if (c == QWICK_THINKING && len && i > 0 && out[c].len)
            assert_int_equal(buf_putc(&out[c], '\n'), 0);
        assert_int_equal(utf8_sanitize(&out[c], s, len), 0);
    }
}

static void any_cuts_give_the_same_text(void **state)
{
    static const char *const parts[] = {
        "a",           "b",    "ab",   "\n",           "\n\n",
        " ",           "\xC3", "\xA9", "\xE2\x82\xAC", "\xF0\x9F\x98\x80",
        "\xF0",        "\x9F", "\xFF", "\xE1\x80",     "c",
        "\xED\xA0\x80"};
    static const char *const stops[] = {"ab",
                                        "aab",
                                        "b\n",
                                        "\n\n",
                                        "c",
                                        "\xE2\x82\xAC",
                                        "\xA9"
                                        "a",
                                        "bab",
                                        "a b",
                                        "\xF0\x9F"};
    enum {
        N_PARTS = sizeof parts / sizeof *parts,
        N_STOPS = sizeof stops / sizeof *stops,
        PIECES = 5
    };
    size_t n_stopped = 0;
    for (seed = 1; seed <= 3000; seed++) {
        counter = 0;
        struct piece p[PIECES] = {0};
        const char *stop[3];
        size_t n_stop = pick(4);
        for (size_t i = 0; i < n_stop; i++)
            stop[i] = stops[pick(N_STOPS)];
        bool in_think = pick(2), stopped;
        for (size_t i = 0; i < PIECES; i++) {
            p[i].turn = i % 2;
            p[i].to = pick(2) ? QWICK_TEXT : QWICK_THINKING;
            for (size_t k = pick(12); k-- > 0;)
                assert_int_equal(buf_puts(&p[i].bytes, parts[pick(N_PARTS)]),
                                 0);
        }
        struct buf want[2] = {{0}, {0}};
        whole(p, PIECES, in_think, stop, n_stop, want, &stopped);
        n_stopped += stopped;
        for (int round = 0; round < 6; round++) {
            struct reader r;
            reader_init(&r, stop, n_stop, in_think);
            for (size_t i = 0; i < PIECES && !r.stopped; i++) {
                if (p[i].turn) {
                    turn(&r, p[i].to);
                    continue;
                }
                size_t len = p[i].bytes.len, most = round ? 4 : 1;
                for (size_t at = 0; at < len && !r.stopped;) {
                    size_t m = round == 1 ? len : 1 + pick(most);
                    if (m > len - at)
                        m = len - at;
                    if (pick(8) == 0)
                        m = 0;
                    feed(&r, p[i].bytes.data + at, m, false);
                    at += m;
                }
            }
            if (!r.stopped)
                end(&r);
            assert_int_equal(r.stopped, stopped);
            for (int c = 0; c < 2; c++) {
                struct buf *got = stream_buf(&r.s, (enum qwick_channel)c);
                if (got->len != want[c].len ||
                    (got->len &&
                     memcmp(got->data, want[c].data, got->len) != 0))
                    fail_msg("seed %zu, round %d, channel %d", (size_t)seed,
                             round, c);
                assert_int_equal(r.seen[c].len, got->len);
                if (got->len)
                    assert_memory_equal(r.seen[c].data, got->data, got->len);
            }
            reader_free(&r);
        }
        for (size_t i = 0; i < PIECES; i++)
            buf_free(&p[i].bytes);
        buf_free(&want[0]);
        buf_free(&want[1]);
    }
    /* both outcomes must be frequent, or the test proves little */
    assert_true(n_stopped > 300 && n_stopped < 2700);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(stop_strings_may_rest),
        cmocka_unit_test(text_passes_through),
        cmocka_unit_test(labels_are_dropped),
        cmocka_unit_test(thinking_is_split_and_trimmed),
        cmocka_unit_test(stop_strings_cross_tokens),
        cmocka_unit_test(the_first_complete_stop_string_wins),
        cmocka_unit_test(stop_strings_of_new_lines),
        cmocka_unit_test(characters_come_whole),
        cmocka_unit_test(any_cuts_give_the_same_text),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
