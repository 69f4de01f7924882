#!/usr/bin/env bash
# How fast text encoders embed, and what share of the machine's arithmetic that
# is: a Markdown table.
#
# usage: bench/encoders.sh MODEL... [-- THREADS...]
#   MODEL    a checkpoint directory; build/bench/make_model --shape bge-base DIR
#            makes one     THREADS  numbers of threads, default: all cores
# QWICK names the program, TEXTS how many texts count (default 256), TOKENS their
# length (default 128), ROUNDS the runs of each kind (default 5), OPTS further
# options of embed (--isa avx512bf16 ...).
#
# The time is that of 2 * TEXTS texts less that of TEXTS, medians of runs that take
# turns: so it has no start and no loading. The peak is the limit of prefill that
# `qwick bench` prints on the demo model, which has bf16 weights as well: all threads
# run the multiply-adds of bf16 products (tdpbf16ps or vdpbf16ps; without these, f32)
# on registers only (kernels.peak_bf16). It is measured before and after each round,
# and a round's share is of their mean. The table has the median, the least and the
# most of the shares, and the CPU time that other programs took meanwhile (Linux), as
# a share of one CPU: a table with much of it says little.
set -eu
cd "$(dirname "$0")/.."
unset QWICK_MODEL
if [ $# -lt 1 ]; then
    sed -n '5,10p' "$0" >&2
    exit 2
fi
export QWICK=${QWICK:-./qwick} TEXTS=${TEXTS:-256} TOKENS=${TOKENS:-128} ROUNDS=${ROUNDS:-5} OPTS=${OPTS:-}
python3 - "$@" <<'PY'
import json, os, random, shutil, statistics, subprocess, sys, tempfile, time
env = os.environ
qwick, opts = env["QWICK"], env["OPTS"].split()
texts, tokens, rounds = (int(env[k]) for k in ("TEXTS", "TOKENS", "ROUNDS"))
args = sys.argv[1:]
at = args.index("--") if "--" in args else len(args)
models, threads = args[:at], args[at + 1:] or [None]

def flops(c):
    """Of one text: products with weights, and attention's two products."""
    d, ff, n = c["hidden_size"], c["intermediate_size"], c["num_attention_heads"]
    hd = c.get("head_dim", d // n)
    kv = c.get("num_key_value_heads", n) * hd
    gated = c["model_type"] in ("modernbert", "gemma3_text")
    weights = 2 * d * n * hd + 2 * d * kv + (3 if gated else 2) * d * ff
    pairs = tokens * tokens
    if gated:  # in most layers, a window on both sides
        half = c.get("local_attention", c.get("sliding_window", 2 * tokens)) // 2
        seen = sum(min(t + half, tokens - 1) - max(t - half, 0) + 1 for t in range(tokens))
        every = c.get("global_attn_every_n_layers", 6)
        pairs = (pairs + (every - 1) * seen) / every
    return c["num_hidden_layers"] * (2 * tokens * weights + 4 * pairs * n * hd)

def file_of(n, vocab):
    f = tempfile.NamedTemporaryFile("w", suffix=".jsonl")
    rng = random.Random(7)
    for _ in range(n):
        f.write(json.dumps({"prompt_ids": [rng.randrange(vocab // 2, vocab) for _ in range(tokens)]}) + "\n")
    f.flush()
    return f

def with_tokenizer(model):
    """The model, with some tokenizer, without which embed reads no records."""
    if os.path.exists(os.path.join(model, "tokenizer.json")):
        return model
    folder = tempfile.mkdtemp()
    shutil.copy("tests/golden/wordpiece/tokenizer.json", folder)
    for name in os.listdir(model):
        os.symlink(os.path.abspath(os.path.join(model, name)), os.path.join(folder, name))
    return folder

def peak(more):
    out = subprocess.run([qwick, "bench", "--json", "-q", "--prompt-lens", "512", "--gen", "1", "--reps", "1",
                          "--warmup", "0", *more], check=True, capture_output=True).stdout
    return next(r["limit"] for r in json.loads(out)["results"] if r["unit"] == "GFLOP/s")

def others():
    """Seconds of CPU time that processes other than our children have had."""
    try:
        ticks = [int(x) for x in open("/proc/stat").readline().split()[1:9]]
    except OSError:
        return 0
    own = os.times()
    return (sum(ticks) - ticks[3] - ticks[4]) / os.sysconf("SC_CLK_TCK") - sum(own[:4])

def run(model, path, more):
    start = time.monotonic()
    subprocess.run([qwick, "embed", "-q", "-m", model, "--jsonl", "-i", path, "--format", "f32", *more, *opts],
                   check=True, stdout=subprocess.DEVNULL)
    return time.monotonic() - start

isa = opts[opts.index("--isa"):][:2] if "--isa" in opts else []
print(f"{texts} texts of {tokens} tokens; medians of {rounds}")
print("| model | threads | ms | texts/s | GFLOP/s | peak | share | least | most | others |")
print("|---|--:|--:|--:|--:|--:|--:|--:|--:|--:|")
for model in models:
    config = json.load(open(os.path.join(model, "config.json")))
    place = with_tokenizer(model)
    one, two = (file_of(k * texts, config["vocab_size"]) for k in (1, 2))
    for t in threads:
        more = ["-t", t] if t else []
        run(place, one.name, more)
        peaks, times, begin, used = [peak(more + isa)], [], time.monotonic(), others()
        for i in range(rounds):
            pair = {}
            for f in (one, two)[:: 1 if i % 2 else -1]:
                pair[f] = run(place, f.name, more)
            times.append(pair[two] - pair[one])
            peaks.append(peak(more + isa))
        used = (others() - used) / (time.monotonic() - begin)
        rates = [texts * flops(config) / s / 1e9 for s in times]
        shares = [200 * r / (a + b) for r, a, b in zip(rates, peaks, peaks[1:])]
        s = statistics.median(times)
        print("| %s | %s | %.0f | %.0f | %.0f | %.0f | %.1f %% | %.1f %% | %.1f %% | %.0f %% |" %
              (os.path.basename(model.rstrip("/")), t or "all", 1000 * s, texts / s, statistics.median(rates),
               statistics.median(peaks), statistics.median(shares), min(shares), max(shares), 100 * used), flush=True)
    if place != model:
        shutil.rmtree(place)
PY
