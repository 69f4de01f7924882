#!/usr/bin/env bats
# qwick score: units that add up, conventions, lines of JSON, refusals.
load helpers

setup() {
    common_setup
    printf 'list all files\n\n  caf\xc3\xa9 \xff\xfe und so weiter\ttab\n<|im_end|>\nlast' >"$T/t"
}

# Set shell variables to the totals.
totals() {
    "$QWICK" score "$@" | sed -n 's/^#\{0,1\}\([a-z_]*\)\t\([-0-9.]*\)$/\1=\2/p'
}

@test "units of each kind cover the whole text and add up to the total" {
    for by in token word line byte; do
        q score --exact --by $by -f "$T/t" >"$T/$by"
        q score --exact --by $by --json -f "$T/t" >"$T/$by.json"
    done
    python3 - "$T" <<'PY'
import json, sys
from decimal import Decimal
t = sys.argv[1]
text = open(t + "/t", "rb").read()
total = set()
for by in "token", "word", "line", "byte":
    rows = open(f"{t}/{by}", encoding="utf-8").read().split("\n")[:-1]
    units = [r.split("\t") for r in rows if not r.startswith("#")]
    sums = dict(r[1:].split("\t") for r in rows if r.startswith("#"))
    assert rows[-1].startswith("#perplexity\t")
    assert len(units) + len(sums) == len(rows)
    # the sum is exact in decimal
    bits = sum(Decimal(b) for _, b, _ in units if b != "-")
    assert bits == Decimal(sums["bits"]), (by, bits, sums)
    total.add(bits)
    o = json.load(open(f"{t}/{by}.json", encoding="utf-8"))
    assert len(o["units"]) == len(units)
    got = b""
    for u, (offset, b, s) in zip(o["units"], units):
        assert u["offset"] == len(got) == int(offset)
        raw = bytes(u["bytes"]) if "bytes" in u else u["text"].encode()
        assert u["text"] == json.loads(s)
        assert u["bits"] is None if b == "-" else u["bits"] == float(b)
        assert u["bits"] is None or u["bits"] >= 0
        got += raw
        if by == "line":
            assert raw.endswith(b"\n") or got == text
            assert raw.count(b"\n") <= 1
        if by == "word":
            assert len(raw.split()) == 1 and not raw[-1:].isspace()
        if by == "byte":
            assert len(raw) == 1
    assert got == text
    assert o["n_bytes"] == o["n_input_bytes"] == len(text)
    assert o["n_scored"] == o["n_tokens"] - 1
    assert str(o["n_tokens"]) == sums["tokens"]
    assert abs(o["bits"] - float(bits)) <= 5e-7 + 1e-9
    assert o["window"] == 2048 and o["stride"] == 1024 and o["n_windows"] == 1
    assert o["model"] == "qwick-demo" and o["n_given"] == 0
    if by == "token":
        assert o["units"][0]["bits"] is None and units[0][1] == "-"
        assert o["units"][0]["logprob"] is None
        import math
        lp = sum(u["logprob"] for u in o["units"][1:])
        assert abs(lp - o["logprob"]) < 1e-9
        assert abs(-lp / math.log(2) - o["bits"]) < 1e-9
        assert abs(math.exp(-lp / o["n_scored"]) / o["perplexity"] - 1) < 1e-12
assert len(total) == 1
PY
}

@test "the ids equal those of tokenize, the bits of a token those of logits" {
    printf 'find . -name x' >"$T/u"
    q score --exact --json -f "$T/u" >"$T/s"
    q logits --exact --all --top 6144 --json "find . -name x" >"$T/l"
    python3 - "$T" <<'PY'
import json, sys
s, l = (json.load(open(sys.argv[1] + f)) for f in ("/s", "/l"))
assert [u["id"] for u in s["units"]] == l["input_ids"]
for u, p in zip(s["units"][1:], l["positions"]):
    want = next(t["logprob"] for t in p["top"] if t["id"] == u["id"])
    # logits uses libm, score a kernel whose exp has a relative error of 2^-21
    assert abs(u["logprob"] - want) <= 1e-6
PY
}

@test "the first token is scored when something is given" {
    printf ' files' >"$T/u"
    printf 'list' >"$T/g"
    run -0 q score --given list -f "$T/u"
    [[ ${lines[0]} == $'0\t'[0-9]*$'\t" files"' ]]
    [ "$(q score --given-file "$T/g" -f "$T/u")" = "$output" ]
    [ "$("$QWICK" score --given-file - -f "$T/u" <"$T/g")" = "$output" ]
    printf 'list files' >"$T/v"
    [ "$(q score --exact -f "$T/v" | sed -n 2p | cut -f2)" = \
        "$(q score --exact --given list -f "$T/u" | sed -n 1p | cut -f2)" ]
    # an empty --given
    [ "$(q score --given "" --perplexity -f "$T/u" | sed -n 2p)" = \
        $'scored_tokens\t0' ]
}

@test "--chat: the given text is a request" {
    printf 'ls -l' >"$T/u"
    prompt=$(printf '[{"role":"user","content":"list files with details"}]' |
        "$QWICK" render --think off -)$'\n\n'
    a=$(q score --exact --chat --given "list files with details" -f "$T/u")
    [ "$(q score --exact --given "$prompt" -f "$T/u")" = "$a" ]
    eval "$(totals --chat --given "list files with details" -f "$T/u" </dev/null)"
    [ "${perplexity%.*}" -eq 1 ]
    # the text of an answer has no control tokens
    printf '<|im_end|>' >"$T/u"
    eval "$(totals --chat --given hi -f "$T/u" </dev/null)"
    [ "$tokens" -gt 1 ]
    eval "$(totals -f "$T/u" </dev/null)"
    [ "$tokens" -eq 1 ]
    [ "$perplexity" = - ]
    eval "$(totals --no-special -f "$T/u" </dev/null)"
    [ "$tokens" -gt 1 ]
}

@test "windows: a longer text, the same answer where they have no effect" {
    for i in $(seq 300); do echo "copy file $i to the backup"; done >"$T/long"
    run -0 q score --perplexity -f "$T/long"
    [[ $output == *$'windows\t'[2-9]* ]]
    run -0 q score --perplexity --window 100 --stride 99 -f "$T/t"
    [ "$output" = "$(q score --perplexity -f "$T/t")" ]
    # shorter windows see less context
    head -n 12 "$T/long" >"$T/some"
    a=$(q score --exact --perplexity -c 16 -f "$T/some" | sed -n 's/^bits\t//p')
    b=$(q score --exact --perplexity -c 16 --stride 1 -f "$T/some" |
        sed -n 's/^bits\t//p')
    [ "$a" != "$b" ]
    [ "$a" = "$(q score --exact --perplexity --window 16 --stride 8 -f "$T/some" |
        sed -n 's/^bits\t//p')" ]
    fails 2 "window: 4096 tokens, but the context has 2048" \
        score --window 4096 -f "$T/t"
    fails 2 "stride: 8 tokens, must be less than the window's 8" \
        score --window 8 --stride 8 -f "$T/t"
    fails 4 "maximum is 2048" score -c 4096 -f "$T/t"
}

@test "several files, standard input, an empty one" {
    printf 'list files' >"$T/a"
    : >"$T/b"
    run -0 --separate-stderr q score --perplexity -f "$T/a" -f "$T/b"
    [ "$stderr" = "qwick: warning: $T/b: is empty" ]
    [ "${lines[0]}" = $'file\t"'"$T/a"'"' ]
    [ "${lines[9]}" = $'file\t"'"$T/b"'"' ]
    [ "${lines[10]}" = $'tokens\t0' ]
    [ "${lines[17]}" = $'perplexity\t-' ]
    [ "$(q score --json -f "$T/a" -f "$T/b" | wc -l)" -eq 2 ]
    q score --json -f "$T/a" -f "$T/b" | jlines 'o[1]["perplexity"] is None and
        o[1]["bits"] == 0 and o[1]["units"] == [] and o[0]["n_tokens"] == 2'
    equal "$("$QWICK" score <"$T/a")" "$(q score -f "$T/a")"
    equal "$("$QWICK" score - <"$T/a")" "$(q score -f "$T/a")"
    fails 1 "$T/none: " score -f "$T/a" -f "$T/none"
    run closed score
    [ "$status" -eq 2 ]
}

@test "--jsonl: in order, errors in their place, equal to single runs" {
    cat >"$T/in" <<'J'
{"id":"a","text":"list files"}
{"text":" files","given":"list"}
no json
{"id":[1,{"b":null}],"text":3}
{"text":"x","given":7}
[1]
{"text":""}
{"id":null,"text":"caf\u00e9 \ud83d\ude00"}
J
    run -1 --separate-stderr "$QWICK" score --exact --jsonl <"$T/in"
    [ -z "$stderr" ]
    printf '%s\n' "$output" >"$T/out"
    jlines 'len(o) == 8 and o[0]["id"] == "a" and "id" not in o[1]
        and [i for i in range(8) if "error" in o[i]] == [2, 3, 4, 5]
        and "line 4: text: not a string" in o[3]["error"]
        and o[3]["id"] == [1, {"b": None}]
        and o[6]["n_tokens"] == 0 and o[6]["perplexity"] is None
        and o[7]["id"] is None and "units" not in o[0]
        and o[0]["logprob"] == o[1]["logprob"]' <"$T/out"
    run -1 q score --exact --jsonl -i "$T/in"
    [ "${output//$T\/in/stdin}" = "$(cat "$T/out")" ]
    printf 'list files' >"$T/u"
    python3 -c 'import json, sys
a = json.loads(sys.argv[1]); b = json.loads(open(sys.argv[2]).readline())
b.pop("id")
assert all(a[k] == b[k] for k in b), (a, b)' \
        "$(q score --exact --json -f "$T/u")" "$T/out"
    echo '{"text":"list files"}' | "$QWICK" score --jsonl --by word |
        jlines '[u["text"] for u in o[0]["units"]] == ["list", " files"]'
    # --given applies to lines without "given"
    printf '%s\n' '{"text":" files"}' '{"text":" x","given":"echo"}' |
        "$QWICK" score --exact --jsonl --given list |
        jlines 'o[0]["n_scored"] == 1 and o[1]["n_scored"] == 1'
    run ! "$QWICK" score --jsonl --chat <<<'{"text":"x"}'
    jlines '"given: missing" in o[0]["error"]' <<<"${lines[0]}"
}

@test "--jsonl: 200 records, and the totals of all" {
    for i in $(seq 200); do echo "{\"text\":\"remove file $i of dir $i\"}"; done \
        >"$T/in"
    q score --exact --jsonl -i "$T/in" >"$T/out"
    [ "$(wc -l <"$T/out")" -eq 200 ]
    sed -n 177p "$T/in" >"$T/one"
    equal "$(q score --exact --jsonl -i "$T/one")" "$(sed -n 177p "$T/out")"
    q score --exact --jsonl --perplexity -i "$T/in" >"$T/sum"
    python3 - "$T" <<'PY'
import json, math, sys
t = sys.argv[1]
rows = [json.loads(l) for l in open(t + "/out")]
sums = dict(l.rstrip("\n").split("\t") for l in open(t + "/sum"))
lp, n = sum(r["logprob"] for r in rows), sum(r["n_scored"] for r in rows)
assert int(sums["scored_tokens"]) == n and int(sums["windows"]) == 200
assert abs(float(sums["perplexity"]) - math.exp(-lp / n)) < 1e-5
PY
}

@test "an answer comes as soon as the input pauses" {
    coproc S { "$QWICK" score --jsonl 2>&1; }
    pid=$S_PID # bash forgets it when the process ends
    echo '{"text":"list files"}' >&"${S[1]}"
    read -r -t 20 line <&"${S[0]}"
    [[ $line == '{"logprob":'* ]]
    exec {S[1]}>&-
    wait "$pid"
}

@test "threads and batches change nothing with --exact" {
    want=$(q score --exact -t 1 -f "$T/t")
    [ "$(q score --exact -t 2 -f "$T/t")" = "$want" ]
    [ "$(q score --exact --prefill-chunk 3 -f "$T/t")" = "$want" ]
}

@test "the man page's example ranks lines by surprise, not by length" {
    {
        for i in 1 2 3 4 5 6; do echo "list all files in the directory"; done
        echo "qzjx!~kw}"
        echo "list all files in the directory $(seq -s ' ' 1 60)"
        echo "ls"
    } >"$T/app.log"
    # the command between .EX and .EE, as a reader of the page sees it
    sed -n '/^Which lines of a log/,/^\.EE/p' man/qwick-score.1 |
        sed -e '1,/^\.EX/d' -e '/^\.EE/d' -e 's/\\(aq/'"'"'/g' -e 's/\\-/-/g' \
            -e 's/\\(ha/^/g' -e 's/\\e/\\/g' >"$T/command"
    ln -s "$QWICK" "$T/qwick"
    cd "$T"
    run -0 env PATH="$T:$PATH" bash "$T/command"
    [[ ${lines[0]} == *'"qzjx!~kw}\n"' ]] || { echo "$output"; false; }
    [ "${#lines[@]}" -eq 9 ]
    # the longest line has the most bits, but is not first
    run -0 bash -c '"$1" score --by line <app.log | grep -v ^# |
        sort -k2,2 -rn' - "$QWICK"
    [[ ${lines[0]} == *"59 60"* ]] || { echo "$output"; false; }
}

@test "a full disk is an error" {
    [ -w /dev/full ] || skip "no /dev/full"
    run bash -c '"$1" score -f "$2" >/dev/full' - "$QWICK" "$T/t"
    [ "$status" -eq 1 ]
}

# A copy of the demo model, changed by a program in Python: d is its directory, c
# its config, t its tokenizer, pad(n) adds n rows to the embedding.
changed() {
    cp -r models/demo "$T/$1"
    python3 - "$T/$1" "$2" <<'PY'
import json, struct, sys
d, program = sys.argv[1:]
c = json.load(open(d + "/config.json"))
t = json.load(open(d + "/tokenizer.json"))
def pad(n):
    name = "model.embed_tokens.weight"
    raw = open(d + "/model.safetensors", "rb").read()
    (size,) = struct.unpack("<Q", raw[:8])
    head = json.loads(raw[8:8 + size])
    rows, cols = head[name]["shape"]
    end = head[name]["data_offsets"][1]
    more = struct.pack("<H", 0x3d80) * (n * cols)  # 0.0625
    for k, v in head.items():
        if k != "__metadata__" and v["data_offsets"][0] >= end:
            v["data_offsets"] = [x + len(more) for x in v["data_offsets"]]
    head[name]["shape"][0] += n
    head[name]["data_offsets"][1] += len(more)
    text = json.dumps(head).encode()
    open(d + "/model.safetensors", "wb").write(
        struct.pack("<Q", len(text)) + text + raw[8 + size:8 + size + end] +
        more + raw[8 + size + end:])
    c["vocab_size"] += n
exec(program)
json.dump(c, open(d + "/config.json", "w"))
json.dump(t, open(d + "/tokenizer.json", "w"))
PY
}

@test "--against: the model itself loses nothing" {
    q score --against models/demo --json -f "$T/t" | jlines '
        o[0]["kl"] == o[0]["kl_p99"] == o[0]["kl_max"] == 0 and
        o[0]["agreement"] == o[0]["perplexity_ratio"] == 1 and
        o[0]["reference"] == "models/demo" and o[0]["model"] == "qwick-demo" and
        o[0]["perplexity"] == o[0]["reference_perplexity"] and
        o[0]["n_texts"] == 1 and o[0]["window"] == 2048 and
        o[0]["kl_low"] is None'
}

@test "--against: a quantized model, as text, objects and records" {
    q quantize --bits 3 -o "$T/q3"
    head -n 40 bench/heldout.jsonl >"$T/in"
    run -0 q score --exact -m "$T/q3" --against models/demo --perplexity -i "$T/in"
    printf '%s\n' "$output" >"$T/text"
    [ "${lines[0]}" = $'model\t'"$T/q3" ]
    [ "${lines[1]}" = $'reference\tmodels/demo' ]
    q score --exact -m "$T/q3" --against models/demo --jsonl -i "$T/in" >"$T/lines"
    q score --exact -m "$T/q3" --jsonl -i "$T/in" >"$T/own"
    q score --exact --jsonl -i "$T/in" >"$T/reference"
    python3 - "$T" <<'PY'
import json, math, sys
t = sys.argv[1]
rows = dict(r.rstrip("\n").split("\t", 1) for r in open(t + "/text"))
line, own, ref = ([json.loads(s) for s in open(f"{t}/{n}")]
                  for n in ("lines", "own", "reference"))
n = sum(o["n_scored"] for o in line)
assert int(rows["scored_tokens"]) == n and int(rows["blocks"]) == len(line) == 40
def mean(name):
    return sum(o[name] * o["n_scored"] for o in line) / n
kl, low, high = map(float, rows["kl"].split("\t"))
assert 0 < low < kl < high and abs(kl - mean("kl")) < 1e-5 * kl
assert float(rows["kl_max"]) > float(rows["kl_p99"]) > kl
top, low, high = map(float, rows["agreement"].split("\t"))
assert low < top < high <= 1 and abs(top - mean("agreement")) < 1e-5
for a, b, c in zip(line, own, ref):
    assert abs(a["perplexity"] / b["perplexity"] - 1) < 1e-9
    assert abs(a["reference_perplexity"] / c["perplexity"] - 1) < 1e-9
ratio, low, high = map(float, rows["perplexity_ratio"].split("\t"))
p, r = (float(rows[k].split("\t")[0])
        for k in ("perplexity", "reference_perplexity"))
assert abs(ratio - p / r) < 1e-4 and low < ratio < high
PY
    # KL(reference || model), not the other way round
    q score --exact -m models/demo --against "$T/q3" --perplexity -i "$T/in" \
        >"$T/other"
    [ "$(grep ^kl "$T/text")" != "$(grep ^kl "$T/other")" ]
    [ "$(grep ^agreement "$T/text")" = "$(grep ^agreement "$T/other")" ]
    # threads change nothing
    equal "$(<"$T/text")" "$(q score --exact -t 1 -m "$T/q3" \
        --against models/demo --perplexity -i "$T/in")"
}

@test "--against: other tokens are refused, rows of padding are not" {
    changed padded 'pad(64)'
    q score --exact -m "$T/padded" --against models/demo --json -f "$T/t" |
        jlines 'o[0]["kl_max"] == 0 and o[0]["agreement"] == 1 and
            o[0]["perplexity_ratio"] > 1'
    q score --exact --against "$T/padded" --json -f "$T/t" |
        jlines 'o[0]["kl_max"] == 0 and o[0]["perplexity_ratio"] < 1'
    changed other 'v = t["model"]["vocab"]
a, b = [k for k, i in v.items() if i in (300, 301)]
v[a], v[b] = v[b], v[a]'
    fails 2 "token 300 is " score --against "$T/other" -f "$T/t"
    fails 2 "vocabularies of 6144 and 320" \
        score --against "$MODELS/moe" -f "$T/t"
    fails 3 "$T/none" score --against "$T/none" -f "$T/t"
    fails 2 "--heat: has no effect with --against" \
        score --against models/demo --heat -f "$T/t"
}

@test "--against: --lora and --kv are of the model only" {
    q score --against models/demo --kv q8 --json -f "$T/t" |
        jlines 'o[0]["kl"] > 0'
    fails 4 "maximum is 2048" score --against models/demo -c 4096 -f "$T/t"
}
