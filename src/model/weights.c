#include "model/weights.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "kernel/kernel.h"

int weights_open(struct weights *w, const struct st_set *set, const char *path,
                 const struct names *const *schemes, const struct kernels *k,
                 bool exact, struct qwick_err *e)
{
    *w = (struct weights){.set = set, .path = path};
    for (size_t i = 0; i < N_FORMATS; i++)
        formats[i]->fill(&w->ops[i], k, exact);
    w->naming = names_choose(schemes, set);
    w->used = calloc(st_count(set) + 1, sizeof *w->used);
    w->refs = calloc(st_count(set) + 1, sizeof *w->refs);
    return w->used && w->refs ? 0
                              : err_oom(e, st_count(set) * sizeof *w->refs);
}

size_t weights_copied_bytes(const struct weights *w)
{
    size_t sum = 0;
    for (size_t i = 0; i < w->n_copies; i++)
        sum += w->copies[i].n_bytes;
    return sum;
}

void weights_drop_copies(struct weights *w)
{
    for (size_t i = 0; i < w->n_copies; i++)
        free(w->copies[i].data);
    free(w->copies);
    w->copies = NULL;
    w->n_copies = w->cap_copies = 0;
}

int weights_check_factors(const struct weights *w, struct qwick_err *e)
{
    static const char tail[] = ".scale";
    char name[NAMES_BYTES];
    for (size_t i = 0; i < st_count(w->set); i++) {
        const struct st_tensor *t = st_at(w->set, i), *of;
        size_t len = strlen(t->name), stem = len - (sizeof tail - 1);
        if (w->used[i] || len < sizeof tail || strcmp(t->name + stem, tail))
            continue;
        int n = snprintf(name, sizeof name, "%.*s.weight", (int)stem, t->name);
        if (n < 0 || (size_t)n >= sizeof name)
            continue;
        of = st_find(w->set, name);
        if (of && w->used[of - st_at(w->set, 0)])
            return err_set(e, QWICK_ERR_MODEL,
                           "%s: %s: tensor %.200s: a scale of weights in %s is "
                           "not supported",
                           w->path, t->file, t->name, dtype_name(of->dtype));
    }
    return 0;
}

void weights_drop_pages(const struct weights *w, const void *p, size_t n)
{
    const struct map *map;
    for (size_t i = 0; (map = st_map(w->set, i)); i++)
        map_drop(map, p, n);
}

void weights_close(struct weights *w)
{
    for (size_t i = 0; i < w->n_vectors; i++)
        free(w->vectors[i]);
    weights_drop_copies(w);
    for (size_t i = 0; i < w->n_orders; i++)
        free(w->orders[i].columns);
    free(w->orders);
    free(w->vectors);
    free(w->matrices);
    free(w->used);
    free(w->refs);
    w->orders = NULL;
    w->n_orders = 0;
    w->vectors = NULL;
    w->matrices = NULL;
    w->used = NULL;
    w->refs = NULL;
    w->n_vectors = w->n_matrices = 0;
}

static void shape_text(const size_t *dims, size_t rank, char *out, size_t n)
{
    size_t at = 0;
    out[0] = '\0';
    for (size_t i = 0; i < rank && at < n; i++) {
        int len = snprintf(out + at, n - at, "%s%zu", i ? ", " : "", dims[i]);
        at += len > 0 ? (size_t)len : 0;
    }
}

static void missing(const struct weights *w, const char *name,
                    struct qwick_err *e)
{
    err_set(e, QWICK_ERR_MODEL, "%s: tensor %s: missing", w->path, name);
}

/* The tensor, if it has the shape dims[0..rank). why ends the error about
 * another one: "", or the parameters that the shape follows from. */
const struct st_tensor *weights_find_dims(struct weights *w, const char *name,
                                          const size_t *dims, size_t rank,
                                          const char *why, struct qwick_err *e)
{
    const struct st_tensor *t = st_find(w->set, name);
    if (!t) {
        missing(w, name, e);
        return NULL;
    }
    if (t->rank != rank || memcmp(t->shape, dims, rank * sizeof *dims) != 0) {
        char got[128], want[128];
        shape_text(t->shape, t->rank, got, sizeof got);
        shape_text(dims, rank, want, sizeof want);
        err_set(e, QWICK_ERR_MODEL,
                "%s: %s: tensor %s: shape [%s] in the file, [%s] by %s%s",
                w->path, t->file, name, got, want, w->naming.names->config,
                why);
        return NULL;
    }
    return t;
}

int weights_need_float(const struct weights *w, const struct st_tensor *t,
                       const char *what, struct qwick_err *e)
{
    return t->dtype < DT_N_FLOAT
               ? 0
               : err_set(e, QWICK_ERR_MODEL,
                         "%s: %s: tensor %s: dtype %s is not supported for %s "
                         "(BF16, F16 and F32 are)",
                         w->path, t->file, t->name, dtype_name(t->dtype), what);
}

/* Count a tensor once. The sums cannot wrap: what is mapped has less than 2^48
 * bytes, and a byte holds four parameters at most. */
bool weights_use(struct weights *w, const struct st_tensor *t, size_t n_params,
                 int bits)
{
    size_t i = (size_t)(t - st_at(w->set, 0));
    if (w->used[i])
        return false;
    w->used[i] = w->binds_table ? WEIGHT_TABLE : WEIGHT_READ;
    w->n_params += n_params;
    w->params_by_bits[bits] += n_params;
    *(w->binds_table ? &w->n_table_bytes : &w->n_bytes) += t->n_bytes;
    w->n_table_params += w->binds_table ? n_params : 0;
    return true;
}

/* Whether the checkpoint has the tensor, or its numbers in MXFP4, in a form of
 * compressed-tensors, or in AWQ or GPTQ, whose name it then becomes. */
static bool has_tensor(const struct weights *w, char name[NAMES_BYTES])
{
    static const char *const tails[] = {NAMES_BLOCKS, NAMES_PACKED,
                                        NAMES_QWEIGHT};
    char other[NAMES_BYTES];
    if (st_find(w->set, name))
        return true;
    for (size_t i = 0; i < sizeof tails / sizeof *tails; i++) {
        int n = snprintf(other, sizeof other, "%.*s%s", (int)names_module(name),
                         name, tails[i]);
        if (n < 0 || (size_t)n >= sizeof other || !st_find(w->set, other))
            continue;
        memcpy(name, other, (size_t)n + 1);
        return true;
    }
    return false;
}

/* The name of a weight: the first variant that the checkpoint has, else the
 * first. */
static bool find_name(const struct weights *w, struct weight_ref ref, char *out)
{
    for (size_t v = 0;
         names_expand(out, w->naming.names, w->naming.prefix, ref, v); v++)
        if (has_tensor(w, out))
            return true;
    names_expand(out, w->naming.names, w->naming.prefix, ref, 0);
    return false;
}

void weights_use_copy(struct weights *w, const struct st_tensor *t)
{
    enum weight_use *use = &w->used[t - st_at(w->set, 0)];
    if (*use == WEIGHT_READ)
        w->n_bytes -= t->n_bytes;
    *use = WEIGHT_COPIED;
}

void weights_find_ignored(const struct weights *w, size_t n_layers, char *out)
{
    static const enum weight_id ids[] = {
        WEIGHT_Q_NORM,     WEIGHT_K_NORM,    WEIGHT_ATTN_POST_NORM,
        WEIGHT_Q_BIAS,     WEIGHT_K_BIAS,    WEIGHT_V_BIAS,
        WEIGHT_O_BIAS,     WEIGHT_GATE_BIAS, WEIGHT_UP_BIAS,
        WEIGHT_DOWN_BIAS,  WEIGHT_SINKS,     WEIGHT_MLP_POST_NORM,
        WEIGHT_ROUTER_BIAS};
    for (size_t i = 0; i < sizeof ids / sizeof *ids; i++) {
        bool used = false, found = false;
        for (size_t layer = 0; layer < n_layers && !used; layer++) {
            char name[NAMES_BYTES];
            const struct st_tensor *t =
                find_name(w, (struct weight_ref){ids[i], layer, 0}, name)
                    ? st_find(w->set, name)
                    : NULL;
            used = t && w->used[t - st_at(w->set, 0)] != WEIGHT_UNUSED;
            if (t && !found)
                memcpy(out, name, sizeof name);
            found = found || t;
        }
        if (found && !used)
            return;
    }
    *out = '\0';
}

bool weights_has(const struct weights *w, struct weight_ref ref)
{
    char name[NAMES_BYTES];
    return find_name(w, ref, name);
}

bool weights_in_blocks(const struct weights *w, struct weight_ref ref)
{
    char name[NAMES_BYTES];
    return find_name(w, ref, name) &&
           strcmp(name + names_module(name), NAMES_BLOCKS) == 0;
}

/* Note which weight the tensor `name` is, if there is one. */
static void set_ref(struct weights *w, const char *name, struct weight_ref ref)
{
    const struct st_tensor *t = st_find(w->set, name);
    if (t)
        w->refs[t - st_at(w->set, 0)] = ref;
}

/* Replace a matrix by a copy that products take. */
static int repack(struct weights *w, struct matrix *m, struct qwick_err *e)
{
    if (m->format->repack(w, m, e))
        return -1;
    size_t i = 0;
    while (formats[i] != &format_affine)
        i++;
    m->format = formats[i];
    m->ops = &w->ops[i];
    w->n_bytes += matrix_bytes(m);
    return 0;
}

int weights_named(struct weights *w, struct matrix *out, const char *name,
                  const struct matrix_shape *shape, bool *found,
                  struct qwick_err *e)
{
    *found = false;
    for (size_t i = 0; i < N_FORMATS && !*found; i++) {
        if (formats[i]->bind(w, out, name, shape, found, e))
            return -1;
        if (*found) {
            out->step = 1;
            out->format = formats[i];
            out->ops = &w->ops[i];
        }
    }
    bool stored = !w->repacks || w->binds_table;
    return *found && !stored && out->format->repack ? repack(w, out, e) : 0;
}

/* Whether rows of a weight are read or multiplied by themselves, beside the
 * products that put activations into the order of its columns. */
static bool takes_no_order(enum weight_id id)
{
    return id == WEIGHT_EMBED || id == WEIGHT_HEAD || id == WEIGHT_CLASSES ||
           id == WEIGHT_ROUTER || id == WEIGHT_SHARED_GATE;
}

static int bind(struct weights *w, struct matrix *out,
                const struct matrix_shape *shape, struct weight_ref ref,
                struct qwick_err *e)
{
    char name[NAMES_BYTES];
    bool found;
    find_name(w, ref, name);
    if (weights_named(w, out, name, shape, &found, e))
        return -1;
    if (found) {
        set_ref(w, name, ref);
        return out->order && takes_no_order(ref.id)
                   ? err_set(e, QWICK_ERR_MODEL,
                             "%s: tensor %s: its g_idx has another order of "
                             "columns than the matrix, which is not supported "
                             "for this weight",
                             w->path, name)
                   : 0;
    }
    /* Missing, of another shape, or of a type that no format has. */
    const struct st_tensor *t = weights_find(w, name, shape, "", e);
    return t ? weights_need_float(w, t, "weights", e) : -1;
}

/* A matrix of which products read rows. */
static int add(struct weights *w, struct matrix *m, struct qwick_err *e)
{
    if (ARRAY_RESERVE(w->matrices, w->cap_matrices, w->n_matrices + 1, e))
        return -1;
    w->matrices[w->n_matrices++] = m;
    return 0;
}

const struct st_tensor *weights_find(struct weights *w, const char *name,
                                     const struct matrix_shape *shape,
                                     const char *why, struct qwick_err *e)
{
    const size_t dims[] = {shape->stack, shape->rows, shape->cols};
    const struct st_tensor *t = st_find(w->set, name);
    if (t && t->rank == 1 && !shape->stack && shape->rows == 1)
        return weights_find_dims(w, name, dims + 2, 1, why, e);
    return shape->stack ? weights_find_dims(w, name, dims, 3, why, e)
                        : weights_find_dims(w, name, dims + 1, 2, why, e);
}

int weights_bind_type(struct weights *w, struct matrix *out, const char *name,
                      const struct matrix_shape *shape, enum dtype type,
                      int bits, bool *found, struct qwick_err *e)
{
    const struct st_tensor *t = st_find(w->set, name);
    *found = t && t->dtype == type;
    if (!*found)
        return 0;
    t = weights_find(w, name, shape, "", e);
    if (!t)
        return -1;
    size_t rows = shape_rows(shape);
    weights_use(w, t, rows * shape->cols, bits);
    *out = (struct matrix){.dtype = type,
                           .rows = rows,
                           .cols = shape->cols,
                           .data = {t->data},
                           .bits = bits};
    return 0;
}

int weights_matrix(struct weights *w, struct matrix *out, size_t rows,
                   size_t cols, struct weight_ref ref, struct qwick_err *e)
{
    const struct matrix_shape shape = {0, rows, cols};
    return bind(w, out, &shape, ref, e) || add(w, out, e) ? -1 : 0;
}

int weights_table(struct weights *w, struct matrix *out, size_t rows,
                  size_t cols, struct weight_ref ref, struct qwick_err *e)
{
    const struct matrix_shape shape = {0, rows, cols};
    w->binds_table = true;
    int rc = bind(w, out, &shape, ref, e);
    w->binds_table = false;
    return rc;
}

int weights_stack(struct weights *w, struct matrix *out, size_t n, size_t rows,
                  size_t cols, struct weight_ref ref, struct qwick_err *e)
{
    const struct matrix_shape shape = {n, rows, cols};
    return bind(w, out, &shape, ref, e);
}

void *weights_block(struct weights *w, size_t n_bytes, struct qwick_err *e)
{
    if (ARRAY_RESERVE(w->vectors, w->cap_vectors, w->n_vectors + 1, e))
        return NULL;
    void *block = calloc(n_bytes, 1);
    if (block)
        w->vectors[w->n_vectors++] = block;
    else
        err_oom(e, n_bytes);
    return block;
}

unsigned char *weights_copy(struct weights *w, size_t n_bytes,
                            struct qwick_err *e)
{
    enum { LINE = 64 };
    if (ARRAY_RESERVE(w->copies, w->cap_copies, w->n_copies + 1, e))
        return NULL;
    void *p = aligned_alloc(LINE, (n_bytes / LINE + 1) * LINE);
    if (!p) {
        err_oom(e, n_bytes);
        return NULL;
    }
    w->copies[w->n_copies++] = (struct weight_copy){p, n_bytes};
    return p;
}

const uint32_t *weights_order(struct weights *w, uint32_t *order, size_t n,
                              struct qwick_err *e)
{
    for (size_t i = 0; i < w->n_orders; i++)
        if (w->orders[i].n == n &&
            memcmp(w->orders[i].columns, order, n * sizeof *order) == 0) {
            free(order);
            return w->orders[i].columns;
        }
    if (ARRAY_RESERVE(w->orders, w->cap_orders, w->n_orders + 1, e)) {
        free(order);
        return NULL;
    }
    w->orders[w->n_orders++] = (struct matrix_order){order, n};
    return order;
}

/* out [rows, cols] = the transpose of in [cols, rows], `size` bytes an element;
 * by squares that stay in the cache. The rows of `parts` matrices, which come
 * by turns in `in`, are one matrix after the other in out. */
static void transpose(unsigned char *out, const unsigned char *in, size_t rows,
                      size_t cols, size_t size, size_t parts)
{
    size_t each = rows / parts;
    enum { SQUARE = 64 };
    for (size_t r0 = 0; r0 < rows; r0 += SQUARE)
        for (size_t c0 = 0; c0 < cols; c0 += SQUARE)
            for (size_t r = r0; r < rows && r < r0 + SQUARE; r++)
                for (size_t c = c0; c < cols && c < c0 + SQUARE; c++)
                    memcpy(out + ((r % parts * each + r / parts) * cols + c) *
                                     size,
                           in + (c * rows + r) * size, size);
}

int weights_stack_transposed(struct weights *w, struct matrix *out, size_t n,
                             size_t rows, size_t cols, size_t parts,
                             struct weight_ref ref, struct qwick_err *e)
{
    char name[NAMES_BYTES];
    if (weights_stack(w, out, n, cols, rows, ref, e))
        return -1;
    find_name(w, ref, name);
    if (out->bits)
        return err_set(e, QWICK_ERR_MODEL,
                       "%s: tensor %s: is quantized and transposed, which is "
                       "not supported",
                       w->path, name);
    const unsigned char *in = out->data[0];
    size_t size = dtype_bytes(out->dtype), each = rows * cols * size;
    out->rows = n * rows;
    out->cols = cols;
    if (w->sizes_only)
        return 0;
    unsigned char *copy = weights_block(w, n * each, e);
    if (!copy)
        return -1;
    for (size_t i = 0; i < n; i++)
        transpose(copy + i * each, in + i * each, rows, cols, size, parts);
    out->data[0] = copy;
    return 0;
}

int weights_view(struct weights *w, struct matrix *out,
                 const struct matrix *stack, size_t row, size_t rows,
                 struct qwick_err *e)
{
    return weights_view_steps(w, out, stack, row, rows, 1, e);
}

int weights_view_steps(struct weights *w, struct matrix *out,
                       const struct matrix *stack, size_t row, size_t rows,
                       size_t step, struct qwick_err *e)
{
    if (step > 1 && !stack->format->steps)
        return err_set(e, QWICK_ERR_MODEL,
                       "%s: a stack of matrices in %s whose rows alternate is "
                       "not supported",
                       w->path, stack->format->name);
    matrix_view(out, stack, row, rows);
    out->step = step;
    return add(w, out, e);
}

size_t weights_shape(const struct weights *w, struct weight_ref ref,
                     size_t *dims, size_t max)
{
    char name[NAMES_BYTES];
    find_name(w, ref, name);
    const struct st_tensor *t = st_find(w->set, name);
    for (size_t i = 0; t && i < t->rank && i < max; i++)
        dims[i] = t->shape[i];
    return t ? t->rank : 0;
}

float *weights_floats(struct weights *w, const struct st_tensor *t,
                      struct qwick_err *e)
{
    size_t n = t->n_bytes / dtype_bytes(t->dtype);
    float *v = weights_block(w, n * sizeof *v, e);
    if (v && !w->sizes_only)
        kernels_ref()->to_f32[t->dtype](v, t->data, n);
    return v;
}

/* As weights_array, for the tensor `name`. */
static int array_named(struct weights *w, float **out, const char *name,
                       const size_t *dims, size_t rank, struct weight_ref ref,
                       struct qwick_err *e)
{
    *out = NULL;
    const struct st_tensor *t = weights_find_dims(w, name, dims, rank, "", e);
    if (!t || weights_need_float(w, t, "weights", e))
        return -1;
    size_t n = t->n_bytes / dtype_bytes(t->dtype);
    weights_use(w, t, n, 0);
    set_ref(w, name, ref);
    float *v = weights_floats(w, t, e);
    if (!v)
        return -1;
    *out = v;
    for (size_t i = 0; i < n && !w->sizes_only; i++)
        v[i] += w->naming.names->plus[ref.id];
    return 0;
}

int weights_array(struct weights *w, float **out, const size_t *dims,
                  size_t rank, struct weight_ref ref, struct qwick_err *e)
{
    char name[NAMES_BYTES];
    find_name(w, ref, name);
    return array_named(w, out, name, dims, rank, ref, e);
}

int weights_vector(struct weights *w, float **out, size_t n,
                   struct weight_ref ref, struct qwick_err *e)
{
    return weights_array(w, out, &n, 1, ref, e);
}

int weights_norm(struct weights *w, float **out, size_t n, bool layer_norm,
                 bool has_bias, struct weight_ref ref, struct qwick_err *e)
{
    char name[NAMES_BYTES];
    float *weights, *biases;
    if (weights_vector(w, &weights, n, ref, e))
        return -1;
    *out = weights;
    if (!layer_norm)
        return 0;
    if (!(*out = weights_block(w, 2 * n * sizeof **out, e)))
        return -1;
    memcpy(*out, weights, n * sizeof **out);
    if (!has_bias)
        return 0;
    find_name(w, ref, name);
    size_t at = names_module(name);
    snprintf(name + at, sizeof name - at, "%s",
             strcmp(name + at, NAMES_GAMMA) == 0 ? NAMES_BETA : ".bias");
    if (array_named(w, &biases, name, &n, 1, ref, e))
        return -1;
    memcpy(*out + n, biases, n * sizeof **out);
    return 0;
}

int weights_ones(struct weights *w, float **out, size_t n, struct qwick_err *e)
{
    *out = weights_block(w, n * sizeof **out, e);
    for (size_t i = 0; *out && i < n; i++)
        (*out)[i] = 1;
    return *out ? 0 : -1;
}

/* Names of the formats in use that have one, and of the types of blocks, the
 * order that of enum dtype. */
static size_t list_types(struct weights *w)
{
    bool has[DT_COUNT] = {false}, uses[N_FORMATS] = {false};
    size_t at = 0;
    for (size_t i = 0; i < w->n_matrices; i++) {
        const struct matrix *m = w->matrices[i];
        has[m->dtype] = true;
        uses[m->ops - w->ops] = true;
    }
    for (size_t i = 0; i < N_FORMATS; i++)
        if (uses[i] && formats[i]->shown)
            at += (size_t)snprintf(w->storage + at, sizeof w->storage - at,
                                   "%s%s", at ? "/" : "", formats[i]->shown);
    for (int type = DT_BLOCKS; type < DT_COUNT && at < sizeof w->storage;
         type++)
        if (has[type])
            at += (size_t)snprintf(w->storage + at, sizeof w->storage - at,
                                   "%s%s", at ? "/" : "",
                                   dtype_name((enum dtype)type));
    return at;
}

const char *weights_storage(struct weights *w, const struct matrix *m)
{
    size_t at = 0;
    if (list_types(w))
        return w->storage;
    for (int bits = 2; bits <= 8; bits++)
        if (w->params_by_bits[bits])
            at += (size_t)snprintf(w->storage + at, sizeof w->storage - at,
                                   "%s%d", at ? "/" : "", bits);
    if (!at)
        return dtype_name(m->dtype);
    size_t group = w->quant->stored.groups ? w->quant->stored.groups->group
                   : w->quant->transposed.form ? w->quant->transposed.group
                                               : w->quant->all.group;
    if (group)
        snprintf(w->storage + at, sizeof w->storage - at, "-bit (group %zu)",
                 group);
    else
        snprintf(w->storage + at, sizeof w->storage - at,
                 "-bit (a scale for each row)");
    return w->storage;
}
