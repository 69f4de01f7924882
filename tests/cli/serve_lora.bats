#!/usr/bin/env bats
# serve --lora: each adapter has a name, which requests choose.
load helpers
load serve

setup_file() {
    serve_setup_file
    local all=q_proj,k_proj,v_proj,o_proj,gate_proj,up_proj,down_proj
    command python3 -S tests/cli/lora.py models/demo/config.json "$D/one" size=0.2 targets=$all
    command python3 -S tests/cli/lora.py models/demo/config.json "$D/two" seed=2 size=0.3 dtype=F32
    serve_start main --exact --embeddings --cache-dir "$D/cache" --lora "$D/one" --lora "b=$D/two:0.5"
}

teardown_file() {
    serve_teardown_file
}

setup() {
    common_setup
    S=unix:$D/main
}

client() {
    python3 tests/cli/serve_client.py "$S" "$@"
}

@test "/v1/models lists the model and its adapters" {
    client GET /v1/models | grep -q '"id":"qwick-demo".*"id":"one".*"parent":"qwick-demo".*"id":"b"'
    client GET /v1/models/b | grep -q '"id":"b","object":"model"'
    [[ $(client GET /v1/models/two) == 404* ]]
}

@test "the name chooses the adapter, together and one by one" {
    python3 - "$S" "$QWICK" "$D" <<'P'
import json, subprocess, sys, threading
sys.path.insert(0, "tests/cli")
from serve_client import *
server, qwick, d = sys.argv[1:]
ASK = "list all files in the directory, and then " + " ".join(map(str, range(60)))
FLAGS = {"one": ["--lora", d + "/one"], "b": ["--lora", d + "/two:0.5"], "other": [], "qwick-demo": [], "two": []}
def generate(name):
    out = subprocess.run([qwick, "--exact", "--json", "--greedy", "-n", "12", *FLAGS[name], ASK], capture_output=True, check=True, stdin=subprocess.DEVNULL)
    return json.loads(out.stdout)["text"]
want = {name: generate(name) for name in FLAGS}
assert len({want["one"], want["b"], want["other"]}) == 3, want
def ask(name):
    body = {"model": name, "temperature": 0, "max_tokens": 12, "messages": [{"role": "user", "content": ASK}]}
    reply = request(server, "POST", "/v1/chat/completions", body)
    assert reply.status == 200, reply.body
    got = json.loads(reply.body)
    assert got["choices"][0]["message"]["content"] == want[name], (name, got, want[name])
    assert got["model"] == (name if name in ("one", "b") else "qwick-demo"), got
    return got["usage"]["prompt_tokens_details"]["cached_tokens"]
for name in ("one", "b", "other"):
    assert ask(name) == 0, name
for name in FLAGS:
    assert ask(name) > 64, name
threads, failed = [], []
def safely(name):
    try:
        ask(name)
    except BaseException as e:
        failed.append(repr(e))
for i in range(3):
    threads += [threading.Thread(target=safely, args=(name,)) for name in FLAGS]
for t in threads:
    t.start()
for t in threads:
    t.join()
assert not failed, failed
P
}

@test "embeddings and completions choose, too" {
    local x='{"input":"ls -l","model":' y='{"prompt":"ls","max_tokens":4,"temperature":0,"model":'
    local base
    base=$(client POST /v1/embeddings "$x\"x\"}")
    [[ $base == 200* ]]
    [ "$(client POST /v1/embeddings "$x\"qwick-demo\"}")" = "$base" ]
    [[ $(client POST /v1/embeddings "$x\"one\"}") == *'"model":"one"'* ]]
    [ "$(client POST /v1/embeddings "$x\"one\"}" | jget_data)" != "$(jget_data <<<"$base")" ]
    [ "$(client POST /v1/embeddings "$x\"x\"}")" = "$base" ]
    [[ $(client POST /v1/completions "$y\"b\"}") == *'"model":"b"'* ]]
    [[ $(client POST /v1/completions "$y\"c\"}") == *'"model":"qwick-demo"'* ]]
}

jget_data() {
    sed 's/.*"embedding":\[\([^]]*\).*/\1/'
}

@test "names are different ones" {
    fails 2 "are both called" serve --listen "unix:$T/s" --lora "$D/one" --lora "one=$D/two"
    fails 2 "is the name of the model itself" serve --listen "unix:$T/s" --lora "qwick-demo=$D/two"
}
