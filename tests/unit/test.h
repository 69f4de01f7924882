/* What every unit test includes first: cmocka, and a check of calls that report
 * errors. */
#ifndef TEST_TEST_H
#define TEST_TEST_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

/* cmocka gives every test its state. Few tests need it, so a parameter that a
 * function does not use is no mistake here. */
#pragma GCC diagnostic ignored "-Wunused-parameter"

/* Fail with the message in *e unless the call returns 0. */
#define assert_ok(call, e)            \
    do {                              \
        if (call)                     \
            fail_msg("%s", (e)->msg); \
    } while (0)

#endif
