#!/usr/bin/env python3
"""Write the texts of documentation packages, for train.py: one JSON string a line.

usage: corpus.py DIR OUT

DIR has Debian packages of documentation, unpacked with `dpkg -x`. The filters below are
made for these packages of Debian 12: bash-doc cmake-doc debian-policy debian-reference-en
developers-reference git-doc glibc-doc linux-doc-6.1 manpages manpages-dev maxima-doc
octave-doc perl-doc postgresql-doc-15 python3.11-doc rust-doc sqlite3-doc vim-doc
vim-runtime zsh-doc.

OUT.train has 48 of 50 texts; OUT.calibrate and OUT.heldout have one each, chosen by a
hash of the text. Each text is in one of the three only.
"""
import gzip
import hashlib
import html
import json
import re
import sys
from html.parser import HTMLParser
from pathlib import Path

BLOCKS = {"p", "div", "li", "tr", "pre", "h1", "h2", "h3", "h4", "h5", "dt", "dd", "br", "table", "ul", "ol"}
UNSEEN = {"script", "style", "nav", "head", "header", "footer", "svg"}


class Text(HTMLParser):
    def __init__(self):
        super().__init__()
        self.parts, self.unseen, self.pre = [], 0, 0

    def handle_starttag(self, tag, attrs):
        self.unseen += tag in UNSEEN
        self.pre += tag == "pre"
        if tag in BLOCKS:
            self.parts.append("\n")

    def handle_endtag(self, tag):
        self.unseen -= tag in UNSEEN and self.unseen > 0
        self.pre -= tag == "pre" and self.pre > 0
        if tag in BLOCKS:
            self.parts.append("\n")

    def handle_data(self, data):
        if not self.unseen:
            self.parts.append(data if self.pre else re.sub(r"\s+", " ", data))


def from_html(s):
    p = Text()
    p.feed(s)
    return "".join(p.parts)


def from_roff(s):
    out = []
    for line in s.split("\n"):
        if re.match(r"^[.']\s*\\\"", line):
            continue
        m = re.match(r"^[.'](SH|SS|TH|B|I|BR|IR|RB|RI|BI|IB|TP|Nm|Fl|Ar|Sh|Xr|It)\b\s*(.*)", line)
        if m:
            line = ("\n" if m[1] in ("SH", "SS", "TH", "Sh") else "") + m[2].replace('"', "")
        elif re.match(r"^[.']", line):
            line = ""
        line = re.sub(r"\\f(\(..|\[[^\]]*\]|.)", "", line)
        line = re.sub(r"\\[(]..|\\\[[^\]]*\]", lambda m: {"\\(aq": "'", "\\(em": "-", "\\(bu": "*"}.get(m[0], ""), line)
        out.append(line.replace("\\-", "-").replace("\\&", "").replace("\\e", "\\"))
    return "\n".join(out)


def main():
    src, out = Path(sys.argv[1]), sys.argv[2]
    files = {k: open(f"{out}.{k}", "w", encoding="utf-8") for k in ("train", "calibrate", "heldout")}
    seen, sizes = set(), dict.fromkeys(files, 0)
    for path in sorted(p for p in src.rglob("*") if p.is_file() and not p.is_symlink()):
        name = path.name.removesuffix(".gz")
        ending = name.rsplit(".", 1)[-1]
        man = re.fullmatch(r"[1-9]\w*", ending)
        if not man and ending not in ("html", "txt", "pod", "rst"):
            continue
        if "genindex" in name or "print.html" == name or ("rust" in str(path) and ("std/" in str(path) or "core/" in str(path) or "alloc/" in str(path))):
            continue
        raw = path.read_bytes()
        try:
            s = (gzip.decompress(raw) if path.suffix == ".gz" else raw).decode("utf-8")
        except (UnicodeDecodeError, OSError):
            continue
        s = from_html(s) if ending == "html" else from_roff(s) if man else s
        s = re.sub(r"[ \t]+\n", "\n", html.unescape(s))
        s = re.sub(r"\n{3,}", "\n\n", s)
        # A paragraph that another text had already is a menu or a licence.
        kept = []
        for par in s.split("\n\n"):
            key = hashlib.md5(par.strip().encode()).digest()
            if len(par) < 40 or key not in seen:
                kept.append(par)
            seen.add(key)
        s = "\n\n".join(kept).strip()[:200000]
        if len(s) < 400:
            continue
        n = int(hashlib.sha256(s.encode()).hexdigest(), 16) % 50
        kind = {0: "heldout", 1: "calibrate"}.get(n, "train")
        files[kind].write(json.dumps(s, ensure_ascii=False) + "\n")
        sizes[kind] += len(s)
    print(sizes)


main()
