#!/usr/bin/env python3
"""The same command gives the same bytes, whatever must not matter.

Usage: determinism.py QWICK DIR [--runs N] [--seed S] [--only WORD]

--runs N: N runs of each check (default 100). In each run chance decides what the
manual says does not matter:

  exact     --exact: threads, chunk size, cache hits, --preload, guesses of --lookup,
            and whether generate, --samples or a batch answers, with any companions,
            --max-batch and arrival times: tokens, text and the log-probabilities of
            all tokens are equal
  models    --exact on other kinds of models: threads, chunk size, companions
  default   without --exact: generate with any number of threads
  batch     without --exact, but with --seed: any number of threads, and records that
            arrive at any time
  judge     embed, score, choose and logits with --exact: threads, chunk size,
            companions
  quantize  the bytes of a quantized checkpoint, with any number of threads

Ends with status 1 after up to twenty lines about runs that differed.
"""

import json
import os
import random
import shutil
import subprocess
import time

import injection
import tally

PROMPTS = ["list files", "show disk usage of äöü 😀", injection.LONG + "how?",
           injection.LONG + "what is in directory 3?"]
MODELS = injection.ROOT + "/tests/golden/models/"


def essence(answer):
    """What must be equal of two answers in JSON. answer: the object, or its bytes,
    which are empty after an error."""
    if isinstance(answer, bytes):
        answer = json.loads(answer or b"{}")
    return {key: answer.get(key) for key in ("text", "thinking", "tokens", "finish_reason",
                                             "logprobs", "seed")}


class Determinism(tally.Tally):
    def __init__(self, qwick, folder, chance, runs):
        super().__init__()
        self.qwick, self.folder, self.chance, self.runs = qwick, folder, chance, runs

    def compare(self, check, same, about):
        self.note(check, about, None if same else "differs")

    def run(self, arguments, pieces=()):
        """pieces: bytes for standard input, with pauses between them."""
        env = {"HOME": self.folder, "LC_ALL": "C.UTF-8", "PATH": os.environ["PATH"]}
        process = subprocess.Popen([self.qwick, *arguments], env=env, cwd=self.folder,
                                   stdin=subprocess.PIPE if pieces else subprocess.DEVNULL,
                                   stdout=subprocess.PIPE,
                                   stderr=subprocess.PIPE)
        try:
            for piece in pieces:
                process.stdin.write(piece)
                process.stdin.flush()
                if self.chance.random() < 0.5:
                    time.sleep(self.chance.uniform(0, 0.02))
        except BrokenPipeError:
            pass
        out, err = process.communicate(timeout=injection.LIMIT)
        if process.returncode:
            self.bad.append("%s: status %d: %r" % (arguments, process.returncode, err[:300]))
        return out

    def threads(self):
        return ["-t", str(self.chance.choice([1, 2, 3, 4, 7]))]

    def any_way(self):
        """Options without an effect on exact results."""
        options = self.threads()
        if self.chance.random() < 0.7:
            options += ["--prefill-chunk", str(self.chance.choice([1, 2, 3, 7, 31, 64, 65, 500]))]
        if self.chance.random() < 0.2:
            options.append("--preload")
        return options

    def exact(self):
        common = ["-n", "12", "--temp", "1", "--think", "off", "--logprobs", "3", "--exact"]
        wants = []
        for i, prompt in enumerate(PROMPTS):
            out = self.run(["generate", "-q", "--json", "--seed", str(i), "-t", "1", *common,
                            prompt])
            wants.append(essence(out))
        sampled = [json.loads(line) for line in self.run(
            ["generate", "-q", "--json", "--seed", "0", "--samples", "5", *common,
             PROMPTS[0]]).splitlines()]
        for _ in range(self.runs):
            way = self.chance.choice(["generate", "generate", "cache", "lookup", "samples", "batch",
                                      "batch"])
            i = self.chance.randrange(len(PROMPTS))
            options = [*common, *self.any_way()]
            if way == "batch":
                self.companions(wants, options)
                continue
            if way == "samples":
                k = self.chance.randrange(5)
                out = self.run(["generate", "-q", "--json", "--seed", str(sampled[k]["seed"]),
                                *options, PROMPTS[0]])
                self.compare("exact", essence(out) == essence(sampled[k]),
                          "sample %d, %s" % (k, options))
                continue
            if way == "cache":
                if self.chance.random() < 0.3:
                    shutil.rmtree(self.folder + "/cache", ignore_errors=True)
                options.append("--prefix-cache=cache")
            if way == "lookup":
                options += ["--lookup", str(self.chance.randint(1, 8))]
            out = self.run(["generate", "-q", "--json", "--seed", str(i), *options, PROMPTS[i]])
            self.compare("exact", essence(out) == wants[i],
                      "prompt %d, %s" % (i, options))

    def companions(self, wants, options):
        """A batch in which the prompts have random companions and places."""
        records = [{"prompt": p, "seed": i, "id": i} for i, p in enumerate(PROMPTS)]
        records += [{"prompt": "companion %d" % self.chance.randrange(1000),
                     "max_tokens": self.chance.randint(1, 20)}
                    for _ in range(self.chance.randrange(6))]
        self.chance.shuffle(records)
        options = [*options, "--max-batch", str(self.chance.choice([1, 2, 3, 16]))]
        if self.chance.random() < 0.3:
            options.append("--prefix-cache=cache")
        if self.chance.random() < 0.3:
            options.append("--unordered")
        out = self.run(["batch", "-q", *options],
                       [json.dumps(r).encode() + b"\n" for r in records])
        answers = {a["id"]: essence(a) for a in map(json.loads, out.splitlines()) if "id" in a}
        self.compare("exact", [answers.get(i) for i in range(len(wants))] == wants,
                  "batch %s" % options)

    def models(self):
        names = ("tied-bf16", "mlx4", "moe", "qwen35-tied", "gemma3-gqa", "yarn", "f16")
        ids = [(i * 37 + 5) % 290 for i in range(90)]
        common = ["-q", "--exact", "--logprobs", "2", "-n", "6", "--temp", "1"]
        wants = {}
        for _ in range(self.runs):
            name = self.chance.choice(names)
            if not os.path.isdir(MODELS + name):
                continue
            model = [*common, "-m", MODELS + name]
            if name not in wants:
                out = self.run(["generate", "--json", "--seed", "3", "-t", "1", *model,
                                "--prompt-ids", ",".join(map(str, ids))])
                wants[name] = essence(out)
            records = [{"prompt_ids": ids, "seed": 3, "id": 0}]
            records += [{"prompt_ids": ids[:self.chance.randint(1, 80)]}
                        for _ in range(self.chance.randrange(4))]
            self.chance.shuffle(records)
            options = self.any_way()
            out = self.run(["batch", *model, *options],
                           [json.dumps(r).encode() + b"\n" for r in records])
            got = [essence(a) for a in map(json.loads, out.splitlines()) if a.get("id") == 0]
            self.compare("models", got == [wants[name]], "%s, %d records, %s"
                      % (name, len(records), options))

    def default(self):
        wants = {}
        for _ in range(self.runs):
            i = self.chance.randrange(len(PROMPTS))
            sampling = self.chance.choice([["--greedy"], ["--temp", "1", "--seed", "5"]])
            command = ["generate", "-q", "--json", "--seed", "9", "-n", "20", "--logprobs", "2",
                       *sampling, PROMPTS[i]]
            key = str(command)
            if key not in wants:
                wants[key] = essence(self.run([*command, "-t", "1"]))
            options = self.threads()
            self.compare("default", essence(self.run([*command, *options])) == wants[key],
                      "prompt %d, %s" % (i, options))

    def batch(self):
        records = [json.dumps({"prompt": PROMPTS[i % 3] + " %d" % i, "n": 1 + i % 2}).encode()
                   + b"\n" for i in range(12)]
        command = ["batch", "-q", "--seed", "2", "--temp", "1", "-n", "10", "--logprobs", "1"]

        def answers(options, pieces):
            return [essence(json.loads(line))
                    for line in self.run([*command, *options], pieces).splitlines()]

        want = answers(["-t", "1"], [b"".join(records)])
        for _ in range(self.runs):
            options = self.threads()
            self.compare("batch", answers(options, records) == want, options)

    def judge(self):
        commands = {
            "embed": ["embed", "-q", "--exact", "list files", injection.LONG],
            "score": ["score", "-q", "--exact", "--json", injection.LONG],
            "choose": ["choose", "-q", "--exact", "--json", "-a", "yes", "-a", "no", "is it"],
            "logits": ["logits", "-q", "--exact", "--json", injection.LONG],
        }
        wants = {name: self.judged(self.run([*c, "-t", "1"])) for name, c in commands.items()}
        for _ in range(self.runs):
            name = self.chance.choice(list(commands))
            options = self.any_way()
            command = commands[name]
            if name == "embed" and self.chance.random() < 0.5:
                # with companions; then the vectors of the first two are compared
                options += ["companion %d" % i for i in range(self.chance.randint(1, 5))]
                options += ["--max-batch", str(self.chance.choice([1, 2, 5]))]
            got = self.judged(self.run([*command, *options]))
            self.compare("judge", got[:len(wants[name])] == wants[name], "%s %s" % (name, options))

    @staticmethod
    def judged(out):
        return [injection.without_times(json.loads(line)) for line in out.splitlines()]

    def quantize(self):
        wants = {}
        for number in range(max(2, self.runs // 4)):
            how = self.chance.choice([["--bits", "4"], ["--bits", "3", "--scales", "lsq"],
                                      ["--format", "gguf", "--type", "Q8_0"],
                                      ["--format", "gguf"]])
            options = self.threads() if number >= 4 else ["-t", "1"]
            self.run(["quantize", "-m", injection.TINY, "-o", "q", *how, *options])
            got = injection.content_of(self.folder + "/q")
            shutil.rmtree(self.folder + "/q", ignore_errors=True)
            if os.path.exists(self.folder + "/q"):
                os.remove(self.folder + "/q")
            want = wants.setdefault(str(how), got)
            self.compare("quantize", got == want, "%s %s" % (how, options))


CHECKS = ("exact", "models", "default", "batch", "judge", "quantize")


def main():
    args = tally.begin(("qwick", "folder"), {"runs": 100, "seed": 1, "only": ""})
    checks = Determinism(args.qwick, args.folder, random.Random(args.seed), args.runs)
    for check in args.only.split(",") if args.only else CHECKS:
        getattr(checks, check)()
    n = sum(checks.counts.values())
    tally.end(args, "%d comparisons, seed %d: %s" % (n, args.seed, checks.by_name()),
              checks.bad, n)


if __name__ == "__main__":
    main()
