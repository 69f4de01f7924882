/* Fuzz targets: each feeds bytes to one parser and checks what must hold of any
 * input. fuzz.c runs one of them under libFuzzer, replay.c runs all of them on
 * files.
 */
#ifndef FUZZ_TARGETS_H
#define FUZZ_TARGETS_H

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

/* Run one input, in[n]. Returns 0 if the parser took it, else -1 with *e set. A
 * fault that neither sanitizers nor the parser itself would find ends the
 * process through CHECK. */
typedef int (*fuzz_run)(const char *in, size_t n, struct qwick_err *e);

struct fuzz_target {
    const char *name; /* and the directory of its inputs in tests/fuzz/corpus */
    fuzz_run run;
};

/* All targets, ending with a NULL name. */
extern const struct fuzz_target fuzz_targets[];

/* Return the target of this name, or NULL. */
const struct fuzz_target *fuzz_find(const char *name);

/* Run one input and check the error, if there is one: its code, and a message
 * that is one line of UTF-8. Returns what the target does. */
int fuzz_one(const struct fuzz_target *t, const char *in, size_t n);

/* End the process with a message unless the condition holds. */
#define CHECK(condition) \
    ((condition) ? (void)0 : fuzz_fail(__FILE__, __LINE__, #condition))
_Noreturn void fuzz_fail(const char *file, int line, const char *what);

/* The path of a file in the directory of this process, which is removed at
 * exit. The last four results stay valid. */
const char *fuzz_path(const char *name);
/* Write such a file. Returns its path. */
const char *fuzz_file(const char *name, const void *data, size_t n);

/* ---- the targets ---- */

/* targets_file.c */
int fuzz_json(const char *in, size_t n, struct qwick_err *e);
int fuzz_safetensors(const char *in, size_t n, struct qwick_err *e);
int fuzz_header(const char *in, size_t n, struct qwick_err *e);
int fuzz_index(const char *in, size_t n, struct qwick_err *e);
int fuzz_gguf(const char *in, size_t n, struct qwick_err *e);
/* targets_model.c */
int fuzz_config(const char *in, size_t n, struct qwick_err *e);
int fuzz_generation(const char *in, size_t n, struct qwick_err *e);
int fuzz_session(const char *in, size_t n, struct qwick_err *e);
int fuzz_pooling(const char *in, size_t n, struct qwick_err *e);
int fuzz_manifest(const char *in, size_t n, struct qwick_err *e);
/* targets_lora.c */
int fuzz_adapter(const char *in, size_t n, struct qwick_err *e);
/* targets_text.c */
int fuzz_tokenizer(const char *in, size_t n, struct qwick_err *e);
int fuzz_tekken(const char *in, size_t n, struct qwick_err *e);
int fuzz_beside(const char *in, size_t n, struct qwick_err *e);
int fuzz_tokenize(const char *in, size_t n, struct qwick_err *e);
int fuzz_detokenize(const char *in, size_t n, struct qwick_err *e);
int fuzz_chat(const char *in, size_t n, struct qwick_err *e);
int fuzz_template(const char *in, size_t n, struct qwick_err *e);
int fuzz_stream(const char *in, size_t n, struct qwick_err *e);
int fuzz_calls(const char *in, size_t n, struct qwick_err *e);
/* targets_grammar.c */
int fuzz_regex(const char *in, size_t n, struct qwick_err *e);
int fuzz_gbnf(const char *in, size_t n, struct qwick_err *e);
int fuzz_lark(const char *in, size_t n, struct qwick_err *e);
int fuzz_schema(const char *in, size_t n, struct qwick_err *e);
/* targets_cli.c */
int fuzz_records(const char *in, size_t n, struct qwick_err *e);
int fuzz_options(const char *in, size_t n, struct qwick_err *e);
int fuzz_csv(const char *in, size_t n, struct qwick_err *e);
int fuzz_preset(const char *in, size_t n, struct qwick_err *e);
int fuzz_openai(const char *in, size_t n, struct qwick_err *e);
/* targets_serve.c */
int fuzz_http(const char *in, size_t n, struct qwick_err *e);
int fuzz_body(const char *in, size_t n, struct qwick_err *e);

#endif
