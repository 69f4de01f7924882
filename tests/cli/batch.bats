#!/usr/bin/env bats
# batch: answers equal those of single runs, in order; bad records; continued
# outputs.
load helpers

setup() {
    common_setup
    GOLD=tests/golden/demo_visible.jsonl
}

# records FILE: write the golden prompts as records.
records() {
    python3 - "$GOLD" "$1" <<'PY'
import json, sys
with open(sys.argv[2], "w") as out:
    for i, line in enumerate(open(sys.argv[1])):
        out.write(json.dumps({"id": f"g{i}", "prompt": json.loads(line)["prompt"]}) + "\n")
PY
}

# many FILE N: write N records of many kinds and lengths.
many() {
    python3 - "$GOLD" "$1" "$2" <<'PY'
import json, random, sys
random.seed(7)
gold = [json.loads(l) for l in open(sys.argv[1])]
with open(sys.argv[2], "w") as out:
    for i in range(int(sys.argv[3])):
        g = random.choice(gold)
        r = {"id": i}
        kind = i % 4
        if kind == 0:
            r["prompt_ids"] = g["prompt_ids"]
        elif kind == 1:
            r["messages"] = [{"role": "user", "content": g["prompt"]}]
        else:
            r["prompt"] = g["prompt"]
        if i % 3 == 0:
            r.update(temperature=1.1, top_k=30, seed=i)
        if i % 5 == 0:
            r["n"] = 3
            r["temperature"] = 0.9
        if i % 7 == 0:
            r["max_tokens"] = 5
        if i % 11 == 0:
            r["stop"] = ["s", "-l"]
        out.write(json.dumps(r) + "\n")
PY
}

# same A B: compare answers without times, cache hits and (with "sorted") the
# order.
same() {
    python3 -S -E -c "$JSON_PARSER"'
def load(name):
    rows = []
    for line in open(name, encoding="utf-8", newline="\n"):
        assert line.endswith("\n"), (name, line)
        o = parse(line)
        o.pop("timing", None)
        if "usage" in o:
            o["usage"].pop("cached_tokens")
        rows.append(o)
    if "sorted" in sys.argv:
        rows.sort(key=lambda o: (o["line"], o.get("index", 0)))
    return rows
a, b = load(sys.argv[1]), load(sys.argv[2])
assert len(a) == len(b), (len(a), len(b))
for x, y in zip(a, b):
    assert x == y, (x, y)' "$@"
}

# small: run on two layers of the demo model, for tests that compare runs and limit
# the answers' lengths: most of its answers do not end.
small() {
    small_demo "$T/small"
    export QWICK_MODEL=$T/small
}

@test "the golden answers, in order, with any number at once" {
    records "$T/in"
    for max in 1 3 16; do
        run -0 --separate-stderr q batch -i "$T/in" -o "$T/out$max" --exact \
            --greedy --think off -n 60 --seed 1 --max-batch $max
        [ -z "$output$stderr" ]
        python3 - "$GOLD" "$T/out$max" <<'PY'
import json, sys
gold = [json.loads(l) for l in open(sys.argv[1])]
rows = [json.loads(l) for l in open(sys.argv[2])]
assert len(gold) == len(rows)
for i, (g, r) in enumerate(zip(gold, rows)):
    assert r["id"] == f"g{i}" and r["line"] == i + 1 and "index" not in r, r
    assert (r["tokens"], r["text"]) == (g["ids"], g["text"]), (g, r)
    assert r["usage"]["prompt_tokens"] == len(g["prompt_ids"]), r
    assert r["usage"]["completion_tokens"] == len(r["tokens"]), r
PY
    done
    q batch -i "$T/in" --exact --greedy --think off -n 60 --seed 1 \
        --prefill-chunk 5 -t 1 >"$T/chunked"
    same "$T/chunked" "$T/out16"
}

@test "an answer is the object of generate --json, with line and id" {
    echo '{"id":"é\"","prompt":"list files","seed":3,"temperature":1.5}' |
        "$QWICK" batch --exact >"$T/b"
    q --json --exact --seed 3 --temp 1.5 "list files" >"$T/g"
    python3 - "$T/b" "$T/g" <<'PY'
import json, sys
b, g = (json.loads(open(n).read()) for n in sys.argv[1:])
assert list(b)[:3] == ["line", "id", "key"] and list(b)[3:] == list(g), (list(b), list(g))
assert b.pop("line") == 1 and b.pop("id") == 'é"'
assert len(b.pop("key")) == 25
assert set(b.pop("timing")) == set(g.pop("timing"))
assert b == g, (b, g)
PY
}

@test "a record's options work as in generate" {
    check() { # RECORD-MEMBERS OPTIONS…
        local members=$1
        shift
        echo "{$members}" | "$QWICK" batch --exact --seed 1 >"$T/b"
        q --json --exact --seed 9 "$@" >"$T/g"
        python3 - "$T/b" "$T/g" <<'PY'
import json, sys
b, g = (json.loads(open(n).read()) for n in sys.argv[1:])
for k in "text", "thinking", "tokens", "finish_reason", "seed":
    assert b[k] == g[k], (k, b, g)
PY
    }
    check '"prompt":"list files","seed":9,"temperature":2,"top_k":5,"n":1' \
        --temp 2 --top-k 5 "list files"
    check '"prompt":"list files","seed":9,"top_p":0.9,"min_p":0.01,"repeat_penalty":1.3' \
        --top-p 0.9 --min-p 0.01 --repeat-penalty 1.3 "list files"
    check '"prompt":"list files","seed":9,"presence_penalty":1,"frequency_penalty":-0.5,"max_tokens":30' \
        --presence-penalty 1 --frequency-penalty -0.5 -n 30 "list files"
    check '"prompt":"list all listening tcp ports","seed":9,"stop":" -l"' \
        --stop " -l" "list all listening tcp ports"
    check '"prompt":"list files","seed":9,"think":false' --think off "list files"
    check '"prompt":"list files","seed":9,"think":"on","max_tokens":20' \
        --think on -n 20 "list files"
    check '"prompt_ids":[1,2,3],"seed":9,"max_tokens":8' \
        --prompt-ids 1,2,3 -n 8
    check '"messages":[{"role":"system","content":"be brief"},{"role":"user","content":"list files"}],"seed":9' \
        -s "be brief" "list files"
    # null is the same as absent
    check '"id":null,"messages":null,"prompt":"list files","seed":9,"stop":null,"n":null,"temperature":null' \
        "list files"
}

@test "-s and -f: as in generate, computed once" {
    printf 'what the files are\n' >"$T/doc"
    printf '{"prompt":"list files"}\n{"messages":[{"role":"user","content":"list files"}]}\n' >"$T/in"
    "$QWICK" batch --exact --greedy -s "be brief" -i "$T/in" >"$T/b" </dev/null
    q --json --exact --greedy -s "be brief" "list files" >"$T/g"
    python3 - "$T/b" "$T/g" <<'PY'
import json, sys
rows = [json.loads(l) for l in open(sys.argv[1])]
g = json.load(open(sys.argv[2]))
for r in rows:
    assert r["tokens"] == g["tokens"], (r, g)
PY
    head -n 1 "$T/in" | "$QWICK" batch --exact --greedy -f "$T/doc" >"$T/b"
    q --json --exact --greedy -f "$T/doc" "list files" >"$T/g"
    equal "$(jget 'o["tokens"]' <"$T/b")" "$(jget 'o["tokens"]' <"$T/g")"
    run -1 --separate-stderr q batch -f "$T/doc" -i "$T/in"
    echo "$output" | jlines '"error" in o[1] and "text" in o[0]'
    # a long text before many questions goes through the model once
    python3 -c 'print("list the files " * 150)' >"$T/doc"
    records "$T/in"
    q batch -n 5 -f "$T/doc" -i "$T/in" >"$T/b"
    python3 - "$T/b" <<'PY'
import json, sys
u = [json.loads(l)["usage"] for l in open(sys.argv[1])]
short = min(x["prompt_tokens"] for x in u)
assert u[0]["cached_tokens"] == 0
assert all(x["cached_tokens"] >= short - 50 for x in u[1:]), u
PY
}

@test "n samples of a prompt: different seeds, reproducible, prefilled once" {
    echo '{"id":1,"prompt":"list files","n":5,"temperature":6,"max_tokens":20,"seed":4}' >"$T/in"
    q batch --exact -i "$T/in" >"$T/a"
    q batch --exact -i "$T/in" --max-batch 2 >"$T/b"
    same "$T/a" "$T/b"
    jlines '[x["index"] for x in o] == [0, 1, 2, 3, 4] and
        o[0]["seed"] == 4 and len({x["seed"] for x in o}) == 5 and
        all(x["usage"]["cached_tokens"] == x["usage"]["prompt_tokens"] - 1
            for x in o[1:]) and len({x["text"] for x in o}) > 1' <"$T/a"
    # each sample by its seed
    for i in 0 3; do
        seed=$(sed -n "$((i + 1))p" "$T/a" | jget 'o["seed"]')
        [ "$(q --json --exact -n 20 --temp 6 --seed "$seed" \
            "list files" |
            jget 'o["tokens"]')" = "$(sed -n "$((i + 1))p" "$T/a" |
            jget 'o["tokens"]')" ]
    done
    # without a seed of its own: by the run's seed and the line
    printf '{"prompt":"list files"}\n{"prompt":"list files"}\n' >"$T/in"
    for _ in 1 2; do
        q batch --seed 1 --temp 6 -n 20 -i "$T/in" |
            python3 -c 'import json, sys
print([json.loads(l)["seed"] for l in sys.stdin])'
    done >"$T/s"
    python3 - "$T/s" <<'PY'
import ast, sys
a, b = (ast.literal_eval(l) for l in open(sys.argv[1]))
assert a == b and a[0] != a[1], (a, b)
PY
}

@test "bad records: an error in its place, the others answered, exit 1" {
    python3 - "$T/in" <<'PY'
import json, sys
bad = ['{"id":"a","prompt":5}', "nonsense", "[1]", '{"id":[],"prompt":"x"}',
       '{"id":"b"}', '{"prompt":"x","prompt_ids":[1]}', '{"prompt":""}',
       '{"prompt_ids":[]}', '{"prompt_ids":[1,-1]}', '{"prompt_ids":[99999999]}',
       '{"prompt":"x","temperature":"hot"}', '{"prompt":"x","top_k":1.5}',
       '{"prompt":"x","top_p":2}', '{"prompt":"x","n":0}',
       '{"prompt":"x","n":1001}', '{"prompt":"x","max_tokens":0}',
       '{"prompt":"x","stop":[""]}', '{"prompt":"x","stop":"a\\u0000"}',
       '{"prompt":"x","seed":-1}', '{"prompt":"x","think":"maybe"}',
       '{"messages":{}}', '{"messages":[]}',
       '{"messages":[{"role":"pirate","content":"x"}]}',
       '{"messages":[{"role":"user","content":5}]}',
       '{"prompt":"x","prompt":"y"}', '{"prompt":"\xff"}',
       '{"prompt":"%s"}' % ("list the files " * 3000), "\x00", '{"prompt":"x"} {}']
with open(sys.argv[1], "wb") as out:
    for i in range(1000):
        line = '{"id":%d,"prompt_ids":[1,2,%d]}' % (i, i)
        if i % 100 < len(bad) // 10 + 1 and i // 100 + i % 100 * 10 < len(bad):
            line = bad[i // 100 + i % 100 * 10]
        out.write(line.encode("latin-1") + b"\n")
PY
    run -1 --separate-stderr q batch -q -n 2 -i "$T/in"
    echo "$output" >"$T/out"
    python3 - "$T/in" "$T/out" "$stderr" <<'PY'
import json, sys
rows = [json.loads(l) for l in open(sys.argv[2])]
lines = open(sys.argv[1], "rb").read().split(b"\n")[:-1]
assert len(rows) == 1000
errors = 0
for i, (r, line) in enumerate(zip(rows, lines)):
    good = line == b'{"id":%d,"prompt_ids":[1,2,%d]}' % (i, i)
    assert r["line"] == i + 1
    assert ("error" in r) != good and ("text" in r) == good, (line[:80], r)
    errors += not good
    if b'"id":"a"' in line:
        assert r["id"] == "a"
assert errors == 29, errors
assert sys.argv[3].strip() == f"qwick: {sys.argv[1]}: 29 answers are errors", sys.argv[3]
PY
}

@test "blank lines, CRLF, no final newline, a very long line" {
    printf '\n  \t\n{"id":1,"prompt":"list files"}\r\n\r\n{"id":2,"prompt":"list files"}' |
        "$QWICK" batch >"$T/out"
    jlines '[(x["line"], x["id"], x["text"]) for x in o] ==
        [(3, 1, "ls"), (5, 2, "ls")]' <"$T/out"
    python3 -c 'import sys
sys.stdout.write("{\"id\":1,\"prompt\":\"list files\"}\n")
sys.stdout.write("{\"id\":2,\"prompt\":\"" + "list the files " * 2000000 + "\"}\n")
sys.stdout.write("{\"id\":3,\"prompt\":\"list files\"}\n")' >"$T/in"
    run -1 --separate-stderr q batch -i "$T/in"
    echo "$output" | jlines '[x["id"] for x in o] == [1, 2, 3] and
        "fit the context" in o[1]["error"] and o[2]["text"] == "ls"'
    fails 2 "/dev/null: has no records" batch -i /dev/null
    printf '' >"$T/empty"
    fails 2 "$T/empty: has no records" batch -i "$T/empty" -o "$T/none"
    [ ! -s "$T/none" ]
}

@test "records with repeated ids are answered and reported; unknown keys are reported once" {
    for _ in 1 2 3; do echo '{"id":"x","prompt":"list files","source":1}'; done >"$T/in"
    run -0 --separate-stderr q batch -i "$T/in"
    [ "${#lines[@]}" -eq 3 ]
    [ "$(grep -c 'id "x" was on line 1 as well' <<<"$stderr")" -eq 2 ]
    [ "$(grep -c '"source" is not an option' <<<"$stderr")" -eq 1 ]
    run -0 --separate-stderr q batch -q -i "$T/in"
    [ -z "$stderr" ]
}

@test "--unordered gives the same answers" {
    small
    many "$T/in" 60
    q batch --exact --seed 5 -n 12 -i "$T/in" >"$T/a"
    q batch --exact --seed 5 -n 12 -i "$T/in" --unordered >"$T/b"
    same "$T/a" "$T/b" sorted
    python3 - "$T/a" <<'PY'
import json, sys
rows = [json.loads(l) for l in open(sys.argv[1])]
keys = [(r["line"], r.get("index", 0)) for r in rows]
assert keys == sorted(keys)
PY
}

# whole_run: answer 50 records ($T/in) in one run ($T/all). $T/parts is empty.
whole_run() {
    small
    many "$T/in" 50
    q batch --exact --seed 5 -n 12 -i "$T/in" >"$T/all"
    : >"$T/parts"
}

@test "--shard: the shards answer each record once" {
    whole_run
    for i in 1 2 3; do
        q batch --exact --seed 5 -n 12 --shard $i/3 -i "$T/in" >>"$T/parts"
    done
    same "$T/all" "$T/parts" sorted
    for s in 0/3 4/3 1 a/b 1/ /2 -1/2 1/2/3; do
        fails 2 "--shard" batch --shard=$s -i "$T/in"
    done
}

# timed COMMAND…: run it, and set span to the microseconds that it took.
timed() {
    local start=${EPOCHREALTIME/./}
    "$@"
    span=$((${EPOCHREALTIME/./} - start))
}

# killed SEED SIGNALS ARGS…: run batch until it ends by itself. Before that, a
# random signal of SIGNALS ends twelve runs, each at a random moment in the first
# third of a whole run's time, which is $span. Prints how many runs it ended.
killed() {
    python3 - "$QWICK" "$span" "$@" <<'PY'
import random, signal, subprocess, sys
qwick, span, seed, signals = sys.argv[1:5]
random.seed(int(seed))
kills = 0
while True:
    p = subprocess.Popen([qwick, "batch"] + sys.argv[5:], stdin=subprocess.DEVNULL)
    try:
        p.wait(None if kills == 12 else random.uniform(0, int(span) / 3e6))
    except subprocess.TimeoutExpired:
        p.send_signal(getattr(signal, random.choice(signals.split())))
        p.wait()
        kills += 1
        continue
    assert p.returncode == 0, p.returncode
    break
print(kills, "runs ended by a signal")
PY
}

@test "-o: killed at any moment and continued, nothing is lost or doubled" {
    small
    many "$T/in" 60
    timed q batch --exact --seed 5 -n 12 -t 1 -i "$T/in" -o "$T/want"
    for how in "" --unordered; do
        rm -f "$T/out"
        killed 1 SIGKILL --exact --seed 5 -n 12 -t 1 -i "$T/in" -o "$T/out" $how
        if [ -z "$how" ]; then same "$T/out" "$T/want"; fi
        same "$T/out" "$T/want" sorted
        # a complete output: nothing to do
        cp "$T/out" "$T/before"
        run -0 --separate-stderr q batch --exact --seed 5 -n 12 -i "$T/in" -o "$T/out"
        cmp "$T/out" "$T/before"
        # cut off, as in the middle of a write
        for cut in 1 70 200; do
            truncate -s -$cut "$T/out"
            q batch --exact --seed 5 -n 12 -i "$T/in" -o "$T/out" $how
            same "$T/out" "$T/want" sorted
        done
    done
}

@test "-o: other programs' files stay unchanged" {
    records "$T/in"
    foreign() {
        cp "$T/out" "$T/before"
        fails 2 "was not written by qwick batch" batch -i "$T/in" -o "$T/out"
        cmp "$T/out" "$T/before"
    }
    echo "my notes" >"$T/out" && foreign
    printf 'my notes' >"$T/out" && foreign
    echo '{"a":1}' >"$T/out" && foreign
    printf '{"li' >"$T/out"
    head -n 2 "$T/in" >"$T/two"
    q batch -n 1 -i "$T/two" -o "$T/out"
    [ "$(wc -l <"$T/out")" -eq 2 ]
    # the output of another input
    tac "$T/two" >"$T/other"
    fails 2 "belongs to another input" batch -n 1 -i "$T/other" -o "$T/out"
    [ "$(wc -l <"$T/out")" -eq 2 ]
    # errors count as answered, and are reported
    echo '{"id":1}' >>"$T/two"
    run -1 --separate-stderr q batch -n 1 -i "$T/two" -o "$T/out"
    run -1 --separate-stderr q batch -n 1 -i "$T/two" -o "$T/out"
    [ "$(wc -l <"$T/out")" -eq 3 ]
}

@test "the output file as the input is refused" {
    records "$T/in"
    cp "$T/in" "$T/before"
    fails 2 "is the input as well" batch -i "$T/in" -o "$T/in"
    ln "$T/in" "$T/link"
    fails 2 "is the input as well" batch -i "$T/in" -o "$T/link"
    run -2 --separate-stderr bash -c "'$QWICK' batch <'$T/in' >>'$T/in'"
    [[ $stderr == *"is the input as well"* ]]
    cmp "$T/in" "$T/before"
}

@test "a full or closed output stops it; it can be continued" {
    [ -e /dev/full ] || skip "no /dev/full"
    many "$T/in" 40
    run -1 --separate-stderr bash -c "'$QWICK' batch -i '$T/in' >/dev/full"
    [ "$stderr" = "qwick: stdout: write error: No space left on device" ]
    run -1 --separate-stderr q batch -i "$T/in" -o /dev/full
    [ "$stderr" = "qwick: /dev/full: write error: No space left on device" ]
    run --separate-stderr bash -c "'$QWICK' batch -i '$T/in' | head -c1 >/dev/null
        exit \${PIPESTATUS[0]}"
    [ "$status" -eq 141 ]
    [ -z "$stderr" ]
    q batch --exact --seed 1 -i "$T/in" -o "$T/want"
    run bash -c "ulimit -f 4
        '$QWICK' batch --exact --seed 1 -i '$T/in' -o '$T/out' 2>&1 | cat
        exit \${PIPESTATUS[0]}"
    [ "$status" -eq 1 ]
    [[ $output == *"/out: write error: File too large"* ]]
    q batch --exact --seed 1 -i "$T/in" -o "$T/out"
    same "$T/out" "$T/want"
    fails 1 "$T/no/out" batch -i "$T/in" -o "$T/no/out"
    fails 1 "$T/no/in" batch -i "$T/no/in"
    fails 1 "cannot read" batch -i "$T"
}

@test "two runs do not write one file" {
    many "$T/in" 40
    python3 - "$QWICK" "$T/in" "$T/out" <<'PY'
import subprocess, sys, time, os
qwick, src, out = sys.argv[1:]
a = subprocess.Popen([qwick, "batch", "-o", out], stdin=subprocess.PIPE)
while not os.path.exists(out):
    time.sleep(0.01)
time.sleep(0.2)
b = subprocess.run([qwick, "batch", "-i", src, "-o", out], stdin=subprocess.DEVNULL,
                   capture_output=True)
assert b.returncode == 2 and b"another qwick batch" in b.stderr, b
a.communicate(b'{"prompt":"list files"}\n')
assert a.returncode == 0
PY
}

@test "slow input: records are answered while it is open, one by one or together" {
    python3 - "$QWICK" <<'PY'
import json, os, subprocess, sys, time
p = subprocess.Popen([sys.argv[1], "batch", "--debounce", "20"], stdin=subprocess.PIPE,
                     stdout=subprocess.PIPE)
for i in range(4):
    # send a record in pieces
    line = b'{"id":%d,"prompt":"list files"}\n' % i
    p.stdin.write(line[:9]); p.stdin.flush()
    time.sleep(0.05)
    p.stdin.write(line[9:]); p.stdin.flush()
    r = json.loads(p.stdout.readline())
    assert r["id"] == i and r["text"] == "ls", r
# new records join while a long one runs
p.stdin.write(b'{"id":"long","prompt_ids":[1,2],"max_tokens":2000,"temperature":2}\n')
p.stdin.flush()
p.stdin.write(b'{"id":"short","prompt":"list files"}\n')
p.stdin.close()
rows = [json.loads(l) for l in p.stdout]
assert [r["id"] for r in rows] == ["long", "short"]
assert p.wait() == 0
PY
}

# answer ARGS…: run into $T/out.
answer() {
    q batch --exact -n 12 -o "$T/out" "$@"
}

@test "-o: answers of another model, prompt, seed or option are not mixed in" {
    printf '{"id":%d,"prompt":"list files of %d"}\n' 1 1 2 2 3 3 4 4 >"$T/in"
    answer --temp 1.1 --seed 1 -i "$T/in"
    jlines 'len({x["key"] for x in o}) == 4 and
        len({x["key"][:9] for x in o}) == 1' <"$T/out"
    cp "$T/out" "$T/first"
    refused() { # PATTERN ARGS…: the run is refused and changes nothing
        local pattern=$1
        shift
        fails 2 "$pattern" batch --exact -n 12 -o "$T/out" "$@"
        cmp "$T/out" "$T/first"
        [ ! -e "$T/out.pending" ]
    }
    same_as() { # ARGS…: the result of --redo equals that of a new file
        rm -f "$T/new"
        q batch --exact -n 12 -o "$T/new" "$@"
        cp "$T/first" "$T/out"
        answer --redo "$@"
        same "$T/out" "$T/new"
        [ ! -e "$T/out.pending" ]
        cp "$T/first" "$T/out"
    }
    # options that do not change a text do not change its key
    for o in "-t 1" "--max-batch 1" "--prefill-chunk 3" "--isa ref" --unordered \
        "--shard 1/2"; do
        # shellcheck disable=SC2086
        answer --temp 1.1 --seed 1 -i "$T/in" $o
        cmp "$T/out" "$T/first"
    done
    copy_of models/demo copy
    answer --temp 1.1 --seed 1 -i "$T/in" -m "$T/copy"
    cmp "$T/out" "$T/first"
    # differences of the run
    o=(--temp 1.1 --seed 1 -i "$T/in")
    refused "with another model" "${o[@]}" --logprobs 1
    refused "with another model" "${o[@]}" -c 100
    run -2 --separate-stderr q batch -n 12 -o "$T/out" "${o[@]}"
    [[ $stderr == *"$T/out: line 1: was written with another model"*"--redo"* ]]
    weights_edit "$T/copy/model.safetensors" 'data[:64] = (x ^ 1 for x in data[:64])'
    refused "with another model" "${o[@]}" -m "$T/copy"
    same_as "${o[@]}" -m "$T/copy"
    # differences of the record
    refused "to another prompt, seed" --temp 1.1 --seed 2 -i "$T/in"
    refused "to another prompt, seed" --temp 1.2 --seed 1 -i "$T/in"
    refused "to another prompt, seed" --temp 1.1 -i "$T/in"
    refused "to another prompt, seed" "${o[@]}" --top-k 5
    refused "to another prompt, seed" "${o[@]}" --stop xyz
    refused "to another prompt, seed" "${o[@]}" -s "be brief"
    refused "to another prompt, seed" "${o[@]}" --ignore-eos
    refused "to another prompt, seed" "${o[@]}" -n 11
    same_as --temp 1.2 --seed 1 -i "$T/in"
    sed 's/list files of 3/list disks/' "$T/in" >"$T/in3"
    refused "line 3 belongs to another prompt" --temp 1.1 --seed 1 -i "$T/in3"
    same_as --temp 1.1 --seed 1 -i "$T/in3"
    # only this one was answered again
    run -0 --separate-stderr answer --redo -v --temp 1.1 --seed 1 -i "$T/in3"
    [[ $stderr == *": 1 record, 3 answered before, "* ]]
    # --redo does not touch answers to lines that the run does not read
    cp "$T/first" "$T/out"
    answer --redo --temp 1.1 --seed 1 --shard 2/2 -i "$T/in3"
    same "$T/out" "$T/first" sorted
    head -n 2 "$T/in" >"$T/in2"
    answer --redo --temp 1.1 --seed 1 -i "$T/in2"
    same "$T/out" "$T/first" sorted
    fails 2 "no effect without --output" batch --redo -i "$T/in"
}

@test "-o: the seed counts if answers are sampled" {
    printf '{"prompt":"list files"}\n{"prompt":"list disks","temperature":1}\n' >"$T/in"
    head -n 1 "$T/in" >"$T/greedy"
    answer -i "$T/greedy"
    cp "$T/out" "$T/first"
    answer --seed 3 -i "$T/greedy"
    cmp "$T/out" "$T/first"
    # without --seed a run can also be continued
    answer -i "$T/in"
    cp "$T/out" "$T/first"
    [ "$(wc -l <"$T/first")" -eq 2 ]
    answer -i "$T/in"
    cmp "$T/out" "$T/first"
    fails 2 "line 2 belongs to another prompt, seed" \
        batch --exact -n 12 -o "$T/out" --seed 3 -i "$T/in"
}

@test "-o: lines without a key and lines of repaired records" {
    printf '{"prompt":"list files"}\nnonsense\n{"prompt":"list disks"}\n' >"$T/in"
    run -1 answer --seed 1 -i "$T/in"
    jlines 'all(len(x["key"]) == 25 for x in o) and "error" in o[1]' <"$T/out"
    cp "$T/out" "$T/first"
    run -1 --separate-stderr answer --seed 1 -i "$T/in"
    [ "$stderr" = "qwick: $T/out: 1 answer of earlier runs is an error" ]
    cmp "$T/out" "$T/first"
    sed 's/nonsense/{"prompt":"list users"}/' "$T/in" >"$T/good"
    fails 2 "line 2 belongs to another prompt" batch --exact -n 12 --seed 1 -o "$T/out" -i "$T/good"
    q batch --exact -n 12 --seed 1 -o "$T/want" -i "$T/good"
    answer --seed 1 --redo -i "$T/good"
    same "$T/out" "$T/want"
    # lines of an earlier version
    sed 's/"key":"[^"]*",//' "$T/want" >"$T/out"
    cp "$T/out" "$T/first"
    fails 2 "$T/out: line 1: has no key" batch --exact -n 12 --seed 1 -o "$T/out" -i "$T/good"
    [[ $stderr == *"--redo"* ]]
    cmp "$T/out" "$T/first"
    answer --seed 1 --redo -i "$T/good"
    same "$T/out" "$T/want"
    # other programs' lines are not replaced even with --redo
    echo "my notes" >"$T/out"
    fails 2 "was not written by qwick batch" \
        batch --redo --exact -n 12 --seed 1 -o "$T/out" -i "$T/good"
    [ "$(cat "$T/out")" = "my notes" ]
}

@test "-o --retry-errors: errors are answered again, in their places" {
    printf '{"prompt":"list files"}\n{"prompt":"a","n":2,"max_tokens":0}\nnonsense\n{"prompt":"list disks"}\n' >"$T/in"
    run -1 answer --seed 1 -i "$T/in"
    jlines '[("error" in x) for x in o] == [False, True, True, False]' <"$T/out"
    cp "$T/out" "$T/first"
    # what failed fails again, and nothing else changes
    run -1 --separate-stderr answer --seed 1 --retry-errors -v -i "$T/in"
    [[ $stderr == *", 2 answered before, "* ]]
    same "$T/out" "$T/first"
    # repaired records, of several samples too
    sed 's/nonsense/{"prompt":"list users"}/; s/"max_tokens":0/"max_tokens":3/' "$T/in" >"$T/good"
    q batch --exact -n 12 --seed 1 -o "$T/want" -i "$T/good"
    cp "$T/out" "$T/first"
    answer --seed 1 --retry-errors -i "$T/good"
    same "$T/out" "$T/want"
    [ ! -e "$T/out.pending" ]
    # without an error, the file is left alone
    cp "$T/out" "$T/first"
    touch -d @1 "$T/out"
    answer --seed 1 --retry-errors -i "$T/good"
    cmp "$T/out" "$T/first"
    # errors of lines that the run does not read go, the other answers stay
    sed -n '1,3p' "$T/good" >"$T/part"
    run -1 q batch --exact -n 12 --seed 1 -o "$T/all" -i "$T/in"
    q batch --exact -n 12 --seed 1 --retry-errors -o "$T/all" -i "$T/part"
    same "$T/all" "$T/want" sorted
    # answers of another run are refused, and nothing changes
    run -1 q batch --exact -n 12 --seed 1 -o "$T/other" -i "$T/in"
    cp "$T/other" "$T/first"
    fails 2 "was written with another model" \
        batch --exact -n 12 -c 100 --seed 1 --retry-errors -o "$T/other" -i "$T/good"
    cmp "$T/other" "$T/first"
    [ ! -e "$T/other.pending" ]
    fails 2 "--retry-errors: has no effect without --output" batch --retry-errors -i "$T/in"
}

# long FILE N: write a record that takes N tokens, then short ones.
long() {
    python3 - "$@" <<'PY'
import json, sys
with open(sys.argv[1], "w") as out:
    out.write('{"prompt_ids":[1,2],"max_tokens":%s,"temperature":90,"seed":1}\n' % sys.argv[2])
    for i in range(12):
        out.write(json.dumps({"prompt": f"list files of {i}", "max_tokens": 3}) + "\n")
PY
}

# stopped SIGNAL OUT ARGS…: run on $T/in, and send the signal when later
# records are answered and the first one is not. Without OUT, write to stdout.
stopped() {
    python3 - "$QWICK" "$T" "$@" <<'PY'
import os, signal, subprocess, sys, time
qwick, t, name, out = sys.argv[1:5]
cmd = [qwick, "batch", "--seed", "1", "--exact", "--ignore-eos", "-t", "1", "-i", t + "/in"] + sys.argv[5:]
delay = 0.05
for k in range(12):
    for f in (out, out + ".pending"):
        if out and os.path.exists(f):
            os.unlink(f)
    p = subprocess.Popen(cmd + (["-o", out] if out else []), stdin=subprocess.DEVNULL,
                         stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    time.sleep(delay)
    p.send_signal(getattr(signal, name))
    got, err = p.communicate(timeout=20)
    assert p.returncode in (0, -getattr(signal, name)), (p.returncode, err)
    if p.returncode and (os.path.exists(out + ".pending") if out else b"lost" in err):
        sys.stderr.write(err.decode())
        assert got == b"", got
        sys.exit(0)
    assert p.returncode, "it has ended before"
    delay *= 1.5
sys.exit("no answer was held")
PY
}

@test "SIGINT: finished answers that are not due wait in OUT.pending" {
    small
    long "$T/in" 900
    q batch --seed 1 --exact --ignore-eos -i "$T/in" -o "$T/want"
    for s in SIGINT SIGTERM SIGHUP; do
        run -0 --separate-stderr stopped $s "$T/out"
        [ -z "$stderr" ]
        [ ! -s "$T/out" ]
        n=$(wc -l <"$T/out.pending")
        [ "$n" -gt 0 ]
        cp "$T/out.pending" "$T/held"
        run -0 --separate-stderr q batch -v --seed 1 --exact --ignore-eos -i "$T/in" -o "$T/out"
        [[ $stderr == *": $((13 - n)) record"*", $n answered before, "* ]]
        [ "$(grep -cFxf "$T/held" "$T/out")" -eq "$n" ]
        same "$T/out" "$T/want"
        [ ! -e "$T/out.pending" ]
    done
    # killed after writing the output, before removing the pending file
    cp "$T/held" "$T/out.pending"
    cp "$T/out" "$T/before"
    run -0 --separate-stderr q batch --seed 1 --exact --ignore-eos -i "$T/in" -o "$T/out"
    cmp "$T/out" "$T/before"
    [ ! -e "$T/out.pending" ]
    # killed in the middle of writing the output
    for lines in 1 2 5; do
        cp "$T/held" "$T/out.pending"
        head -n $lines "$T/before" >"$T/out"
        printf '{"line":' >>"$T/out"
        q batch --seed 1 --exact --ignore-eos -i "$T/in" -o "$T/out"
        same "$T/out" "$T/want"
        [ ! -e "$T/out.pending" ]
    done
    # with --unordered, answers are written at once
    cp "$T/held" "$T/out.pending"
    rm "$T/out"
    q batch --seed 1 --exact --ignore-eos --unordered -i "$T/in" -o "$T/out"
    same "$T/out" "$T/want" sorted
    [ ! -e "$T/out.pending" ]
    # held answers to lines that the run does not read stay
    cp "$T/held" "$T/out.pending"
    rm "$T/out"
    head -n 1 "$T/in" >"$T/one"
    q batch --seed 1 --exact --ignore-eos -i "$T/one" -o "$T/out"
    cmp "$T/out.pending" "$T/held"
    q batch --seed 1 --exact --ignore-eos -i "$T/in" -o "$T/out"
    same "$T/out" "$T/want"
    # stdout has no pending file
    run -0 --separate-stderr stopped SIGINT ""
    [[ $stderr == "qwick: warning: "*" finished answers come after one that is not, and are lost; --output would keep them" ]]
    python3 - "$QWICK" "$T/in" <<'PY'
import signal, subprocess, sys
p = subprocess.Popen([sys.argv[1], "batch", "--exact", "-t", "1", "--unordered", "-i", sys.argv[2]],
                     stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
assert p.stdout.readline().startswith(b'{"line":')
p.send_signal(signal.SIGINT)
out, err = p.communicate(timeout=20)
assert p.returncode == -signal.SIGINT and err == b"", (p.returncode, err)
PY
}

@test "OUT.pending: torn, of other options, not ours" {
    small
    long "$T/in" 600
    q batch --seed 1 --exact -i "$T/in" -o "$T/want"
    sed -n '4,7p' "$T/want" >"$T/held"
    begin() { rm -f "$T/out"; cp "$T/held" "$T/out.pending"; }
    begin
    truncate -s -30 "$T/out.pending"
    q batch --seed 1 --exact -i "$T/in" -o "$T/out"
    same "$T/out" "$T/want"
    [ ! -e "$T/out.pending" ]
    begin
    fails 2 "$T/out.pending: line 1: was written with another model" \
        batch --seed 1 --exact -c 1900 -i "$T/in" -o "$T/out"
    cmp "$T/out.pending" "$T/held"
    begin
    sed -i 's/list files of 3/list disks/' "$T/in"
    fails 2 "$T/out.pending: its answer to line 5 belongs to another prompt" \
        batch --seed 1 --exact -i "$T/in" -o "$T/out"
    same "$T/out.pending" "$T/held"
    rm -f "$T/want"
    q batch --seed 1 --exact -i "$T/in" -o "$T/want"
    q batch --redo --seed 1 --exact -i "$T/in" -o "$T/out"
    same "$T/out" "$T/want"
    [ ! -e "$T/out.pending" ]
    for bad in "my notes" '{"a":1}'; do
        begin
        echo "$bad" >"$T/out.pending"
        for redo in "" --redo; do
            fails 2 "out.pending: line 1: was not written by qwick batch" \
                batch --seed 1 --exact $redo -i "$T/in" -o "$T/out"
            [ "$(cat "$T/out.pending")" = "$bad" ]
        done
    done
    begin
    fails 2 "is the input as well" batch --seed 1 --exact -i "$T/out.pending" -o "$T/out"
    rm "$T/out.pending"
    ln -s "$T/held" "$T/out.pending"
    fails 1 "$T/out.pending: open: " batch --seed 1 --exact -i "$T/in" -o "$T/out"
}

@test "--redo: killed at any moment and continued, nothing is lost or doubled" {
    small
    many "$T/in" 40
    timed q batch --exact --seed 5 -n 12 -t 1 -i "$T/in" -o "$T/want"
    # half of the answers belong to another run
    q batch --exact --seed 5 -n 12 -i "$T/in" -o "$T/old" -c 2000
    paste -d '\n' "$T/want" "$T/old" | awk 'NR % 4 == 1 || NR % 4 == 0' >"$T/mixed"
    for seed in 1 2; do
        cp "$T/mixed" "$T/out"
        rm -f "$T/out.pending"
        killed $seed "SIGKILL SIGINT" --redo --exact --seed 5 -n 12 -t 1 -i "$T/in" -o "$T/out"
        same "$T/out" "$T/want"
        [ ! -e "$T/out.pending" ]
    done
}

@test "totals count refused records" {
    printf '{"prompt":"list files"}\nnonsense\n{"id":5}\n{"prompt":"%s","n":2}\n' \
        "$(seq 3000 | tr '\n' ' ')" >"$T/in"
    run -1 --separate-stderr q batch -v --greedy -i "$T/in" -o "$T/out"
    [[ $stderr == *"qwick: 4 records, 0 answered before, 4 answers are errors; "* ]]
    [[ $stderr == *"$T/in: 4 answers are errors"* ]]
    run -1 --separate-stderr q batch -v --greedy -i "$T/in" -o "$T/out"
    [[ $stderr == *"qwick: 0 records, 4 answered before, 0 answers are errors; "* ]]
}

# slowly FILE OUT SEED ARGS…: run batch with FILE through a pipe, in pieces at
# random times.
slowly() {
    python3 - "$QWICK" "$@" <<'PY'
import random, subprocess, sys, time
qwick, src, out, seed = sys.argv[1:5]
random.seed(int(seed))
p = subprocess.Popen([qwick, "batch"] + sys.argv[5:], stdin=subprocess.PIPE,
                     stdout=open(out, "wb"))
data = open(src, "rb").read()
while data:
    n = random.choice((1, 30, 100, 400, 3000))
    p.stdin.write(data[:n])
    p.stdin.flush()
    data = data[n:]
    time.sleep(random.choice((0, 0, 0.001, 0.01)))
p.stdin.close()
assert p.wait() == 0
PY
}

@test "with a seed, the arrival times of records change no bit" {
    small
    many "$T/in" 60
    o=(--seed 3 --temp 1.2 -n 30 --logprobs 3 --max-batch 6)
    q batch "${o[@]}" -i "$T/in" >"$T/want"
    for seed in 1 2 3; do
        slowly "$T/in" "$T/out" $seed "${o[@]}"
        same "$T/out" "$T/want"
    done
    slowly "$T/in" "$T/out" 4 "${o[@]}" --unordered
    same "$T/out" "$T/want" sorted
    # a program that waits for each answer needs --max-batch 1 or --exact
    for how in "--max-batch 1" --exact; do
        python3 - "$QWICK" $how <<'PY'
import json, subprocess, sys
p = subprocess.Popen([sys.argv[1], "batch", "--seed", "1"] + sys.argv[2:],
                     stdin=subprocess.PIPE, stdout=subprocess.PIPE)
for i in range(3):
    p.stdin.write(b'{"prompt":"list files"}\n')
    p.stdin.flush()
    assert json.loads(p.stdout.readline())["line"] == i + 1
p.stdin.close()
assert p.wait() == 0
PY
    done
}

@test "SIGINT: writes finished answers, dies by the signal, can be continued" {
    small
    many "$T/in" 120
    q batch --exact --seed 5 -n 12 -i "$T/in" -o "$T/want"
    for s in SIGINT SIGTERM SIGHUP; do
        python3 - "$QWICK" "$T/in" "$T/out" $s <<'PY'
import os, signal, subprocess, sys, time
qwick, src, out, name = sys.argv[1:]
size = os.path.getsize(out) if os.path.exists(out) else 0
p = subprocess.Popen([qwick, "batch", "--exact", "--seed", "5", "-n", "12", "-t", "1", "-i", src, "-o", out],
                     stdin=subprocess.DEVNULL, stderr=subprocess.PIPE)
while p.poll() is None and (not os.path.exists(out) or os.path.getsize(out) <= size):
    time.sleep(0.005)
p.send_signal(getattr(signal, name))
err = p.stderr.read()
p.wait(10)
assert p.returncode == -getattr(signal, name), p.returncode
assert err == b"", err
assert open(out, "rb").read().endswith(b"\n")
PY
    done
    q batch --exact --seed 5 -n 12 -i "$T/in" -o "$T/out"
    same "$T/out" "$T/want"
    # while it waits for input
    python3 - "$QWICK" <<'PY'
import signal, subprocess, sys, time
p = subprocess.Popen([sys.argv[1], "batch"], stdin=subprocess.PIPE)
time.sleep(0.5)
p.send_signal(signal.SIGINT)
p.wait(5)
assert p.returncode == -signal.SIGINT, p.returncode
PY
}

# manual: write a text of some hundred tokens to $T/doc, questions about it to
# $T/in, and other questions to $T/in2.
manual() {
    for i in $(seq 1 30); do
        echo "Line $i of the manual says how to list files in directory $i."
    done >"$T/doc"
    python3 - "$T" <<'PY'
import json, sys
for name, verb, n in ("in", "list", 7), ("in2", "delete", 5):
    with open(f"{sys.argv[1]}/{name}", "w") as out:
        for i in range(n):
            out.write(json.dumps({"id": i, "prompt": f"{verb} the files of line {i}"}) + "\n")
PY
}

# asked OPTIONS…: run with the document and --exact.
asked() {
    q batch --exact --seed 3 --temp 0.8 -n 8 -f "$T/doc" "$@"
}

# entries: print the number of entries, the number of their pages of 64 tokens,
# and whether one is damaged.
entries() {
    q cache ls --json --dir "$C" | jget 'len(o["entries"]),
        sum(e["tokens"] - e["first"] for e in o["entries"]) // 64,
        any(e["damaged"] for e in o["entries"])'
}

@test "--prefix-cache: the next run begins where records differ" {
    small
    manual
    C=$T/cache
    asked -i "$T/in" >"$T/want"
    asked -i "$T/in2" >"$T/want2"
    run -0 --separate-stderr asked -i "$T/in" --prefix-cache="$C"
    [ -z "$stderr" ]
    echo "$output" >"$T/cold"
    same "$T/cold" "$T/want"
    jlines 'o[0]["usage"]["cached_tokens"] == 0 and
        all(x["usage"]["cached_tokens"] >= 400 for x in o[1:])' <"$T/cold"
    # one entry: only the part that records share
    n=$(sed -n 2p "$T/cold" | jget 'o["usage"]["cached_tokens"] // 64')
    [ "$(entries)" = "(1, $n, False)" ]
    for _ in 1 2; do
        run -0 --separate-stderr asked -i "$T/in2" --prefix-cache="$C"
        [ -z "$stderr" ]
        echo "$output" >"$T/warm"
        same "$T/warm" "$T/want2"
        jlines 'o[0]["usage"]["cached_tokens"] == '$((n * 64))' and
            all('$((n * 64))' <= x["usage"]["cached_tokens"] <
                x["usage"]["prompt_tokens"] for x in o)' <"$T/warm"
        [ "$(entries)" = "(1, $n, False)" ]
    done
    # the last token of a prompt is always evaluated
    ids=$(seq -s, 1 128)
    echo "{\"prompt_ids\":[$ids],\"max_tokens\":1}" >"$T/one"
    q --exact --prefix-cache="$C" -n 1 --prompt-ids "$ids" >"$T/out"
    q batch --exact -i "$T/one" --prefix-cache="$C" >"$T/out"
    [ "$(jget 'o["usage"]["cached_tokens"]' <"$T/out")" = 127 ]
}

@test "--prefix-cache: a single record stores -f and -s, not its own text" {
    small
    manual
    C=$T/cache
    head -n 1 "$T/in" >"$T/one"
    tail -n 1 "$T/in2" >"$T/other"
    asked -i "$T/one" --prefix-cache="$C" >"$T/out"
    [[ $(entries) == "(1, "* ]]
    asked -i "$T/other" --prefix-cache="$C" >"$T/out"
    jlines 'o[0]["usage"]["cached_tokens"] >= 400' <"$T/out"
    q cache clear --dir "$C"
    for _ in 1 2; do
        q batch -n 1 --system-file "$T/doc" -i "$T/one" --prefix-cache="$C" >"$T/out"
    done
    jlines 'o[0]["usage"]["cached_tokens"] >= 400' <"$T/out"
    q cache clear --dir "$C"
    # a single record, samples of it, and chats
    python3 - "$T" <<'PY'
import json, sys
doc = open(sys.argv[1] + "/doc").read()
with open(sys.argv[1] + "/own", "w") as out:
    out.write(json.dumps({"prompt": doc, "n": 4, "max_tokens": 2}) + "\n")
with open(sys.argv[1] + "/chats", "w") as out:
    for i in range(4):
        chat = [{"role": "user", "content": doc}, {"role": "assistant", "content": "ls"},
                {"role": "user", "content": f"{i} files"}]
        out.write(json.dumps({"messages": chat, "max_tokens": 2}) + "\n")
PY
    q batch -i "$T/own" --prefix-cache="$C" >"$T/out"
    [ "$(entries)" = "(0, 0, False)" ]
    for system in "" "be brief"; do
        for _ in 1 2; do
            q batch ${system:+-s "$system"} -i "$T/chats" \
                --prefix-cache="$C" >"$T/out"
        done
        jlines 'all(x["usage"]["cached_tokens"] >= 400 for x in o)' <"$T/out"
        [[ $(entries) == "(1, "* ]]
        q cache clear --dir "$C"
    done
}

@test "--prefix-cache: no more entries for many records than for a few" {
    small
    manual
    C=$T/cache
    python3 - "$T/many" <<'PY'
import json, random, sys
random.seed(2)
words = "list show find files sockets users lines disks all large old".split()
with open(sys.argv[1], "w") as out:
    for i in range(60):
        text = " ".join(random.choice(words) for _ in range(150))
        out.write(json.dumps({"prompt": text, "max_tokens": 1}) + "\n")
PY
    q batch -i "$T/many" --prefix-cache="$C" >"$T/out"
    [ "$(entries)" = "(0, 0, False)" ]
    q batch -n 1 -f "$T/doc" -i "$T/in" --prefix-cache="$C" >"$T/out"
    few=$(entries)
    [[ $few == "(1, "* ]]
    q batch -f "$T/doc" -i "$T/many" --prefix-cache="$C" >"$T/out"
    jlines 'all(x["usage"]["cached_tokens"] >= 400 for x in o)' <"$T/out"
    [ "$(entries)" = "$few" ]
    # a budget too small for an entry keeps none
    q cache clear --dir "$C"
    run -0 --separate-stderr asked -i "$T/in" --prefix-cache="$C" \
        --prefix-cache-size 4K
    [[ $stderr == "qwick: warning: prefix cache: "*": not stored" ]]
    [ "${#stderr_lines[@]}" -eq 1 ]
    [ "$(entries)" = "(0, 0, False)" ]
}

@test "--prefix-cache: damaged entries, and directories that cannot be used" {
    small
    manual
    C=$T/cache
    asked -i "$T/in" >"$T/want"
    asked -i "$T/in" --prefix-cache="$C" >"$T/out"
    good=$(entries)
    f=$(find "$C" -name '*.kv')
    cp "$f" "$T/good"
    for at in 0 5000 -1; do
        q cache clear --dir "$C"
        mkdir -p "${f%/*}"
        python3 - "$T/good" "$f" "$at" <<'PY'
import sys
b = bytearray(open(sys.argv[1], "rb").read())
b[int(sys.argv[3])] ^= 0x40
open(sys.argv[2], "wb").write(b)
PY
        run -0 --separate-stderr asked -i "$T/in" --prefix-cache="$C"
        echo "$output" >"$T/out"
        same "$T/out" "$T/want"
        [ "${#stderr_lines[@]}" -eq 1 ]
        [[ $stderr == "qwick: warning: prefix cache: $C/"*"; ignored" ]]
        # and it was replaced
        run -0 --separate-stderr asked -i "$T/in" --prefix-cache="$C"
        [ -z "$stderr" ]
        [ "$(entries)" = "$good" ]
    done
    touch "$T/file"
    for dir in "$T/file" /proc/none; do
        run -0 --separate-stderr asked -i "$T/in" --prefix-cache="$dir"
        echo "$output" >"$T/out"
        same "$T/out" "$T/want"
        [ "${#stderr_lines[@]}" -eq 1 ]
        [[ $stderr == "qwick: warning: prefix cache: $dir"* ]]
        run -0 --separate-stderr asked -q -i "$T/in" --prefix-cache="$dir"
        [ -z "$stderr" ]
    done
}

@test "--prefix-cache: several runs at once share a directory" {
    small
    manual
    C=$T/cache
    asked -i "$T/in" >"$T/want"
    for _ in 1 2; do
        for i in 1 2 3; do
            asked -t 1 -i "$T/in" --prefix-cache="$C" \
                >"$T/out.$i" 2>"$T/err.$i" &
        done
        wait
        for i in 1 2 3; do
            [ ! -s "$T/err.$i" ]
            same "$T/out.$i" "$T/want"
        done
        [[ $(entries) == "(1, "*", False)" ]]
        [ -z "$(find "$C" -name '*.tmp-*')" ]
    done
    jlines 'o[0]["usage"]["cached_tokens"] >= 400' <"$T/out.1"
    # also while another process keeps emptying it
    for i in 1 2 3; do
        asked -t 1 -i "$T/in" --prefix-cache="$C" >"$T/out.$i" 2>/dev/null &
    done
    while [ -n "$(jobs -r)" ]; do q cache clear --dir "$C"; done
    for i in 1 2 3; do same "$T/out.$i" "$T/want"; done
}

@test "--prefix-cache: a killed run can be continued with it" {
    manual
    C=$T/cache
    many "$T/all" 40
    grep -v messages "$T/all" >"$T/in"
    q batch --exact --seed 5 -n 12 -f "$T/doc" -i "$T/in" -o "$T/want"
    python3 - "$QWICK" "$T" "$C" <<'PY'
import os, subprocess, sys, time
qwick, t, cache = sys.argv[1:]
out = t + "/out"
cmd = [qwick, "batch", "--exact", "--seed", "5", "-n", "12", "-t", "1", "-f", t + "/doc", "-i", t + "/in",
       "-o", out, "--prefix-cache=" + cache]
def lines():
    return open(out, "rb").read().count(b"\n") if os.path.exists(out) else 0
for k in range(3):
    before = lines()
    p = subprocess.Popen(cmd, stdin=subprocess.DEVNULL)
    while p.poll() is None and lines() == before:
        time.sleep(0.002)
    p.kill()
    p.wait()
p = subprocess.run(cmd, stdin=subprocess.DEVNULL, capture_output=True)
assert p.returncode == 0 and p.stderr == b"", p
PY
    same "$T/out" "$T/want"
    [[ $(entries) == *", False)" ]]
}

@test "logit_bias: changes the answer and its key; what is wrong is an error of its record" {
    p='"prompt":"list files","think":false,"temperature":0,"max_tokens":20'
    echo "{$p}" | "$QWICK" batch --exact >"$T/plain"
    id=$(jget 'o["tokens"][0]' <"$T/plain")
    {
        echo "{$p}"
        echo "{$p,\"logit_bias\":{\"$id\":-100}}"
        echo "{$p,\"logit_bias\":{\"$id\":100}}"
        echo "{$p,\"logit_bias\":{}}"
    } | "$QWICK" batch --exact >"$T/out"
    jlines 'o[0]["tokens"] == o[3]["tokens"] and o[0]["key"] == o[3]["key"]
        and len({x["key"] for x in o}) == 3
        and o[0]["tokens"][0] not in o[1]["tokens"] and len(o[1]["tokens"]) > 1
        and set(o[2]["tokens"]) == {o[0]["tokens"][0]}' <"$T/out"
    # each is VALUE | MESSAGE
    while IFS='|' read -r value message; do
        echo "{$p,\"logit_bias\":$value}" >>"$T/bad"
        echo "record: $message" >>"$T/want"
    done <<'END'
{"6144":1}|logit_bias: "6144" is not a token id from 0 to 6143
{"-1":1}|logit_bias: "-1" is not a token id from 0 to 6143
{"":1}|logit_bias: "" is not a token id from 0 to 6143
{"1":100.5}|logit_bias: 1: must be a number from -100 to 100
{"1":"2"}|logit_bias: 1: must be a number from -100 to 100
[1]|logit_bias: must be an object, is an array
END
    run -1 --separate-stderr q batch -i "$T/bad"
    equal "$(python3 -c 'import json, sys
for line in sys.stdin:
    print(json.loads(line)["error"])' <<<"$output")" "$(cat "$T/want")"
}

@test "--logprobs: the same as generate's" {
    echo '{"prompt":"list files"}' | "$QWICK" batch --exact --logprobs 3 >"$T/b"
    q --json --exact --logprobs 3 "list files" >"$T/g"
    equal "$(jget 'o["logprobs"]' <"$T/b")" "$(jget 'o["logprobs"]' <"$T/g")"
}

@test "conflicting options" {
    fails 2 "takes no arguments" batch "a prompt"
    fails 2 "no effect with --greedy" batch --greedy --top-k 3
    fails 2 "no effect with --raw" batch --raw -s x
    fails 2 "--debounce: has no effect with --seed" batch --debounce 5 --seed 1 -i "$GOLD"
    fails 2 "standard input has the records" batch -f -
    fails 2 "" batch --max-batch 0
    fails 2 "no effect without --prefix-cache" batch --prefix-cache-size 1G
    fails 2 "the value is empty" batch --prefix-cache=
    run -2 --separate-stderr closed batch
    [[ $stderr == *"no input"* ]]
    fails 3 "" batch -m "$T/nothing" -i "$GOLD"
    fails 2 "no chat template" batch -m "$MODELS/tied-bf16" -s x -i "$GOLD"
    want=$(q -m "$MODELS/tied-bf16" --exact --greedy --json --prompt-ids 1,2,3 -n 3 |
        jget 'o["tokens"]')
    [ "$(echo '{"prompt_ids":[1,2,3],"max_tokens":3}' |
        "$QWICK" batch -m "$MODELS/tied-bf16" --exact --greedy |
        jget 'o["tokens"]')" = "$want" ]
}

@test "--line-offset: numbers and seeds of the whole input" {
    whole_run
    for first in 0 20 40; do
        sed -n "$((first + 1)),$((first + 20))p" "$T/in" >"$T/part"
        q batch --exact --seed 5 -n 12 --line-offset $first -i "$T/part" >>"$T/parts"
    done
    same "$T/all" "$T/parts"
    printf '\nnonsense\n' >"$T/part"
    run -1 --separate-stderr q batch --line-offset 1000 -i "$T/part"
    echo "$output" | jlines 'len(o) == 1 and o[0]["line"] == 1002'
    printf '{"prompt":"list files","n":1,"odd":1}\n' >"$T/part"
    run -0 --separate-stderr q batch --line-offset 1000 -i "$T/part"
    [[ $stderr == *"line 1001: "* ]]
}

# The documented commands, with --exact added and this machine as the host.
@test "GNU parallel: the documented commands give the result of a single run" {
    small
    command -v parallel >/dev/null || skip "no parallel"
    many "$T/prompts.jsonl" 120
    cp "$T/prompts.jsonl" "$T/in.jsonl"
    q batch --exact --seed 1 -n 12 -i "$T/in.jsonl" >"$T/want"
    mkdir "$T/bin"
    printf '#!/bin/sh\nexec "%s" "$@" --exact -n 12 -t 1\n' "$QWICK" >"$T/bin/qwick"
    printf '#!/bin/sh\nexec "%s" --will-cite -j2 "$@"\n' \
        "$(command -v parallel)" >"$T/bin/parallel"
    chmod +x "$T/bin/"*
    python3 - "$T" <<'PY'
import re, sys
t = sys.argv[1]
scripting = open("docs/scripting.md").read()
guide = re.search(r"^parallel (?:.*\\\n)*.*$", scripting, re.M).group()
shards = re.search(r"^seq 8 \| parallel (?:.*\\\n)*.*$", scripting, re.M).group()
merge = re.search(r"^sort -s (?:.*\n)*?(?=```)", scripting, re.M).group()
man = re.search(r"^parallel (?:.*\\e\n)*.*$", open("man/qwick-batch.1").read(), re.M).group()
for a, b in (r"\-", "-"), (r"\(aq", "'"), (r"\e", "\\"):
    man = man.replace(a, b)
for name, text in ("guide", guide), ("shards", shards), ("man", man):
    assert "-j 1 " in text and "--sshlogin" in text, text
    text = re.sub(r"--sshlogin \S+ |-j 1 ", "", text)
    if name == "shards":
        text += "\nmv answers.jsonl guide.jsonl\n" + merge
    open(t + "/" + name + ".sh", "w").write(text + "\n")
PY
    for doc in guide shards man; do
        (cd "$T" && PATH=$T/bin:$PATH bash -e "$T/$doc.sh")
    done
    same "$T/guide.jsonl" "$T/want"
    same "$T/answers.jsonl" "$T/want"
    same "$T/out.jsonl" "$T/want"
}
