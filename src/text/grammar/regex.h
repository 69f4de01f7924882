/* Regular expressions as nodes of a grammar. */
#ifndef TEXT_REGEX_H
#define TEXT_REGEX_H

#include <stddef.h>
#include <stdint.h>

struct grammar;

/* How the text is compared with the expression. */
enum regex_mode {
    REGEX_WHOLE, /* the whole text matches; ^ at the start and $ at the end are
                    allowed and change nothing */
    REGEX_SEARCH /* some part of the text matches; ^ and $ at the ends of the
                    expression, or of an alternative of its outermost level, tie
                    it to the ends of the text */
};

/* Makes the node of one code point of some ranges (not negated, ascending, not
 * overlapping, not empty). */
struct grammar_range;
typedef uint32_t (*regex_class_fn)(void *ctx, struct grammar *g,
                                   const struct grammar_range *ranges,
                                   size_t n);

/* Add the expression re[0..n), valid UTF-8, to g and return its node.
 *
 * Syntax: literals, ".", classes with ranges and ^, \d \w \s \D \W \S (ASCII,
 * and \s also the other white space of ECMAScript), \t \n \r \f \v \0 \xHH
 * \uHHHH \u{H…} \cX, escaped punctuation, groups ( ), (?: ) and (?<name> ),
 * "|", and the repetitions * + ? {m} {m,} {m,n}, also with a ? after them,
 * which does not change the language. "." is any code point except \n, \r,
 * U+2028 and U+2029. Refuses by name, with their position: back references,
 * lookaround, \b \B, \p, inline flags, possessive repetitions, and ^ or $ at
 * other places.
 *
 * class_of makes the node of each code point; NULL: grammar_class. A JSON
 * schema passes a function that also admits the escapes of JSON strings.
 *
 * On failure returns GRAMMAR_NOTHING, and the grammar has the error. If `where`
 * is not NULL, the error begins with it: "WHERE: character 7: …". */
uint32_t regex_compile(struct grammar *g, const char *where, const char *re,
                       size_t n, enum regex_mode mode, regex_class_fn class_of,
                       void *ctx);

#endif
