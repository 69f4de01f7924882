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
    OPT_INTS,     /* struct opt_ints: "1,2,4", each in [imin, imax] */
    OPT_FLAG_FILE /* struct opt_flag_file: --name or --name=FILE */
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

/* Maximum number of rows in a verb's table. */
#define OPT_MAX 96

/* The value of a macro as a string, for .def of a row. */
#define OPT_TEXT_OF(x) #x
#define OPT_STRING(x)  OPT_TEXT_OF(x)

/* Initialise the members opts and n_opts of a verb. Checks at compile time that
 * the table fits struct opt_parsed. */
#define OPT_TABLE(table)                                                       \
    .opts = (table), .n_opts = OPT_COUNT(table) +                              \
                               0 * sizeof(struct {                             \
                                   _Static_assert(OPT_COUNT(table) <= OPT_MAX, \
                                                  "table is too long");        \
                                   char unused;                                \
                               })
#define OPT_COUNT(table) (sizeof(table) / sizeof(*(table)))

struct opt_parsed {
    const struct verb *verb;
    bool given[OPT_MAX]; /* for each row of the table */
    const char **args;   /* [n_args] words that are not options, in order; the
                            strings are borrowed */
    size_t n_args;
    const struct opt
        *before; /* option of type OPT_FLAG_FILE that stands directly
                    before args[0] and has no value; NULL: none */
};

/* Return the number of words of the option argv[0] with its value: 1 or 2; 0 if
 * no verb has this option. argc >= 1. */
int opt_words(int argc, char *const *argv);

/* Parse argv[0..argc) into *args, the verb's struct of arguments, which holds
 * the defaults. Options and arguments may be mixed; "--" ends the options. A
 * NULL in argv marks the place of the verb. Handles --help and --version.
 * Returns -1 to go on, or an exit status after printing a message. Call
 * opt_free in both cases. */
int opt_parse(struct opt_parsed *p, const struct verb *v, int argc, char **argv,
              void *args);
void opt_free(struct opt_parsed *p, void *args);

/* Return the row of an option in the verb's table, or NULL. */
const struct opt *opt_find(const struct verb *v, const char *name);

/* Return whether the option was on the command line. */
bool opt_given(const struct opt_parsed *p, const char *name);

/* Print the verb's --help. Returns an exit status. */
int opt_help(const struct verb *v);

/* Print the program's version. Returns an exit status. */
int opt_version(void);

/* Print `qwick: MSG (see qwick VERB --help)`. Returns exit status 2. */
int opt_usage(const struct verb *v, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));

/* Refuse two options together: if both were given, print a message and return
 * exit status 2. Otherwise return -1. */
int opt_conflict(const struct opt_parsed *p, const char *a, const char *b);

/* Refuse options that have no effect: if one of names (NULL-terminated) was
 * given, print "has no effect WHY" and return exit status 2. Otherwise return
 * -1. */
int opt_no_effect(const struct opt_parsed *p, const char *const *names,
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

#endif
