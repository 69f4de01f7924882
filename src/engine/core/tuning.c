/* The choices of the process, and what the public API says about them. */
#include "engine/core/tuning.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "engine/cache/tuning_file.h"
#include "engine/core/engine.h"
#include "qwick_tools.h"

#define PROBE "probe"

/* Written once, under the lock. */
static struct tuning settled;
static bool is_settled;
static char settled_name[64]; /* as the first call gave it */

static void set_evidence(struct tuning *t)
{
    const struct core *c = t->core;
    const size_t size = sizeof t->evidence;
    int n = 0;
    if (t->probed)
        n = snprintf(t->evidence, size, "probe of %s; ", t->date);
    if (c->measured)
        n += snprintf(t->evidence + n, size - (size_t)n, "measured: %s; ",
                      c->machine);
    snprintf(t->evidence + n, size - (size_t)n, "%sguess: %s",
             n ? "otherwise " : "", c->guess);
}

static void set_date(struct tuning *t)
{
    time_t now = time(NULL);
    struct tm tm;
    if (!gmtime_r(&now, &tm) ||
        !strftime(t->date, sizeof t->date, "%Y-%m-%d", &tm))
        snprintf(t->date, sizeof t->date, "1970-01-01");
}

/* Use the file of an earlier probe, or measure and write it. */
static int probe(struct tuning *t, const char *dir, struct qwick_err *e)
{
    t->probed = true;
    if (dir && tuning_file_read(t, dir))
        return 0;
    if (tuning_probe(&t->choices, e))
        return -1;
    set_date(t);
    if (dir)
        (void)tuning_file_write(t, dir, NULL); /* else measured again */
    return 0;
}

static int decide(struct tuning *t, const char *name, const char *dir,
                  struct qwick_err *e)
{
    bool wanted = name && !strcmp(name, PROBE);
    *t = (struct tuning){0};
    t->core = name && !wanted ? core_named(name) : kernels_core();
    if (!t->core)
        return err_set(e, QWICK_ERR_USAGE, "core: \"%.40s\": has no record",
                       name);
    t->choices = t->core->choices;
    if (kernels_best() != kernels_ref() &&
        (wanted || (!name && dir && core_is_unknown(t->core))) &&
        probe(t, dir, e)) {
        kernels_choose(&kernels_core()->choices);
        return -1;
    }
    kernels_choose(&t->choices);
    set_evidence(t);
    core_cpu_text(t->cpu, sizeof t->cpu);
    return 0;
}

const struct tuning *tuning_settle(const char *name, const char *dir,
                                   struct qwick_err *e)
{
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    const struct tuning *t = NULL;
    pthread_mutex_lock(&lock);
    if (!is_settled && !decide(&settled, name, dir, e)) {
        is_settled = true;
        snprintf(settled_name, sizeof settled_name, "%s", name ? name : "");
        t = &settled;
    } else if (is_settled && name && strcmp(name, settled_name) != 0) {
        err_set(e, QWICK_ERR_USAGE,
                "core: \"%.40s\": this process already uses \"%s\"", name,
                settled.core->name);
    } else if (is_settled) {
        t = &settled;
    }
    pthread_mutex_unlock(&lock);
    return t;
}

/* What is known about a choice: "measured", "guess" or "probe". */
static const char *tuning_known(const struct tuning *t, const struct core_knob *k)
{
    const struct core_knob *p;
    for (size_t i = 0; t->probed && (p = tuning_probed(i)) != NULL; i++)
        if (p == k)
            return PROBE;
    return core_measured(t->core, k) ? "measured" : "guess";
}

int qwick_tuning_at(const struct qwick_engine *eng, size_t i,
                    struct qwick_tuning *out, struct qwick_err *e)
{
    const struct core_knob *k = eng->tuning ? core_knob(i) : NULL;
    *out = (struct qwick_tuning){0};
    if (!k)
        return err_set(e, QWICK_ERR_USAGE, "tuning: there is no choice %zu", i);
    *out = (struct qwick_tuning){.name = k->name,
                                 .about = k->about,
                                 .value = core_get(&eng->tuning->choices, k),
                                 .evidence = tuning_known(eng->tuning, k),
                                 .used = kernels_use(eng->model.k, k)};
    return 0;
}
