/* Options: one const table per verb drives parsing, --help and the check of
 * the man page. */
#ifndef CLI_OPT_H
#define CLI_OPT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum opt_type {
    OPT_HEADING,  /* no option: a line of --help */
    OPT_FLAG,     /* bool */
    OPT_INT,      /* int64_t in [imin, imax] */
    OPT_SIZE,     /* int64_t bytes: "4G", with K, M, G, T or nothing */
    OPT_NUMBER,   /* double in [min, max] */
    OPT_TEXT,     /* const char *, may be empty */
    OPT_FILE,     /* const char *, not empty */
    OPT_CHOICE,   /* const char *, one of choices */
    OPT_TEXTS,    /* struct opt_texts, repeatable, not empty */
    OPT_INTS,     /* struct opt_ints: "1,2,4", each in [imin, imax] */
    OPT_FLAG_FILE /* struct opt_flag_file: --name or --name=FILE */
};

struct opt {
    const char *name; /* long name without dashes */
    char letter;      /* 0: none */
    enum opt_type type;
    const char *arg;     /* name of the value in --help */
    const char *choices; /* "on|off|auto" */
    const char *later;   /* a choice that is reserved, not built */
    int64_t imin, imax;
    double min, max;
    const char *def; /* default as shown in --help */
    const char *help;
    size_t offset; /* into the verb's struct of arguments */
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
    const char *file; /* NULL: none named */
};

struct verb {
    const char *name;
    const char *args;    /* "[PROMPT]" of the usage line */
    const char *summary; /* one line for the list of verbs */
    const char *about;   /* paragraphs of --help */
    const struct opt *opts;
    size_t n_opts;
    int (*run)(const struct verb *v, int argc, char **argv);
};

#define OPT_MAX 64

struct opt_parsed {
    const struct verb *verb;
    bool given[OPT_MAX]; /* by index into the table */
    const char **args;   /* what is no option, in order; borrowed strings */
    size_t n_args;
};

/* Parse argv[0..argc) into *args (the verb's struct, holding the defaults).
 * Options and arguments may be mixed; "--" ends options. --help and --version
 * are answered here. Returns -1 to go on, else the exit status, the message
 * having been printed. Call opt_free in any case. */
int opt_parse(struct opt_parsed *p, const struct verb *v, int argc, char **argv,
              void *args);
void opt_free(struct opt_parsed *p, void *args);

/* Whether the option was on the command line. */
bool opt_given(const struct opt_parsed *p, const char *name);

/* Print `qwick: MSG (see qwick VERB --help)`, return exit status 2. */
int opt_usage(const struct verb *v, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));

/* Exit status 2 with a message when both were given; else -1. */
int opt_conflict(const struct opt_parsed *p, const char *a, const char *b);

/* The first of names (NULL-terminated) that was given: "no effect WHY", exit
 * status 2; else -1. */
int opt_no_effect(const struct opt_parsed *p, const char *const *names,
                  const char *why);

/* Decimal integer or decimal number, the whole string, whatever the locale;
 * no blanks, no hexadecimal, no names. Return 0 or -1. */
int opt_int(const char *s, int64_t *out);
int opt_number(const char *s, double *out);
/* The same for bytes: an integer of at least 0, then nothing, K, M, G or T
 * (powers of 1024). */
int opt_size(const char *s, int64_t *out);

#endif
