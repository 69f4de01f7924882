#!/usr/bin/env bash
# Compare the speed of two qwick binaries, OLD and NEW. See --help.
set -eu
repo=$(cd "$(dirname "$0")/.." && pwd)
unset QWICK_MODEL OPENBLAS_CORETYPE
export QWICK_NO_CONFIG=on
exec python3 - "$repo" "$@" <<'PY'
import argparse, json, os, re, shutil, signal, statistics, subprocess, sys
import tempfile, time

repo = sys.argv[1]
about = """\
Compare the speed of two qwick binaries. The two take turns, so that a change of
the machine's speed hits both. Each round measures each row once with each
binary; the order alternates from round to round. The ratio NEW / OLD of a row
is the median of the rounds' ratios. Rows below the bound are measured again, as
many rounds as before; all their rounds then count.

Rows of each model: prefill of 512 tokens; decode at depths 16 and 1024; batches
of 8 and 16 at depth 16; embeddings of 256 short texts, with the time to start.

Exit status: 0 all rows reach the bound, 1 some do not, 2 wrong usage, 3 a
measurement failed."""
ap = argparse.ArgumentParser(
    prog="bench/compare.sh", description=about,
    formatter_class=argparse.RawDescriptionHelpFormatter)
ap.add_argument("old", metavar="OLD", help="the binary to compare with")
ap.add_argument("new", metavar="NEW", help="the binary to judge")
ap.add_argument("--bound", type=float, default=0.98, metavar="X",
                help="least ratio NEW / OLD of each row (default: 0.98)")
ap.add_argument("--rounds", type=int, default=3, metavar="N",
                help="rounds (default: 3)")
ap.add_argument("--models", metavar="DIR",
                help="each folder in DIR with a config.json is a model, except "
                "*-f32, and each GGUF file (default: build/bench-models, which "
                "bench/run.sh makes; without it the demo model in bf16, 8 and "
                "4 bits)")
ap.add_argument("--rows", metavar="REGEX", default="",
                help="only rows whose \"MODEL ROW\" matches, such as \"decode\" "
                "or \"4bit batch\"")
ap.add_argument("-t", "--threads", type=int, metavar="N",
                help="threads (default: the binaries')")
ap.add_argument("--isa", metavar="LEVEL", help="highest level of kernels")
ap.add_argument("--reps", type=int, default=3, metavar="N",
                help="timed runs of each bench call (default: 3)")
ap.add_argument("--gen", type=int, default=32, metavar="N",
                help="decode steps of a timed run (default: 32)")
ap.add_argument("--texts", type=int, default=256, metavar="N",
                help="texts to embed (default: 256)")
ap.add_argument("--json", metavar="FILE",
                help="also write every measurement to FILE, after each round")

def usage(text):
    sys.stderr.write("compare.sh: %s; try --help\n" % text)
    sys.exit(2)

ap.error = usage
a = ap.parse_args(sys.argv[2:])
for name in "rounds", "reps", "gen", "texts":
    if getattr(a, name) < 1:
        usage("--%s: %d is less than 1" % (name, getattr(a, name)))
if not 0 <= a.bound < float("inf"):
    usage("--bound: %g: must be a number of at least 0" % a.bound)
try:
    wanted = re.compile(a.rows)
except re.error as x:
    usage("--rows: %r: %s" % (a.rows, x))

def fail(text):
    sys.stderr.write("\ncompare.sh: %s\n" % text)
    sys.exit(3)

binaries = {"old": a.old, "new": a.new}
for side, path in binaries.items():
    found = shutil.which(path)
    if not found:
        usage("%s: not an executable program" % path)
    binaries[side] = os.path.abspath(found)

def call(args, stdin=subprocess.DEVNULL):
    """Run a command and return its output and its wall time in seconds."""
    start = time.monotonic()
    p = subprocess.run(args, stdin=stdin, stdout=subprocess.PIPE,
                       stderr=subprocess.PIPE)
    wall = time.monotonic() - start
    if p.returncode:
        err = p.stderr.decode(errors="replace").strip().split("\n")[-1]
        fail("%s: exit status %d: %s" % (" ".join(args), p.returncode, err))
    return p.stdout, wall

# ---- the models ----

scratch = tempfile.mkdtemp(prefix="qwick-compare-")

def demo_models():
    base = os.path.join(repo, "models", "demo")
    models = [("demo-bf16", base)]
    for bits in "8", "4":
        out = os.path.join(scratch, "demo-%sbit" % bits)
        call([binaries["new"], "quantize", "-q", "-m", base, "-o", out,
              "--bits", bits])
        models.append(("demo-%sbit" % bits, out))
    return models

def find_models():
    place = a.models or os.path.join(repo, "build", "bench-models")
    if not a.models and not os.path.isdir(place):
        print("no %s: the demo model, which stays in the caches" % place)
        return demo_models()
    try:
        names = sorted(os.listdir(place))
    except OSError as x:
        usage("--models: %s: %s" % (place, x.strerror))
    models = [(n, os.path.join(place, n)) for n in names
              if n.endswith(".gguf") or not n.endswith("-f32") and
              os.path.isfile(os.path.join(place, n, "config.json"))]
    if not models:
        usage("--models: %s: no GGUF file, and no folder with a config.json" %
              place)
    return models

# ---- measurements ----

common = []
if a.threads:
    common += ["-t", str(a.threads)]
if a.isa:
    common += ["--isa", a.isa]
texts = [" ".join("item %d of list %d, shelf %d" % (i * 7 + k, i, k)
                  for k in range(2)) for i in range(a.texts)]
lines = os.path.join(scratch, "texts")
with open(lines, "w") as f:
    f.write("\n".join(texts) + "\n")

def bench(binary, model, prompts, depths, batches):
    args = [binary, "bench", "-m", model, "--json", "--reps", str(a.reps),
            "--gen", str(a.gen), "--prompt-lens", prompts, "--depths", depths]
    args += ["--batches", batches] if batches else []
    out, _ = call(args + common)
    try:
        return {(r["test"], r.get("tokens", r.get("depth")), r["batch"]):
                float(r["tok_s"]) for r in json.loads(out)["results"]}
    except (ValueError, KeyError, TypeError) as x:
        fail("%s: its JSON cannot be read: %r" % (" ".join(args), x))

def embed(binary, model):
    with open(lines) as f:
        _, wall = call([binary, "embed", "-q", "-m", model, "--lines",
                        "--format", "f32"] + common, f)
    return len(texts) / wall

# A group is one call of a binary. It gives the rows of its keys.
SHORT = {("prefill", 512, 1): "prefill 512", ("decode", 16, 1): "decode 16",
         ("batch", 16, 8): "batch 8", ("batch", 16, 16): "batch 16"}
DEEP = {("decode", 1024, 1): "decode 1024"}
GROUPS = [
    ("short", SHORT, lambda b, m: bench(b, m, "512", "16", "8,16")),
    ("deep", DEEP, lambda b, m: bench(b, m, "16", "1024", None)),
    ("embed", {"embed": "embed %d" % a.texts},
     lambda b, m: {"embed": embed(b, m)}),
]

class Row:
    def __init__(self, model, name):
        self.model, self.name = model, name
        self.speed = {"old": [], "new": []}

    def ratios(self):
        return [n / o for o, n in zip(self.speed["old"], self.speed["new"])]

    def ratio(self):
        return statistics.median(self.ratios())

    def low(self):
        return self.ratio() < a.bound

def measure(group, first):
    """One round of a group: a measurement with each binary."""
    name, path, keys, rows, run = group
    for side in ("old", "new") if first else ("new", "old"):
        got = run(binaries[side], path)
        for key, row in zip(keys, rows):
            if got.get(key, 0) <= 0:
                fail("%s: reports no speed of %s %s" %
                     (binaries[side], name, row.name))
            row.speed[side].append(got[key])

def rounds(groups, n, label, done):
    """Measure n rounds; call done after each."""
    for i in range(n):
        for j, g in enumerate(groups):
            if sys.stderr.isatty():
                sys.stderr.write("\r\033[K%s %d of %d, %s" %
                                 (label, i + 1, n, g[0]))
                sys.stderr.flush()
            measure(g, (i + j) % 2 == 0)
        done()
    if sys.stderr.isatty():
        sys.stderr.write("\r\033[K")

def write_json(path, rows):
    """Write the file anew, so that an interruption loses one round at most."""
    try:
        with open(path + ".part", "w") as f:
            json.dump([{"model": r.model, "row": r.name, "old": r.speed["old"],
                        "new": r.speed["new"], "ratio": r.ratio()}
                       for r in rows if r.speed["new"]], f)
            f.write("\n")
        os.replace(path + ".part", path)
    except OSError as x:
        fail("%s: %s" % (path, x.strerror))

def speed(v):
    return "{:,.0f}".format(v) if v >= 1000 else "%.4g" % v

def main():
    groups = []
    for name, path in find_models():
        for _, keys, run in GROUPS:
            keys = {k: r for k, r in keys.items()
                    if wanted.search("%s %s" % (name, r))}
            if keys:
                groups.append((name, path, list(keys),
                               [Row(name, r) for r in keys.values()], run))
    if not groups:
        usage("--rows: no row matches %r" % a.rows)
    rows = [r for g in groups for r in g[3]]
    done = (lambda: write_json(a.json, rows)) if a.json else lambda: None
    rounds(groups, a.rounds, "round", done)
    again = [g for g in groups if any(r.low() for r in g[3])]
    if again:
        print("measured again: %s" % ", ".join(
            "%s %s" % (r.model, r.name) for g in again for r in g[3]
            if r.low()), flush=True)
        rounds(again, a.rounds, "again, round", done)
    print("| model | row | OLD tok/s | NEW tok/s | NEW / OLD | least, most | "
          "rounds | |\n|---|---|--:|--:|--:|--:|--:|---|")
    for r in rows:
        x = r.ratios()
        unit = " texts/s" if r.name.startswith("embed") else ""
        old, new = (statistics.median(r.speed[s]) for s in ("old", "new"))
        print("| %s | %s | %s%s | %s%s | %.3f | %.3f, %.3f | %d | %s |" %
              (r.model, r.name, speed(old), unit, speed(new), unit, r.ratio(),
               min(x), max(x), len(x),
               "below %g" % a.bound if r.low() else ""))
    print()
    if a.rounds > 1:
        spread = statistics.median(
            max(r.ratios()) - min(r.ratios()) for r in rows)
        print("Median spread of a row's ratios: %.1f%%.%s" % (
            100 * spread, " The machine is noisy: repeat with more rounds or "
            "when it is quiet." if spread > 0.05 else ""))
    bad = [r for r in rows if r.low()]
    if bad:
        print("FAIL: %d of %d rows below %g." % (len(bad), len(rows), a.bound))
        return 1
    print("All %d rows reach %g." % (len(rows), a.bound))
    return 0

try:
    status = main()
except KeyboardInterrupt:
    status = 128 + signal.SIGINT
finally:
    shutil.rmtree(scratch, ignore_errors=True)
sys.exit(status)
PY
