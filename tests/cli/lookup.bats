#!/usr/bin/env bats
# --lookup: the same answer with fewer passes.
load helpers

# A prompt after which the built-in model soon repeats itself.
loop() {
    q --raw --exact -n 100 --ignore-eos --seed 3 "$@" Hello
}

@test "--exact: the same bytes with and without" {
    # a penalty below 1 or below 0 favours repetition
    for how in --greedy "--temp 0.5 --top-k 20" \
        "--temp 0.7 --repeat-penalty 0.8" "--greedy --frequency-penalty -0.3" \
        "--greedy --loop-guard 30" "--greedy -c 70" "--greedy -n 37" \
        "--greedy --stop severalcom" "--greedy --stop omse" \
        "--greedy --prefill-chunk 4" \
        "--greedy --prefill-chunk 1"; do
        # shellcheck disable=SC2086 # words of $how
        loop --lookup 0 $how >"$T/off"
        for n in 1 4 16 64; do
            # shellcheck disable=SC2086
            loop --lookup $n $how >"$T/on"
            cmp "$T/off" "$T/on" || { echo "$how, $n"; return 1; }
        done
    done
}

@test "--exact: the same events, log-probabilities and thinking" {
    loop --greedy --jsonl --logprobs 3 --lookup 0 | sed '$d' >"$T/off"
    loop --greedy --jsonl --logprobs 3 --lookup 16 >"$T/all"
    sed '$d' "$T/all" >"$T/on"
    cmp "$T/off" "$T/on"
    [ "$(wc -l <"$T/on")" -eq 100 ]
    tail -n 1 "$T/all" | jlines 'o[0]["lookup"]["accepted"] > 20'
    for n in 0 16; do
        q --exact --greedy --show-thinking --think on --lookup $n \
            --ignore-eos -n 150 "what is grep?" >"$T/think$n"
    done
    cmp "$T/think0" "$T/think16"
}

@test "the JSON has its counts when lookup is on" {
    loop --greedy --json --lookup 0 >"$T/off"
    loop --greedy --json --lookup 8 >"$T/on"
    python3 - "$T/off" "$T/on" <<'PY'
import json, sys
off, on = (json.load(open(f)) for f in sys.argv[1:])
assert "lookup" not in off
assert list(on) == ["text", "thinking", "prompt_ids", "tokens",
                    "finish_reason", "usage", "seed", "model", "lookup",
                    "timing"], list(on)
assert on["tokens"] == off["tokens"] and on["usage"] == off["usage"]
l = on["lookup"]
assert list(l) == ["drafted", "accepted", "passes"]
assert 0 < l["passes"] <= l["drafted"] <= 8 * l["passes"], l
assert 20 < l["accepted"] <= l["drafted"], l
PY
    q --json --lookup 8 -n 1 hi | jget \
        '[0][o["lookup"] != {"drafted": 0, "accepted": 0, "passes": 0}]'
}

@test "--profile-timing: a time for each token, and a line" {
    hurried loop --greedy --profile-timing --json --lookup 16 >"$T/o"
    python3 - "$T/o" <<'PY'
import json, sys
o = json.load(open(sys.argv[1]))
t, l = o["timing"], o["lookup"]
ms = t["per_token_ms"]
assert len(ms) == len(o["tokens"]) - 1 == 99
# to the microsecond each
assert sum(ms) <= t["total_ms"] - t["prefill_ms"] + 0.1
# all tokens of a pass have equal times
assert 1 + sum(a != b for a, b in zip(ms, ms[1:])) <= 99 - l["accepted"]
s = t["summary"]
assert abs(s["tokens_per_pass"] - 99 / (99 - l["accepted"])) < 1e-6
assert s["tokens_per_pass"] > 1.2
PY
    hurried loop --greedy --profile-timing --lookup 16 2>"$T/err" >"$T/out"
    grep -Eq '^lookup +[0-9.]+ tokens a pass, [0-9]+ of [0-9]+ guesses kept$' \
        "$T/err"
    hurried loop --greedy --profile-timing --json --lookup 0 | jget \
        '[0]["tokens_per_pass" in o["timing"]["summary"]]'
    hurried loop --greedy --profile-timing --lookup 0 2>"$T/err" >"$T/out"
    run -1 grep lookup "$T/err"
}

@test "--exact: saved sessions and the prefix cache do not change" {
    for n in 0 16; do
        mkdir "$T/cache$n"
        loop --greedy --lookup $n --save-session "$T/s$n" >"$T/a$n"
        loop --greedy --lookup $n --session "$T/s$n" \
            --save-session "$T/t$n" >"$T/b$n"
        # a full context: neither has the last token
        loop --greedy -q -c 90 --lookup $n --save-session "$T/u$n" >"$T/c$n"
        head -c 600 man/qwick.1 |
            "$QWICK" --exact --greedy --raw -n 60 --ignore-eos --lookup $n \
                --prefix-cache="$T/cache$n" >"$T/d$n"
        (cd "$T/cache$n" && find . -type f | sort | xargs cat) >"$T/e$n"
    done
    for x in a b c d e s t u; do
        [ -s "$T/${x}0" ]
        cmp "$T/${x}0" "$T/${x}16"
    done
}

@test "an interrupted answer ends at a token" {
    loop --json --greedy -n 400 --lookup 0 >"$T/off"
    python3 - "$QWICK" "$T/off" <<'PY'
import json, os, signal, subprocess, sys
want = json.load(open(sys.argv[2]))["tokens"]
signal.signal(signal.SIGINT, signal.default_int_handler)
p = subprocess.Popen([sys.argv[1]] + "--raw --exact --ignore-eos --greedy "
                     "--jsonl -n 20000 --lookup 16 Hello".split(),
                     stdin=subprocess.DEVNULL, stdout=subprocess.PIPE)
data = os.read(p.stdout.fileno(), 1)
p.send_signal(signal.SIGINT)
data += p.stdout.read()
assert p.wait(20) == -signal.SIGINT, p.returncode
ev = [json.loads(l) for l in data.decode().split("\n")[:-1]]
done = ev[-1]
assert done["event"] == "done" and done["finish_reason"] == "interrupted"
got = [e["id"] for e in ev[:-1]]
assert done["tokens"] == got and got
assert got[:400] == want[:len(got)]
PY
}

@test "numbers out of range, verbs without the option" {
    fails 2 "0..64" --lookup 65 hi
    fails 2 "0..64" --lookup -1 hi
    fails 2 "0..64" --lookup many hi
    fails 2 "0..64" --lookup "" hi
    for v in batch choose score bench; do
        fails 2 "unknown option" $v --lookup 4
    done
}
