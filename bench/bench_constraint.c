/* Time and memory of constraints: the list of tokens, compiling, and the mask
 * of each token of random texts.
 *
 *   bench_constraint TOKENIZER_JSON [TEXTS]
 *
 * TEXTS: texts per constraint, 20 by default, of at most 200 tokens each. Half
 * of the tokens are drawn evenly from all that are legal, the others from the
 * longest of eight such draws, as models prefer long tokens. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/rng.h"
#include "engine/generate/constraint.h"
#include "engine/generate/token_trie.h"
#include "file/map.h"
#include "text/bpe/bpe.h"
#include "text/grammar/gbnf.h"
#include "text/grammar/grammar.h"
#include "text/grammar/regex.h"
#include "text/schema/schema.h"

enum { MAX_TOKENS = 200 };

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

static const char person[] =
    "{\"type\":\"object\",\"properties\":{\"name\":{\"type\":\"string\"},"
    "\"age\":{\"type\":"
    "\"integer\",\"minimum\":0,\"maximum\":150},\"tags\":{\"type\":\"array\","
    "\"items\":{\"type\":\"string\"}},\"address\":{\"type\":\"object\","
    "\"properties\":{\"street\":{\"type\":\"string\"},\"city\":{\"type\":"
    "\"string\"},\"zip\":{\"type\":\"string\",\"pattern\":\"^[0-9]{5}$\"}},"
    "\"required\":[\"street\",\"city\"]}},\"required\":[\"name\",\"age\","
    "\"tags\",\"address\"]}";

static const char limited[] =
    "{\"type\":\"object\",\"properties\":{\"title\":{\"type\":\"string\","
    "\"maxLength\":80},"
    "\"text\":{\"type\":\"string\",\"minLength\":20,\"maxLength\":1000}},"
    "\"required\":[\"title\",\"text\"]}";

static const struct {
    const char *name, *text;
    enum { REGEX, GBNF, SCHEMA } kind;
} rows[] = {
    {"regex, a date", "\\d{4}-[01]\\d-[0-3]\\d", REGEX},
    {"regex, words", "[A-Z][a-z]+( [a-z]+){3,30}\\.", REGEX},
    {"regex, any text", "(.|\\n)*", REGEX},
    {"regex, .{0,200}", ".{0,200}", REGEX},
    {"grammar, JSON", json, GBNF},
    {"schema, any JSON", "{}", SCHEMA},
    {"schema, a person", person, SCHEMA},
    {"schema, maxLength", limited, SCHEMA},
};

static uint64_t n_draws;
static size_t below(size_t n)
{
    return (size_t)(rng_uniform(1, n_draws++) * (double)n);
}

static void fail(const struct qwick_err *e)
{
    fprintf(stderr, "bench_constraint: %s\n", e->msg);
    exit(1);
}

static struct qwick_constraint *compile(size_t i, struct token_trie *trie,
                                        double *ms, double *first_ms)
{
    struct qwick_err e = {0};
    struct qwick_constraint *c;
    struct grammar *g;
    const char *text = rows[i].text;
    size_t n = strlen(text);
    uint32_t root;
    double start = clock_ms(), mid;
    if (grammar_create(&g, "G", &e))
        fail(&e);
    if (rows[i].kind == GBNF) {
        root = gbnf_compile(g, text, n);
    } else if (rows[i].kind == REGEX) {
        root = grammar_rule(g, "all", 3);
        grammar_define(g, root, regex_compile(g, NULL, text, n, REGEX_WHOLE));
    } else if (schema_compile(g, text, n, NULL, &root, &e)) {
        fail(&e);
    }
    if (grammar_finish(g, root, &e))
        fail(&e);
    mid = clock_ms();
    if (constraint_create(&c, g, "G", trie, &e))
        fail(&e);
    *ms = mid - start;
    *first_ms = clock_ms() - mid;
    grammar_free(g);
    return c;
}

/* The k-th id of a mask. */
static int32_t pick(const uint64_t *mask, size_t k)
{
    size_t i = 0, n;
    for (; (n = (size_t)__builtin_popcountll(mask[i])) <= k; i++)
        k -= n;
    uint64_t word = mask[i];
    while (k--)
        word &= word - 1;
    return (int32_t)(i * 64 + (size_t)__builtin_ctzll(word));
}

static int32_t draw(const struct token_trie *t, const uint64_t *mask, size_t n)
{
    int32_t best = pick(mask, below(n));
    size_t len, longest;
    bpe_token(t->bpe, best, &longest);
    for (int i = 0, more = below(2) ? 7 : 0; i < more; i++) {
        int32_t id = pick(mask, below(n));
        bpe_token(t->bpe, id, &len);
        if (len > longest) {
            longest = len;
            best = id;
        }
    }
    return best;
}

static int ascending(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void measure(size_t i, struct token_trie *t, size_t n_texts)
{
    struct qwick_err e = {0};
    double compile_ms, first_ms, *us, total = 0;
    struct qwick_constraint *c = compile(i, t, &compile_ms, &first_ms);
    size_t n = 0;
    us = malloc(n_texts * MAX_TOKENS * sizeof *us);
    if (!us)
        exit(1);
    for (size_t k = 0; k < n_texts; k++) {
        struct matcher *m;
        if (matcher_create(&m, c, &e))
            fail(&e);
        for (int token = 0; token < MAX_TOKENS; token++) {
            size_t n_ids;
            double start = clock_ms();
            const uint64_t *mask = matcher_mask(m, &n_ids, &e);
            if (!mask)
                fail(&e);
            us[n] = 1000 * (clock_ms() - start);
            total += us[n++];
            if (n_ids == 0 || matcher_accept(m, draw(t, mask, n_ids), &e))
                break;
        }
        matcher_free(m);
    }
    qsort(us, n, sizeof *us, ascending);
    printf("%-18s %8.2f %8.2f %7zu %8.1f %8.1f %8.1f %8.1f %7.1f\n",
           rows[i].name, compile_ms, first_ms, n, us[n / 2], us[n * 99 / 100],
           us[n - 1], total / (double)n,
           (double)constraint_bytes(c) / (1 << 20));
    free(us);
    constraint_free(c);
}

int main(int argc, char **argv)
{
    struct qwick_err e = {0};
    struct token_trie *trie;
    struct bpe *bpe;
    struct map m;
    if (argc < 2) {
        fprintf(stderr, "usage: bench_constraint TOKENIZER_JSON [TEXTS]\n");
        return 2;
    }
    if (map_open(&m, argv[1], &e) ||
        bpe_open(&bpe, argv[1], (const char *)m.data, m.size, &e))
        fail(&e);
    map_close(&m);
    double start = clock_ms();
    if (token_trie_create(&trie, bpe, bpe_size(bpe), NULL, NULL, 0, &e))
        fail(&e);
    printf("%zu tokens, listed in %.1f ms\n", trie->n_ids, clock_ms() - start);
    printf("%-18s %8s %8s %7s %8s %8s %8s %8s %7s\n", "", "compile", "first",
           "masks", "median", "p99", "max", "mean", "MB");
    printf("%-18s %8s %8s %7s %8s %8s %8s %8s\n", "", "ms", "ms", "", "us",
           "us", "us", "us");
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        measure(i, trie, argc > 2 ? (size_t)atoi(argv[2]) : 20);
    token_trie_free(trie);
    bpe_close(bpe);
    return 0;
}
