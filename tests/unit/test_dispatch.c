/* Which tables of kernels are filled? The test simulates CPUs, because the real
 * one has a fixed set of instructions. */
#include "test.h"

#include "kernel/kernel.h"

/* These replace the functions for the real CPU. */
static bool pretended_has(enum isa level);
static void pretended_init(struct kernels *k, enum isa level);
#define cpu_has    pretended_has
#define k_cpu_init pretended_init
#include "kernel/k_dispatch.c"

static unsigned cpu_levels;    /* bit l: the CPU has level l */
static unsigned filled_levels; /* bit l: k_cpu_init was called for level l */

static bool pretended_has(enum isa level)
{
    return cpu_levels & 1u << level;
}

static void pretended_init(struct kernels *k, enum isa level)
{
    (void)k;
    filled_levels |= 1u << level;
}

/* All code in a level's files is compiled for that level, also the code that
 * fills its table. Calling it on a CPU without the level ended the program by
 * SIGILL. */
static void test_only_levels_of_the_cpu_are_filled(void **state)
{
    for (unsigned levels = 0; levels < 1u << ISA_COUNT; levels++) {
        cpu_levels = levels | 1u << ISA_REF;
        filled_levels = 0;
        fill_tables();
        assert_int_equal(filled_levels, cpu_levels);
    }
}

static void test_levels_that_the_cpu_lacks_have_no_table(void **state)
{
    cpu_levels = 1u << ISA_REF | 1u << ISA_AVX2;
    for (int i = -1; i <= ISA_COUNT; i++) {
        const struct kernels *k = kernels_get((enum isa)i);
        if (i != ISA_REF && i != ISA_AVX2)
            assert_null(k);
        else
            assert_int_equal((int)k->level, i);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_levels_that_the_cpu_lacks_have_no_table),
        cmocka_unit_test(test_only_levels_of_the_cpu_are_filled),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
