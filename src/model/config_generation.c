/* generation_config.json: the steps of transformers' GenerationMixin
 * (_get_logits_processor) that we have, and a table of those that we lack. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/array.h"
#include "file/json.h"
#include "model/config.h"
#include "model/section.h"

/* Fields that change answers. null, false, an empty list and an empty object
 * have no effect in any of them. */
static const struct unsupported {
    const char *name;
    double off; /* the number without effect; NAN: none */
    bool draw;  /* no effect unless tokens are drawn at random */
} unsupported[] = {
    {"no_repeat_ngram_size", 0, false},
    {"encoder_no_repeat_ngram_size", 0, false},
    {"encoder_repetition_penalty", 1, false},
    {"exponential_decay_length_penalty", NAN, false},
    {"sequence_bias", NAN, false},
    {"guidance_scale", 1, false},
    {"forced_bos_token_id", NAN, false},
    {"forced_eos_token_id", NAN, false},
    {"forced_decoder_ids", NAN, false},
    {"constraints", NAN, false},
    {"force_words_ids", NAN, false},
    {"watermarking_config", NAN, false},
    {"stop_strings", NAN, false},
    {"token_healing", NAN, false},
    {"num_return_sequences", 1, false},
    {"num_beams", 1, false},
    {"num_beam_groups", 1, false},
    {"diversity_penalty", 0, false},
    {"penalty_alpha", 0, false},
    {"dola_layers", NAN, false},
    {"typical_p", 1, true},
    {"epsilon_cutoff", 0, true},
    {"eta_cutoff", 0, true},
    {"top_h", NAN, true},
};
enum { N_UNSUPPORTED = sizeof unsupported / sizeof *unsupported };

static bool is_off(const struct json_value *v, double off)
{
    double d;
    return !v || v->type == JSON_NULL ||
           (v->type == JSON_BOOL && !v->boolean) ||
           ((v->type == JSON_ARRAY || v->type == JSON_OBJECT) && !v->len) ||
           (!json_double(v, &d) && d == off);
}

static void note_unsupported(char *out, size_t n, const struct section *s,
                             const char *name)
{
    char value[64];
    if (*out)
        return;
    section_describe(json_get(s->v, name), value, sizeof value);
    snprintf(out, n, "%s: %s is not supported", name, value);
}

static void find_unsupported(struct config *c, const struct section *s)
{
    for (size_t i = 0; i < N_UNSUPPORTED; i++) {
        const struct unsupported *u = &unsupported[i];
        if (!is_off(json_get(s->v, u->name), u->off))
            note_unsupported(u->draw ? c->unsupported_draw : c->unsupported,
                             sizeof c->unsupported, s, u->name);
    }
}

/* ---- ids that are not drawn ---- */

static int add_id(struct config *c, const struct section *s, const char *name,
                  const struct json_value *v, size_t *n, size_t *cap,
                  struct qwick_err *e)
{
    int64_t id;
    if (json_int(v, INT32_MIN, INT32_MAX, &id))
        return section_bad(s, name, "token ids", e);
    if (ARRAY_RESERVE(c->suppress, *cap, c->n_suppress + c->n_begin + 1, e))
        return -1;
    /* transformers ignores ids that the model does not have */
    if (id >= 0 && (size_t)id < c->vocab_size) {
        c->suppress[c->n_suppress + c->n_begin] = (int32_t)id;
        ++*n;
    }
    return 0;
}

/* Read a list of ids, or an id. */
static int read_ids(struct config *c, const struct section *s, const char *name,
                    size_t *n, size_t *cap, struct qwick_err *e)
{
    const struct json_value *v = json_get(s->v, name);
    if (section_absent(s, name))
        return 0;
    if (v->type != JSON_ARRAY)
        return add_id(c, s, name, v, n, cap, e);
    for (size_t i = 0; i < v->len; i++)
        if (add_id(c, s, name, &v->items[i], n, cap, e))
            return -1;
    return 0;
}

static bool is_stop(const struct config *c, int64_t id)
{
    for (size_t i = 0; i < c->n_stop_ids; i++)
        if (c->stop_ids[i] == id)
            return true;
    return false;
}

/* bad_words_ids: sequences of ids that are never completed. A stop id alone
 * does not count. */
static int read_bad_words(struct config *c, const struct section *s,
                          size_t *cap, struct qwick_err *e)
{
    static const char name[] = "bad_words_ids";
    const struct json_value *v = json_get(s->v, name);
    if (section_absent(s, name))
        return 0;
    for (size_t i = 0; json_is(v, JSON_ARRAY) && i < v->len; i++) {
        const struct json_value *word = &v->items[i];
        int64_t id;
        if (!json_is(word, JSON_ARRAY) || word->len == 0 ||
            json_int(&word->items[0], 0, INT32_MAX, &id))
            return section_bad(s, name, "lists of token ids", e);
        if (word->len > 1)
            snprintf(c->unsupported, sizeof c->unsupported,
                     "%s: a list of %zu ids is not supported (1 is)", name,
                     word->len);
        else if (!is_stop(c, id) &&
                 add_id(c, s, name, &word->items[0], &c->n_suppress, cap, e))
            return -1;
    }
    return json_is(v, JSON_ARRAY)
               ? 0
               : section_bad(s, name, "lists of token ids", e);
}

/* ---- all of it ---- */

static int read_count(const struct section *s, const char *name, size_t *out,
                      struct qwick_err *e)
{
    int64_t n = 0;
    if (!section_absent(s, name) &&
        json_int(json_get(s->v, name), 0, INT32_MAX, &n))
        return section_bad(s, name, "an integer from 0", e);
    *out = (size_t)n;
    return 0;
}

int config_read_generation(struct config *c, const struct section *s,
                           struct qwick_err *e)
{
    size_t cap = 0;
    if (config_read_stops(c, s, e) ||
        section_opt_bool(s, "do_sample", false, &c->do_sample, e) ||
        section_opt_double(s, "temperature", 1, 0, QWICK_TEMPERATURE_MAX,
                           &c->temperature, e) ||
        section_opt_double(s, "top_p", 1, 0, 1, &c->top_p, e) ||
        section_opt_double(s, "min_p", 0, 0, 1, &c->min_p, e) ||
        section_opt_double(s, "repetition_penalty", 1, QWICK_REPEAT_PENALTY_MIN,
                           QWICK_REPEAT_PENALTY_MAX, &c->repetition_penalty,
                           e) ||
        read_ids(c, s, "suppress_tokens", &c->n_suppress, &cap, e) ||
        read_bad_words(c, s, &cap, e) ||
        read_ids(c, s, "begin_suppress_tokens", &c->n_begin, &cap, e) ||
        read_count(s, "min_new_tokens", &c->min_new_tokens, e) ||
        read_count(s, "min_length", &c->min_length, e) ||
        read_count(s, "top_k", &c->top_k, e))
        return -1;
    /* transformers: 50 when not given, none when null */
    if (!json_get(s->v, "top_k"))
        c->top_k = 50;
    find_unsupported(c, s);
    return 0;
}
