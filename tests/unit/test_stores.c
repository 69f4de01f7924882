/* Searching the stores of models, and names of models in them. */
#include "test.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/buf.h"
#include "file/checkpoint.h"
#include "file/find_model.h"
#include "file/gguf_pick.h"
#include "file/stores.h"
#include "tempdir.h"

#define HASH  "c1899de289a04d12100db370d81485cdf75e47ca"
#define OTHER "0123456789abcdef0123456789abcdef01234567"

static const char *const variables[] = {
    "HF_HUB_CACHE",     "HF_HOME",       "XDG_CACHE_HOME", "HOME",
    "QWICK_MODEL_PATH", "OLLAMA_MODELS", "LLAMA_CACHE",    "MODELSCOPE_CACHE",
};

static int setup(void **state)
{
    for (size_t i = 0; i < sizeof variables / sizeof *variables; i++)
        unsetenv(variables[i]);
    if (temp_setup(state))
        return -1;
    setenv("HOME", temp_dir, 1);
    return 0;
}

static void put_link(const char *target, const char *name)
{
    temp_put(name, NULL);
    assert_int_equal(symlink(target, temp_path(name)), 0);
}

/* Each name means the same models with an index as without one. */
static void same_with_index(struct stores *s)
{
    struct qwick_err e;
    struct stores plain = *s;
    assert_ok(stores_index(s, &e), &e);
    for (size_t i = 0; i < s->n; i++) {
        const char *texts[] = {s->v[i].name, s->v[i].id, s->v[i].path, "none"};
        for (size_t k = 0; k < 4; k++) {
            size_t at = 0, want = 0;
            assert_int_equal(stores_match(s, texts[k], &at),
                             stores_match(&plain, texts[k], &want));
            assert_int_equal(at, want);
        }
        if (!s->v[i].is_copy)
            assert_string_equal(stores_spec(s, i), stores_spec(&plain, i));
    }
}

/* Return the models found, as lines "store name id path-below-temp_dir
 * [fault]". The directory of the system's Ollama is left out. */
static char *scan(void)
{
    static char text[16384];
    struct stores s;
    struct qwick_err e = {0};
    size_t at = 0, n = strlen(temp_dir);
    assert_ok(stores_scan(&s, NULL, &e), &e);
    text[0] = '\0';
    for (size_t i = 0; i < s.n; i++) {
        const struct store_model *m = &s.v[i];
        if (strncmp(m->path, temp_dir, n) != 0 || m->is_copy)
            continue;
        at += (size_t)snprintf(text + at, sizeof text - at, "%s %s %s %s%s%s\n",
                               m->store, m->name, m->id, m->path + n + 1,
                               m->fault ? ": " : "", m->fault ? m->fault : "");
        assert_true(at < sizeof text);
    }
    assert_false(s.cut);
    same_with_index(&s);
    stores_free(&s);
    return text;
}

/* Check that spec means this path below temp_dir. */
static void check(const char *spec, const char *want, const char *want_type)
{
    struct qwick_err e = {0};
    char *path;
    const char *type;
    assert_ok(find_model(&path, &type, spec, false, &e), &e);
    assert_string_equal(path, temp_path(want));
    assert_int_equal(!type, !want_type);
    if (type)
        assert_string_equal(type, want_type);
    free(path);
}

static void refused(const char *spec, const char *word)
{
    struct qwick_err e = {0};
    char *path;
    const char *type;
    assert_int_equal(find_model(&path, &type, spec, false, &e), -1);
    assert_null(path);
    assert_int_equal(e.code, QWICK_ERR_MODEL);
    if (!strstr(e.msg, word))
        fail_msg("no '%s' in: %s", word, e.msg);
}

static void test_hub(void **state)
{
    const char *in = ".cache/huggingface/hub/";
    char p[512];
    static const struct {
        const char *name, *text;
    } files[] = {
        {"models--Qwen--Qwen3-4B/refs/main", HASH},
        {"models--Qwen--Qwen3-4B/refs/refs/pr/3", OTHER "\n"},
        {"models--Qwen--Qwen3-4B/snapshots/" HASH "/config.json", "{}"},
        {"models--Qwen--Qwen3-4B/snapshots/" HASH "/a.safetensors", ""},
        {"models--Qwen--Qwen3-4B/snapshots/" OTHER "/config.json", "{}"},
        {"models--Qwen--Qwen3-4B/snapshots/old/config.json", "{}"},
        {"models--u--G-GGUF/refs/main", HASH},
        {"models--u--G-GGUF/snapshots/" HASH "/config.json", "{}"},
        {"models--u--G-GGUF/snapshots/" HASH "/G-Q4_K_M.gguf", ""},
        {"models--u--G-GGUF/snapshots/" HASH "/G-UD-Q4_K_M.gguf", ""},
        {"models--u--G-GGUF/snapshots/" HASH "/G-Q8_0.gguf", ""},
        {"models--u--G-GGUF/snapshots/" HASH "/mmproj-F16.gguf", ""},
        {"models--u--G-GGUF/snapshots/" HASH "/BF16/G-BF16-00001-of-00002.gguf",
         ""},
        {"models--u--G-GGUF/snapshots/" HASH "/BF16/G-BF16-00002-of-00002.gguf",
         ""},
        {"models--bert/refs/main", HASH},
        {"models--bert/snapshots/" HASH "/config.json", "{}"},
        {"models--q--gone/refs/main", HASH},
        {"models--q--gone/blobs/1.incomplete", ""},
        {"models--q--part/blobs/1.incomplete", ""},
        {"datasets--q--d/refs/main", HASH},
    };
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        snprintf(p, sizeof p, "%s%s", in, files[i].name);
        temp_put(p, files[i].text);
    }
#define H  "huggingface "
#define Q  ".cache/huggingface/hub/models--Qwen--Qwen3-4B"
#define G  ".cache/huggingface/hub/models--u--G-GGUF/snapshots/" HASH
#define IN ".cache/huggingface/hub/models--"
    assert_string_equal(
        scan(),
        H "Qwen3-4B@refs/pr/3 Qwen/Qwen3-4B@refs/pr/3 " Q "/snapshots/" OTHER
          "\n" H "Qwen3-4B Qwen/Qwen3-4B " Q "/snapshots/" HASH "\n" H
          "Qwen3-4B@old Qwen/Qwen3-4B@old " Q "/snapshots/old\n" H
          "bert bert " IN "bert/snapshots/" HASH "\n" H "gone q/gone " IN
          "q--gone: the snapshot of revision main is missing: incomplete "
          "download?\n" H "part q/part " IN "q--part: incomplete download\n" H
          "G-Q4_K_M u/G-GGUF:Q4_K_M " G "/G-Q4_K_M.gguf\n" H
          "G-Q8_0 u/G-GGUF:Q8_0 " G "/G-Q8_0.gguf\n" H
          "G-UD-Q4_K_M u/G-GGUF:UD-Q4_K_M " G "/G-UD-Q4_K_M.gguf\n" H
          "G-BF16 u/G-GGUF:BF16 " G "/BF16/G-BF16-00001-of-00002.gguf\n");

    check("Qwen/Qwen3-4B", Q "/snapshots/" HASH, NULL);
    check("Qwen/Qwen3-4B@refs/pr/3", Q "/snapshots/" OTHER, NULL);
    check("qwen3-4b", Q "/snapshots/" HASH, NULL);
    check("u/G-GGUF:q8_0", G, "q8_0"); /* the directory has the file */
    check("G-Q8_0", G "/G-Q8_0.gguf", NULL);
    check("G-GGUF:Q8_0", G "/G-Q8_0.gguf", NULL);
    check("G-Q8_0.gguf", G "/G-Q8_0.gguf", NULL);
    check("g-bf16", G "/BF16/G-BF16-00001-of-00002.gguf", NULL);
    refused("G-GGUF", "4 models have this name: choose one of G-Q4_K_M, "
                      "G-Q8_0, G-UD-Q4_K_M, G-BF16");
    refused("part", "q--part: incomplete download");
    refused("nothing", "download it with qwick pull ORG/NAME");
    refused("no-such.gguf", "no such file");
    refused("a b", "no model has this name in the Hugging Face cache ");
    refused("a.gguf", "a.gguf: no such file, and no model has this name in the "
                      "Hugging Face cache ");
    refused("./Qwen3-4B", "no such directory");
}

/* Directories of QWICK_MODEL_PATH, with links, loops and files that are not
 * models. */
static void test_path(void **state)
{
    char both[1024];
    temp_put("a/one/config.json", "{}");
    temp_put("a/one/model.safetensors", "");
    temp_put("a/one/onnx/config.json", "{}"); /* another form of it */
    temp_put("a/org/two/config.json", "{}");
    temp_put("a/x.gguf", "");
    temp_put("a/mmproj-x.gguf", "");
    temp_put("a/y-00001-of-00002.gguf", "");
    temp_put("a/y-00002-of-00002.gguf", "");
    temp_put("a/z-00002-of-00003.gguf", "");
    temp_put("a/z-00003-of-00003.gguf", "");
    temp_put("a/w.gguf.part", "");
    temp_put("a/notes.gguf.txt", "");
    temp_put("a/.hidden/config.json", "{}");
    put_link("..", "a/org/loop");
    put_link("one", "a/same");
    put_link("nowhere.gguf", "a/dangling.gguf");
    temp_put("b/one/config.json", "{}");
    snprintf(both, sizeof both, "%s::%s:%s/none:%s", temp_path("a"),
             temp_path("b"), temp_dir, temp_path("a"));
    setenv("QWICK_MODEL_PATH", both, 1);
    assert_string_equal(
        scan(),
        "path dangling dangling a/dangling.gguf\n"
        "path x x a/x.gguf\n"
        "path y y a/y-00001-of-00002.gguf\n"
        "path z-00002-of-00003.gguf z-00002-of-00003.gguf "
        "a/z-00002-of-00003.gguf: part 1 is missing: incomplete download?\n"
        "path w.gguf.part w.gguf.part a/w.gguf.part: incomplete download\n"
        "path one one a/one\n"
        "path two org/two a/org/two\n"
        "path one one b/one\n");
    check("same", "a/same", NULL);
    check("x", "a/x.gguf", NULL);
    check("TWO", "a/org/two", NULL);
    check("org/two", "a/org/two", NULL);
    refused("one", "2 models have this name: choose one of ");
    refused("one", "/a/one, ");
    /* a path goes before a name */
    assert_int_equal(chdir(temp_path("b")), 0);
    struct qwick_err e;
    char *path;
    const char *type;
    assert_int_equal(find_model(&path, &type, "one", false, &e), 0);
    assert_string_equal(path, "one");
    free(path);
    assert_int_equal(chdir("/"), 0);
}

/* A model is one directory, even at the root of the search; a directory that
 * cannot be listed is reported. */
static void test_roots(void **state)
{
    temp_put("m/config.json", "{}");
    temp_put("m/a.safetensors", "");
    temp_put("file", "no directory");
    char p[512];
    snprintf(p, sizeof p, "%s:%s", temp_path("m"), temp_path("file"));
    setenv("QWICK_MODEL_PATH", p, 1);
    assert_string_equal(scan(),
                        "path m m m\n"
                        "path file file file: cannot list: Not a directory\n");
    const volatile int stop = 1;
    struct stores s;
    struct qwick_err e;
    assert_int_equal(stores_scan(&s, &stop, &e), -1);
    assert_int_equal(e.code, QWICK_ERR_INTERRUPTED);
    assert_int_equal(s.n, 0);
}

#define BLOB "4d7a214614ab2935c943f9e0ff69d22eadbb8f32b1258daaa5e2ca24d17e2393"
#define GONE "5d7a214614ab2935c943f9e0ff69d22eadbb8f32b1258daaa5e2ca24d17e2393"

static void manifest(const char *name, const char *layers)
{
    char text[1024], p[256];
    snprintf(text, sizeof text, "{\"schemaVersion\":2,\"layers\":[%s]}",
             layers);
    snprintf(p, sizeof p, ".ollama/models/manifests/%s", name);
    temp_put(p, text);
}

#define LAYER(kind, digest)                                                \
    "{\"mediaType\":\"application/vnd.ollama.image." kind "\",\"digest\":" \
    "\"" digest "\"}"

static void test_ollama(void **state)
{
    temp_put(".ollama/models/blobs/sha256-" BLOB, "GGUF");
    manifest(
        "registry.ollama.ai/library/qwen3/4b",
        LAYER("license", "sha256:" GONE) "," LAYER("model", "sha256:" BLOB));
    manifest("registry.ollama.ai/library/qwen3/8b",
             LAYER("model", "sha256:" GONE));
    manifest("registry.ollama.ai/me/mine/v1",
             LAYER("model", "sha256:../../../../../../../../../../../../../../"
                            "../../../../etc/passwd"));
    manifest("hf.co/u/G-GGUF/Q8_0", LAYER("model", "sha256:" BLOB) "," LAYER(
                                        "adapter", "sha256:" BLOB));
    manifest("registry.ollama.ai/library/none/latest",
             LAYER("license", "sha256:" BLOB));
    manifest("registry.ollama.ai/library/odd/latest", "1, [], null, {}");
    temp_put(".ollama/models/manifests/registry.ollama.ai/library/bad/latest",
             "{");
    temp_put(".ollama/models/manifests/registry.ollama.ai/library/.DS_Store",
             "{");
#define O ".ollama/models/manifests/registry.ollama.ai/"
    assert_string_equal(
        scan(),
        "ollama hf.co/u/G-GGUF:Q8_0 hf.co/u/G-GGUF:Q8_0 "
        ".ollama/models/manifests/hf.co/u/G-GGUF/Q8_0: adapters (LoRA) are not "
        "supported\n"
        "ollama bad:latest bad:latest " O "library/bad/latest: manifest: "
        "offset 1: the text ends too early\n"
        "ollama none:latest none:latest " O
        "library/none/latest: the manifest names no model\n"
        "ollama odd:latest odd:latest " O
        "library/odd/latest: the manifest names no model\n"
        "ollama qwen3:4b qwen3:4b .ollama/models/blobs/sha256-" BLOB "\n"
        "ollama qwen3:8b qwen3:8b " O
        "library/qwen3/8b: its file is missing: incomplete download?\n"
        "ollama me/mine:v1 me/mine:v1 " O
        "me/mine/v1: the manifest has a malformed digest\n");
    check("qwen3:4b", ".ollama/models/blobs/sha256-" BLOB, NULL);
    check("qwen3", ".ollama/models/blobs/sha256-" BLOB,
          NULL); /* 8b is faulty */
    refused("qwen3:8b", "its file is missing");
    refused("qwen3:1b", "qwen3:1b: no such directory");
    /* the places that were searched, then the stores that do not exist */
    refused("qwen3:1b", "Ollama's store ");
    refused("qwen3:1b", " (not on this machine: LM Studio's store, llama.cpp's "
                        "cache, ModelScope's cache)");
}

/* A directory that cannot be read is listed with the reason, whatever words its
 * path and the reason have. */
static void test_broken_places(void **state)
{
    temp_put("hub, cannot: tell", "a file");
    temp_put("ollama, cannot: tell/manifests", "a file");
    setenv("HF_HUB_CACHE", temp_path("hub, cannot: tell"), 1);
    setenv("OLLAMA_MODELS", temp_path("ollama, cannot: tell"), 1);
    char want[1024];
    snprintf(want, sizeof want,
             "huggingface hub, cannot: tell %s hub, cannot: tell: cannot list: "
             "Not a directory\n"
             "ollama manifests %s ollama, cannot: tell/manifests: cannot list: "
             "Not a directory\n",
             temp_path("hub, cannot: tell"),
             temp_path("ollama, cannot: tell/manifests"));
    assert_string_equal(scan(), want);

    struct stores s = {0};
    struct qwick_err e = {0}, why = {0};
    struct store_scan all = {.s = &s, .store = "path", .e = &e};
    err_set(&why, QWICK_ERR_MODEL, "/a/b: in other words");
    assert_int_equal(scan_add_unreadable(&all, "b", NULL, "/a/b", &why), 0);
    err_set(&why, QWICK_ERR_MODEL, "only other words");
    assert_int_equal(scan_add_unreadable(&all, "b", NULL, "/a/b", &why), 0);
    assert_int_equal(s.n, 2);
    assert_string_equal(s.v[0].fault, "in other words");
    assert_string_equal(s.v[1].fault, "only other words");
    err_oom(&why, 3);
    assert_int_equal(scan_add_unreadable(&all, "b", NULL, "/a/b", &why), -1);
    assert_int_equal(e.code, QWICK_ERR_MEMORY);
    assert_int_equal(s.n, 2);
    stores_free(&s);
}

static void test_other_stores(void **state)
{
    temp_put(".lmstudio/models/org/G-GGUF/G-Q4_K_M.gguf", "");
    temp_put(".lmstudio/models/org/mlx/config.json", "{}");
    temp_put(".lmstudio/models/org/mlx/model.safetensors", "");
    temp_put(".cache/llama.cpp/org_repo_G-Q6_K.gguf", "");
    temp_put(".cache/llama.cpp/org_repo_G-Q8_0.gguf.downloadInProgress", "");
    temp_put(".cache/llama.cpp/manifest=org=repo=latest.json", "{}");
    temp_put(".cache/modelscope/hub/models/Qwen/Qwen2___5-0___5B/config.json",
             "{}");
    temp_put(".cache/modelscope/hub/Qwen/Old/config.json", "{}");
    assert_string_equal(
        scan(), "lmstudio G-Q4_K_M org/G-GGUF:Q4_K_M "
                ".lmstudio/models/org/G-GGUF/G-Q4_K_M.gguf\n"
                "lmstudio mlx org/mlx .lmstudio/models/org/mlx\n"
                "llama.cpp org_repo_G-Q6_K org_repo_G-Q6_K "
                ".cache/llama.cpp/org_repo_G-Q6_K.gguf\n"
                "llama.cpp org_repo_G-Q8_0.gguf.downloadInProgress "
                "org_repo_G-Q8_0.gguf.downloadInProgress "
                ".cache/llama.cpp/org_repo_G-Q8_0.gguf.downloadInProgress: "
                "incomplete download\n"
                "modelscope Old Qwen/Old .cache/modelscope/hub/Qwen/Old\n"
                "modelscope Qwen2.5-0.5B Qwen/Qwen2.5-0.5B "
                ".cache/modelscope/hub/models/Qwen/Qwen2___5-0___5B\n");
    check("org/G-GGUF", ".lmstudio/models/org/G-GGUF/G-Q4_K_M.gguf", NULL);
    check("qwen/qwen2.5-0.5b",
          ".cache/modelscope/hub/models/Qwen/Qwen2___5-0___5B", NULL);
}

/* The limits hold, and say so. */
static void test_limits(void **state)
{
    struct stores s;
    struct qwick_err e;
    char deep[512] = "d", name[64];
    for (int i = 0; i < STORES_MAX_DEPTH + 2; i++)
        strcat(deep, "/x");
    strcat(deep, "/config.json");
    temp_put(deep, "{}");
    setenv("QWICK_MODEL_PATH", temp_path("d"), 1);
    assert_string_equal(scan(), "");
    /* links, because new files take their time */
    temp_put("d/0.gguf", "");
    for (int i = 1; i < STORES_MAX_MODELS + 1; i++) {
        snprintf(name, sizeof name, "d/%d.gguf", i);
        assert_int_equal(link(temp_path("d/0.gguf"), temp_path(name)), 0);
    }
    assert_int_equal(stores_scan(&s, NULL, &e), 0);
    assert_int_equal(s.n, STORES_MAX_MODELS);
    assert_true(s.cut);
    stores_free(&s);
}

static void test_tags(void **state)
{
    static const char *const names[] = {
        "a-Q4_K_M.gguf",
        "a-UD-Q4_K_M.gguf",
        "b.f16.gguf",
        "c-q8_0.gguf",
        "d-q8_0.gguf",
        "e-7B.gguf",
        "mmproj-F16.gguf",
        "f-IQ4_XS-00001-of-00002.gguf",
        "f-IQ4_XS-00002-of-00002.gguf",
        "BF16/f-BF16.gguf",
        "g-UD-Q2_K_XL.gguf",
    };
    static const char *const tags[] = {
        "Q4_K_M", "UD-Q4_K_M", "f16", NULL,   NULL,      NULL,
        NULL,     "IQ4_XS",    NULL,  "BF16", "Q2_K_XL",
    };
    size_t n = sizeof names / sizeof *names;
    for (size_t i = 0; i < n; i++) {
        size_t at = gguf_tag(names, n, i), end = gguf_stem(names[i]);
        assert_int_equal(at > 0, tags[i] != NULL);
        if (at) {
            assert_int_equal(end - at, strlen(tags[i]));
            assert_memory_equal(names[i] + at, tags[i], end - at);
        }
    }
    char out[64];
    assert_int_equal(gguf_part_name(out, sizeof out, names[8], 1), 2);
    assert_string_equal(out, names[7]);
    assert_int_equal(gguf_part_name(out, sizeof out, names[0], 1), 0);
    assert_true(gguf_part_before(names[7], names[8]));
    assert_false(gguf_part_before(names[8], names[7]));
    assert_false(gguf_part_before(names[0], names[8]));
    assert_false(gguf_part_before(names[0], names[0]));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_hub, setup, temp_teardown),
        cmocka_unit_test_setup_teardown(test_path, setup, temp_teardown),
        cmocka_unit_test_setup_teardown(test_roots, setup, temp_teardown),
        cmocka_unit_test_setup_teardown(test_ollama, setup, temp_teardown),
        cmocka_unit_test_setup_teardown(test_broken_places, setup,
                                        temp_teardown),
        cmocka_unit_test_setup_teardown(test_other_stores, setup,
                                        temp_teardown),
        cmocka_unit_test_setup_teardown(test_limits, setup, temp_teardown),
        cmocka_unit_test(test_tags),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
