#!/usr/bin/env bats
# qwick plan. Times are not checked, only that they are there.
load helpers

setup() {
    common_setup
}

@test "the table" {
    run -0 --separate-stderr hurried q plan --prompt-tokens 100 -n 50
    [ -z "$stderr" ]
    [[ ${lines[0]} == "model        \"qwick-demo\", BF16, 9.44 M parameters" ]]
    [[ ${lines[1]} == "tokens       100 of prompt, 50 of answer, context of 2048" ]]
    [[ ${lines[2]} == "threads      "*": $(nproc) of "*" CPUs in the affinity mask, "*" physical cores, "*" quota"* ]]
    for row in "weights      18.9 MB  mapped; " "KV cache " "scratch " \
        "sampling " "first token " "each token " "answer "; do
        grep -q "^$row" <<<"$output"
    done
    [[ $output == *" available: fits"* ]]
    run -0 hurried q plan -t 3
    [[ $output == *"threads      3 as asked: "* ]]
}

@test "--json, --no-speed, and the options that change the memory" {
    plan() {
        q plan --no-speed --json "$@"
    }
    plan >"$T/json"
    jget '[o["prompt_tokens"], o["answer_tokens"], o["n_ctx"], o["fits"], o["speed_from"], o["token_s"]]' <"$T/json" |
        grep -qF "[512, 256, 2048, True, None, None]"
    jget '[o["needed_bytes"] == o["kv_bytes"] + o["scratch_bytes"] + o["sampling_bytes"], o["cpus_affinity"]]' <"$T/json" |
        grep -qF "[True, $(nproc)]"
    # the last page is whole, hence the multiples of 64 tokens
    kv() {
        plan "$@" | jget 'o["kv_bytes"]'
    }
    [ "$(kv --kv f32)" -eq $((2 * $(kv))) ]
    [ "$(kv --kv q8)" -lt "$(kv)" ]
    # 4 bits, and 16 for each 32 elements
    [ "$(kv --kv q4)" -eq $((9 * $(kv) / 32)) ]
    [ "$(kv --prompt-tokens 1024 -n 512)" -eq $((2 * $(kv))) ]
    # an answer ends with the context
    plan -c 600 --prompt-tokens 512 | jget '[o["answer_tokens"], o["kv_bytes"] == o["kv_full_bytes"]]' |
        grep -qF "[88, True]"
    plan -c 100 | jget '[o["prompt_tokens"], o["answer_tokens"]]' | grep -qF "[50, 50]"
    hurried q plan --json -n 20 | jget \
        '[o["speed_from"] in ("passes", "limits"), o["first_token_s"] > 0, o["token_s"] > 0, o["bandwidth"] > 0]' |
        grep -qF "[True, True, True, True]"
}

@test "the predicted memory against the measured peak" {
    [ -z "${SAN:-}" ] || skip "sanitizers change the memory"
    # From a short to a long prompt, the peak grows as the prediction does. Only
    # anonymous memory is taken: of the mapped weights, which both runs read
    # whole, the system keeps up to 2 MB more or less from run to run. Pages of
    # 2 MB at the ends of the scratch, and pages of tables that only long runs
    # touch, make the rest.
    cat >"$T/peak.py" <<'PY'
import json, subprocess, sys, time

qwick, options = sys.argv[1], sys.argv[2:]

def anonymous(pid):
    """Bytes of anonymous memory now; none of a process that has ended."""
    with open("/proc/%d/status" % pid) as f:
        of = dict(line.split(":", 1) for line in f)
    return int(of.get("RssAnon", "0").split()[0]) * 1024

def peak(n, answer):
    ids = ",".join(str(i * 7919 % 6000) for i in range(1, n + 1))
    args = [qwick, "generate", "-q", "-m", "models/demo", "--prompt-ids", ids,
            "-n", str(answer), "--ignore-eos", *options]
    run = subprocess.Popen(args, stdout=subprocess.DEVNULL)
    most = 0
    while run.poll() is None:
        most = max(most, anonymous(run.pid))
        time.sleep(0.002)
    assert run.returncode == 0
    return most

def predicted(n, answer):
    args = [qwick, "plan", "-m", "models/demo", "--prompt-tokens", str(n),
            "-n", str(answer), "--no-speed", "--json", *options]
    return json.loads(subprocess.check_output(args))["needed_bytes"]

short, long = (512, 16), (1700, 300)
got = peak(*long) - peak(*short)
want = predicted(*long) - predicted(*short)
print("%s: %.1f MB more, predicted %.1f" % (options, got / 1e6, want / 1e6))
assert abs(got - want) < 0.15 * want + 1e6
PY
    python3 "$T/peak.py" "$QWICK" -t 1
    python3 "$T/peak.py" "$QWICK" -t 1 --exact
    python3 "$T/peak.py" "$QWICK" -t 1 --kv q8
    python3 "$T/peak.py" "$QWICK" -t 1 --kv q4
}

@test "what does not fit: exit 5 with the plan, exit 4" {
    mkdir "$T/m"
    cp "$MODELS/tied-bf16/model.safetensors" "$T/m"
    python3 - "$MODELS/tied-bf16/config.json" >"$T/m/config.json" <<'PY'
import json, sys
c = json.load(open(sys.argv[1]))
c["max_position_embeddings"] = 2**31 - 1
print(json.dumps(c))
PY
    run -5 --separate-stderr q plan -m "$T/m" --prompt-tokens 2000000000
    [[ $output == *" available: does not fit"* ]]
    [[ $output != *"first token"* ]]
    [[ $stderr == "qwick: out of memory: "*" bytes are needed, "*" are available" ]]
    run -5 --separate-stderr q plan -m "$T/m" --prompt-tokens 2000000000 --json
    jget '[o["fits"], o["token_s"]]' <<<"$output" | grep -qF "[False, None]"
    run -0 q plan -m "$T/m" --no-speed
    fails 4 "prompt of 3000 tokens, but the context has 2048" plan --prompt-tokens 3000
    fails 4 "context of 9999 tokens asked for" plan -c 9999
}

@test "bad input" {
    fails 2 "--prompt-tokens" plan --prompt-tokens 0
    fails 2 "-n: \"0\"" plan -n 0
    fails 2 "\"hi\": unexpected" plan hi
    fails 3 "/nonexistent" plan -m /nonexistent
    run -1 --separate-stderr bash -c '"$1" plan --no-speed >/dev/full' - "$QWICK"
    [[ $stderr == "qwick: "*"No space left"* ]]
}
