/* The tokenizer and the chat template of a GGUF file. */
#ifndef ENGINE_OPEN_GGUF_H
#define ENGINE_OPEN_GGUF_H

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "file/json.h"

struct bpe;
struct bpe_parts;
struct config;
struct gguf;

/* Create the tokenizer that the metadata describe. *out is NULL if the file has
 * no tokens. Any kind of tokenizer other than byte-level BPE and SentencePiece's
 * BPE is an error that names the kind. */
int open_gguf_tokenizer(struct bpe **out, const struct gguf *g,
                        struct qwick_err *e);

/* Check that the kind of the tokenizer is supported, without reading tokens.
 * QWICK_ERR_MODEL if not, or if the file has no tokenizer. */
int open_gguf_check_tokenizer(const struct gguf *g, struct qwick_err *e);

/* Return tokenizer.ggml.pre, [*n], of files with the split, nfc and
 * ignore_merges of *parts; NULL if there is none. */
const char *open_gguf_pre(const struct bpe_parts *parts, size_t *n);

/* Set *text to the text of the chat template with this name (NULL: the default
 * one), borrowed; to NULL if the file has no such template. */
int open_gguf_template(const struct gguf *g, const char *name,
                       const char **text, size_t *n, struct qwick_err *e);

/* Get the special tokens that a template may ask for. keys[i] gets a name as in
 * tokenizer_config.json, and values[i] the token's text, which b owns. Returns
 * how many there are, at most OPEN_GGUF_TOKENS. */
enum { OPEN_GGUF_TOKENS = 4 };
size_t open_gguf_tokens(const struct gguf *g, struct bpe *b,
                        struct json_value keys[OPEN_GGUF_TOKENS],
                        struct json_value values[OPEN_GGUF_TOKENS]);

/* Add the control tokens that end answers of Qwen and Gemma to the stop ids of
 * c: a GGUF file has only one stop id, while generation_config.json lists
 * several.
 */
void open_gguf_stops(struct bpe *b, struct config *c);

/* Fold all metadata of the tokenizer and the template into the hash id. */
void open_gguf_hash(const struct gguf *g, uint64_t id[2]);

#endif
