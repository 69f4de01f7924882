/* What a name means that is to be removed from the Hugging Face cache. */
#ifndef FILE_HUB_TARGET_H
#define FILE_HUB_TARGET_H

#include "file/hub_remove.h"

/* Find what spec names: a hub id ("ORG/NAME", "ORG/NAME@REVISION") is a whole
 * snapshot; "ID:TYPE" is a GGUF file; else it is a name, id or path of
 * `qwick models`, in its own case of letters: a removal that is repeated must
 * not find another model. Nothing in the current directory counts. The result
 * is released with hub_target_free. Returns 0, or -1 with *e set, a
 * QWICK_ERR_USAGE: several models have this name, or another program keeps it;
 * QWICK_ERR_MODEL: there is none. */
int hub_target_find(struct hub_target *t, const char *spec,
                    struct qwick_err *e);

#endif
