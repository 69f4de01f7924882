/* Objects of JSON schemas: patterns of names, and numbers of members. */
#include "schema_docs.h"

static const struct documents patterns[] = {
    /* patterns that meet, and one whose names are of another */
    {"{'patternProperties':{'^a':{'minimum':1},'b$':{'maximum':5},'^c':{'type':"
     "'string'},'^d':{'type':'null'},'^e':{'type':'boolean'},'^f':false,'^ab$':"
     "{'multipleOf':2}}}",
     {"{}", "{\"ab\":2}", "{\"ab\":4}", "{\"a\":9}", "{\"xb\":-7}",
      "{\"c\":\"\"}", "{\"d\":null}", "{\"e\":true}", "{\"x\":{}}",
      "{\"cb\":\"\"}", "{\"a\":\"\"}"},
     {"{\"ab\":0}", "{\"ab\":6}", "{\"ab\":3}", "{\"a\":0}", "{\"xb\":6}",
      "{\"c\":1}", "{\"d\":1}", "{\"e\":null}", "{\"f\":1}", "{\"fb\":1}",
      "{\"cb\":1}"}},
    {"{'patternProperties':{'^a1':{},'^a2':{},'^a3':{},'^a4':{},'^a5':{},'^a6':"
     "{},'^a7':{},'^a8':{}},'additionalProperties':false}",
     {"{\"a1\":1,\"a8x\":2}"},
     {"{\"a\":1}", "{\"b\":1}"}},
};

/* The longest name that no schema lists. */
#define LETTERS_16 "aaaaaaaaaaaaaaaa"
#define LETTERS_64 LETTERS_16 LETTERS_16 LETTERS_16 LETTERS_16
#define LONG_NAME  LETTERS_64 LETTERS_64 LETTERS_64

static const struct documents names[] = {
    {"{'properties':{'b':{}}}",
     {"{\"" LONG_NAME "\":1}"},
     {"{\"a" LONG_NAME "\":1}"}},
    {"{'propertyNames':{'pattern':'^[a-c]+$','maxLength':2},'properties':{'a':"
     "{'type':'null'},'x':{}}}",
     {"{}", "{\"a\":null}", "{\"b\":1,\"cc\":2}"},
     {"{\"a\":1}", "{\"x\":1}", "{\"aaa\":1}", "{\"d\":1}", "{\"\":1}"}},
    {"{'propertyNames':{'enum':['a','b',1]}}",
     {"{\"b\":1,\"a\":{}}"},
     {"{\"c\":1}"}},
    {"{'propertyNames':{'anyOf':[{'const':'a'},{'minLength':3}]}}",
     {"{\"a\":1}", "{\"abc\":1}"},
     {"{\"b\":1}", "{\"ab\":1}"}},
    {"{'propertyNames':{'oneOf':[{'const':'x'},{'enum':['y','z']}]}}",
     {"{\"x\":1}", "{\"z\":1}"},
     {"{\"a\":1}"}},
    {"{'propertyNames':{'not':{'const':'x'}}}", {"{\"y\":1}"}, {"{\"x\":1}"}},
    {"{'propertyNames':{'type':'integer'}}", {"{}", "1"}, {"{\"a\":1}"}},
    {"{'propertyNames':false}", {"{}", "[]"}, {"{\"a\":1}"}},
    {"{'propertyNames':{'$ref':'#/$defs/n'},'$defs':{'n':{'maxLength':1}}}",
     {"{\"a\":1}"},
     {"{\"ab\":1}"}},
    {"{'allOf':[{'propertyNames':{'pattern':'^a'}},{'propertyNames':{'pattern':"
     "'z$'}}]}",
     {"{\"az\":1}"},
     {"{\"a\":1}", "{\"z\":1}"}},
};

/* 40 names, and members with them from the last one on */
#define TEN_NAMES(t)                                                          \
    t "1','" t "2','" t "3','" t "4','" t "5','" t "6','" t "7','" t "8','" t \
      "9','" t "0"
#define TEN_MEMBERS(t)                                                  \
    t "0':0,'" t "9':0,'" t "8':0,'" t "7':0,'" t "6':0,'" t "5':0,'" t \
      "4':0,'" t "3':0,'" t "2':0,'" t "1"
#define NAMES_40   \
    TEN_NAMES("a") \
    "','" TEN_NAMES("b") "','" TEN_NAMES("c") "','" TEN_NAMES("d")
#define MEMBERS_40   \
    TEN_MEMBERS("d") \
    "':0,'" TEN_MEMBERS("b") "':0,'" TEN_MEMBERS("c") "':0,'" TEN_MEMBERS("a")

#define ABC    "'properties':{'a':{},'b':{},'c':{}}"
#define CLOSED ",'additionalProperties':false"

static const struct documents counts[] = {
    {"{'minProperties':1}", {"{\"a\":1}", "[]"}, {"{}"}},
    {"{'maxProperties':0}", {"{}", "1"}, {"{\"a\":1}"}},
    {"{'maxProperties':2}",
     {"{}", "{\"a\":1}", "{\"a\":1,\"b\":2}"},
     {"{\"a\":1,\"b\":2,\"c\":3}"}},
    {"{" ABC CLOSED ",'minProperties':2}",
     {"{\"a\":1,\"b\":2}", "{\"a\":1,\"c\":2}", "{\"b\":1,\"c\":2}",
      "{\"a\":1,\"b\":2,\"c\":3}"},
     {"{}", "{\"a\":1}", "{\"c\":1}", "{\"a\":1,\"a\":2}"}},
    {"{" ABC CLOSED ",'minProperties':2,'maxProperties':2,'required':['b']}",
     {"{\"a\":1,\"b\":2}", "{\"b\":1,\"c\":2}"},
     {"{\"b\":1}", "{\"a\":1,\"c\":2}", "{\"a\":1,\"b\":2,\"c\":3}"}},
    {"{" ABC CLOSED ",'maxProperties':1}",
     {"{}", "{\"a\":1}", "{\"c\":1}"},
     {"{\"a\":1,\"c\":1}"}},
    {"{" ABC ",'maxProperties':2,'required':['c','b']}",
     {"{\"b\":1,\"c\":1}"},
     {"{\"c\":1}", "{\"b\":1,\"c\":1,\"d\":1}", "{\"a\":1,\"c\":1}"}},
    {"{" ABC ",'maxProperties':40}",
     {"{}", "{\"c\":1,\"x\":1}"},
     {"{\"c\":1,\"b\":1}"}},
    /* one name that the schema does not list differs from the others */
    {"{" ABC ",'minProperties':3,'required':['a','b']}",
     {"{\"a\":1,\"b\":1,\"c\":1}", "{\"a\":1,\"b\":1,\"x\":1}"},
     {"{\"a\":1,\"b\":1}"}},
    {"{'allOf':[{'minProperties':1},{'maxProperties':1}]}",
     {"{\"a\":1}"},
     {"{}", "{\"a\":1,\"b\":1}"}},
    {"{'oneOf':[{'type':'object','minProperties':2," ABC CLOSED
     "},{'type':'object','maxProperties':1}]}",
     {"{}", "{\"a\":1,\"c\":1}", "{\"x\":1}"},
     {"{\"x\":1,\"a\":1}"}},
};

static void cuts_names_by_patterns(void **state)
{
    for (size_t i = 0; i < sizeof patterns / sizeof *patterns; i++)
        check_documents(&patterns[i], true);
}

static void checks_names(void **state)
{
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        check_documents(&names[i], true);
}

static void counts_members(void **state)
{
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++)
        check_documents(&counts[i], true);
}

static const struct documents orders[] = {
    {"{" ABC ",'required':['b']}",
     {"{'b':1}", "{'c':1,'b':2,'a':3}", "{'x':1,'b':2,'y':3,'a':4}",
      "{'b':{'z':1,'c':{}}}"},
     {"{}", "{'a':1}", "{'b':1,'b':2}", "{'b':1,'a':2,'b':3}", "{'b':1,}"}},
    {"{" ABC CLOSED ",'minProperties':2,'maxProperties':2}",
     {"{'c':1,'a':1}", "{'a':1,'c':1}"},
     {"{'a':1}", "{'c':1,'c':1}", "{'a':1,'b':1,'c':1}", "{'x':1,'a':1}"}},
    {"{" ABC ",'maxProperties':2,'required':['c']}",
     {"{'c':1}", "{'c':1,'x':1}", "{'x':1,'c':1}"},
     {"{'x':1,'y':1}", "{'a':1,'b':1}", "{'c':1,'x':1,'y':1}"}},
    {"{'properties':{'a':{'$ref':'#'},'b':{'enum':[1,{'y':1,'x':2}]}},"
     "'additionalProperties':false}",
     {"{}", "{'b':1,'a':{'a':{'b':1},'b':{'y':1,'x':2}}}"},
     {"{'b':1,'a':{'a':{'b':1,'b':1}}}", "{'a':{},'a':{}}"}},
    {"{'required':['" NAMES_40 "']}",
     {"{'z':0,'" MEMBERS_40 "':0}"},
     {"{'z':0}", "{'a1':0}"}},
};

static void takes_any_order(void **state)
{
    test_options.any_order = true;
    for (size_t i = 0; i < sizeof orders / sizeof *orders; i++)
        check_documents(&orders[i], true);
    test_options.any_order = false;
}

static void refuses_objects(void **state)
{
    check_refused("{'minProperties':2}",
                  "#/minProperties: counts members that the schema does not "
                  "list, and their names may repeat");
    check_refused("{'type':'object','maxProperties':1,'required':['a','b']}",
                  "#: nothing satisfies the schema");
    check_refused("{'type':'object','propertyNames':{'const':'a'},'required':["
                  "'b']}",
                  "#: nothing satisfies the schema");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(cuts_names_by_patterns),
        cmocka_unit_test(checks_names),
        cmocka_unit_test(counts_members),
        cmocka_unit_test(takes_any_order),
        cmocka_unit_test(refuses_objects),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
