/* What becomes of a body that serve reads. */
#ifndef TEST_BODY_RECORD_H
#define TEST_BODY_RECORD_H

#include <string.h>

#include "cli/answer/body_members.h"
#include "test.h"

/* Read a body. Returns the record, or "MEMBER|MESSAGE"; free it with
 * buf_free. */
static inline struct buf body_record(const char *text, struct body_reader *x,
                                     int (*read)(struct body_reader *x))
{
    static struct request_context context;
    struct json_doc *doc;
    struct qwick_err e;
    struct buf out = {0};
    struct json_writer w = json_writer(&out);
    context.n_unknown = SIZE_MAX; /* no warnings here */
    *x = (struct body_reader){.warn = &context};
    assert_ok(json_parse(&doc, "body", text, strlen(text), QWICK_ERR_USAGE, &e),
              &e);
    jw_object(&w, NULL);
    body_begin(x, json_root(doc), &w, &e);
    if (read(x)) {
        out.len = 0;
        assert_int_equal(buf_printf(&out, "%s|%s", x->fault, e.msg), 0);
    } else {
        jw_end_object(&w);
        assert_int_equal(jw_status(&w), 0);
    }
    json_free(doc);
    return out;
}

#endif
