/* Prompt templates. The command line is not a library, so its file is compiled
 * into the test. */
#include "test.h"

#include <stdlib.h>
#include <string.h>

#include "text/prompt_template.h"

/* Each field becomes <its name>, which must not be read as a template again. */
static int show(void *ctx, const struct template_part *field, const char **s,
                size_t *n, struct qwick_err *e)
{
    struct buf *b = ctx;
    (void)e;
    b->len = 0;
    buf_puts(b, "<{}");
    buf_append(b, field->s, field->n);
    buf_puts(b, "{{>");
    *s = b->data;
    *n = b->len;
    return 0;
}

/* Fill a template, or get the error's message. */
static char *fill(const char *text, size_t n,
                  const struct template_names *known)
{
    struct prompt_template t;
    struct qwick_err e = {0};
    struct buf out = {0}, value = {0};
    char *copy = malloc(n ? n : 1);
    assert_non_null(copy);
    memcpy(copy, text, n);
    if (prompt_template_parse(&t, "t.txt", copy, n, 3, known, &e)) {
        assert_int_equal(e.code, QWICK_ERR_USAGE);
        buf_printf(&out, "!%s", e.msg);
    } else {
        free(copy);
        copy = NULL;
        assert_int_equal(prompt_template_fill(&t, show, &value, &out, &e), 0);
    }
    free(copy);
    buf_free(&value);
    prompt_template_free(&t);
    if (!out.data)
        buf_puts(&out, "");
    return buf_take(&out, NULL);
}

/* A text, and what it becomes; in front of the error's message there is "!". */
static const struct {
    const char *text, *filled;
} cases[] = {
    {"", ""},
    {"plain", "plain"},
    {"{}", "<{}{{>"},
    {"a {} b {} c", "a <{}{{> b <{}{{> c"},
    {"{name}", "<{}name{{>"},
    {"{first name}: {x-y_z.1}", "<{}first name{{>: <{}x-y_z.1{{>"},
    {"{größe}{3}", "<{}größe{{><{}3{{>"},
    /* doubled braces */
    {"{{}}", "{}"},
    {"{{name}}", "{name}"},
    {"{{{name}}}", "{<{}name{{>}"},
    {"{{{}}}", "{<{}{{>}"},
    {"{{{{", "{{"},
    {"{{\"a\": {{\"b\": {}}}}}", "{\"a\": {\"b\": <{}{{>}}"},
    /* single braces, as in JSON and programs */
    {"{\"a\": 1}", "{\"a\": 1}"},
    {"{\"a\": \"{}\"}", "{\"a\": \"<{}{{>\"}"},
    {"{\"a\": {}}", "{\"a\": <{}{{>}"},
    {"if (x) {\n  y(); }\n", "if (x) {\n  y(); }\n"},
    {"import {a, b}", "import {a, b}"},
    {"{\n}", "{\n}"},
    {"{a\nb}", "{a\nb}"},
    {"{", "{"},
    {"}", "}"},
    {"a{b", "a{b"},
    {"{ {} }", "{ <{}{{> }"},
    {"{a:{}", "{a:<{}{{>"},
    {"{x=1}", "{x=1}"},
    /* doubtful */
    {"{ }", "!t.txt:3: \"{ }\": a field has no blanks at its ends; {{ and }} "
            "are braces"},
    {"\n\n{name }", "!t.txt:5: \"{name }\": a field has no blanks at its ends; "
                    "{{ and }} are braces"},
    {"{\tname}",
     "!t.txt:3: \"{\\x09name}\": a field has no blanks at its ends; "
     "{{ and }} are braces"},
    {"{\"a\":\n {\"b\": 1}}",
     "!t.txt:4: \"{{\" and \"}}\" are one brace each, but line 3 has a single "
     "one; double each brace that is not of a field, or put a blank between "
     "the two"},
    {"{{a}}\n}",
     "!t.txt:3: \"{{\" and \"}}\" are one brace each, but line 4 has a single "
     "one; double each brace that is not of a field, or put a blank between "
     "the two"},
};

static void templates_are_filled_or_refused(void **state)
{
    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        char *got = fill(cases[i].text, strlen(cases[i].text), NULL);
        if (strcmp(got, cases[i].filled) != 0)
            fail_msg("%s\ngives\n%s\nnot\n%s", cases[i].text, got,
                     cases[i].filled);
        free(got);
    }
}

static void known_names_may_be_of_any_kind(void **state)
{
    static const char *const names[] = {"price ($)", " a "};
    const struct template_names known = {names, 2};
    static const char text[] = "{price ($)}{ a }{price (x)}";
    char *got = fill(text, sizeof(text) - 1, &known);
    assert_string_equal(got, "<{}price ($){{><{} a {{>{price (x)}");
    free(got);
}

static void fields_are_found(void **state)
{
    struct prompt_template t;
    struct qwick_err e;
    assert_int_equal(
        prompt_template_parse(&t, "t", "a\n{b}{{c}}\n{}", 13, 1, NULL, &e), 0);
    assert_int_equal(prompt_template_find(&t, "b", 1)->line, 2);
    assert_int_equal(prompt_template_find(&t, "", 0)->line, 3);
    assert_null(prompt_template_find(&t, "c", 1));
    assert_null(prompt_template_find(&t, "bc", 2));
    prompt_template_free(&t);
}

static void a_nul_is_text(void **state)
{
    struct prompt_template t;
    struct qwick_err e;
    struct buf out = {0}, value = {0};
    assert_int_equal(prompt_template_parse(&t, "t", "a\0{\0}", 5, 1, NULL, &e),
                     0);
    assert_int_equal(prompt_template_fill(&t, show, &value, &out, &e), 0);
    assert_int_equal(out.len, 5);
    assert_memory_equal(out.data, "a\0{\0}", 5);
    buf_free(&out);
    prompt_template_free(&t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(templates_are_filled_or_refused),
        cmocka_unit_test(known_names_may_be_of_any_kind),
        cmocka_unit_test(fields_are_found),
        cmocka_unit_test(a_nul_is_text),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
