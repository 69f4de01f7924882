/* GGUF goldens with one fault each. A fault ends in an error with one line that
 * names the file; where the file is still a model, it runs. Faults of the
 * container alone are in test_gguf.c. */
#include "test.h"

#include <math.h>

#include "base/buf.h"
#include "base/dtype.h"
#include "file/gguf_write.h"
#include "file/map.h"
#include "qwick.h"
#include "tempdir.h"

#define GOLDEN "tests/golden/gguf/"

static const char *const goldens[] = {"tiny-dense-Q2_K", "tiny-moe-Q4_K_S",
                                      "qwen35-tied", "gemma3-tied"};
enum { N_GOLDENS = sizeof goldens / sizeof *goldens };

/* ---- a golden in parts ----------------------------------------------------
 */

struct entry {
    const char *key;
    size_t n_key;
    size_t at, end;  /* in the file, with its key */
    size_t type;     /* where the type is; the value follows */
    size_t elements; /* where the first element of an array is; 0: no array */
};

struct tensor {
    char name[96];
    uint32_t rank, type;
    uint64_t dims[4];
    const char *data;
    size_t n;  /* bytes of data */
    size_t at; /* of the entry in the file */
    uint64_t offset;
};

/* Read by this file's own code, which trusts the goldens. */
static struct {
    char *file;
    size_t n_file;
    struct entry keys[64];
    size_t n_keys;
    struct tensor tensors[128];
    size_t n_tensors;
    char arch[16];
} g;

static uint64_t load(size_t at, size_t n)
{
    uint64_t v = 0;
    memcpy(&v, g.file + at, n);
    return v;
}

static size_t scalar_bytes(uint64_t type)
{
    static const size_t bytes[] = {1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8};
    return bytes[type];
}

static size_t skip_value(size_t at, uint64_t type)
{
    return type == GGUF_STRING ? at + 8 + load(at, 8) : at + scalar_bytes(type);
}

static size_t read_entry(size_t at, struct entry *e)
{
    *e = (struct entry){.at = at, .n_key = load(at, 8)};
    e->key = g.file + at + 8;
    e->type = at + 8 + e->n_key;
    uint64_t type = load(e->type, 4);
    at = e->type + 4;
    if (type == GGUF_ARRAY) {
        uint64_t element = load(at, 4), n = load(at + 4, 8);
        at = e->elements = at + 12;
        for (uint64_t i = 0; i < n; i++)
            at = skip_value(at, element);
    } else {
        at = skip_value(at, type);
    }
    return e->end = at;
}

static size_t read_tensor(size_t at, struct tensor *t)
{
    size_t n = load(at, 8);
    *t = (struct tensor){.at = at};
    assert_true(n < sizeof t->name);
    memcpy(t->name, g.file + at + 8, n);
    at += 8 + n;
    t->rank = (uint32_t)load(at, 4);
    for (uint32_t i = 0; i < t->rank; i++)
        t->dims[i] = load(at + 4 + 8 * i, 8);
    at += 4 + 8 * t->rank;
    t->type = (uint32_t)load(at, 4);
    t->offset = load(at + 4, 8);
    return at + 12;
}

static void read_golden(const char *name)
{
    char path[128];
    struct qwick_err e;
    free(g.file);
    snprintf(path, sizeof path, GOLDEN "%s.gguf", name);
    assert_ok(map_read_all(path, 1 << 24, &g.file, &g.n_file, &e), &e);
    g.n_tensors = load(8, 8);
    g.n_keys = load(16, 8);
    assert_true(g.n_keys <= 64 && g.n_tensors <= 128);
    size_t at = 24;
    for (size_t i = 0; i < g.n_keys; i++)
        at = read_entry(at, &g.keys[i]);
    for (size_t i = 0; i < g.n_tensors; i++)
        at = read_tensor(at, &g.tensors[i]);
    at = (at + 31) / 32 * 32;
    for (size_t i = 0; i < g.n_tensors; i++) {
        struct tensor *t = &g.tensors[i];
        size_t end =
            i + 1 < g.n_tensors ? g.tensors[i + 1].offset : g.n_file - at;
        t->data = g.file + at + t->offset;
        t->n = end - t->offset;
    }
    snprintf(g.arch, sizeof g.arch, "%.*s", (int)load(g.keys[0].type + 4, 8),
             g.file + g.keys[0].type + 12);
}

/* ---- what must happen -----------------------------------------------------
 */

static char path[128];
static size_t n_refused, n_accepted;

/* Open the file and evaluate a token. Returns 0 if that worked. */
static int run(struct qwick_err *e)
{
    struct qwick_engine_options o = qwick_engine_defaults();
    struct qwick_engine *eng;
    struct qwick_session *s;
    const int32_t ids[] = {5};
    o.model = path;
    o.threads = 1;
    if (qwick_engine_open(&eng, &o, e))
        return -1;
    int rc = qwick_session_create(&s, eng, 0, e);
    if (!rc) {
        rc = qwick_session_sync(s, ids, 1, e);
        qwick_session_free(s);
    }
    qwick_engine_close(eng);
    return rc;
}

/* QWICK_ERR_MODEL is exit code 3. */
static void check_error(const struct qwick_err *e, const char *fault,
                        const char *word)
{
    size_t n = strlen(path);
    if (e->code != QWICK_ERR_MODEL || strncmp(e->msg, path, n) != 0 ||
        strncmp(e->msg + n, ": ", 2) != 0 || strchr(e->msg, '\n') ||
        !strstr(e->msg, word))
        fail_msg("%s: %d: %s (wanted: %s)", fault, (int)e->code, e->msg, word);
    n_refused++;
}

static void must_fail(const char *fault, const char *word)
{
    struct qwick_err e = {0};
    if (!run(&e))
        fail_msg("%s: accepted", fault);
    check_error(&e, fault, word);
}

/* Other errors are of a file that is well-formed: a context of 0 tokens. */
static void may_fail(const char *fault)
{
    struct qwick_err e = {0};
    if (!run(&e))
        n_accepted++;
    else
        check_error(&e, fault, "");
}

/* ---- each field of the file -----------------------------------------------
 */

static int fd;

/* Try other values of the n bytes at a place in the file. */
static void try_field(const char *what, size_t at, size_t n, bool fatal)
{
    const uint64_t is = load(at, n),
                   top = n == 8 ? UINT64_MAX : (1ull << 8 * n) - 1;
    const uint64_t values[] = {0,       1,       is - 1,      is + 1, 2 * is,
                               is + 32, 1 << 16, top / 2 + 1, top,    top - 31};
    char fault[160];
    for (size_t i = 0; i < sizeof values / sizeof *values; i++) {
        uint64_t v = values[i] & top;
        if (v == is)
            continue;
        snprintf(fault, sizeof fault, "%s at byte %zu: %llu for %llu", what, at,
                 (unsigned long long)v, (unsigned long long)is);
        assert_int_equal(pwrite(fd, &v, n, (off_t)at), n);
        if (fatal)
            must_fail(fault, "");
        else
            may_fail(fault);
    }
    assert_int_equal(pwrite(fd, &is, n, (off_t)at), n);
}

static void try_entry(const struct entry *k)
{
    uint64_t type = load(k->type, 4);
    try_field("length of a key", k->at, 8, true);
    try_field("type of a value", k->type, 4, false);
    if (type == GGUF_STRING) {
        try_field("length of a value", k->type + 4, 8, true);
    } else if (k->elements) {
        uint64_t element = load(k->type + 4, 4);
        try_field("type of elements", k->type + 4, 4, false);
        try_field("number of elements", k->type + 8, 8, true);
        if (element == GGUF_STRING)
            try_field("length of an element", k->elements, 8, true);
        else
            try_field("element", k->elements, scalar_bytes(element), false);
    } else {
        try_field("value", k->type + 4, scalar_bytes(type), false);
    }
}

static void try_tensor(const struct tensor *t)
{
    size_t at = t->at + 8 + strlen(t->name);
    try_field("length of a tensor's name", t->at, 8, true);
    try_field("rank", at, 4, true);
    for (uint32_t i = 0; i < t->rank; i++)
        try_field("dimension", at + 4 + 8 * i, 8, true);
    at += 4 + 8 * t->rank;
    try_field("type of a tensor", at, 4, false);
    try_field("offset of a tensor", at + 4, 8, true);
}

/* Layers of one kind have equal checks: try one layer of each kind. */
static bool is_tried(const struct tensor *t)
{
    return strncmp(t->name, "blk.", 4) != 0 || t->name[4] == '0' ||
           (t->name[4] == '3' && strcmp(g.arch, "qwen35") == 0);
}

static void each_field(void **state)
{
    for (size_t m = 0; m < N_GOLDENS; m++) {
        read_golden(goldens[m]);
        put_file(path, g.file, g.n_file);
        fd = open(path, O_RDWR);
        assert_true(fd >= 0);
        struct qwick_err e;
        assert_int_equal(run(&e), 0);
        try_field("magic", 0, 4, true);
        try_field("version", 4, 4, false);
        try_field("number of tensors", 8, 8, true);
        try_field("number of entries", 16, 8, true);
        for (size_t i = 0; i < g.n_keys; i++)
            try_entry(&g.keys[i]);
        for (size_t i = 0; i < g.n_tensors; i++)
            if (is_tried(&g.tensors[i]))
                try_tensor(&g.tensors[i]);
        assert_int_equal(run(&e), 0);
        close(fd);
    }
}

/* ---- files that are well-formed -------------------------------------------
 */

static struct gguf_out out;

static bool is_key(const struct entry *k, const char *key)
{
    return strlen(key) == k->n_key && memcmp(k->key, key, k->n_key) == 0;
}

/* Begin with all entries of the golden but one, which the caller may put. */
static const char *begin(const char *key)
{
    static char full[96];
    snprintf(full, sizeof full, "%s%s", *key == '.' ? g.arch : "", key);
    gguf_out_free(&out);
    for (size_t i = 0; i < g.n_keys; i++) {
        const struct entry *k = &g.keys[i];
        if (is_key(k, full))
            continue;
        assert_int_equal(
            buf_append(&out.entries, g.file + k->at, k->end - k->at), 0);
        out.n++;
    }
    return full;
}

static void put(struct buf *b, const void *p, size_t n)
{
    assert_int_equal(buf_append(b, p, n), 0);
}

static void pad(struct buf *b)
{
    put(b, (char[32]){0}, (32 - b->len % 32) % 32);
}

/* Write `out` and these tensors, each after the other. */
static void emit(const struct tensor *t, size_t n)
{
    struct buf b = {0};
    uint64_t at = 0, counts[] = {n, out.n};
    put(&b, "GGUF\3\0\0\0", 8);
    put(&b, counts, sizeof counts);
    put(&b, out.entries.data, out.entries.len);
    for (size_t i = 0; i < n; i++) {
        uint64_t len = strlen(t[i].name);
        put(&b, &len, 8);
        put(&b, t[i].name, len);
        put(&b, &t[i].rank, 4);
        put(&b, t[i].dims, 8 * t[i].rank);
        put(&b, &t[i].type, 4);
        put(&b, &at, 8);
        at += (t[i].n + 31) / 32 * 32;
    }
    pad(&b);
    for (size_t i = 0; i < n; i++) {
        put(&b, t[i].data, t[i].n);
        pad(&b);
    }
    put_file(path, b.data, b.len);
    buf_free(&b);
}

static void refuses(const char *fault, const char *word)
{
    emit(g.tensors, g.n_tensors);
    must_fail(fault, word);
}

/* ---- metadata ---- */

static void bad_integers(void **state)
{
    static const struct {
        const char *key;
        int64_t v;
    } all[] = {
        {"general.alignment", 0},
        {"general.alignment", 3},
        {"general.alignment", 4},
        {"general.alignment", 24},
        {"general.alignment", 131072},
        {"general.alignment", INT32_MIN},
        {"split.count", -1},
        {"split.count", 3},
        {"split.count", 5000},
        {"split.no", 1},
        {".block_count", 0},
        {".block_count", 16385},
        {".embedding_length", 0},
        {".embedding_length", 1 << 25},
        {".attention.head_count", 0},
        {".attention.head_count", 3},
        {".attention.key_length", 1},
        {".attention.key_length", INT32_MIN},
        {".context_length", 0},
        {".context_length", -1},
        {".pooling_type", 5},
        {".pooling_type", -1},
        {".vocab_size", 1},
        {".vocab_size", 1 << 30},
        {".rope.dimension_count", 3},
        {".attention.value_length", 8},
        {"tokenizer.ggml.eos_token_id", -1},
    };
    read_golden(goldens[0]);
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        char fault[96];
        const char *key = begin(all[i].key);
        snprintf(fault, sizeof fault, "%s: %lld", key, (long long)all[i].v);
        gguf_put_i32(&out, key, (int32_t)all[i].v);
        refuses(fault, "");
    }
}

static bool is_unread(const char *key)
{
    return (strncmp(key, "general.", 8) == 0 &&
            strcmp(key, "general.architecture") != 0) ||
           strstr(key, ".dimension_sections");
}

/* Entries that come twice, of another type, or as an array. */
static void bad_types(void **state)
{
    for (size_t m = 0; m < N_GOLDENS; m++) {
        read_golden(goldens[m]);
        for (size_t i = 0; i < g.n_keys; i++) {
            const struct entry *k = &g.keys[i];
            char key[96], fault[128];
            snprintf(key, sizeof key, "%.*s", (int)k->n_key, k->key);
            begin("");
            put(&out.entries, g.file + k->at, k->end - k->at);
            out.n++;
            refuses(key, "repeated key");
            snprintf(fault, sizeof fault, "%s: an array of arrays", key);
            begin(key);
            gguf_put_array(&out, key, GGUF_ARRAY, 1);
            gguf_put_element_i32(&out, GGUF_I32);
            refuses(fault, "an array of arrays");
            snprintf(fault, sizeof fault, "%s: an array", key);
            begin(key);
            gguf_put_array(&out, key, GGUF_F32, 1);
            gguf_put_element_f32(&out, 1.5);
            if (is_unread(key))
                continue;
            refuses(fault, key);
            if (load(k->type, 4) == GGUF_STRING)
                continue;
            snprintf(fault, sizeof fault, "%s: a string", key);
            begin(key);
            gguf_put_string(&out, key, "x", 1);
            refuses(fault, key);
        }
    }
}

/* An entry that is missing is an error, or has a default. */
static void missing_entries(void **state)
{
    for (size_t m = 0; m < N_GOLDENS; m++) {
        read_golden(goldens[m]);
        for (size_t i = 0; i < g.n_keys; i++) {
            char key[96];
            snprintf(key, sizeof key, "%.*s", (int)g.keys[i].n_key,
                     g.keys[i].key);
            begin(key);
            emit(g.tensors, g.n_tensors);
            may_fail(key);
        }
    }
}

static void put_strings(const char *key, const char *const *v, size_t n)
{
    gguf_put_array(&out, key, GGUF_STRING, n);
    for (size_t i = 0; i < n; i++)
        gguf_put_element_string(&out, v[i], strlen(v[i]));
}

static void put_types(const char *key, size_t n, int32_t first)
{
    gguf_put_array(&out, key, GGUF_I32, n);
    for (size_t i = 0; i < n; i++)
        gguf_put_element_i32(&out, i ? 1 : first);
}

static void bad_vocabularies(void **state)
{
    static const char *const merges[] = {"",    "th",     "t  h", "t h e",
                                         " th", "t \xff", "q zz", "t "};
    static const char tokens[] = "tokenizer.ggml.tokens",
                      types[] = "tokenizer.ggml.token_type",
                      merge[] = "tokenizer.ggml.merges";
    char fault[96], text[8192] = "";
    read_golden(goldens[0]);
    for (size_t i = 0; i < sizeof merges / sizeof *merges; i++) {
        snprintf(fault, sizeof fault, "merge \"%s\"", merges[i]);
        put_strings(begin(merge), &merges[i], 1);
        refuses(fault, merge);
    }
    put_strings(begin(merge), (const char *const[]){"t h", "t h"}, 2);
    emit(g.tensors, g.n_tensors);
    may_fail("a repeated merge");
    for (int n = 319; n <= 321; n += 2) {
        put_types(begin(types), (size_t)n, 1);
        refuses("number of types", types);
    }
    for (int32_t type = -1; type < 9; type++)
        if (type != 1 && type != 3 && type != 4 && type != 5) {
            put_types(begin(types), 320, type);
            refuses("type of a token", types);
        }
    gguf_put_array(&out, begin(types), GGUF_U32, 320);
    for (int i = 0; i < 320; i++)
        gguf_put_element_i32(&out, 1);
    refuses("types as u32", types);
    put_strings(begin(tokens), NULL, 0);
    refuses("no tokens", types);
    /* 320 times the same token, more tokens than rows */
    const char *same[400];
    for (size_t i = 0; i < 400; i++)
        same[i] = "x";
    put_strings(begin(tokens), same, 320);
    refuses("equal tokens", tokens);
    for (size_t i = 0, at = 0; i < 400; i++) {
        same[i] = text + at;
        at += (size_t)snprintf(text + at, sizeof text - at, "tok%zu", i) + 1;
    }
    put_strings(begin(tokens), same, 320);
    refuses("no tokens of bytes", merge);
    put_strings(begin(tokens), same, 400);
    refuses("more tokens than types", types);
}

/* SentencePiece's scores, in a file whose tokens are single bytes. */
static void bad_scores(void **state)
{
    static const char tokens[] = "tokenizer.ggml.tokens",
                      types[] = "tokenizer.ggml.token_type",
                      scores[] = "tokenizer.ggml.scores";
    enum { N = 384, FIRST = 10 };
    static const struct {
        const char *fault;
        size_t n;         /* scores */
        double score;     /* of the last token */
        int32_t type;     /* of the first byte's token */
        const char *byte; /* its spelling */
        const char *word; /* of the message; NULL: the file is good */
    } all[] = {
        {"none", N, -1, 6, "<0x00>", NULL},
        {"fewer scores", N - 1, -1, 6, "<0x00>", scores},
        {"more scores", N + 1, -1, 6, "<0x00>", scores},
        {"NaN", N, (double)NAN, 6, "<0x00>", scores},
        {"infinite", N, (double)INFINITY, 6, "<0x00>", scores},
        {"no byte", N, -1, 1, "<0x00>", tokens},
        {"two of a byte", N, -1, 6, "<0x01>", tokens},
        {"spelling of a byte", N, -1, 6, "<0xZZ>", tokens},
        {"empty token", N, -1, 6, "", tokens},
        {"type 7", N, -1, 7, "<0x00>", types},
        {"type 0", N, -1, 0, "<0x00>", types},
    };
    read_golden("gemma3-tied");
    struct entry keys[64];
    size_t n_keys = 0;
    for (size_t i = 0; i < g.n_keys; i++)
        if (strncmp(g.keys[i].key, "tokenizer.", 10) != 0)
            keys[n_keys++] = g.keys[i];
    memcpy(g.keys, keys, sizeof keys);
    g.n_keys = n_keys;
    for (size_t k = 0; k < sizeof all / sizeof *all; k++) {
        begin("");
        gguf_put_string(&out, "tokenizer.ggml.model", "llama", 5);
        gguf_put_array(&out, tokens, GGUF_STRING, N);
        for (size_t i = 0; i < N; i++) {
            char text[16];
            bool byte = i >= FIRST && i < FIRST + 256;
            snprintf(text, sizeof text, byte ? "<0x%02zX>" : "t%zu",
                     byte ? i - FIRST : i);
            const char *s = i == FIRST ? all[k].byte : text;
            gguf_put_element_string(&out, s, strlen(s));
        }
        gguf_put_array(&out, types, GGUF_I32, N);
        for (size_t i = 0; i < N; i++)
            gguf_put_element_i32(&out, i == FIRST                ? all[k].type
                                       : i - FIRST < (size_t)256 ? 6
                                                                 : 1);
        gguf_put_array(&out, scores, GGUF_F32, all[k].n);
        for (size_t i = 0; i < all[k].n; i++)
            gguf_put_element_f32(&out, i == N - 1 ? all[k].score : -1);
        emit(g.tensors, g.n_tensors);
        struct qwick_err e = {0};
        if (all[k].word)
            must_fail(all[k].fault, all[k].word);
        else if (run(&e))
            fail_msg("%s", e.msg);
    }
}

/* ---- tensors ---- */

/* Zeros as data of a tensor with these dimensions. false: rows fit no block. */
static bool resize(struct tensor *t, enum dtype type)
{
    static char zeros[1 << 22];
    size_t n = dtype_bytes(type), block = dtype_block(type);
    for (uint32_t i = 0; i < t->rank; i++)
        n *= i == 0 ? t->dims[i] / block : t->dims[i];
    assert_true(n <= sizeof zeros);
    t->data = zeros;
    t->n = n;
    return (t->rank ? t->dims[0] : 1) % block == 0;
}

static const struct {
    uint32_t number;
    enum dtype type;
} tensor_types[] = {
    {0, DT_F32},     {1, DT_F16},    {2, DT_Q4_0},   {8, DT_Q8_0},
    {12, DT_Q4_K},   {14, DT_Q6_K},  {24, DT_I8},    {26, DT_I32},
    {27, DT_I64},    {28, DT_F64},   {30, DT_BF16},  {10, DT_Q2_K},
    {20, DT_IQ4_NL}, {39, DT_MXFP4}, {40, DT_NVFP4}, {18, DT_IQ3_XXS},
    {22, DT_IQ2_S},  {29, DT_IQ1_M}, {34, DT_TQ1_0},
};

enum { N_TYPES = sizeof tensor_types / sizeof *tensor_types };

/* Each tensor in other types: matrices run, vectors are floats. */
static void types_of_tensors(void **state)
{
    for (size_t m = 0; m < N_GOLDENS; m++) {
        read_golden(goldens[m]);
        begin("");
        for (size_t i = 0; i < g.n_tensors; i++) {
            const struct tensor was = g.tensors[i];
            for (size_t k = 0; is_tried(&was) && k < N_TYPES; k++) {
                struct tensor *t = &g.tensors[i];
                enum dtype type = tensor_types[k].type;
                char fault[160];
                snprintf(fault, sizeof fault, "%s: %s of type %s", goldens[m],
                         was.name, dtype_name(type));
                t->type = tensor_types[k].number;
                if (!resize(t, type) && t->n % 32)
                    continue;
                emit(g.tensors, g.n_tensors);
                if (type >= DT_BLOCKS && was.rank == 1)
                    must_fail(fault, was.name);
                else if (type >= DT_N_FLOAT && type < DT_BLOCKS)
                    must_fail(fault, was.name);
                else
                    may_fail(fault);
            }
            g.tensors[i] = was;
        }
    }
}

static void shapes_of_tensors(void **state)
{
    for (size_t m = 0; m < N_GOLDENS; m++) {
        read_golden(goldens[m]);
        begin("");
        for (size_t i = 0; i < g.n_tensors; i++) {
            const struct tensor was = g.tensors[i];
            struct tensor *t = &g.tensors[i];
            if (!is_tried(&was))
                continue;
            /* all elements in one row; twice the rows; none; a scalar */
            for (int k = 0; k < 4; k++) {
                char fault[160];
                snprintf(fault, sizeof fault, "%s: %s, shape %d", goldens[m],
                         was.name, k);
                t->type = 30;
                t->rank = k == 0 ? 1 : k == 3 ? 0 : was.rank;
                if (k == 0)
                    for (uint32_t d = 1; d < was.rank; d++)
                        t->dims[0] *= was.dims[d];
                if (k == 1 || k == 2)
                    t->dims[was.rank - 1] *= k == 1 ? 2 : 0;
                if (k == 0 && was.rank == 1)
                    t->dims[0]++;
                (void)resize(t, DT_BF16);
                emit(g.tensors, g.n_tensors);
                if (k == 1 && strcmp(was.name, "token_embd.weight") == 0)
                    may_fail(fault); /* a larger vocabulary */
                else
                    must_fail(fault, "");
                *t = was;
            }
        }
    }
}

static void names_of_tensors(void **state)
{
    for (size_t m = 0; m < N_GOLDENS; m++) {
        read_golden(goldens[m]);
        begin("");
        for (size_t i = 0; i < g.n_tensors; i++) {
            const struct tensor was = g.tensors[i];
            /* without the tensor: an error, or a model whose head is tied */
            strcpy(g.tensors[i].name, "other.weight");
            emit(g.tensors, g.n_tensors);
            if (strcmp(was.name, "output.weight") == 0)
                may_fail("no output.weight");
            else
                must_fail(was.name, was.name);
            /* the name of another tensor */
            strcpy(g.tensors[i].name, g.tensors[i ? 0 : 1].name);
            refuses(was.name, g.tensors[i].name);
            g.tensors[i] = was;
        }
    }
}

/* ---- split files ----------------------------------------------------------
 */

static void put_part_of(size_t no, size_t count, size_t total, size_t from,
                        size_t to)
{
    begin("");
    gguf_put_u32(&out, "split.no", (uint32_t)no);
    gguf_put_u32(&out, "split.count", (uint32_t)count);
    if (total)
        gguf_put_u32(&out, "split.tensors.count", (uint32_t)total);
    emit(g.tensors + from, to - from);
}

/* Two parts, of which the second differs in one way. */
static void bad_splits(void **state)
{
    static const struct {
        const char *fault;
        size_t no, count, total, from; /* of the second part */
        const char *word;
    } all[] = {
        {"none", 1, 2, 0, 10, NULL},
        {"the first again", 0, 2, 0, 10, "split.no 0 and split.count 2"},
        {"beyond the last", 2, 2, 0, 10, "split.no: part 2 of 2"},
        {"another count", 1, 3, 0, 10, "split.count 3"},
        {"not split", 0, 0, 0, 10, "split.count 0"},
        {"tensors of both", 1, 2, 0, 9, "as well"},
        {"tensors of none", 1, 2, 0, 11, "missing"},
    };
    char first[128], second[128];
    read_golden(goldens[0]);
    snprintf(first, sizeof first, "%s/m-00001-of-00002.gguf", temp_dir);
    snprintf(second, sizeof second, "%s/m-00002-of-00002.gguf", temp_dir);
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        struct qwick_err e = {0};
        strcpy(path, first);
        put_part_of(0, 2, 0, 0, 10);
        strcpy(path, second);
        put_part_of(all[i].no, all[i].count, all[i].total, all[i].from,
                    g.n_tensors);
        strcpy(path, first);
        int rc = run(&e);
        if (!all[i].word && rc)
            fail_msg("%s", e.msg);
        if (!all[i].word)
            continue;
        assert_int_equal(rc, -1);
        /* the message names the part with the fault */
        strcpy(path, strncmp(e.msg, second, strlen(second)) ? first : second);
        check_error(&e, all[i].fault, all[i].word);
    }
    strcpy(path, first);
    put_part_of(0, 2, g.n_tensors + 1, 0, 10);
    strcpy(path, second);
    put_part_of(1, 2, 0, 10, g.n_tensors);
    strcpy(path, first);
    must_fail("another total", "split.tensors.count");
    unlink(first);
    unlink(second);
}

static int setup(void **state)
{
    if (temp_setup(state))
        return -1;
    snprintf(path, sizeof path, "%s/f.gguf", temp_dir);
    return 0;
}

static int teardown(void **state)
{
    printf("%zu faults were refused, %zu are none\n", n_refused, n_accepted);
    free(g.file);
    gguf_out_free(&out);
    return temp_teardown(state);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_field),       cmocka_unit_test(bad_integers),
        cmocka_unit_test(bad_types),        cmocka_unit_test(missing_entries),
        cmocka_unit_test(bad_vocabularies), cmocka_unit_test(bad_scores),
        cmocka_unit_test(types_of_tensors), cmocka_unit_test(shapes_of_tensors),
        cmocka_unit_test(names_of_tensors), cmocka_unit_test(bad_splits),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
