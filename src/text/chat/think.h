/* Tags around the reasoning of models. */
#ifndef TEXT_THINK_H
#define TEXT_THINK_H

/* A pair of tags. In some models each tag is one added token. */
struct think_tags {
    const char *open, *close;
    const char *label; /* the text before the first newline of a block, which is
                          no thinking; NULL: there is none */
};

/* The pairs that qwick knows. If several fit a model, the first one counts. */
enum { N_THINK_TAGS = 9 };
extern const struct think_tags think_tags[N_THINK_TAGS];

#endif
