/* Sampling values of options, for tests that set single ones. */
#ifndef TEST_OWN_SAMPLING_H
#define TEST_OWN_SAMPLING_H

#include "qwick.h"

/* Give the options a copy of their sampling values that no other options have,
 * and return it. It stays valid for the next OWN_SAMPLINGS calls of the
 * thread. */
enum { OWN_SAMPLINGS = 4096 };

static inline struct qwick_sampling *
own_sampling(struct qwick_generate_options *o)
{
    static _Thread_local struct qwick_sampling all[OWN_SAMPLINGS];
    static _Thread_local size_t n;
    struct qwick_sampling *s = &all[n++ % OWN_SAMPLINGS];
    *s = o->sampling ? *o->sampling : qwick_sampling_neutral();
    o->sampling = s;
    return s;
}

#endif
