/* Finding a model: directories, the Hugging Face cache, the built-in one. */
#include "test.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "file/builtin.h"
#include "file/checkpoint.h"
#include "tempdir.h"

#define HASH  "c1899de289a04d12100db370d81485cdf75e47ca"
#define OTHER "0123456789abcdef0123456789abcdef01234567"

static int setup(void **state)
{
    unsetenv("HF_HUB_CACHE");
    unsetenv("HF_HOME");
    unsetenv("XDG_CACHE_HOME");
    unsetenv("HOME");
    return temp_setup(state);
}

static int teardown(void **state)
{
    char command[128];
    snprintf(command, sizeof command, "rm -r %s", temp_dir);
    return system(command);
}

/* A cache as huggingface_hub lays it out: snapshots are links to blobs. */
static void put_cache(const char *root, const char *folder, const char *hash,
                      const char *text)
{
    char p[512], link_path[128];
    snprintf(p, sizeof p, "%s/%s/blobs/%s-config", root, folder, hash);
    temp_put(p, text);
    snprintf(p, sizeof p, "%s/%s/snapshots/%s/config.json", root, folder, hash);
    temp_put(p, NULL);
    snprintf(link_path, sizeof link_path, "../../blobs/%s-config", hash);
    assert_int_equal(symlink(link_path, temp_path(p)), 0);
}

static struct checkpoint *must_open(const char *spec)
{
    struct qwick_err e = {0};
    struct checkpoint *ck;
    assert_ok(checkpoint_open(&ck, spec, &e), &e);
    assert_string_equal(checkpoint_name(ck), spec ? spec : "qwick-demo");
    return ck;
}

static void must_fail(const char *spec, const char *word)
{
    struct qwick_err e = {0};
    struct checkpoint *ck;
    if (checkpoint_open(&ck, spec, &e) == 0)
        fail_msg("%s was opened", spec);
    assert_null(ck);
    assert_int_equal(e.code, QWICK_ERR_MODEL);
    if (!strstr(e.msg, word) || strchr(e.msg, '\n'))
        fail_msg("%s (wanted: %s)", e.msg, word);
    assert_int_equal(checkpoint_open(&ck, spec, NULL), -1);
}

static void check_config(const char *spec, const char *text)
{
    struct checkpoint *ck = must_open(spec);
    struct qwick_err e = {0};
    struct map m;
    bool found;
    assert_ok(checkpoint_map(ck, "config.json", &m, &found, &e), &e);
    assert_true(found);
    assert_int_equal(m.size, strlen(text));
    assert_memory_equal(m.data, text, m.size);
    map_close(&m);
    checkpoint_close(ck);
}

static void test_directory(void **state)
{
    struct qwick_err e = {0};
    struct map m;
    bool found;
    char p[600], spec[128], **names;
    size_t n;
    temp_put("d/config.json", "C");
    temp_put("d/b.safetensors", "B");
    temp_put("d/a.safetensors", "A");
    temp_put("d/A.safetensors", "A");
    temp_put("d/.hidden.safetensors", "H");
    temp_put("d/sub/x.safetensors", "X");
    check_config(temp_path("d"), "C");
    check_config(temp_path("d/"), "C");

    struct checkpoint *ck = must_open(temp_path("d//"));
    assert_string_equal(checkpoint_dir(ck), temp_path("d"));
    checkpoint_path(ck, "config.json", p, sizeof p);
    assert_string_equal(p, temp_path("d/config.json"));
    checkpoint_path(ck, "config.json", p, 5);
    assert_int_equal(strlen(p), 4);
    assert_int_equal(checkpoint_map(ck, "none.json", &m, &found, &e), 0);
    assert_false(found);
    assert_null(m.data);
    const char *const bad[] = {"",
                               ".",
                               "..",
                               "../d/config.json",
                               "/etc/passwd",
                               "sub/x.safetensors",
                               "additional_chat_templates/",
                               "additional_chat_templates/..",
                               "additional_chat_templates/a/b",
                               "./config.json"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        assert_int_equal(checkpoint_map(ck, bad[i], &m, &found, &e), -1);
        assert_false(found);
        assert_non_null(strstr(e.msg, "not a plain file name"));
    }
    /* a file in a directory: both names are plain */
    assert_int_equal(
        checkpoint_map_in(ck, "sub", "x.safetensors", &m, &found, &e), 0);
    assert_true(found);
    map_close(&m);
    assert_int_equal(checkpoint_map_in(ck, "none", "x", &m, &found, &e), 0);
    assert_false(found);
    const char *const bad_in[][2] = {
        {"..", "d"},        {".", "config.json"}, {"", "config.json"},
        {"/etc", "passwd"}, {"sub/", "x"},        {"sub", "../config.json"},
        {"sub", ".."},      {"sub", ""}};
    for (size_t i = 0; i < sizeof bad_in / sizeof *bad_in; i++) {
        assert_int_equal(
            checkpoint_map_in(ck, bad_in[i][0], bad_in[i][1], &m, &found, &e),
            -1);
        assert_false(found);
        assert_non_null(strstr(e.msg, "not a plain file name"));
    }
    assert_int_equal(checkpoint_map(ck, "sub", &m, &found, &e), -1);
    assert_non_null(strstr(e.msg, "is a directory"));
    assert_int_equal(symlink("gone", temp_path("d/link")), 0);
    assert_int_equal(checkpoint_map(ck, "link", &m, &found, &e), -1);
    assert_non_null(strstr(e.msg, temp_path("d/link")));
    assert_non_null(strstr(e.msg, "incomplete download"));
    assert_int_equal(mkfifo(temp_path("d/fifo"), 0600), 0);
    assert_int_equal(checkpoint_map(ck, "fifo", &m, &found, &e), -1);
    assert_non_null(strstr(e.msg, "is a FIFO"));

    assert_int_equal(checkpoint_list(ck, ".safetensors", &names, &n, &e), 0);
    assert_int_equal(n, 3);
    assert_string_equal(names[0], "A.safetensors");
    assert_string_equal(names[1], "a.safetensors");
    assert_string_equal(names[2], "b.safetensors");
    checkpoint_list_free(names, n);
    assert_int_equal(checkpoint_list(ck, ".gguf", &names, &n, &e), 0);
    assert_int_equal(n, 0);
    checkpoint_list_free(names, n);
    checkpoint_close(ck);
    checkpoint_close(NULL);

    /* "/" is not doubled, unless the machine has GGUF files there; a link to a
     * directory is accepted. */
    if (checkpoint_open(&ck, "/", &e) == 0) {
        checkpoint_path(ck, "x", p, sizeof p);
        assert_string_equal(p, "/x");
        checkpoint_close(ck);
    } else {
        assert_non_null(strstr(e.msg, "GGUF"));
    }
    assert_int_equal(symlink("d", temp_path("l")), 0);
    check_config(temp_path("l"), "C");

    must_fail("", "empty");
    must_fail(temp_path("d/config.json"),
              "is a file, not a checkpoint directory");
    must_fail(temp_path("none"), "no such directory");
    must_fail("/dev/null", "is a character device");
    snprintf(spec, sizeof spec, "%s/d/config.json/x", temp_dir);
    must_fail(spec, "no such directory");
}

#define POINTER                                                          \
    "version https://git-lfs.github.com/spec/v1\n"                       \
    "oid sha256:"                                                        \
    "4d7a214614ab2935c943f9e0ff69d22eadbb8f32b1258daaa5e2ca24d17e2393\n" \
    "size 12345\n"

/* Things other than a file in its place, and files that are too large. */
static void test_not_the_file(void **state)
{
    struct qwick_err e = {0};
    struct map m;
    bool found;
    temp_put("d/config.json", "C");
    temp_put("d/a.safetensors", POINTER);
    temp_put("d/tokenizer.json", POINTER);
    temp_put("d/text", "version https://git-lfs.github.com/ is not a pointer");
    struct checkpoint *ck = must_open(temp_path("d"));
    const char *const pointers[] = {"a.safetensors", "tokenizer.json"};
    for (size_t i = 0; i < 2; i++) {
        assert_int_equal(checkpoint_map(ck, pointers[i], &m, &found, &e), -1);
        assert_int_equal(e.code, QWICK_ERR_MODEL);
        assert_non_null(strstr(e.msg, pointers[i]));
        assert_non_null(strstr(e.msg, "is a Git LFS pointer"));
        assert_false(found);
    }
    assert_int_equal(checkpoint_map(ck, "text", &m, &found, &e), 0);
    map_close(&m);
    /* the limit itself is allowed */
    for (off_t more = 0; more < 2; more++) {
        assert_int_equal(truncate(temp_path("d/config.json"),
                                  (off_t)CHECKPOINT_SMALL + more),
                         0);
        assert_int_equal(
            checkpoint_map_small(ck, "config.json", &m, &found, &e),
            -(int)more);
        assert_int_equal(found, !more);
        map_close(&m);
    }
    assert_string_equal(e.msg + strlen(temp_path("d")),
                        "/config.json: 16777217 bytes are above the limit of "
                        "16777216");
    assert_int_equal(checkpoint_map_small(ck, "none", &m, &found, &e), 0);
    assert_false(found);
    checkpoint_close(ck);
}

static void test_hub(void **state)
{
    put_cache("one", "models--Qwen--Qwen3-0.6B", HASH, "main");
    put_cache("one", "models--Qwen--Qwen3-0.6B", OTHER, "older");
    temp_put("one/models--Qwen--Qwen3-0.6B/refs/main", HASH "\n");
    temp_put("one/models--Qwen--Qwen3-0.6B/refs/v1.0", OTHER);
    temp_put("one/models--Qwen--Qwen3-0.6B/refs/refs/pr/3", " " OTHER " \n");
    put_cache("one", "models--gpt", HASH, "gpt");
    temp_put("one/models--gpt/refs/main", HASH);
    setenv("HF_HUB_CACHE", temp_path("one"), 1);

    check_config("Qwen/Qwen3-0.6B", "main");
    check_config("Qwen/Qwen3-0.6B@main", "main");
    check_config("Qwen/Qwen3-0.6B@v1.0", "older");
    check_config("Qwen/Qwen3-0.6B@refs/pr/3", "older");
    check_config("Qwen/Qwen3-0.6B@" OTHER, "older");
    check_config("gpt", "gpt");
    struct checkpoint *ck = must_open("Qwen/Qwen3-0.6B");
    assert_string_equal(
        checkpoint_dir(ck),
        temp_path("one/models--Qwen--Qwen3-0.6B/snapshots/" HASH));
    checkpoint_close(ck);

    /* If a model is missing, the message names the places and the remedy. */
    char want[300];
    snprintf(want, sizeof want,
             "Qwen/Qwen3-8B: no such directory, and not in the Hugging Face "
             "cache %s/one",
             temp_dir);
    must_fail("Qwen/Qwen3-8B", want);
    must_fail("Qwen/Qwen3-8B", ": download it with qwick pull Qwen/Qwen3-8B");
    must_fail("Qwen/Qwen3-0.6B@v2",
              "has not its revision v2: download it with qwick pull "
              "Qwen/Qwen3-0.6B@v2");
    must_fail("Qwen/Qwen3-0.6B@refs", "has not its revision refs");
    must_fail("Qwen/Qwen3-0.6B@0123", "has not its revision 0123");

    /* These are not hub ids. */
    const char *const none[] = {
        "../no-such", "a/../b",
        "./a",        "a/b/c",
        "/a",         "a/",
        "a//b",       "-a/b",
        ".a/b",       "a/.b",
        "a/b@",       "a/b@../x",
        "a/b@x/../y", "a/b@/x",
        "a/b@x/",     "a b",
        "a/b@x y",    "a--b",
        "a/b--c",     "a..b/c",
        "a/b@.",      "a/b@x//y",
        "@main",      "a\n/b",
        "\xc3\xa9/b", "models--Qwen--Qwen3-0.6B",
        "~/x",        "a/b@c@d",
    };
    for (size_t i = 0; i < sizeof none / sizeof *none; i++) {
        struct qwick_err e;
        struct checkpoint *c;
        assert_int_equal(checkpoint_open(&c, none[i], &e), -1);
        if (strstr(e.msg, "qwick pull"))
            fail_msg("%s", e.msg);
    }

    /* A directory of that name wins. */
    char cwd[512];
    assert_non_null(getcwd(cwd, sizeof cwd));
    temp_put("work/Qwen/Qwen3-0.6B/config.json", "local");
    assert_int_equal(chdir(temp_path("work")), 0);
    check_config("Qwen/Qwen3-0.6B", "local");
    assert_int_equal(chdir(cwd), 0);
    check_config("Qwen/Qwen3-0.6B", "main");
}

static void test_hub_roots(void **state)
{
    must_fail("Qwen/X", "(HOME is not set)");
    temp_put("home/.cache/huggingface/hub/models--Qwen--X/refs/main", HASH);
    put_cache("home/.cache/huggingface/hub", "models--Qwen--X", HASH, "home");
    temp_put("xdg/huggingface/hub/models--Qwen--X/refs/main", HASH);
    put_cache("xdg/huggingface/hub", "models--Qwen--X", HASH, "xdg");
    temp_put("hf/hub/models--Qwen--X/refs/main", HASH);
    put_cache("hf/hub", "models--Qwen--X", HASH, "hf");
    temp_put("cache/models--Qwen--X/refs/main", HASH);
    put_cache("cache", "models--Qwen--X", HASH, "cache");
    setenv("HOME", temp_path("home"), 1);
    check_config("Qwen/X", "home");
    setenv("XDG_CACHE_HOME", temp_path("xdg"), 1);
    check_config("Qwen/X", "xdg");
    setenv("HF_HOME", temp_path("hf"), 1);
    check_config("Qwen/X", "hf");
    setenv("HF_HUB_CACHE", temp_path("cache"), 1);
    check_config("Qwen/X", "cache");
    /* An empty variable counts as unset; a cache without the model is
     * skipped. */
    setenv("HF_HUB_CACHE", "", 1);
    check_config("Qwen/X", "hf");
    setenv("HF_HOME", temp_path("nothing"), 1);
    check_config("Qwen/X", "xdg");
    char want[400];
    snprintf(want, sizeof want,
             "cache %s/nothing/hub, %s/xdg/huggingface/hub, "
             "%s/home/.cache/huggingface/hub (not",
             temp_dir, temp_dir, temp_dir);
    must_fail("Qwen/Y", want);
}

static void test_hub_damaged(void **state)
{
    setenv("HF_HUB_CACHE", temp_path("c"), 1);
    temp_put("c/models--a--b/refs/main", HASH);
    temp_put("c/models--a--b/snapshots/x/y", "");
    must_fail("a/b", "the snapshot " HASH " that it names is missing");
    static const char *const refs[] = {"../../x", "..",  ".",   "/etc", "a/b",
                                       "",        " \n", "x y", "x\ny"};
    for (size_t i = 0; i < sizeof refs / sizeof *refs; i++) {
        temp_put("c/models--a--b/refs/main", refs[i]);
        must_fail("a/b", "refs/main: does not hold the name of a snapshot");
    }
    assert_int_equal(unlink(temp_path("c/models--a--b/refs/main")), 0);
    must_fail("a/b", "has not its revision main");
    assert_int_equal(mkfifo(temp_path("c/models--a--b/refs/main"), 0600), 0);
    must_fail("a/b", "is a FIFO");
    assert_int_equal(unlink(temp_path("c/models--a--b/refs/main")), 0);
    assert_int_equal(symlink("gone", temp_path("c/models--a--b/refs/main")), 0);
    must_fail("a/b", "No such file");
}

static void test_builtin(void **state)
{
    struct qwick_err e = {0};
    struct checkpoint *ck = must_open(NULL);
    struct map m;
    bool found;
    char p[100], **names;
    size_t n;
    assert_string_equal(checkpoint_dir(ck), "built-in");
    checkpoint_path(ck, "config.json", p, sizeof p);
    assert_string_equal(p, "built-in/config.json");
    assert_int_equal(checkpoint_list(ck, "", &names, &n, &e), 0);
    assert_int_equal(n, 5);
    for (size_t i = 0; i < n; i++) {
        /* Each file equals the file in the source tree. */
        struct map f;
        snprintf(p, sizeof p, "models/demo/%s", names[i]);
        assert_ok(map_open(&f, p, &e), &e);
        assert_int_equal(checkpoint_map(ck, names[i], &m, &found, &e), 0);
        assert_true(found);
        assert_false(m.mapped);
        assert_int_equal(m.size, f.size);
        assert_memory_equal(m.data, f.data, f.size);
        if (strcmp(names[i], "model.safetensors") == 0)
            assert_int_equal((uintptr_t)m.data % 4096, 0);
        if (i > 0)
            assert_true(strcmp(names[i - 1], names[i]) < 0);
        map_close(&m);
        map_close(&f);
    }
    checkpoint_list_free(names, n);
    assert_int_equal(checkpoint_map(ck, "none", &m, &found, &e), 0);
    assert_false(found);
    assert_int_equal(checkpoint_map(ck, "../x", &m, &found, &e), -1);
    struct builtin_file f;
    assert_int_equal(builtin_at(5, &f), -1);
    assert_int_equal(builtin_find("config", &f), -1);
    checkpoint_close(ck);
}

int main(void)
{
#define TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
    const struct CMUnitTest tests[] = {
        TEST(test_directory), TEST(test_not_the_file), TEST(test_hub),
        TEST(test_hub_roots), TEST(test_hub_damaged),  TEST(test_builtin),
    };
    return cmocka_run_group_tests_name("checkpoint", tests, NULL, NULL);
}
