/* Prompts that a user keeps: -T NAME is the file prompts/NAME.txt in the
 * directory of the configuration, a prompt template with options. The template
 * may also be given as text, with --prompt-template. */
#ifndef CLI_PRESET_H
#define CLI_PRESET_H

#include "base/buf.h"
#include "cli/opt/opt.h"
#include "text/prompt_template.h"
#include "qwick.h"

/* ---- the file ---- */

/* A file: lines of options, and the text. */
struct preset {
    char *path;
    char *data;       /* holds the strings below */
    char *options;    /* lines "OPTION = VALUE"; NULL: it has none */
    size_t line;      /* number of the first of them */
    const char *text; /* [n] without its last newline */
    size_t n;
    size_t text_line; /* number of the first line of the text */
};

/* Read the file of a name; a name with a slash is the path of a file. Returns
 * 0, or -1 with *e set. If there is no such file, the message lists the names
 * that there are. */
int preset_open(struct preset **out, const char *name, struct qwick_err *e);
void preset_free(struct preset *s);

/* Split the file's data, n bytes with a NUL behind them, into its parts. A line
 * "---" ends the options, and may also begin them. Returns 0, or -1 with *e
 * set. */
int preset_split(struct preset *s, size_t n, struct qwick_err *e);

/* ---- the options of a verb ---- */

/* Check the values of --set. Returns -1 to go on, or an exit status
 * after printing a message. */
int preset_check(const struct opt_parsed *p);

/* Whether one of the options gives a template. */
bool preset_given(const struct args *a);

/* Parse the template of the options; *t stays empty if there is none. known may
 * be NULL. Call prompt_template_free in any case. Returns 0, or -1 with *e
 * set. */
int preset_template(struct prompt_template *t, const struct opt_parsed *p,
                    const struct template_names *known, struct qwick_err *e);

/* Return the value that --set gives to a field, or NULL. */
const char *preset_value(const struct args *a, const char *name,
                         size_t n);

/* Refuse values of --set that the template does not use. Returns 0, or -1 with
 * *e set. */
int preset_check_values(const struct prompt_template *t,
                        const struct args *a, struct qwick_err *e);

/* Set *e: nothing gives the field a value. Returns -1. */
int preset_unset(const struct prompt_template *t,
                 const struct template_part *field, struct qwick_err *e);

/* If the options give a template, replace *text, the input, by the template
 * filled with it. Returns 0, or -1 with *e set. */
int preset_apply(struct buf *text, const struct opt_parsed *p, struct qwick_err *e);

#endif
