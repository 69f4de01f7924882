#!/usr/bin/env bats
# qwick quantize: its files, messages and refusals, and that no incomplete
# files stay.
load helpers

setup() {
    common_setup
    SRC=$MODELS/tied-bf16
    O=$T/out
}

# Check that there is no result and no temporary directory.
nothing_left() {
    [ -z "$(find "$T" -maxdepth 1 -name 'out*')" ]
}

@test "writes a checkpoint; silent off-terminal; config.json for mlx-lm" {
    run -0 --separate-stderr q quantize -m $SRC -o "$O" --bits 4 --group 32 \
        --head-bits 8
    [ -z "$output" ]
    [ -z "$stderr" ]
    python3 - $SRC "$O" <<'PY'
import json, struct, sys
def header(d):
    raw = open(d + "/model.safetensors", "rb").read()
    n = struct.unpack("<Q", raw[:8])[0]
    return json.loads(raw[8:8 + n])
src, out = sys.argv[1:]
a, b = json.load(open(src + "/config.json")), json.load(open(out + "/config.json"))
want = {"group_size": 32, "bits": 4, "mode": "affine",
        "model.embed_tokens": {"group_size": 32, "bits": 8}}
assert b["quantization"] == b["quantization_config"] == want, b
assert list(b) == list(a) + ["quantization", "quantization_config"]
assert all(a[k] == b[k] for k in a)
# the source's config.json has the same layout: only its end differs
x = open(src + "/config.json").read().rstrip().removesuffix("}").rstrip()
assert open(out + "/config.json").read().startswith(x)
h, g = header(src), header(out)
assert g.pop("__metadata__") == {"format": "mlx"}
h.pop("__metadata__", None)
for k, t in h.items():
    p = k.removesuffix(".weight")
    if len(t["shape"]) != 2:
        assert g[k]["shape"] == t["shape"] and g[k]["dtype"] == t["dtype"]
        continue
    rows, cols = t["shape"]
    bits = 8 if p == "model.embed_tokens" else 4
    assert g[k]["dtype"] == "U32" and g[k]["shape"] == [rows, cols * bits // 32]
    for s in ".scales", ".biases":
        assert g[p + s]["dtype"] == t["dtype"]
        assert g[p + s]["shape"] == [rows, cols // 32]
n = sum(len(t["shape"]) == 2 for t in h.values())
assert len(g) == len(h) + 2 * n
PY
}

@test "shards stay shards, with their index" {
    q quantize -m $MODELS/sharded-bf16 -o "$O" --group 32
    python3 - "$O" <<'PY'
import json, os, struct, sys
d = sys.argv[1]
x = json.load(open(d + "/model.safetensors.index.json"))
files = {f for f in os.listdir(d) if f.endswith(".safetensors")}
assert files == {f"model-0000{i}-of-00003.safetensors" for i in (1, 2, 3)}
size, where = 0, {}
for f in files:
    raw = open(d + "/" + f, "rb").read()
    n = struct.unpack("<Q", raw[:8])[0]
    h = json.loads(raw[8:8 + n])
    assert h.pop("__metadata__") == {"format": "mlx"}
    for k, t in h.items():
        where[k] = f
        size += t["data_offsets"][1] - t["data_offsets"][0]
assert x["metadata"]["total_size"] == size
assert x["weight_map"] == where
PY
}

@test "--json, -v, --only, --skip, --scales" {
    q quantize -m $SRC -o "$O" --json --bits 3 --only '*.mlp.*' \
        --skip '*layers.0*' --skip '*down_proj' | jget '[0][
        o["bits"] != 3 or o["group"] != 64 or o["n_quantized"] != 4 or
        o["scales"] != "mlx" or o["bytes_written"] >= o["bytes_read"] or
        o["total_ms"] <= 0 or not o["model"].endswith("tied-bf16")]'
    jget '[0][o["quantization"]["model.layers.0.mlp.up_proj"] is not False or
        "model.layers.1.mlp.up_proj" in o["quantization"]]' <"$O/config.json"
    run -0 --separate-stderr q quantize -m $SRC -o "$O" --force -v --scales lsq
    [ -z "$output" ]
    [[ $stderr == *"down_proj: is copied: 160 columns"* ]]
    [[ $stderr == *"modules quantized"* ]]
    # other scales give other bytes of the same size
    q quantize -m $SRC -o "$T/mlx"
    run ! cmp -s "$O/model.safetensors" "$T/mlx/model.safetensors"
    [ "$(stat -c %s "$O/model.safetensors")" = \
        "$(stat -c %s "$T/mlx/model.safetensors")" ]
}

@test "the same bytes with any number of threads; the demo model; QWICK_MODEL" {
    q quantize -o "$O" -t 1
    q quantize -o "$T/two" -t 2
    diff -r "$O" "$T/two"
    [ -s "$O/tokenizer.json" ]
    [ -s "$O/generation_config.json" ]
    QWICK_MODEL=./$SRC q quantize -o "$T/env" --json |
        jget '[0][not o["model"].endswith("tied-bf16")]'
}

# The demo model reads its own kind of text, in a file of each form.
calibration_texts() {
    cat >"$T/a.jsonl" <<'EOF'
{"given": "<|im_start|>user\nlist files<|im_end|>\n", "text": "ls -l"}

{"text": "<|im_start|>user\nshow the date<|im_end|>\n<|im_start|>assistant\n"}
EOF
    seq 1 400 | sed 's/.*/count the lines of file & with wc -l/' >"$T/b.txt"
}

@test "--calibrate: the same bytes with any number of threads; other codes" {
    calibration_texts
    q quantize -o "$T/lsq" --bits 3 --scales lsq
    q quantize -o "$O" --bits 3 --calibrate "$T/b.txt" \
        --calibrate "$T/a.jsonl" -t 1 --json | jget '[0][
        o["scales"] != "feedback" or o["bits"] != 3]'
    q quantize -o "$T/two" --bits 3 --calibrate "$T/b.txt" \
        --calibrate "$T/a.jsonl" -t 2
    diff -r "$O" "$T/two"
    run ! cmp -s "$O/model.safetensors" "$T/lsq/model.safetensors"
    [ "$(stat -c %s "$O/model.safetensors")" = \
        "$(stat -c %s "$T/lsq/model.safetensors")" ]
    cmp "$O/config.json" "$T/lsq/config.json"
    # a weighted search without feedback
    q quantize -o "$T/weighted" --bits 3 --calibrate "$T/b.txt" --scales lsq
    run ! cmp -s "$T/weighted/model.safetensors" "$T/lsq/model.safetensors"
    # it answers
    [ -n "$(q -m "$O" --greedy "list files")" ]
}

@test "--calibrate-self, --seed, --calibrate-memory; GGUF" {
    q quantize -o "$T/0.gguf" --type Q3_K_M --calibrate-self 2
    q quantize -o "$T/1.gguf" --type Q3_K_M --calibrate-self 2 --seed 1
    run ! cmp -s "$T/0.gguf" "$T/1.gguf"
    run -0 --separate-stderr q quantize -o "$T/2.gguf" --type Q3_K_M -v \
        --calibrate-self 2 --calibrate-memory 1K
    [[ $stderr == *"moments of single columns only"* ]]
    run -0 --separate-stderr q quantize -o "$T/3.gguf" --type Q3_K_M -v \
        --calibrate-self 2 --calibrate-memory 32M
    [[ $stderr == *"moments in blocks of up to 256 columns"* ]]
    [ "$(stat -c %s "$T/0.gguf")" = "$(stat -c %s "$T/3.gguf")" ]
    # a context below 512 tokens, and no tokenizer
    q quantize -m $MODELS/yarn -o "$T/yarn" --calibrate-self 2
    run -0 --separate-stderr q quantize -o "$T/8.gguf" --type Q8_0 \
        --calibrate-self 1
    [[ $stderr == *"calibrate: changes nothing"* ]]
    [ -n "$(q -m "$T/0.gguf" --greedy "list files")" ]
}

@test "calibration: usage" {
    calibration_texts
    : >"$T/empty"
    echo '{"text": 5}' >"$T/bad.jsonl"
    echo '{"text": ' >"$T/cut.jsonl"
    fails 2 "--calibrate-self" quantize -o "$O" --calibrate "$T/b.txt" \
        --calibrate-self 2
    fails 2 "--calibrate-self" quantize -o "$O" --calibrate-self 0
    fails 2 "--scales" quantize -o "$O" --scales feedback
    fails 2 "--scales mlx" quantize -o "$O" --scales mlx --calibrate "$T/b.txt"
    fails 2 "--seed" quantize -o "$O" --seed 1
    fails 1 "$T/none" quantize -o "$O" --calibrate "$T/none"
    fails 2 "$T/empty: has no text" quantize -o "$O" --calibrate "$T/empty"
    fails 2 "bad.jsonl: line 1: text: not a string" quantize -o "$O" \
        --calibrate "$T/bad.jsonl"
    fails 2 "cut.jsonl: line 1" quantize -o "$O" --calibrate "$T/cut.jsonl"
    fails 3 "tokenizer.json" quantize -m $SRC -o "$O" --calibrate "$T/b.txt"
    nothing_left
}

@test "usage" {
    fails 2 "--output" quantize -m $SRC
    fails 2 "unexpected" quantize $SRC -o "$O"
    fails 2 "--bits" quantize -m $SRC -o "$O" --bits 7
    fails 2 "--bits" quantize -m $SRC -o "$O" --bits four
    fails 2 "--group" quantize -m $SRC -o "$O" --group 16
    fails 2 "--head-bits" quantize -m $SRC -o "$O" --head-bits 1
    fails 2 "--scales" quantize -m $SRC -o "$O" --scales best
    fails 2 "--calib: unknown option" quantize -m $SRC -o "$O" --calib x
    fails 2 "skip: nothing" quantize -m $SRC -o "$O" --skip nothing
    fails 2 "no module" quantize -m $SRC -o "$O" --skip '*'
    fails 2 "head is not quantized" quantize -m $SRC -o "$O" --head-bits 8 \
        --only '*mlp.up_proj'
    nothing_left
}

@test "an existing directory is not replaced; with --force, a checkpoint is" {
    mkdir "$O"
    q quantize -m $SRC -o "$O" --bits 2
    fails 2 "--force" quantize -m $SRC -o "$O"
    q quantize -m $SRC -o "$O/" --bits 8 --force
    jget '[0][o["quantization"]["bits"] != 8]' <"$O/config.json"
    mkdir "$O/mine"
    fails 2 "mine" quantize -m $SRC -o "$O" --force
    cp -r $SRC "$T/src"
    fails 2 "is the source" quantize -m "$T/src" -o "$T/src" --force
    fails 1 "cannot create" quantize -m $SRC -o "$T/no/where"
    [ -z "$(find "$T" -maxdepth 1 -name '*.tmp-*' -o -name '*.old-*')" ]
}

@test "sources that cannot be quantized: exit 3" {
    fails 3 "/nonexistent" quantize -m /nonexistent -o "$O"
    fails 3 "quantized already (4 bits)" quantize -m $MODELS/mlx4 -o "$O"
    q quantize -m $SRC -o "$T/q"
    fails 3 "quantized already" quantize -m "$T/q" -o "$O"
    copy_of $SRC nan
    weights_edit "$T/nan/model.safetensors" 'name = "model.layers.1.mlp.up_proj.weight"
i = at(name) + 2 * (3 * h[name]["shape"][1] + 5)
data[i:i + 2] = b"\xc0\x7f"'
    fails 3 "model.layers.1.mlp.up_proj.weight: row 3: holds NaN" \
        quantize -m "$T/nan" -o "$O"
    copy_of models/demo nan-demo
    weights_edit "$T/nan-demo/model.safetensors" 'name = "model.layers.1.mlp.up_proj.weight"
i = at(name)
data[i:i + 2] = b"\xc0\x7f"'
    for ((i = 0; i < 400; i++)); do echo "a text of some words"; done >"$T/words"
    fails 3 "inputs of matrices are not finite" \
        quantize -m "$T/nan-demo" -o "$O" --calibrate "$T/words"
    nothing_left
}

@test "a full disk: one error, nothing left" {
    run --separate-stderr bash -c 'ulimit -f 32; exec "$0" "$@" </dev/null' \
        "$QWICK" quantize -m $SRC -o "$O"
    [ "$status" -eq 1 ]
    [ -z "$output" ]
    one_error_line
    [[ $stderr == *"model.safetensors"* ]]
    nothing_left
    run --separate-stderr bash -c 'exec "$0" "$@" </dev/null >/dev/full' \
        "$QWICK" quantize -m $SRC -o "$O" --json
    [ "$status" -eq 1 ]
}

# amid_quantize THREADS CODE: start a quantization that takes seconds, run the Python
# code on its process p when its first file exists, and print its status and what it
# wrote to stdout and stderr, and whether it ended soon after that.
amid_quantize() {
    python3 - "$QWICK" "$T" "$@" <<'PY'
import glob, os, signal, subprocess, sys, time
qwick, t, threads, code = sys.argv[1:]
signal.signal(signal.SIGINT, signal.default_int_handler)
p = subprocess.Popen([qwick, "quantize", "-m", t + "/big", "-o", t + "/out",
                      "--scales", "lsq", "-t", threads], stdin=subprocess.DEVNULL,
                     stdout=subprocess.PIPE, stderr=subprocess.PIPE)
for _ in range(1000):
    if glob.glob(t + "/out.tmp-*/*") or p.poll() is not None:
        break
    time.sleep(0.01)
start = time.time()
exec(code)
out, err = p.communicate(timeout=30)
print(p.returncode, "late" if time.time() - start > 1 else "soon", out, err)
PY
}

# A checkpoint whose embedding has 30 million random elements.
big() {
    python3 - $SRC "$T/big" <<'PY'
import json, os, random, struct, sys
src, dst = sys.argv[1:]
os.mkdir(dst)
c = json.load(open(src + "/config.json"))
c["vocab_size"], rows, cols = 60000, 60000, 512
json.dump(c, open(dst + "/config.json", "w"))
h = {"model.embed_tokens.weight": {"dtype": "F16", "shape": [rows, cols],
                                   "data_offsets": [0, 2 * rows * cols]}}
j = json.dumps(h).encode()
# random 16-bit numbers with the top exponent bit cleared, so that all are
# finite
block = bytes(b & 0xbf if i % 2 else b
              for i, b in enumerate(random.Random(1).randbytes(1 << 20)))
with open(dst + "/model.safetensors", "wb") as f:
    f.write(struct.pack("<Q", len(j)) + j)
    n = 2 * rows * cols
    while n:
        n -= f.write(block[:n])
PY
}

@test "signals: stops soon, nothing left, dies by the signal" {
    big
    for s in SIGINT:-2 SIGTERM:-15 SIGHUP:-1; do
        run -0 amid_quantize 1 "p.send_signal(signal.${s%:*})"
        equal "$output" "${s#*:} soon b'' b''"
        nothing_left
    done
}

@test "killed: no result that looks complete" {
    big
    run -0 amid_quantize 1 "p.send_signal(signal.SIGKILL)"
    equal "$output" "-9 soon b'' b''"
    [ ! -e "$O" ]
    [ -z "$(find "$T" -path '*out*' \( -name config.json -o \
        -name model.safetensors \))" ]
    [ -n "$(find "$T" -maxdepth 1 -name 'out.tmp-*')" ]
    # the next run removes the leftovers, but no other files
    mkdir "$T/out.tmp-mine"
    q quantize -m $SRC -o "$O"
    [ -s "$O/config.json" ]
    [ "$(cd "$T" && echo out*)" = "out out.tmp-mine" ]
}

@test "a source that is truncated during the run: nothing left" {
    big
    run -0 amid_quantize 2 'os.truncate(t + "/big/model.safetensors", 5000)'
    [[ $output == "1 "*" b'qwick: a mapped file was truncated while in use\\n'" ]]
    nothing_left
}

@test "--force: there is a checkpoint at every moment" {
    [ "${SAN:-}" != 1 ] || skip "the preloaded library goes before the sanitizer's"
    command -v cc >/dev/null || skip "no compiler"
    cat >"$T/watch.c" <<'C'
/* After every rename there is a file config.json in $WATCH. */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>
static int look(long rc)
{
    char path[4096];
    snprintf(path, sizeof path, "%s/config.json", getenv("WATCH"));
    if (access(path, F_OK))
        syscall(SYS_write, 2, "gap\n", 4);
    return (int)rc;
}
int rename(const char *a, const char *b)
{
    return look(syscall(SYS_rename, a, b));
}
int renameat2(int d, const char *a, int f, const char *b, unsigned flags)
{
    return look(syscall(SYS_renameat2, d, a, f, b, flags));
}
C
    cc -shared -fPIC -o "$T/watch.so" "$T/watch.c"
    q quantize -m $SRC -o "$O" --bits 4
    run -0 --separate-stderr env LD_PRELOAD="$T/watch.so" WATCH="$O" \
        "$QWICK" quantize -m $SRC -o "$O" --bits 8 --force </dev/null
    [ -z "$stderr" ]
    grep -q '"bits": *8' "$O/config.json"
    [ "$(cd "$T" && echo out*)" = "out" ]
}

@test "memory does not grow with the model" {
    [ "${SAN:-}" != 1 ] || skip "sanitizers take memory of their own"
    big
    python3 - "$QWICK" "$T" <<'PY'
import resource, subprocess, sys
subprocess.run([sys.argv[1], "quantize", "-m", sys.argv[2] + "/big", "-o",
                sys.argv[2] + "/out", "-t", "2"], check=True,
               stdin=subprocess.DEVNULL)
peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
assert peak < 40 * 1024, peak  # KiB; the source has 61 MB, libraries some 15
PY
}

# ---- --format gguf ----------------------------------------------------------

@test "gguf: the demo model answers as before; silent off-terminal" {
    run -0 --separate-stderr q quantize --format gguf --type BF16 -o "$O.gguf"
    [ -z "$output" ]
    [ -z "$stderr" ]
    # all that a chat needs is in the file: template, stop tokens, tokens
    for p in "list open ports" "find files larger than 1 GB"; do
        a=$(q --exact --greedy "$p")
        b=$(q -m "$O.gguf" --exact --greedy "$p")
        [ -n "$a" ]
        [ "$a" = "$b" ]
    done
    run -0 q render '[{"role":"user","content":"hi"}]'
    [ "$output" = "$(q render -m "$O.gguf" '[{"role":"user","content":"hi"}]')" ]
    q quantize --format gguf -o "$O-4.gguf" --json | jget '[0][
        o["format"] != "gguf" or o["type"] != "Q4_K_M" or "bits" in o or
        o["n_quantized"] != 57 or not 5 < o["bits_per_weight"] < 5.2]'
    q inspect -m "$O-4.gguf" | grep -q "^quantization *Q4_K/Q6_K"
    q -m "$O-4.gguf" "list open ports" | grep -q .
}

@test "gguf: usage, and options of the other format" {
    fails 2 "--type: has no effect without" quantize -m $SRC -o "$O" --type Q8_0
    fails 2 "--format" quantize -m $SRC -o "$O" --format onnx
    fails 2 "--type" quantize -m $SRC -o "$O" --format gguf --type Q5_K_S
    for x in "--bits 4" "--group 32" "--head-bits 8" "--only x" "--skip x" \
        "--scales lsq"; do
        # shellcheck disable=SC2086 # an option and its value
        fails 2 "${x% *}: has no effect with --format gguf" quantize -m $SRC \
            -o "$O" --format gguf $x
    done
    nothing_left
}

@test "gguf: an existing file is replaced only with --force" {
    q quantize --format gguf -m $SRC -o "$O" --type F16
    fails 2 "--force" quantize --format gguf -m $SRC -o "$O"
    q quantize --format gguf -m $SRC -o "$O" --force --type Q8_0
    q inspect -m "$O" --json | jget '[0]["Q8_0" not in str(o)]'
    echo mine >"$T/mine"
    fails 2 "is not a GGUF file" quantize --format gguf -m $SRC -o "$T/mine" --force
    [ "$(cat "$T/mine")" = mine ]
    fails 2 "is a directory" quantize --format gguf -m $SRC -o "$T"
    [ -z "$(find "$T" -maxdepth 1 -name '*.tmp-*')" ]
}

@test "gguf: rows that fit no block are noted with -v" {
    run -0 --separate-stderr q quantize --format gguf -m $SRC -o "$O" -v
    [[ $stderr == *"blk.0.ffn_down.weight: stored as"*"rows of 160 elements"* ]]
}

@test "sources in MXFP4 stay so: the type by default, notes, the config" {
    local src=tests/golden/families/gpt-oss-mxfp4
    q quantize -m $src -o "$O.gguf" --json | jget '[0][o["type"] != "MXFP4"]'
    q inspect -m "$O.gguf" | grep -q "^quantization *Q8_0/MXFP4"
    fails 2 'type: "MXFP4": only weights that are in MXFP4' quantize -m $SRC -o "$T/x.gguf" --type MXFP4
    run -0 --separate-stderr q quantize -m $src -o "$O" -v --bits 8
    [[ $stderr = *"12 modules: stay in MXFP4"* ]]
    jget '[0][o["quantization"]["model.layers.0.mlp.experts.up_proj"]["mode"] != "mxfp4"]' \
        <"$O/config.json"
    fails 3 "quantized already" quantize -m "$O" -o "$T/x.gguf"
}

@test "gguf: sources that are refused by name" {
    fails 3 "quantized already" quantize --format gguf -m $MODELS/mlx4 -o "$O"
    fails 3 "is a GGUF file, of which only GGUF files are made" quantize -o "$O" \
        -m tests/golden/gguf/tiny-dense-F16.gguf
    nothing_left
}

@test "gguf: a GGUF file as the source gives what its checkpoint gives" {
    q quantize --type BF16 -o "$T/bf16.gguf"
    run -0 --separate-stderr q quantize -m "$T/bf16.gguf" -o "$O.gguf" --type Q4_K_M --json
    [ -z "$stderr" ]
    jget '[0][o["type"] != "Q4_K_M" or o["n_dense"]]' <<<"$output"
    q quantize --type Q4_K_M -o "$T/direct.gguf"
    for m in direct out; do
        q -m "$T/$m.gguf" --exact --seed 1 "list open ports" >"$T/$m.txt"
        q inspect -m "$T/$m.gguf" --json |
            jget '{k: v for k, v in o.items() if k not in ("model", "path", "load_ms")}' >>"$T/$m.txt"
    done
    diff "$T/direct.txt" "$T/out.txt"
    # the source is never replaced
    cp "$T/bf16.gguf" "$T/copy"
    fails 2 "is the source: name another file" quantize -m "$T/bf16.gguf" -o "$T/bf16.gguf" --force
    cmp "$T/bf16.gguf" "$T/copy"
}

@test "gguf: sources with blocks: a warning, split files, broken files" {
    local src=tests/golden/gguf/tiny-dense-Q4_0.gguf
    run -0 --separate-stderr q quantize -m $src -o "$O.gguf" --type Q8_0
    [[ $stderr = "qwick: warning: $src: is quantized already: rounding it again loses more than rounding the original" ]]
    # all are copied, a large one and a number included
    python3 tests/cli/gguf.py edit "$O.gguf" "$T/more.gguf" \
        'tensors += [["more.weight", [96, 4096], 8, bytes(range(251)) * 1664 + bytes(128)],
                     ["one", [], 0, b"\0\0\xc0\x7f"]]'
    run -0 --separate-stderr q quantize -m "$T/more.gguf" -o "$T/same.gguf" --type Q8_0
    [ -z "$stderr" ]
    python3 - "$T/more.gguf" "$T/same.gguf" <<'PY'
import sys
sys.path.insert(0, "tests/cli")
from gguf import read
a, b = (read(p) for p in sys.argv[1:])
assert a[0] == b[0]
tensors = lambda o: {t[0]: t[1:] if t[1] else [[1]] + t[2:] for t in o[1]}
assert tensors(a) == tensors(b)
PY
    python3 tests/cli/gguf.py edit $src "$T/m-00001-of-00002.gguf" \
        'tensors[10:] = []; kv["split.no"] = [2, 0]; kv["split.count"] = [2, 2]'
    python3 tests/cli/gguf.py edit $src "$T/m-00002-of-00002.gguf" \
        'tensors[:10] = []; kv.clear(); kv["split.no"] = [2, 1]; kv["split.count"] = [2, 2]'
    q quantize -q -m $src -o "$T/whole.gguf" --type Q4_K_M
    q quantize -q -m "$T/m-00001-of-00002.gguf" -o "$T/one.gguf" --type Q4_K_M
    cmp "$T/whole.gguf" "$T/one.gguf"
    fails 2 "is the source" quantize -m "$T/m-00001-of-00002.gguf" -o "$T/m-00002-of-00002.gguf" --force
    rm -f "$O.gguf"
    for n in 3000 100000; do
        head -c $n $src >"$T/cut.gguf"
        fails 3 "truncated" quantize -m "$T/cut.gguf" -o "$O.gguf"
    done
    nothing_left
}

@test "gguf: a text encoder from a GGUF file" {
    local src=tests/golden/families/bert-cls.gguf
    q quantize -m $src -o "$O.gguf" --type Q8_0
    for m in $src "$O.gguf"; do
        q embed -m "$m" --exact --prompt-ids 2,17,30,44,9,3 >"$T/$(basename "$m").json"
    done
    python3 - "$T/bert-cls.gguf.json" "$T/out.gguf.json" <<'PY'
import json, sys
a, b = (json.load(open(p)) for p in sys.argv[1:])
a, b = (v if isinstance(v, list) else v["embedding"] for v in (a, b))
norm = lambda v: sum(x * x for x in v) ** 0.5
cosine = sum(x * y for x, y in zip(a, b)) / norm(a) / norm(b)
assert 1e-9 < 1 - cosine < 1e-4, 1 - cosine
PY
}

@test "gguf: a full disk, and signals: nothing left" {
    run --separate-stderr bash -c 'ulimit -f 32; exec "$0" "$@" </dev/null' \
        "$QWICK" quantize --format gguf -o "$O"
    [ "$status" -eq 1 ]
    one_error_line
    nothing_left
    python3 - "$QWICK" "$T" <<'PY'
import glob, signal, subprocess, sys, time
qwick, t = sys.argv[1:]
for name in "SIGINT", "SIGTERM", "SIGKILL":
    p = subprocess.Popen([qwick, "quantize", "--format", "gguf", "-o",
                          t + "/out.gguf", "-t", "1"],
                         stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                         stderr=subprocess.PIPE)
    while not glob.glob(t + "/out.gguf.tmp-*/*") and p.poll() is None:
        time.sleep(0.001)
    p.send_signal(getattr(signal, name))
    out, err = p.communicate(timeout=30)
    assert out == err == b"", (out, err)
    assert p.returncode == -getattr(signal, name), p.returncode
    left = glob.glob(t + "/out.gguf*")
    assert bool(left) == (name == "SIGKILL"), left
    assert t + "/out.gguf" not in left
PY
    # the next run removes what the killed one left
    q quantize --format gguf -o "$T/out.gguf"
    [ "$(cd "$T" && echo out*)" = out.gguf ]
}

# A copy of the demo model as an embedding model, with two templates, sampling
# by default, a third end of answers, and the split of Qwen3.5.
variant() {
    copy_of models/demo v
    python3 - "$T/v" <<'PY'
import json, sys
def edit(name, change):
    path = sys.argv[1] + "/" + name
    o = json.load(open(path))
    change(o)
    json.dump(o, open(path, "w"))
end = "<|endoftext|>"
edit("tokenizer.json", lambda o: o.update(post_processor={
    "type": "TemplateProcessing",
    "single": [{"Sequence": {"id": "A", "type_id": 0}},
               {"SpecialToken": {"id": end, "type_id": 0}}], "pair": [],
    "special_tokens": {end: {"id": end, "ids": [6135], "tokens": [end]}}}))
def marks(o):
    pattern = o["pre_tokenizer"]["pretokenizers"][0]["pattern"]
    pattern["Regex"] = pattern["Regex"].replace(
        r"?\p{L}+", r"?[\p{L}\p{M}]+").replace(
        r"[^\s\p{L}\p{N}]", r"[^\s\p{L}\p{M}\p{N}]")
edit("tokenizer.json", marks)
edit("tokenizer_config.json", lambda o: o.update(chat_template=[
    {"name": "default", "template": o["chat_template"]},
    {"name": "tool_use", "template": "{{ 'T:' + messages[0].content }}"},
    {"name": "tool_use", "template": "{{ 'not this' }}"},
    {"name": "rag", "template": "{{ 'the file wins' }}"}]))
import os
os.mkdir(sys.argv[1] + "/additional_chat_templates")
for name in "rag", "default":
    with open(sys.argv[1] + "/additional_chat_templates/%s.jinja" % name, "w") as f:
        f.write("{{ 'R:' + messages[0].content }}")
edit("generation_config.json", lambda o: o.update(
    do_sample=True, temperature=0.8, top_k=12, top_p=0.9, min_p=0.01,
    repetition_penalty=1.05, eos_token_id=[6137, 6135, 42]))
PY
    echo '[]' >"$T/v/modules.json"
}

@test "gguf: more stop ids than the file has keys for" {
    variant
    stops() { printf '{"eos_token_id": [%s]}' "$1" >"$T/v/generation_config.json"; }
    stops "6137, 6135, 42, 43"
    q quantize --format gguf -m "$T/v" -o "$O"
    for id in 42 43 6135 6137; do
        q inspect --json -m "$O" | jget '[0]['$id' not in o["stop_ids"]]'
    done
    stops "6137, 44, 6135, 42, 43"
    fails 3 "eos_token_id: 5 ids cannot be written to a GGUF file, which has keys for 3: no key is left for 43" \
        quantize --format gguf -m "$T/v" -o "$T/x.gguf"
    [ ! -e "$T/x.gguf" ]
}

@test "gguf: the file names the split of the tokenizer" {
    local n=0 pre
    variant
    # split LINE [CODE]: give the checkpoint the split of a line of the goldens, changed
    # by CODE, and print the name that a GGUF file has for it
    split() {
        python3 - "$T/v/tokenizer.json" "$@" <<'PY'
import json, sys
path, o = sys.argv[1], json.loads(sys.argv[2])
exec("".join(sys.argv[3:]))
tok = json.load(open(path))
tok["pre_tokenizer"], tok["normalizer"] = o["pre_tokenizer"], o["normalizer"]
tok["model"]["ignore_merges"] = o["ignore_merges"]
json.dump(tok, open(path, "w"))
print({"starcoder": "smollm", "olmo": "gpt-2", None: "gpt-4o"}.get(o["pre"], o["pre"]))
PY
    }
    while read -r line; do
        pre=$(split "$line")
        q quantize --format gguf --type Q8_0 --force -m "$T/v" -o "$O"
        for m in "$T/v" "$O"; do
            q tokenize --jsonl -i tests/golden/splits/ids.jsonl -m "$m" >"$T/$(basename "$m").ids"
        done
        diff "$T/v.ids" "$T/$(basename "$O").ids"
        python3 - "$O" "$pre" <<'PY'
import sys
sys.path.insert(0, "tests/cli")
from gguf import *
assert read(sys.argv[1])[0]["tokenizer.ggml.pre"][1].decode() == sys.argv[2], sys.argv[2]
PY
        n=$((n + 1))
    done <tests/golden/splits/splits.jsonl
    [ "$n" -gt 9 ]
    # no name has both
    pre=$(split "$(sed -n 3p tests/golden/splits/splits.jsonl)" 'o["normalizer"] = {"type": "NFC"}')
    fails 3 "the split of llama3, with NFC and with ignore_merges cannot be written to a GGUF file" \
        quantize --format gguf -m "$T/v" -o "$T/x.gguf"
    [ ! -e "$T/x.gguf" ]
}

@test "gguf: what an answer depends on is in the file" {
    local chat='[{"role":"user","content":"hi"}]'
    variant
    q quantize --format gguf --type BF16 -m "$T/v" -o "$O"
    for m in "$T/v" "$O"; do
        {
            q embed -m "$m" --exact "list files"
            q -m "$m" --exact --seed 3 --think off "list open ports"
            q -m "$m" --exact --seed 4 --json "list all users" |
                jget 'o["tokens"], o["text"], o["finish_reason"]'
            q render -m "$m" "$chat"
            q render -m "$m" --chat-template tool_use "$chat"
            q render -m "$m" --chat-template rag "$chat"
            q inspect -m "$m" | grep -E "^(n ctx max|rope|rms)" | sort
            # a GGUF file has them in another order
            q inspect -m "$m" | grep "^stop ids" | tr -s ' ' '\n' | sort
        } >"$T/$(basename "$m").txt"
    done
    [ "$(wc -l <"$T/v.txt")" -gt 8 ]
    diff "$T/v.txt" "$T/out.txt"
    python3 - "$O" <<'PY'
import sys
raw = open(sys.argv[1], "rb").read(1 << 20)
for key in (b"qwen3.pooling_type", b"tokenizer.ggml.add_eos_token",
            b"tokenizer.chat_template.tool_use", b"general.sampling.temp",
            b"qwen35"):
    assert key in raw, key
PY
}

@test "--report: the sizes and what score --against says" {
    head -n 20 bench/heldout.jsonl >"$T/held.jsonl"
    run -0 --separate-stderr q quantize --bits 3 -o "$O" --report "$T/held.jsonl"
    [ -z "$stderr" ]
    [[ ${lines[0]} == $'bytes\t'* && ${lines[2]} == $'bits_per_weight\t3.5'* ]]
    equal "$(sed 1,3d <<<"$output")" "$(q score --exact -m "$O" \
        --against models/demo --perplexity -i "$T/held.jsonl" | sed 1,2d)"
    printf 'list all files in a directory' >"$T/held.txt"
    q quantize -o "$T/out.gguf" --report "$T/held.txt" --json | jlines '
        o[0]["report"]["kl"] > 0 and o[0]["report"]["n_texts"] == 1 and
        o[0]["report"]["kl_low"] is None and o[0]["bytes_written"] > 0'
}

@test "--report: what is wrong with the text ends the run before the work" {
    : >"$T/empty"
    printf '{"text":"list files"}\n{"no":1}\n' >"$T/bad.jsonl"
    fails 1 "$T/none: cannot open" quantize -o "$O" --report "$T/none"
    fails 2 "--report: $T/empty: has no token to measure" \
        quantize -o "$O" --report "$T/empty"
    fails 2 "--report: $T/bad.jsonl: line 2: text: not a string" \
        quantize -o "$O" --report "$T/bad.jsonl"
    fails 3 "tokenizer.json: no such file" \
        quantize -m $SRC -o "$O" --report "$T/bad.jsonl"
    nothing_left
}

# The bits a weight of a checkpoint's matrices, as stored, and the bytes of all its
# tensors: "BPW BYTES".
stored() {
    python3 - "$1" <<'PY'
import glob, json, struct, sys
bits = weights = total = 0
config = json.load(open(sys.argv[1] + "/config.json"))["quantization"]
for f in glob.glob(sys.argv[1] + "/*.safetensors"):
    raw = open(f, "rb").read()
    (n,) = struct.unpack("<Q", raw[:8])
    for name, v in json.loads(raw[8:8 + n]).items():
        if name == "__metadata__":
            continue
        size = v["data_offsets"][1] - v["data_offsets"][0]
        total += size
        if name.endswith((".scales", ".biases")):
            bits += 8 * size
        elif v["dtype"] == "U32":
            m = config.get(name.removesuffix(".weight"), config)
            bits += 8 * size
            weights += 8 * size // m["bits"]
print(bits / weights, total)
PY
}

@test "--bpw, --target: the widths fit the budget" {
    head -n 40 bench/heldout.jsonl >"$T/learn.jsonl"
    tail -n 60 bench/heldout.jsonl >"$T/held.jsonl"
    run -0 --separate-stderr q quantize --bpw 3.5 --calibrate "$T/learn.jsonl" \
        -o "$O" --report "$T/held.jsonl"
    [ -z "$stderr" ]
    printf '%s\n' "$output" >"$T/table"
    [[ ${lines[0]} == module*weights*bits*bytes*loss* ]]
    grep -q '^model.layers.7.mlp.down_proj  *196608  *[234568]  ' "$T/table"
    read -r bpw bytes <<<"$(stored "$O")"
    # little of it is left
    python3 -c "assert 3.4 < $bpw <= 3.5, '$bpw'"
    [ "$(sed -n 's/^bytes\t//p' "$T/table")" -eq "$bytes" ]
    # the same with any number of threads, and without writing
    q quantize -t 1 --target "$bytes" --calibrate "$T/learn.jsonl" --dry-run \
        --json | jlines 'len(o[0]["widths"]) == 57 and
            o[0]["bytes_written"] <= '"$bytes"' and
            o[0]["output"] is None and o[0]["bits"] is None and
            o[0]["budget"]["uniform_bits"] == 3 and
            o[0]["budget"]["kl"] <= o[0]["budget"]["uniform_kl"]'
    [ ! -e "$T/out4" ]
    # what qwick reads
    q -m "$O" --greedy -n 8 "list files" >"$T/answer"
    [ -s "$T/answer" ]
}

@test "--bpw: types of a GGUF file" {
    q quantize --bpw 4 --calibrate-self 1 -o "$T/mixed.gguf" \
        --json >"$T/line" 2>"$T/notes"
    jlines 'o[0]["type"] == "Q3_K_M" and o[0]["bits_per_weight"] <= 4.02 and
        {w["type"] for w in o[0]["widths"]} <= {"Q2_K", "Q3_K", "Q4_K", "Q5_K",
        "Q6_K", "Q8_0"} and len({w["type"] for w in o[0]["widths"]}) > 1' <"$T/line"
    q -m "$T/mixed.gguf" --greedy -n 8 "list files" >"$T/answer"
    [ -s "$T/answer" ]
}

@test "--calibrate: a warning says that texts are short" {
    echo "a text of some words" >"$T/words"
    run --separate-stderr q quantize -o "$O" --calibrate "$T/words"
    [ "$status" -eq 0 ]
    [[ "$stderr" == *"warning: calibrate: the texts have "*" tokens; fewer than 1024"* ]]
}

@test "--bpw, --target: usage" {
    fails 2 "--bpw: the loss of each width is measured on texts" \
        quantize --bpw 4 -o "$O"
    fails 2 "--type" quantize --target 4M --type Q4_K_M --calibrate "$T/x" \
        -o "$T/x.gguf"
    fails 2 "--bpw: cannot be combined with --target" \
        quantize --target 4M --bpw 4 --calibrate "$T/x" -o "$O"
    fails 2 "--bits" quantize --bits 4 --bpw 4 --calibrate "$T/x" -o "$O"
    fails 2 "--dry-run: has no effect without --bpw or --target" \
        quantize --dry-run -o "$O"
    fails 2 "the matrices need at least 2654208 bytes" \
        quantize --bpw 2.1 --calibrate bench/heldout.jsonl -o "$O"
    nothing_left
}
