/* SHA-1 and SHA-256 against the examples of FIPS 180 and its test vectors. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

#include "base/sha.h"

static void expect(enum sha_kind kind, const char *data, size_t n,
                   const char *want)
{
    struct sha s;
    char hex[65];
    sha_begin(&s, kind);
    sha_add(&s, data, n);
    sha_end(&s, hex);
    assert_string_equal(hex, want);
}

static void examples_of_the_standard(void **state)
{
    static const char two[] =
        "abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq";
    (void)state;
    expect(SHA_1, "", 0, "da39a3ee5e6b4b0d3255bfef95601890afd80709");
    expect(SHA_1, "abc", 3, "a9993e364706816aba3e25717850c26c9cd0d89d");
    expect(SHA_1, two, sizeof two - 1,
           "84983e441c3bd26ebaae4aa1f95129e5e54670f1");
    expect(SHA_256, "", 0,
           "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
    expect(SHA_256, "abc", 3,
           "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
    expect(SHA_256, two, sizeof two - 1,
           "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
}

static void a_million_bytes(void **state)
{
    size_t n = 1000000;
    char *a = malloc(n);
    (void)state;
    assert_non_null(a);
    memset(a, 'a', n);
    expect(SHA_1, a, n, "34aa973cd4c4daa4f61eeb2bdbad27316534016f");
    expect(SHA_256, a, n,
           "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
    free(a);
}

/* Every length around the ends of blocks, added in pieces of every size. */
static void pieces_equal_the_whole(void **state)
{
    char data[200], whole[65], pieces[65];
    (void)state;
    for (size_t i = 0; i < sizeof data; i++)
        data[i] = (char)(i * 7 + 1);
    for (int kind = SHA_1; kind <= SHA_256; kind++) {
        for (size_t n = 0; n <= sizeof data; n++) {
            struct sha s;
            sha_begin(&s, (enum sha_kind)kind);
            sha_add(&s, data, n);
            sha_end(&s, whole);
            for (size_t step = 1; step <= 130; step += 3) {
                sha_begin(&s, (enum sha_kind)kind);
                for (size_t at = 0; at < n; at += step)
                    sha_add(&s, data + at, n - at < step ? n - at : step);
                sha_end(&s, pieces);
                assert_string_equal(pieces, whole);
            }
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(examples_of_the_standard),
        cmocka_unit_test(a_million_bytes),
        cmocka_unit_test(pieces_equal_the_whole),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
