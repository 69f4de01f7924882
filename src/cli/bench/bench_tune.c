#include "cli/bench/bench_tune.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/buf.h"
#include "file/json_writer.h"
#include "cli/io/out.h"
#include "cli/io/progress.h"
#include "qwick_tools.h"

enum { MAX_CHOICES = 64 };

/* Another variant must be faster by this factor. Less is noise. */
#define CLEARLY 1.03

struct tune {
    struct qwick_engine *eng;
    const struct machine *machine;
    struct buf out;
    struct json_writer w;
    bool json;
    bool failed; /* to write */
    /* of each choice that was measured: its name and the variant to take */
    const char *names[MAX_CHOICES];
    size_t values[MAX_CHOICES];
    size_t n;
};

/* ---- variants ----------------------------------------------------------- */

static void tune_trial(struct tune *t, const struct qwick_tuning_trial *v)
{
    const char *mark = v->best && v->chosen ? "best, in use"
                       : v->best            ? "best"
                       : v->chosen          ? "in use"
                                            : "";
    if (!t->json) {
        buf_printf(&t->out, "%-20s %7zu %9.1f%%%s%s\n", v->name, v->value,
                   100 * v->share, *mark ? "  " : "", mark);
        return;
    }
    jw_object(&t->w, NULL);
    jw_cstr(&t->w, "name", v->name);
    jw_uint(&t->w, "value", v->value);
    jw_double(&t->w, "percent_of_limit", 100 * v->share);
    jw_bool(&t->w, "in_use", v->chosen);
    jw_bool(&t->w, "best", v->best);
    jw_end_object(&t->w);
}

/* Keep the variant in use, unless the best one is clearly faster. */
static size_t choose_variant(const struct qwick_tuning_trial *v, size_t n)
{
    const struct qwick_tuning_trial *best = v, *own = NULL;
    for (size_t i = 0; i < n; i++) {
        best = v[i].best ? &v[i] : best;
        own = v[i].chosen ? &v[i] : own;
    }
    return own && best->share <= CLEARLY * own->share ? own->value
                                                      : best->value;
}

static void show_choice(void *ctx, const struct qwick_tuning_trial *v, size_t n)
{
    struct tune *t = ctx;
    for (size_t i = 0; i < n; i++)
        tune_trial(t, &v[i]);
    if (t->n < MAX_CHOICES) {
        t->names[t->n] = v->name;
        t->values[t->n++] = choose_variant(v, n);
    }
    if (t->json)
        return;
    progress_output(STDOUT_FILENO);
    t->failed = t->failed || out_write(t->out.data, t->out.len);
    t->out.len = 0;
    progress_show("%s measured", v->name);
}

/* ---- the row ------------------------------------------------------------ */

static bool was_measured(const struct tune *t, const char *name, size_t *value)
{
    for (size_t i = 0; i < t->n; i++)
        if (!strcmp(t->names[i], name)) {
            *value = t->values[i];
            return true;
        }
    return false;
}

/* "GenuineIntel 6 143" as members of the row. */
static void put_cpu(struct buf *b, const char *cpu)
{
    size_t n = strcspn(cpu, " ");
    unsigned long family, model = 0;
    char *end;
    family = strtoul(cpu + n, &end, 10);
    if (end)
        model = strtoul(end, NULL, 10);
    buf_puts(b, "     .vendor = ");
    buf_json_string(b, cpu, n);
    buf_printf(b,
               ",\n     .family = 0x%lx,\n"
               "     .models = {{0x%02lx, 0x%02lx}},\n",
               family, model, model);
}

static void put_choices(struct tune *t)
{
    struct buf *b = &t->out;
    struct qwick_tuning v;
    buf_puts(b, "     .choices = {");
    for (size_t i = 0; !qwick_tuning_at(t->eng, i, &v, NULL); i++) {
        size_t value = v.value;
        (void)was_measured(t, v.name, &value);
        buf_printf(b, "%s.%s = %zu", i ? ",\n                 " : "", v.name,
                   value);
    }
    buf_puts(b, "},\n     .measured = \"");
    for (size_t i = 0; i < t->n; i++)
        buf_printf(b, "%s%s", i ? " " : "", t->names[i]);
    buf_puts(b, "\",\n");
}

static void tune_row(struct tune *t)
{
    const struct qwick_info *info = qwick_engine_info(t->eng);
    struct buf *b = &t->out, source = {0};
    buf_puts(b, "\nRow for src/kernel/*/k_cores_*.c:\n"
                "    {.name = ");
    buf_json_cstr(b, info->core);
    buf_puts(b, ",\n");
    put_cpu(b, info->cpu_id);
    put_choices(t);
    buf_printf(&source, "%s, %d CPUs, %s", t->machine->cpu, t->machine->cpus,
               t->machine->date);
    buf_puts(b, "     .machine = ");
    buf_json_cstr(b, buf_text(&source));
    buf_puts(b, ",\n     .guess = \"as before\"},\n");
    buf_free_part(&source, b);
}

/* ---- output ------------------------------------------------------------- */

static void tune_head(struct tune *t)
{
    const struct qwick_info *info = qwick_engine_info(t->eng);
    const struct machine *m = t->machine;
    if (!t->json) {
        buf_printf(&t->out,
                   "qwick %s, %s, %s, %s, kernels %s, 1 thread\n"
                   "choices of %s, %s\n\n"
                   "choice               variant  of limit\n",
                   qwick_version(), m->date, m->system, m->cpu, info->isa,
                   info->core, info->core_evidence);
        return;
    }
    t->w = jw_line(&t->out);
    jw_cstr(&t->w, "version", qwick_version());
    jw_cstr(&t->w, "date", m->date);
    jw_cstr(&t->w, "system", m->system);
    jw_cstr(&t->w, "cpu", m->cpu);
    jw_cstr(&t->w, "cpu_id", info->cpu_id);
    jw_cstr(&t->w, "isa", info->isa);
    jw_cstr(&t->w, "core", info->core);
    jw_cstr(&t->w, "core_evidence", info->core_evidence);
    jw_array(&t->w, "trials");
}

static void tune_end(struct tune *t)
{
    if (!t->json) {
        tune_row(t);
        return;
    }
    jw_end_array(&t->w);
    jw_object(&t->w, "choices");
    for (size_t i = 0; i < t->n; i++)
        jw_uint(&t->w, t->names[i], t->values[i]);
    jw_end_line(&t->w);
}

int bench_tune(struct qwick_engine *eng, size_t reps, bool json,
               const struct machine *machine)
{
    struct tune t = {.eng = eng, .json = json, .machine = machine};
    struct qwick_err e = {0};
    progress_start("bench");
    progress_show("the limits");
    tune_head(&t);
    int rc = qwick_tuning_measure(eng, reps, show_choice, &t, &e);
    progress_stop();
    if (!rc)
        tune_end(&t);
    int status = rc ? msg_fail(&e) : t.out.failed ? msg_oom() : 0;
    if (!status && (t.failed || out_write(t.out.data, t.out.len)))
        status = QWICK_ERR_RUNTIME;
    buf_free(&t.out);
    return status;
}
