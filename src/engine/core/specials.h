/* Special tokens of a directory: tokenizer_config.json, and
 * special_tokens_map.json of older checkpoints. */
#ifndef ENGINE_SPECIALS_H
#define ENGINE_SPECIALS_H

#include <stdint.h>

#include "base/err.h"
#include "file/json.h"

struct checkpoint;
struct qwick_engine;

struct specials {
    char path[512]; /* of tokenizer_config.json, for messages */
    struct json_doc *config, *map;
    struct json_value *rows; /* keys, then values of all */
    struct json_value all;
};

/* Read both files. out->all is tokenizer_config.json, an object without members
 * if there is none. If it has no added_tokens_decoder, the tokens of
 * special_tokens_map.json take the place of its tokens, as in transformers.
 * Call specials_close even after a failure. */
int specials_open(struct specials *out, const struct checkpoint *ck,
                  struct qwick_err *e);
void specials_close(struct specials *s);

/* Set what the engine takes from them: eos_token is a stop id. The token that
 * goes before a text (bos_id) is bos_token if add_bos_token is true; without
 * add_bos_token it is the one that the post-processor puts there. */
void specials_apply(struct qwick_engine *eng, const struct specials *s);

/* The id that the tokenizer's file puts before a text, or -1. */
int32_t engine_frame_bos(const struct qwick_engine *eng);

#endif
