#include "engine/core/memory.h"

#include <stdint.h>

#include "base/buf.h"
#include "base/clock.h"
#include "base/os.h"

size_t memory_available(struct memory *m, size_t need)
{
    double now = clock_ms();
    size_t taken;
    if (!m->known || now - m->at > MEMORY_AGE_MS ||
        size_add(m->granted, need, &taken) ||
        (m->bytes && taken > m->bytes / MEMORY_PART))
        *m = (struct memory){
            .known = true, .at = now, .bytes = os_available_memory()};
    if (!m->bytes)
        return SIZE_MAX;
    return m->granted < m->bytes ? m->bytes - m->granted : 0;
}

void memory_grant(struct memory *m, size_t bytes)
{
    if (size_add(m->granted, bytes, &m->granted))
        m->granted = SIZE_MAX;
}
