/* Options of the command line. Each verb has one const table, from which come
 * parsing, --help and the check against the man page. */
#ifndef CLI_OPT_H
#define CLI_OPT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum opt_type {
    OPT_HEADING,  /* not an option but a heading of --help */
    OPT_FLAG,     /* bool */
    OPT_INT,      /* int64_t in [imin, imax] */
    OPT_SIZE,     /* int64_t bytes: "4G", "1.5GB"; see opt_size */
    OPT_NUMBER,   /* double in [min, max] */
    OPT_TEXT,     /* const char *, may be empty */
    OPT_FILE,     /* const char *, not empty */
    OPT_CHOICE,   /* const char *, one of choices */
    OPT_TEXTS,    /* struct opt_texts, repeatable, not empty */
    OPT_FILES,    /* struct opt_texts as OPT_TEXTS; "~/" is expanded in the
                     config file, as for OPT_FILE */
    OPT_INTS,     /* struct opt_ints: "1,2,4", each in [imin, imax] */
    OPT_FLAG_FILE /* struct opt_flag_file: --name or --name=FILE */
};

/* What a verb does with the file of an option in its sandbox; see sandbox.h. */
enum opt_access {
    OPT_NO_ACCESS, /* of OPT_FILE and OPT_FILES, the same as OPT_LOADS */
    OPT_LOADS,    /* reads it in the first part only */
    OPT_MODEL,    /* loads a model in the first part only */
    OPT_OPENS,    /* opens it to write in the first part, and keeps it open */
    OPT_READS,    /* opens the file to read it */
    OPT_RENAMES,  /* renames an open temporary file to it, and removes files
                     beside it */
    OPT_REPLACES, /* writes a temporary file and renames that to it */
    OPT_REWRITES, /* as OPT_REPLACES, and reads the file */
    OPT_CACHES,   /* it is a directory of qwick: makes, reads, writes and removes
                     files and directories in it */
    OPT_MAKES,    /* in the first part, makes a directory or file, which replaces
                     the old one */
    OPT_KEEPS     /* a flag: replaces the kept conversation (gen_kept.h) */
};

/* A row of the table. Options may come before the verb. So an option's name
 * means the same in all verbs, and takes a value in all verbs or in none. */
struct opt {
    const char *name; /* long name without dashes */
    char letter;      /* 0: none */
    bool letter_late; /* the letter means this option only after the verb;
                         before the verb it means another option */
    enum opt_type type;
    const char *arg;     /* name of the value in --help */
    const char *choices; /* "on|off|auto" */
    const char *later;   /* choice that is reserved for a later version */
    const char *place;   /* OPT_FLAG_FILE: the option whose value is the file */
    enum opt_access access;
    int64_t imin, imax;
    double min, max;
    const char *def; /* default as shown in --help */
    const char *help;
    size_t offset; /* of the value in the verb's struct of arguments */
};

struct opt_texts {
    const char **v;
    size_t n;
};

struct opt_ints {
    int64_t *v;
    size_t n;
};

struct opt_flag_file {
    bool on;
    const char *file; /* NULL: the flag has no file */
};

struct verb {
    const char *name;
    const char *args;     /* arguments in the usage line, "[PROMPT]" */
    const char *summary;  /* one line for the list of verbs */
    const char *about;    /* paragraphs of --help */
    const char *examples; /* command lines for --help; each runs as written */
    const struct opt *opts;
    size_t n_opts;
    int (*run)(const struct verb *v, int argc, char **argv);
};

/* Initialise the members opts and n_opts of a verb. */
#define OPT_TABLE(table) \
    .opts = (table), .n_opts = sizeof(table) / sizeof(*(table))

/* The value of a macro as a string, for .def of a row. */
#define OPT_TEXT_OF(x) #x
#define OPT_STRING(x)  OPT_TEXT_OF(x)

/* Where the value of an option comes from. A source of a higher rank overrides
 * those of lower ranks. */
enum opt_rank {
    OPT_UNSET,
    OPT_CONFIG,      /* the config file, before its first section */
    OPT_CONFIG_VERB, /* the verb's section of the config file */
    OPT_PRESET,      /* the file of -T */
    OPT_ENV,         /* an environment variable */
    OPT_LINE         /* the command line */
};

union opt_value {
    bool flag;
    int64_t integer;
    double number;
    const char *text;
    struct opt_texts texts;
    struct opt_ints ints;
    struct opt_flag_file flag_file;
};

/* A value that is set, and its source. */
struct opt_source {
    enum opt_rank rank;
    bool off;          /* a flag that its source turns off */
    const char *where; /* "FILE:LINE" or a variable's name; NULL on the command
                          line. Borrowed. */
    union opt_value before; /* the value without this source */
};

struct settings;

struct opt_parsed {
    const struct verb *verb;
    struct opt_source *sources; /* one for each row of the table */
    const char **args; /* [n_args] words that are not options, in order; the
                          strings are borrowed */
    size_t n_args;
    size_t n_plain; /* the first n_plain args stand before "--" */
    const struct opt
        *before;  /* option of type OPT_FLAG_FILE that stands directly
                     before args[0] and has no value; NULL: none */
    void *values; /* the verb's struct of arguments */
    struct settings *settings; /* holds strings of the values; NULL: none */
};

/* Return the number of words of the option argv[0] with its value: 1 or 2; 0 if
 * no verb has this option. argc >= 1. */
int opt_words(int argc, char *const *argv);

/* Parse argv[0..argc) into *args, the verb's struct of arguments, which holds
 * the defaults. Options and arguments may be mixed; "--" ends the options. A
 * NULL in argv marks the place of the verb. Then set options from the
 * environment and from the config file. Handles --help, --version and
 * --show-config. Returns -1 to go on, or an exit status after printing a
 * message. Call opt_free in both cases. */
int opt_parse(struct opt_parsed *p, const struct verb *v, int argc, char **argv,
              void *args);
void opt_free(struct opt_parsed *p, void *args);

/* Set an option from another source than the command line, unless a source of a
 * higher rank has set it. Flags take on and off. A source may set an option of
 * type OPT_TEXTS several times, to add texts. value and where are borrowed
 * until opt_free; name is the option in messages. Returns -1 to go on, or
 * an exit status after printing a message. */
int opt_set_default(struct opt_parsed *p, const struct opt *o,
                    enum opt_rank rank, const char *where, const char *name,
                    const char *value);

/* Check a value as opt_set_default does, but set nothing. */
int opt_check_value(const struct verb *v, const struct opt *o, const char *name,
                    const char *value);

/* Return the row of an option in the verb's table, or NULL. */
const struct opt *opt_find(const struct verb *v, const char *name);

/* Return the row that a letter means after the verb (late) or before it, or
 * NULL. */
const struct opt *opt_find_letter(const struct verb *v, char letter, bool late);

/* Return the verb's option that the user probably meant with an unknown name,
 * or NULL. */
const char *opt_meant(const struct verb *v, const char *name);

/* Return whether any source sets the option, and does not turn it off. */
bool opt_given(const struct opt_parsed *p, const char *name);
/* Return whether a value comes from a setting: not from the command line. */
bool opt_is_setting(const struct opt_parsed *p, const char *name);

/* Print the verb's --help. Returns an exit status. */
int opt_help(const struct verb *v);

/* Print the program's version. Returns an exit status. */
int opt_version(void);

/* Print `qwick: MSG (see qwick VERB --help)`. Returns exit status 2. */
int opt_usage(const struct verb *v, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));

/* Of two options that exclude each other and are both given, drop the one whose
 * source has the lower rank: its value is again what it is without this source.
 * Returns whether one was dropped; false if the ranks are equal. */
bool opt_yield(const struct opt_parsed *p, const char *a, const char *b);

/* Refuse two options together: if both were given, drop one as opt_yield does,
 * or print a message and return exit status 2. Otherwise return -1. */
int opt_conflict(const struct opt_parsed *p, const char *a, const char *b);

/* Refuse options that have no effect: if one of names (NULL-terminated) was
 * on the command line, print "has no effect WHY" and return exit status 2.
 * Otherwise drop those that the config file or the environment sets, and return
 * -1. A word of why that begins with "--" is the option to blame. */
int opt_no_effect(const struct opt_parsed *p, const char *const *names,
                  const char *why);
/* Take an option that has no effect as if it was not given. Warn if it was on
 * the command line: "has no effect WHY". */
void opt_warn_no_effect(const struct opt_parsed *p, const char *name,
                        const char *why);

/* Read the whole string as a decimal integer or a decimal number. Blanks,
 * hexadecimal digits and names such as "inf" are refused. The locale does not
 * matter. Return 0 or -1. */
int opt_int(const char *s, int64_t *out);
int opt_number(const char *s, double *out);
/* Read a number of bytes: an integer of at least 0, or a decimal number with a
 * unit. Units are K, M, G and T, powers of 1024, in upper or lower case, alone
 * or followed by "B" or "iB". A fraction of a byte is dropped. Returns 0 or
 * -1. */
int opt_size(const char *s, int64_t *out);
/* Read "on", "true", "yes" or "1", or "off", "false", "no" or "0". Returns 0 or
 * -1. */
int opt_bool(const char *s, bool *out);

#endif
