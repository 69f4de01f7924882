/* Options of the command line. options_table.h has a row for each; from these rows
 * come the struct of arguments, parsing, --help, the config file, the environment,
 * completion, the sandbox's rights, the fields of records and the check against the
 * man page. relations.c has a row for each rule between options. */
#ifndef CLI_OPT_H
#define CLI_OPT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "cli/io/out.h"
#include "cli/io/strings.h"
#include "qwick.h"

struct buf;

enum opt_type {
    OPT_HEADING,  /* not an option but a heading of --help */
    OPT_FLAG,     /* bool */
    OPT_INT,      /* int64_t in [imin, imax] */
    OPT_SIZE,     /* int64_t bytes: "4G", "1.5GB"; see opt_size */
    OPT_NUMBER,   /* double in [min, max] */
    OPT_TEXT,     /* const char *, may be empty */
    OPT_FILE,     /* const char *, not empty */
    OPT_CHOICE,   /* const char *, one of choices */
    OPT_TEXTS,    /* struct strings, repeatable, not empty */
    OPT_FILES,    /* struct strings as OPT_TEXTS; "~/" is expanded in the
                     config file, as for OPT_FILE */
    OPT_INTS,     /* struct opt_ints: "1,2,4", each in [imin, imax] */
    OPT_FLAG_FILE /* struct opt_flag_file: --name or --name=FILE; with choices,
                     these are the values */
};

/* What a verb does with the file of an option in its sandbox; see sandbox.h. */
enum opt_access {
    OPT_NO_ACCESS, /* of OPT_FILE and OPT_FILES, the same as OPT_LOADS */
    OPT_LOADS,    /* reads it in the first part only */
    OPT_MODEL,    /* loads a model in the first part only */
    OPT_OPENS,    /* opens it to write in the first part, and keeps it open */
    OPT_READS,    /* opens the file to read it */
    OPT_REREADS,  /* as OPT_READS, also after another file has got its name */
    OPT_RENAMES,  /* renames an open temporary file to it, and removes files
                     beside it */
    OPT_REPLACES, /* writes a temporary file and renames that to it */
    OPT_REWRITES, /* as OPT_REPLACES, and reads the file */
    OPT_CACHES,   /* it is a directory of qwick: makes, reads, writes and removes
                     files and directories in it */
    OPT_INDEXES,  /* it is a directory that is there: makes, reads, writes and
                     replaces files in it */
    OPT_MAKES,    /* in the first part, makes a directory or file, which replaces
                     the old one */
    OPT_KEEPS,    /* replaces the conversation that is kept for a flag, or
                     with the name that a text is (state_file.h) */
    OPT_LOGS,     /* a flag: writes the log (state_file.h), which is open */
    OPT_LISTENS,  /* texts: addresses of sockets that the verb has made before the
                     first part, and serves; without a value, too. The file of
                     "unix:FILE" is accessed as OPT_UNLINKS. */
    OPT_UNLINKS   /* removes it at the end */
};

struct opt_ints {
    int64_t *v;
    size_t n;
};

struct opt_flag_file {
    bool on;
    const char *file; /* NULL: the flag has no file */
};

/* For the rows. */
#define ONCE          .single = true
#define LIVE          .live = true
#define RANGE(a, b)   .imin = (a), .imax = (b)
#define FROM(a)       RANGE(a, INT32_MAX)
#define BETWEEN(a, b) .min = (a), .max = (b)

/* The value of a macro as a string, for .def of a row. */
#define OPT_TEXT_OF(x) #x
#define OPT_STRING(x)  OPT_TEXT_OF(x)

/* Most answers to one prompt. */
#define OPT_MAX_SAMPLES 1000

/* Bits of verbs, for the rows. */
enum {
    V_GENERATE = 1u << 0,
    V_CHAT = 1u << 1,
    V_BATCH = 1u << 2,
    V_TOKENIZE = 1u << 3,
    V_DETOKENIZE = 1u << 4,
    V_COUNT = 1u << 5,
    V_RENDER = 1u << 6,
    V_EMBED = 1u << 7,
    V_RERANK = 1u << 8,
    V_LOGITS = 1u << 9,
    V_SCORE = 1u << 10,
    V_CHOOSE = 1u << 11,
    V_INSPECT = 1u << 12,
    V_MODELS = 1u << 13,
    V_PULL = 1u << 14,
    V_PLAN = 1u << 15,
    V_BENCH = 1u << 16,
    V_SELFTEST = 1u << 17,
    V_QUANTIZE = 1u << 18,
    V_CACHE = 1u << 19,
    V_COMPLETION = 1u << 20,
    V_HELP = 1u << 21,
    V_VERSION = 1u << 22,
    V_SERVE = 1u << 23,
    V_LOG = 1u << 24,
    V_SIMILAR = 1u << 25,
    V_ALL = (1u << 26) - 1,
    V_ANSWER = V_GENERATE | V_CHAT | V_BATCH | V_SERVE,
    V_TEMPLATE = V_ANSWER | V_RENDER | V_LOGITS | V_SCORE | V_CHOOSE,
    V_TEXT_IO = V_TOKENIZE | V_DETOKENIZE | V_COUNT,
    V_EVALUATE =
        V_ANSWER | V_EMBED | V_SIMILAR | V_RERANK | V_LOGITS | V_SCORE |
        V_CHOOSE | V_PLAN
};

/* The types of the members of struct args. */
#define OPT_C_FLAG      bool
#define OPT_C_INT       int64_t
#define OPT_C_SIZE      int64_t
#define OPT_C_NUMBER    double
#define OPT_C_TEXT      const char *
#define OPT_C_FILE      const char *
#define OPT_C_CHOICE    const char *
#define OPT_C_TEXTS     struct strings
#define OPT_C_FILES     struct strings
#define OPT_C_INTS      struct opt_ints
#define OPT_C_FLAG_FILE struct opt_flag_file

/* OPT_min_p is the option --min-p. */
enum opt_id {
    OPT_NONE,
#define OPTION(type, id, ...) OPT_##id,
#define VARIANT(type, id, ...)
#define GROUP(heading, ...)
#include "cli/opt/options_table.h"
    OPT_COUNT
};

/* The values of all options, for all verbs: a verb reads those that it has. An
 * option that is not given has its default, if that is a number, else 0, false or
 * NULL. */
struct args {
#define OPTION(type, id, ...) OPT_C_##type id;
#define VARIANT(type, id, ...)
#define GROUP(heading, ...)
#include "cli/opt/options_table.h"
};

/* A row of the table. Options may come before the verb. So an option's name
 * means the same in all verbs, and takes a value in all verbs or in none. */
struct opt {
    enum opt_id id;       /* OPT_NONE: a heading of --help, which is in help */
    const char *name;     /* long name without dashes */
    unsigned verbs;       /* bits V_… of the verbs that have this row */
    char letter;          /* 0: none */
    bool letter_late;     /* the letter means this option only after the verb;
                             before the verb it means another option */
    bool single;          /* names what one command reads, writes or does, or lets
                             text control the model: neither the config file nor
                             the environment sets it, which would surprise
                             scripts */
    bool live;            /* /set of chat changes it between two answers */
    enum opt_type type;
    const char *arg;      /* name of the value in --help; NULL: see opt_arg */
    const char *choices;  /* "on|off|auto" */
    const char *later;    /* choice that is reserved for a later version */
    const char *place;    /* OPT_FLAG_FILE: the option whose value is the file */
    const char *record;   /* field of a record of batch with the same value */
    const char *peers;    /* names of other programs for it, between blanks */
    enum opt_access access;
    int64_t imin, imax;
    double min, max;
    const char *def;      /* default as shown in --help; a number at its beginning
                             is the value */
    const char *help;
    const char *first;    /* what qwick --help says of it on one line; NULL: it is
                             not one of the options there */
    bool shared;          /* of a heading: its options are those of many verbs, and
                             "qwick help options" describes them once */
    size_t offset;        /* of the value in struct args */
};

/* The models of the command line, where common_check and common_find put them. */
struct opt_models {
    const char *alias; /* the alias and its place, "NAME, an alias (FILE:LINE)";
                          NULL: -m is none. The value of -m is then what the alias
                          means. */
    bool is_name;      /* of -m, see qwick_model_find */
    const char *place; /* where the model is; NULL: none, or not searched */
    const char *second_alias, *second_place; /* of --draft or --against */
    struct qwick_lora *loras; /* [n_loras] of --lora; NULL: not read yet */
    size_t n_loras;
    size_t cache_memory; /* maximum bytes of the prefix cache in memory; the verb
                            sets it, no option does */
};

struct opt_parsed;
struct qwick_engine;

/* Groups of verbs, in the order of need. verb_groups in verbs.h has their titles. */
enum verb_group {
    VERBS_NONE, /* a verb that --help lacks: a mistake, which help.bats finds */
    VERBS_ANSWER,
    VERBS_MODELS,
    VERBS_DECIDE,
    VERBS_TOKENS,
    VERBS_MACHINE,
    VERBS_SHELL,
    N_VERB_GROUPS
};

struct verb {
    unsigned bit;         /* V_… */
    const char *name;
    enum verb_group group; /* with which --help lists it */
    const char *args;     /* arguments in the usage line, "[PROMPT]" */
    const char *summary;  /* one line for the list of verbs */
    const char *about;    /* paragraphs of --help */
    const char *examples; /* command lines for --help; each runs as written. The
                             first three of generate are those of qwick --help. */
    enum verb_opens {
        OPENS_NOTHING,   /* or opens a model itself, when it has read its input */
        OPENS_TOKENIZER, /* of -m */
        OPENS_MODEL
    } opens; /* before run */
    bool needs_logits; /* the verb refuses models that have none */
    /* Check the options and arguments beyond relations.c. Returns -1 to go on, or
     * an exit status after printing a message. NULL: nothing to check. */
    int (*check)(struct opt_parsed *p);
    /* Do the work with what the verb opens; eng is NULL if that is nothing. Returns
     * the exit status after printing messages. */
    int (*run)(struct opt_parsed *p, struct qwick_engine *eng);
};

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
    struct strings texts;
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

/* A command line and its sources. */
struct opt_parsed {
    const struct verb *verb;
    bool verb_is_named; /* it is a word of the command line */
    struct args a;
    struct opt_source sources[OPT_COUNT]; /* by enum opt_id */
    const char **args; /* [n_args] words that are not options, in order; the
                          strings are borrowed */
    size_t n_args;
    size_t n_plain; /* the first n_plain args stand before "--" */
    const struct opt
        *before;  /* option of type OPT_FLAG_FILE that stands directly
                     before args[0] and has no value; NULL: none */
    struct settings *settings; /* holds strings of the values; NULL: none */
    struct opt_models models;
};

/* Return the number of words of the option argv[0] with its value: 1 or 2; 0 if
 * no verb has this option. argc >= 1. */
int opt_words(int argc, char *const *argv);

/* Parse argv[0..argc) into *p, and set defaults. Options and arguments may be
 * mixed; "--" ends the options. A NULL in argv marks the place of the verb. Then
 * set options from the environment and from the config file, and hold all against
 * relations.c. Handles --help, --version and --show-config. Returns -1 to go on, or
 * an exit status after printing a message. Call opt_free in both cases. */
int opt_parse(struct opt_parsed *p, const struct verb *v, int argc,
              char **argv);
void opt_free(struct opt_parsed *p);

/* Check the options against relations.c. Drops options of settings that have no
 * effect. Returns -1 to go on, or exit status 2 after printing a message. */
int opt_check_relations(struct opt_parsed *p);

/* Return whether two options of a verb cannot be combined, whatever their values. */
bool opt_excludes(const struct verb *v, enum opt_id a, enum opt_id b);

/* Append the options of which an option of the verb needs one, "--a or --b";
 * nothing if it needs none. */
void opt_needs(struct buf *out, const struct verb *v, enum opt_id id);

/* Set an option from another source than the command line, unless a source of a
 * higher rank has set it. Flags take on and off. A source may set an option of
 * type OPT_TEXTS several times, to add texts. value and where are borrowed
 * until opt_free; name is the option in messages. Returns -1 to go on, or
 * an exit status after printing a message. */
int opt_set_default(struct opt_parsed *p, const struct opt *o,
                    enum opt_rank rank, const char *where, const char *name,
                    const char *value);

/* Give an option the value that it has without its source, and free nothing. */
void opt_unset(struct opt_parsed *p, const struct opt *o);

/* Check a value as opt_set_default does, but set nothing. */
int opt_check_value(const struct verb *v, const struct opt *o, const char *name,
                    const char *value);

/* Return the verb's row after o, in the order of --help; after NULL its first. A
 * verb of NULL has all rows. NULL: there is none. */
const struct opt *opt_next(const struct verb *v, const struct opt *o);
/* Return the verb's row of an option, or NULL. */
const struct opt *opt_row(const struct verb *v, enum opt_id id);
/* Return the verb's row of a name without dashes, or NULL. */
const struct opt *opt_find(const struct verb *v, const char *name);
/* Return a verb that has an option of this name, or NULL. */
const struct verb *opt_verb_with(const char *name);
/* Return the name of an option without dashes. */
const char *opt_name(enum opt_id id);
/* Return the name of an option's value in --help: that of the row, or else that
 * of its type. NULL: it has none. */
const char *opt_arg(const struct opt *o);
/* Return the value of an option in *p. */
void *opt_value_at(const struct opt_parsed *p, const struct opt *o);

/* Return the row that a letter means after the verb (late) or before it, or
 * NULL. */
const struct opt *opt_find_letter(const struct verb *v, char letter, bool late);

/* Return the verb's option that the user probably meant with an unknown name,
 * or NULL. */
const char *opt_meant(const struct verb *v, const char *name);

/* Return whether any source sets the option, and does not turn it off. */
bool opt_given(const struct opt_parsed *p, enum opt_id id);
/* Return whether a value comes from a setting: not from the command line. */
bool opt_is_setting(const struct opt_parsed *p, enum opt_id id);

/* Print the verb's --help; NULL: that of qwick. Returns an exit status. */
int opt_help(const struct verb *v);

/* A page of "qwick help". */
struct help_topic {
    const char *name;
    const char *summary; /* one line */
    const char *text;    /* a paragraph that ends with a newline. Lines of two blanks
                            and a command run as written, in order. */
    void (*put_rest)(struct buf *); /* appends what follows; NULL: nothing */
};

/* All topics, with an entry without a name at the end. */
extern const struct help_topic help_topics[];

/* Print a topic. Returns an exit status; -1: there is none of this name. */
int help_topic_print(const char *name);

/* The parts of topics that come from the tables: the shared options, and the verbs
 * with a line each. */
void help_put_shared(struct buf *b);
void help_put_verbs(struct buf *b);

/* Print the program's version. Returns an exit status. */
int opt_version(void);

/* Print `qwick: MSG (see qwick VERB --help)`. Returns exit status 2. */
#define opt_usage(v, ...) msg_usage((v)->name, __VA_ARGS__)

/* Of two options that exclude each other and are both given, drop the one whose
 * source has the lower rank: its value is again what it is without this source.
 * Returns whether one was dropped; false if the ranks are equal. */
bool opt_yield(struct opt_parsed *p, enum opt_id a, enum opt_id b);

/* Refuse two options together: if both were given, drop one as opt_yield does,
 * or print a message and return exit status 2. Otherwise return -1. */
int opt_conflict(struct opt_parsed *p, enum opt_id a, enum opt_id b);

/* Refuse an option that has no effect: if it was on the command line, print "has
 * no effect WHY" and return exit status 2. Otherwise drop it if a setting sets it,
 * and return -1. because: the option in WHY, whose place the message names;
 * OPT_NONE: there is none. */
int opt_no_effect(struct opt_parsed *p, enum opt_id id, enum opt_id because,
                  const char *why);
/* Call opt_no_effect for ids, which end with OPT_NONE, until one is refused. */
int opt_no_effects(struct opt_parsed *p, const enum opt_id *ids,
                   enum opt_id because, const char *why);
/* Take an option that has no effect as if it was not given. Warn if it was on
 * the command line: "has no effect WHY". */
void opt_warn_no_effect(struct opt_parsed *p, enum opt_id id,
                        enum opt_id because, const char *why);

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
