/* Arrays of JSON schemas: items that are counted. */
#include "schema_docs.h"

static const struct documents contains[] = {
    {"{'contains':{'const':1}}",
     {"[1]", "[0,1]", "[1,0,1]", "[1,1]", "{}"},
     {"[]", "[0]", "[0,2]"}},
    {"{'contains':{'type':'integer'},'minContains':2,'maxItems':3}",
     {"[1,2]", "[1,null,2]", "[null,1,2]", "[1,2,3]"},
     {"[1]", "[1,null]", "[1,2,3,4]", "[null,null,1]"}},
    {"{'contains':{'type':'integer'},'minItems':3}",
     {"[1,2,3]", "[null,null,2]", "[null,null,null,2]"},
     {"[1]", "[1,2]", "[null,null,null]"}},
    {"{'contains':{'minimum':5},'items':{'type':'integer'},'prefixItems':[{},{"
     "'type':'string'}]}",
     {"[7]", "[1,\"\",7]", "[1,\"a\",3]"},
     {"[1]", "[1,7]", "[7,\"\",null]", "[]"}},
    {"{'contains':{'type':'null'},'prefixItems':[{'type':'string'}],'items':"
     "false}",
     {"1"},
     {"[]", "[\"\"]", "[\"\",null]"}},
    {"{'contains':{'const':1},'minContains':0}", {"[]", "[2]"}, {"[2"}},
    {"{'minContains':3}", {"[]", "[2]"}, {"[2"}},
    {"{'allOf':[{'contains':{'$ref':'#/$defs/a'}},{'contains':{'$ref':"
     "'#/$defs/a'},'minContains':2}],'$defs':{'a':{'const':0}}}",
     {"[0,0]", "[0,1,0]"},
     {"[0]"}},
};

static void counts_items(void **state)
{
    for (size_t i = 0; i < sizeof contains / sizeof *contains; i++)
        check_documents(&contains[i], true);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(counts_items),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
