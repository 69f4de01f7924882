#!/usr/bin/env bash
# Compare the speed of qwick with that of other programs. See --help.
set -eu
repo=$(cd "$(dirname "$0")/.." && pwd)
unset QWICK_MODEL
export QWICK_NO_CONFIG=on
exec python3 - "$repo" "$@" <<'PY'
import argparse, json, os, re, shutil, statistics, subprocess, sys

repo = sys.argv[1]
about = """\
Compare the speed of qwick with that of llama.cpp and programs of its kind. All
take turns, so that a change of the machine's speed hits all. Each round
measures each row once with each program and setting; the order turns from round
to round. A row's figure is the median of its rounds, and of a peer's settings
the best one counts.

Rows of each model: prefill of 512 tokens; decode after 16 and 1,024 tokens;
batches of 8 and 16 sequences after 16 tokens.

A peer is a folder with llama-bench and llama-batched-bench, or one that has
node-llama-cpp of npm in node_modules (prefill and decode after 16 only)."""
ap = argparse.ArgumentParser(
    prog="bench/peers.sh", description=about,
    formatter_class=argparse.RawDescriptionHelpFormatter)
ap.add_argument("models", metavar="MODEL[=FILE]", nargs="+",
                help="qwick's model, and the GGUF file of the same weights for "
                "the peers; a GGUF file alone is both")
ap.add_argument("--peer", metavar="NAME=DIR", action="append", default=[],
                help="a peer (default: the llama-bench in PATH); repeatable")
ap.add_argument("--setting", metavar="OPTIONS", action="append", default=[],
                help="options of llama-bench and llama-batched-bench to try "
                "(default: \"-fa 0\" and \"-fa 1\"); repeatable")
ap.add_argument("--qwick", metavar="FILE", default=os.path.join(repo, "qwick"))
ap.add_argument("--rows", metavar="REGEX", default="", type=re.compile,
                help="only rows whose \"MODEL ROW\" matches")
ap.add_argument("--rounds", type=int, default=3, metavar="N",
                help="rounds (default: 3)")
ap.add_argument("-t", "--threads", type=int, metavar="N",
                default=len(os.sched_getaffinity(0)),
                help="threads of all (default: the usable CPUs)")
ap.add_argument("--isa", metavar="LEVEL", help="qwick's highest level of kernels")
a = ap.parse_args(sys.argv[2:])

GEN = 32
PREFILL, SHORT, DEEP = "prefill 512", "decode at 16", "decode at 1,024"
BATCHES = {"batch of 8": 8, "batch of 16": 16}
ROWS = [PREFILL, SHORT, DEEP, *BATCHES]

def call(args, **more):
    p = subprocess.run(args, stdin=subprocess.DEVNULL, capture_output=True,
                       text=True, **more)
    if p.returncode:
        sys.exit("peers.sh: %s: exit status %d: %s" % (
            " ".join(args), p.returncode, (p.stderr.strip() or "?").split("\n")[-1]))
    return p.stdout

# ---- the programs: each gives (tokens a second, share of the limit or None) ----

def qwick(model, row):
    args = [a.qwick, "bench", "-m", model[0], "--json", "--reps", "3", "--gen",
            str(GEN), "-t", str(a.threads)] + (["--isa", a.isa] if a.isa else [])
    args += ["--prompt-lens", "512" if row == PREFILL else "16",
             "--depths", "1024" if row == DEEP else "16"]
    if row in BATCHES:
        args += ["--batches", str(BATCHES[row])]
    want = {PREFILL: "prefill", SHORT: "decode", DEEP: "decode"}.get(row, "batch")
    for line in json.loads(call(args))["results"]:
        if line["test"] == want:
            return line["tok_s"], line["percent_of_limit"]
    sys.exit("peers.sh: qwick bench shows no %s" % row)

def llama(folder, options):
    def run(model, row):
        common = ["-m", model[1], "-t", str(a.threads), *options]
        if row in BATCHES:
            n = BATCHES[row]
            tool = [os.path.join(folder, "llama-batched-bench"), "-npp", "16",
                    "-ntg", str(GEN), "-npl", str(n), "-c", "4096", "-b", "2048",
                    "--output-format", "jsonl"]
            line = call(tool + common).strip().split("\n")[-1]
            return json.loads(line)["speed_tg"], None
        tool = [os.path.join(folder, "llama-bench"), "-o", "json", "-r", "3"]
        tool += {PREFILL: ["-p", "512", "-n", "0"],
                 SHORT: ["-p", "0", "-n", str(GEN), "-d", "16"],
                 DEEP: ["-p", "0", "-n", str(GEN), "-d", "1024"]}[row]
        return json.loads(call(tool + common))[0]["avg_ts"], None
    return run

def node(folder):
    def run(model, row):
        if row not in (PREFILL, SHORT):
            return None
        script = os.path.join(repo, "bench", "peer_node.mjs")
        out = json.loads(call(["node", script, model[1], str(a.threads), str(GEN)],
                              cwd=folder))
        return out["prefill" if row == PREFILL else "decode"], None
    return run

def programs():
    """[(name, version, setting, measure)]; the first is qwick."""
    version = call([a.qwick, "--version"]).split("\n")[0].split()[-1]
    out = [("qwick", version, "", qwick)]
    peers = [p.partition("=")[::2] for p in a.peer]
    if not peers and (found := shutil.which("llama-bench")):
        peers = [("llama.cpp", os.path.dirname(found))]
    for name, folder in peers:
        tool = os.path.join(folder, "llama-bench")
        package = os.path.join(folder, "node_modules/node-llama-cpp/package.json")
        if os.access(tool, os.X_OK):
            probe = subprocess.run([tool, "--help"], capture_output=True, text=True)
            if "usage" not in probe.stdout + probe.stderr:
                sys.exit("peers.sh: %s: is no llama-bench" % tool)
            for setting in a.setting or ["-fa 0", "-fa 1"]:
                out.append((name, "", setting, llama(folder, setting.split())))
        elif os.path.exists(package):
            with open(package) as f:
                out.append((name, json.load(f)["version"], "", node(folder)))
        else:
            sys.exit("peers.sh: --peer: %s: neither llama-bench nor "
                     "node_modules/node-llama-cpp is there" % folder)
    if len(out) == 1:
        sys.exit("peers.sh: no peer: give --peer NAME=DIR; see --help")
    return out

# ---- the table ----

def text(v):
    return "{:,.0f}".format(v) if v >= 100 else "%.1f" % v

def main():
    all_ = programs()
    models = [(m.partition("=")[0], m.partition("=")[2] or m) for m in a.models]
    jobs = [(m, r) for m in models for r in ROWS
            if a.rows.search("%s %s" % (os.path.basename(m[0]), r))]
    got = {}
    for i in range(a.rounds):
        for model, row in jobs:
            for k in range(len(all_)):
                k = (k + i) % len(all_)
                if (x := all_[k][3](model, row)) is not None:
                    got.setdefault((model, row, k), []).append(x)
    names = list(dict.fromkeys(p[0] for p in all_))
    print("| model, %d threads | row | qwick | of limit |%s" % (
        a.threads, "".join(" %s | qwick / %s |" % (n, n) for n in names[1:])))
    print("|---|---|--:|--:|" + "--:|--:|" * (len(names) - 1))
    for model, row in jobs:
        ours = got[model, row, 0]
        base = statistics.median(x[0] for x in ours)
        cells = [os.path.basename(model[0]), row, text(base),
                 "%.0f%%" % statistics.median(x[1] for x in ours)]
        for name in names[1:]:
            best = max(((statistics.median(x[0] for x in got[model, row, k]), k)
                        for k in range(len(all_))
                        if all_[k][0] == name and (model, row, k) in got),
                       default=None)
            if best:
                setting = all_[best[1]][2]
                cells += [text(best[0]) + (" (%s)" % setting if setting else ""),
                          "%.2f" % (base / best[0])]
            else:
                cells += ["-", "-"]
        print("| %s |" % " | ".join(cells))
    print("\nMedians; rounds in turn: %d. %s." % (a.rounds, "; ".join(
        dict.fromkeys(("%s %s" % p[:2]).strip() for p in all_))))

main()
PY
