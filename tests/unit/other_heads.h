/* Geometries that families with the reference's layers do not have, for tests
 * that are linked with --wrap=config_load. */
#ifndef TEST_OTHER_HEADS_H
#define TEST_OTHER_HEADS_H

#include "reference.h"

/* Of the models that are opened; NULL: as their config.json says. */
static const struct geometry *other_heads;

int __real_config_load(struct config *c, const struct checkpoint *ck,
                       struct qwick_err *e);
int __wrap_config_load(struct config *c, const struct checkpoint *ck,
                       struct qwick_err *e);

int __wrap_config_load(struct config *c, const struct checkpoint *ck,
                       struct qwick_err *e)
{
    if (__real_config_load(c, ck, e))
        return -1;
    if (other_heads)
        ref_set_config(other_heads, c);
    return 0;
}

#endif
