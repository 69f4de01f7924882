/* JSON schemas: documents that they admit and others, what is refused and
 * where, limits, and hostile schemas. */
#include "test.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "schema_docs.h"

/* ---- documents ----------------------------------------------------------- */

static const struct documents documents[] = {
    /* types */
    {"true",
     {"null", "1", "\"a\"", "[]", "{}", "[1,{\"a\":[null,true]}]",
      "{\"a\":1,\"b\":{}}", "-0.5e+10"},
     {"", "[1,]", "[,1]", "{\"a\"}", "{a:1}", "nul", " 1", "1 ", "[1 ]", "01",
      "+1", "1.", ".5", "\"a", "{\"a\":1,}"}},
    {"{}", {"null", "[[[]]]"}, {"x"}},
    {"{\"type\":\"null\"}", {"null"}, {"0", "\"null\""}},
    {"{\"type\":\"boolean\"}", {"true", "false"}, {"null", "True"}},
    {"{\"type\":[\"null\",\"boolean\"]}", {"true", "null"}, {"0"}},
    {"{\"type\":\"integer\"}",
     {"0", "7", "-12", "12345678901234567890"},
     {"1.0", "1e2", "00", "-", "-0", "-01", "123456789012345678901"}},
    {"{\"type\":\"number\"}",
     {"0", "1.5", "-0.25", "1e10", "1E-5", "2.5e+279", "1e279", "-0", "-0.0",
      "-0e5"},
     {"1.", "1e", "1e280", "1e999"}},
    {"{\"type\":[\"integer\",\"string\"]}", {"1", "\"1\""}, {"1.5"}},
    {"{\"title\":\"t\",\"description\":\"d\",\"default\":1,\"examples\":[2],"
     "\"$schema\":\"x\",\"$id\":\"y\",\"$comment\":\"c\",\"deprecated\":true,"
     "\"readOnly\":true,\"writeOnly\":false,\"contentMediaType\":\"a/b\","
     "\"x-order\":3,\"id\":4,\"nullable\":true,\"_format\":\"date\",\"type\":"
     "\"null\"}",
     {"null"},
     {"1"}},
    /* a choice after the members of an object are looked at */
    {"{\"allOf\":[{\"required\":[\"k\"]},{\"anyOf\":[{}]}],\"properties\":{\"k\":"
     "{\"type\":\"string\"}},\"type\":\"object\"}",
     {"{\"k\":\"\"}"},
     {"{}"}},
    /* strings */
    {"{\"type\":\"string\"}",
     {"\"\"", "\"a\"", "\"\\n\"", "\"\\\"\\\\\\/\\b\\f\\n\\r\\t\"",
      "\"\\u0041\"", "\"\\u00e9\"", "\"\\u00E9\"", "\"\xC3\xA9\"",
      "\"\xF0\x9F\x98\x80\"", "\"\\ud83d\\uDE00\"", "\"\\uD7FF\\ue000\"",
      "\"\x7F\""},
     {"\"\n\"", "\"\\x\"", "\"\\u12\"", "\"\\ud83d\"", "\"\\ud83d\\u0041\"",
      "\"\\udc00\"", "\"\xC3\"", "\"\xED\xA0\x80\"", "\"\xFF\"", "\"\xC0\x80\"",
      "\"a\"b"}},
    {"{\"type\":\"string\",\"minLength\":1,\"maxLength\":2}",
     {"\"a\"", "\"ab\"", "\"\xF0\x9F\x98\x80z\"", "\"\\ud83d\\ude00\\n\"",
      "\"\\u0041\\u0042\""},
     {"\"\"", "\"abc\"", "\"\\u0041bc\""}},
    {"{\"type\":\"string\",\"minLength\":2}",
     {"\"ab\"", "\"abcdef\""},
     {"\"\"", "\"a\""}},
    {"{\"type\":\"string\",\"maxLength\":0}", {"\"\""}, {"\"a\""}},
    {"{\"type\":\"string\",\"pattern\":\"^a+$\"}",
     {"\"a\"", "\"aaa\""},
     {"\"\"", "\"b\"", "\"ab\"", "\"\\u0061\""}},
    {"{\"type\":\"string\",\"pattern\":\"b\"}",
     {"\"b\"", "\"abc\"", "\"\\nb\""},
     {"\"\"", "\"ac\""}},
    {"{\"type\":\"string\",\"pattern\":\"^a|b$\"}",
     {"\"ax\"", "\"xb\"", "\"a\""},
     {"\"xa\"", "\"bx\""}},
    {"{\"type\":\"string\",\"pattern\":\"^[^a]$\"}",
     {"\"b\"", "\"\\\"\"", "\"\xC3\xA9\"", "\"\\u00e9\"", "\"\\ud83d\\ude00\"",
      "\"\\n\"", "\"\\u000A\""},
     {"\"a\"", "\"\"", "\"bb\""}},
    {"{\"type\":\"string\",\"pattern\":\"a\",\"minLength\":2,\"maxLength\":3}",
     {"\"ab\"", "\"xay\""},
     {"\"a\"", "\"bb\"", "\"aaaa\""}},
    {"{\"type\":\"string\",\"pattern\":\"^\\\\d{3}-\\\\w$\"}",
     {"\"123-x\""},
     {"\"12-x\"", "\"123--\""}},
    {"{\"type\":\"string\",\"pattern\":\"^(?!.*--)[a-z-]+$\",\"maxLength\":4}",
     {"\"a\"", "\"a-b-\""},
     {"\"a--b\"", "\"abcde\"", "\"\""}},
    {"{\"allOf\":[{\"type\":\"string\",\"pattern\":\"^a\"},{\"pattern\":\"z$\"}"
     "]"
     "}",
     {"\"az\"", "\"abz\""},
     {"\"a\"", "\"z\""}},
    /* formats */
    {"{\"type\":\"string\",\"format\":\"date\"}",
     {"\"2024-02-29\"", "\"2000-02-29\"", "\"1999-12-31\"", "\"0001-01-01\""},
     {"\"2023-02-29\"", "\"1900-02-29\"", "\"2024-04-31\"", "\"2024-13-01\"",
      "\"0000-01-01\"", "\"2024-1-1\"", "\"2024-00-10\""}},
    {"{\"type\":\"string\",\"format\":\"time\"}",
     {"\"23:59:59Z\"", "\"00:00:00.5+01:30\""},
     {"\"24:00:00Z\"", "\"12:60:00Z\"", "\"12:00:00\"", "\"12:00Z\""}},
    {"{\"type\":\"string\",\"format\":\"date-time\"}",
     {"\"2024-02-29T23:59:59Z\"", "\"2024-01-01T00:00:00.123-08:00\""},
     {"\"2024-01-01\"", "\"2024-01-01 00:00:00Z\"",
      "\"2023-02-29T00:00:00Z\""}},
    {"{\"type\":\"string\",\"format\":\"uuid\"}",
     {"\"123e4567-e89b-12d3-a456-426614174000\""},
     {"\"123e4567e89b12d3a456426614174000\"",
      "\"123e4567-e89b-12d3-a456-42661417400\""}},
    {"{\"type\":\"string\",\"format\":\"email\"}",
     {"\"a@b\"", "\"a.b+c@x-y.org\""},
     {"\"a\"", "\"@b\"", "\"a@\"", "\"a..b@c\"", "\"a@-b\"", "\"a b@c\""}},
    {"{\"type\":\"string\",\"format\":\"ipv4\"}",
     {"\"0.0.0.0\"", "\"255.10.1.99\""},
     {"\"256.1.1.1\"", "\"1.1.1\"", "\"01.1.1.1\""}},
    {"{\"type\":\"string\",\"format\":\"uri\"}",
     {"\"http://a.b/c?d#e\"", "\"mailto:x@y\"", "\"urn:a:b\"",
      "\"https://u:p@h:80/%20\"", "\"file:\\/\\/\\/x\""},
     {"\"a\"", "\"/a\"", "\"http://a b\"", "\"1a:b\"", "\"a:%2\""}},
    {"{\"type\":\"string\",\"format\":\"uri-reference\"}",
     {"\"\"", "\"a/b\"", "\"?x\"", "\"#\"", "\"//[::1]:80/\"", "\"a:b\"",
      "\"./a:b\""},
     {"\"1:b\"", "\"a b\"", "\"//[::1\"", "\"a#b#\"", "\"\\\\\"",
      "\"\xC3\xA9\""}},
    {"{\"type\":\"string\",\"format\":\"iri\"}",
     {"\"http://\xC3\xA9.b/\xE2\x82\xAC?\xEE\x80\x80\"", "\"a:b\""},
     {"\"\xC3\xA9:b\"", "\"http://a/\xEE\x80\x80\""}},
    {"{\"type\":\"string\",\"format\":\"hostname\"}",
     {"\"a\"", "\"a-1.b\"", "\"1\"", "\"a--b.c\""},
     {"\"\"", "\"a.\"", "\".a\"", "\"-a\"", "\"a_b\"", "\"xn--x\"",
      "\"a.b-\""}},
    {"{\"type\":\"string\",\"format\":\"ipv6\"}",
     {"\"::\"", "\"1::8\"", "\"1:2:3:4:5:6:7:8\"", "\"::ffff:1.2.3.4\"",
      "\"1::3:4:5:6:7:8\""},
     {"\"1:2:3:4:5:6:7\"", "\"1::2::3\"", "\":1\"", "\"12345::\"",
      "\"1::2:3:4:5:6:7:8\"", "\"::256.1.1.1\"", "\"1%0\""}},
    {"{\"type\":\"string\",\"format\":\"duration\"}",
     {"\"P1D\"", "\"P1Y2M3DT4H5M6S\"", "\"PT36H\"", "\"P4W\"", "\"P1YT1S\""},
     {"\"P\"", "\"PT\"", "\"P1Y1D\"", "\"PT1D\"", "\"P1DT\"", "\"P1W1D\"",
      "\"PT0.5S\""}},
    {"{\"type\":\"string\",\"format\":\"byte\"}",
     {"\"\"", "\"QQ==\"", "\"QUI=\"", "\"QUJD\"", "\"+/+/\""},
     {"\"Q\"", "\"QQ\"", "\"QR==\"", "\"QUJ=\"", "\"QQ==QQ==\"", "\"-_-_\""}},
    {"{\"type\":\"string\",\"format\":\"regex\"}",
     {"\"\"", "\"^[a-z0-9_-]{3,16}$\"", "\"((a|b)+?c)*\"",
      "\"\\\\d{2,}[^\\\\]]\""},
     {"\"*\"", "\"(\"", "\"a)\"", "\"[\"", "\"a**\"", "\"[z-a]\"", "\"a{2,1}\"",
      "\"\\\\\"", "\"\\\\a\"", "\"(abc]\"", "\"^*\""}},
    {"{\"type\":\"string\",\"format\":\"json-pointer\"}",
     {"\"\"", "\"/\"", "\"/a~0~1/\xC3\xA9\""},
     {"\"a\"", "\"/~\"", "\"/~2\"", "\"#\""}},
    {"{\"type\":\"string\",\"format\":\"relative-json-pointer\"}",
     {"\"0\"", "\"12#\"", "\"1/a\""},
     {"\"\"", "\"01\"", "\"1a\"", "\"/a\""}},
    {"{\"type\":\"string\",\"format\":\"uri-template\"}",
     {"\"/a/{b,c}{?d*}\"", "\"{+x.y:12}\"", "\"\""},
     {"\"{\"", "\"{}\"", "\"}\"", "\"{a:0}\"", "\"a b\""}},
    {"{\"type\":\"string\",\"format\":\"date\",\"pattern\":\"^2024\"}",
     {"\"2024-01-31\""},
     {"\"2023-01-31\""}},
    /* numbers */
    {"{\"type\":\"integer\",\"minimum\":-5,\"maximum\":12}",
     {"-5", "-1", "0", "9", "12"},
     {"-0", "-6", "13", "100", "-10", "1.0"}},
    {"{\"type\":\"integer\",\"exclusiveMinimum\":99,\"exclusiveMaximum\":1001}",
     {"100", "999", "1000"},
     {"99", "1001", "-100", "10"}},
    {"{\"type\":\"integer\",\"minimum\":0.5,\"maximum\":2.5}",
     {"1", "2"},
     {"0", "3"}},
    {"{\"type\":\"integer\",\"minimum\":1e3}",
     {"1000", "99999999999999999999"},
     {"999", "-5000", "100000000000000000000"}},
    {"{\"type\":\"integer\",\"maximum\":-10}",
     {"-10", "-11", "-100"},
     {"-9", "0", "10"}},
    {"{\"type\":\"integer\",\"multipleOf\":7}",
     {"0", "7", "-14", "700"},
     {"1", "71", "-8", "-0"}},
    {"{\"type\":\"integer\",\"multipleOf\":15,\"minimum\":1,\"maximum\":60}",
     {"15", "30", "45", "60"},
     {"0", "75", "20"}},
    {"{\"type\":\"number\",\"multipleOf\":0.01}",
     {"0", "0.07", "-0.5", "12345678901234567.89", "1.00", "3", "-0.0"},
     {"0.001", "1.000", "1e2", "123456789012345678.90", ".5", "00"}},
    {"{\"multipleOf\":0.5,\"minimum\":-1.25,\"exclusiveMaximum\":20,\"type\":"
     "\"number\"}",
     {"-1", "-1.0", "-0.5", "0.5", "19.5", "7"},
     {"-1.5", "0.25", "20", "20.0", "0.1"}},
    {"{\"type\":\"number\",\"multipleOf\":6.75}",
     {"0", "6.75", "13.5", "13.50", "27", "-20.25", "675"},
     {"6.7", "1", "6.76", "27.25"}},
    {"{\"type\":\"integer\",\"multipleOf\":2.5,\"minimum\":1}",
     {"5", "10", "125"},
     {"0", "2", "2.5", "7", "5.0"}},
    {"{\"type\":\"number\",\"allOf\":[{\"multipleOf\":0.6},{\"multipleOf\":0.4}"
     "]}",
     {"0", "1.2", "2.4", "12", "-3.6"},
     {"0.6", "0.4", "1", "0.2"}},
    {"{\"type\":\"integer\",\"multipleOf\":12000}",
     {"0", "12000", "36000", "120000", "-24000", "12345678901234560000"},
     {"12", "1000", "12001", "18000", "120", "-0"}},
    {"{\"type\":\"integer\",\"multipleOf\":1999,\"minimum\":2000,\"maximum\":"
     "5997}",
     {"3998", "5997"},
     {"1999", "2000", "0", "7996"}},
    {"{\"type\":\"integer\",\"multipleOf\":9973}",
     {"0", "9973", "-19946"},
     {"9974", "1"}},
    {"{\"type\":\"number\",\"multipleOf\":10}",
     {"0", "20", "-10"},
     {"5", "20.5", "-0"}},
    {"{\"type\":\"integer\",\"minimum\":0}", {"0", "5"}, {"-0", "-5", "-"}},
    {"{\"type\":\"number\",\"exclusiveMinimum\":0}",
     {"1", "0.5"},
     {"0", "-0", "-0.5"}},
    {"{\"type\":\"number\",\"minimum\":-0.5,\"maximum\":0}",
     {"0", "-0", "-0.0", "-0.5"},
     {"-1", "0.5", "-0e5"}},
    {"{\"type\":\"number\",\"exclusiveMinimum\":-1}",
     {"-0", "-0.0", "-0.5"},
     {"-1"}},
    {"{\"type\":\"number\",\"not\":{\"const\":0.5},\"minimum\":-0.0}",
     {"0", "0.0"},
     {"-0", "-0.0", "-0.5", "0.5"}},
    {"{\"enum\":[-0,-0.0,-1,[-0e2]]}",
     {"0", "0.0", "-1", "[0e2]"},
     {"-0", "-0.0", "[-0e2]"}},
    {"{\"type\":\"number\",\"minimum\":0,\"maximum\":1}",
     {"0", "0.0", "0.999", "1", "1.0", "1.000"},
     {"-0", "-0.0", "-0.1", "1.01", "2", "1e0", "10"}},
    {"{\"type\":\"number\",\"exclusiveMinimum\":-1.5,\"exclusiveMaximum\":2."
     "25}",
     {"-1.49", "-1", "0", "2.249", "2.2", "2.2499999999999996"},
     {"2.2499999999999999", "-1.49999999999999999", "-1.5", "-1.50", "2.25",
      "2.250", "2.26", "-2", "3"}},
    {"{\"type\":\"number\",\"minimum\":12.34}",
     {"12.34", "12.340", "12.4", "13", "100.1"},
     {"12.33", "12.3", "12", "-13", "1.5"}},
    {"{\"type\":\"integer\",\"not\":{\"const\":5}}",
     {"4", "50", "55", "-5"},
     {"5"}},
    {"{\"type\":\"number\",\"not\":{\"enum\":[0,1.5]}}",
     {"1", "1.51", "-1.5", "15"},
     {"0", "-0", "0.00", "1.5", "1.50"}},
    /* values */
    {"{\"const\":{\"b\":[1,null],\"a\":\"\\u00e9\"}}",
     {"{\"b\":[1,null],\"a\":\"\xC3\xA9\"}",
      "{\"b\":[1,null],\"a\":\"\\u00e9\"}"},
     {"{\"a\":\"\xC3\xA9\",\"b\":[1,null]}", "{\"b\":[1,null]}"}},
    {"{\"enum\":[\"a\",1,null,\"x\\\"y\\n\"]}",
     {"\"a\"", "1", "null", "\"x\\\"y\\n\"", "\"x\\u0022y\\u000a\""},
     {"\"b\"", "2", "1.0"}},
    {"{\"enum\":[1,\"a\",2.5,\"abc\"],\"type\":[\"string\",\"integer\"],"
     "\"maxLength\":2}",
     {"1", "\"a\""},
     {"2.5", "\"abc\""}},
    {"{\"enum\":[1,2,3],\"const\":2}", {"2"}, {"1", "3"}},
    {"{\"type\":\"string\",\"not\":{\"enum\":[\"a\",\"ab\"]}}",
     {"\"\"", "\"b\"", "\"abc\"", "\"aa\""},
     {"\"a\"", "\"ab\""}},
    {"{\"type\":[\"null\",\"boolean\"],\"not\":{\"const\":true}}",
     {"null", "false"},
     {"true"}},
    /* arrays */
    {"{\"type\":\"array\",\"items\":{\"type\":\"integer\"}}",
     {"[]", "[1]", "[1,2,3]"},
     {"[\"a\"]", "[1,]", "[1 ,2]", "[1,null]"}},
    {"{\"type\":\"array\",\"items\":{\"type\":\"null\"},\"minItems\":2,"
     "\"maxItems\":3}",
     {"[null,null]", "[null,null,null]"},
     {"[]", "[null]", "[null,null,null,null]"}},
    {"{\"type\":\"array\",\"prefixItems\":[{\"type\":\"integer\"},{\"type\":"
     "\"string\"}],\"items\":{\"type\":\"null\"}}",
     {"[]", "[1]", "[1,\"a\"]", "[1,\"a\",null,null]"},
     {"[\"a\"]", "[1,2]", "[1,\"a\",1]"}},
    {"{\"type\":\"array\",\"prefixItems\":[{\"type\":\"integer\"}],\"items\":"
     "false,\"minItems\":1}",
     {"[1]"},
     {"[]", "[1,2]"}},
    {"{\"type\":\"array\",\"prefixItems\":[{\"type\":\"integer\"},{},{}],"
     "\"minItems\":1}",
     {"[1]", "[1,2]", "[1,2,3]", "[1,2,3,4]"},
     {"[]", "[null]"}},
    {"{\"type\":\"array\",\"prefixItems\":[{\"type\":\"integer\"},false]}",
     {"[]", "[1]"},
     {"[1,2]"}},
    {"{\"type\":\"array\",\"maxItems\":0}", {"[]"}, {"[1]"}},
    {"{\"type\":\"array\",\"items\":false}", {"[]"}, {"[1]"}},
    /* objects */
    {"{\"type\":\"object\",\"properties\":{\"a\":{\"type\":\"integer\"},\"b\":"
     "{\"type\":\"null\"}},\"required\":[\"a\"]}",
     {"{\"a\":1}", "{\"a\":1,\"b\":null}", "{\"a\":1,\"x\":[]}",
      "{\"a\":1,\"b\":null,\"c\":1,\"d\":2}", "{\"a\":1,\"aa\":2}",
      "{\"a\":1,\"\":2}"},
     {"{}", "{\"b\":null}", "{\"b\":null,\"a\":1}", "{\"a\":1,\"a\":2}",
      "{\"x\":1,\"a\":1}", "{\"a\":1,\"b\":1}", "{\"a\":1,\"\\u0061\":2}",
      "{\"a\":1,\"x\":1,\"b\":null}"}},
    {"{\"type\":\"object\",\"properties\":{\"a\":{},\"b\":{},\"c\":{},\"d\":{},"
     "\"e\":{}},\"required\":[\"d\"],\"additionalProperties\":false}",
     {"{\"d\":1}", "{\"a\":1,\"d\":1}", "{\"c\":1,\"d\":1,\"e\":2}",
      "{\"a\":1,\"b\":1,\"c\":1,\"d\":1,\"e\":2}"},
     {"{}", "{\"a\":1}", "{\"e\":1}", "{\"d\":1,\"f\":1}",
      "{\"d\":1,\"c\":1}"}},
    {"{\"type\":\"object\",\"properties\":{\"a\":{},\"b\":{},\"c\":{},\"d\":"
     "{}},\"additionalProperties\":{\"type\":\"null\"}}",
     {"{}", "{\"d\":1}", "{\"b\":1,\"d\":1}", "{\"x\":null}",
      "{\"c\":1,\"x\":null,\"y\":null}"},
     {"{\"d\":1,\"a\":1}", "{\"x\":1}", "{\"x\":null,\"a\":1}"}},
    {"{\"type\":\"object\",\"additionalProperties\":{\"type\":\"integer\"}}",
     {"{}", "{\"a\":1}", "{\"a\":1,\"b\":2}"},
     {"{\"a\":null}"}},
    {"{\"type\":\"object\",\"patternProperties\":{\"^x\":{\"type\":\"integer\"}"
     "},\"additionalProperties\":false}",
     {"{}", "{\"x\":1}", "{\"xa\":1,\"xb\":2}"},
     {"{\"a\":1}", "{\"x\":null}"}},
    {"{\"type\":\"object\",\"properties\":{\"xa\":{\"maximum\":5}},"
     "\"patternProperties\":{\"^x\":{\"type\":\"integer\"}}}",
     {"{\"xa\":5}", "{\"xa\":5,\"xb\":9,\"y\":null}"},
     {"{\"xa\":6}", "{\"xa\":null}", "{\"xb\":null}"}},
    {"{\"type\":\"object\",\"required\":[\"k\"],\"additionalProperties\":{"
     "\"type\":\"integer\"}}",
     {"{\"k\":1}", "{\"k\":1,\"a\":2}"},
     {"{}", "{\"a\":2}", "{\"k\":null}"}},
    {"{\"type\":\"object\",\"properties\":{\"a\":false,\"b\":{}}}",
     {"{}", "{\"b\":1}", "{\"c\":1}"},
     {"{\"a\":1}"}},
    {"{\"type\":\"object\",\"properties\":{\"a/\\u00e9\\\"\":{}},"
     "\"additionalProperties\":false}",
     {"{\"a/\xC3\xA9\\\"\":1}", "{\"a\\/\\u00e9\\\"\":1}"},
     {"{\"a\":1}"}},
    {"{\"properties\":{\"a\":{\"type\":\"null\"}}}",
     {"1", "{\"a\":null}", "[]"},
     {"{\"a\":1}"}},
    /* combinations */
    {"{\"anyOf\":[{\"type\":\"integer\"},{\"type\":\"string\",\"maxLength\":1}]"
     "}",
     {"1", "\"a\""},
     {"\"ab\"", "null"}},
    {"{\"type\":\"object\",\"properties\":{\"a\":{}},\"anyOf\":[{\"required\":["
     "\"a\"]},{\"required\":[\"b\"]}],\"additionalProperties\":true}",
     {"{\"a\":1}", "{\"b\":1}", "{\"a\":1,\"b\":1}"},
     {"{}", "{\"c\":1}"}},
    {"{\"oneOf\":[{\"type\":\"integer\"},{\"type\":\"null\"}]}",
     {"1", "null"},
     {"1.5"}},
    {"{\"oneOf\":[{\"const\":1},{\"enum\":[2,3]}]}", {"1", "3"}, {"4"}},
    {"{\"oneOf\":[{\"type\":\"object\",\"properties\":{\"k\":{\"const\":\"c\"}}"
     ","
     "\"required\":[\"k\"],\"additionalProperties\":false},{\"const\":\"d\"}],"
     "\"discriminator\":{\"propertyName\":\"k\",\"mapping\":{\"c\":\"#/x\"}}}",
     {"{\"k\":\"c\"}", "\"d\""},
     {"{\"k\":\"d\"}", "{}"}},
    {"{\"type\":\"object\",\"oneOf\":[{\"properties\":{\"k\":{\"const\":\"a\"},"
     "\"v\":{\"type\":\"integer\"}},\"required\":[\"k\",\"v\"]},{"
     "\"properties\":"
     "{\"k\":{\"const\":\"b\"}},\"required\":[\"k\"],\"additionalProperties\":"
     "false}]}",
     {"{\"k\":\"a\",\"v\":1}", "{\"k\":\"b\"}"},
     {"{\"k\":\"b\",\"v\":1}", "{\"k\":\"a\"}", "{\"k\":\"c\"}"}},
    {"{\"oneOf\":[{\"type\":\"object\",\"required\":[\"a\"],\"properties\":{"
     "\"a\":{},\"b\":false}},{\"type\":\"object\",\"required\":[\"b\"]}]}",
     {"{\"a\":1}", "{\"b\":1}"},
     {"{}"}},
    {"{\"oneOf\":[{\"type\":\"integer\",\"maximum\":3},{\"type\":\"integer\","
     "\"minimum\":4}]}",
     {"3", "4"},
     {"3.5"}},
    {"{\"allOf\":[{\"type\":\"integer\",\"minimum\":3},{\"maximum\":5}]}",
     {"3", "5"},
     {"2", "6", "null"}},
    {"{\"allOf\":[{\"properties\":{\"a\":{\"type\":\"integer\"}},\"required\":["
     "\"a\"]},{\"properties\":{\"b\":{\"type\":\"null\"}}}],\"type\":"
     "\"object\"}",
     {"{\"a\":1,\"b\":null}", "{\"a\":1}"},
     {"{\"b\":null,\"a\":1}", "{\"b\":null}"}},
    {"{\"allOf\":[{\"anyOf\":[{\"type\":\"null\"},{\"type\":\"integer\"}]},{"
     "\"anyOf\":[{\"type\":\"integer\"},{\"type\":\"string\"}]}]}",
     {"1"},
     {"null", "\"a\""}},
    /* references */
    {"{\"$ref\":\"#/$defs/a\",\"$defs\":{\"a\":{\"type\":\"null\"}}}",
     {"null"},
     {"1"}},
    {"{\"$ref\":\"#/definitions/a~1b%20c\",\"definitions\":{\"a/b "
     "c\":{\"type\":"
     "\"null\"}},\"maximum\":3}",
     {"null"},
     {"1"}},
    {"{\"$ref\":\"#here\",\"$defs\":{\"a\":{\"$anchor\":\"here\",\"type\":"
     "\"null\"}}}",
     {"null"},
     {"1"}},
    {"{\"type\":\"object\",\"properties\":{\"v\":{\"type\":\"integer\"},\"n\":{"
     "\"anyOf\":[{\"$ref\":\"#\"},{\"type\":\"null\"}]}},\"required\":[\"v\","
     "\"n\"],\"additionalProperties\":false}",
     {"{\"v\":1,\"n\":null}", "{\"v\":1,\"n\":{\"v\":2,\"n\":null}}"},
     {"{\"v\":1}", "{\"v\":1,\"n\":{\"v\":2}}"}},
    {"{\"type\":\"array\",\"items\":{\"$ref\":\"#\"}}",
     {"[]", "[[],[[]]]"},
     {"[1]"}},
};

/* An $id in a schema is the base of the references in it. Here ' stands for a
 * double quote. */
static const struct documents resources[] = {
    {"{'$ref': '#/$defs/a', '$defs': {'t': {'type': 'integer'}, 'a': {"
     "'$id': 'http://x/b', '$defs': {'t': {'type': 'string'}},"
     "'type': 'object', 'properties': {'p': {'$ref': '#/$defs/t'}},"
     "'required': ['p'], 'additionalProperties': false}}}",
     {"{'p':'s'}"},
     {"{'p':1}"}},
    {"{'$ref': 'b', '$defs': {'t': {'$anchor': 't', 'type': 'integer'},"
     "'a': {'$id': 'b', '$ref': '#t',"
     "'$defs': {'t': {'$anchor': 't', 'type': 'string'}}}}}",
     {"'s'"},
     {"1"}},
    /* also where a pointer leads into it */
    {"{'$ref': '#/$defs/a/$defs/u', '$defs': {'t': {'type': 'integer'},"
     "'a': {'$id': 'b', '$defs': {'t': {'type': 'string'},"
     "'u': {'$ref': '#/$defs/t'}}}}}",
     {"'s'"},
     {"1"}},
    /* absolute and relative references */
    {"{'$id': 'http://x/r', '$ref': 'http://x/r#/$defs/t',"
     "'$defs': {'t': {'type': 'integer'}}}",
     {"1"},
     {"'s'"}},
    {"{'$id': 'http://x/d/r?q', '$ref': '../e/./b#t', '$defs': {"
     "'t': {'$anchor': 't', 'type': 'string'}, 'b': {'$id': '/e/b',"
     "'$defs': {'t': {'$anchor': 't', 'type': 'integer'}}}}}",
     {"1"},
     {"'s'"}},
    {"{'$id': 'http://x/r', '$ref': '//y/b',"
     "'$defs': {'b': {'$id': 'http://y/b#', 'type': 'integer'}}}",
     {"1"},
     {"'s'"}},
    {"{'$id': 'http://x/r?a', '$ref': '?b', '$defs': {"
     "'b': {'$id': 'http://x/r?b', 'type': 'integer'}}}",
     {"1"},
     {"'s'"}},
    {"{'$id': 'urn:a:b', '$ref': 'urn:a:b#/$defs/t',"
     "'$defs': {'t': {'type': 'integer'}}}",
     {"1"},
     {"'s'"}},
    {"{'$ref': 'd/b.json', '$defs': {"
     "'b': {'$id': 'd/b.json', '$ref': 'c.json'},"
     "'c': {'$id': 'd/c.json', 'type': 'integer'},"
     "'e': {'$id': 'c.json', 'type': 'string'}}}",
     {"1"},
     {"'s'"}},
    {"{'type': 'array', 'items': {'$ref': ''}}", {"[[]]"}, {"[1]"}},
    /* values are no schemas */
    {"{'$ref': '#t', '$defs': {'a': {"
     "'enum': [{'$anchor': 't', 'type': 'string'}],"
     "'const': {'$anchor': 't', 'type': 'string'},"
     "'default': {'$anchor': 't', 'type': 'string'},"
     "'examples': [{'$anchor': 't', 'type': 'string'}]},"
     "'b': {'$anchor': 't', 'type': 'integer'}}}",
     {"1"},
     {"'s'"}},
    {"{'$ref': 'b', '$defs': {'a': {'enum': [{'$id': 'b'}]},"
     "'b': {'$id': 'b', 'type': 'integer'}}}",
     {"1"},
     {"'s'"}},
    /* but a reference makes one of them a schema */
    {"{'$ref': '#/default', '$defs': {'t': {'type': 'integer'}}, 'default': {"
     "'$id': 'b', '$ref': '#/$defs/t', '$defs': {'t': {'type': 'string'}}}}",
     {"'s'"},
     {"1"}},
    /* an $id that is only a fragment is no base */
    {"{'$ref': '#t', '$defs': {'a': {'$id': '#t', '$ref': '#/$defs/t'},"
     "'t': {'$id': '#/$defs/t', 'type': 'integer'}}}",
     {"1"},
     {"'s'"}},
    {"{'$ref': '#t',"
     "'$defs': {'a': {'$dynamicAnchor': 't', 'type': 'integer'}}}",
     {"1"},
     {"'s'"}},
    /* percent-encoding comes off before ~0 and ~1 */
    {"{'$ref': '#/$defs/%7E1%7E0a%2Ft%25',"
     "'$defs': {'/~a': {'t%': {'type': 'integer'}}}}",
     {"1"},
     {"'s'"}},
    {"{'$ref': '#%c3%a9',"
     "'$defs': {'a': {'$anchor': '\xC3\xA9', 'type': 'integer'}}}",
     {"1"},
     {"'s'"}},
};

static void admits_documents(void **state)
{
    for (size_t i = 0; i < sizeof documents / sizeof *documents; i++)
        check_documents(&documents[i], false);
}

static void resolves_references(void **state)
{
    for (size_t i = 0; i < sizeof resources / sizeof *resources; i++)
        check_documents(&resources[i], true);
}

/* Lengths count code points, whatever their text is. */
static void counts_characters(void **state)
{
    static const char *const units[] = {
        "x",   "\xC3\xA9", "\xE6\xBC\xA2",  "\xF0\x9F\x98\x80",
        "\\n", "\\u00e9",  "\\ud83d\\uDE00"};
    enum { N_UNITS = sizeof units / sizeof *units };
    static const struct {
        const char *schema;
        const char *before, *after;
        size_t n_units;       /* how many kinds of characters fit */
        size_t yes[4], no[4]; /* 0 ends them */
    } rows[] = {
        {"{'type':'string','maxLength':1001}",
         "",
         "",
         N_UNITS,
         {1, 1000, 1001},
         {1002, 2000}},
        {"{'type':'string','minLength':2000}",
         "",
         "",
         N_UNITS,
         {2000, 2001, 9000},
         {1, 1999}},
        {"{'type':'string','minLength':31,'maxLength':33}",
         "",
         "",
         N_UNITS,
         {31, 32, 33},
         {30, 34}},
        {"{'type':'string','maxLength':1000000,'minLength':300000}",
         "",
         "",
         1,
         {300000, 1000000},
         {299999, 1000001}},
        {"{'type':'string','maxLength':4294967294}",
         "",
         "",
         1,
         {1, 70000},
         {0}},
        /* with a pattern, a format and excluded values */
        {"{'type':'string','pattern':'^a','minLength':50,'maxLength':5000}",
         "a",
         "",
         N_UNITS,
         {49, 4999},
         {48, 5000}},
        {"{'type':'string','pattern':'a.*z','maxLength':100000}",
         "aq",
         "qz",
         4,
         {1, 99996},
         {99997}},
        {"{'type':'string','pattern':'^(ab|x+)*$','minLength':100}",
         "ab",
         "abab",
         1,
         {94, 95},
         {93}},
        {"{'type':'string','pattern':'^(xx)*$','minLength':51,'maxLength':55}",
         "",
         "",
         1,
         {52, 54},
         {50, 51, 53, 56}},
        {"{'type':'string','pattern':'^[^q]{20,500}$'}",
         "",
         "",
         N_UNITS,
         {20, 21, 499, 500},
         {1, 19, 501}},
        {"{'type':'string','pattern':'^ab?.{0,300}$','maxLength':200}",
         "a",
         "",
         4,
         {1, 198, 199},
         {200, 300}},
        {"{'type':'string','pattern':'^abx{30,}$'}",
         "ab",
         "",
         1,
         {30, 31, 5000},
         {1, 29}},
        {"{'type':'string','pattern':'^(ab[x-z]{0,40}|q)$'}",
         "ab",
         "",
         1,
         {1, 39, 40},
         {41, 42}},
        {"{'type':'string','pattern':'^x{1,30}(x{40})?$'}",
         "",
         "",
         1,
         {1, 30, 41, 70},
         {31, 40, 71}},
        {"{'type':'string','format':'email','maxLength':255}",
         "a",
         "@b.org",
         1,
         {1, 248},
         {249, 300}},
        {"{'type':'string','not':{'const':'xx'},'maxLength':2000}",
         "",
         "",
         1,
         {1, 3, 2000},
         {2, 2001}},
        {"{'allOf':[{'type':'string','maxLength':70},{'maxLength':60},"
         "{'minLength':50}]}",
         "",
         "",
         N_UNITS,
         {50, 60},
         {49, 61}},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct qwick_err e;
        char *schema = quoted(rows[i].schema);
        struct automaton *a = compile(schema, strlen(schema), 0, &e);
        if (!a)
            fail_msg("%s: %s", schema, e.msg);
        for (size_t k = 0; k < 8 * rows[i].n_units; k++) {
            size_t n = k % 8 < 4 ? rows[i].yes[k % 4] : rows[i].no[k % 4];
            struct buf b = {0};
            if (n == 0)
                continue;
            buf_printf(&b, "\"%s", rows[i].before);
            for (size_t c = 0; c < n; c++)
                buf_puts(&b, units[k / 8]);
            buf_printf(&b, "%s\"", rows[i].after);
            if (matches(a, b.data, b.len) != (k % 8 < 4))
                fail_msg("%s: %zu times %s", schema, n, units[k / 8]);
            buf_free(&b);
        }
        automaton_free(a);
        free(schema);
    }
}

/* ---- refusals ------------------------------------------------------------ */

static void refuses(void **state)
{
    static const struct {
        const char *schema, *message; /* "S: " and a part of the message */
    } cases[] = {
        {"{", "the schema: offset"},
        {"[]", "#: a schema must be an object, true or false"},
        {"{\"properties\":{\"a\":1}}", "#/properties/a: a schema must be"},
        {"{\"properties\":{\"a/b\":{\"requried\":[]}}}",
         "#/properties/a~1b/requried: is no keyword"},
        {"{\"requried\":[]}",
         "#/requried: is no keyword, did you mean required?"},
        {"{\"$recursiveRef\":\"#\"}", "#: refers to itself without"},
        {"{\"not\":true}", "#: nothing satisfies the schema: it is false"},
        {"{\"type\":\"int\"}", "#/type: no type \"int\""},
        {"{\"type\":3}", "#/type: the name of a type expected, not a number"},
        {"{\"multipleOf\":0}", "#/multipleOf: a number above 0 expected"},
        {"{\"multipleOf\":-0.5}", "#/multipleOf: a number above 0 expected"},
        {"{\"multipleOf\":12345.678901}",
         "#/multipleOf: 12345.678901 has too many digits"},
        {"{\"type\":\"integer\",\"multipleOf\":999983}",
         "#/multipleOf: needs an automaton of more than 20000 states"},
        {"{\"minItems\":-1}", "#/minItems: a count expected, not -1"},
        {"{\"minItems\":1000000000000}",
         "#/minItems: 1000000000000 is more than the limit 4294967294"},
        {"{\"maxLength\":4294967295}",
         "#/maxLength: 4294967295 is more than the "},
        {"{\"pattern\":\"(\"}", "#/pattern: the pattern: "},
        {"{\"pattern\":\"(?<=a)\"}", "#/pattern: the pattern: "},
        {"{\"$ref\":\"other.json\"}",
         "#/$ref: \"other.json\" is outside of this schema, in which no $id "
         "is \"other.json\""},
        {"{\"$id\":\"http://x/a/b\",\"items\":{\"$ref\":\"../c#/d\"}}",
         "#/items/$ref: \"../c#/d\" is outside of this schema, in which no $id "
         "is \"http://x/c\""},
        {"{\"$ref\":\"b\",\"$defs\":{\"a\":{\"$id\":\"b\"},\"b\":{\"$id\":"
         "\"b\"}}}",
         "#/$ref: two schemas have the $id \"b\""},
        {"{\"$ref\":\"#b\",\"$defs\":{\"a\":{\"$anchor\":\"b\"},\"b\":{"
         "\"$anchor\":\"b\"}}}",
         "#/$ref: two schemas have the anchor \"b\""},
        {"{\"$ref\":\"#/$defs/a/$defs/t\",\"$defs\":{\"u\":{},\"a\":{\"$id\":"
         "\"b\",\"$defs\":{\"t\":{\"$ref\":\"#/$defs/u\"}}}}}",
         "#/$defs/a/$defs/t/$ref: nothing is at \"#/$defs/u\""},
        {"{\"$ref\":\"#/prefixItems/01\",\"prefixItems\":[{},{}]}",
         "#/$ref: nothing is at \"#/prefixItems/01\""},
        {"{\"$id\":3}", "#/$id: a string expected, not a number"},
        {"{\"$ref\":\"#/$defs/x\"}", "#/$ref: nothing is at \"#/$defs/x\""},
        {"{\"$ref\":\"#\"}", "#: refers to itself without"},
        {"{\"anyOf\":[{\"type\":\"null\"},{\"$ref\":\"#\"}]}",
         "#/anyOf/1: refers to itself without"},
        {"{\"allOf\":[]}", "#/allOf: is empty"},
        {"{\"minimum\":1e9999}", "#/minimum: 1e9999 has more than 400 digits"},
        /* several problems */
        {"{\"if\":{},\"then\":{},\"tpye\":1,\"type\":\"int\",\"items\":{"
         "\"minItem\":1,\"type\":1}}",
         "#/type: no type \"int\"; #/items/minItem: is "
         "no keyword, did you mean minItems?; #/items/type: the name "
         "of a type expected, not a number"},
        /* nothing is admitted */
        {"false", "#: nothing satisfies the schema: it is false"},
        {"{\"enum\":[]}", "#: nothing satisfies the schema: no value of its"},
        {"{\"type\":\"integer\",\"minimum\":3,\"maximum\":2}",
         "#: nothing satisfies the schema: no number is inside the limits"},
        {"{\"type\":\"object\",\"properties\":{\"a\":{\"allOf\":[{\"type\":"
         "\"null\"},{\"type\":\"string\"}]}},\"required\":[\"a\"]}",
         "#/properties/a/allOf/1: nothing satisfies the schema: no type is "
         "left"},
        {"{\"type\":\"string\",\"minLength\":3,\"maxLength\":2}",
         "#: nothing satisfies the schema: no string satisfies it"},
        {"{\"type\":\"string\",\"pattern\":\"^a$\",\"minLength\":2}",
         "#: nothing satisfies the schema: no string satisfies it"},
        {"{\"type\":\"array\",\"items\":{\"$ref\":\"#\"},\"minItems\":1}",
         "no text can match"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const char *text = cases[i].schema;
        struct qwick_err e = {0};
        struct automaton *a = compile(text, strlen(text), 0, &e);
        if (a)
            fail_msg("%s is accepted", text);
        if (strncmp(e.msg, "S: ", 3) != 0 ||
            strncmp(e.msg + 3, cases[i].message, strlen(cases[i].message)) != 0)
            fail_msg("%s: %s\nexpected %s", text, e.msg, cases[i].message);
        if (e.code != QWICK_ERR_USAGE)
            fail_msg("%s: code %d", text, (int)e.code);
    }
}

/* ---- hostile schemas ----------------------------------------------------- */

/* Compile the text in b, which is accepted or refused, and free it. */
static void try_schema(struct buf *b, const char *message)
{
    struct qwick_err e = {0};
    struct automaton *a = compile(b->data, b->len, 0, &e);
    if (message && !a && !strstr(e.msg, message))
        fail_msg("%s\nexpected %s", e.msg, message);
    if (a && message)
        fail_msg("accepted, expected %s", message);
    if (!a && !message)
        fail_msg("%s", e.msg);
    automaton_free(a);
    buf_free(b);
}

static void nests_references(void **state)
{
    struct buf b = {0};
    buf_puts(&b, "{\"$ref\":\"#/$defs/0\",\"$defs\":{");
    for (int i = 0; i < 10000; i++)
        buf_printf(&b, "\"%d\":{\"$ref\":\"#/$defs/%d\"},", i, i + 1);
    buf_puts(&b, "\"10000\":{\"type\":\"null\"}}}");
    try_schema(&b, NULL);
    buf_puts(&b, "{\"$ref\":\"#/$defs/0\",\"$defs\":{");
    for (int i = 0; i < 10000; i++)
        buf_printf(&b, "\"%d\":{\"items\":{\"$ref\":\"#/$defs/%d\"}},", i,
                   i + 1);
    buf_puts(&b, "\"10000\":{\"type\":\"null\"}}}");
    try_schema(&b, NULL);
    buf_puts(&b, "{\"$ref\":\"#/$defs/0\",\"$defs\":{");
    for (int i = 0; i < 10000; i++)
        buf_printf(&b, "\"%d\":{\"allOf\":[{\"$ref\":\"#/$defs/%d\"}]},", i,
                   i + 1);
    buf_puts(&b, "\"10000\":{\"const\":1}},\"enum\":[1]}");
    try_schema(&b, NULL);
    buf_puts(&b, "{\"$ref\":\"#/$defs/0\",\"$defs\":{");
    for (int i = 0; i < 10000; i++)
        buf_printf(&b, "\"%d\":{\"anyOf\":[{\"$ref\":\"#/$defs/%d\"}]},", i,
                   i + 1);
    buf_puts(&b, "\"10000\":{\"const\":1}},\"enum\":[1]}");
    try_schema(&b, "refer to each other through more than 2000 levels");
}

static void multiplies_choices(void **state)
{
    struct buf b = {0};
    buf_puts(&b, "{\"type\":\"object\",\"allOf\":[");
    for (int i = 0; i < 40; i++)
        buf_printf(&b,
                   "%s{\"anyOf\":[{\"required\":[\"a%d\"]},{\"required\":["
                   "\"b%d\"]}]}",
                   i ? "," : "", i, i);
    buf_puts(&b, "]}");
    try_schema(&b, "the schema");
    /* each level doubles the previous one */
    buf_puts(&b, "{\"$ref\":\"#/$defs/0\",\"$defs\":{");
    for (int i = 0; i < 40; i++)
        buf_printf(&b,
                   "\"%d\":{\"allOf\":[{\"$ref\":\"#/$defs/%d\"},{\"$ref\":"
                   "\"#/$defs/%d\"}]},",
                   i, i + 1, i + 1);
    buf_puts(&b, "\"40\":{\"type\":\"null\"}}}");
    try_schema(&b, NULL);
    buf_puts(&b, "{\"$ref\":\"#/$defs/0\",\"$defs\":{");
    for (int i = 0; i < 40; i++)
        buf_printf(&b,
                   "\"%d\":{\"oneOf\":[{\"$ref\":\"#/$defs/%d\"},{\"$ref\":"
                   "\"#/$defs/%d\"}]},",
                   i, i + 1, i + 1);
    buf_puts(&b, "\"40\":{\"type\":\"null\"}}}");
    try_schema(&b, "");
}

static void multiplies_automata(void **state)
{
    struct buf b = {0};
    buf_puts(&b, "{\"type\":\"string\",\"pattern\":\"(a|b)*a(a|b){30}$\"}");
    try_schema(&b, "#/pattern: ");
    buf_puts(&b, "{\"pattern\":\"((a{99}){99}){99}\"}");
    try_schema(&b, "#/pattern: ");
    buf_puts(&b, "{\"type\":\"string\",\"pattern\":\"^(xx)*$\",\"minLength\":"
                 "65536}");
    try_schema(&b, "#: needs an automaton of more than 20000 states");
    buf_puts(&b, "{\"type\":\"array\",\"maxItems\":65536,\"minItems\":65000}");
    try_schema(&b, NULL);
    buf_puts(&b, "{\"allOf\":[");
    for (int i = 0; i < 3000; i++)
        buf_printf(&b, "%s{\"pattern\":\"[a-c]{%d}(x|y)*z{%d}\"}", i ? "," : "",
                   i % 90, i % 70);
    buf_puts(&b, "]}");
    try_schema(&b, "");
}

/* Long lists, and documents that they admit and do not admit. */
static const struct {
    const char *begin, *item, *end;
    int n;
    bool mixed;
    const char *yes, *no;
} lists[] = {
    {"{\"enum\":[", "\"v%u\"", "]}", 70000, false, "\"v69999\"", "\"v70000\""},
    {"{\"enum\":[", "\"\xC3\xA9%u\"", "]}", 40000, false, "\"\\u00E939999\"",
     "\"\xC3\xA9"
     "40000\""},
    {"{\"type\":\"integer\",\"enum\":[", "%u", "]}", 70000, false, "69999",
     "70000"},
    {"{\"anyOf\":[", "{\"const\":\"c%u\"}", "]}", 30000, false, "\"c29999\"",
     "\"c30000\""},
    {"{\"type\":\"string\",\"anyOf\":[", "{\"const\":\"c%u\",\"title\":\"t\"}",
     "]}", 15000, false, "\"c14999\"", "\"c15000\""},
    {"{\"oneOf\":[", "{\"const\":%u}", ",{\"const\":\"x\"}]}", 15000, false,
     "14999", "15000"},
    {"{\"properties\":{", "\"p%u\":{\"type\":\"null\"}", "}}", 8000, false,
     "{\"p7\":null,\"p7999\":null,\"p8000\":0}",
     "{\"p7999\":null,\"p7\":null}"},
    {"{\"properties\":{", "\"property%08x\":{\"type\":\"null\"}", "}}", 8000,
     true, "{\"property00000000\":null,\"other\":0}",
     "{\"property00000000\":0}"},
    {"{\"additionalProperties\":false,\"properties\":{",
     "\"p%u\":{\"type\":\"null\"}", "},\"required\":[\"p7998\"]}", 8000, false,
     "{\"p7\":null,\"p7998\":null}", "{\"p7\":null}"},
};

static void grows_wide(void **state)
{
    struct buf b = {0};
    for (size_t i = 0; i < sizeof lists / sizeof *lists; i++) {
        struct qwick_err e = {0};
        buf_puts(&b, lists[i].begin);
        for (int k = 0; k < lists[i].n; k++) {
            unsigned name = (unsigned)k * 2654435761u; /* looks random */
            buf_puts(&b, k ? "," : "");
            buf_printf(&b, lists[i].item, lists[i].mixed ? name : (unsigned)k);
        }
        buf_puts(&b, lists[i].end);
        struct automaton *a = compile(b.data, b.len, 0, &e);
        if (!a)
            fail_msg("list %zu: %s", i, e.msg);
        if (!matches(a, lists[i].yes, strlen(lists[i].yes)) ||
            matches(a, lists[i].no, strlen(lists[i].no)))
            fail_msg("list %zu", i);
        automaton_free(a);
        buf_free(&b);
    }
    for (int i = 0; i < 250; i++)
        buf_puts(&b, "{\"items\":");
    buf_puts(&b, "{}");
    for (int i = 0; i < 250; i++)
        buf_puts(&b, "}");
    try_schema(&b, NULL);
    buf_printf(&b, "{\"title\":\"%*s\"}", (int)SCHEMA_MAX_BYTES, "");
    try_schema(&b, "is larger than the limit 1048576");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(admits_documents),
        cmocka_unit_test(resolves_references),
        cmocka_unit_test(counts_characters),
        cmocka_unit_test(refuses),
        cmocka_unit_test(nests_references),
        cmocka_unit_test(multiplies_choices),
        cmocka_unit_test(multiplies_automata),
        cmocka_unit_test(grows_wide),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
