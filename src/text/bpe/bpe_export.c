/* A tokenizer as the arrays that bpe_open_parts takes. */
#include "text/bpe/bpe_int.h"

/* ---- spellings ------------------------------------------------------------
 */

/* With byte_fallback: blanks are U+2581, and a byte is <0xHH>. */
static int put_characters(const struct bpe_tok *t, const char *p,
                          struct buf *out)
{
    int rc = 0;
    if (t->flags & BPE_FALLBACK)
        return buf_printf(out, "<0x%02X>", (unsigned)(unsigned char)*p);
    for (size_t i = 0; i < t->len && !rc; i++)
        rc = p[i] == ' ' ? buf_puts(out, "\xE2\x96\x81") : buf_putc(out, p[i]);
    return rc;
}

/* The token of the vocabulary as the file spells it. */
static int put_spelling(const struct bpe *b, const struct bpe_tok *t,
                        struct buf *out)
{
    const char *p = b->arena + t->off;
    if (t->flags & (BPE_SPELLED | BPE_RAW))
        return buf_append(out, p, t->len);
    if (b->byte_fallback)
        return put_characters(t, p, out);
    return alphabet_spell(&b->alphabet, p, t->len, out);
}

static const struct bpe_added *find_added(const struct bpe *b, size_t id)
{
    for (size_t i = 0; i < b->n_added; i++)
        if (b->added[i].id == id)
            return &b->added[i];
    return NULL;
}

bool bpe_is_byte(const struct bpe *b, uint32_t id)
{
    const struct bpe_tok *t = &b->tok[id];
    if (!b->byte_fallback || !(t->flags & BPE_SPELLED))
        return t->flags & BPE_FALLBACK;
    int byte = bpe_fallback_byte(b->arena + t->off, t->len);
    return byte >= 0 && b->byte_id[byte] == id;
}

/* Whether merges make the added text, which then is in the vocabulary, too: it
 * has U+2581, for which blanks stand in a text. */
static bool is_made(const struct bpe *b, const struct bpe_tok *t,
                    const struct bpe_added *a)
{
    return b->byte_fallback && t->flags & BPE_MODEL &&
           bpe_piece_has_blank(a->text, a->n_text);
}

int bpe_export_token(const struct bpe *b, size_t id, struct buf *out,
                     enum bpe_kind *kind)
{
    const struct bpe_tok *t = id < b->size ? &b->tok[id] : NULL;
    const struct bpe_added *a =
        t && t->flags & BPE_ADDED ? find_added(b, id) : NULL;
    *kind = BPE_KIND_UNUSED;
    if (!t || !(t->flags & BPE_HAS))
        return 0;
    if (a && t->flags & BPE_SPECIAL)
        *kind = BPE_KIND_CONTROL;
    else if (a && !is_made(b, t, a))
        *kind = BPE_KIND_ADDED;
    else
        *kind = bpe_is_byte(b, (uint32_t)id) ? BPE_KIND_BYTE : BPE_KIND_NORMAL;
    return a ? buf_append(out, a->text, a->n_text) : put_spelling(b, t, out);
}

/* ---- merges ---------------------------------------------------------------
 */

size_t bpe_export_merges(const struct bpe *b)
{
    return b->n_merges;
}

int bpe_export_merge(const struct bpe *b, size_t rank, struct buf *out)
{
    uint64_t m = b->merges[rank];
    const struct bpe_tok *left = &b->tok[m >> 2 * BPE_ID_BITS];
    const struct bpe_tok *right = &b->tok[m >> BPE_ID_BITS & BPE_MAX_ID];
    return put_spelling(b, left, out) || buf_putc(out, ' ') ||
                   put_spelling(b, right, out)
               ? -1
               : 0;
}

/* ---- the rest -------------------------------------------------------------
 */

void bpe_export_splitting(const struct bpe *b, struct bpe_parts *parts)
{
    parts->split = b->split;
    parts->nfc = b->nfc;
    parts->ignore_merges = b->ignore_merges;
}

bool bpe_export_pieces(const struct bpe *b)
{
    return b->byte_fallback;
}

const char *bpe_export_loses(const struct bpe *b)
{
    bool strips = false;
    for (size_t i = 0; i < b->n_added; i++)
        strips = strips || b->added[i].lstrip || b->added[i].rstrip;
    return b->sets[BPE_NORMALIZED].n > 0
               ? "\"normalized\" of added tokens is left out, a GGUF file has "
                 "no "
                 "key for it: they are searched in the text as it is"
           : strips ? "\"lstrip\" and \"rstrip\" of added tokens are left out, "
                      "a GGUF "
                      "file has no keys for them: white space beside them stays"
           : b->prefix > BPE_PREFIX_EACH
               ? "\"prepend_scheme\" is left out, a GGUF file has no key for "
                 "it: "
                 "a blank goes before each text between added tokens"
               : NULL;
}

bool bpe_export_prefix(const struct bpe *b)
{
    return b->prefix != BPE_PREFIX_NONE;
}

const char *bpe_export_lacks(const struct bpe *b)
{
    return b->model->lacks ? b->model->lacks
           : b->no_frame   ? "a post_processor that does more than add ids"
           : b->n_before > 1 || b->n_after > 1
               ? "a post_processor that adds several ids on one side"
               : NULL;
}
