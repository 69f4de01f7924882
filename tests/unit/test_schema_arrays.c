/* Arrays of JSON schemas: items that are counted, and items that differ. */
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

static const struct documents unique[] = {
    {"{'uniqueItems':true,'items':{'enum':['a','b',1,1.0,[1],null]}}",
     {"[]", "[\"b\",\"a\"]", "[1,[1],null,\"a\",\"b\"]"},
     {"[1,1]", "[\"a\",1,\"a\"]", "[[1],[1]]", "[1,1.0]"}},
    {"{'uniqueItems':true,'items':{'type':['boolean','null']},'minItems':2}",
     {"[true,null]", "[false,true]", "[null,true,false]"},
     {"[true]", "[true,true]", "[true,false,null,true]"}},
    {"{'uniqueItems':true,'items':{'anyOf':[{'const':'x'},{'enum':['y','x']},{"
     "'type':'integer','minimum':-1,'exclusiveMaximum':2.5}]},'maxItems':3}",
     {"[\"y\",\"x\",-1]", "[2,1,0]"},
     {"[\"x\",\"x\"]", "[2,2]", "[0,1,2,-1]", "[3]"}},
    {"{'uniqueItems':true,'maxItems':1}", {"[]", "[{}]"}, {"[1,2]"}},
    {"{'uniqueItems':false}", {"[1,1]"}, {"[1"}},
    {"{'uniqueItems':true,'prefixItems':[{'type':'string'},{'type':'integer'}],"
     "'items':false}",
     {"[\"\",1]", "[\"\"]"},
     {"[1]", "[\"\",1,2]"}},
    {"{'uniqueItems':true,'prefixItems':[{'const':1}],'items':{'type':'null'},"
     "'maxItems':2}",
     {"[1,null]"},
     {"[1,null,null]"}},
};

/* Strings differ whatever they are; each has one text. */
static const struct documents texts[] = {
    {"{'type':'array','uniqueItems':true,'items':{'type':'string'}}",
     {"[]", "[\"a\"]", "[\"a\",\"b\"]", "[\"\",\"a\",\"ab\",\"abc\"]",
      "[\"\\n\",\"\\\"\",\"\\\\\",\"/\",\"\xC3\xA9\",\"\\u001f\"]"},
     {"[\"a\",\"a\"]", "[\"\",\"a\",\"\"]", "[\"a\",\"b\",\"c\",\"b\"]",
      "[\"\\u0041\"]", "[\"\\/\"]", "[\"\\u001F\"]", "[\"\\u000a\"]",
      "[\"a\","}},
    {"{'type':'array','uniqueItems':true,'items':{'type':'string','minLength':"
     "2}"
     ",'minItems':2,'maxItems':3}",
     {"[\"ab\",\"ac\"]", "[\"ab\",\"ac\",\"abc\"]"},
     {"[]", "[\"ab\"]", "[\"ab\",\"ab\"]", "[\"aa\",\"ab\",\"ac\",\"ad\"]",
      "[\"a\",\"ab\"]"}},
    {"{'type':'array','uniqueItems':true,'items':{'pattern':'^[ab]+$','type':"
     "'string'}}",
     {"[\"a\",\"aa\",\"ab\"]"},
     {"[\"aa\",\"a\",\"aa\"]", "[\"\"]"}},
    /* each array has its own texts, and the branches of anyOf differ */
    {"{'type':'array','items':{'type':'array','uniqueItems':true,'items':{"
     "'type':'string'}}}",
     {"[[\"a\"],[\"a\",\"b\"],[]]"},
     {"[[\"a\"],[\"a\",\"b\",\"a\"]]"}},
    {"{'anyOf':[{'type':'array','uniqueItems':true,'items':{'type':'string'}},{"
     "'type':'array','items':{'type':'string'},'maxItems':2}]}",
     {"[\"a\",\"a\"]", "[\"a\",\"b\",\"c\"]"},
     {"[\"a\",\"a\",\"b\"]", "[\"a\",\"b\",\"b\"]"}},
};

/* maxContains, and several of them. */
static const struct documents several[] = {
    {"{'type':'array','contains':{'type':'integer'},'maxContains':1}",
     {"[1]", "[null,1]", "[1,null]", "[1.5,1]"},
     {"[]", "[null]", "[1,2]", "[1,null,2]"}},
    {"{'type':'array','contains':{'type':'integer'},'maxContains':2,"
     "'minContains':0}",
     {"[]", "[null]", "[1,2]", "[1,null,2]"},
     {"[1,2,3]"}},
    {"{'type':'array','contains':{'type':'integer'},'maxContains':0,"
     "'minContains':0,'maxItems':2}",
     {"[]", "[null]", "[1.5,'a']"},
     {"[1]", "[null,1]", "[null,null,null]"}},
    {"{'type':'array','allOf':[{'contains':{'type':'integer'}},{'contains':{"
     "'minimum':5}}]}",
     {"[7]", "[1,7.5]", "[7.5,null,1]", "[1,null]"},
     {"[]", "[1]", "[7.5]", "[1,2]"}},
    {"{'type':'array','prefixItems':[{'type':'string'}],'allOf':[{'contains':{"
     "'const':1},'minContains':2},{'contains':{'const':2},'maxContains':1},{"
     "'minItems':5}]}",
     {"['a',1,1,2,3]", "['a',2,1,3,1]", "['a',1,2,1,1,1]"},
     {"['a',1,1,2]", "['a',1,1,3,3]", "['a',1,1,2,2]", "['a',1,2,3,3]"}},
    {"{'type':'array','not':{'contains':{'type':'integer'},'minContains':2,"
     "'maxContains':3}}",
     {"[]", "[1]", "[1,2,3,4]", "[null,1]"},
     {"[1,2]", "[1,null,2]", "[1,2,3]"}},
};

static void counts_several(void **state)
{
    for (size_t i = 0; i < sizeof several / sizeof *several; i++)
        check_documents(&several[i], true);
}

static void counts_items(void **state)
{
    for (size_t i = 0; i < sizeof contains / sizeof *contains; i++)
        check_documents(&contains[i], true);
}

static void tells_items_apart(void **state)
{
    for (size_t i = 0; i < sizeof unique / sizeof *unique; i++)
        check_documents(&unique[i], true);
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
        check_documents(&texts[i], true);
}

static void refuses_arrays(void **state)
{
    check_refused("{'items':{'uniqueItems':true}}",
                  "#/items/uniqueItems: is only supported for at most 1000 "
                  "values and for strings of any length");
    check_refused("{'type':'array','uniqueItems':true,'items':{'type':'string',"
                  "'maxLength':3}}",
                  "#/uniqueItems: is only supported for");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(counts_items),
        cmocka_unit_test(counts_several),
        cmocka_unit_test(tells_items_apart),
        cmocka_unit_test(refuses_arrays),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
