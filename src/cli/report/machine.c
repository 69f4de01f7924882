#include "cli/report/machine.h"

#include <stdio.h>
#include <string.h>
#include <sys/utsname.h>
#include <time.h>

#include "base/os.h"
#include "qwick.h"

void machine_read(struct machine *m)
{
    struct utsname u;
    struct tm tm;
    time_t now = time(NULL);
    *m = (struct machine){.cpus = os_cpus(), .memory = os_available_memory()};
    if (uname(&u) == 0)
        snprintf(m->system, sizeof m->system, "%.50s %.60s %.40s", u.sysname,
                 u.release, u.machine);
    else
        snprintf(m->system, sizeof m->system, "unknown");
    if (!os_cpu_name(m->cpu, sizeof m->cpu))
        snprintf(m->cpu, sizeof m->cpu, "unknown");
    if (!localtime_r(&now, &tm) ||
        !strftime(m->date, sizeof m->date, "%Y-%m-%d", &tm))
        snprintf(m->date, sizeof m->date, "unknown");
}

size_t machine_facts(struct fact *out, const struct machine *m)
{
    const struct fact facts[MACHINE_FACTS] = {
        CELL("version", "version", NULL, NULL, 0, AS_TEXT(qwick_version())),
        CELL("date", "date", NULL, NULL, 0, AS_TEXT(m->date)),
        CELL("system", "system", NULL, NULL, 0, AS_TEXT(m->system)),
        CELL("cpu_name", "cpu_name", NULL, NULL, 0, AS_TEXT(m->cpu)),
        CELL("cpus", "cpus", NULL, NULL, 0, AS_COUNT(m->cpus)),
        FACT("available_memory", AS_BYTES(m->memory)),
    };
    memcpy(out, facts, sizeof facts);
    return MACHINE_FACTS;
}
