/* What `bench` found out, and its output as a table, JSON, CSV or a page. */
#ifndef CLI_BENCH_REPORT_H
#define CLI_BENCH_REPORT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "cli/bench/bench_measure.h"
#include "cli/report/html.h"
#include "cli/report/machine.h"
#include "cli/report/report.h"
#include "file/json.h"
#include "qwick.h"

/* Depths for which the limit of decode is computed. */
enum { BENCH_DEPTHS = 33 };

/* A model with its lines. It outlives its engine. */
struct bench_model {
    char *name, *weights_dtype, *kv_dtype, *isa, *cpu, *gemm;
    char identity[33]; /* qwick_engine_identity in hexadecimal */
    size_t n_params, decode_bytes, kv_token_bytes;
    size_t gen; /* decode steps of a run, as its context allows */
    double huge_share; /* of the mapped weights; NAN: not measured yet */
    struct bench_line *lines;
    size_t n_lines;
    const struct json_value *was; /* its object in the file of --compare; NULL:
                                     none. Borrowed */
    /* depth i: i / (BENCH_DEPTHS - 1) of the largest depth, and the bytes that
       a token reads there */
    double depth[BENCH_DEPTHS], depth_bytes[BENCH_DEPTHS];
};

/* Options that change what is measured. */
struct bench_settings {
    struct bench_plan plan;
    bool exact, preload;
    const char *numa; /* "off" unless it is set */
    size_t prefill_chunk;
};

struct bench_baseline;

struct bench_report {
    struct machine machine;
    struct bench_settings set;
    struct bench_model *models;
    size_t n_models;
    struct bench_baseline *was; /* NULL: no --compare */
};

/* Copy the facts about an engine. max_depth: largest depth that is measured.
 * Returns 0, or -1 with *e set. */
int bench_model_init(struct bench_model *m, struct qwick_engine *eng,
                     size_t max_depth, struct qwick_err *e);
void bench_model_free(struct bench_model *m);

/* The unit of a line's rate and limit, in billions. */
const char *bench_unit(const struct bench_model *m, const struct bench_line *l);

/* ---- bench_print.c ---- */

/* Each function appends to o. They write nothing in formats that lack this
 * part. */

/* The beginning, before all models: machine and date; CSV: the names of the
 * columns. */
void bench_put_start(struct buf *o, const struct bench_report *r,
                     enum report_format f);
/* The lines about a model, and the head of its table. */
void bench_put_head(struct buf *o, const struct bench_report *r,
                    const struct bench_model *m, enum report_format f);
/* A row of the table; without a line, the names of its columns. */
void bench_put_row(struct buf *o, const struct bench_report *r,
                   const struct bench_model *m, const struct bench_line *l,
                   enum report_format form);
/* What is known of the model, its settings and the machine. Returns the number
 * of facts, at most BENCH_FACTS. */
enum { BENCH_FACTS = 23 };
size_t bench_model_facts(struct fact *out, const struct bench_report *r,
                         const struct bench_model *m);
/* A table of the parts of a pass and their times. */
void bench_put_parts(struct buf *o, const struct bench_line *l, bool md);
/* All lines of a model as one JSON object on a line. */
void bench_put_json(struct buf *o, const struct bench_report *r,
                    const struct bench_model *m);

/* ---- bench_html.c ---- */

/* Compose the page of the report. */
void bench_page(struct html *h, const struct bench_report *r);

/* ---- bench_compare.c ---- */

/* Read the file of --compare: what `bench --json` printed. Returns 0, or an exit
 * status after printing a message. */
int bench_baseline_open(struct bench_baseline **out, const char *path);
void bench_baseline_free(struct bench_baseline *b);

/* Check that the file is about this machine, model and settings. With any,
 * differences are warnings, but a file about other models than one is still
 * refused. Sets m->was. Returns 0, or an exit status after printing a message.
 */
int bench_baseline_match(const struct bench_report *r, struct bench_model *m,
                         bool any);

/* Read the file's row for each line that will be measured; only their test, n,
 * batch and threads are needed. Returns 0, or an exit status after printing a
 * message. */
int bench_baseline_rows(const struct bench_report *r,
                        const struct bench_model *m, struct bench_line *lines,
                        size_t n);

/* Print a message for each line whose share of its limit, divided by that in
 * the file, is below `ratio`. Returns 1 if there is one, else 0. */
int bench_baseline_gate(const struct bench_report *r, double ratio);

#endif
