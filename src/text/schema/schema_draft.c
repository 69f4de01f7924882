/* What depends on the draft of JSON Schema that a schema names. */
#include <string.h>

#include "text/schema/schema_int.h"

enum schema_draft schema_draft_at(const struct json_value *v,
                                  enum schema_draft outer)
{
    static const struct {
        const char *path;
        enum schema_draft draft; /* 0: not supported */
    } drafts[] = {
        {"draft/2020-12/schema", DRAFT_2020},
        {"draft/2019-09/schema", DRAFT_2019},
        {"draft-07/schema", DRAFT_7},
        {"draft-06/schema", DRAFT_6},
        {"draft-05/schema", DRAFT_4}, /* corrections of the text of draft 4 */
        {"draft-04/schema", DRAFT_4},
        {"draft-03/schema", 0},
        {"draft-02/schema", 0},
        {"draft-01/schema", 0},
    };
    static const char host[] = "://json-schema.org/";
    const struct json_value *uri = json_get(v, "$schema");
    const char *path = json_is(uri, JSON_STRING) ? uri->str : "";
    if (strncmp(path, "http", 4) != 0)
        return outer;
    path += 4 + (path[4] == 's');
    if (strncmp(path, host, sizeof host - 1) != 0)
        return outer;
    path += sizeof host - 1;
    for (size_t i = 0; i < sizeof drafts / sizeof *drafts; i++) {
        size_t n = strlen(drafts[i].path);
        if (strncmp(path, drafts[i].path, n) == 0 &&
            (!path[n] || strcmp(path + n, "#") == 0))
            return drafts[i].draft;
    }
    return outer;
}

const char *schema_draft_name(enum schema_draft draft)
{
    return draft == DRAFT_4      ? "4"
           : draft == DRAFT_6    ? "6"
           : draft == DRAFT_7    ? "7"
           : draft == DRAFT_2019 ? "2019-09"
                                 : "2020-12";
}

bool schema_draft_has(enum schema_draft draft, const char *keyword)
{
    static const struct {
        const char *name;
        enum schema_draft since, until;
    } rows[] = {
        {"id", DRAFT_4, DRAFT_4},
        {"$id", DRAFT_6, DRAFT_2020},
        {"const", DRAFT_6, DRAFT_2020},
        {"contains", DRAFT_6, DRAFT_2020},
        {"propertyNames", DRAFT_6, DRAFT_2020},
        {"if", DRAFT_7, DRAFT_2020},
        {"then", DRAFT_7, DRAFT_2020},
        {"else", DRAFT_7, DRAFT_2020},
        {"minContains", DRAFT_2019, DRAFT_2020},
        {"maxContains", DRAFT_2019, DRAFT_2020},
        {"dependentRequired", DRAFT_2019, DRAFT_2020},
        {"dependentSchemas", DRAFT_2019, DRAFT_2020},
        {"unevaluatedItems", DRAFT_2019, DRAFT_2020},
        {"unevaluatedProperties", DRAFT_2019, DRAFT_2020},
        {"$anchor", DRAFT_2019, DRAFT_2020},
        {"$recursiveRef", DRAFT_2019, DRAFT_2020},
        {"$recursiveAnchor", DRAFT_2019, DRAFT_2020},
        {"$dynamicRef", DRAFT_2020, DRAFT_2020},
        {"$dynamicAnchor", DRAFT_2020, DRAFT_2020},
        {"prefixItems", DRAFT_2020, DRAFT_2020},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (strcmp(rows[i].name, keyword) == 0)
            return rows[i].since <= draft && draft <= rows[i].until;
    return true;
}

const struct json_value *schema_only_ref(const struct json_value *v,
                                         enum schema_draft draft)
{
    const struct json_value *ref =
        draft <= DRAFT_7 ? json_get(v, "$ref") : NULL;
    return json_is(ref, JSON_STRING) ? ref : NULL;
}

const struct json_value *schema_id_of(const struct json_value *v,
                                      enum schema_draft draft)
{
    const struct json_value *id = json_get(v, draft == DRAFT_4 ? "id" : "$id");
    return json_is(id, JSON_STRING) ? id : NULL;
}
