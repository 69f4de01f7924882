/* The forms in which models write calls of tools, as rows. A template shows the
 * form of its model: it prints an earlier call as the model would write it, or
 * it tells the model how to.
 *
 * Calls are written as
 *
 *     begin call (sep call)* end       call: pre NAME mid ARGUMENTS post
 *
 * and read with any white space between these parts. */
#ifndef TEXT_CALL_FORMS_H
#define TEXT_CALL_FORMS_H

#include <stdbool.h>
#include <stddef.h>

/* The most parameters of a call. */
#define TOOL_MAX_PARAMETERS 256

enum call_kind {
    CALL_OBJECT,     /* a JSON object with the name and the arguments, or an
                        array of such objects */
    CALL_NAMED,      /* the plain name, then a JSON object */
    CALL_PARAMETERS, /* the plain name, then each argument as
                        key_open KEY key_close VALUE key_end and a newline.
                        Strings are written as they are, other values as JSON */
    CALL_BARE        /* the plain name, then an object as JSON has it, but names
                        of members are plain, and a string is plain between two
                        quotes; see bare_value.h */
};

struct call_form {
    const char *name; /* for `qwick inspect` */
    enum call_kind kind;
    const char *hint;  /* what only a prompt of this form has, without blanks */
    const char *open;  /* the tag before the calls; NULL: the whole answer is
                          one call */
    const char *close; /* the tag after them; NULL: they go on to the end of the
                          answer */
    const char *begin, *pre, *mid, *post, *sep, *end; /* NULL: nothing */
    const char *id_open; /* CALL_NAMED: begins an id between name and mid, which
                            the model need not write; NULL: there is none */
    const char *quote;   /* CALL_BARE: the token around a string */
    /* of CALL_PARAMETERS */
    const char *key_open, *key_close, *key_end;
    const char *last;      /* the tag that comes before close */
    bool lines;            /* each value has a newline before and after it */
    const char *also_ends; /* a token that ends calls, although templates may
                              not show it; NULL: there is none */
    bool single;           /* an answer has one call at most */
    bool short_ids; /* the template takes only ids of 9 letters and digits */
};

/* Return row i; NULL: there are no more. Row 0 is Qwen3's. */
const struct call_form *call_form_at(size_t i);

/* Return the row of this name; NULL: there is none, or name is NULL. */
const struct call_form *call_form_named(const char *name);

/* Find the form in a prompt with a call of the tool `name`: the row that prints
 * this call as the prompt has it, else the row whose hint comes last. NULL:
 * there is none. */
const struct call_form *call_form_find(const char *prompt, size_t n,
                                       const char *name);

/* Return the row for calls that begin with `byte` after the tag of f: Qwen's
 * two forms have the same tag, and each is read where the other is shown. */
const struct call_form *call_form_of_byte(const struct call_form *f, char byte);

/* Return the bytes of which any ends a plain name, as a string in room: the
 * first one of mid that is no white space, or a newline and "<". */
const char *call_form_name_end(const struct call_form *f, char room[3]);

#endif
