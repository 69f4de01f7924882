/* Masks of constraints, compared with trying every token; and texts under a
 * constraint, many at a time. */
#include "test.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "engine/generate/class_trie.h"
#include "engine/generate/constraint.h"
#include "engine/generate/token_trie.h"
#include "engines.h"
#include "file/map.h"
#include "text/bpe/bpe.h"
#include "text/grammar/automaton.h"
#include "text/grammar/choices.h"
#include "text/grammar/gbnf.h"
#include "text/grammar/grammar.h"
#include "text/grammar/regex.h"
#include "text/schema/schema.h"

/* Random numbers below n, equal in each run. */
static uint32_t below_state = 11;
static uint32_t below(uint32_t n)
{
    below_state = below_state * 1664525u + 1013904223u;
    return (uint32_t)(((uint64_t)(below_state >> 4) * n) >> 28);
}

static const char json[] =
    "root ::= object\n"
    "value ::= object | array | string | number | \"true\" | \"null\"\n"
    "object ::= \"{\" (member (\",\" member)*)? \"}\"\n"
    "member ::= string \":\" value\n"
    "array ::= \"[\" (value (\",\" value)*)? \"]\"\n"
    "string ::= \"\\\"\" char* \"\\\"\"\n"
    "char ::= [^\"\\\\\\x00-\\x1f] | \"\\\\\" ([\"\\\\/bfnrt] | \"u\" "
    "[0-9a-f]{4})\n"
    "number ::= \"-\"? ([0-9] | [1-9] [0-9]{1,15}) (\".\" [0-9]{1,8})?\n";

/* Ambiguous, and recursive at its beginning's end. */
static const char sums[] =
    "root ::= term (\" \"? [-+*] \" \"? term)*\n"
    "term ::= [a-z]+ | [a-z0-9]+ | \"(\" root \")\" | \"((\" root \"))\"\n";

static const struct {
    const char *text;
    enum { REGEX, GBNF, CHOICES, SCHEMA, ANY_ORDER } kind;
} rows[] = {
    {json, GBNF},
    {sums, GBNF},
    {"[a-z]{2,6}( [a-z]+){0,4}\\.?", REGEX},
    {"\"[^\"\\\\]{0,12}\"(, \"[^\"]*\")*", REGEX},
    {"(.|\\n)*\xC3\xA9(.){3}", REGEX},
    /* long repetitions, of which states are alike */
    {"\"([^\"\\\\]|\\\\.){0,300}\"x{200,260}", REGEX},
    {"([a-z ]|\xC3\xA9){150,180}\\.[a-z]{0,70}", REGEX},
    {"(a?[a-z]?){100}!(([a-z]{40}){35} ){2}", REGEX},
    {"yes,no,yes please,\xE2\x9C\x93 done,not at all", CHOICES},
    /* parts in any order, and strings that differ */
    {"{\"properties\":{\"a\":{\"type\":\"string\"},\"ab\":{\"type\":\"array\","
     "\"items\":"
     "{\"enum\":[1,2,3,12,\"a\",\"b\"]},\"uniqueItems\":true},\"c\":{\"$ref\":"
     "\"#\"}},"
     "\"required\":[\"ab\"],\"additionalProperties\":false,\"type\":"
     "\"object\"}",
     ANY_ORDER},
    {"{\"type\":\"array\",\"items\":{\"type\":\"array\",\"uniqueItems\":true,"
     "\"items\":{\"type\":\"string\",\"pattern\":\"^[ab]*$\"}}}",
     ANY_ORDER},
    /* strings that admit all plain characters, with and without limits */
    {"{\"type\":\"string\",\"pattern\":\"abc\"}", SCHEMA},
    {"{\"type\":\"string\",\"minLength\":2,\"maxLength\":7}", SCHEMA},
    {"{\"type\":\"array\",\"items\":{\"type\":\"string\",\"minLength\":1,"
     "\"maxLength\":45}}",
     SCHEMA},
    {"{\"anyOf\":[{\"enum\":[\"on\",\"off\",\"other\"]},{\"type\":\"string\","
     "\"maxLength\":200}]}",
     SCHEMA},
    /* names that differ from a loop only at their beginning */
    {"{\"properties\":{\"name\":{\"maxLength\":40,\"type\":\"string\"},"
     "\"next\":"
     "{\"type\":\"integer\"},\"no\":{\"type\":\"null\"}},\"type\":\"object\"}",
     SCHEMA},
    {"{\"type\":\"object\",\"patternProperties\":{\"^[0-9a-f]{8}$\":{\"type\":"
     "\"null\"}},\"additionalProperties\":{\"type\":\"boolean\"},\"required\":"
     "[\"id\"]}",
     SCHEMA},
    /* names of several languages, which one walk finds */
    {"{\"type\":\"object\",\"patternProperties\":{\"a\":{\"type\":\"null\"},"
     "\"b\":{\"enum\":[null,1]},\"^c\":{\"maxLength\":9}},\"required\":"
     "[\"cb\"]}",
     SCHEMA},
    /* rules that end after plain characters, so that it does not */
    {"root ::= w \" \" root | v \"-\" root | \"!\"\n"
     "w ::= [a-z] w | [a-z]\nv ::= [a-m0-9] v | [0-9]\n",
     GBNF},
    {"{\"type\":\"string\",\"pattern\":\"^\\\\p{L}[\\\\p{L}\\\\d]{1,200}$\"}",
     SCHEMA},
    {"{\"type\":\"string\",\"format\":\"uri\"}", SCHEMA},
    {"{\"type\":\"string\",\"pattern\":\"^[0-9a-f]{4,40}$\"}", SCHEMA},
    /* a dot matches all plain characters, but no separator of lines */
    {"{\"type\":\"string\",\"pattern\":\"^.*.xsl$\"}", SCHEMA},
    {"{\"type\":\"string\",\"oneOf\":[{\"pattern\":\"ab\"},{\"pattern\":"
     "\"er\"},{\"pattern\":\"in.\"}]}",
     SCHEMA},
    {"{\"type\":\"string\",\"pattern\":\"^(?:\\\\S+\\\\s+){0,9}\\\\S+$\","
     "\"maxLength\":60}",
     SCHEMA},
};

enum { N_ROWS = sizeof rows / sizeof *rows };

static struct grammar *compile_text(const char *text, int kind)
{
    struct qwick_err e = {0};
    struct grammar *g;
    size_t n = strlen(text);
    uint32_t root, node = 0;
    assert_int_equal(grammar_create(&g, "G", NULL), 0);
    const struct schema_options o = {.any_order = kind == ANY_ORDER};
    if (kind == SCHEMA || kind == ANY_ORDER) {
        assert_ok(schema_compile(g, text, n, &o, &root, &e), &e);
    } else if (kind == GBNF) {
        root = gbnf_compile(g, text, n);
    } else {
        root = grammar_rule(g, "all", 3);
        node = kind == REGEX ? regex_compile(g, NULL, text, n, REGEX_WHOLE)
                             : choices_compile(g, text, n);
        grammar_define(g, root, node);
    }
    assert_ok(grammar_finish(g, root, &e), &e);
    return g;
}

static struct grammar *compile(size_t i)
{
    return compile_text(rows[i].text, rows[i].kind);
}

/* Levels of a random expression. */
enum { TOP = 2 };

/* Append a random regular expression. */
static void put_regex(struct buf *b, int depth)
{
    static const char *const atoms[] = {
        "[a-z]", "[0-9a-f]", ".",  "[^\"\\\\\\x00-\\x1f]", "[ -!#-\\[\\]-~]",
        "ab",    "\xC3\xA9", "\"", "[^\\x00-\\x7f]",       "[^a-c]"};
    static const char *const times[] = {"",  "",      "*",      "+",
                                        "?", "{0,3}", "{2,60}", "{0,300}"};
    for (uint32_t i = 0, n = 1 + below(3); i < n; i++) {
        bool group = depth > 0 && below(2);
        if (group) {
            buf_putc(b, '(');
            put_regex(b, depth - 1);
            if (below(2)) {
                buf_putc(b, '|');
                put_regex(b, depth - 1);
            }
            buf_putc(b, ')');
        } else {
            buf_puts(b, atoms[below(sizeof atoms / sizeof *atoms)]);
        }
        /* long repetitions only of atoms outside of groups: the others have
           more states than a test has time for */
        buf_puts(b, times[below(group ? 4 : depth == TOP ? 8 : 5)]);
    }
}

struct tokens {
    struct bpe *bpe;
    struct token_trie *trie;
    size_t n;
    int32_t tags[2];
};

static bool open_tokens(struct tokens *t, const char *path)
{
    struct qwick_err e = {0};
    struct map m;
    if (map_open(&m, path, &e))
        return false;
    assert_ok(bpe_open(&t->bpe, path, (const char *)m.data, m.size, &e), &e);
    map_close(&m);
    t->n = bpe_size(t->bpe);
    t->tags[0] = bpe_added_id(t->bpe, "<tool_call>");
    t->tags[1] = bpe_added_id(t->bpe, "</tool_call>");
    assert_int_equal(
        token_trie_create(&t->trie, t->bpe, t->n, NULL, t->tags, 2, NULL), 0);
    return true;
}

static void close_tokens(struct tokens *t)
{
    token_trie_free(t->trie);
    bpe_close(t->bpe);
}

static bool bit(const uint64_t *mask, size_t i)
{
    return mask[i / 64] >> (i & 63) & 1;
}

/* Added tokens are not text, except the tags of tool calls. */
static bool is_listed(const struct tokens *t, int32_t id)
{
    return !bpe_is_added(t->bpe, id) || id == t->tags[0] || id == t->tags[1];
}

/* The state after a token, by its bytes one by one. */
static uint32_t after(const struct tokens *t, struct automaton *a, uint32_t s,
                      int32_t id)
{
    size_t n;
    const char *p = bpe_token(t->bpe, id, &n);
    if (!p || n == 0 || !is_listed(t, id))
        return AUTOMATON_DEAD;
    for (size_t i = 0; i < n && s != AUTOMATON_DEAD; i++)
        s = automaton_advance(a, s, (unsigned char)p[i]);
    return s;
}

/* Follow a random text for some tokens and compare every mask. */
static void check_grammar(const struct tokens *t, struct grammar *g,
                          const char *name, int n_tokens)
{
    struct qwick_err e = {0};
    struct qwick_constraint *c;
    struct automaton *a;
    struct matcher *m;
    assert_ok(constraint_create(&c, g, "G", t->trie, &e) ||
                  automaton_create(&a, g, &e) || matcher_create(&m, c, &e),
              &e);
    grammar_free(g);
    if (below(2))
        constraint_limit(c, 20000); /* about 20 masks */
    uint32_t s = automaton_start(a);
    for (int k = 0; k < n_tokens; k++) {
        size_t n_ids, n_want = 0, n_long = 0;
        int32_t choice = -1, longer = -1, forced;
        const uint64_t *mask = matcher_mask(m, &n_ids, &e);
        if (!mask)
            fail_msg("%s", e.msg);
        for (size_t i = 0; i < t->n; i++) {
            bool want = after(t, a, s, (int32_t)i) != AUTOMATON_DEAD;
            if (bit(mask, i) != want)
                fail_msg("%s: token %d of the text: id %zu: want %d", name, k,
                         i, want);
            n_want += want;
            size_t n = 0;
            if (want && below((uint32_t)n_want) == 0)
                choice = (int32_t)i;
            if (want && (bpe_token(t->bpe, (int32_t)i, &n), n > 2) &&
                below((uint32_t)++n_long) == 0)
                longer = (int32_t)i;
        }
        assert_int_equal(n_ids, n_want);
        assert_int_equal(matcher_complete(m), automaton_accepts(a, s));
        assert_int_equal(matcher_forced(m, &forced, 1, &n_want, &e), 0);
        assert_int_equal(n_want, n_ids == 1 && !automaton_accepts(a, s));
        if (n_want)
            assert_int_equal(forced, choice);
        if (choice < 0)
            break;
        if (longer >= 0 && below(2))
            choice = longer;
        assert_ok(matcher_accept(m, choice, &e), &e);
        s = after(t, a, s, choice);
    }
    matcher_free(m);
    constraint_free(c);
    automaton_free(a);
}

static void check_row(const struct tokens *t, size_t row, int n_tokens)
{
    check_grammar(t, compile(row), rows[row].text, n_tokens);
}

static void check_random(const struct tokens *t, int n_tokens)
{
    struct buf re = {0};
    put_regex(&re, TOP);
    assert_false(re.failed);
    check_grammar(t, compile_text(re.data, REGEX), re.data, n_tokens);
    buf_free(&re);
}

static void test_masks_of_demo(void **state)
{
    struct tokens t;
    assert_true(open_tokens(&t, "models/demo/tokenizer.json"));
    for (size_t i = 0; i < N_ROWS; i++)
        for (int k = 0; k < 4; k++)
            check_row(&t, i, 40);
    for (int i = 0; i < 150; i++)
        check_random(&t, 15);
    close_tokens(&t);
}

static void test_masks_of_qwen3(void **state)
{
    struct tokens t;
    if (!open_tokens(&t, "build/testdata/qwen3-tokenizer/tokenizer.json")) {
        print_message("SKIP: run make testdata for the genuine tokenizer\n");
        skip();
    }

    for (size_t i = 0; i < 3 * N_ROWS; i++)
        check_row(&t, i % N_ROWS, 12);
    for (int i = 0; i < 10; i++)
        check_random(&t, 4);
    close_tokens(&t);
}

struct maker {
    struct token_trie *trie;
    unsigned from;
    bool failed;
    pthread_t thread;
};

/* Make all parts, in an order of its own. */
static void *make_parts(void *arg)
{
    struct maker *m = arg;
    for (unsigned i = 0; i < 256; i++) {
        unsigned char byte = (unsigned char)(i * 7 + m->from);
        for (struct token_trie *v = m->trie; v; v = v->next)
            m->failed |= (i % 2 && token_trie_need(v, byte, NULL)) ||
                         !class_trie_need(v, v->classes->class_of[byte], NULL);
        if (i == m->from)
            m->failed |= !token_trie_plain(m->trie, 1, NULL);
    }
    return NULL;
}

/* Constraints of several threads make parts at the same time. */
static void make_at_once(struct token_trie *trie)
{
    struct maker m[4];
    for (unsigned i = 0; i < 4; i++) {
        m[i] = (struct maker){.trie = trie, .from = i * 50};
        assert_int_equal(pthread_create(&m[i].thread, NULL, make_parts, &m[i]),
                         0);
    }
    for (size_t i = 0; i < 4; i++) {
        pthread_join(m[i].thread, NULL);
        assert_false(m[i].failed);
    }
}

/* Return the number of tokens in the parts of classes. */
static size_t count_by_class(const struct token_trie *t)
{
    size_t n = 0;
    for (size_t i = 0; t && i < t->classes->n; i++)
        n += t->by_class[i]->v[t->by_class[i]->n].ids;
    return t ? n + count_by_class(t->next) : 0;
}

/* Every token is where its bytes lead. */
static void test_trie(void **state)
{
    struct tokens t;
    assert_true(open_tokens(&t, "models/demo/tokenizer.json"));
    make_at_once(t.trie);
    size_t n_seen = 0;
    char path[1024];
    for (unsigned at = 0; at < 3 * 256; at++) {
        unsigned char first = (unsigned char)(at % 256);
        struct token_trie *v = t.trie;
        for (size_t i = 0; i < at / 256; i++)
            v = v->next;
        const struct trie_part *part = &v->parts[first];
        assert_int_equal(token_trie_need(v, first, NULL), 0);
        for (size_t i = part->from; i < part->to; i++) {
            const struct trie_node *node = &v->nodes[i];
            path[node->depth - 1] = (char)node->byte;
            assert_int_equal((unsigned char)path[0], first);
            assert_true(node->skip > i && node->skip <= part->to);
            for (size_t k = 0; k < node->n_equal; k++) {
                size_t n;
                const char *p = bpe_token(t.bpe, v->ids[node->rank + k], &n);
                assert_int_equal(n, node->depth);
                assert_memory_equal(p, path, n);
                assert_true(token_trie_has(t.trie, v->ids[node->rank + k]));
                n_seen++;
            }
        }
    }
    size_t want = 0, n;
    for (size_t i = 0; i < t.n; i++)
        want += bpe_token(t.bpe, (int32_t)i, &n) && n > 0 &&
                is_listed(&t, (int32_t)i);
    assert_int_equal(n_seen, want);
    assert_int_equal(count_by_class(t.trie), want);
    close_tokens(&t);
}

/* Many texts at a time share states that are dropped and made again. */
static void test_many_texts(void **state)
{
    enum { TEXTS = 5, STEPS = 6000, LIMIT = 100000 };
    struct qwick_err e = {0};
    struct tokens t;
    struct grammar *g;
    struct qwick_constraint *c;
    struct matcher *m[TEXTS];
    uint64_t want[TEXTS] = {0}; /* the last 41 letters, as bits of "a" */
    const char re[] = "(a|b)*a(a|b){40}";
    assert_true(open_tokens(&t, "models/demo/tokenizer.json"));
    assert_int_equal(grammar_create(&g, "G", NULL), 0);
    uint32_t root = grammar_rule(g, "r", 1);
    grammar_define(g, root,
                   regex_compile(g, NULL, re, strlen(re), REGEX_WHOLE));
    assert_int_equal(grammar_finish(g, root, NULL), 0);
    assert_int_equal(constraint_create(&c, g, "G", t.trie, NULL), 0);
    grammar_free(g);
    constraint_limit(c, LIMIT); /* a few steps reach it */
    for (int i = 0; i < TEXTS; i++)
        assert_int_equal(matcher_create(&m[i], c, NULL), 0);
    for (int k = 0; k < STEPS; k++) {
        int i = (int)below(TEXTS);
        size_t n_ids, n;
        const uint64_t *mask = matcher_mask(m[i], &n_ids, &e);
        if (!mask)
            fail_msg("%s", e.msg);
        assert_int_equal(matcher_complete(m[i]), want[i] >> 40 & 1);
        /* without dropping, states take 200 times the limit in the end */
        assert_true(constraint_bytes(c) < 10 * LIMIT);
        size_t pick = below((uint32_t)n_ids), id = 0;
        for (;; id++)
            if (bit(mask, id) && pick-- == 0)
                break;
        const char *p = bpe_token(t.bpe, (int32_t)id, &n);
        for (size_t b = 0; b < n; b++)
            want[i] = want[i] << 1 | (p[b] == 'a');
        assert_int_equal(matcher_accept(m[i], (int32_t)id, &e), 0);
    }
    /* an order that is not that of their creation */
    for (int i = 0; i < TEXTS; i++)
        matcher_free(m[(i * 2 + 1) % TEXTS]);
    constraint_free(c);
    close_tokens(&t);
}

static void test_wrong_token(void **state)
{
    struct qwick_err e = {0};
    struct tokens t;
    struct qwick_constraint *c;
    struct matcher *m;
    assert_true(open_tokens(&t, "models/demo/tokenizer.json"));
    struct grammar *g = compile(0);
    assert_int_equal(constraint_create(&c, g, "G", t.trie, NULL), 0);
    grammar_free(g);
    assert_int_equal(matcher_create(&m, c, NULL), 0);
    assert_true(matcher_admits_byte(m, '{'));
    assert_false(matcher_admits_byte(m, '}'));
    int32_t a = -1;
    for (size_t i = 0; i < t.n && a < 0; i++) {
        size_t n;
        const char *p = bpe_token(t.bpe, (int32_t)i, &n);
        if (n == 1 && *p == 'a')
            a = (int32_t)i;
    }
    assert_int_equal(matcher_accept(m, a, &e), -1);
    assert_int_equal(e.code, QWICK_ERR_RUNTIME);
    assert_true(matcher_admits_byte(m, '{')); /* nothing has changed */
    matcher_free(m);
    constraint_free(c);
    close_tokens(&t);
}

/* ---- the library's sampler ---------------------------------------------- */

static void test_sampler(void **state)
{
    struct qwick_engine_options eo = qwick_engine_defaults();
    struct qwick_sampling so = qwick_sampling_neutral();
    struct qwick_constraint_options co = qwick_constraint_defaults();
    struct qwick_constraint *c;
    struct qwick_engine *eng;
    struct qwick_sampler *s;
    struct qwick_err e = {0};
    eo.threads = 1;
    co.text = "(ab|c){4}";
    co.n_text = strlen(co.text);
    so.seed = 3;
    assert_ok(qwick_engine_open(&eng, &eo, &e) ||
                  qwick_constraint_create(&c, eng, &co, &e) ||
                  qwick_sampler_create(&s, eng, &so, &e) ||
                  qwick_sampler_constrain(s, c, &e),
              &e);
    const struct qwick_info *info = qwick_engine_info(eng);
    float *logits = calloc(info->vocab_size, sizeof *logits);
    char text[64] = "";
    int32_t id, *ids;
    size_t n, n_ids;
    assert_non_null(logits);
    assert_int_equal(qwick_tokenize(eng, "d", 1, false, &ids, &n_ids, &e), 0);
    assert_int_equal(qwick_sampler_accept(s, ids[0], &e), -1);
    assert_int_equal(qwick_sampler_accept(s, info->stop_ids[0], &e), -1);
    free(ids);
    for (bool end = false; !end;) {
        assert_ok(qwick_sampler_draw(s, logits, &id, &e) ||
                      qwick_sampler_accept(s, id, &e),
                  &e);
        for (size_t i = 0; i < info->n_stop_ids; i++)
            end |= id == info->stop_ids[i];
        char *piece;
        if (!end) {
            assert_int_equal(
                qwick_detokenize(eng, &id, 1, false, &piece, &n, &e), 0);
            assert_true(strlen(text) + n < sizeof text);
            strcat(text, piece);
            free(piece);
        }
    }
    size_t parts = 0;
    for (const char *p = text; *p; p += *p == 'a' ? 2 : 1, parts++)
        assert_true((p[0] == 'a' && p[1] == 'b') || p[0] == 'c');
    assert_int_equal(parts, 4);
    /* without the constraint, anything goes */
    assert_int_equal(qwick_sampler_constrain(s, NULL, &e), 0);
    assert_int_equal(qwick_sampler_accept(s, 0, &e), 0);
    free(logits);
    qwick_sampler_free(s);
    qwick_constraint_free(c);
    qwick_engine_close(eng);
}

/* Bad options and texts are usage errors. */
static void test_create(void **state)
{
    struct qwick_constraint_options co = qwick_constraint_defaults();
    struct qwick_constraint *c;
    struct qwick_engine *eng = engine_with(.model = NULL);
    struct qwick_err e = {0};
    assert_int_equal(qwick_constraint_create(&c, eng, &co, &e), -1);
    assert_int_equal(e.code, QWICK_ERR_USAGE);
    co.text = "a(";
    co.n_text = 2;
    assert_int_equal(qwick_constraint_create(&c, eng, &co, &e), -1);
    assert_string_equal(
        e.msg, "regular expression: character 2: the group has no \")\"");
    co.name = "NAME";
    co.kind = QWICK_CONSTRAINT_GBNF;
    assert_int_equal(qwick_constraint_create(&c, eng, &co, &e), -1);
    assert_string_equal(e.msg,
                        "NAME: line 1: expected \"::=\" after the name of a "
                        "rule");
    co.kind = (enum qwick_constraint_kind)99;
    assert_int_equal(qwick_constraint_create(&c, eng, &co, &e), -1);
    assert_int_equal(e.code, QWICK_ERR_USAGE);
    assert_null(c);
    qwick_engine_close(eng);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_trie),
        cmocka_unit_test(test_masks_of_demo),
        cmocka_unit_test(test_masks_of_qwen3),
        cmocka_unit_test(test_many_texts),
        cmocka_unit_test(test_wrong_token),
        cmocka_unit_test(test_sampler),
        cmocka_unit_test(test_create),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
