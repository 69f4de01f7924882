"""What the sweeps of this folder share: their command lines, a fresh folder, counts of
checks, and the lines at the end."""

import argparse
import collections
import os
import shutil
import sys


class Tally:
    """Counts of checks by name, and a line for each that is wrong."""

    def __init__(self):
        self.counts, self.bad = collections.Counter(), []

    def note(self, check, about, why):
        self.counts[check] += 1
        if why:
            self.bad.append("%s: %s: %s" % (check, about, why))

    def by_name(self):
        return ", ".join("%s %d" % item for item in self.counts.items())


def begin(paths, options):
    """Parse the command line: paths, the last of which is made an empty folder, and
    options with their defaults, whose types the values get."""
    parser = argparse.ArgumentParser(description="see the beginning of the file")
    for path in paths:
        parser.add_argument(path, type=os.path.abspath)
    for name, default in options.items():
        how = {"action": "store_true"} if default is False else \
            {"type": type(default), "default": default}
        parser.add_argument("--" + name, **how)
    args = parser.parse_args()
    shutil.rmtree(args.folder, ignore_errors=True)
    os.makedirs(args.folder)
    return args


def end(args, line, bad, n_checks, most=20):
    """Print the last lines, of wrong ones at most this many. Remove the folder, and exit:
    1 if anything is wrong, or if nothing was checked."""
    print("%s; %d wrong" % (line, len(bad)))
    for text in bad[:most]:
        print(text)
    shutil.rmtree(args.folder, ignore_errors=True)
    sys.exit(bool(bad) or not n_checks)
