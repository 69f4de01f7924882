/* Finds the first fenced code block of a text that comes in pieces, by the
 * rules of CommonMark 0.31, section 4.5:
 *
 *   - The opening fence is a line of blanks, then three or more backticks or
 *     tildes, then any text. After backticks, that text has no backtick.
 *   - The closing fence is a line of at least as many of the same character,
 *     with nothing but blanks around it.
 *   - Each line of the content loses as many columns of blanks as stand before
 *     the opening fence, as far as it has them.
 *   - The end of the text closes an open block.
 *
 * One rule differs: a fence may stand behind any number of blanks, and its end
 * behind three more, because blocks in the items of lists are indented. Other
 * containers, such as quotes, are not read. A line ends with "\n"; a "\r"
 * before it belongs to the content. */
#ifndef TEXT_CODE_BLOCK_H
#define TEXT_CODE_BLOCK_H

#include <stdbool.h>
#include <stddef.h>

#include "base/buf.h"

enum code_block_state {
    CODE_BLOCK_NONE, /* no block yet */
    CODE_BLOCK_OPEN, /* inside the block */
    CODE_BLOCK_CLOSED
};

/* A search. A struct of all zeros is at its start. */
struct code_block {
    enum code_block_state state;
    struct buf content; /* of the block so far, without its last line if that
                           has no end yet */

    struct buf line; /* the part of the current line that came so far */
    char fence;      /* '`' or '~' */
    size_t n_fence;  /* length of the opening fence */
    size_t indent;   /* columns before the opening fence */
};

/* Read the next piece of the text. Pieces may end anywhere. Nothing is read
 * after the block is closed. Returns 0, or -1 when out of memory. */
int code_block_feed(struct code_block *c, const char *s, size_t n);

/* Read the last line, which may have no end. whole: the text is complete, so
 * its end closes an open block; otherwise the block stays open. Returns 0, or
 * -1 when out of memory. */
int code_block_end(struct code_block *c, bool whole);

/* Return whether the content has nothing but white space. */
bool code_block_is_empty(const struct code_block *c);

void code_block_free(struct code_block *c);

#endif
