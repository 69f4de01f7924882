#!/usr/bin/env bats
# The shapes of --json, --jsonl, --logprobs and --profile-timing.
load helpers

@test "--json: one object, its members and types" {
    q --json "list all listening tcp ports" >"$T/o"
    [ "$(wc -l <"$T/o")" -eq 1 ]
    python3 - "$T/o" <<'PY'
import json, sys
o = json.load(open(sys.argv[1]))
assert list(o) == ["text", "thinking", "tokens", "finish_reason", "usage",
                   "seed", "model", "timing"], list(o)
assert o["text"] == "ss -ltn" and o["thinking"] is None
assert o["tokens"][-1] == 6137 and all(type(t) is int for t in o["tokens"])
assert o["finish_reason"] == "stop" and o["model"] == "qwick-demo"
assert o["usage"] == {"prompt_tokens": 15,
                      "completion_tokens": len(o["tokens"]),
                      "cached_tokens": 0}, o["usage"]
assert type(o["seed"]) is int and 0 <= o["seed"] < 2**53
t = o["timing"]
assert list(t) == ["load_ms", "tokenize_ms", "prefill_ms", "per_token_ms",
                   "total_ms"], list(t)
assert t["per_token_ms"] == []
assert all(t[k] >= 0 for k in t if k != "per_token_ms")
assert t["total_ms"] >= t["prefill_ms"] > 0
PY
}

@test "--jsonl: token events, then done with the same members" {
    q --jsonl "list all listening tcp ports" >"$T/l"
    q --json "list all listening tcp ports" >"$T/o"
    python3 - "$T/l" "$T/o" <<'PY'
import json, sys
ev = [json.loads(l) for l in open(sys.argv[1])]
o = json.load(open(sys.argv[2]))
assert [e["event"] for e in ev] == ["token"] * len(o["tokens"]) + ["done"]
assert [e["id"] for e in ev[:-1]] == o["tokens"]
for e in ev[:-1]:
    assert list(e)[:3] == ["event", "id", "text"], e
assert "".join(e["text"] for e in ev[:-1]) == o["text"] == ev[-1]["text"]
assert list(ev[-1]) == ["event"] + list(o)
assert ev[-1]["tokens"] == o["tokens"]
PY
}

@test "the seed is reported and reproduces" {
    q --json --temp 1.2 -n 12 --ignore-eos "list files" >"$T/a"
    seed=$(jget 'o["seed"]' <"$T/a")
    q --json --temp 1.2 -n 12 --ignore-eos --seed "$seed" "list files" >"$T/b"
    equal "$(jget 'o["tokens"]' <"$T/a")" "$(jget 'o["tokens"]' <"$T/b")"
    [ "$(q --json --seed 9223372036854775807 -n 1 hi | jget 'o["seed"]')" = \
        9223372036854775807 ]
    [ "$(q --json --seed 0 --greedy -n 1 hi | jget 'o["seed"]')" = 0 ]
}

@test "the same seed gives the same text at any number of threads" {
    want=$(q -t 1 --temp 1.2 --seed 11 -n 24 "list files")
    [ "$(q -t 2 --temp 1.2 --seed 11 -n 24 "list files")" = "$want" ]
    [ "$(q -t 3 --temp 1.2 --seed 11 -n 24 "list files")" = "$want" ]
    other=$(q -t 1 --temp 1.2 --seed 12 -n 24 --ignore-eos "list files")
    want=$(q -t 1 --temp 1.2 --seed 11 -n 24 --ignore-eos "list files")
    [ "$other" != "$want" ]
}

@test "any sampling flag turns sampling on, --seed alone does not" {
    greedy=$(q -n 20 --ignore-eos --json "list files" | jget 'o["tokens"]')
    [ "$(q -n 20 --ignore-eos --json --seed 5 "list files" |
        jget 'o["tokens"]')" = "$greedy" ]
    [ "$(q -n 20 --ignore-eos --json --greedy "list files" |
        jget 'o["tokens"]')" = "$greedy" ]
    [ "$(q -n 20 --ignore-eos --json --temp 0 "list files" |
        jget 'o["tokens"]')" = "$greedy" ]
    [ "$(q -n 20 --ignore-eos --json --top-k 1 --seed 5 "list files" |
        jget 'o["tokens"]')" = "$greedy" ]
    for flag in "--temp 5" "--top-p 1" "--top-k 0" "--min-p 0" \
        "--repeat-penalty 1" "--presence-penalty 0" "--frequency-penalty 0"; do
        # at temperature 1, two seeds must give different answers of 60 tokens
        # shellcheck disable=SC2086
        [ "$(q -n 60 --ignore-eos --json $flag --seed 1 "list files" |
            jget 'o["tokens"]')" != \
            "$(q -n 60 --ignore-eos --json $flag --seed 2 "list files" |
                jget 'o["tokens"]')" ]
    done
}

@test "--logprobs" {
    q --json --logprobs 3 "list all listening tcp ports" >"$T/o"
    q --jsonl --logprobs 3 "list all listening tcp ports" >"$T/l"
    python3 - "$T/o" "$T/l" <<'PY'
import json, math, sys
o = json.load(open(sys.argv[1]))
ev = [json.loads(l) for l in open(sys.argv[2])]
assert [p["id"] for p in o["logprobs"]] == o["tokens"]
for p, e in zip(o["logprobs"], ev):
    assert len(p["top"]) == 3 and p["top"][0]["id"] == p["id"]  # greedy
    lp = [t["logprob"] for t in p["top"]]
    assert lp == sorted(lp, reverse=True) and lp[0] == p["logprob"] <= 0
    assert sum(map(math.exp, lp)) <= 1.0001
    assert all(set(t) >= {"id", "text", "logprob"} for t in p["top"])
    assert e["logprob"] == p["logprob"] and e["top"] == p["top"]
assert ev[-1]["logprobs"] == o["logprobs"]
PY
    # a token that is a part of a character also has its bytes
    q --json --logprobs 100 -n 1 --raw "$(printf 'a\xf0\x9f')" | python3 -c '
import json, sys
for t in json.load(sys.stdin)["logprobs"][0]["top"]:
    assert ("bytes" in t) == ("\ufffd" in t["text"]), t'
}

@test "--profile-timing" {
    run -0 --separate-stderr hurried q --profile-timing -n 8 --ignore-eos hi
    [[ $stderr == *"kernel"*"tok/s"*"read bandwidth"* ]]
    # 0.3 MB of weights lie in any cache: a share of the memory's rate means nothing
    hurried q --profile-timing -m "$MODELS/tied-bf16" --prompt-ids 1,2,3 -n 8 --ignore-eos 2>"$T/err"
    grep -qE "^of bandwidth +- the weights lie in the CPU's cache$" "$T/err"
    hurried q --profile-timing -m "$MODELS/tied-bf16" --prompt-ids 1,2,3 -n 8 --ignore-eos --json |
        jget '[0][o["timing"]["summary"]["bandwidth_percent"] is not None]'
    text=$output
    hurried q --profile-timing="$T/p" -n 8 --ignore-eos hi 2>"$T/err" >"$T/text"
    [ ! -s "$T/err" ]
    [ "$(cat "$T/text")" = "$text" ]
    hurried q --profile-timing -n 8 --ignore-eos --json hi 2>"$T/err" >"$T/o"
    [ ! -s "$T/err" ]
    python3 - "$T/p" "$T/o" <<'PY'
import json, statistics, sys
want = ["median_ms", "p95_ms", "p99_ms", "kernel_tok_s", "end_to_end_tok_s",
        "sampling_share", "bytes_per_token", "gb_s", "bandwidth_gb_s",
        "bandwidth_percent", "load_tokenizer_ms", "load_weights_ms",
        "first_read_ms", "first_faults"]
for t in (json.load(open(sys.argv[1]))["timing"],
          json.load(open(sys.argv[2]))["timing"]):
    s = t["summary"]
    assert list(s) == want
    # the weights of the demo model may lie in the CPU's cache
    assert s["bandwidth_percent"] is None or 0 < s["bandwidth_percent"] < 120
    assert all(type(s[k]) in (int, float) and s[k] >= 0 for k in want
               if k != "bandwidth_percent"), s
    assert len(t["per_token_ms"]) == 7
    # the times are rounded to microseconds
    assert abs(s["median_ms"] - statistics.median(t["per_token_ms"])) < 1e-3
    assert abs(s["kernel_tok_s"] - 1000 / s["median_ms"]) < 1e-6
    assert s["median_ms"] <= s["p95_ms"] <= s["p99_ms"]
    assert sum(t["per_token_ms"]) <= t["total_ms"]
PY
    # an answer of one token has no decode steps
    hurried q --profile-timing --json -n 1 hi | jget \
        '[0][o["timing"]["summary"]["median_ms"] is not None]'
    fails 1 "$T/no/p" --profile-timing="$T/no/p" hi
    run -1 q --profile-timing=/dev/full -n 2 hi
}

@test "text with quotes, control bytes and big characters survives" {
    q --json --raw --temp 5 --seed 1 -n 200 --ignore-eos x | python3 -m json.tool >/dev/null
    q --jsonl --raw --temp 5 --seed 2 -n 200 --ignore-eos x | jlines 'len(o) == 201'
}
