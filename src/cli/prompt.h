/* The sources of prompts: files, standard input, the argument. */
#ifndef CLI_PROMPT_H
#define CLI_PROMPT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/err.h"
#include "cli/opt.h"

/* Maximum bytes of a prompt file or of standard input. */
#define PROMPT_MAX ((size_t)1 << 30)

/* Return whether standard input can have text: it is open for reading, and is
 * neither a terminal nor a directory. */
bool stdin_is_source(void);

/* Read a file, or standard input if path is "-", to its end. *data is
 * malloc'ed. Returns 0, or -1 with *e set (QWICK_ERR_RUNTIME). After two
 * seconds without input a hint says that the program waits for standard
 * input. */
int prompt_read(const char *path, char **data, size_t *n, struct qwick_err *e);

/* Compose a prompt: first the files in order, then standard input unless
 * no_stdin is set or a file "-" has read it, then text (NULL: none). One final
 * newline of each file and of standard input is dropped. Empty parts are left
 * out, and parts are joined by a blank line. Invalid UTF-8 becomes U+FFFD. With
 * names, a line "NAME:" precedes the text of each file that is not empty. out
 * stays empty if all sources are empty. Returns 0, or -1 with *e set. */
int prompt_compose(struct buf *out, const struct opt_texts *files, bool names,
                   const char *text, bool no_stdin, struct qwick_err *e);

/* Append the unchanged bytes of one source: text if it is not NULL, or else the
 * files in order, or else standard input. *found is set to whether one of these
 * sources exists. Returns 0, or -1 with *e set. */
int prompt_bytes(struct buf *out, const struct opt_texts *files,
                 const char *text, bool *found, struct qwick_err *e);

/* Return whether standard input has at least one byte. Consumes this byte. */
bool stdin_has_data(void);

/* Read decimal ids separated by commas or blanks, as in "1,2 3". *ids is
 * malloc'ed. where is for messages. A string without ids is an error unless
 * none_ok. Returns 0, or -1 with *e set (QWICK_ERR_USAGE). */
int prompt_ids(const char *where, const char *s, size_t n, bool none_ok,
               int32_t **ids, size_t *n_ids, struct qwick_err *e);

/* ---- --overflow ---- */

enum overflow { OVERFLOW_ERROR, OVERFLOW_HEAD, OVERFLOW_TAIL, OVERFLOW_MIDDLE };

enum overflow overflow_parse(const char *name);

/* Keep `keep` of ids[0..n), from the head, the tail, or both ends. Returns the
 * new number of ids. */
size_t overflow_cut(enum overflow how, int32_t *ids, size_t n, size_t keep);

/* Return the number of ids at which tokenizing may stop, because a longer
 * prompt certainly does not fit a context of limit tokens. Up to this number,
 * error messages give the exact number of ids. */
size_t prompt_enough(size_t limit);

/* Set *e to QWICK_ERR_CONTEXT with the number of ids (or the number at which
 * tokenizing stopped) and the hint. Returns -1. */
int prompt_too_long(size_t n_ids, size_t limit, const char *hint,
                    struct qwick_err *e);

#endif
