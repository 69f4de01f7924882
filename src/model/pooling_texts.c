/* Changes of texts before the model reads them, as sentence-transformers makes
 * them, and the lengths of vectors that a checkpoint names. */
#include <stdlib.h>
#include <string.h>

#include "file/checkpoint.h"
#include "model/pooling_int.h"

static int read_limits(struct pooling *p, const struct section *s,
                       struct qwick_err *e)
{
    return section_opt_size(s, "max_seq_length", 0, MAX_DIM, &p->max_seq, e) ||
                   section_opt_bool(s, "do_lower_case", false, &p->lower, e)
               ? -1
               : 0;
}

/* The first of these files that exists counts, for any model. */
static int read_transformer(struct pooling *p, const struct checkpoint *ck,
                            struct qwick_err *e)
{
    static const char *const names[] = {
        "sentence_bert_config.json", "sentence_roberta_config.json",
        "sentence_distilbert_config.json", "sentence_xlm-roberta_config.json"};
    bool found = false;
    int rc = 0;
    for (size_t i = 0; i < sizeof names / sizeof *names && !rc && !found; i++) {
        struct pooling_file f;
        rc = pooling_open_json(&f, ck, NULL, names[i], e);
        found = f.s.v != NULL;
        if (!rc && found)
            rc = read_limits(p, &f.s, e);
        json_free(f.doc);
    }
    return rc;
}

/* ---- prompts ------------------------------------------------------------- */

static int check_prompts(const struct section *s, struct qwick_err *e)
{
    const struct json_value *v = json_member(s->v, "prompts");
    bool bad = v && v->type != JSON_OBJECT;
    for (size_t i = 0; v && !bad && i < v->len; i++)
        bad = v->items[i].type != JSON_STRING;
    return bad ? section_bad(s, "prompts", "an object of strings", e) : 0;
}

static int read_prompts(struct pooling *p, const struct section *s,
                        struct qwick_err *e)
{
    static const char key[] = "default_prompt_name";
    const struct json_value *name = json_member(s->v, key);
    if (check_prompts(s, e) ||
        section_opt_size(s, "truncate_dim", 0, MAX_DIM, &p->truncate_dim, e))
        return -1;
    p->prompts = json_member(s->v, "prompts");
    if (!name)
        return 0;
    if (json_is(name, JSON_STRING))
        p->prompt = json_get_n(p->prompts, name->str, name->len);
    return p->prompt ? 0
                     : section_bad(s, key, "the name of one of its prompts", e);
}

/* ---- lengths of vectors -------------------------------------------------- */

static void add_dim(struct pooling *p, size_t dim)
{
    if (dim && p->n_dims < POOLING_MAX_DIMS)
        p->dims[p->n_dims++] = dim;
}

static int read_config_dims(struct pooling *p, const struct checkpoint *ck,
                            struct qwick_err *e)
{
    static const char *const keys[] = {"matryoshka_dims",
                                       "matryoshka_dimensions"};
    struct pooling_file f;
    int rc = pooling_open_json(&f, ck, NULL, "config.json", e);
    for (size_t i = 0; i < 2 && !rc; i++) {
        const struct json_value *v = json_get(f.s.v, keys[i]);
        for (size_t k = 0; json_is(v, JSON_ARRAY) && k < v->len; k++) {
            int64_t dim = 0;
            if (!json_int(&v->items[k], 1, MAX_DIM, &dim))
                add_dim(p, (size_t)dim);
        }
    }
    json_free(f.doc);
    return rc;
}

/* Read the list of numbers at s, which has a NUL behind it. */
static void read_list(struct pooling *p, const char *s)
{
    s += strspn(s, "\": \t\r\n");
    if (*s != '[')
        return;
    s += 1 + strspn(s + 1, " \t\r\n");
    while (*s >= '0' && *s <= '9') {
        char *end;
        unsigned long dim = strtoul(s, &end, 10);
        add_dim(p, dim <= MAX_DIM ? dim : 0);
        s = end + strspn(end, ", \t\r\n");
    }
}

/* A model card that sentence-transformers wrote has the options of the training
 * as JSON. */
static int read_card_dims(struct pooling *p, const struct checkpoint *ck,
                          struct qwick_err *e)
{
    static const char key[] = "\"matryoshka_dims\"";
    struct map map;
    bool found;
    if (checkpoint_map_small(ck, "README.md", &map, &found, e))
        return -1;
    const char *at =
        found && map.size ? memmem(map.data, map.size, key, strlen(key)) : NULL;
    if (at) {
        char list[512];
        const char *end = (const char *)map.data + map.size;
        at += strlen(key);
        size_t n = (size_t)(end - at);
        n = n < sizeof list - 1 ? n : sizeof list - 1;
        memcpy(list, at, n);
        list[n] = '\0';
        read_list(p, list);
    }
    if (found)
        map_close(&map);
    return 0;
}

int pooling_read_texts(struct pooling *p, const struct checkpoint *ck,
                       struct qwick_err *e)
{
    struct pooling_file f;
    int rc =
        pooling_open_json(&f, ck, NULL, "config_sentence_transformers.json", e);
    p->doc = f.doc;
    if (!rc && f.s.v)
        rc = read_prompts(p, &f.s, e);
    if (rc || read_transformer(p, ck, e) || read_config_dims(p, ck, e))
        return -1;
    return p->n_dims ? 0 : read_card_dims(p, ck, e);
}
