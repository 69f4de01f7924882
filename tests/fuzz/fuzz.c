/* One target under libFuzzer; QWICK_FUZZ_TARGET names it. */
#include <stdio.h>
#include <stdlib.h>

#include "targets.h"

int LLVMFuzzerInitialize(int *argc, char ***argv);
int LLVMFuzzerTestOneInput(const uint8_t *in, size_t n);

static const struct fuzz_target *target;

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
    const char *name = getenv("QWICK_FUZZ_TARGET");
    (void)argc;
    (void)argv;
    target = fuzz_find(name ? name : "");
    if (target)
        return 0;
    fputs("fuzz: QWICK_FUZZ_TARGET must be one of", stderr);
    for (const struct fuzz_target *t = fuzz_targets; t->name; t++)
        fprintf(stderr, " %s", t->name);
    fputc('\n', stderr);
    exit(2);
}

int LLVMFuzzerTestOneInput(const uint8_t *in, size_t n)
{
    (void)fuzz_one(target, (const char *)in, n);
    return 0;
}
