#include "cli/report/machine.h"

#include <stdio.h>
#include <sys/utsname.h>
#include <time.h>

#include "base/os.h"

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
