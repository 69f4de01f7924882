/* The plan of a quantization: the result's type and shape for each tensor. */
#include <fnmatch.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "convert/quantize.h"
#include "file/checkpoint.h"
#include "model/arch.h"
#include "model/config.h"
#include "qwick_tools.h"

enum { SHOWN = 200 }; /* bytes of a name in messages */

static const char weight[] = ".weight";

static bool ends_in(const struct st_tensor *t, const char *suffix)
{
    size_t n = strlen(suffix);
    return t->name_len > n && memcmp(t->name + t->name_len - n, suffix, n) == 0;
}

int quantize_err(const char *path, const struct st_tensor *t, const char *why,
                 struct qwick_err *e)
{
    return err_set(e, QWICK_ERR_MODEL, "%s: %s: tensor %.*s: %s", path, t->file,
                   SHOWN, t->name, why);
}

int quantize_bad_value(const struct quantize_work *w, const struct st_tensor *t,
                       size_t at, struct qwick_err *e)
{
    return err_set(e, QWICK_ERR_MODEL,
                   "%s: %s: tensor %.200s: row %zu: holds NaN, infinities or "
                   "values too large",
                   w->path, t->file, t->name, at / t->shape[t->rank - 1]);
}

static void send_line(qwick_note_fn fn, void *ctx, const char *what,
                      const char *why)
{
    char line[SHOWN + 192];
    if (!fn)
        return;
    snprintf(line, sizeof line, "%.*s: %s", SHOWN, what, why);
    fn(ctx, line);
}

void quantize_note(const struct quantize_plan *p, const char *what,
                   const char *why)
{
    send_line(p->o->note, p->o->note_ctx, what, why);
}

void quantize_warn(const struct quantize_plan *p, const char *what,
                   const char *why)
{
    if (p->o->warn)
        send_line(p->o->warn, p->o->warn_ctx, what, why);
    else
        quantize_note(p, what, why);
}

/* ---- modules ------------------------------------------------------------- */

/* Packed weights of other formats come with tensors of these names. */
int quantize_check_tensor(const struct st_tensor *t, const char *path,
                          struct qwick_err *e)
{
    static const char *const traces[] = {
        ".scales",           ".biases",       ".qweight",       ".qzeros",
        ".weight_scale_inv", ".weight_scale", ".weight_packed",
    };
    char why[96];
    if (strlen(t->name) != t->name_len)
        return quantize_err(path, t, "a NUL byte is in its name", e);
    for (size_t i = 0; i < sizeof traces / sizeof *traces; i++)
        if (ends_in(t, traces[i]))
            return quantize_err(
                path, t,
                "the checkpoint is quantized already: start from "
                "the original",
                e);
    if (t->rank == 2 && ends_in(t, weight) && t->dtype >= DT_N_FLOAT) {
        snprintf(why, sizeof why,
                 "dtype %s cannot be quantized (BF16, F16 and F32 can)",
                 dtype_name(t->dtype));
        return quantize_err(path, t, why, e);
    }
    return 0;
}

/* Whether one of the patterns matches; marks all that do. */
static bool matches(const char *const *patterns, size_t n, const char *name,
                    bool *used)
{
    bool any = false;
    for (size_t i = 0; i < n; i++) {
        if (fnmatch(patterns[i], name, 0) != 0)
            continue;
        any = true;
        used[i] = true;
    }
    return any;
}

/* Whether name is one of weight id's names in the source, without their last
 * `tail` bytes. */
static bool is_weight(const struct quantize_plan *p, enum weight_id id,
                      const char *name, size_t tail)
{
    const struct weight_ref ref = {.id = id};
    char want[NAMES_BYTES];
    for (size_t v = 0;
         names_expand(want, p->naming.names, p->naming.prefix, ref, v); v++) {
        want[strlen(want) - tail] = '\0';
        if (strcmp(name, want) == 0)
            return true;
    }
    return false;
}

/* Whether a module is the head, which may be the embedding. */
static bool is_head(const struct quantize_plan *p, const char *name, bool tied)
{
    return is_weight(p, tied ? WEIGHT_EMBED : WEIGHT_HEAD, name,
                     sizeof weight - 1);
}

bool quantize_is_spare_head(const struct quantize_plan *p,
                            const struct st_tensor *t, bool tied)
{
    return tied && is_weight(p, WEIGHT_HEAD, t->name, 0);
}

bool quantize_outside(const struct quantize_plan *p, const struct st_tensor *t)
{
    const char *prefix = p->naming.prefix;
    return strncmp(t->name, prefix, strlen(prefix)) != 0 &&
           !is_weight(p, WEIGHT_HEAD, t->name, 0);
}

/* Patterns that matched some module. */
struct used {
    bool *only, *skip;
};

/* Rounding a router makes it choose other experts, and a router is small.
 * mlx-lm also keeps this width. */
enum { ROUTER_BITS = 8 };

int quantize_group(const struct quantize_plan *p,
                   const struct quantize_width *w, size_t cols)
{
    return w->group && cols % (size_t)w->group == 0 ? w->group : p->o->group;
}

/* Bits of a module; 0: it stays as it is. */
static int choose_bits(const struct quantize_plan *p,
                       struct quantize_module *m, bool tied, bool router,
                       bool *only_used, bool *skip_used)
{
    const struct qwick_quantize_options *o = p->o;
    bool only = matches(o->only, o->n_only, m->name, only_used);
    bool skip = matches(o->skip, o->n_skip, m->name, skip_used);
    if ((o->n_only > 0 && !only) || skip)
        return 0;
    if (m->t->n_bytes == 0 || m->cols % (size_t)o->group != 0) {
        char why[96];
        snprintf(why, sizeof why,
                 "is copied: %zu columns are not a multiple of the group of "
                 "%d",
                 m->cols, o->group);
        quantize_note(p, m->name, why);
        return 0;
    }
    if (quantize_outside(p, m->t)) {
        quantize_note(p, m->name, "is copied: not part of the text model");
        return 0;
    }
    bool head = o->head_bits && is_head(p, m->name, tied);
    if (p->keeps_codes && !head && quantize_packed(p->s, m->t))
        return o->bits;
    if (p->keeps_codes && !head && !only)
        return 0;
    if (router && p->find_width) /* what a budget measures has it so */
        return 0;
    if (router && o->bits < ROUTER_BITS)
        return ROUTER_BITS;
    const struct quantize_asked asked = {
        .name = m->name,
        .t = m->t,
        .n = m->rows * m->cols * (m->stack ? m->stack : 1),
        .cols = m->cols};
    if (p->find_width && !quantize_is_mxfp4(p->s, m->t)) {
        const struct quantize_width *w =
            p->find_width(p->find_width_ctx, &asked);
        m->group = quantize_group(p, w, m->cols);
        return w->bits;
    }
    return head ? o->head_bits : o->bits;
}

/* Let m have the codes of its source if all its parts are such. */
static void choose_codes(const struct quantize_plan *p,
                         struct quantize_module *m)
{
    m->scales = m->t->dtype;
    m->codes = m->bits != 0;
    for (size_t i = 0; i < m->n_parts && m->codes; i++) {
        enum dtype type;
        m->codes = quantize_has_codes(p->s, m->parts[i].src, m->bits,
                                      p->o->group, &type);
        if (m->codes)
            m->scales = i == 0 || m->scales == type ? type : DT_F32;
    }
    if (!m->codes)
        m->scales = m->t->dtype;
}

/* A matrix in MXFP4 is small already, and rounding it again loses more than any
 * number of bits from 4 on gains. */
enum { MXFP4_BITS = 4 };

static void choose_form(const struct quantize_plan *p,
                        struct quantize_module *m, bool tied, bool router,
                        const struct used *u)
{
    m->group = p->o->group;
    m->bits = choose_bits(p, m, tied, router, u->only, u->skip);
    m->kept = quantize_is_mxfp4(p->s, m->t) &&
              (m->bits == 0 || m->bits >= MXFP4_BITS);
    if (m->kept)
        m->bits = 0;
    choose_codes(p, m);
}

static int check_used(const char *what, const char *const *patterns, size_t n,
                      const bool *used, struct qwick_err *e)
{
    for (size_t i = 0; i < n; i++)
        if (!used[i])
            return err_set(e, QWICK_ERR_USAGE,
                           "%s: %s: matches no module of the checkpoint", what,
                           patterns[i]);
    return 0;
}

static int check_modules(const struct quantize_plan *p, bool tied,
                         const bool *only_used, const bool *skip_used,
                         struct qwick_err *e)
{
    const struct qwick_quantize_options *o = p->o;
    bool any = false, head = false;
    if (check_used("only", o->only, o->n_only, only_used, e) ||
        check_used("skip", o->skip, o->n_skip, skip_used, e))
        return -1;
    for (size_t i = 0; i < p->n_modules; i++) {
        any |= p->modules[i].bits > 0;
        head |= p->modules[i].bits > 0 && is_head(p, p->modules[i].name, tied);
    }
    if (!any)
        return err_set(e, QWICK_ERR_USAGE,
                       "quantize: no module is left to quantize");
    if (o->head_bits && !head)
        return err_set(e, QWICK_ERR_USAGE,
                       "head bits: %d: the head is not quantized",
                       o->head_bits);
    return 0;
}

/* A matrix in two dimensions, all of it. */
static int plain_module(struct quantize_module *m, const struct st_tensor *t,
                        struct qwick_err *e)
{
    *m = (struct quantize_module){
        .t = t, .rows = t->shape[0], .cols = t->shape[1], .n_parts = 1};
    m->name = strndup(t->name, t->name_len - (sizeof weight - 1));
    m->parts = malloc(sizeof *m->parts);
    if (!m->name || !m->parts) {
        free(m->name);
        free(m->parts);
        return err_oom(e, t->name_len);
    }
    m->parts[0] = (struct quantize_part){
        .src = t, .n = t->n_bytes / dtype_bytes(t->dtype)};
    return 0;
}

static int add_plain(struct quantize_plan *p, const struct st_tensor *t,
                     size_t i, bool tied, const struct used *u,
                     struct qwick_err *e)
{
    if (t->rank != 2 || !ends_in(t, weight) || p->claims[i].claimed)
        return 0;
    if (quantize_is_spare_head(p, t, tied)) {
        quantize_note(p, "lm_head", "left out: the embedding is the head");
        return 0;
    }
    struct quantize_module *m = &p->modules[p->n_modules];
    if (plain_module(m, t, e))
        return -1;
    p->claims[i].module = p->n_modules++;
    choose_form(p, m, tied, p->claims[i].router, u);
    return 0;
}

/* The experts' modules come first. */
static int choose_experts(struct quantize_plan *p, const char *path, bool tied,
                          const struct used *u, struct qwick_err *e)
{
    for (size_t i = 0; i < p->n_modules; i++) {
        struct quantize_module *m = &p->modules[i];
        if (!m->bias)
            choose_form(p, m, tied, false, u);
        if (i > 0 && m->fused && m[-1].t == m->t && m[-1].bits != m->bits)
            return err_set(e, QWICK_ERR_USAGE,
                           "%s: %s and %s are one tensor: quantize both or "
                           "neither",
                           path, m[-1].name, m->name);
    }
    return 0;
}

static int find_modules(struct quantize_plan *p, const struct st_set *set,
                        const char *path, const struct config *c,
                        struct qwick_err *e)
{
    size_t n = st_count(set), most;
    bool tied = c->tied_head;
    struct used u = {calloc(p->o->n_only + 1, sizeof *u.only),
                     calloc(p->o->n_skip + 1, sizeof *u.skip)};
    int rc = size_add(n, QUANTIZE_ROLES * c->n_layers + 1, &most);
    p->modules = rc ? NULL : calloc(most, sizeof *p->modules);
    p->claims = calloc(n + 1, sizeof *p->claims);
    if (!u.only || !u.skip || !p->modules || !p->claims)
        rc = err_oom(e, (n + 1) * sizeof *p->modules);
    for (size_t i = 0; i < n && !rc; i++)
        rc = quantize_check_tensor(st_at(set, i), path, e);
    if (!rc)
        rc = quantize_experts(p, set, path, c, e);
    if (!rc)
        rc = choose_experts(p, path, tied, &u, e);
    for (size_t i = 0; i < n && !rc; i++)
        rc = add_plain(p, st_at(set, i), i, tied, &u, e);
    if (!rc)
        rc = check_modules(p, tied, u.only, u.skip, e);
    free(u.only);
    free(u.skip);
    return rc;
}

int quantize_modules(struct quantize_plan *p, const struct quantize_source *s,
                     struct qwick_err *e)
{
    int bits = 0, group = 0;
    p->naming = names_choose(s->m.config.arch->names, s->set);
    p->keeps_codes = quantize_find_codes(s, &bits, &group) &&
                     p->o->bits == bits && group % p->o->group == 0;
    if (find_modules(p, s->set, checkpoint_dir(s->ck), &s->m.config, e))
        return -1;
    for (size_t i = 0; i < p->n_modules; i++)
        if (!p->modules[i].bias)
            ++*(p->modules[i].bits || p->modules[i].kept ? &p->n_quantized
                                                         : &p->n_dense);
    quantize_note_kept(p);
    return 0;
}

void quantize_plan_free(struct quantize_plan *p)
{
    for (size_t i = 0; i < p->n_modules; i++) {
        free(p->modules[i].name);
        free(p->modules[i].parts);
    }
    free(p->claims);
    for (size_t i = 0; i < p->n_shards; i++) {
        free(p->shards[i].out);
        free(p->shards[i].jobs);
    }
    for (size_t i = 0; i < p->n_names; i++)
        free(p->names[i]);
    free(p->modules);
    free(p->shards);
    free(p->names);
    free(p->changes);
    gguf_out_free(&p->meta);
    *p = (struct quantize_plan){0};
}
