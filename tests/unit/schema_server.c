/* Answers questions about schemas on its standard input, for the programs in
 * tests/schema. A request is a line, and the bytes whose number it ends with:
 *
 *     S INDENT LENGTH    compile a schema: "ok", "ok: REMARKS", "error: MESSAGE"
 *     C FORM LENGTH      the same for calls of tools, in a form of
 *                        text/chat/call_forms.h
 *     O [any] [lenient]  options of the next schemas, no bytes: "ok"
 *     M LENGTH           match a text: "yes" or "no"
 *     D LITERAL LENGTH   find an order of members in which the schema admits a
 *                        document: "yes", "no: NOTE", or "unknown: NOTE" if the
 *                        search gave up; LITERAL 1: 1.0 is not 1
 *     V LENGTH           check a document with the validator: "yes",
 *                        "no: REASON" or "error: MESSAGE"
 *     T SEED LENGTH      match a text token by token, cut into tokens of the
 *                        demo model at random
 *
 * W SEED LENGTH has no bytes: it asks for a random document of up to about that
 * length, "LENGTH\nBYTES"; "-1" if it does not end there. */
#include "schema_automaton.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "any_order.h"
#include "base/buf.h"
#include "base/rng.h"
#include "engine/generate/constraint.h"
#include "engine/generate/token_trie.h"
#include "file/json.h"
#include "file/map.h"
#include "text/bpe/bpe.h"
#include "text/chat/call_forms.h"
#include "text/schema/schema_validator.h"
#include "text/tools/tools_grammar.h"

/* Weight of a byte in a random document that has grown to n of `most` bytes:
 * long documents prefer what ends them. */
static double weight(unsigned c, size_t n, size_t most)
{
    double long_one = (double)n / (double)(most + 1);
    if (c == '"' || c == ']' || c == '}')
        return 4 + 1000 * long_one * long_one;
    if (c == ',' || c == '{' || c == '[')
        return long_one < 0.5 ? 3 : 0.01;
    if (c >= 'a' && c <= 'z')
        return 1;
    return c >= 0x80 ? 0.1 : c == '\\' ? 2 : 0.7;
}

static int pick(const unsigned char bytes[256], size_t n, size_t most, double u)
{
    double sum = 0;
    int last = -1;
    for (unsigned c = 0; c < 256; c++)
        sum += bytes[c] ? weight(c, n, most) : 0;
    u *= sum;
    for (unsigned c = 0; c < 256; c++) {
        if (!bytes[c])
            continue;
        last = (int)c;
        u -= weight(c, n, most);
        if (u <= 0)
            break;
    }
    return last;
}

static void walk(struct automaton *a, uint64_t seed, size_t most)
{
    struct buf out = {0};
    uint64_t draws = 0;
    uint32_t state = automaton_start(a);
    for (;;) {
        unsigned char bytes[256];
        if (automaton_is_final(a, state) ||
            (automaton_accepts(a, state) && rng_uniform(seed, draws++) < 0.3))
            break;
        memset(bytes, 0, sizeof bytes);
        automaton_bytes(a, state, bytes);
        int c = pick(bytes, out.len, most, rng_uniform(seed, draws++));
        if (c < 0 || out.len > 50 * most || buf_putc(&out, (char)c)) {
            printf("-1\n");
            buf_free(&out);
            return;
        }
        state = automaton_advance(a, state, (unsigned char)c);
    }
    printf("%zu\n", out.len);
    fwrite(out.data ? out.data : "", 1, out.len, stdout);
    buf_free(&out);
}

/* The tokens of the demo model, which are read when they are first needed, and
 * the constraint of the current schema. */
struct tokens {
    struct bpe *bpe;
    struct token_trie *trie;
    struct qwick_constraint *constraint;
};

static int open_tokens(struct tokens *t, struct qwick_err *e)
{
    static const char path[] = "models/demo/tokenizer.json";
    struct map m;
    if (t->trie)
        return 0;
    if (map_open(&m, path, e))
        return -1;
    int rc = bpe_open(&t->bpe, path, (const char *)m.data, m.size, e);
    map_close(&m);
    return rc ? rc
              : token_trie_create(&t->trie, t->bpe, bpe_size(t->bpe), NULL,
                                  NULL, 0, e);
}

/* Choose a random token that begins p[0..n) from a trie and those after it, or
 * -1; *used: its length. *met: the tokens to choose from so far. */
static int32_t pick_token(struct token_trie *t, const char *p, size_t n,
                          uint64_t seed, uint64_t *draws, size_t *used,
                          int *met)
{
    unsigned char first = (unsigned char)*p;
    int32_t id =
        t->next ? pick_token(t->next, p, n, seed, draws, used, met) : -1;
    if (token_trie_need(t, first, NULL))
        return -1;
    size_t at = t->parts[first].from, depth = 1;
    while (at < t->parts[first].to && depth <= n &&
           t->nodes[at].depth == depth) {
        const struct trie_node *v = &t->nodes[at];
        if (v->byte != (unsigned char)p[depth - 1]) {
            at = v->skip;
            continue;
        }
        if (v->n_equal && rng_uniform(seed, (*draws)++) * ++*met < 1) {
            id = t->ids[v->rank];
            *used = depth;
        }
        depth++;
        at++;
    }
    return id;
}

static const char *match_tokens(struct tokens *t, const char *p, size_t n,
                                uint64_t seed)
{
    struct matcher *m;
    struct qwick_err e;
    uint64_t draws = 0;
    const char *answer = NULL;
    if (matcher_create(&m, t->constraint, &e))
        return "no: no memory";
    for (size_t i = 0, used = 0; i < n && !answer; i += used) {
        size_t n_ids;
        const uint64_t *mask = matcher_mask(m, &n_ids, &e);
        int met = 0;
        int32_t id =
            pick_token(t->trie, p + i, n - i, seed, &draws, &used, &met);
        if (!mask || id < 0)
            answer = "no: no mask or token";
        else if (!(mask[id / 64] >> (id % 64) & 1))
            answer = "no: the mask lacks a token";
        else if (matcher_accept(m, id, &e))
            answer = "no: a token is not accepted";
    }
    if (!answer)
        answer = matcher_complete(m) ? "yes" : "no: not complete";
    matcher_free(m);
    return answer;
}

/* The current schema, and what is made of it. */
struct current {
    char *text;
    size_t n;
    struct schema_validator *validator; /* NULL: not made yet */
    struct grammar *grammar;
    struct automaton *automaton;
    struct tokens tokens;
};

static void drop_schema(struct current *c)
{
    automaton_free(c->automaton);
    constraint_free(c->tokens.constraint);
    grammar_free(c->grammar);
    schema_validator_free(c->validator);
    free(c->text);
    c->text = NULL;
    c->validator = NULL;
    c->automaton = NULL;
    c->tokens.constraint = NULL;
    c->grammar = NULL;
}

/* Print what has no effect or is not held exactly, as one line. */
static void print_remarks(const struct grammar *g)
{
    static const char *const kinds[GRAMMAR_N_REMARKS] = {
        [GRAMMAR_WEAKENED] = "weakened "};
    const char *mark = ": ";
    for (int kind = 0; kind < GRAMMAR_N_REMARKS; kind++) {
        size_t n;
        const char *p = grammar_remarks(g, (enum grammar_remark)kind, &n);
        for (; p && *p; p += strcspn(p, "\n") + 1) {
            printf("%s%s%.*s", mark, kinds[kind] ? kinds[kind] : "",
                   (int)strcspn(p, "\n"), p);
            mark = "; ";
        }
    }
    printf("\n");
}

static struct grammar *grammar_of_calls(const char *text, size_t n,
                                        const char *form, struct qwick_err *e)
{
    const struct tools_options o = {.form = call_form_named(form)};
    struct grammar *g = NULL;
    uint32_t root;
    if (grammar_create(&g, "S", e) == 0 &&
        tools_compile(g, text, n, &o, &root, e) == 0 &&
        grammar_finish(g, root, e) == 0)
        return g;
    grammar_free(g);
    return NULL;
}

/* Replace the schema by one, or by tools whose calls have a form, and say
 * whether it is accepted. */
static void answer_schema(struct current *c, char *text, size_t n, int indent,
                          const char *form)
{
    struct qwick_err e = {0};
    drop_schema(c);
    c->text = text;
    c->n = n;
    c->grammar = form ? grammar_of_calls(text, n, form, &e)
                      : grammar_of(text, n, indent, &e);
    if (c->grammar && automaton_create(&c->automaton, c->grammar, &e) == 0) {
        printf("ok");
        print_remarks(c->grammar);
    } else {
        printf("error: %s\n", e.msg);
    }
}

static void answer_document(struct current *c, const char *text, size_t n,
                            bool literal)
{
    struct json_doc *doc;
    struct buf found = {0};
    struct qwick_err e;
    if (json_parse(&doc, "document", text, n, QWICK_ERR_USAGE, &e)) {
        printf("unknown: %s\n", e.msg);
        return;
    }
    int rc = any_order_find(c->automaton, json_root(doc), literal, &found);
    if (rc > 0)
        printf("yes\n");
    else
        printf("%s: %s\n", rc ? "unknown" : "no", buf_text(&found));
    buf_free(&found);
    json_free(doc);
}

static void answer_check(struct current *c, const char *text, size_t n)
{
    struct qwick_err e = {0};
    int rc = -1;
    if (c->validator ||
        schema_validator_create(&c->validator, c->text, c->n, NULL, &e) == 0)
        rc = schema_validator_check(c->validator, text, n, &e);
    if (rc > 0)
        printf("yes\n");
    else
        printf("%s: %s\n", rc ? "error" : "no", e.msg);
}

static void answer_tokens(struct current *c, const char *text, size_t n,
                          uint64_t seed)
{
    struct tokens *t = &c->tokens;
    struct qwick_err e = {0};
    if (open_tokens(t, &e) ||
        (!t->constraint &&
         constraint_create(&t->constraint, c->grammar, "S", t->trie, &e)))
        printf("error: %s\n", e.msg);
    else
        printf("%s\n", match_tokens(t, text, n, seed));
}

/* Read n bytes; exits when the input ends. */
static char *read_bytes(size_t n)
{
    char *p = malloc(n + 1);
    if (!p || fread(p, 1, n, stdin) != n)
        exit(1);
    p[n] = '\0';
    return p;
}

/* Answer one request. Returns -1 if it is none. */
static int answer(struct current *c, const char *line)
{
    unsigned long long seed;
    size_t n;
    int indent, literal;
    char *text = NULL, form[32];
    if (sscanf(line, "S %d %zu", &indent, &n) == 2)
        answer_schema(c, read_bytes(n), n, indent, NULL);
    else if (sscanf(line, "C %31s %zu", form, &n) == 2 && call_form_named(form))
        answer_schema(c, read_bytes(n), n, 0, form);
    else if (c->text && sscanf(line, "V %zu", &n) == 1)
        answer_check(c, text = read_bytes(n), n);
    else if (strncmp(line, "O ", 2) == 0) {
        test_options.any_order = strstr(line, " any") != NULL;
        test_options.lenient = strstr(line, " lenient") != NULL;
        printf("ok\n");
    } else if (!c->automaton)
        return -1;
    else if (sscanf(line, "M %zu", &n) == 1)
        printf("%s\n",
               matches(c->automaton, text = read_bytes(n), n) ? "yes" : "no");
    else if (sscanf(line, "D %d %zu", &literal, &n) == 2)
        answer_document(c, text = read_bytes(n), n, literal != 0);
    else if (sscanf(line, "T %llu %zu", &seed, &n) == 2)
        answer_tokens(c, text = read_bytes(n), n, seed);
    else if (sscanf(line, "W %llu %zu", &seed, &n) == 2)
        walk(c->automaton, seed, n);
    else
        return -1;
    free(text);
    return fflush(stdout);
}

int main(void)
{
    struct current c = {0};
    char line[200];
    int rc = 0;
    while (rc == 0 && fgets(line, sizeof line, stdin))
        rc = answer(&c, line);
    drop_schema(&c);
    token_trie_free(c.tokens.trie);
    bpe_close(c.tokens.bpe);
    return rc != 0;
}
