/* Tokenizers as Hugging Face's `tokenizers` has them: BPE, Unigram
 * (bpe_unigram.h) and WordPiece (bpe_wordpiece.h). The prefix bpe_ is older
 * than the other two. They are read from tokenizer.json and, for added tokens,
 * from the files beside it; from vocab.txt, tekken.json, or the arrays of a
 * GGUF file.
 *
 * Text is cut at added tokens. With BPE, the remaining pieces become parts,
 * depending on the kind of the tokenizer:
 *
 *   byte-level     A piece is NFC-normalised, if the file says so, and split by
 *                  one of the patterns in split.h. A part starts as bytes.
 *   byte_fallback  (Gemma, Llama 2) A piece is one part, in which U+2581
 *                  replaces blanks, perhaps with one more at its start. It
 *                  starts as characters. A character that is not in the
 *                  vocabulary starts as the tokens of its bytes.
 *
 * Mistral's tekken.json is read as a byte-level tokenizer (bpe_tekken.c).
 *
 * Each part is merged by rank (Sennrich et al. 2016); or, in GGUF files with
 * scores, as SentencePiece does, by the scores of the merged tokens. A
 * tokenizer.json that asks for anything else is refused, and the error names
 * it.
 *
 * Added tokens are searched in the text as it is. Those that are "normalized"
 * are searched afterwards, in the normal form of what is left. */
#ifndef TEXT_BPE_H
#define TEXT_BPE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/err.h"
#include "text/split.h"

/* A tokenizer. Functions that take it without const change it: encoding keeps a
 * cache of words, and the first bpe_token of an id turns its spelling into
 * bytes. Once the tokenizer is open, threads may call bpe_encode,
 * bpe_encode_spans, bpe_decode, bpe_token and the functions on single ids at
 * the same time. One of them has the cache of words; the others encode without
 * it. */
struct bpe;
struct json_value;

/* Create a tokenizer from a whole tokenizer.json, text[0..n). name is for
 * messages. Keeps no reference to text. */
int bpe_open(struct bpe **out, const char *name, const char *text, size_t n,
             struct qwick_err *e);

/* The files beside tokenizer.json that add tokens. root: the object in the
 * file, or NULL for a file that is not there or does not count. */
struct bpe_beside {
    struct bpe_beside_file {
        const char *path; /* for messages */
        const struct json_value *root;
    } config, map, added; /* tokenizer_config.json, special_tokens_map.json,
                             added_tokens.json */
};

/* Do the same, and add the tokens of other files as transformers does: those of
 * added_tokens_decoder, those of added_tokens.json, and the special tokens that
 * have names. A token that tokenizer.json lacks must have the next free id, and
 * gets it if no id is given. Keeps no reference to beside. */
int bpe_open_beside(struct bpe **out, const char *name, const char *text,
                    size_t n, const struct bpe_beside *beside,
                    struct qwick_err *e);
/* Create a WordPiece tokenizer from a whole vocab.txt, the settings in the
 * other files, and the defaults of transformers' BertTokenizer. */
int bpe_open_vocab(struct bpe **out, const char *name, const char *text,
                   size_t n, const struct bpe_beside *beside,
                   struct qwick_err *e);
/* Create a tokenizer from a whole tekken.json. Keeps no reference to text. */
int bpe_open_tekken(struct bpe **out, const char *name, const char *text,
                    size_t n, struct qwick_err *e);
/* Return how many tokens the other files add or make special. */
size_t bpe_n_beside(const struct bpe *b);
void bpe_close(struct bpe *b);

/* ---- from the parts that other containers than tokenizer.json hold ---- */

/* Strings as GGUF stores them: one after another, each preceded by its length
 * in 8 bytes, little-endian. The lengths have been checked. */
struct bpe_strings {
    const unsigned char *p;
    size_t n;       /* strings */
    size_t n_bytes; /* of all strings and their lengths */
};

enum bpe_kind {
    BPE_KIND_NORMAL,  /* in the vocabulary, spelled with GPT-2's characters */
    BPE_KIND_ADDED,   /* text that is recognised as a whole */
    BPE_KIND_CONTROL, /* like ADDED, and special */
    BPE_KIND_UNUSED,  /* an id without a token */
    BPE_KIND_BYTE     /* a byte, spelled <0xHH>; only with scores */
};

/* Parts of Unigram. */
struct bpe_unigram_parts {
    const char *map_name; /* of the next array, for messages */
    const void *map;      /* [n_map] the normalizer's charsmap (charsmap.h) */
    size_t n_map;         /* 0: there is none */
    bool squeeze;         /* drop white space at the ends of a text, and make
                             one blank of several */
    int32_t unk;          /* the token of unknown characters */
};

/* Parts of WordPiece. Tokens that begin a word are spelled with U+2581
 * before them, others without it. Texts are normalised as for BERT: cleaned,
 * in lower case, without accents. */
struct bpe_wordpiece_parts {
    int32_t unk; /* the token of unknown words */
};

struct bpe_parts {
    const char *name; /* of the file, for messages */
    /* names of the two arrays, for messages */
    const char *tokens_name, *merges_name;
    struct bpe_strings tokens;  /* by id */
    const unsigned char *kinds; /* [tokens.n] enum bpe_kind; NULL: all normal */
    struct bpe_strings merges;  /* "LEFT RIGHT", by rank */
    /* [tokens.n] If set, there are no merges: the tokenizer is SentencePiece's,
       with U+2581 for blanks, and needs a token for each byte. The scores of
       normal tokens must be finite. Added tokens are also in the vocabulary,
       and are recognised first; their scores do not count. Two tokens with the
       same spelling are an error. merges_name is the name of this array. */
    const float *scores;
    /* With scores: the model is Unigram (bpe_unigram.h) instead. Tokens of bytes
       may be missing, but only all of them. */
    const struct bpe_unigram_parts *unigram;
    /* The model is WordPiece, and there are neither merges nor scores. */
    const struct bpe_wordpiece_parts *wordpiece;
    bool space_prefix;     /* with scores: put a blank before a text, and
                              after each added token in it */
    /* With merges: the tokenizer is Gemma 4's. Tokens are spelled with U+2581
       for blanks, a part starts as characters, and runs of newlines are parts
       of their own. It needs a token for each byte. */
    bool characters;
    bool rstrip; /* added tokens take the white space after them, except
                    <unk>, <s> and <|endoftext|> (Phi-3) */
    enum split split;      /* of byte-level BPE */
    bool nfc;              /* normalise text */
    bool ignore_merges;    /* a part that is a token is not merged */
    int32_t before, after; /* ids that frame a text, or -1: see
                              bpe_get_frame */
    /* A pair of texts has the frame `before`, first text, `after` n_between
       times, second text, `after`. 0: there is none. At most 2. */
    size_t n_between;
    bool pair_types; /* the second text and its `after` have type 1 */
};

/* Create a tokenizer of the kind described at the top. Keeps no reference to
 * parts. */
int bpe_open_parts(struct bpe **out, const struct bpe_parts *parts,
                   struct qwick_err *e);

/* The opposite direction: get the parts from which bpe_open_parts makes an
 * equal tokenizer. */

/* Return what the tokenizer has that parts cannot say, or NULL. */
const char *bpe_export_lacks(const struct bpe *b);
/* Return whether the tokenizer has byte_fallback, so that parts need scores. */
bool bpe_export_pieces(const struct bpe *b);
/* Make the scores [bpe_size] that merge as this tokenizer's merges do,
 * malloc'ed. Only tokens of kind NORMAL have scores, others have 0.
 * QWICK_ERR_MODEL, with the tokens and the name of the file, if no scores do
 * that. */
int bpe_export_scores(const struct bpe *b, const char *name, float **out,
                      struct qwick_err *e);
/* Return a warning about what parts cannot say, though the tokenizer is
 * exported; or NULL. */
const char *bpe_export_loses(const struct bpe *b);
/* Return space_prefix. */
bool bpe_export_prefix(const struct bpe *b);
/* Set split, nfc and ignore_merges of *parts. */
void bpe_export_splitting(const struct bpe *b, struct bpe_parts *parts);
/* Set *all to whether merging makes each token of the vocabulary. If so,
 * ignore_merges changes no result. For byte-level BPE. */
int bpe_export_merges_make_all(struct bpe *b, bool *all, struct qwick_err *e);
/* Append the spelling of an id; nothing if *kind becomes BPE_KIND_UNUSED. Any
 * id is allowed. -1: out of memory. */
int bpe_export_token(const struct bpe *b, size_t id, struct buf *out,
                     enum bpe_kind *kind);
/* Return the number of merges, and append the merge of a rank below it. */
size_t bpe_export_merges(const struct bpe *b);
int bpe_export_merge(const struct bpe *b, size_t rank, struct buf *out);

/* Return the largest id plus one. */
size_t bpe_size(const struct bpe *b);

/* Return the bytes of an id, borrowed. NULL with *n = 0 if the tokenizer lacks
 * the id. */
const char *bpe_token(struct bpe *b, int32_t id, size_t *n);
bool bpe_has(const struct bpe *b, int32_t id);
bool bpe_is_added(const struct bpe *b, int32_t id);
bool bpe_is_special(const struct bpe *b, int32_t id);
/* How a token begins. */
struct bpe_start {
    uint16_t n; /* at least its bytes; 0: it has none */
    unsigned char byte; /* printable ASCII, or 0: the first byte is not, or takes
                           longer to find (bpe_first_bytes) */
    bool added;
};

/* Find how the tokens of ids 0..n) begin, much faster than bpe_token does. */
void bpe_find_starts(struct bpe *b, struct bpe_start *out, size_t n);

/* Find the first bytes of the tokens ids[0..n), which have text. */
void bpe_first_bytes(struct bpe *b, const int32_t *ids, size_t n,
                    unsigned char *out);

/* Return the id of the added token with this content, or -1. */
int32_t bpe_added_id(struct bpe *b, const char *content);

/* Return whether a text that follows the token `before` goes on with its text:
 * no blank is put before it. After an added token a new text begins, but one
 * where only the start of a whole text gets a blank. */
bool bpe_goes_on(const struct bpe *b, int32_t before);

/* Drop the ids from n on, which the model has no rows for: their added tokens
 * are plain text from now on. Returns 0; or -1, with nothing changed, if one of
 * these ids is not just an added token. */
int bpe_drop_from(struct bpe *b, size_t n);

/* The state of decoding a text, token by token; all zeros at its start. With
 * byte_fallback, the tokens of single bytes are held back until another token
 * follows. If all these bytes together are valid UTF-8, they are text; else
 * each of them becomes U+FFFD (ByteFallback in `tokenizers`). A tokenizer that
 * puts a blank before a text drops one at the start of a decoded text. */
struct bpe_decoder {
    struct buf run; /* held back */
    bool goes_on;   /* the text has begun: blanks stay */
    bool strip;     /* drop a blank of the run, if that begins the text */
};

/* Decode one id and append the text to *out. An id without a token has no text.
 * Returns 0, or -1 when out of memory. */
int bpe_decode(struct bpe *b, struct bpe_decoder *d, int32_t id,
               struct buf *out);
/* Append what is held back, at the end of a text or before another kind of
 * text. To decode another text, clear goes_on. */
int bpe_decode_end(struct bpe_decoder *d, struct buf *out);
void bpe_decoder_free(struct bpe_decoder *d);

/* A part [begin, end) of the text in bytes. */
struct bpe_span {
    size_t begin, end;
};

/* Encode text[0..n) and append the ids to *ids, a malloc'ed array that grows;
 * *n_ids is its length before and after. Added tokens are recognised only if
 * they lie entirely inside one of the spans, which ascend and do not overlap.
 * Bytes that are not valid UTF-8 become the tokens of these bytes. goes_on: the
 * text goes on after another, so no blank is put before it. enough: stop
 * early once *ids holds more ids than this, for callers that only need to know
 * that; 0: encode everything. QWICK_ERR_USAGE if it takes longer than the
 * thread may (text/deadline.h). */
int bpe_encode_spans(struct bpe *b, const char *text, size_t n,
                     const struct bpe_span *spans, size_t n_spans, bool goes_on,
                     size_t enough, int32_t **ids, size_t *n_ids,
                     struct qwick_err *e);

/* Encode text[0..n) as bpe_encode_spans does. Added tokens are recognised
 * everywhere if special, otherwise nowhere. */
int bpe_encode(struct bpe *b, const char *text, size_t n, bool special,
               int32_t **ids, size_t *n_ids, struct qwick_err *e);

/* A frame: the ids that the file's post_processor puts around a single text
 * with add_special_tokens=True, borrowed. Encoding never adds them. */
struct bpe_frame {
    const int32_t *before, *after;
    size_t n_before, n_after;
};

/* Get the frame. QWICK_ERR_MODEL, with the reason, if the post_processor does
 * more than add ids. Encoding also works with such a file. */
int bpe_get_frame(const struct bpe *b, struct bpe_frame *out,
                  struct qwick_err *e);

/* The ids that the file's post_processor puts around a pair of texts, borrowed:
 * before, the first text, between, the second text, after. */
struct bpe_pair {
    const int32_t *before, *between, *after;
    size_t n_before, n_between, n_after;
    size_t n_between_type0; /* tokens of `between` with the type of the first
                               text */
    bool types; /* the second text and `after` have type 1; otherwise all have
                   type 0 */
};

/* Get the frame of a pair. QWICK_ERR_MODEL, with the reason, if the file has
 * none. */
int bpe_get_pair(const struct bpe *b, struct bpe_pair *out,
                 struct qwick_err *e);

#endif
