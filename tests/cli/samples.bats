#!/usr/bin/env bats
# --samples: several answers to one prompt, and -0.
load helpers

setup() {
    common_setup
    SAMPLED=(--temp 4 --seed 7)
}

@test "sample i is the answer to its own seed, and sample 0 has the seed of --seed" {
    q --exact "${SAMPLED[@]}" --samples 5 -n 30 --json --logprobs 2 -q \
        "list files" >"$T/all"
    jlines '[x["sample"] for x in o] == [0, 1, 2, 3, 4] and o[0]["seed"] == 7 and
        len({x["seed"] for x in o}) == 5 and len({x["text"] for x in o}) > 3' \
        <"$T/all"
    # the seeds of batch
    echo '{"prompt":"list files","n":5,"seed":7}' |
        "$QWICK" batch -q --exact --temp 4 -n 30 --logprobs 2 >"$T/batch"
    for s in $(python3 -c 'import json, sys
for l in sys.stdin: print(json.loads(l)["seed"])' <"$T/all"); do
        q --exact --temp 4 --seed "$s" -n 30 --json --logprobs 2 -q "list files"
    done >"$T/single"
    python3 - "$T/all" "$T/single" "$T/batch" <<'PY'
import json, sys
rows = [[json.loads(l) for l in open(f)] for f in sys.argv[1:]]
assert [len(r) for r in rows] == [5, 5, 5]
for all_of in zip(*rows):
    for key in "text", "tokens", "finish_reason", "seed", "thinking", "logprobs":
        a, b, c = (x[key] for x in all_of)
        assert a == b == c, (key, a, b, c)
PY
    # as text, in order
    q --exact "${SAMPLED[@]}" --samples 5 -n 30 -q -0 "list files" >"$T/text"
    python3 - "$T/all" "$T/text" <<'PY'
import json, sys
texts = open(sys.argv[2], "rb").read().decode().split("\0")
assert texts.pop() == ""
assert texts == [json.loads(l)["text"] for l in open(sys.argv[1])], texts
PY
}

@test "the prompt is evaluated once, and samples share passes" {
    # more samples than run at once, which all end in the same pass
    run -0 --separate-stderr q -v --exact --think off "${SAMPLED[@]}" -n 4 \
        --samples 40 --ignore-eos --json \
        "list all files of this directory and their sizes, the largest first"
    printf '%s\n' "${lines[@]}" | jlines 'len(o) == 40 and
        all(len(x["tokens"]) == 4 for x in o) and
        all(x["usage"]["cached_tokens"] == x["usage"]["prompt_tokens"] - 1
            for x in o[1:])'
    [[ $stderr =~ "40 answers: 160 tokens in "[^,]*,\ ([0-9]+)\ evaluated,\ ([0-9]+)\ shared,\ ([0-9]+)\ passes ]]
    # prompt tokens, then one row for each token but the last of each sample
    prompt=$(jget 'o["usage"]["prompt_tokens"]' <<<"${lines[0]}")
    [ "${BASH_REMATCH[1]}" -le $((prompt + 160)) ]
    [ "${BASH_REMATCH[3]}" -le 20 ]
}

@test "-0 ends each text with NUL, also an empty one" {
    q -0 "list all listening tcp ports" >"$T/out"
    cmp "$T/out" <(printf 'ss -ltn\0')
    run -0 bash -c "'$QWICK' -q -0 --stop s 'list all listening tcp ports' </dev/null | od -An -c"
    [ "${output// /}" = '\0' ]
    fails 2 "--null: has no effect with --json" -0 --json hi
    fails 2 "cannot be combined with" -0 --no-newline hi
    # nothing at all on an error
    fails 4 "do not fit the context" -0 -c 8 "list all listening tcp ports"
}

@test "text: one answer after the other, each with a newline" {
    q "${SAMPLED[@]}" --temp 1 --samples 3 --choices 'a,b,c' x >"$T/out"
    [ "$(wc -l <"$T/out")" -eq 3 ]
    [ "$(grep -cx '[abc]' "$T/out")" -eq 3 ]
    # one sample is an answer as without the option
    q --json --samples 1 --profile-timing "list files" | jget '[0]["sample" in o]'
}

@test "--jsonl: events name their sample" {
    q --exact "${SAMPLED[@]}" --samples 3 -n 12 --jsonl -q "list files" >"$T/events"
    q --exact "${SAMPLED[@]}" --samples 3 -n 12 --json -q "list files" >"$T/all"
    python3 - "$T/events" "$T/all" <<'PY'
import json, sys
events, all_of = ([json.loads(l) for l in open(f)] for f in sys.argv[1:])
for x in all_of:
    own = [e for e in events if e["sample"] == x["sample"]]
    assert [e["event"] for e in own] == ["token"] * len(x["tokens"]) + ["done"]
    assert [e["id"] for e in own[:-1]] == x["tokens"]
    assert "".join(e["text"] for e in own[:-1]) == x["text"] == own[-1]["text"]
# they run together
assert {e["sample"] for e in events[:6]} == {0, 1, 2}, events[:6]
PY
}

@test "endings: one message for each sample, the status of the worst" {
    run -6 --separate-stderr q "${SAMPLED[@]}" --samples 2 -n 3 --require-answer \
        --think off --ignore-eos hi
    [ "$stderr" = "qwick: sample 0: the answer is cut: -n 3 is reached
qwick: sample 1: the answer is cut: -n 3 is reached" ]
    run -0 --separate-stderr q "${SAMPLED[@]}" --samples 2 -n 3 --think off \
        --ignore-eos hi
    [ -z "$stderr" ]
    run -0 --separate-stderr q "${SAMPLED[@]}" --samples 2 -c 24 --json \
        --ignore-eos hi
    [ "${#stderr_lines[@]}" -eq 2 ]
    [[ $stderr == "qwick: warning: sample 0: the answer is cut: the context of 24 tokens is full"* ]]
    # constraints, code blocks, tools
    run -6 --separate-stderr q "${SAMPLED[@]}" --samples 2 --think off \
        --regex '[ab]{50,}' -n 5 x
    [[ $stderr == *"sample 1: the answer is cut: -n 5 is reached" ]]
    run -6 --separate-stderr q --temp 0.1 --samples 2 -x "list files"
    [ "$stderr" = "qwick: sample 0: the answer has no code block
qwick: sample 1: the answer has no code block" ]
    [ -z "$output" ]
    local x=(--exact --temp 0.1 -x --prefill $'```sh\n' "list files")
    q "${x[@]}" --samples 2 --seed 1 >"$T/both"
    q "${x[@]}" --seed 1 >"$T/one"
    cat "$T/one" "$T/one" | cmp - "$T/both"
}

@test "options that make no sense with samples are refused" {
    fails 2 "--samples: has no effect with --greedy" --samples 2 --greedy hi
    fails 2 "--samples: has no effect with --temp 0" --samples 2 --temp 0 hi
    fails 2 "--keep: has no effect with --samples" --keep --samples 2 hi
    fails 2 "--continue: has no effect with --samples" -C --samples 2 hi
    fails 2 "--samples: has no effect, because the model's defaults are greedy; --temp turns sampling on" \
        --samples 2 hi
    for o in "--session s" "--save-session s" "--lookup 4" "--draft m" "--think-file s" \
        --profile-timing "--profile-file s" --no-newline; do
        fails 2 "cannot be combined with ${o% *}" --samples 2 --temp 1 $o hi
    done
    for n in 0 -1 1001 1.5 x ""; do
        fails 2 "--samples" --samples "$n" hi
    done
}

@test "the prefix cache gets the prompt of the samples" {
    long=$(seq 200 | tr '\n' ' ')
    q -q --exact --temp 1 --seed 1 --samples 3 -n 4 --json --cache-dir "$T/cache" \
        "$long" >"$T/first"
    q -q --exact -n 4 --json --cache-dir "$T/cache" "$long" >"$T/second"
    jget '[0][o["usage"]["cached_tokens"] < 64]' <"$T/second"
    q -q --exact --temp 1 --seed 1 --samples 3 -n 4 --json --cache-dir "$T/cache" \
        "$long" >"$T/again"
    jlines 'o[0]["usage"]["cached_tokens"] >= 64' <"$T/again"
    python3 - "$T/first" "$T/again" <<'PY'
import json, sys
a, b = ([json.loads(l)["tokens"] for l in open(f)] for f in sys.argv[1:])
assert a == b
PY
}

@test "SIGINT: all samples are written as far as they are" {
    for mode in --json --jsonl -0; do
        python3 - "$QWICK" "$T/out" $mode <<'PY'
import json, signal, subprocess, sys, time
qwick, out, mode = sys.argv[1:]
p = subprocess.Popen([qwick, mode, "--samples", "20", "--temp", "1", "--seed", "1",
                      "--ignore-eos", "--prefill", "a", "hi"],
                     stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                     preexec_fn=lambda: signal.signal(
                         signal.SIGINT, signal.default_int_handler))
data = b""
if mode == "--json":
    time.sleep(0.7)
else:
    data = p.stdout.read(1)
p.send_signal(signal.SIGINT)
data += p.stdout.read()
assert p.wait(20) == -signal.SIGINT, p.returncode
if mode == "-0":
    assert data.endswith(b"\0") and data.count(b"\0") == 20, data
else:
    rows = [json.loads(l) for l in data.decode().splitlines()]
    done = [x for x in rows if x.get("event", "done") == "done"]
    assert sorted(x["sample"] for x in done) == list(range(20)), done
    if mode == "--json":
        assert [x["sample"] for x in done] == list(range(20)), done
    assert {x["finish_reason"] for x in done} == {"interrupted"}, done
PY
    done
}
