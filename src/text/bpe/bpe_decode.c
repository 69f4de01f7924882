/* Decoding tokens one after another. */
#include "base/buf.h"
#include "base/utf8.h"
#include "text/bpe/bpe.h"
#include "text/bpe/bpe_int.h"

/* Append text, without the blank at the start of a text if `strip`. */
static int append_text(struct bpe_decoder *d, bool strip, const char *p,
                       size_t n, struct buf *out)
{
    size_t dropped = strip && !d->goes_on && n > 0 && *p == ' ';
    d->goes_on = d->goes_on || n > 0;
    return buf_append(out, p + dropped, n - dropped);
}

int bpe_decode_piece(const struct bpe *b, struct bpe_decoder *d, int32_t id,
                     const char *p, size_t n, struct buf *out)
{
    d->strip = b->strip;
    if (b->tok[id].flags & BPE_FALLBACK)
        return buf_append(&d->run, p, n);
    return bpe_decode_end(d, out) || append_text(d, b->strip, p, n, out) ? -1
                                                                         : 0;
}

int bpe_decode(struct bpe *b, struct bpe_decoder *d, int32_t id,
               struct buf *out)
{
    size_t n;
    const char *p = bpe_token(b, id, &n);
    return p ? b->model->decode(b, d, id, p, n, out) : 0;
}

int bpe_decode_end(struct bpe_decoder *d, struct buf *out)
{
    static const char replacement[] = "\xEF\xBF\xBD";
    size_t n = d->run.len;
    d->run.len = 0;
    if (n == 0)
        return 0;
    if (utf8_valid(d->run.data, n) == n)
        return append_text(d, d->strip, d->run.data, n, out);
    d->goes_on = true;
    for (size_t i = 0; i < n; i++)
        if (buf_puts(out, replacement))
            return -1;
    return 0;
}

void bpe_decoder_free(struct bpe_decoder *d)
{
    buf_free(&d->run);
}
