/* Chat templates: results of Jinja2, origin of each byte, think blocks, bounds,
 * and broken templates. */
#include "test.h"
#include <dirent.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "random_text.h"
#include "text/template/template.h"

#define GOLDENS "tests/golden/template/cases.jsonl"

enum { MAX_VARS = 32 };

/* The present time of the goldens: 2026-11-22 10:30:00, a Sunday. */
static const struct tm golden_time = {.tm_year = 126,
                                      .tm_mon = 10,
                                      .tm_mday = 22,
                                      .tm_hour = 10,
                                      .tm_min = 30,
                                      .tm_wday = 0,
                                      .tm_yday = 325};

static struct json_doc *parse_json(const char *text, size_t n)
{
    struct qwick_err e;
    struct json_doc *doc = NULL;
    if (json_parse(&doc, "test", text, n, QWICK_ERR_USAGE, &e))
        fail_msg("%s in %.200s", e.msg, text);
    return doc;
}

/* Render source with the members of vars. Returns what failed. */
static int render(struct template_result *r, const char *source, size_t n,
                  const struct json_value *vars, struct qwick_err *e)
{
    struct template *t;
    struct template_var list[MAX_VARS];
    size_t n_vars = 0;
    *r = (struct template_result){0};
    if (template_open(&t, "test", source, n, e))
        return -1;
    for (size_t i = 0; vars && i < vars->len && n_vars < MAX_VARS; i++)
        list[n_vars++] =
            (struct template_var){vars->keys[i].str, &vars->items[i], true};
    int rc = template_render(r, t, list, n_vars, &golden_time, e);
    template_close(t);
    return rc;
}

static void check_own(const struct template_result *r)
{
    size_t end = 0;
    for (size_t i = 0; i < r->n_own; i++) {
        assert_true(r->own[i].begin < r->own[i].end);
        assert_true(i == 0 || r->own[i].begin > end);
        end = r->own[i].end;
    }
    assert_true(end <= r->text.len);
}

/* ---- goldens ---- */

/* One line {"template", "vars", "text" or "error"}. False: it differs. */
static bool check_line(const struct json_value *v, size_t line)
{
    struct template_result r;
    struct qwick_err e;
    const struct json_value *source = json_get(v, "template");
    const struct json_value *want = json_get(v, "text");
    int rc = render(&r, source->str, source->len, json_get(v, "vars"), &e);
    bool same = want ? rc == 0 && r.text.len == want->len &&
                           memcmp(r.text.data, want->str, want->len) == 0
                     : rc != 0;
    if (!same)
        print_error("line %zu: %s\n got  %s\n want %s\n", line, source->str,
                    rc ? e.msg : r.text.data, want ? want->str : "(an error)");
    if (rc == 0)
        check_own(&r);
    else if (!strstr(e.msg, "line "))
        fail_msg("an error without its line: %s", e.msg);
    template_result_free(&r);
    return same;
}

static void test_goldens(void **state)
{
    char *line = NULL;
    size_t cap = 0, n_lines = 0, n_bad = 0;
    ssize_t n;
    FILE *f = fopen(GOLDENS, "r");
    assert_non_null(f);
    while ((n = getline(&line, &cap, f)) > 0) {
        struct json_doc *doc = parse_json(line, (size_t)n);
        n_bad += !check_line(json_root(doc), ++n_lines);
        json_free(doc);
    }
    free(line);
    fclose(f);
    assert_true(n_lines > 500);
    assert_int_equal(n_bad, 0);
}

/* ---- templates of public models, where a folder with them is given ---- */

static char *read_file(const char *dir, const char *name, size_t *n)
{
    char path[4096];
    snprintf(path, sizeof path, "%s/%s", dir, name);
    FILE *f = fopen(path, "rb");
    char *text = NULL;
    size_t cap = 0;
    if (!f)
        fail_msg("%s: cannot be opened", path);
    ssize_t got = getdelim(&text, &cap, EOF, f);
    fclose(f);
    *n = got < 0 ? 0 : (size_t)got;
    return text;
}

static int render_public(struct template_result *r, const struct template *t,
                         const struct json_value *line, struct qwick_err *e)
{
    static const struct json_value bos = {.type = JSON_STRING,
                                          .str = "<|endoftext|>",
                                          .len = 13},
                                   eos = {.type = JSON_STRING,
                                          .str = "<|im_end|>",
                                          .len = 10},
                                   null = {.type = JSON_NULL};
    struct template_var vars[8] = {
        {"bos_token", &bos, false}, {"pad_token", &bos, false},
        {"eos_token", &eos, false}, {"tools", &null, true},
        {"documents", &null, true},
    };
    static const char *const names[] = {"messages", "tools",
                                        "add_generation_prompt"};
    size_t n = 5;
    for (size_t i = 0; i < 3; i++)
        if (json_get(line, names[i]))
            vars[n++] =
                (struct template_var){names[i], json_get(line, names[i]), true};
    const struct json_value *think = json_get(line, "enable_thinking");
    if (json_is(think, JSON_BOOL))
        vars[n < 8 ? n++ : 3] =
            (struct template_var){"enable_thinking", think, true};
    return template_render(r, t, vars, n, &golden_time, e);
}

static bool check_public(const char *dir, const struct json_value *v,
                         size_t number)
{
    struct template *t;
    struct template_result r = {0};
    struct qwick_err e;
    size_t n;
    const struct json_value *want = json_get(v, "text");
    char *source = read_file(dir, json_get(v, "template")->str, &n);
    int rc = template_open(&t, json_get(v, "template")->str, source, n, &e);
    if (!rc)
        rc = render_public(&r, t, v, &e);
    bool same = want ? rc == 0 && r.text.len == want->len &&
                           memcmp(r.text.data, want->str, want->len) == 0
                     : rc != 0;
    if (!same)
        print_error("line %zu: %s\n got  %s\n want %s\n", number,
                    json_get(v, "template")->str, rc ? e.msg : r.text.data,
                    want ? want->str : "(an error)");
    free(source);
    template_result_free(&r);
    template_close(t);
    return same;
}

static void test_public(void **state)
{
    const char *dir = getenv("QWICK_TEST_TEMPLATES");
    if (!dir || !*dir) {
        print_message("SKIP: QWICK_TEST_TEMPLATES names no folder\n");
        skip();
    }
    size_t n, n_lines = 0, n_bad = 0;
    char *all = read_file(dir, "visible.jsonl", &n);
    for (char *p = all, *end; p < all + n; p = end + 1) {
        end = memchr(p, '\n', (size_t)(all + n - p));
        end = end ? end : all + n;
        struct json_doc *doc = parse_json(p, (size_t)(end - p));
        n_bad += !check_public(dir, json_root(doc), ++n_lines);
        json_free(doc);
    }
    free(all);
    print_message("%zu lines, %zu differ\n", n_lines, n_bad);
    assert_true(n_lines > 0);
    assert_int_equal(n_bad, 0);
}

/* ---- where text comes from ---- */

static int render_text(struct template_result *r, const char *source,
                       const char *vars, struct qwick_err *e)
{
    struct json_doc *doc = parse_json(vars, strlen(vars));
    int rc = render(r, source, strlen(source), json_root(doc), e);
    json_free(doc);
    return rc;
}

static bool is_own(const struct template_result *r, size_t at)
{
    for (size_t i = 0; i < r->n_own; i++)
        if (at >= r->own[i].begin && at < r->own[i].end)
            return true;
    return false;
}

static void render_ok(struct template_result *r, const char *source,
                      const char *vars)
{
    struct qwick_err e;
    if (render_text(r, source, vars, &e))
        fail_msg("%s: %s", source, e.msg);
    check_own(r);
}

/* All text from outside is made of '~', and the templates write none: so a byte
 * is the template's own exactly if it is another one. */
static void test_origin_by_byte(void **state)
{
    static const char vars[] =
        "{\"a\":\"~~~~\",\"d\":{\"~\":\"~~\"},\"l\":[\"~\",\"~~\"],"
        "\"messages\":[{\"role\":\"user\",\"content\":\"~~~\"},"
        "{\"role\":\"~\",\"content\":[{\"type\":\"text\",\"text\":\"~\"}]}]}";
    static const char *const sources[] = {
        "x{{ a }}y",
        "{{ 'x' + a + 'y' }}{{ a + 'x' }}",
        "{{ 'x' ~ a ~ 1 ~ none }}",
        "{{ ('x' + a)[1:] }}{{ ('x' + a + 'y')[::-1] }}{{ ('xy' ~ a)[0] }}",
        "{{ ('  x' ~ a ~ ' ').strip() }}{{ ('x' ~ a) | trim('x') }}.",
        "{% for p in ('x,' ~ a ~ ',y').split(',') %}<{{ p }}>{% endfor %}",
        "{% for p in ('x ' ~ a ~ ' y').rsplit() %}<{{ p }}>{% endfor %}",
        "{% for p in ('x\\n' ~ a).splitlines() %}<{{ p }}>{% endfor %}",
        "{% for c in 'x' ~ a ~ 'y' %}{{ c }}.{% endfor %}",
        "{{ ('x-' ~ a ~ '-y').replace('-', 'z') }}{{ 'xqx' | replace('q', a) "
        "}}",
        "{{ a.replace('~', 'own') }}{{ a | replace('', '.') }}",
        "{{ ['x', a, 'y'] | join('-') }}{{ 'z'.join(['x', 'y']) }}",
        "{{ l | join(', ') }}{{ a.join(['x', 'y']) }}",
        "{{ ('x' ~ a) * 3 }}",
        "{% macro m(t) %}[{{ t }}]{% endmacro %}{{ m(a) }}{{ m('q') }}",
        "{% set b %}x{{ a }}y{% endset %}{{ b }}{{ 'xy' | length }}",
        "{% filter trim %}  x{{ a }}y {% endfilter %}",
        "{% macro m() %}<{{ caller() }}>{% endmacro %}"
        "{% call m() %}x{{ a }}{% endcall %}",
        "{% set ns = namespace(t='') %}{% for x in l %}"
        "{% set ns.t = ns.t + x + ';' %}{% endfor %}{{ ns.t }}",
        "{% for k, v in d.items() %}{{ k }}={{ v }}{% endfor %}",
        "{% for m in messages %}<|{{ m.role }}|>{{ m['content'] if m.content "
        "is "
        "string else m.content[0].text }}{% endfor %}",
        "{{ ('x' ~ a) | indent(2, true) }}{{ 'x' | center(5) }}",
        "{{ ('x' ~ a) | truncate(3, true, '', 0) }}",
        "{{ ('x=' ~ a).partition('=') | join('|') }}",
        "{{ ('x' ~ a).removeprefix('x') }}{{ ('x' ~ a).ljust(9, '.') }}",
        "{{ 'x%sy' % a }}{{ '%s%s' % ('x', a) }}{{ '%(k)s' % {'k': a} }}",
        "{{ ('x' ~ a) | list | join }}{{ ('x' ~ a) | reverse }}",
        "{{ 'abc' | upper }}{{ [1, 2] | tojson }}{{ {'a': 'b'} | tojson }}",
        "{{ a | default('q') }}{{ zz | default('q') }}{{ (zz or 'x') ~ a }}",
        "{{ l | first }}{{ l | last }}{{ l | sort | join('x') }}",
        "{{ l | map('replace', 'x', 'y') | join(',') }}",
        "{% generation %}x{{ a }}{% endgeneration %}{{ ('x' ~ a) | e }}",
        "{{ 'x' if a else 'y' }}{{ {'k': a}.k }}{{ {'k': 'x'}[d and 'k'] }}",
    };
    for (size_t i = 0; i < sizeof sources / sizeof *sources; i++) {
        struct template_result r;
        render_ok(&r, sources[i], vars);
        assert_true(r.text.len > 0);
        for (size_t k = 0; k < r.text.len; k++)
            if (is_own(&r, k) == (r.text.data[k] == '~'))
                fail_msg("%s: byte %zu of %s", sources[i], k, r.text.data);
        template_result_free(&r);
    }
}

/* Functions that build new text: all of it is from outside. */
static void test_origin_of_whole_results(void **state)
{
    static const char vars[] =
        "{\"a\":\"<|im_end|>\",\"n\":5,\"f\":1.5,\"b\":true,\"z\":null,"
        "\"big\":123456789012345678901,"
        "\"d\":{\"<|k|>\":[\"<|im_end|>\",1]}}";
    static const char *const sources[] = {
        "{{ ('x' ~ a) | upper }}",
        "{{ ('x' ~ a).title() }}",
        "{{ ('x' ~ a) | capitalize }}",
        "{{ {'x': a} | tojson }}",
        "{{ d | tojson(indent=2) }}",
        "{{ [1, [a]] | tojson }}",
        "{{ '{} x'.format(a) }}",
        "{{ '%s x' | format(a) }}",
        "{{ ('x' ~ a) | urlencode }}",
        "{{ n }}",
        "{{ n + 1 }}",
        "{{ f * 2 }}",
        "{{ b }}",
        "{{ z }}",
        "{{ -n }}",
        "{{ big }}",
        "{{ -big }}",
        "{{ n | abs }}",
        "{{ f | round }}",
        "{{ a | int(n) }}",
        "{{ strftime_now(a) }}",
        "{{ n | string }}",
        "{{ a | length }}",
        "{% set b %}x{{ a }}y{% endset %}{{ b | length }}",
        "{{ ['x', a] | string | replace('[', '') | length }}",
        "{{ a.replace(a, 'own') }}",
    };
    for (size_t i = 0; i < sizeof sources / sizeof *sources; i++) {
        struct template_result r;
        render_ok(&r, sources[i], vars);
        if (r.n_own || !r.text.len)
            fail_msg("%s: %s has own text", sources[i], r.text.data);
        template_result_free(&r);
    }
}

/* A control token whose letters a number or text from outside chooses. Each
 * template prints the token, and no part of it is the template's own. */
static void test_origin_of_choices(void **state)
{
    static const char vars[] =
        "{\"n\":10,\"one\":1,\"s\":\"~~~~~~~~~~\",\"k\":\"t\","
        "\"codes\":[60,124,105,109,95,101,110,100,124,62],"
        "\"l\":[0,0,0,0,0,0,0,0,0,0],\"d\":{\"a\":[1,2]},"
        "\"text\":\"<|im_end|>\",\"messages\":["
        "{\"role\":\"user\",\"content\":\"~~~~~~~~~~\"},"
        "{\"role\":\"user\",\"content\":\"\"}]}";
#define TOKEN   "{% set t = '<|im_end|>' %}"
#define LETTERS "{% set t = '<|im_end|>' | list %}"
    static const char *const sources[] = {
        /* letters by their codes */
        "{% for c in codes %}{{ '%c' % c }}{% endfor %}",
        "{% for c in codes %}{{ '%c' % (range(c) | length) }}{% endfor %}",
        "{% for c in codes %}{{ '%c' % (range(c + 1) | last) }}{% endfor %}",
        "{% for c in codes %}{{ '%c' % (range(0, c, 1)[:c] | list | count) }}"
        "{% endfor %}",
        "{% for c in codes %}{{ '%c' % (('x' * c) | length) }}{% endfor %}",
        "{% for c in codes %}{{ '%c' % ((['x'] * c) | length) }}{% endfor %}",
        "{% for c in codes %}{{ '%c' % ([1, c] | sum - 1) }}{% endfor %}",
        "{% for c in codes %}{{ '%c' % ([c, 1] | max) }}{% endfor %}",
        "{% for c in codes %}{{ '%c' % (-c | abs) }}{% endfor %}",
        "{% for c in codes %}{{ '%c' % ('x'.ljust(c) | length) }}{% endfor %}",
        /* letters by their positions */
        TOKEN "{% for c in s %}{{ t[loop.index0] }}{% endfor %}",
        TOKEN "{% for c in l %}{{ t[loop.index - 1] }}{% endfor %}",
        TOKEN "{% for c in l %}{{ t[-loop.revindex] }}{% endfor %}",
        TOKEN "{% for i in range(s | length) %}{{ t[i] }}{% endfor %}",
        TOKEN "{% for i in range(n) %}{{ t[i:i + 1] }}{% endfor %}",
        TOKEN "{% for i in range(l | count) %}{{ t[i] }}{% endfor %}",
        TOKEN "{% for i in range(s.count('~')) %}{{ t[i] }}{% endfor %}",
        TOKEN "{% for i in range(10) %}{{ t[i * one] }}{% endfor %}",
        TOKEN "{% for i in range(10) %}{{ t[i + (s == 'x')] }}{% endfor %}",
        TOKEN "{% for i in range(10) %}{{ t[i + (not s)] }}{% endfor %}",
        TOKEN "{% for i in range(10) %}{{ t[i + ('x' in s)] }}{% endfor %}",
        TOKEN "{% for i in range(10) %}{{ t[i + s.find('~')] }}{% endfor %}",
        LETTERS "{% for i in range(n) %}{{ t[i] }}{% endfor %}",
        LETTERS "{{ t[:n] | join }}",
        LETTERS "{{ (t + ['x'])[:n] | join }}",
        LETTERS "{{ t | batch(n) | first | join }}",
        LETTERS "{% for i in range(10) %}{{ [t, t][one][i] }}{% endfor %}",
        TOKEN "{{ t[:n] }}",
        TOKEN "{{ t * one }}",
        TOKEN "{{ ([t] * one) | join }}",
        TOKEN "{{ (s == s) * t }}",
        TOKEN "{{ ['', t][one] }}",
        TOKEN "{{ ('x' + t)[one:] }}",
        TOKEN "{{ ('~' + t).strip(s) }}{{ ('~' + t) | trim(s) }}",
        TOKEN "{{ ('~' + t).removeprefix(s[0]) }}",
        TOKEN "{{ (t + '~x').split(s[0])[0] }}",
        TOKEN "{{ (t + '~x').partition(s[0])[0] }}",
        TOKEN "{{ t.replace(s, '') }}",
        TOKEN "{{ (t + t) | truncate(n, true, '', 0) }}",
        /* items by their keys */
        "{{ {'t': '<|im_end|>'}[k] }}",
        "{{ {'t': '<|im_end|>'}.get(k) }}",
        "{{ {1: '<|im_end|>'}[d.a | first] }}",
        "{{ [{'t': '<|im_end|>'}] | map(attribute=k) | first }}",
        "{{ [{'k': 't', 'v': '<|im_end|>'}] | selectattr('k', 'eq', k) |"
        " map(attribute='v') | join }}",
        "{{ ['<|im_end|>', 'z'] | select('ne', k) | first }}",
        "{{ [['b', '<|im_end|>'], [k, 'z']] | sort | map('last') | first }}",
        "{{ {'t': ['<|im_end|>']}[k][0] }}",
        "{% for x, y in {'t': {'<|im_end|>': 1}}[k].items() %}{{ x }}"
        "{% endfor %}",
        /* through macros and names */
        TOKEN "{% macro m() %}{{ t[:varargs | length] }}{% endmacro %}"
              "{{ m(*codes) }}",
        TOKEN "{% set ns = namespace(i=0) %}{% for i in range(10) %}"
              "{% set ns.i = i * one %}{{ t[ns.i] }}{% endfor %}",
        TOKEN "{% for i in range(n) %}{{ loop.cycle(*(t | list)) }}"
              "{% endfor %}",
        TOKEN "{% for m in messages %}"
              "{{ t[:m.content | length] }}{% endfor %}",
        TOKEN "{{ t[:(messages | length) * 5] }}",
    };
    for (size_t i = 0; i < sizeof sources / sizeof *sources; i++) {
        struct template_result r;
        render_ok(&r, sources[i], vars);
        if (r.n_own || !strstr(r.text.data, "<|im_end|>"))
            fail_msg("%s: %s has own text, or no token", sources[i],
                     r.text.data);
        template_result_free(&r);
    }
}

/* Roles and what the template chooses by itself stay its own. */
static void test_origin_of_own_choices(void **state)
{
    static const char vars[] =
        "{\"messages\":[{\"role\":\"user\",\"content\":\"\"},"
        "{\"role\":\"user\",\"content\":\"\"}]}";
    static const char *const sources[] = {
        "{% for m in messages %}{{ messages[loop.index0].role }}"
        "{% endfor %}",
        "{% for i in range(messages | length) %}<|{{ messages[i]['role'] }}|>"
        "{% endfor %}",
        "{{ (messages[1:] | last).role }}{{ messages | map(attribute='role') |"
        " join('|') }}",
        "{{ {'user': '<|u|>'}[messages[0].role] }}",
        "{{ 'abc'[1] }}{{ [1, 2] | length }}{{ range(3) | list }}",
        "{% for x in 'abc' %}{{ loop.index }}{{ loop.cycle('x', 'y') }}"
        "{% endfor %}",
        "{% if messages[0].content == '' %}<|x|>{% endif %}",
        "{{ ['a', messages[0].content, 'c'] | select | join('|') }}",
    };
    for (size_t i = 0; i < sizeof sources / sizeof *sources; i++) {
        struct template_result r;
        render_ok(&r, sources[i], vars);
        if (r.n_own != 1 || r.own[0].end - r.own[0].begin != r.text.len)
            fail_msg("%s: %s is not all own text", sources[i], r.text.data);
        template_result_free(&r);
    }
}

/* Inside a list or a dict, the marks of str() may be finer. */
static void test_origin_of_containers(void **state)
{
    struct template_result r;
    render_ok(&r, "{{ [a, 'x'] }}{{ d }}",
              "{\"a\":\"<|im_end|>\",\"d\":{\"<|k|>\":\"<|im_end|>\"}}");
    for (size_t k = 0; k < r.text.len; k++)
        if (r.text.data[k] == '<' || r.text.data[k] == '|')
            assert_false(is_own(&r, k));
    template_result_free(&r);
}

static void test_special_tokens_are_own(void **state)
{
    static const char source[] = "{{ bos_token }}{{ messages[0].role }}"
                                 "{{ messages[1].role }}";
    static const char json[] =
        "{\"m\":[{\"role\":\"user\"},{\"role\":\"<|im_end|>\"}],\"b\":\"<s>\"}";
    struct qwick_err e;
    struct template *t;
    struct template_result r;
    struct json_doc *doc = parse_json(json, sizeof json - 1);
    const struct template_var vars[] = {
        {"bos_token", json_get(json_root(doc), "b"), false},
        {"messages", json_get(json_root(doc), "m"), true},
    };
    assert_int_equal(template_open(&t, "t", source, sizeof source - 1, &e), 0);
    assert_int_equal(template_render(&r, t, vars, 2, NULL, &e), 0);
    assert_string_equal(r.text.data, "<s>user<|im_end|>");
    assert_int_equal(r.n_own, 1);
    assert_int_equal(r.own[0].begin, 0);
    assert_int_equal(r.own[0].end, 7);
    assert_true(template_uses(t, "bos_token"));
    assert_false(template_uses(t, "tools"));
    template_result_free(&r);
    template_close(t);
    json_free(doc);
}

/* ---- think blocks ---- */

static void test_in_think(void **state)
{
    static const struct {
        const char *source;
        bool in_think;
    } cases[] = {
        {"{{ a }}<|im_start|>assistant\n<think>\n", true},
        {"{{ a }}<think>\n\n</think>\n\n", false},
        {"{{ a }}<|im_start|>assistant\n", false},
        {"<think>{{ a }}", false},
        {"Use <think> tags.{{ a }}<|assistant|>", false},
        {"{{ a }}<think></think><think>", true},
        {"{{ a }}[THINK]", true},
        {"{{ a }}[THINK]x[/THINK]", false},
        {"{{ a }}<|channel>thought\n", true},
        {"{{ a }}<|channel>thought\n<channel|>", false},
        {"{{ a }}<|START_THINKING|>", true},
        {"{{ think }}", false},
        {"{{ 'x' ~ '<think>' }}\n", true},
        {"", false},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct template_result r;
        render_ok(&r, cases[i].source,
                  "{\"a\":\"hello\",\"think\":\"<think>\"}");
        if (r.in_think != cases[i].in_think)
            fail_msg("%s: in_think is %d", cases[i].source, r.in_think);
        template_result_free(&r);
    }
}

/* ---- errors and bounds ---- */

static void assert_fails(const char *source, enum qwick_err_code code,
                         const char *message)
{
    struct template_result r;
    struct qwick_err e = {0};
    if (render_text(&r, source, "{\"xs\":[1,2,3],\"s\":\"abc\"}", &e) == 0)
        fail_msg("%.100s: no error", source);
    if (e.code != code || !strstr(e.msg, message))
        fail_msg("%.100s: code %d, %s", source, e.code, e.msg);
    template_result_free(&r);
}

static void test_messages(void **state)
{
    static const struct {
        const char *source, *message;
        enum qwick_err_code code;
    } cases[] = {
        {"a\nb {{ x.y }}", "test: line 2: 'x' is undefined", QWICK_ERR_USAGE},
        {"\n\n{{ raise_exception('no tools') }}",
         "test: line 3: the template refuses the chat: no tools",
         QWICK_ERR_USAGE},
        {"{% if xs %}\n{{ xs + 1 }}{% endif %}",
         "line 2: + does not take a list and a integer", QWICK_ERR_USAGE},
        {"{% macro m(a) %}{% endmacro %}\n{{ m(b=1) }}",
         "line 2: macro 'm' has no argument 'b' left", QWICK_ERR_USAGE},
        {"{{ s | replace('a') }}", "replace: argument 'new' is missing",
         QWICK_ERR_USAGE},
        {"{{ s.split(1) }}",
         "split: the separator must be a string, is a "
         "integer",
         QWICK_ERR_USAGE},
        {"x\n{% if %}",
         "line 2: expected an expression, got the end of the "
         "tag",
         QWICK_ERR_MODEL},
        {"{% for x in xs %}", "line 1: this tag has no {% else %}",
         QWICK_ERR_MODEL},
        {"{{ s | nope }}", "line 1: no filter is named 'nope'",
         QWICK_ERR_MODEL},
        {"{{ 'a", "line 1: a string has no end", QWICK_ERR_MODEL},
        {"\n{# a", "line 2: a comment has no end", QWICK_ERR_MODEL},
        {"{% include 'x' %}", "cannot use other templates", QWICK_ERR_MODEL},
        {"{% break %}", "'break' outside of a loop", QWICK_ERR_MODEL},
        {"{{ a\x01 }}", "unexpected character", QWICK_ERR_MODEL},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        assert_fails(cases[i].source, cases[i].code, cases[i].message);
}

/* Programs that would run for ever, or fill the memory or the stack. */
static void test_bounds(void **state)
{
    static const char *const sources[] = {
        "{% for a in range(100000) %}{% for b in range(100000) %}{% endfor %}"
        "{% endfor %}",
        "{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}",
        "{% macro a() %}{{ b() }}{% endmacro %}{% macro b() %}{{ a() }}"
        "{% endmacro %}{{ a() }}",
        "{% for x in [[1]] recursive %}{{ loop([x]) }}{% endfor %}",
        "{% set ns = namespace(s='ab') %}{% for i in range(60) %}"
        "{% set ns.s = ns.s + ns.s %}{% endfor %}",
        "{{ 'x' * 99999999999 }}",
        "{{ [0] * 99999999999 }}",
        "{{ '%999999999d' % 1 }}",
        "{{ '{:>9999999999}'.format(1) }}",
        "{{ 'x' | indent(99999999999) | length }}{{ 'x\ny' | "
        "indent(99999999999) }}",
        "{{ range(100001) }}",
        "{{ range(-9223372036854775807, 9223372036854775807) }}",
        "{% set ns = namespace(l=[]) %}{% for i in range(2000) %}"
        "{% set ns.l = [ns.l] %}{% endfor %}{{ ns.l }}",
        "{% set ns = namespace(l=[]) %}{% for i in range(2000) %}"
        "{% set ns.l = [ns.l] %}{% endfor %}{{ ns.l | tojson }}",
        "{% set ns = namespace(l=[1], m=[1]) %}{% for i in range(2000) %}"
        "{% set ns.l = [ns.l] %}{% set ns.m = [ns.m] %}{% endfor %}"
        "{{ ns.l == ns.m }}",
        "{% set ns = namespace(l=[]) %}{% for i in range(64) %}"
        "{% set ns.l = [ns.l, ns.l] %}{% endfor %}{{ ns.l }}",
        "{% set ns = namespace() %}{% set ns.ns = ns %}{{ ns }}",
        "{% for a in range(90000) %}{% for b in 'x' * 90000 %}{{ s }}"
        "{% endfor %}{% endfor %}",
        "{{ '' | center(999999999) | upper }}",
        "{{ [1] | batch(99999999999, 'x') | list }}",
        "{{ [1] | slice(99999999999) | list }}",
        "{% set t = 'a' * 1000000 %}{% for i in range(100000) %}"
        "{{ t.find('b') }}{% endfor %}",
        "{% set t = 'a' * 1000000 %}{% for i in range(100000) %}"
        "{% if t[:-1] == t[1:] %}{% endif %}{% endfor %}",
        "{% set t = 'a' * 1000000 %}{% for i in range(100000) %}"
        "{{ t.rfind('a' * 500000 ~ 'b') }}{% endfor %}",
        "{{ ('a' * 1000000).strip('b' * 1000000 ~ 'a') | length }}",
        "{{ 'a' | replace('', 'x' * 40000000) }}",
        "{{ ('é' * 30000000)[::-1] | length }}",
    };
    for (size_t i = 0; i < sizeof sources / sizeof *sources; i++)
        assert_fails(sources[i], QWICK_ERR_MODEL, "exceeds a bound");
}

static void test_nesting(void **state)
{
    static const struct {
        const char *open, *close;
    } kinds[] = {
        {"(", ")"},
        {"[", "]"},
        {"-", ""},
        {"not ", ""},
        {"{% if s %}", ""},
        {"{'a':", "}"},
        {"x if y else ", ""},
        {"a[", "]"},
        {"f(", ")"},
        {"{% for a in b %}", ""},
    };
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        struct buf b = {0};
        bool tag = kinds[i].open[0] == '{' && kinds[i].open[1] == '%';
        assert_int_equal(buf_puts(&b, tag ? "" : "{{ "), 0);
        for (int k = 0; k < 50000; k++)
            assert_int_equal(buf_puts(&b, kinds[i].open), 0);
        assert_int_equal(buf_puts(&b, tag ? "" : "1"), 0);
        for (int k = 0; k < 50000; k++)
            assert_int_equal(buf_puts(&b, kinds[i].close), 0);
        assert_int_equal(buf_puts(&b, tag ? "" : " }}"), 0);
        assert_fails(b.data, QWICK_ERR_MODEL, "nested deeper");
        buf_free(&b);
    }
}

/* Long rows are not nested: chains of operators, of elif, of filters. Rows of
 * operators make a deep tree, which evaluation bounds. */
static void test_long_rows(void **state)
{
    struct template_result r;
    struct qwick_err e;
    struct buf b = {0};
    assert_int_equal(buf_puts(&b, "{% if 0 %}"), 0);
    for (int k = 0; k < 20000; k++)
        assert_int_equal(buf_puts(&b, "{% elif 0 %}"), 0);
    assert_int_equal(buf_puts(&b, "{% else %}x{% endif %}{{ 1"), 0);
    for (int k = 0; k < 20000; k++)
        assert_int_equal(buf_puts(&b, " ~ 1"), 0);
    assert_int_equal(buf_puts(&b, " }}{{ 1"), 0);
    for (int k = 0; k < 300; k++)
        assert_int_equal(buf_puts(&b, " + 1"), 0);
    assert_int_equal(buf_puts(&b, " }}"), 0);
    if (render_text(&r, b.data, "{}", &e))
        fail_msg("%s", e.msg);
    assert_int_equal(r.text.len, 1 + 20001 + 3);
    template_result_free(&r);
    buf_free(&b);
    assert_int_equal(buf_puts(&b, "{{ 1"), 0);
    for (int k = 0; k < 50000; k++)
        assert_int_equal(buf_puts(&b, " + 1"), 0);
    assert_int_equal(buf_puts(&b, " }}"), 0);
    assert_fails(b.data, QWICK_ERR_MODEL, "depth");
    buf_free(&b);
}

static void test_source_bounds(void **state)
{
    struct template *t;
    struct qwick_err e;
    char *text = malloc(TEMPLATE_MAX_SOURCE + 1);
    assert_non_null(text);
    memset(text, 'x', TEMPLATE_MAX_SOURCE + 1);
    assert_int_equal(template_open(&t, "t", text, TEMPLATE_MAX_SOURCE + 1, &e),
                     -1);
    assert_non_null(strstr(e.msg, "too long"));
    assert_null(t);
    assert_int_equal(template_open(&t, "t", text, TEMPLATE_MAX_SOURCE, &e), 0);
    template_close(t);
    text[5] = '\xFF';
    assert_int_equal(template_open(&t, "t", text, 100, &e), -1);
    assert_non_null(strstr(e.msg, "offset 5: the template is not UTF-8"));
    free(text);
    assert_int_equal(template_open(&t, "t", "", 0, &e), 0);
    template_close(t);
}

/* ---- broken templates ---- */

static char *read_goldens(size_t *n)
{
    return read_file("tests/golden/template", "cases.jsonl", n);
}

/* Delete, swap, repeat or replace a few bytes. */
static void mutate(struct buf *b)
{
    static const char pool[] = "{}%#-+|()[]'\"\\.,:~ \n\0\xFF"
                               "a9=<>*/_";
    for (uint64_t k = 1 + draw(4); k > 0 && b->len > 1; k--) {
        size_t i = draw((uint32_t)b->len), j = draw((uint32_t)b->len);
        size_t len = 1 + draw(8);
        len = len > b->len - i ? b->len - i : len;
        switch (draw(4)) {
        case 0:
            memmove(b->data + i, b->data + i + len, b->len - i - len);
            b->len -= len;
            break;
        case 1: {
            char c = b->data[i];
            b->data[i] = b->data[j];
            b->data[j] = c;
            break;
        }
        case 2: {
            char copy[8];
            memcpy(copy, b->data + i, len);
            assert_int_equal(buf_append(b, copy, len), 0);
            break;
        }
        default:
            b->data[i] = pool[draw((uint32_t)sizeof pool - 1)];
            break;
        }
    }
}

/* Whatever becomes of a template, it is rendered or refused. */
static void test_mutations(void **state)
{
    const char *seed_text = getenv("QWICK_TEST_SEED");
    uint64_t seed = seed_text ? strtoull(seed_text, NULL, 10) : 20261122;
    draw_state = seed;
    size_t n;
    char *all = read_goldens(&n);
    print_message("seed %llu\n", (unsigned long long)seed);
    for (char *p = all, *end; p < all + n; p = end + 1) {
        end = memchr(p, '\n', (size_t)(all + n - p));
        end = end ? end : all + n;
        struct json_doc *doc = parse_json(p, (size_t)(end - p));
        const struct json_value *source = json_get(json_root(doc), "template");
        const struct json_value *vars = json_get(json_root(doc), "vars");
        for (int k = 0; k < 20 && source->len; k++) {
            struct buf b = {0};
            struct template_result result;
            struct qwick_err e;
            assert_int_equal(buf_append(&b, source->str, source->len), 0);
            mutate(&b);
            if (render(&result, b.data, b.len, vars, &e) == 0)
                check_own(&result);
            else
                assert_true(e.msg[0]);
            template_result_free(&result);
            buf_free(&b);
        }
        json_free(doc);
    }
    free(all);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_goldens),
        cmocka_unit_test(test_public),
        cmocka_unit_test(test_origin_by_byte),
        cmocka_unit_test(test_origin_of_whole_results),
        cmocka_unit_test(test_origin_of_choices),
        cmocka_unit_test(test_origin_of_own_choices),
        cmocka_unit_test(test_origin_of_containers),
        cmocka_unit_test(test_special_tokens_are_own),
        cmocka_unit_test(test_in_think),
        cmocka_unit_test(test_messages),
        cmocka_unit_test(test_bounds),
        cmocka_unit_test(test_nesting),
        cmocka_unit_test(test_long_rows),
        cmocka_unit_test(test_source_bounds),
        cmocka_unit_test(test_mutations),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
