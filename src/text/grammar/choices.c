#include "text/grammar/choices.h"

#include <stdlib.h>

#include "base/utf8.h"
#include "text/grammar/grammar_int.h"

uint32_t choices_compile(struct grammar *g, const char *list, size_t n)
{
    struct buf text = {0};
    struct grammar_list nodes = {0};
    uint32_t node = GRAMMAR_NOTHING;
    size_t valid = utf8_valid(list, n);
    if (valid < n)
        return grammar_fail(g, "byte %zu: is not valid UTF-8", valid + 1);
    for (size_t i = 0; i <= n && !g->err.code; i++) {
        if (i < n && list[i] != ',') {
            if (list[i] == '\\' && i + 1 < n &&
                (list[i + 1] == ',' || list[i + 1] == '\\'))
                i++;
            if (buf_putc(&text, list[i]))
                grammar_oom(g, text.len);
            continue;
        }
        if (text.len == 0)
            grammar_fail(g, "text %zu is empty", nodes.n + 1);
        else
            grammar_list_add(g, &nodes, grammar_bytes(g, text.data, text.len));
        text.len = 0;
    }
    if (!g->err.code)
        node = grammar_alt(g, nodes.v, nodes.n);
    free(nodes.v);
    buf_free(&text);
    return node;
}
