#!/usr/bin/env bats
# --draft: the same answers with fewer passes of the model.
load helpers

setup_file() {
    draft_models
}

slow() {
    q -m "$SLOW" --seed 3 "$@"
}

@test "--exact: the same bytes with and without" {
    for how in "--greedy" "--temp 1" "--temp 0.8 --top-k 5 --lookup 8" \
        "--temp 1.2 --top-p 0.9 --repeat-penalty 1.3" \
        "--greedy --regex [a-z]{3,9}(.[a-z]{2,4}){2}" "--greedy -n 7" \
        "--greedy --stop file" "--greedy --prefill-chunk 3"; do
        # shellcheck disable=SC2086 # words of $how
        slow --exact $how "list large files" >"$T/off"
        # shellcheck disable=SC2086
        slow --exact $how --draft "$FEW" "list large files" >"$T/on"
        cmp "$T/off" "$T/on" || { echo "$how"; return 1; }
        [ -s "$T/off" ]
    done
}

@test "--exact: the same bytes by the rules of generation_config.json" {
    mkdir "$T/s"
    ln -s "$(realpath "$SLOW")"/* "$T/s"
    rm "$T/s/generation_config.json"
    echo '{"eos_token_id": [6137, 6135], "repetition_penalty": 1.2, "min_new_tokens": 15,
"suppress_tokens": [529], "begin_suppress_tokens": [6142]}' >"$T/s/generation_config.json"
    for how in --greedy "--temp 1"; do
        for draft in "" "--draft models/demo" "--draft $FEW --lookup 4"; do
            # shellcheck disable=SC2086 # words of $how
            q -m "$T/s" --seed 3 --exact $how $draft -n 40 --json "list files" >"$T/json"
            jget 'o["tokens"]' <"$T/json" >"$T/on"
            [ -n "$draft" ] || cp "$T/on" "$T/off"
            cmp "$T/off" "$T/on"
        done
        jget 'len(o["tokens"]) > 15 and 529 not in o["tokens"] and o["tokens"][0] != 6142' \
            <"$T/json" | grep -qx True
        echo '{"prompt":"list files"}' >"$T/in"
        # shellcheck disable=SC2086
        q batch -m "$T/s" --seed 3 --exact $how -n 40 -i "$T/in" | jlines '[print(o[0]["tokens"])]' >"$T/one"
        # shellcheck disable=SC2086
        q batch -m "$T/s" --seed 3 --exact $how --draft models/demo -n 40 -i "$T/in" |
            jlines '[print(o[0]["tokens"])]' >"$T/two"
        cmp "$T/one" "$T/two"
    done
}

@test "greedy: the same answer in fewer passes, and the JSON has its counts" {
    for draft in "$FEW" models/demo; do
        slow --greedy --json "what is rsync?" >"$T/off"
        slow --greedy --json --draft "$draft" "what is rsync?" >"$T/on"
        python3 - "$T/off" "$T/on" <<'PY'
import json, sys
off, on = (json.load(open(f)) for f in sys.argv[1:])
assert "draft" not in off
keys = list(off)
keys.insert(keys.index("timing"), "draft")
assert list(on) == keys, list(on)
assert on["tokens"] == off["tokens"] and on["text"] == off["text"]
d = on["draft"]
assert list(d) == ["drafted", "accepted", "passes"]
assert 0 < d["passes"] < 8, d
assert len(on["tokens"]) / 2 < d["accepted"] <= d["drafted"], d
PY
    done
}

@test "sampled: the same seed gives the same answer, with any threads" {
    slow --temp 1 --draft "$FEW" "say hello" >"$T/a"
    for t in 1 2; do
        slow --temp 1 -t $t --draft "$FEW" "say hello" >"$T/b"
        cmp "$T/a" "$T/b"
    done
    [ -s "$T/a" ]
}

@test "lookup and draft share the work" {
    slow --raw --exact --greedy --ignore-eos -n 100 --json Hello >"$T/off"
    slow --raw --exact --greedy --ignore-eos -n 100 --json --draft "$FEW" \
        --lookup 16 Hello >"$T/on"
    python3 - "$T/off" "$T/on" <<'PY'
import json, sys
off, on = (json.load(open(f)) for f in sys.argv[1:])
assert on["tokens"] == off["tokens"]
l, d = on["lookup"], on["draft"]
assert l["accepted"] > 5 and d["accepted"] > 5, (l, d)
assert l["accepted"] + d["accepted"] < 100
PY
}

@test "--profile-timing shows the draft model's time" {
    hurried slow --greedy --profile-timing --json --draft "$FEW" hi >"$T/o"
    python3 - "$T/o" <<'PY'
import json, sys
t = json.load(open(sys.argv[1]))["timing"]
s = t["summary"]
assert 0 < s["draft_ms"] < t["total_ms"], t
assert s["tokens_per_pass"] >= 1
PY
    hurried slow --greedy --profile-timing --draft "$FEW" "list files" 2>"$T/err"
    grep -Eq '^draft +[0-9.]+ tokens a pass, [0-9]+ of [0-9]+ guesses kept$' \
        "$T/err"
    grep -Eq "^draft's time +[0-9.]+ ms$" "$T/err"
    hurried slow --greedy --profile-timing "list files" 2>"$T/err"
    run -1 grep draft "$T/err"
}

@test "sessions and later answers are the same" {
    for d in "" "--draft $FEW"; do
        # shellcheck disable=SC2086 # words of $d
        slow --exact --greedy $d --save-session "$T/s" "list files" >"$T/a${d:+x}"
        # shellcheck disable=SC2086
        slow --exact --greedy $d --session "$T/s" "and hidden ones" \
            >"$T/b${d:+x}"
        rm "$T/s"
    done
    cmp "$T/a" "$T/ax"
    cmp "$T/b" "$T/bx"
}

@test "draft models that do not fit" {
    fails 3 "missing" --draft "$T/missing" hi
    fails 2 "--draft" --draft
    # another tokenizer
    copy_of models/demo other
    json_edit "$T/other/tokenizer.json" 'v = o["model"]["vocab"]
a, b = list(v)[2000:2002]
v[a], v[b] = v[b], v[a]'
    fails 3 "tokenizers differ in token" --draft "$T/other" hi
    fails 3 "it has no tokenizer" --draft tests/golden/models/yarn hi
    q --draft models/demo -m models/demo --greedy hi 2>"$T/err" >"$T/out"
    grep -q "is the model itself" "$T/err"
    for v in choose score bench; do
        fails 2 "unknown option" $v --draft x
    done
}
