/* JSON schemas: not, oneOf, if, dependentRequired, dependentSchemas and
 * unevaluated…. */
#include "base/buf.h"
#include "schema_docs.h"

static const struct documents documents[] = {
    /* not: types, numbers, strings */
    {"{'not':{'type':'integer'}}",
     {"1.5", "-0.25", "123456789.5", "'a'", "null", "[]", "{}", "1.50"},
     {"1", "-3", "1.0", "1e3", "1.00000000000000000001"}},
    {"{'not':{'type':['string','object']}}", {"1", "[1]"}, {"'a'", "{}"}},
    {"{'type':'number','not':{'minimum':3}}", {"2", "2.5"}, {"3", "4"}},
    {"{'type':'number','not':{'maximum':3}}",
     {"4", "3.5"},
     {"3", "2", "3.00000000000000000001"}},
    {"{'type':'integer','not':{'exclusiveMinimum':3}}", {"3"}, {"4"}},
    {"{'type':'integer','not':{'multipleOf':3}}", {"1", "-2"}, {"0", "-6"}},
    {"{'type':'number','not':{'multipleOf':3}}", {"1", "1.5"}, {"9", "9.0"}},
    {"{'type':'string','not':{'minLength':3}}", {"'ab'"}, {"'abc'"}},
    {"{'type':'string','not':{'maxLength':3}}", {"'abcd'"}, {"'abc'"}},
    {"{'type':'string','not':{'pattern':'^a'}}", {"'ba'", "''"}, {"'ab'"}},
    {"{'not':{'type':'string','pattern':'^a'}}", {"'b'", "1"}, {"'a'"}},
    {"{'not':{'not':{'type':'string'}}}", {"'a'"}, {"1"}},
    {"{'type':'integer','not':{'minimum':3,'maximum':5}}",
     {"2", "6"},
     {"3", "5"}},
    /* not: values */
    {"{'not':{'const':[]}}", {"1", "[1]", "{}"}, {"[]"}},
    {"{'not':{'const':[1,2]}}",
     {"[]", "[1]", "[2,2]", "[1,3]", "[1,2,3]", "{}"},
     {"[1,2]"}},
    {"{'not':{'enum':[1,{'a':1,'b':2}]}}",
     {"2", "{}", "{'a':1}", "{'a':1,'b':3}", "{'a':1,'b':2,'c':3}"},
     {"1", "{'a':1,'b':2}"}},
    {"{'not':{'type':'string','enum':['a','b']}}", {"'c'", "1"}, {"'a'"}},
    {"{'enum':[1,'a',[2]],'not':{'type':['array','string']}}",
     {"1"},
     {"'a'", "[2]"}},
    /* not: arrays */
    {"{'type':'array','not':{'minItems':2}}", {"[]", "[1]"}, {"[1,2]"}},
    {"{'type':'array','not':{'maxItems':1}}", {"[1,2]"}, {"[]", "[1]"}},
    {"{'type':'array','not':{'prefixItems':[{'type':'null'},{'const':1}]}}",
     {"[1]", "[null,2]", "[2,1]"},
     {"[]", "[null]", "[null,1]", "[null,1,2]"}},
    {"{'type':'array','not':{'prefixItems':[true],'items':false}}",
     {"[1,2]"},
     {"[]", "[1]"}},
    {"{'type':'array','not':{'items':{'type':'integer'}}}",
     {"[null]", "[1,null,2]"},
     {"[]", "[1]", "[1,2]"}},
    {"{'type':'array','not':{'contains':{'type':'integer'}}}",
     {"[]", "[null]", "[1.5,null]"},
     {"[1]", "[null,1]"}},
    /* not: objects */
    {"{'type':'object','properties':{'a':true,'b':true,'c':true},"
     "'additionalProperties':false,'not':{'minProperties':2}}",
     {"{}", "{'a':1}", "{'c':1}"},
     {"{'a':1,'b':1}", "{'a':1,'b':1,'c':1}"}},
    {"{'type':'object','properties':{'a':true,'b':true,'c':true},"
     "'additionalProperties':false,'not':{'maxProperties':1}}",
     {"{'a':1,'b':1}", "{'a':1,'b':1,'c':1}"},
     {"{}", "{'a':1}", "{'c':1}"}},
    {"{'type':'object','not':{'propertyNames':{'pattern':'^x','maxLength':2}}}",
     {"{'y':1}", "{'xyz':1}", "{'x':1,'a':1}"},
     {"{}", "{'x':1}", "{'xy':1,'x':1}"}},
    {"{'type':'object','not':{'required':['a','b']}}",
     {"{}", "{'a':1}", "{'b':1}", "{'c':1}"},
     {"{'a':1,'b':1}"}},
    {"{'type':'object','properties':{'a':{'type':'integer'},'b':true},"
     "'not':{'properties':{'a':{'minimum':3}}}}",
     {"{'a':2}", "{'a':2,'b':1}"},
     {"{}", "{'a':3}", "{'b':1}"}},
    {"{'type':'object','not':{'patternProperties':{'^x':{'type':'null'}}}}",
     {"{'x':1}", "{'a':1,'xx':1}"},
     {"{}", "{'x':null}", "{'a':1}"}},
    {"{'type':'object','not':{'properties':{'a':true},"
     "'additionalProperties':false}}",
     {"{'b':1}", "{'a':1,'b':1}", "{'b':1,'c':2}"},
     {"{}", "{'a':1}"}},
    {"{'properties':{'a':true,'b':{'type':'null'}},'type':'object',"
     "'additionalProperties':false,"
     "'not':{'properties':{'a':true},'additionalProperties':false}}",
     {"{'b':null}", "{'a':1,'b':null}"},
     {"{}", "{'a':1}", "{'b':1}", "{'a':1,'c':1}"}},
    {"{'type':'object','not':{'dependentRequired':{'a':['b','c']}}}",
     {"{'a':1}", "{'a':1,'b':1}", "{'a':1,'c':1}"},
     {"{}", "{'b':1}", "{'a':1,'b':1,'c':1}"}},
    {"{'not':{'type':'object','properties':{'a':{'properties':{'b':{"
     "'const':1}},'required':['b'],'type':'object'}},'required':['a']}}",
     {"{}", "1", "{'a':1}", "{'a':{}}", "{'a':{'b':2}}"},
     {"{'a':{'b':1}}", "{'a':{'b':1,'c':2}}"}},
    /* not: combinations */
    {"{'not':{'anyOf':[{'type':'null'},{'minimum':3}]}}",
     {"2", "2.5"},
     {"null", "3", "'a'"}},
    {"{'not':{'allOf':[{'type':'integer'},{'minimum':3}]}}",
     {"2", "3.5", "null"},
     {"3"}},
    {"{'not':{'oneOf':[{'type':'integer'},{'minimum':3}]}}",
     {"4", "2.5"},
     {"2", "3.5", "'a'"}},
    {"{'not':{'if':{'type':'integer'},'then':{'minimum':3},'else':{'type':"
     "'string'}}}",
     {"2", "null", "2.5"},
     {"3", "'a'"}},
    /* schemas that contain themselves */
    {"{'not':{'$ref':'#/$defs/a'},'$defs':{'a':{'type':'object','properties':{"
     "'x':{'anyOf':[{'type':'null'},{'$ref':'#/$defs/a'}]}},'required':['x']}"
     "}}",
     {"1", "{}", "{'x':1}", "{'x':{}}", "{'x':{'x':{'x':1}}}"},
     {"{'x':null}", "{'x':{'x':null}}"}},
    /* oneOf */
    {"{'oneOf':[{'type':'integer'},{'type':'number'}]}", {"1.5"}, {"1", "'a'"}},
    {"{'type':'string','oneOf':[{'maxLength':3},{'const':'d'}]}",
     {"'a'"},
     {"'d'", "'abcd'"}},
    {"{'type':'object','oneOf':[{'required':['a']},{'required':['b']}]}",
     {"{'a':1}", "{'b':1}", "{'a':1,'c':1}"},
     {"{}", "{'a':1,'b':1}"}},
    {"{'oneOf':[{'required':['a']},{'required':['b']},{'required':['c']}],"
     "'type':'object'}",
     {"{'a':1}", "{'b':1}", "{'c':1}"},
     {"{'a':1,'b':1}", "{'a':1,'c':1}", "{'a':1,'b':1,'c':1}", "{}"}},
    {"{'oneOf':[{'properties':{'a':true},'additionalProperties':false},{"
     "'properties':{'a':true,'b':true},'additionalProperties':false}],"
     "'type':'object'}",
     {"{'b':1}", "{'a':1,'b':1}"},
     {"{}", "{'a':1}", "{'c':1}"}},
    {"{'oneOf':[{'minimum':3},{'maximum':5}],'type':'integer'}",
     {"2", "6"},
     {"3", "4", "5"}},
    {"{'oneOf':[{'type':'object','properties':{'k':{'const':'a'}}},{'type':"
     "'object','properties':{'k':{'const':'b'}}}]}",
     {"{'k':'a'}", "{'k':'b'}", "{'k':'b','l':1}"},
     {"{}", "{'k':'c'}", "{'l':1}"}},
    /* if */
    {"{'type':'object','properties':{'k':{'enum':['a','b']}},'required':['k'],"
     "'if':{'properties':{'k':{'const':'a'}}},'then':{'properties':{'x':{"
     "'type':'integer'}},'required':['x']},'else':{'properties':{'x':{'type':"
     "'string'}}}}",
     {"{'k':'a','x':1}", "{'k':'b'}", "{'k':'b','x':'y'}"},
     {"{'k':'a'}", "{'k':'a','x':'y'}", "{'k':'b','x':1}", "{}"}},
    {"{'type':'integer','if':{'minimum':10},'then':{'multipleOf':10}}",
     {"3", "20"},
     {"13"}},
    {"{'type':'integer','if':{'minimum':10},'else':{'multipleOf':2}}",
     {"11", "4"},
     {"3"}},
    {"{'if':{'minimum':10}}", {"11", "3"}, {0}},
    {"{'type':'integer','if':false,'then':{'const':1},'else':{'const':2}}",
     {"2"},
     {"1"}},
    {"{'const':1,'then':false,'else':false}", {"1"}, {"2"}},
    {"{'enum':[1,2,3],'if':{'const':2},'then':false}", {"1", "3"}, {"2"}},
    /* dependencies */
    {"{'type':'object','properties':{'a':true,'b':true,'c':true},"
     "'dependentRequired':{'a':['b'],'b':['a','c']}}",
     {"{}", "{'c':1}", "{'a':1,'b':1,'c':1}", "{'d':1}"},
     {"{'a':1}", "{'b':1}", "{'a':1,'b':1}", "{'b':1,'c':1}"}},
    {"{'dependentRequired':{'a':[]}}", {"{'a':1}", "1"}, {0}},
    {"{'type':'object','properties':{'a':true},'dependentSchemas':{'a':{"
     "'properties':{'b':{'type':'null'}},'required':['b']}}}",
     {"{}", "{'b':1}", "{'a':1,'b':null}"},
     {"{'a':1}", "{'a':1,'b':1}"}},
    {"{'dependentSchemas':{'a':false,'b':true}}",
     {"{}", "{'b':1}", "1"},
     {"{'a':1}", "{'a':1,'b':1}"}},
    {"{'enum':[{'a':1},{'a':1,'b':2},3],'dependentRequired':{'a':['b']}}",
     {"{'a':1,'b':2}", "3"},
     {"{'a':1}"}},
};

static const struct documents unevaluated[] = {
    {"{'type':'object','properties':{'a':true},'patternProperties':{'^x':true},"
     "'unevaluatedProperties':false}",
     {"{}", "{'a':1}", "{'a':1,'xy':2}"},
     {"{'b':1}"}},
    {"{'type':'object','properties':{'a':true},'unevaluatedProperties':{'type':"
     "'null'}}",
     {"{'a':1,'b':null}"},
     {"{'b':1}"}},
    {"{'type':'object','allOf':[{'properties':{'a':true}},{'$ref':'#/$defs/b'}]"
     ",'unevaluatedProperties':false,'$defs':{'b':{'properties':{'b':true}}}}",
     {"{'a':1,'b':2}"},
     {"{'c':1}"}},
    /* but not those of schemas around it */
    {"{'type':'object','properties':{'a':true},'allOf':[{"
     "'unevaluatedProperties':false}]}",
     {"{}"},
     {"{'a':1}"}},
    {"{'type':'object','allOf':[{'additionalProperties':{'type':'integer'}}],"
     "'unevaluatedProperties':false}",
     {"{'a':1}"},
     {"{'a':null}"}},
    {"{'type':'object','allOf':[{'unevaluatedProperties':true}],"
     "'unevaluatedProperties':false}",
     {"{'a':null}"},
     {"1"}},
    /* all branches count that the value satisfies */
    {"{'type':'object','anyOf':[{'properties':{'a':true},'required':['a']},{"
     "'properties':{'b':true},'required':['b']},{'required':['c']}],"
     "'properties':{'c':true},'unevaluatedProperties':false}",
     {"{'a':1}", "{'b':1}", "{'a':1,'b':1}", "{'c':1}", "{'c':1,'a':1}"},
     {"{}", "{'d':1}", "{'a':1,'d':1}"}},
    {"{'type':'object','oneOf':[{'properties':{'a':true},'required':['a']},{"
     "'properties':{'b':true},'required':['b']}],'unevaluatedProperties':false"
     "}",
     {"{'a':1}", "{'b':1}"},
     {"{}", "{'a':1,'b':1}", "{'a':1,'c':1}"}},
    {"{'type':'object','if':{'properties':{'k':{'const':1}},'required':['k']},"
     "'then':{'properties':{'x':true}},'else':{'properties':{'y':true}},"
     "'unevaluatedProperties':false}",
     {"{}", "{'k':1}", "{'k':1,'x':1}", "{'y':1}"},
     {"{'k':2}", "{'x':1}", "{'k':1,'y':1}"}},
    {"{'type':'object','if':{'properties':{'k':{'const':1}}},"
     "'unevaluatedProperties':false}",
     {"{}", "{'k':1}"},
     {"{'k':2}", "{'x':1}"}},
    {"{'type':'object','properties':{'a':true},'dependentSchemas':{'a':{"
     "'properties':{'b':true}}},'unevaluatedProperties':false}",
     {"{}", "{'a':1}", "{'a':1,'b':1}"},
     {"{'b':1}"}},
    {"{'type':'object','not':{'not':{'properties':{'a':true}}},"
     "'unevaluatedProperties':false}",
     {"{}"},
     {"{'a':1}"}},
    /* items */
    {"{'type':'array','prefixItems':[true],'unevaluatedItems':false}",
     {"[]", "[1]"},
     {"[1,2]"}},
    {"{'type':'array','allOf':[{'prefixItems':[true,true]}],'prefixItems':[{"
     "'type':'null'}],'unevaluatedItems':{'type':'integer'}}",
     {"[null]", "[null,'a']", "[null,null,1]"},
     {"[1]", "[null,null,null]"}},
    {"{'type':'array','allOf':[{'items':true}],'unevaluatedItems':false}",
     {"[1,2]"},
     {"1"}},
    {"{'type':'array','prefixItems':[true],'contains':{'type':'string'},"
     "'unevaluatedItems':false}",
     {"['a']", "[1,'a']", "[1,'a','b']"},
     {"[]", "[1]", "[1,'a',2]"}},
    {"{'type':'array','anyOf':[{'prefixItems':[{'const':1}]},{'prefixItems':["
     "true,{'const':2}]}],'unevaluatedItems':false}",
     {"[]", "[1]", "[1,2]", "[3,2]", "[3]"},
     {"[1,3]", "[1,2,3]"}},
};

/* Demands on members that no schema names. */
static const struct documents demands[] = {
    {"{'type':'object','allOf':[{'not':{'patternProperties':{'^x':{'type':"
     "'null'}}}},{'not':{'patternProperties':{'y$':{'type':'string'}}}}]}",
     {"{'xy':1}", "{'xa':1,'y':2}", "{'y':2,'xa':1}", "{'y':1,'b':1,'x':2}",
      "{'y':1,'b':1,'x':2,'z':1}"},
     {"{}", "{'xa':1}", "{'y':2}", "{'xy':null,'a':2}", "{'xa':null,'y':2}",
      "{'xa':1,'y':'s'}", "{'x':1,'y':2,'x':null}"}},
    {"{'type':'object','properties':{'a':true},'allOf':[{'not':{'properties':{"
     "'a':true},'additionalProperties':false}},{'not':{'additionalProperties':{"
     "'type':'integer'},'properties':{'a':true}}}]}",
     {"{'b':null}", "{'a':1,'b':null}", "{'b':1,'c':null}",
      "{'b':null,'c':''}"},
     {"{}", "{'a':1}", "{'b':1}", "{'a':1,'b':1}", "{'b':null,'b':1}"}},
};

static void meets_demands(void **state)
{
    for (size_t i = 0; i < sizeof demands / sizeof *demands; i++)
        check_documents(&demands[i], true);
}

static const struct documents any_order[] = {
    {"{'type':'object','properties':{'a':true},'not':{'properties':{'a':true},"
     "'additionalProperties':false}}",
     {"{'b':1}", "{'a':1,'b':1}", "{'b':1,'a':1}", "{'b':1,'a':1,'c':2}"},
     {"{}", "{'a':1}"}},
    {"{'type':'object','oneOf':[{'required':['a']},{'required':['b']}]}",
     {"{'a':1}", "{'b':1}", "{'c':1,'a':1}"},
     {"{}", "{'a':1,'b':1}", "{'b':1,'c':1,'a':1}"}},
};

static void takes_any_order(void **state)
{
    test_options.any_order = true;
    for (size_t i = 0; i < sizeof any_order / sizeof *any_order; i++)
        check_documents(&any_order[i], true);
    test_options.any_order = false;
}

static void holds_unevaluated(void **state)
{
    for (size_t i = 0; i < sizeof unevaluated / sizeof *unevaluated; i++)
        check_documents(&unevaluated[i], true);
}

static void admits_documents(void **state)
{
    for (size_t i = 0; i < sizeof documents / sizeof *documents; i++)
        check_documents(&documents[i], true);
}

/* What is refused, and where. */
static void refuses(void **state)
{
    static const struct {
        const char *schema, *message;
    } cases[] = {
        {"{'type':'integer','not':{}}", "#: nothing satisfies the schema"},
        {"{'type':'integer','not':{'type':'number'}}",
         "#/not: nothing satisfies"},
        {"{'if':true,'then':false}", "#: nothing satisfies"},
        {"{'not':{'unevaluatedProperties':false}}",
         "#/not/unevaluatedProperties: its opposite"},
        {"{'not':{'format':'date'}}", "#/not/format: its opposite"},
        {"{'oneOf':[{'format':'date'},{'type':'string'}]}",
         "#/oneOf/0/format: its opposite"},
        {"{'not':{'$ref':'#'}}", "#/not: refers to itself"},
        {"{'if':{'$ref':'#'},'then':true}", "#/if: refers to itself"},
        {"{'$ref':'#/$defs/a','$defs':{'a':{'dependentSchemas':{'x':{'not':{"
         "'$ref':'#/$defs/a'}}}}}}",
         "#/$defs/a/dependentSchemas/x/not: refers to itself"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        check_refused(cases[i].schema, cases[i].message);
}

/* Schemas whose opposites multiply end in an error, in bounded time. */
static void multiplies(void **state)
{
    struct buf b = {0};
    struct qwick_err e = {0};
    buf_puts(&b, "{\"oneOf\":[");
    for (int i = 0; i < 40; i++)
        buf_printf(&b,
                   "%s{\"properties\":{\"a%d\":{\"minimum\":%d},\"b%d\":{"
                   "\"maxLength\":%d}},\"required\":[\"c%d\",\"d%d\"]}",
                   i ? "," : "", i, i, i, i, i, i);
    buf_puts(&b, "]}");
    struct automaton *a = compile(b.data, b.len, 0, &e);
    assert_null(a);
    assert_non_null(strstr(e.msg, "the schema"));
    test_options.lenient = true; /* then oneOf is like anyOf */
    a = compile(b.data, b.len, 0, &e);
    if (!a)
        fail_msg("%s", e.msg);
    test_options.lenient = false;
    assert_true(matches(a, "{\"c3\":1,\"d3\":1}", 15));
    assert_false(matches(a, "{\"c3\":1}", 8));
    automaton_free(a);
    buf_free(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(admits_documents), cmocka_unit_test(holds_unevaluated),
        cmocka_unit_test(meets_demands),    cmocka_unit_test(takes_any_order),
        cmocka_unit_test(refuses),          cmocka_unit_test(multiplies),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
