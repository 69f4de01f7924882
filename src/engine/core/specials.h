/* Special tokens of a directory: tokenizer_config.json, and
 * special_tokens_map.json and added_tokens.json of older checkpoints. */
#ifndef ENGINE_SPECIALS_H
#define ENGINE_SPECIALS_H

#include <stdint.h>

#include "base/err.h"
#include "file/json.h"
#include "file/map.h"
#include "text/bpe/bpe.h"

struct checkpoint;
struct qwick_engine;

enum { SPECIALS_FILES = 3 };

struct specials {
    char paths[SPECIALS_FILES][512]; /* for messages */
    struct json_doc *docs[SPECIALS_FILES];
    struct bpe_beside beside; /* the files that count */
    struct json_value *rows;  /* keys, then values of all */
    struct json_value all;
};

/* Read the files. out->all is tokenizer_config.json, an object without members
 * if there is none. The other files count only if it has no
 * added_tokens_decoder, as in transformers: then the tokens of
 * special_tokens_map.json take the place of its tokens. Call specials_close
 * even after a failure. */
int specials_open(struct specials *out, const struct checkpoint *ck,
                  struct qwick_err *e);
void specials_close(struct specials *s);

/* Map the tokenizer's file: tokenizer.json, or if that is missing Mistral's
 * tekken.json, or BERT's vocab.txt. *name is the file's, also if there is none
 * (then *found is false). */
int specials_map_tokenizer(const struct checkpoint *ck, struct map *map,
                           const char **name, bool *found, struct qwick_err *e);

/* Create the tokenizer of tokenizer.json or vocab.txt and these files, or of
 * tekken.json alone. *out is NULL if there is none. */
int specials_open_tokenizer(const struct specials *s,
                            const struct checkpoint *ck, struct bpe **out,
                            struct qwick_err *e);

/* Find SentencePiece's own file, for a checkpoint without tokenizer.json. *name
 * is NULL if there is none. */
int specials_find_pieces(const struct checkpoint *ck, const char **name,
                         struct qwick_err *e);

/* Set what the engine takes from them: eos_token is a stop id. The token that
 * goes before a text (bos_id) is bos_token if add_bos_token is true; without
 * add_bos_token it is the one that the post-processor puts there. */
void specials_apply(struct qwick_engine *eng, const struct specials *s);

/* The id that the tokenizer's file puts before a text, or -1. */
int32_t engine_frame_bos(const struct qwick_engine *eng);

#endif
