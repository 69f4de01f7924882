#!/usr/bin/env bats
# batch --draft: the same answers with fewer passes of the model.
load helpers

setup_file() {
    draft_models
}

setup() {
    common_setup
    cat >"$T/in" <<'IN'
{"id":1,"prompt":"list large files"}
{"id":2,"prompt":"what is rsync?","temperature":0}
{"id":3,"prompt":"say hello","temperature":1.2,"top_p":0.9,"n":3}
{"id":4,"prompt":"a date","regex":"[0-9]{4}(-[0-9]{2}){2}"}
{"id":5,"prompt":"pwd","max_tokens":1}
{"id":6,"prompt":"show disk usage","stop":["e"],"seed":7}
{"id":7,"messages":[{"role":"user","content":"count lines"}],"logprobs":2}
{"id":8,"prompt_ids":[5,6,7],"max_tokens":20,"repeat_penalty":1.3}
{"id":9,"nothing":1}
IN
}

# slow OPTIONS…: answer the records. One of them is bad.
slow() {
    status=0
    "$QWICK" batch -q -m "$SLOW" --seed 3 -i "$T/in" "$@" 2>"$T/err" ||
        status=$?
    [ "$status" = 1 ] || { cat "$T/err"; return 1; }
}

# same A B [LEAST]: compare answers, without times and cache hits. Those of B
# have counts of guesses, and the sum of accepted ones is at least LEAST.
same() {
    python3 - "$@" <<'PY'
import json, sys
def load(name):
    rows = [json.loads(line) for line in open(name)]
    for o in rows:
        o.pop("timing", None)
        o.get("usage", {}).pop("cached_tokens", None)
    return rows
a, b = load(sys.argv[1]), load(sys.argv[2])
assert len(a) == len(b) == 11
accepted = 0
for x, y in zip(a, b):
    d = y.pop("draft", None)
    assert "draft" not in x and (d is None) == ("error" in y), (x, y)
    assert x == y, (x, y)
    if d:
        assert list(d) == ["drafted", "accepted", "passes"]
        assert d["accepted"] <= d["drafted"] and d["passes"] <= d["drafted"]
        accepted += d["accepted"]
assert accepted >= int(sys.argv[3]), accepted
PY
}

@test "--exact: the same answers with and without, of any number at once" {
    slow --exact >"$T/off"
    slow --exact --draft "$FEW" --max-batch 1 >"$T/on"
    same "$T/off" "$T/on" 60
    for n in 2 16; do
        slow --exact --draft "$FEW" --max-batch $n -t 2 >"$T/on"
        same "$T/off" "$T/on" 0
    done
    slow --exact --draft "$FEW" --max-batch 1 --prefill-chunk 4 >"$T/on"
    same "$T/off" "$T/on" 30
}

@test "alone in a pass, a record is answered as by generate" {
    q -m "$SLOW" --temp 1 --seed 5 --draft "$FEW" --json "say hello" >"$T/a"
    echo '{"prompt":"say hello","seed":5}' |
        "$QWICK" batch -m "$SLOW" --temp 1 --draft "$FEW" >"$T/b"
    python3 - "$T/a" "$T/b" <<'PY'
import json, sys
a, b = (json.load(open(f)) for f in sys.argv[1:])
for k in "text", "tokens", "seed", "draft", "finish_reason":
    assert a[k] == b[k], k
assert a["draft"]["drafted"] > 0
PY
}

@test "sampled: the same command gives the same answers" {
    slow --temp 1 --draft "$FEW" --max-batch 3 >"$T/a"
    for t in 1 2; do
        slow --temp 1 -t $t --draft "$FEW" --max-batch 3 >"$T/b"
        python3 - "$T/a" "$T/b" <<'PY'
import json, sys
a, b = ([json.loads(x) for x in open(f)] for f in sys.argv[1:])
for x in a + b:
    x.pop("timing", None)
assert a == b
PY
    done
}

@test "runs that go on with a draft model, or without" {
    head -n 2 "$T/in" >"$T/two"
    run_two() {
        "$QWICK" batch -q -m "$SLOW" -i "$T/two" -o "$T/out" "$@"
    }
    # greedy answers have the same keys, and so have those of --exact
    for how in "--greedy" "--exact --temp 1 --seed 1"; do
        rm -f "$T/out"
        # shellcheck disable=SC2086 # words of $how
        run_two $how
        cp "$T/out" "$T/before"
        # shellcheck disable=SC2086
        run_two $how --draft "$FEW"
        cmp "$T/before" "$T/out"
    done
    # other sampled answers have not
    sed -i 2d "$T/two"
    rm "$T/out"
    run_two --temp 1 --seed 1
    fails 2 "other options" batch -q -m "$SLOW" -i "$T/two" -o "$T/out" --temp 1 --seed 1 \
        --draft "$FEW"
    run_two --temp 1 --seed 1 --draft "$FEW" --redo
    grep -q '"draft":{' "$T/out"
    [ "$(wc -l <"$T/out")" = 1 ]
}

@test "draft models that do not fit" {
    fails 3 "missing" batch --draft "$T/missing" -i "$T/in"
    [ "${#stderr_lines[@]}" = 1 ]
    fails 3 "it has no tokenizer" batch --draft tests/golden/models/yarn \
        -i "$T/in"
    [ "${#stderr_lines[@]}" = 1 ]
    fails 2 "unknown option" batch --lookup 3 -i "$T/in"
}

@test "other forms, and the config file" {
    printf 'list files\n\nsay hello\n' >"$T/lines"
    q batch --lines --text --exact --greedy -m "$SLOW" -i "$T/lines" >"$T/off"
    mkdir -p "$T/config/qwick"
    printf '[batch]\ndraft = %s\n' "$FEW" >"$T/config/qwick/config"
    XDG_CONFIG_HOME="$T/config" q batch --lines --text --exact --greedy \
        -m "$SLOW" --max-batch 1 -i "$T/lines" >"$T/on"
    cmp "$T/off" "$T/on"
    [ "$(wc -l <"$T/on")" = 3 ]
    XDG_CONFIG_HOME="$T/config" q --show-config batch | grep -q "^draft  *$FEW "
    XDG_CONFIG_HOME="$T/config" q batch -m "$SLOW" -q --lines -i "$T/lines" |
        grep -q '"draft":{'
}
