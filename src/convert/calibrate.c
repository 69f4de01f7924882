/* Running a model over texts, and collecting the moments of its inputs. */
#include "convert/calibrate.h"

#include <math.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/flag.h"
#include "base/os.h"
#include "engine/core/engine.h"
#include "model/lora.h"

/* An expert that fewer tokens have chosen gets the moments of all experts of
 * its layer: its own would have too few directions. */
enum { EXPERT_TOKENS = 64, SESSIONS = 64 };

/* Parts of the mean H_kk that are added to each (GPTQ, section 3). EMBED: of an
 * embedding, whose errors also reach the later layers. */
static const double DAMPING = 0.01, EMBED_DAMPING = 0.3;

/* An embedding that is also the head: how much more its role as an embedding
 * counts. */
static const float EMBED_PART = 2;

/* The inputs of a layer, and after these those of each expert: of gate and up
 * [n_experts], of down [n_experts], and all experts' together, one each. */
enum role {
    IN_MIX, /* q, k and v; or of a recurrent layer */
    IN_MIX_OUT,
    IN_GATED,
    IN_DOWN,
    IN_SHARED_GATED,
    IN_SHARED_DOWN,
    IN_PLE_GATE,
    IN_PLE_PROJ,
    N_LAYER_INPUTS
};

/* The inputs of the model, before those of layers. */
enum { IN_HEAD, IN_EMBED, IN_PLE_MODEL, N_MODEL_INPUTS };

static const struct {
    enum weight_id id;
    enum role in;
} inputs[] = {
    {WEIGHT_Q_PROJ, IN_MIX},
    {WEIGHT_K_PROJ, IN_MIX},
    {WEIGHT_V_PROJ, IN_MIX},
    {WEIGHT_QKV_PROJ, IN_MIX},
    {WEIGHT_DELTA_QKV, IN_MIX},
    {WEIGHT_DELTA_Z, IN_MIX},
    {WEIGHT_DELTA_B, IN_MIX},
    {WEIGHT_DELTA_A, IN_MIX},
    {WEIGHT_DELTA_QKVZ, IN_MIX},
    {WEIGHT_DELTA_BA, IN_MIX},
    {WEIGHT_O_PROJ, IN_MIX_OUT},
    {WEIGHT_DELTA_OUT, IN_MIX_OUT},
    {WEIGHT_GATE_PROJ, IN_GATED},
    {WEIGHT_UP_PROJ, IN_GATED},
    {WEIGHT_GATE_UP_PROJ, IN_GATED},
    {WEIGHT_DOWN_PROJ, IN_DOWN},
    {WEIGHT_SHARED_GATE_PROJ, IN_SHARED_GATED},
    {WEIGHT_SHARED_UP_PROJ, IN_SHARED_GATED},
    {WEIGHT_SHARED_DOWN_PROJ, IN_SHARED_DOWN},
    {WEIGHT_PLE_GATE, IN_PLE_GATE},
    {WEIGHT_PLE_PROJ, IN_PLE_PROJ},
};

/* A matrix that shows an input, and the index of its moments. */
struct shown {
    const struct matrix *w;
    size_t at;
};

struct calibration {
    struct qwick_engine *eng;
    struct moments *inputs; /* [n] without columns: the model lacks it */
    size_t n;
    size_t *first;       /* [n_layers] the first one of a layer */
    struct shown *shown; /* [n_shown] ascending by w */
    size_t n_shown;
    struct moments_room room;
    struct calibration_text *texts;
    size_t n_texts, n_tokens;
    size_t n_done; /* tokens */
    const struct qwick_quantize_options *o;
};

/* ---- places -------------------------------------------------------------- */

static void put_shown(struct calibration *c, const struct matrix *w, size_t at)
{
    if (!w->rows)
        return;
    c->shown[c->n_shown++] = (struct shown){w, at};
    c->inputs[at].cols = w->cols;
}

static void put_layer(struct calibration *c, const struct layer *l, size_t at,
                      bool recurrent)
{
    const struct matrix *ws[LAYER_INPUTS];
    const struct experts *x = &l->experts;
    const struct matrix *const of[N_LAYER_INPUTS] = {
        [IN_MIX_OUT] = recurrent ? &l->delta.out : &l->attn.o_proj,
        [IN_GATED] = &l->mlp.gate_proj,
        [IN_DOWN] = &l->mlp.down_proj,
        [IN_SHARED_GATED] = &x->shared.gate_proj,
        [IN_SHARED_DOWN] = &x->shared.down_proj,
        [IN_PLE_GATE] = &l->ple.gate,
        [IN_PLE_PROJ] = &l->ple.proj};
    if (layer_inputs(l, ws))
        put_shown(c, ws[0], at + IN_MIX);
    for (size_t i = IN_MIX_OUT; i < N_LAYER_INPUTS; i++)
        put_shown(c, of[i], at + i);
    for (size_t e = 0; e < x->n; e++) {
        put_shown(c, &x->gate[e], at + N_LAYER_INPUTS + e);
        put_shown(c, &x->down[e], at + N_LAYER_INPUTS + x->n + e);
    }
}

static int by_matrix(const void *a, const void *b)
{
    const struct shown *x = a, *y = b;
    return (x->w > y->w) - (x->w < y->w);
}

/* Find all inputs of the model. */
static int find_inputs(struct calibration *c, struct qwick_err *e)
{
    const struct model *m = &c->eng->model;
    size_t n_layers = m->config.n_layers;
    c->first = calloc(n_layers + 1, sizeof *c->first);
    if (!c->first)
        return err_oom(e, n_layers * sizeof *c->first);
    c->n = N_MODEL_INPUTS;
    for (size_t i = 0; i < n_layers; i++) {
        c->first[i] = c->n;
        c->n += N_LAYER_INPUTS + 2 * (m->layers[i].experts.n + 1);
    }
    c->inputs = calloc(c->n, sizeof *c->inputs);
    c->shown = calloc(c->n, sizeof *c->shown);
    if (!c->inputs || !c->shown)
        return err_oom(e, c->n * sizeof *c->inputs);
    put_shown(c, &m->head, IN_HEAD);
    c->inputs[IN_EMBED].cols = m->embed.cols;
    put_shown(c, &m->ple.model_proj, IN_PLE_MODEL);
    for (size_t i = 0; i < n_layers; i++)
        put_layer(c, &m->layers[i], c->first[i], m->config.layers[i].recurrent);
    qsort(c->shown, c->n_shown, sizeof *c->shown, by_matrix);
    return 0;
}

/* ---- memory -------------------------------------------------------------- */

/* The columns of blocks of an input if they are at most `most`: equal parts. */
static size_t divide(size_t cols, size_t most)
{
    size_t n = (cols + most - 1) / most;
    size_t block = (cols + n - 1) / n;
    return most == 1 ? 1 : n == 1 ? cols : (block + 255) / 256 * 256;
}

static size_t bytes_of(const struct calibration *c, size_t most)
{
    size_t n = 0;
    for (size_t i = 0; i < c->n; i++) {
        size_t cols = c->inputs[i].cols;
        if (cols)
            n += moments_floats(cols, divide(cols, most));
        n += most > 1 ? cols * FEEDBACK_UNIT : 0; /* near */
    }
    return n * sizeof(float);
}

static void note(const struct calibration *c, const char *line)
{
    if (c->o->note)
        c->o->note(c->o->note_ctx, line);
}

/* Begin all moments, with the largest blocks that fit the memory. */
static int reserve(struct calibration *c, struct qwick_err *e)
{
    static const size_t sizes[] = {4096, 2048, 1024, 512, 256, 1};
    size_t limit =
        c->o->calibrate_memory ? c->o->calibrate_memory : (size_t)4 << 30;
    size_t i = 0, widest = 0, available = os_available_memory();
    char line[120];
    while (sizes[i] > 1 && bytes_of(c, sizes[i]) > limit)
        i++;
    size_t bytes = bytes_of(c, sizes[i]);
    if (available && bytes > available)
        return err_set(e, QWICK_ERR_MEMORY,
                       "calibrate: needs %.1f GB for moments, %.1f GB are "
                       "available: allow less with --calibrate-memory",
                       (double)bytes / 1e9, (double)available / 1e9);
    if (i > 0) {
        snprintf(line, sizeof line,
                 sizes[i] == 1 ? "calibrate: moments of single columns only, "
                                 "for want of memory"
                               : "calibrate: moments in blocks of up to %zu "
                                 "columns, in %.1f GB",
                 sizes[i], (double)bytes / 1e9);
        note(c, line);
    }
    for (size_t j = 0; j < c->n; j++) {
        size_t cols = c->inputs[j].cols;
        widest = cols > widest ? cols : widest;
        if (cols &&
            moments_init(&c->inputs[j], cols, divide(cols, sizes[i]), e))
            return -1;
    }
    return moments_room_init(&c->room, c->eng->model.k, widest,
                             par_threads(c->eng->pool), e);
}

/* ---- passes -------------------------------------------------------------- */

static void on_input(void *ctx, const struct matrix *w, const float *x,
                     size_t ld, const uint32_t *rows, size_t n,
                     struct par_team *team, int tid, int n_threads)
{
    struct calibration *c = ctx;
    const struct shown key = {.w = w};
    const struct shown *s =
        bsearch(&key, c->shown, c->n_shown, sizeof *c->shown, by_matrix);
    for (size_t i = 0, step; s && i < n; i += step) {
        step = n - i < MOMENTS_ROWS ? n - i : MOMENTS_ROWS;
        moments_add(&c->inputs[s->at], &c->room, rows ? x : x + i * ld, ld,
                    rows ? rows + i : NULL, step, team, tid, n_threads);
    }
}

/* The next texts that fit a pass. */
static size_t fill_pass(const struct calibration *c, size_t at,
                        struct qwick_session *const *sessions,
                        struct qwick_step *steps)
{
    size_t n = 0, n_tokens = 0;
    for (; n < SESSIONS && at + n < c->n_texts; n++) {
        const struct calibration_text *t = &c->texts[at + n];
        n_tokens += t->n;
        if (n && n_tokens > MOMENTS_ROWS)
            break;
        steps[n] =
            (struct qwick_step){sessions[n], t->tokens, t->n, QWICK_ROWS_ALL};
    }
    return n;
}

static int run_passes(struct calibration *c, struct qwick_session **sessions,
                      struct qwick_err *e)
{
    struct qwick_step steps[SESSIONS];
    const struct qwick_quantize_options *o = c->o;
    size_t n_ctx = qwick_engine_info(c->eng)->n_ctx_max;
    for (size_t i = 0; i < SESSIONS; i++)
        if (session_create(&sessions[i], c->eng,
                           n_ctx < MOMENTS_ROWS ? n_ctx : MOMENTS_ROWS, e))
            return -1;
    for (size_t at = 0, n; at < c->n_texts; at += n) {
        n = fill_pass(c, at, sessions, steps);
        if (flag_is_set(o->interrupt))
            return err_set(e, QWICK_ERR_INTERRUPTED, "interrupted");
        if (qwick_engine_step(c->eng, steps, n, (enum qwick_output)0, e))
            return -1;
        for (size_t i = 0; i < n; i++) {
            c->n_done += steps[i].n;
            if (qwick_session_rollback(steps[i].session, 0, e))
                return -1;
        }
        if (o->calibrating)
            o->calibrating(o->progress_ctx, c->n_done, c->n_tokens);
    }
    return 0;
}

static bool is_tied(const struct calibration *c)
{
    const struct model *m = &c->eng->model;
    return m->head.data[0] == m->embed.data[0];
}

/* The moments of the embedding, which those of the head take in if they are the
 * same matrix. */
static int read_embedding(struct calibration *c, struct qwick_err *e)
{
    struct moments *m = &c->inputs[IN_EMBED], *head = &c->inputs[IN_HEAD];
    if (!c->eng->model.config.n_layers)
        return 0;
    if (moments_of_readers(m, &c->room, c->eng->pool, &c->eng->model.layers[0],
                           e))
        return -1;
    if (is_tied(c) && head->cols == m->cols && m->n_tokens) {
        moments_blend(head, m, EMBED_PART);
        moments_free(m);
    }
    return 0;
}

static int collect(struct calibration *c, struct qwick_err *e)
{
    struct qwick_session *sessions[SESSIONS] = {NULL};
    for (size_t i = 0; i < c->n_texts; i++)
        c->n_tokens += c->texts[i].n;
    c->eng->on_input = on_input;
    c->eng->on_input_ctx = c;
    int rc = run_passes(c, sessions, e) || read_embedding(c, e) ? -1 : 0;
    c->eng->on_input = NULL;
    for (size_t i = 0; i < SESSIONS; i++)
        qwick_session_free(sessions[i]);
    moments_room_free(&c->room);
    return rc;
}

/* Sums that are not finite would spoil each matrix that reads the input, or be
 * reported as a fault of its weights. */
static int check_sums(const struct calibration *c, struct qwick_err *e)
{
    for (size_t i = 0; i < c->n; i++)
        for (size_t j = 0; j < c->inputs[i].cols; j++)
            if (!isfinite(c->inputs[i].diagonal[j]))
                return err_set(e, QWICK_ERR_MODEL,
                               "%s: calibrate: inputs of matrices are not "
                               "finite or too large: the weights hold NaN, "
                               "infinities or values too large",
                               checkpoint_dir(c->eng->ck));
    return 0;
}

/* ---- experts of few tokens ----------------------------------------------- */

/* Give the experts of a role, inputs [at, at + n), that few tokens have chosen
 * no moments, and make those of all experts, at `all`. Returns their number. */
static size_t pool_experts(struct calibration *c, size_t at, size_t n,
                           size_t all, struct qwick_err *e)
{
    size_t n_few = 0;
    for (size_t i = 0; i < n; i++)
        n_few += c->inputs[at + i].n_tokens < EXPERT_TOKENS;
    if (!n_few || moments_init(&c->inputs[all], c->inputs[at].cols,
                               c->inputs[at].block, e))
        return n_few;
    for (size_t i = 0; i < n; i++) {
        struct moments *m = &c->inputs[at + i];
        moments_merge(&c->inputs[all], m);
        if (m->n_tokens < EXPERT_TOKENS)
            moments_free(m);
    }
    return n_few;
}

static int pool_all(struct calibration *c, struct qwick_err *e)
{
    const struct model *m = &c->eng->model;
    size_t n_few = 0, n_experts = 0;
    char line[160];
    *e = (struct qwick_err){0};
    for (size_t i = 0; i < m->config.n_layers; i++) {
        size_t n = m->layers[i].experts.n;
        size_t at = c->first[i] + N_LAYER_INPUTS, all = at + 2 * n;
        n_experts += n;
        n_few += n ? pool_experts(c, at, n, all, e) : 0;
        if (n)
            pool_experts(c, at + n, n, all + 1, e);
        if (e->code)
            return -1;
    }
    if (n_few) {
        snprintf(line, sizeof line,
                 "calibrate: %zu of %zu experts got fewer than %d tokens: they "
                 "take the moments of all experts of their layer",
                 n_few, n_experts, EXPERT_TOKENS);
        note(c, line);
    }
    return 0;
}

/* ---- factors, on all threads --------------------------------------------- */

struct finish {
    struct calibration *c;
    size_t embed; /* the index of the embedding's moments */
    atomic_bool failed;
    struct qwick_err err;
};

static void finish_body(void *ctx, struct par_team *team, int tid,
                        int n_threads)
{
    struct finish *f = ctx;
    size_t begin, end;
    (void)tid, (void)n_threads;
    while (par_next(team, f->c->n, 1, &begin, &end)) {
        struct qwick_err e;
        struct moments *m = &f->c->inputs[begin];
        double damping = begin == f->embed ? EMBED_DAMPING : DAMPING;
        if (m->factor && m->n_tokens && !flag_is_set(f->c->o->interrupt) &&
            moments_finish(m, f->c->eng->model.k, damping, &e) &&
            !atomic_exchange(&f->failed, true))
            f->err = e;
    }
}

static int finish_all(struct calibration *c, struct qwick_err *e)
{
    struct finish f = {.c = c, .embed = is_tied(c) ? IN_HEAD : IN_EMBED};
    par_run(c->eng->pool, finish_body, &f);
    if (f.failed && e)
        *e = f.err;
    if (!f.failed && flag_is_set(c->o->interrupt))
        return err_set(e, QWICK_ERR_INTERRUPTED, "interrupted");
    return f.failed ? -1 : 0;
}

/* ---- */

static void calibrate_log(void *ctx, enum qwick_log_level level,
                          const char *line)
{
    const struct qwick_quantize_options *o = ctx;
    (void)level;
    if (o->note)
        o->note(o->note_ctx, line);
}

static int open_engine(struct calibration *c, const char *src,
                       struct qwick_err *e)
{
    const struct qwick_quantize_options *o = c->o;
    struct qwick_engine_options eo = qwick_engine_defaults();
    eo.model = src;
    eo.place = o->place;
    eo.threads = o->threads;
    eo.kv = QWICK_KV_F32;
    eo.prefill_chunk = MOMENTS_ROWS;
    eo.loras = o->loras;
    eo.n_loras = o->n_loras;
    eo.log = calibrate_log;
    eo.log_ctx = (void *)(uintptr_t)o;
    if (qwick_engine_open(&c->eng, &eo, e) ||
        (o->n_calibrate && engine_need_tokenizer(c->eng, e)))
        return -1;
    if (c->eng->model.config.bidirectional)
        return err_set(e, QWICK_ERR_MODEL,
                       "%s: is a text encoder, which cannot be calibrated",
                       checkpoint_dir(c->eng->ck));
    return 0;
}

int calibration_check(const struct qwick_quantize_options *o,
                      struct qwick_err *e)
{
    enum { MAX_SAMPLES = 4096 };
    bool texts = o->n_calibrate || o->calibrate_self;
    if (o->n_calibrate && o->calibrate_self)
        return err_set(e, QWICK_ERR_USAGE,
                       "calibrate: with files, or with the model's own texts, "
                       "not both");
    if (o->calibrate_self < 0 || o->calibrate_self > MAX_SAMPLES)
        return err_set(e, QWICK_ERR_USAGE,
                       "calibrate self: must be from 1 to %d, is %d",
                       MAX_SAMPLES, o->calibrate_self);
    if (o->scales == QWICK_SCALES_FEEDBACK && !texts)
        return err_set(e, QWICK_ERR_USAGE,
                       "scales: feedback needs texts for calibration");
    return 0;
}

int calibration_open(struct calibration **out, const char *src,
                     const struct qwick_quantize_options *o,
                     struct qwick_err *e)
{
    struct qwick_err why;
    struct calibration *c = calloc(1, sizeof *c);
    *out = NULL;
    if (!c)
        return err_oom(e, sizeof *c);
    c->o = o;
    e = e ? e : &why;
    if (open_engine(c, src, e) ||
        calibration_read(&c->texts, &c->n_texts, c->eng, o, e) ||
        find_inputs(c, e) || reserve(c, e) || collect(c, e) ||
        check_sums(c, e) || pool_all(c, e) || finish_all(c, e)) {
        calibration_close(c);
        return -1;
    }
    *out = c;
    return 0;
}

void calibration_close(struct calibration *c)
{
    if (!c)
        return;
    for (size_t i = 0; i < c->n && c->inputs; i++)
        moments_free(&c->inputs[i]);
    moments_room_free(&c->room);
    free(c->inputs);
    free(c->first);
    free(c->shown);
    calibration_free_texts(c->texts, c->n_texts);
    qwick_engine_close(c->eng);
    free(c);
}

const struct calibration_text *calibration_texts(const struct calibration *c,
                                                 size_t *n)
{
    *n = c->n_texts;
    return c->texts;
}

struct qwick_engine *calibration_engine(const struct calibration *c)
{
    return c->eng;
}

/* The index of the moments of an expert's matrix; of all experts', if it has
 * none. SIZE_MAX: the weight is none of an expert. */
static size_t find_expert(const struct calibration *c,
                          const struct weight_ref *ref, size_t expert)
{
    size_t n = c->eng->model.layers[ref->layer].experts.n;
    bool one = ref->id >= WEIGHT_EXPERT_GATE && ref->id <= WEIGHT_EXPERT_DOWN;
    bool down = ref->id == WEIGHT_EXPERT_DOWN || ref->id == WEIGHT_EXPERTS_DOWN;
    size_t at = c->first[ref->layer] + N_LAYER_INPUTS;
    expert = one ? ref->expert : expert;
    if (ref->id < WEIGHT_EXPERT_GATE || ref->id > WEIGHT_EXPERTS_DOWN ||
        expert >= n)
        return SIZE_MAX;
    size_t own = at + (down ? n : 0) + expert;
    return c->inputs[own].n_tokens ? own : at + 2 * n + down;
}

static size_t find_index(const struct calibration *c,
                         const struct weight_ref *ref, size_t expert)
{
    const struct model *m = &c->eng->model;
    if (ref->id == WEIGHT_EMBED)
        return is_tied(c) ? IN_HEAD : IN_EMBED;
    if (ref->id == WEIGHT_HEAD)
        return IN_HEAD;
    if (ref->id == WEIGHT_PLE_MODEL_PROJ)
        return IN_PLE_MODEL;
    if (ref->layer >= m->config.n_layers)
        return SIZE_MAX;
    for (size_t i = 0; i < sizeof inputs / sizeof *inputs; i++)
        if (inputs[i].id == ref->id)
            return c->first[ref->layer] + inputs[i].in;
    return find_expert(c, ref, expert);
}

const struct moments *calibration_find(const struct calibration *c,
                                       const char *tensor, size_t expert)
{
    struct weight_ref ref;
    const struct names *names = c->eng->model.weights.naming.names;
    if (!lora_find_weight(&ref, names, tensor))
        return NULL;
    size_t i = find_index(c, &ref, expert);
    return i != SIZE_MAX && c->inputs[i].n_tokens ? &c->inputs[i] : NULL;
}
