/* Opening the models that the options name. */
#ifndef CLI_OPEN_MODEL_H
#define CLI_OPEN_MODEL_H

#include <stdbool.h>
#include <stddef.h>

#include "cli/opt/opt.h"
#include "qwick.h"

/* Return the memory that a prefix cache may take, for requests that share the
 * beginnings of their prompts with later ones. */
size_t open_model_cache_memory(void);

/* Find the models of -m, --draft and --against, set p->models, and begin the
 * first part of the verb's sandbox (sandbox_load). Verbs that do not call
 * open_model may call this. Returns 0, or an exit status after printing a message. */
int open_model_find(struct opt_parsed *p);

/* After open_model_find: open the engine, and print its warnings and notes.
 * Returns 0, or an exit status after printing a message. */
int open_model_load(struct qwick_engine **eng, struct opt_parsed *p,
                    bool tokenizer_only);
/* Both. */
int open_model(struct qwick_engine **eng, struct opt_parsed *p,
               bool tokenizer_only);

/* After open_model, open the draft model of --draft, if there is one, for eng, and
 * print its messages. Returns 0, or an exit status after printing a message. */
int open_model_draft(struct qwick_engine **draft, const struct opt_parsed *p,
                     struct qwick_engine *eng);

/* After open_model, open the model of --against, with the default KV cache and
 * no adapters, check that it can be compared with eng, and print its messages.
 * Returns 0, or an exit status after printing a message. */
int open_model_reference(struct qwick_engine **out, const struct opt_parsed *p,
                         struct qwick_engine *eng);

/* After open_model_find: open the model with its adapters, or the directory or
 * file `result` that was made of it, with float32 throughout, and check that it
 * has logits. Returns 0, or an exit status after printing a message. */
int open_model_exact(struct qwick_engine **out, struct opt_parsed *p,
                     const char *result);

#endif
