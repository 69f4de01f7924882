/* Where prompts come from: files, standard input, the argument. */
#ifndef CLI_PROMPT_H
#define CLI_PROMPT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/err.h"
#include "cli/opt.h"

/* Most bytes that a prompt file or standard input may have. */
#define PROMPT_MAX ((size_t)1 << 30)

/* Whether descriptor 0 may hold text for us: open for reading, no terminal, no
 * directory. */
bool stdin_is_source(void);

/* Read a file or ("-") standard input to its end. Code RUNTIME. After two
 * seconds without any input, a person at the terminal is told what is waited
 * for. */
int prompt_read(const char *path, char **data, size_t *n, struct qwick_err *e);

/* Compose a prompt: files in order, then standard input unless a file "-" took
 * it or no_stdin, then text (NULL: none). One final newline of each file and of
 * standard input is dropped, empty parts are left out, parts are joined by a
 * blank line, invalid UTF-8 becomes U+FFFD. With names, a line "NAME:" stands
 * above the text of each file that is not empty. out stays empty when every
 * source was. */
int prompt_compose(struct buf *out, const struct opt_texts *files, bool names,
                   const char *text, bool no_stdin, struct qwick_err *e);

/* Bytes from exactly one kind of source, as they are: text, else the files one
 * after the other, else standard input. *found is false when there was none. */
int prompt_bytes(struct buf *out, const struct opt_texts *files,
                 const char *text, bool *found, struct qwick_err *e);

/* Whether standard input has at least one byte (reads it away). */
bool stdin_has_data(void);

/* "1,2 3": decimals separated by commas and blanks. where is for messages, code
 * USAGE. At least one id unless none_ok. */
int prompt_ids(const char *where, const char *s, size_t n, bool none_ok,
               int32_t **ids, size_t *n_ids, struct qwick_err *e);

/* ---- --overflow ---- */

enum overflow { OVERFLOW_ERROR, OVERFLOW_HEAD, OVERFLOW_TAIL, OVERFLOW_MIDDLE };

enum overflow overflow_parse(const char *name);

/* Keep `keep` of ids[0..n): the head, the tail, or both ends. Returns the new
 * count. */
size_t overflow_cut(enum overflow how, int32_t *ids, size_t n, size_t keep);

/* More ids than these say that a prompt is far too long for a context of limit
 * tokens; counting on would only cost time. Up to them errors are exact. */
size_t prompt_enough(size_t limit);

/* QWICK_ERR_CONTEXT with the number of ids, or with the one at which counting
 * stopped. hint: put behind it. */
int prompt_too_long(size_t n_ids, size_t limit, const char *hint,
                    struct qwick_err *e);

#endif
