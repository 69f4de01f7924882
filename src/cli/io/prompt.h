/* The sources of prompts: files, standard input, the argument. */
#ifndef CLI_PROMPT_H
#define CLI_PROMPT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/buf.h"
#include "base/err.h"
#include "cli/io/strings.h"

/* Maximum bytes of a prompt file or of standard input. */
#define PROMPT_MAX ((size_t)1 << 30)

/* Return whether standard input can have text: it is open for reading, and is
 * neither a terminal nor a directory. */
bool stdin_is_source(void);

/* Return the offset of standard input if it is a regular file, else 0. */
off_t stdin_offset(void);

/* Warn that standard input gave the rest of its file, from offset `at` on,
 * which stdin_offset returned before the first read. 0: no warning. The hint
 * follows the message. */
void stdin_warn_rest(off_t at, const char *hint);

/* Let all waits for standard input end when `seconds` have passed since
 * start_ms, a time of clock_ms. 0 seconds: no limit. */
void prompt_timeout(double seconds, double start_ms);

/* Wait until standard input has bytes or ends. If `first` is set, no byte has
 * come yet, and the message `hint` is printed after two seconds (without a
 * terminal: five). Returns what signals_poll returns; 0 means that the time of
 * prompt_timeout is over. */
int prompt_poll(bool first, const char *hint);

/* Return the name of a path for messages: "-" becomes "standard input". */
const char *prompt_name(const char *path);

/* Read a file, or standard input if path is "-", to its end. *data is
 * malloc'ed. Returns 0, or -1 with *e set (QWICK_ERR_RUNTIME). A caught signal
 * ends the wait for standard input. Warns if standard input is the rest of a
 * file. */
int prompt_read(const char *path, char **data, size_t *n, struct qwick_err *e);

/* ---- faults of texts ---- */

/* Bytes that no text should have. All zeros: none. */
struct prompt_faults {
    uint64_t n_bad; /* not UTF-8 */
    uint64_t n_nul;
};

/* Count the faults of s[0..n). */
void prompt_count_faults(struct prompt_faults *f, const char *s, size_t n);

/* Append s[0..n) with U+FFFD for bytes that are not UTF-8, and count its
 * faults. Returns 0, or -1 when out of memory. */
int prompt_clean(struct buf *out, struct prompt_faults *f, const char *s,
                 size_t n);

/* Print one warning with the numbers of the faults, if there are any. `what`
 * is the text. */
void prompt_warn_faults(const struct prompt_faults *f, const char *what);

/* ---- texts ---- */

/* Drop a byte order mark, and the CR of each CR LF. Returns the new length. */
size_t prompt_unix_text(char *s, size_t n);

/* Return the length of s[0..n) without one final newline. */
size_t prompt_drop_newline(const char *s, size_t n);

/* Warn that a file of -f is empty. */
void prompt_warn_empty(const char *path);

/* How the sources of a prompt are read. */
struct prompt_sources {
    const struct strings *files;
    const char *text; /* the argument; NULL: none */
    bool names;       /* put a line "NAME:" above each file that is not empty */
    bool no_stdin;
    bool exact;  /* keep byte order marks and CR LF, because no template is
                    applied */
    bool others; /* there are sources besides these */
    bool refuse_empty; /* an empty pipe or file is an error, not a warning */
};

/* Compose a prompt: first the files in order, then standard input unless
 * no_stdin is set or a file "-" has read it, then the argument. One final
 * newline of each is dropped. Empty parts are left out, and parts are joined by
 * a blank line. Invalid UTF-8 becomes U+FFFD and is counted in *f. Warns if a
 * pipe or file is empty beside another source, and if standard input is the
 * rest of a file. out stays empty if all sources are empty. Returns 0, or -1
 * with *e set. */
int prompt_compose(struct buf *out, const struct prompt_sources *s,
                   struct prompt_faults *f, struct qwick_err *e);

/* Append the text of --system, or if text is NULL, of --system-file: the file
 * `path` without a final newline. exact: as in prompt_sources. Both NULL:
 * out stays without memory, which differs from an empty text. Returns 0, or -1
 * with *e set. */
int prompt_system(struct buf *out, const char *text, const char *path,
                  bool exact, struct prompt_faults *f, struct qwick_err *e);

/* Append the unchanged bytes of one source: text if it is not NULL, or else the
 * files in order, or else standard input. *found is set to whether one of these
 * sources exists; standard input does not if it is empty. Warns if one of
 * several files is empty. Returns 0, or -1 with *e set. */
int prompt_bytes(struct buf *out, const struct strings *files,
                 const char *text, bool *found, struct qwick_err *e);

/* Return whether standard input has at least one byte. Consumes this byte. */
bool stdin_has_data(void);

/* Read decimal ids separated by commas or blanks, as in "1,2 3". *ids is
 * malloc'ed. where is for messages. A string without ids is an error unless
 * none_ok. Returns 0, or -1 with *e set (QWICK_ERR_USAGE). */
int prompt_ids(const char *where, const char *s, size_t n, bool none_ok,
               int32_t **ids, size_t *n_ids, struct qwick_err *e);

/* Check the ids of --prompt-ids: each is below vocab_size. Returns 0, or -1
 * with *e set. */
int prompt_check_ids(const int32_t *ids, size_t n, size_t vocab_size,
                     struct qwick_err *e);

/* ---- --overflow ---- */

enum overflow { OVERFLOW_ERROR, OVERFLOW_HEAD, OVERFLOW_TAIL, OVERFLOW_MIDDLE };

enum overflow overflow_parse(const char *name);

/* Return how many of `keep` tokens are kept at the head. */
size_t overflow_head(enum overflow how, size_t keep);

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
