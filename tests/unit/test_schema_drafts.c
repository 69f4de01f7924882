/* Drafts of JSON Schema: spellings that depend on "$schema", keywords that a
 * draft does not have, identifiers, and references that depend on the way. In
 * the schemas and documents here, ' stands for ". */
#include "schema_automaton.h"

#include <stdlib.h>
#include <string.h>

#include "base/buf.h"

#define D4    "'$schema':'http://json-schema.org/draft-04/schema#'"
#define D6    "'$schema':'http://json-schema.org/draft-06/schema#'"
#define D7    "'$schema':'http://json-schema.org/draft-07/schema'"
#define D2019 "'$schema':'https://json-schema.org/draft/2019-09/schema'"
#define D2020 "'$schema':'https://json-schema.org/draft/2020-12/schema'"

/* Return a copy of a text with double quotes for single ones. */
static char *quoted(const char *text)
{
    char *copy = strdup(text);
    assert_non_null(copy);
    for (char *c = copy; *c; c++)
        if (*c == '\'')
            *c = '"';
    return copy;
}

/* Compile a schema. *names: the names without effect, with newlines; NULL: not
 * needed. NULL with *e set if it is refused. */
static struct automaton *compile(const char *schema, char **names,
                                 struct qwick_err *e)
{
    char *text = quoted(schema);
    struct grammar *g = grammar_of(text, strlen(text), 0, e);
    struct automaton *a = NULL;
    size_t n;
    if (g)
        assert_ok(automaton_create(&a, g, e), e);
    if (g && names)
        *names = strdup(grammar_remarks(g, GRAMMAR_IGNORED, &n));
    grammar_free(g);
    free(text);
    return a;
}

static void check_documents(const char *schema, const char *const *docs,
                            bool valid)
{
    struct qwick_err e;
    struct automaton *a = compile(schema, NULL, &e);
    if (!a)
        fail_msg("%s: %s", schema, e.msg);
    for (; *docs; docs++) {
        char *doc = quoted(*docs);
        if (matches(a, doc, strlen(doc)) != valid)
            fail_msg("%s: %s %s", schema, valid ? "refuses" : "admits", doc);
        free(doc);
    }
    automaton_free(a);
}

enum { MAX_DOCS = 8 };

struct draft_case {
    const char *schema;
    const char *valid[MAX_DOCS], *invalid[MAX_DOCS];
};

static void check_cases(const struct draft_case *cases, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        check_documents(cases[i].schema, cases[i].valid, true);
        check_documents(cases[i].schema, cases[i].invalid, false);
    }
}
#define CHECK_CASES(cases) check_cases(cases, sizeof(cases) / sizeof *(cases))

static void reads_old_spellings(void **state)
{
    (void)state;
    static const struct draft_case cases[] = {
        {"{'items':[{'type':'null'},{'type':'boolean'}],'type':'array'}",
         {"[]", "[null]", "[null,true,7]"},
         {"[1]", "[null,null]"}},
        {"{" D2019 ",'items':[{'type':'null'}],'type':'array',"
         "'additionalItems':{'type':'boolean'},'prefixItems':[false]}",
         {"[]", "[null,true,true]"},
         {"[true]", "[null,null]"}},
        {"{" D4 ",'items':[{'type':'null'}],'additionalItems':false}",
         {"[]", "[null]", "{}"},
         {"[null,null]"}},
        {"{'type':'array','items':{'type':'integer'},'additionalItems':false}",
         {"[]", "[1,2]"},
         {"[null]"}},
        {"{" D4 ",'type':'integer','minimum':1,'exclusiveMinimum':true,"
         "'exclusiveMaximum':true,'maximum':4}",
         {"2", "3"},
         {"1", "4"}},
        {"{'type':'integer','exclusiveMinimum':false,'minimum':1,'maximum':4}",
         {"1", "4"},
         {"0", "5"}},
        {"{'type':'integer','exclusiveMaximum':true,'exclusiveMinimum':7}",
         {"8", "123"},
         {"7"}},
        {"{" D7 ",'$ref':'#/definitions/a','type':'string','definitions':{'a':"
         "{'type':'null'}}}",
         {"null"},
         {"'a'", "1"}},
        {"{" D2019 ",'$ref':'#/$defs/a','maximum':3,'$defs':{'a':"
         "{'type':'integer'}}}",
         {"3"},
         {"4", "null"}},
    };
    CHECK_CASES(cases);
}

/* A keyword of a later draft is none. */
static void reads_only_keywords_of_the_draft(void **state)
{
    static const struct {
        const char *schema, *names; /* those without effect */
    } cases[] = {
        {"{" D4 ",'enum':[1],'const':2,'$id':'a','examples':[]}",
         "const (not in draft 4)\n$id (not in draft 4)\n"},
        {"{" D6 ",'enum':[1],'if':true,'then':false,'id':7}",
         "if (not in draft 6)\nthen (not in draft 6)\nid (not in draft 6)\n"},
        {"{" D7 ",'enum':[1],'dependentRequired':3}",
         "dependentRequired (not in draft 7)\n"},
        {"{" D2019 ",'enum':[1],'prefixItems':3}",
         "prefixItems (not in draft 2019-09)\n"},
        {"{'enum':[1],'id':'a','$schema':'http://example.org/mine'}",
         "id (not in draft 2020-12)\n"},
        {"{" D4 ",'enum':[1],'id':'a','$comment':''}", ""},
        {"{" D4 ",'enum':[1],'anyOf':[{},{'not':{'const':1}}]}",
         "const (not in draft 4)\n"},
        {"{" D7 ",'definitions':{'a':{'enum':[1]}},'$ref':'#/definitions/a',"
         "'const':2,'title':'t'}",
         "const beside $ref\n"},
        {"{'enum':[1],'additionalItems':false,'nullable':true,"
         "'format':'int32','x-a':1,'_enum':[],'properties':{'b':"
         "{'nullable':false,'format':'a\\nb'}}}",
         "additionalItems\nnullable\nformat \"int32\"\n_enum\n"
         "format \"a\\x0ab\"\n"},
        {"{'enum':[1],'format':'date'}", ""},
        {"{'type':'integer','enum':[1],'format':'uuid'}", ""},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        static const char *const valid[] = {"1", NULL};
        struct qwick_err e;
        char *names = NULL;
        struct automaton *a = compile(cases[i].schema, &names, &e);
        if (!a)
            fail_msg("%s: %s", cases[i].schema, e.msg);
        assert_string_equal(names, cases[i].names);
        free(names);
        automaton_free(a);
        check_documents(cases[i].schema, valid, true);
    }
}

static void finds_identifiers(void **state)
{
    (void)state;
    static const struct draft_case cases[] = {
        /* draft 4 has id, and later ones $id */
        {"{" D4 ",'$ref':'b#/definitions/t','definitions':{'a':{'id':'b',"
         "'definitions':{'t':{'type':'null'}}}}}",
         {"null"},
         {"1"}},
        {"{" D4 ",'id':'http://x/a','$ref':'#t','definitions':{'a':{'id':'#t',"
         "'type':'null'}}}",
         {"null"},
         {"1"}},
        {"{" D7 ",'$id':'http://x/a','allOf':[{'$ref':'http://x/b'}],"
         "'definitions':{'a':{'$id':'b','type':'null'}}}",
         {"null"},
         {"1"}},
        /* without $schema, id names nothing */
        {"{'$ref':'#/$defs/a','$defs':{'t':{'type':'null'},'a':{'id':'b',"
         "'anyOf':[{'$ref':'#/$defs/t'}]}}}",
         {"null"},
         {"1"}},
        /* until draft 7, $ref hides $id */
        {"{" D7 ",'$id':'http://x/','definitions':{'x':{'$id':'http://x/b/c',"
         "'type':'null'},'c':{'$id':'http://x/c','type':'boolean'}},"
         "'allOf':[{'$id':'http://x/b/','$ref':'c'}]}",
         {"true"},
         {"null"}},
        /* a resource may be of another draft */
        {"{'items':{'$ref':'b'},'type':'array','$defs':{'a':{'$id':'b'," D7
         ",'$ref':'#/definitions/t','const':1,'definitions':"
         "{'t':{'type':'null'}}}}}",
         {"[null]"},
         {"[1]"}},
        /* but $schema alone begins none */
        {"{'$ref':'#/definitions/a','definitions':{'a':{" D4 ",'id':'b',"
         "'anyOf':[{'$ref':'#/definitions/t'}],'const':null},'t':{'enum':"
         "[null,1]}}}",
         {"null"},
         {"1"}},
        {"{'items':{'$ref':'b'},'type':'array','$defs':{'a':{'$id':'b'," D7
         ",'allOf':[{'$ref':'#/definitions/t','const':1}],'definitions':"
         "{'t':{'type':'null'}}}}}",
         {"[null]"},
         {"[1]"}},
    };
    CHECK_CASES(cases);
}

/* A tree of numbers, whose items a schema around it may extend. */
#define TREE(ref)                                                            \
    "{'$id':'tree'," ref "'type':'object','additionalProperties':false,"     \
    "'properties':{'n':{'type':'integer'},'sub':{'type':'array','items':"

static void resolves_dynamic_references(void **state)
{
    (void)state;
    static const struct draft_case cases[] = {
        {"{" D2019 ",'$recursiveAnchor':true,'type':'array','items':"
         "{'$recursiveRef':'#'}}",
         {"[]", "[[],[[]]]"},
         {"[1]"}},
        {"{'type':'array','items':{'$dynamicRef':'#'}}", {"[[]]"}, {"[1]"}},
        /* there is one anchor */
        {"{'$ref':'tree','$defs':{'a':" TREE("'$dynamicAnchor':'node',")
         "{'$dynamicRef':'#node'}}}}}}",
         {"{'n':1,'sub':[{},{'sub':[]}]}"},
         {"{'sub':[1]}"}},
        /* the whole schema has it, too, and is the outermost one */
        {"{'$id':'all','$dynamicAnchor':'node','$ref':'tree','required':['n'],"
         "'$defs':{'a':" TREE("'$dynamicAnchor':'node',")
         "{'$dynamicRef':'#node'}}}}}}",
         {"{'n':1}", "{'n':1,'sub':[{'n':2}]}"},
         {"{}", "{'n':1,'sub':[{}]}"}},
        {"{" D2019 ",'$id':'all','$recursiveAnchor':true,'$ref':'tree',"
         "'required':['n'],'$defs':{'a':" TREE("'$recursiveAnchor':true,")
         "{'$recursiveRef':'#'}}}}}}",
         {"{'n':1,'sub':[{'n':2}]}"},
         {"{}", "{'n':1,'sub':[{}]}"}},
        /* an $anchor is not dynamic */
        {"{'$id':'all','$dynamicAnchor':'node','$ref':'tree','required':['n'],"
         "'$defs':{'a':" TREE("'$anchor':'node',")
         "{'$dynamicRef':'#node'}}}}}}",
         {"{'n':1,'sub':[{}]}"},
         {"{}"}},
    };
    CHECK_CASES(cases);
}

static void refuses_by_draft(void **state)
{
    static const struct {
        const char *schema, *message;
    } cases[] = {
        {"{'$schema':'http://json-schema.org/draft-03/schema#'}",
         "S: #/$schema: drafts before 4 are not supported"},
        {"{'items':[{}],'prefixItems':[{}]}",
         "S: #/items: an array cannot be combined with prefixItems"},
        {"{'exclusiveMinimum':'1'}",
         "S: #/exclusiveMinimum: a number expected, not a string"},
        {"{'dependencies':{'a':[1]}}",
         "S: #/dependencies: a string expected, not a number"},
        {"{'$ref':'b','$defs':{'a':{'$id':'b','$dynamicAnchor':'t',"
         "'$dynamicRef':'#t'},'c':{'$id':'d','$dynamicAnchor':'t'}}}",
         "S: #/$defs/a/$dynamicRef: its target depends on the way to it"},
        {"{'$ref':'http://json-schema.org/draft-07/schema#'}",
         "S: #/$ref: \"http://json-schema.org/draft-07/schema#\" is outside"},
        {"{" D4 ",'maxLenght':3,'minLengt':3,'items':{'propertys':{}}}",
         "S: #/maxLenght: is no keyword, did you mean maxLength?; #/minLengt: "
         "is no keyword, did you mean minLength?; #/items/propertys: is no "
         "keyword, did you mean properties?"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct qwick_err e;
        if (compile(cases[i].schema, NULL, &e))
            fail_msg("%s is accepted", cases[i].schema);
        if (strncmp(e.msg, cases[i].message, strlen(cases[i].message)) != 0)
            fail_msg("%s: %s\nexpected %s", cases[i].schema, e.msg,
                     cases[i].message);
    }
}

/* Many problems and names take bounded time and memory. */
static void counts_problems(void **state)
{
    struct buf b = {0};
    struct qwick_err e;
    (void)state;
    buf_puts(&b, "{'properties':{");
    for (int i = 0; i < 900; i++)
        buf_printf(&b, "'%d':{'requird':[],'name%d':1},", i, i);
    buf_puts(&b, "'a':{}}}");
    assert_null(compile(b.data, NULL, &e));
    assert_true(strncmp(e.msg, "S: #/properties/0/requird: is no", 32) == 0);
    assert_non_null(strstr(e.msg, "; and "));
    assert_non_null(strstr(e.msg, " more"));
    b.len = 0;
    buf_puts(&b, "{'enum':[1]");
    for (int i = 0; i < 40000; i++)
        buf_printf(&b, ",'a%dname':1", i);
    buf_puts(&b, "}");
    char *names = NULL;
    struct automaton *a = compile(b.data, &names, &e);
    assert_non_null(a);
    assert_true(strlen(names) < 1000);
    automaton_free(a);
    free(names);
    buf_free(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reads_old_spellings),
        cmocka_unit_test(reads_only_keywords_of_the_draft),
        cmocka_unit_test(finds_identifiers),
        cmocka_unit_test(resolves_dynamic_references),
        cmocka_unit_test(refuses_by_draft),
        cmocka_unit_test(counts_problems),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
