/* One forward pass as its threads see it. Families, forward.c, attention.c,
 * delta.c, mlp.c and products.c share these functions.
 *
 * Activations enter products in three types. With f32, they are not rounded,
 * and weights are widened to f32, in registers (skinny kernels) or in memory
 * (gemm_f32). With bf16, each activation that enters a product is rounded to
 * bf16, and quantized weights are widened to bf16. With int8, activations are
 * rounded to int8 in groups; only quantized weights have it. */
#ifndef MODEL_PASS_H
#define MODEL_PASS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/clock.h"
#include "base/par.h"
#include "model/model.h"
#include "model/scratch.h"

/* Passes of fewer tokens use f32, which takes no longer there than pairs of
 * bf16 numbers: such a pass waits for weights from memory. */
enum { PASS_PAIRS_MIN_TOKENS = 4 };

/* Consecutive rows of a pass with one adapter. */
struct lora_run {
    size_t lora, begin, end;
};
struct pass_runs {
    struct lora_run *v; /* [n] ascending; other rows have no adapter */
    size_t n;
};

/* One pass, shared by its threads. */
struct pass {
    const struct model *m;
    struct scratch *s;
    const struct pass_io *io;
    size_t n;      /* tokens */
    size_t n_kept; /* tokens that layer last_stored computes to the end; of the
                      others it computes only keys and values */
    bool single;      /* every span has one token */
    enum products products;
    bool bf16;   /* products with floats in bf16 */
    bool pairs;  /* f32 products with bf16 weights are done in bf16, with each
                    activation as the sum of two numbers */
    bool pairs8; /* matrices take int8 activations in pairs, if their pairs8
                    says so */
    bool attn16; /* attention's products in bf16, where tiles are large */
    bool *stop;  /* written by thread 0 in pass_stops */
    struct pass_runs runs[2]; /* of all tokens, and of the kept ones */
};

/* Rows [row, end) of weights that a thread is about to read; w NULL: none. */
struct ahead {
    const struct matrix *w;
    size_t row, end;
};

/* One thread of a pass. */
struct worker {
    const struct pass *p;
    const struct kernels *k;
    struct par_team *team;
    struct thread_scratch *own;
    int tid, n_threads;
    double since;          /* clock_ms() at the last pass_mark */
    struct ahead ahead[2]; /* after the next barrier */
    const struct pass_runs *runs; /* of the rows of the last pass_lora */
    bool stopped;          /* the pass must stop; all threads have the same
                              value */
};

/* Activations of the types that the weights of a product need. */
struct input {
    const float *f32;     /* [n, cols], rows scratch_ld(cols) apart */
    const uint16_t *bf16; /* [n, cols], rows gemm_bf16_ldx(cols) apart */
    size_t rest16; /* elements from a number in bf16 to the second number of its
                      pair; 0: there are no pairs */
    const uint32_t *order; /* of the elements of bf16 and q8 (matrix.order); f32
                              has them as they come */
    struct q8 q8;         /* q is NULL when absent */
    size_t q8_rows;       /* rows of q8 for each token: 1, or 2 for pairs */
};

/* One product: out[t, r] = w[r] . x[t] (+ bias[r]). */
struct product {
    const struct matrix *w;
    const float *bias;
    float *out; /* [n, w->rows], rows ld apart */
    size_t ld;
    bool add; /* to the values that out holds; rows <= d_model */
};

/* The tokens that a layer takes, as rows of the residual stream. */
static inline size_t pass_rows(const struct pass *p, size_t layer)
{
    return layer > p->m->last_stored ? p->n_kept : p->n;
}

/* The token of such a row. */
static inline size_t pass_token(const struct pass *p, size_t layer, size_t row)
{
    return layer > p->m->last_stored ? p->s->token[row] : row;
}

/* Normalise one row [d_model], as the family's norms do. out may be x. */
static inline void pass_norm(const struct worker *w, float *out, const float *x,
                             const float *weight)
{
    const struct model *m = w->p->m;
    m->normalise(out, x, weight, 1, m->config.d_model,
                 (float)m->config.rms_eps);
}

/* Add the time since the last mark to a part, if the caller of the pass asked
 * for times. */
static inline void pass_mark(struct worker *w, enum part part)
{
    if (!w->p->io->ms || w->tid)
        return;
    double now = clock_ms();
    w->p->io->ms[part] += now - w->since;
    w->since = now;
}

/* ---- ahead.c ------------------------------------------------------------ */

/* Set w->ahead to the weights that this thread will read first in the products
 * of n tokens with these matrices. Threads share the rows of all matrices as if
 * they were one matrix. Does nothing if memory does not limit the products. */
void pass_ahead_all(struct worker *w, const struct matrix *const *ws,
                    size_t n_ws, size_t n);

/* As pass_ahead_all, for pass_gated's products. */
void pass_ahead_gated(struct worker *w, const struct mlp *mlp, size_t n);

/* Prefetch a row of w->ahead. Returns 0 when none is left. For
 * par_barrier_idle. */
int pass_fetch_ahead(void *worker);

/* Wait for the team. The time before the barrier counts for `part`. While it
 * waits, this thread prefetches the rows in w->ahead. */
static inline void pass_barrier(struct worker *w, enum part part)
{
    pass_mark(w, part);
    par_barrier_idle(w->team, w->tid, w->ahead[0].w ? pass_fetch_ahead : NULL,
                     w);
    w->ahead[0].w = w->ahead[1].w = NULL;
    pass_mark(w, PART_BARRIERS);
}

/* ---- products.c --------------------------------------------------------- */

/* Return the type of n activations in a product with a matrix. It depends on n,
 * the matrix's format and the pass's products. */
enum act_type pass_act_type(const struct pass *p, const struct matrix *a,
                            size_t n);

/* A set of types of activations: bit `act_type` of set. group, paired: of
 * int8. */
struct act_types {
    unsigned set;
    const uint32_t *order; /* of the elements in bf16 and int8 (matrix.order) */
    size_t group;
    bool paired; /* if all matrices read such groups */
    bool pairs8; /* int8 activations in pairs, if any matrix takes them */
    bool pairs16; /* bf16 activations in pairs, likewise */
};

/* Return the types that products of n activations with the matrices ws[0..n_ws)
 * read. A matrix whose group size or order differs from an earlier one's reads
 * f32. */
struct act_types pass_act_types(const struct pass *p,
                                const struct matrix *const *ws, size_t n_ws,
                                size_t n);

/* Normalise x f32 [n, d_model], rows scratch_ld apart, and store it in these
 * types. weight NULL: x is stored without a norm. Where norms replace the
 * stream (blocks.norm_replaces), x also gets the result. Otherwise x does not
 * change. If every thread makes its own copy (n up to SCRATCH_PRIVATE_TOKENS),
 * this function has no barrier at its end. */
struct input pass_normalise(struct worker *w, float *x, size_t n,
                            const float *weight, struct act_types need);

/* Normalise the rows of s->proj, add them to x and multiply the sum by scale,
 * for n tokens. Ends with a barrier. */
void pass_add_normalised(struct worker *w, const float *weight, size_t n,
                         float scale);

/* Round n values of token t of an input to int8, from column `from` on. These
 * may be a part of the row's columns; from and n are multiples of q8_unit, unless
 * the row ends with them. last: the row ends with them, and is padded. */
void pass_round_q8(const struct kernels *k, const struct input *to, size_t t,
                   size_t from, const float *x, size_t n, bool last);

/* Convert rows f32 [n, m->cols], scratch_ld apart, to the type that m needs. x,
 * x16 and x8 are shared by all threads. May end with a barrier. */
struct input pass_round(struct worker *w, const float *x, uint16_t *x16,
                        const struct q8 *x8, size_t n, const struct matrix *m);

/* Compute rows [begin, end) of a product for n tokens. */
void pass_multiply(const struct worker *w, const struct product *p,
                   const struct input *x, size_t n, size_t begin, size_t end);

/* Show n rows of the input of a matrix to the caller of the pass: rows[0..n), or
 * the first n if rows is NULL. Every thread calls it, before the product. */
static inline void pass_observe(const struct worker *w,
                                const struct matrix *a, const struct input *x,
                                const uint32_t *rows, size_t n)
{
    const struct pass_io *io = w->p->io;
    if (io->on_input && n)
        io->on_input(io->on_input_ctx, a, x->f32, scratch_ld(a->cols), rows, n,
                     w->team, w->tid, w->n_threads);
}

/* Compute several products of the same x. Their rows are split among the
 * threads as if they were one matrix's. No barrier. */
void pass_multiply_all(const struct worker *w, const struct product *p,
                       size_t n_products, const struct input *x, size_t n);

/* Return the number of rows of a product that one thread must compute
 * together. */
size_t pass_row_unit(const struct worker *w, const struct matrix *a, size_t n);

/* The rows of a phase's products, divided among threads: with few tokens, one
 * part for each. With many, whichever thread is free takes the next piece, so
 * that a thread whose core is slow, or was lost for a while, delays the others
 * less. */
struct rows {
    size_t n, unit;
    size_t piece; /* rows of a piece; 0: one part for each thread */
    bool taken;   /* this thread has had its part */
};

/* Divide n rows in multiples of unit, for products of n_tokens tokens. */
struct rows rows_new(const struct worker *w, size_t n, size_t unit,
                     size_t n_tokens);

/* Set [*begin, *end) to this thread's next rows. Returns false when none are
 * left. */
bool rows_next(const struct worker *w, struct rows *r, size_t *begin,
               size_t *end);

/* Set [*begin, *end) to the rows of ws[i] that thread tid multiplies in a decode
 * step of one token, in a product with all of ws[0..n_ws). A mixture of experts
 * divides the active ones in another way. */
void pass_decode_rows(const struct matrix *const *ws, size_t n_ws, size_t i,
                      int tid, int n_threads, size_t *begin, size_t *end);

/* Return the type of x that a product of n tokens with a matrix reads. */
enum act_type pass_act_type_read(const struct pass *p, const struct matrix *a,
                                 const struct input *x, size_t n);

/* Return whether results can be rounded as they are computed, because the next
 * product, with the matrix `next`, reads them rounded, in the order in which
 * they come. If so, *to gets the buffer, x16 or x8, for the type that the
 * product reads; and f32, if the matrix's adapters read that. */
bool pass_rounds(const struct pass *p, const struct matrix *next, size_t n,
                 const float *f32, uint16_t *x16, const struct q8 *x8,
                 struct input *to);

/* Return an input of n rows: its row i is row rows[i] of x; n <=
 * SCRATCH_GATHER_ROWS. Consecutive rows, such as a single one, are used in
 * place. Other rows are copied to memory of the thread, because kernels need
 * rows at equal distances; the next call overwrites the copy. cols: elements of
 * a row. */
struct input pass_gather(const struct worker *w, const struct input *x,
                         const uint32_t *rows, size_t n, size_t cols);

/* Multiply rows [r, r + rows) of a by tokens [t, t + n) of x, read in this
 * type. The results go to out [n, rows]. */
void pass_multiply_block(const struct worker *w, const struct matrix *a,
                         const struct input *x, enum act_type act, float *out,
                         size_t r, size_t rows, size_t t, size_t n);

/* Write x as the sum of two bf16 numbers. */
void pass_split(const struct kernels *k, uint16_t *first, uint16_t *second,
                const float *x, size_t n);


/* ---- lora.c ------------------------------------------------------------- */

/* Find the runs of tokens with one adapter, once attention is planned. */
void pass_plan_lora(struct pass *p);

/* Return the set of types that the adapters of a matrix read, which itself
 * reads act. */
unsigned pass_lora_act_types(const struct pass *p, const struct matrix *w,
                             enum act_type act);

/* Prepare the products of x, n rows, with the matrices ws[0..n_ws): compute the
 * part of their adapters that is the same for all rows of a matrix. Call it
 * before them. Ends with a barrier if there are adapters; w->ahead is left for
 * the next one. */
void pass_lora(struct worker *w, const struct matrix *const *ws, size_t n_ws,
               const struct input *x, size_t n);

/* Add the adapters' part to a product that is done: p's rows and tokens, the
 * latter from row t of the input on. act: the type that the matrix read. */
void pass_add_lora(const struct worker *w, const struct row_product *p,
                   enum act_type act, size_t t);

/* ---- mlp.c -------------------------------------------------------------- */

/* Compute glu(gate(x), up(x)) for n tokens, in the type that down_proj needs.
 * Ends with a barrier. */
struct input pass_gated(struct worker *w, const struct mlp *mlp,
                        const struct input *xn, size_t n);

/* Store gate [n, rows] as columns [r, r + rows) of the input of a down_proj
 * that has ff columns, for the n tokens from t on, in each type that `to` has.
 * With int8, r and rows are whole groups. */
void pass_store_gated(const struct worker *w, const struct input *to, size_t ff,
                      const float *gate, size_t r, size_t rows, size_t t,
                      size_t n);

/* ---- moe.c -------------------------------------------------------------- */

/* Normalise the residual stream of n tokens (norm: the weights), apply a
 * mixture of experts, and add the result to the stream; with x->post_norm,
 * write the result, which is not normalised yet, to s->xn. Ends with a barrier,
 * at which the thread prefetches the first weights of layer `next`.
 *
 * A pass reads each active expert's weights once. A token's experts are added
 * in ascending order, so that results do not depend on the number of threads
 * or, with --exact, on the other tokens of the pass. */
void pass_experts(struct worker *w, const struct experts *x, const float *norm,
                  size_t n, size_t next);

/* Set w->ahead to the router's rows. */
void pass_ahead_experts(struct worker *w, const struct experts *x, size_t n);

/* ---- ple.c --------------------------------------------------------------- */

/* Compute the rows of per-layer embeddings of all tokens (s->ple) from their
 * embeddings. Does nothing in a model without. Ends with a barrier, at which
 * the thread prefetches the first weights of layer 0. */
void pass_ple_rows(struct worker *w);

/* Add the layer's part of the per-layer embeddings of n tokens to the residual
 * stream, and apply the layer's scale. Ends with a barrier; at an earlier one,
 * the thread prefetches the first weights of the next layer. */
void pass_add_ple(struct worker *w, size_t layer, size_t n);

/* ---- attention.c -------------------------------------------------------- */

/* Divide the pass's attention into tiles. Called once, before the first
 * layer. */
void pass_plan_attention(struct pass *p);

/* Compute attention of a layer up to o_proj: normalise the residual stream x
 * (norm: the weights), project it, apply norms and RoPE, store keys and values
 * in the caches, and attend. Returns the results of n tokens in the type that
 * o_proj reads. In layer last_stored these are the kept tokens, whose rows of x
 * move to the front. Returns early with an undefined result when the pass must
 * stop. */
struct input pass_attention(struct worker *w, size_t layer, const float *norm,
                            size_t n);

/* Move the residual stream of the kept tokens to the front, in their order. One
 * thread calls it in layer last_stored. */
void pass_keep_rows(const struct pass *p);

/* Whether the results of a layer's part before its last product are rounded to
 * bf16 at once: the matrix `out` and its adapters read them so, and in the
 * order in which they come. */
bool pass_mixes_bf16(const struct pass *p, const struct matrix *out, size_t n);

/* End the part of a layer before its last product: its threads have written n
 * rows of results to s->attn, or to s->attn16 (is_bf16) where `out`, the matrix
 * of that product, reads bf16. In layer last_stored, moves the residual stream
 * of the kept tokens to the front. Ends with barriers. Returns the results in
 * the type that `out` reads. */
struct input pass_mixed(struct worker *w, size_t layer,
                        const struct matrix *out, size_t n, bool is_bf16);

/* ---- shortconv.c --------------------------------------------------------- */

/* Compute a short convolution of a layer up to out_proj, as pass_delta does. */
struct input pass_shortconv(struct worker *w, size_t layer, const float *norm,
                            size_t n);

/* ---- delta.c ------------------------------------------------------------- */

/* Compute Gated DeltaNet of a layer up to out_proj: normalise the residual
 * stream x (norm: the weights), and advance the sequences' states by their
 * tokens. Returns what pass_attention returns. */
struct input pass_delta(struct worker *w, size_t layer, const float *norm,
                        size_t n);

/* ---- forward.c ---------------------------------------------------------- */

/* Wait for the team, like pass_barrier. Returns whether the pass must stop, and
 * stores that in w->stopped. Thread 0 checks it before the barrier. Every
 * thread gets the same answer, because thread 0 checks again only after another
 * barrier. Each layer calls this once, before it changes a cache. */
bool pass_stops(struct worker *w, enum part part);

/* Set w->ahead to the weights that layer i reads first, or to the head's if i
 * >= n_layers. */
void pass_ahead_layer(struct worker *w, size_t i);

#endif
