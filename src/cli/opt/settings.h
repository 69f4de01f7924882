/* Options from the config file and from the environment. */
#ifndef CLI_SETTINGS_H
#define CLI_SETTINGS_H

#include <stdbool.h>

#include "base/buf.h"
#include "base/err.h"
#include "cli/opt/opt.h"

/* Set options that the command line does not set: from the environment's
 * QWICK_<OPTION>, then from the prompt of -T, then from the config file unless
 * --no-config is given. With --show-config, print where each value comes from.
 * Returns -1 to go on, or an exit status after printing a message or the
 * values. */
int settings_apply(struct opt_parsed *p);
void settings_free(struct settings *c);

/* Append a path in the directory of the user's configuration, as xdg_path does
 * for $XDG_CONFIG_HOME and ~/.config. */
int settings_path(struct buf *out, const char *name);

/* Maximum bytes of a file of the configuration. */
#define SETTINGS_MAX ((size_t)1 << 20)

/* Read a file of the configuration into malloc'ed memory, with a NUL after its
 * *n bytes. A missing file gives NULL. Anything but a regular file without NUL
 * bytes is an error. Returns 0, or -1 with *e set. */
int settings_read_file(const char *path, char **text, size_t *n,
                       struct qwick_err *e);

/* Split the line "NAME = VALUE" in place. A value in double quotes is a JSON
 * string. Returns 0; 1 if the line is blank or a comment; or -1 with *e set,
 * without the place of the line. */
int settings_split(char *line, char **name, char **value, struct qwick_err *e);

struct preset;

/* Return the prompt of -T (preset.h), or NULL. c may be NULL. */
const struct preset *settings_preset(const struct settings *c);

/* Keep a malloc'ed string until settings_free. Returns 0; or -1 when out of
 * memory, with the string freed. */
int settings_keep(struct settings *c, char *s);

/* Return whether the config file exists and was read. */
bool settings_has_file(const struct settings *c);

/* Append a line with the name of an option, its value and its source. */
void settings_put_row(struct buf *b, const struct opt_parsed *p,
                      const struct opt *o);

/* --show-config: print where each value comes from. Returns an exit status. */
int settings_show(const struct opt_parsed *p);

#endif
