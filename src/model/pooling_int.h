/* Declarations that the files of pooling.h share. */
#ifndef MODEL_POOLING_INT_H
#define MODEL_POOLING_INT_H

#include "model/pooling.h"
#include "model/section.h"

enum { POOLING_PATH = 512 };

/* A JSON file of the checkpoint. */
struct pooling_file {
    struct section s; /* v is NULL if the file is missing */
    struct json_doc *doc;
    char path[POOLING_PATH];
};

/* dir: the directory in the checkpoint that has the file; NULL: itself. The
 * caller frees f->doc, also after a failure. *f must not move. */
int pooling_open_json(struct pooling_file *f, const struct checkpoint *ck,
                      const char *dir, const char *name, struct qwick_err *e);

/* Open a module's config.json, which must exist and be an object. */
int pooling_open_config(struct pooling_file *f, const struct checkpoint *ck,
                        const char *dir, struct qwick_err *e);

/* ---- pooling_texts.c ------------------------------------------------------
 */

/* Read sentence_bert_config.json, config_sentence_transformers.json, and the
 * lengths of vectors. */
int pooling_read_texts(struct pooling *p, const struct checkpoint *ck,
                       struct qwick_err *e);

/* ---- pooling_dense.c ------------------------------------------------------
 */

/* Read config.json of a Dense module in the directory dir of the checkpoint.
 * Its input has p->width numbers; p->width becomes that of its output. */
int pooling_read_dense(struct pooling *p, const struct checkpoint *ck,
                       const char *dir, bool normalise, struct qwick_err *e);

/* Find the Dense modules of a GGUF file: tensors. */
int pooling_find_dense(struct pooling *p, const struct gguf *g,
                       struct qwick_err *e);

#endif
