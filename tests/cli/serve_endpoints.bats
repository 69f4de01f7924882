#!/usr/bin/env bats
# serve: embeddings, rerank, completions, tokenize, detokenize, score. Their numbers are
# those of the verbs.
load helpers
load serve

setup_file() {
    serve_setup_file
    serve_start main --exact --embeddings
    small_demo "$D/embedder"
    echo '{}' >"$D/embedder/modules.json"
    echo '{"prompts": {"query": "task: find | query: "}}' >"$D/embedder/config_sentence_transformers.json"
    serve_start embed --exact -m "$D/embedder"
    T=$D demo_as reranker
    serve_start rerank --exact -m "$D/reranker"
}

teardown_file() {
    serve_teardown_file
}

setup() {
    common_setup
    S=unix:$D/main
}

# verb ARGS…, in Python: the lines of JSON that a verb prints.
VERBS='
import base64, json, math, os, struct, subprocess, sys
from serve_client import *
D, s, embedder, reranker = os.environ["D"], *("unix:%s/%s" % (os.environ["D"], n) for n in ("main", "embed", "rerank"))
def verb(*args, text=b""):
    r = subprocess.run([os.environ["QWICK"], *args], input=text, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    return [json.loads(l) for l in r.stdout.decode().split("\n")[:-1]]
def good(address, path, body):
    r = post(address, path, body)
    assert r.status == 200, (path, r.status, r.body[:300])
    return r.json
def refused(address, path, body, status=400, param=None):
    r = post(address, path, body)
    assert r.status == status, (body, r.status, r.body[:300])
    e = r.error
    assert param is None or e["param"] == param, (body, e)
'

verbs_py() {
    { echo "$VERBS"; cat; } >"$T/test.py"
    PYTHONPATH=$BATS_TEST_DIRNAME command python3 -S "$T/test.py" "$@"
}

@test "embeddings: float and base64, those of embed" {
    verbs_py <<'PY'
texts = ["list files", "show disk usage", "Zürich"]
for address, args in (embedder, ["-m", D + "/embedder"]), (s, []):
    want = verb("embed", "--exact", *args, *texts)
    got = good(address, "/v1/embeddings", {"input": texts, "model": "x", "user": "y"})
    assert got["object"] == "list" and "/" not in got["model"]
    assert [d["index"] for d in got["data"]] == [0, 1, 2]
    for d, w in zip(got["data"], want):
        assert d["object"] == "embedding"
        assert len(d["embedding"]) == len(w["embedding"]) == 256
        assert all(struct.pack("<f", a) == struct.pack("<f", b) for a, b in zip(d["embedding"], w["embedding"]))
    assert got["usage"]["prompt_tokens"] == got["usage"]["total_tokens"] == sum(w["tokens"] for w in want)
    b64 = good(address, "/v1/embeddings", {"input": texts, "encoding_format": "base64"})
    for d, w in zip(b64["data"], want):
        raw_ = base64.b64decode(d["embedding"], validate=True)
        assert raw_ == b"".join(struct.pack("<f", x) for x in w["embedding"])
    one = good(address, "/v1/embeddings", {"input": texts[0], "encoding_format": "float"})
    assert one["data"] == got["data"][:1]
    ids = good(address, "/tokenize", {"text": texts[0]})["ids"]
    assert good(address, "/v1/embeddings", {"input": ids})["data"][0]["embedding"] == one["data"][0]["embedding"]
    assert [d["embedding"] for d in good(address, "/v1/embeddings", {"input": [ids, ids]})["data"]] == \
        [one["data"][0]["embedding"]] * 2
    few = verb("embed", "--exact", *args, "--dim", "64", texts[0])
    d = good(address, "/v1/embeddings", {"input": texts[0], "dimensions": 64})["data"][0]["embedding"]
    assert len(d) == 64 and (not few or d == few[0]["embedding"]), d[:3]
want = verb("embed", "--exact", "-m", D + "/embedder", "--prompt-name", "query", texts[0])[0]
got = good(embedder, "/v1/embeddings", {"input": texts[0], "prompt_name": "query"})
assert got["data"][0]["embedding"] == want["embedding"] and got["usage"]["prompt_tokens"] == want["tokens"]
many = good(embedder, "/v1/embeddings", {"input": ["text %d" % i for i in range(300)]})
assert [d["index"] for d in many["data"]] == list(range(300))
PY
}

@test "embeddings that are refused" {
    verbs_py <<'PY'
for body in ({}, {"input": None}, {"input": 1}, {"input": {}}, {"input": [{}]}, {"input": ["a", 1]}, {"input": []},
             {"input": [-1]}, {"input": [999999]}, {"input": [1.5]}, {"input": "list files " * 3000}):
    refused(embedder, "/v1/embeddings", body, param="input" if body else None)
for name, v in ("encoding_format", "int8"), ("encoding_format", 1), ("dimensions", 0), ("dimensions", 257), ("dimensions", "a"), \
        ("prompt_name", 1), ("prompt_name", "document"):
    refused(embedder, "/v1/embeddings", {"input": "a", name: v}, param=name)
# a chat asks an encoder for what it is not made for
refused(embedder, "/v1/chat/completions", {"messages": [{"role": "user", "content": "a"}]}) \
    if post(embedder, "/v1/chat/completions", {"messages": [{"role": "user", "content": "a"}], "max_tokens": 1}).status != 200 else None
PY
}

@test "rerank: the order and scores of the verb" {
    verbs_py <<'PY'
docs = ["show all files", "kill a process", "disk usage", "copy a file"]
want, = verb("rerank", "--exact", "-m", D + "/reranker", "--json", "-q", "list files", *docs)
want = [(r["index"] - 1, r["score"]) for r in want["results"]]
for path in "/v1/rerank", "/rerank":
    got = good(reranker, path, {"query": "list files", "documents": docs, "model": "x"})
    assert [(r["index"], r["relevance_score"]) for r in got["results"]] == want, (got, want)
    assert "/" not in got.get("model", "")
    dicts = good(reranker, path, {"query": "list files", "documents": [{"text": d} for d in docs], "top_n": 2,
                                  "return_documents": True})
    assert [(r["index"], r["relevance_score"]) for r in dicts["results"]] == want[:2]
    assert [r["document"]["text"] for r in dicts["results"]] == [docs[i] for i, _ in want[:2]]
    assert len(good(reranker, path, {"query": "list files", "documents": docs, "top_n": 99})["results"]) == 4
    logits = good(reranker, path, {"query": "list files", "documents": docs, "raw_scores": True})["results"]
    assert all(abs(1 / (1 + math.exp(-r["relevance_score"])) - w) < 1e-12 and r["index"] == i for r, (i, w) in zip(logits, want))
for body, param in (({"documents": docs}, "query"), ({"query": "a"}, "documents"), ({"query": 1, "documents": docs}, "query"),
                    ({"query": "a", "documents": []}, "documents"), ({"query": "a", "documents": [1]}, "documents"),
                    ({"query": "a", "documents": "x"}, "documents"), ({"query": "a", "documents": docs, "top_n": -1}, "top_n"),
                    ({"query": "a", "documents": docs, "return_documents": "x"}, "return_documents"),
                    ({"query": "a", "documents": docs, "raw_scores": 1}, "raw_scores"),
                    ({"query": "list files " * 3000, "documents": docs}, None)):
    refused(reranker, "/v1/rerank", body, param=param)
PY
}

@test "completions: texts and ids, those of --raw; echo, n, stream, logprobs" {
    verbs_py <<'PY'
P = "/v1/completions"
def raw_(text, *args):
    return verb("-q", "--exact", "--json", "--raw", *args, text)[0]
want = raw_("ls -", "-n", "16")
got = good(s, P, {"prompt": "ls -", "temperature": 0})
assert got["object"] == "text_completion" and len(got["choices"]) == 1
assert got["choices"][0]["text"] == want["text"], (got, want)
assert got["usage"]["completion_tokens"] == want["usage"]["completion_tokens"] <= 16
assert got["usage"]["prompt_tokens"] == want["usage"]["prompt_tokens"]
# a seed with a longer answer
seed, seeded = next((i, r) for i in range(5, 50) for r in [raw_("ls -", "-n", "9", "--temp", "1", "--seed", str(i))]
                    if len(r["text"]) > 6)
body = {"prompt": "ls -", "max_tokens": 9, "temperature": 1, "seed": seed}
assert good(s, P, body)["choices"][0]["text"] == seeded["text"]
ids = good(s, "/tokenize", {"text": "ls -"})["ids"]
assert good(s, P, {**body, "prompt": ids})["choices"][0]["text"] == seeded["text"]
several = good(s, P, {**body, "prompt": ["ls -", "cd"], "n": 2})["choices"]
assert [c["index"] for c in several] == [0, 1, 2, 3] and several[0]["text"] == seeded["text"]
assert [c["text"] for c in good(s, P, {**body, "prompt": [ids, ids]})["choices"]][0] == seeded["text"]
assert good(s, P, {**body, "echo": True})["choices"][0]["text"] == "ls -" + seeded["text"]
events = stream(s, P, body)
assert "".join(c["text"] for e in events for c in e["choices"]) == seeded["text"]
assert [c["finish_reason"] for e in events for c in e["choices"] if c["finish_reason"]] in (["length"], ["stop"])
usage = stream(s, P, {**body, "stream_options": {"include_usage": True}})[-1]
assert usage["choices"] == [] and usage["usage"]["completion_tokens"] >= 1
lp = good(s, P, {**body, "logprobs": 2})["choices"][0]["logprobs"]
assert len(lp["tokens"]) == len(lp["token_logprobs"]) == len(lp["top_logprobs"]) == len(lp["text_offset"])
assert "".join(lp["tokens"]) == seeded["text"] and all(x <= 0 for x in lp["token_logprobs"])
stop = good(s, P, {**body, "stop": seeded["text"][1:3]})["choices"][0]
assert stop["text"] == seeded["text"][:1] and stop["finish_reason"] == "stop"
good(s, P, {**body, "best_of": 1, "user": "a", "model": "b"})
for bad, param in (({"prompt": 1}, "prompt"), ({"prompt": {}}, "prompt"), ({"prompt": [-1]}, "prompt"), ({"prompt": [999999]}, "prompt"),
                   ({**body, "best_of": 2}, "best_of"), ({**body, "max_tokens": -1}, "max_tokens"), ({**body, "suffix": "x"}, "suffix"),
                   ({**body, "n": 9}, "n"), ({**body, "echo": 1}, "echo"), ({**body, "logprobs": -1}, "logprobs")):
    refused(s, P, bad, param=param)
refused(s, P, {**body, "prompt": "list files " * 3000})
PY
}

@test "tokenize, detokenize and score: one line of the verbs' --jsonl" {
    verbs_py <<'PY'
def same(name, body):
    line = json.dumps(body).encode() + b"\n"
    want, = verb(name, *(["--exact"] if name == "score" else []), "--jsonl", text=line)
    r = post(s, "/" + name, body)
    if "error" in want:
        assert r.status == 400, (body, r.status, r.body)
        assert r.error["message"]
    else:
        assert (r.status, r.json) == (200, want), (body, r.status, r.body, want)
for text in "list files", "", "<|im_end|>", "Zürich \n🎈", " ":
    same("tokenize", {"text": text})
same("tokenize", {"text": "a", "id": 7})
for bad in {}, {"text": 1}, {"text": None}, {"text": []}:
    same("tokenize", bad)
for ids in [624, 364], [], [6137], list(range(300)):
    same("detokenize", {"ids": ids})
same("detokenize", {"ids": [6137, 624], "skip_special": True})
for bad in {}, {"ids": 1}, {"ids": [-1]}, {"ids": [999999]}, {"ids": ["a"]}:
    same("detokenize", bad)
for text in "list files", "Zürich \n🎈" * 20:
    same("score", {"text": text})
same("score", {"text": "list files", "id": "x"})
for bad in {}, {"text": 1}:
    same("score", bad)
same("score", {"text": "list files " * 2000})
PY
}

@test "long work beside chats: answers are the same, /health answers" {
    verbs_py <<'PY'
import threading
chat = {"messages": [{"role": "user", "content": "list files"}], "temperature": 1, "seed": 3, "max_tokens": 40}
want = good(s, "/v1/chat/completions", chat)["choices"][0]["message"]
texts = ["text %d " % i * 20 for i in range(60)]
vectors = good(s, "/v1/embeddings", {"input": texts})["data"]
score = good(s, "/score", {"text": "list files " * 1500})
got = {}
work = [threading.Thread(target=f) for f in (
    lambda: got.update(chat=good(s, "/v1/chat/completions", chat)["choices"][0]["message"]),
    lambda: got.update(vectors=good(s, "/v1/embeddings", {"input": texts})["data"]),
    lambda: got.update(score=good(s, "/score", {"text": "list files " * 1500})))]
for t in work:
    t.start()
while any(t.is_alive() for t in work):
    assert get(s, "/health").status == 200
for t in work:
    t.join()
assert got == {"chat": want, "vectors": vectors, "score": score}, got.keys()
PY
}

@test "the servers end with status 0" {
    serve_stop main
    serve_stop embed
    serve_stop rerank
}
