#!/usr/bin/env python3
"""Compare qwick's schema compiler with another validator.

usage: check_schemas.py SCHEMA_SERVER [--count N] [--seed N] [--walks N]
                        [--samples N] [--cuts N]

For each generated schema: random walks through the automaton must be valid
documents (soundness); documents of a sampler that the validator accepts must be
accepted (completeness), also token by token, cut into tokens in several ways;
and spoiled documents that it refuses must be refused.
SCHEMA_SERVER is build/tests/schema_server. Exit status 0: no difference; 1:
differences, which are printed; 77: python3-jsonschema is not installed.
"""
import argparse
import json
import random
import sys

from server import Server

try:
    import schemas
except ImportError as e:
    print("SKIP: %s" % e)
    sys.exit(77)


class Check:
    def __init__(self, args):
        self.args = args
        self.server = Server(args.program)
        self.failures = 0
        self.counts = dict.fromkeys(
            ["schemas", "refused", "walks", "unfinished", "samples", "valid",
             "spoiled"], 0)

    def fail(self, what, seed, schema, doc):
        self.failures += 1
        print("%s (schema %d)\n  schema   %s\n  document %s" %
              (what, seed, schema, doc))

    def check_walks(self, seed, text, schema, indent):
        for i in range(self.args.walks):
            raw = self.server.walk(seed * 1000 + i, 200)
            self.counts["walks"] += 1
            if raw is None:
                self.counts["unfinished"] += 1
                continue
            try:
                doc = raw.decode()
                good = schemas.is_valid(text, doc)
                again = schemas.repeats_key(doc, schema)
            except ValueError:
                self.fail("no JSON", seed, text, raw)
                continue
            if not good:
                self.fail("unsound", seed, text, doc)
            if again:
                self.fail("repeats %s" % again, seed, text, doc)
            if indent > 0 and "\n" in doc and \
                    doc.count("\n") != json.dumps(
                        json.loads(doc, object_pairs_hook=Pairs),
                        indent=indent).count("\n"):
                self.fail("wrong lines", seed, text, doc)

    def check_samples(self, seed, text, schema):
        r = random.Random(seed)
        for i in range(self.args.samples):
            doc = schemas.sample(schema, seed * 1000 + i)
            self.counts["samples"] += 1
            good = schemas.is_valid(text, doc)
            if good:
                self.counts["valid"] += 1
            if good != self.server.matches(doc):
                self.fail("incomplete" if good else "unsound", seed, text, doc)
            for k in range(self.args.cuts if good else 0):
                answer = self.server.matches_tokens(doc, k)
                if answer != "yes":
                    self.fail(answer, seed, text, doc)
            bad = schemas.spoil(doc, r)
            try:
                good = schemas.is_valid(text, bad)
            except ValueError:
                good = False
            if not good:
                self.counts["spoiled"] += 1
                if self.server.matches(bad):
                    self.fail("unsound", seed, text, bad)

    def check_schema(self, seed):
        schema = schemas.make_schema(seed)
        text = json.dumps(schema, ensure_ascii=seed % 2 == 0)
        indent = seed % 5 if seed % 10 < 5 else -(seed % 10 == 5)
        self.counts["schemas"] += 1
        answer = self.server.schema(text)
        if not answer.startswith("ok"):
            self.counts["refused"] += 1
            if "nothing satisfies" not in answer and \
                    "no text can match" not in answer:
                self.fail("refused: " + answer, seed, text, "")
            elif any(schemas.is_valid(text, schemas.sample(schema, k))
                     for k in range(20)):
                self.fail("refused: " + answer, seed, text, "but it has some")
            return
        self.check_samples(seed, text, schema)
        if indent:
            answer = self.server.schema(text, indent)
            if not answer.startswith("ok"):
                self.fail(answer, seed, text, "with an indent")
                return
        self.check_walks(seed, text, schema, indent)

    def run(self):
        first = self.args.seed
        for seed in range(first, first + self.args.count):
            self.check_schema(seed)
        print(", ".join("%s %d" % c for c in self.counts.items()))
        if self.counts["valid"] < self.counts["samples"] / 4:
            print("too few valid samples")
            self.failures += 1
        if self.counts["unfinished"] > self.counts["walks"] / 10:
            print("too many walks without an end")
            self.failures += 1
        return 1 if self.failures else 0


class Pairs(dict):
    """An object that keeps members with equal names."""

    def __init__(self, pairs):
        super().__init__((k + "\0" * i, v) for i, (k, v) in enumerate(pairs))


def main():
    p = argparse.ArgumentParser()
    p.add_argument("program")
    for name, value in ("count", 100), ("seed", 1), ("walks", 5), \
            ("samples", 5), ("cuts", 2):
        p.add_argument("--" + name, type=int, default=value)
    return Check(p.parse_args()).run()


if __name__ == "__main__":
    sys.exit(main())
