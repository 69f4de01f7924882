#!/usr/bin/env bats
# serve: GET /metrics.
load helpers
load serve

setup_file() {
    serve_setup_file
    # a name that labels must escape
    cp -r models/demo "$D/a\"b\\c
d"
    serve_start main --exact -m "$D/a\"b\\c
d" --max-batch 2
    printf 'metrics-key-0123456789\n' >"$D/key_file"
    chmod 600 "$D/key_file"
    serve_start keys --api-key-file "$D/key_file"
}

teardown_file() {
    serve_teardown_file
}

setup() {
    common_setup
}

# A strict reader of the text format 0.0.4, and what tests ask for.
METRICS='
import math, re, struct, sys, threading, time
from serve_client import *
s = sys.argv[1]
NAME = "[a-zA-Z_:][a-zA-Z0-9_:]*"
SAMPLE = re.compile("(%s)(?:\\{(.*)\\})? (\\S+)" % NAME)
LABEL = re.compile("([a-zA-Z_][a-zA-Z0-9_]*)=\"((?:[^\"\\\\]|\\\\[\\\\\"n])*)\"(?:,|$)")
ESCAPES = {"\\\\": "\\", "\\\"": "\"", "\\n": "\n"}
SUFFIXES = {"counter": ("",), "gauge": ("",), "histogram": ("_bucket", "_sum", "_count")}

def labels(text):
    out = {}
    while text:
        m = LABEL.match(text)
        assert m and m[1] not in out, text
        out[m[1]] = re.sub(r"\\.", lambda e: ESCAPES[e[0]], m[2])
        text = text[m.end():]
    return out

def parse(text):
    """{name: (type, [(suffix, labels, value)])}; a family is one block of lines."""
    assert text.endswith("\n")
    out, name, help_ = {}, None, None
    for line in text[:-1].split("\n"):
        if line.startswith("# HELP "):
            _, _, help_, words = line.split(" ", 3)
            assert words and help_ not in out, line
        elif line.startswith("# TYPE "):
            _, _, name, kind = line.split(" ")
            assert name == help_ and kind in SUFFIXES, line
            assert (kind == "counter") == name.endswith("_total"), line
            out[name] = kind, []
        else:
            m = SAMPLE.fullmatch(line)
            kind, samples = out[name]
            assert m and m[1].startswith(name) and m[1][len(name):] in SUFFIXES[kind], line
            value = float(m[3])
            assert math.isfinite(value) and value >= 0, line
            samples.append((m[1][len(name):], labels(m[2] or ""), value))
    for name, (kind, samples) in out.items():
        keys = [(x[0], tuple(sorted(x[1].items()))) for x in samples]
        assert len(keys) == len(set(keys)), name
        if kind == "histogram":
            buckets = [(float(x[1]["le"]), x[2]) for x in samples if x[0] == "_bucket"]
            count, = (x[2] for x in samples if x[0] == "_count")
            total, = (x[2] for x in samples if x[0] == "_sum")
            assert buckets == sorted(buckets) and buckets[-1] == (math.inf, count), name
            assert [b[1] for b in buckets] == sorted(b[1] for b in buckets), name
            assert count or not total, name
    return out

def metrics(**more):
    r = get(s, "/metrics", **more)
    assert r.status == 200, r.body
    assert r.fields["Content-Type"] == "text/plain; version=0.0.4; charset=utf-8"
    return parse(r.body.decode())

def value(m, name, suffix="", **want):
    """The sum of the samples that have these labels."""
    return sum(v for x, l, v in m[name][1]
               if x == suffix and all(l.get(k) == w for k, w in want.items()))

CHAT = "/v1/chat/completions"
def chat(text, most=4, **more):
    return {"messages": [{"role": "user", "content": text}], "max_tokens": most,
            "seed": 1, "temperature": 1, **more}
'

metrics_py() {
    { echo "$METRICS"; cat; } >"$T/test.py"
    PYTHONPATH=$BATS_TEST_DIRNAME command python3 -S "$T/test.py" "$@"
}

@test "all rows, with types, help and the labels of a name that needs escapes" {
    metrics_py "unix:$D/main" <<'PY'
m = metrics()
for name in """num_requests_running num_requests_waiting kv_cache_bytes
    kv_cache_usage_perc num_preemptions_total prompt_tokens_total
    generation_tokens_total prefix_cache_queries_total prefix_cache_hits_total
    request_success_total time_to_first_token_seconds inter_token_latency_seconds
    request_time_per_output_token_seconds e2e_request_latency_seconds
    event_delay_seconds http_requests_total http_connections build_info""".split():
    for _, l, _ in m["qwick_" + name][1]:
        assert l["model_name"] == 'a"b\\c\nd', l
assert 10e6 < value(m, "process_resident_memory_bytes") < 10e9
assert abs(time.time() - value(m, "process_start_time_seconds")) < 600
assert value(m, "process_cpu_seconds_total") > 0
assert value(m, "qwick_http_connections") == 1
assert value(m, "qwick_build_info") == 1 and m["qwick_build_info"][1][0][1]["version"]
# HEAD, another method, a query
assert request(s, "HEAD", "/metrics").status == 200
assert post(s, "/metrics", "x").status == 405
assert get(s, "/metrics?x=1").status == 200
PY
}

@test "counters are what was asked: requests, tokens, caches, ends" {
    metrics_py "unix:$D/main" <<'PY'
before = metrics()
prompt = answer = cached = hits = 0
lengths = []
def took(u, n=1):
    global prompt, answer, hits
    prompt += u["prompt_tokens"]
    answer += u.get("completion_tokens", 0)
    hits += u.get("prompt_tokens_details", {}).get("cached_tokens", 0)
long = "show disk usage " * 40
for body in chat("list files"), chat(long), chat(long, 9), chat(long, 30, n=3):
    r = post(s, CHAT, body)
    assert r.status == 200, r.body
    took(r.json["usage"])
events = stream(s, CHAT, {**chat("copy a file", 20), "stream_options": {"include_usage": True}})
took(events[-1]["usage"])
r = post(s, "/v1/completions", {"prompt": ["list", "copy a"], "max_tokens": 3, "n": 2, "seed": 1})
took(r.json["usage"])
generated = metrics()
def rose(name, suffix="", **want):
    return value(generated, name, suffix, **want) - value(before, name, suffix, **want)
assert rose("qwick_prompt_tokens_total") == prompt
assert rose("qwick_prefix_cache_queries_total") == prompt
assert rose("qwick_prefix_cache_hits_total") == hits > 0
assert rose("qwick_generation_tokens_total") == answer
assert rose("qwick_request_success_total") == 1 + 1 + 1 + 3 + 1 + 4
assert rose("qwick_request_success_total", finished_reason="abort") == 0
assert rose("qwick_http_requests_total", endpoint=CHAT, status="200") == 5
assert rose("qwick_http_requests_total", endpoint="/v1/completions") == 1
assert rose("qwick_http_requests_total", endpoint="/metrics") == 1
for name in "time_to_first_token_seconds", "e2e_request_latency_seconds":
    assert rose(f"qwick_{name}", "_count") == 6, name
assert rose("qwick_inter_token_latency_seconds", "_count") == answer - 11
assert rose("qwick_e2e_request_latency_seconds", "_sum") >= \
    rose("qwick_time_to_first_token_seconds", "_sum") > 0
# what is no answer of a model
before = generated
r = post(s, "/score", {"text": "list files"})
assert r.status == 200, r.body
n = len(post(s, "/tokenize", {"text": "list files"}).json["ids"])
for path, body in ((CHAT, {}), (CHAT, chat("x", -1)), ("/nothing", {}), ("/metrics", {})):
    post(s, path, body)
get(s, "/health", fields={"Host": "example.com"})
raw(s, b"nonsense\r\n\r\n")
raw(s, b"POST /v1/completions HTTP/1.1\r\n\r\n") # no Host
generated = metrics()
assert rose("qwick_prompt_tokens_total") >= n
assert rose("qwick_generation_tokens_total") == 0
for path, status, k in ((CHAT, "400", 2), ("other", "404", 1), ("other", "405", 1),
                        ("/health", "403", 1), ("other", "400", 1), ("/v1/completions", "400", 1), ("/score", "200", 1),
                        ("/tokenize", "200", 1)):
    assert rose("qwick_http_requests_total", endpoint=path, status=status) == k, (path, status)
PY
}

@test "running and waiting answers; a client that leaves" {
    metrics_py "unix:$D/main" <<'PY'
def until(true):
    limit = time.monotonic() + 60
    while not true(m := metrics()):
        assert time.monotonic() < limit, m["qwick_num_requests_running"]
        time.sleep(0.02)
    return m
def rests(m):
    return value(m, "qwick_num_requests_running") == value(m, "qwick_num_requests_waiting") == 0
before = until(rests)
long = chat("list files", 2000, regex="[a-z ]{9000}", n=4, stream=True)
with Stream(s, CHAT, long) as a:
    next(iter(a.start()))
    m = until(lambda m: value(m, "qwick_num_requests_running") == 2)
    assert value(m, "qwick_num_requests_waiting") == 2
    m = until(lambda m: value(m, "qwick_kv_cache_bytes") > 0)
    assert 0 < value(m, "qwick_kv_cache_usage_perc") <= 1
m = until(rests)
assert value(m, "qwick_kv_cache_bytes") == 0
def rose(name, **want):
    return value(m, name, **want) - value(before, name, **want)
m = until(lambda m: value(m, "qwick_http_requests_total", endpoint=CHAT, status="499") == 1)
assert rose("qwick_request_success_total", finished_reason="abort") == 4
PY
}

# The engine then helps the I/O thread, and with a CPU to spare it does not.
@test "events of streams are written soon, with and without a CPU to spare" {
    serve_launch full taskset -c "$(taskset -cp $$ | grep -o '[0-9]*$')" \
        "$QWICK" serve --listen "unix:$D/full" --exact -t 1
    serve_wait full "unix:$D/full"
    serve_start spare --exact -t 1
    for name in full spare; do
        metrics_py "unix:$D/$name" <<'PY'
for body in chat("list files", 60, n=2), chat("copy a file", 60, regex="[a-z ]{99}"):
    want = [c["message"]["content"] for c in post(s, CHAT, body).json["choices"]]
    before = metrics()
    texts = [""] * len(want)
    for e in stream(s, CHAT, body):
        for c in e["choices"]:
            texts[c["index"]] += c["delta"].get("content") or ""
    assert texts == want, (texts, want)
    m = metrics()
    n = value(m, "qwick_event_delay_seconds", "_count") - \
        value(before, "qwick_event_delay_seconds", "_count")
    assert n > 1, n
PY
        serve_stop "$name"
    done
}

@test "it needs a key, and shows neither keys nor texts" {
    metrics_py "unix:$D/keys" <<'PY'
KEY = {"Authorization": "Bearer metrics-key-0123456789"}
assert get(s, "/metrics").status == 401
assert get(s, "/metrics", fields={"x-api-key": "wrong-key-0123456789"}).status == 401
r = post(s, CHAT, chat("Zebrafish", 40, user="Quagga", choices=["Wombat"], Okapi=1), fields=KEY)
assert r.json["choices"][0]["message"]["content"] == "Wombat", r.body
assert post(s, "/v1/Okapi", {}, fields=KEY).status == 404
assert get(s, "/v1/models/Okapi", fields=KEY).status == 404
text = get(s, "/metrics", fields=KEY).body.decode()
m = parse(text)
assert value(m, "qwick_http_requests_total", endpoint="/metrics", status="401") == 2
for word in "zebra", "quagga", "wombat", "okapi", "0123456789":
    assert word not in text.lower(), word
PY
}

@test "many read it while others ask: each text is whole, counters never fall" {
    metrics_py "unix:$D/main" <<'PY'
over, faults = [], []
def watch():
    last = {}
    try:
        while not over:
            m = metrics()
            for name, (kind, samples) in m.items():
                if kind == "gauge":
                    continue
                for suffix, l, v in samples:
                    key = name, suffix, tuple(l.items())
                    assert v >= last.get(key, 0), (key, v, last[key])
                    last[key] = v
    except AssertionError as e:
        faults.append(e)
watches = [threading.Thread(target=watch) for _ in range(3)]
for t in watches:
    t.start()
for i in range(12):
    assert post(s, CHAT, chat("list files", 30)).status == 200
over.append(1)
for t in watches:
    t.join()
assert not faults, faults
PY
}

@test "the servers end with status 0" {
    serve_stop main
    serve_stop keys
}
