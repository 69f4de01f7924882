/* Checksums that stores of models record. The Hugging Face cache and Ollama
 * name each file by its checksum, in a directory "blobs":
 *
 *   64 digits          SHA-256
 *   40 digits          SHA-1 of "blob SIZE", a NUL and the file, as git does
 *   sha256-64 digits   SHA-256
 *
 * Files in other places have none. */
#ifndef FILE_BLOB_SUM_H
#define FILE_BLOB_SUM_H

#include <stdbool.h>

#include "base/err.h"

struct blob_sum {
    bool known;
    bool is_git;  /* SHA-1 as git computes it, else SHA-256 */
    char hex[65]; /* the recorded checksum, in lower case */
};

/* Find the checksum that is recorded for the file at path, through symbolic
 * links. Sets known to false if there is none, also when the file is
 * missing. */
void blob_sum_find(struct blob_sum *out, const char *path);

/* Called with the bytes done so far of a file. A result that is not 0 stops the
 * hash. */
typedef int (*blob_sum_fn)(void *ctx, size_t done);

/* Hash the file at path as sum->is_git says and write the digits to hex. fn is
 * called about once per MiB. Fails with QWICK_ERR_INTERRUPTED when fn stops it,
 * otherwise as map_open does. */
int blob_sum_compute(const struct blob_sum *sum, const char *path, char hex[65],
                     blob_sum_fn fn, void *ctx, struct qwick_err *e);

#endif
