#include "file/safetensors.h"

#include <stdlib.h>

#include "base/buf.h"

enum { MAX_HEADER_BYTES = 100000000 };

/* format NULL: no metadata. */
static int make_header(struct buf *out, const char *format,
                       const struct st_out_tensor *tensors, size_t n,
                       struct st_piece *pieces, const char *path,
                       struct qwick_err *e)
{
    size_t end = 0;
    int rc = buf_putc(out, '{');
    if (format)
        rc = rc || buf_puts(out, "\"__metadata__\":{\"format\":") ||
             buf_json_cstr(out, format) || buf_puts(out, n > 0 ? "}," : "}");
    for (size_t i = 0; i < n && !rc; i++) {
        const struct st_out_tensor *t = &tensors[i];
        size_t begin = end, bytes = dtype_bytes(t->dtype);
        if (t->rank > ST_MAX_RANK)
            return err_usage(e, "%s: tensor %s: more than 8 dimensions", path,
                             t->name);
        rc = buf_puts(out, i > 0 ? "," : "") || buf_json_cstr(out, t->name) ||
             buf_printf(out, ":{\"dtype\":\"%s\",\"shape\":[",
                        dtype_name(t->dtype));
        for (size_t d = 0; d < t->rank && !rc; d++) {
            if (size_mul(bytes, t->shape[d], &bytes))
                return err_usage(e, "%s: tensor %s: shape: its size overflows",
                                 path, t->name);
            rc = buf_printf(out, d > 0 ? ",%zu" : "%zu", t->shape[d]);
        }
        if (size_add(end, bytes, &end))
            return err_usage(e, "%s: tensor %s: its end overflows", path,
                             t->name);
        rc = rc || buf_printf(out, "],\"data_offsets\":[%zu,%zu]}", begin, end);
        pieces[i] = (struct st_piece){t->data, begin, bytes, 0};
    }
    rc = rc || buf_putc(out, '}');
    while (!rc && out->len % 8 != 0)
        rc = buf_putc(out, ' ');
    if (rc)
        return err_oom(e, out->len * 2);
    if (out->len > MAX_HEADER_BYTES)
        return err_usage(e, "%s: header length %zu is above the limit of %d",
                         path, out->len, MAX_HEADER_BYTES);
    return 0;
}

static int open_writer(struct st_writer **out, const char *path,
                       const char *format, const struct st_out_tensor *tensors,
                       size_t n, bool large, struct qwick_err *e)
{
    static const char room[8]; /* for the length */
    struct buf head = {0};
    struct st_piece *pieces = calloc(n ? n : 1, sizeof *pieces);
    int rc = pieces ? 0 : err_oom(e, n * sizeof *pieces);
    *out = NULL;
    if (!rc && buf_append(&head, room, sizeof room))
        rc = err_oom(e, sizeof room);
    if (!rc)
        rc = make_header(&head, format, tensors, n, pieces, path, e);
    if (!rc) {
        for (size_t i = 0; i < sizeof room; i++)
            head.data[i] = (char)((head.len - sizeof room) >> 8 * i);
        rc = st_writer_begin(out, path, head.data, head.len, pieces, n, large,
                             e);
    }
    buf_free(&head);
    free(pieces);
    return rc;
}

int st_writer_open(struct st_writer **out, const char *path,
                   const struct st_out_tensor *tensors, size_t n,
                   struct qwick_err *e)
{
    return open_writer(out, path, NULL, tensors, n, false, e);
}

int st_writer_open_large(struct st_writer **out, const char *path,
                         const char *format,
                         const struct st_out_tensor *tensors, size_t n,
                         struct qwick_err *e)
{
    return open_writer(out, path, format, tensors, n, true, e);
}
