/* Files of tensors in the temporary directory. */
#ifndef TEST_TENSORS_FILE_H
#define TEST_TENSORS_FILE_H

#include "file/safetensors.h"
#include "tempdir.h"

static inline void temp_put_tensors(const char *name,
                                    const struct st_out_tensor *t, size_t n)
{
    struct st_writer *w;
    struct qwick_err e;
    assert_ok(st_writer_open(&w, temp_path(name), t, n, &e) ||
                  st_writer_close(w, &e),
              &e);
}

#endif
