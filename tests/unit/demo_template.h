/* The chat template of models/demo, the one of Qwen3's releases. */
#ifndef DEMO_TEMPLATE_H
#define DEMO_TEMPLATE_H

#include <string.h>

#include "file/json.h"
#include "file/map.h"

/* Return the text, which the caller frees. */
static char *demo_template(void)
{
    static const char path[] = "models/demo/tokenizer_config.json";
    struct qwick_err e;
    struct map map;
    struct json_doc *doc;
    if (map_open(&map, path, &e) ||
        json_parse(&doc, path, (const char *)map.data, map.size,
                   QWICK_ERR_MODEL, &e))
        fail_msg("%s", e.msg);
    char *text = strdup(json_get(json_root(doc), "chat_template")->str);
    assert_non_null(text);
    json_free(doc);
    map_close(&map);
    return text;
}

#endif
