#!/usr/bin/env python3
"""Turn a checkout of tldr-pages/tldr (CC-BY-4.0) into tldr.jsonl.

Usage: prepare_tldr.py TLDR_CHECKOUT OUT.jsonl

One JSON object a page: {"cmd", "summary", "languages", "examples": [[description, command], …]}.
Only the English pages of the platforms `common` and `linux` are read, without the pages that
merely name an alias. `languages` counts the translations, a rough measure of how widely a command
is used.
"""

import json
import re
import sys
from pathlib import Path

PLATFORMS = ("common", "linux")
NOT_SUMMARY = re.compile(r"> (More information|See also|Note)")


def clean_command(text):
    """`tar xf {{a|b}} {{[-C|--directory]}} {{dir}}` becomes `tar xf a -C dir`."""
    text = re.sub(r"\{\{\[([^|\]]*)\|[^\]]*\]\}\}", r"\1", text)  # {{[-s|--long]}} -> -s
    text = re.sub(r"\{\{([^{}|]*)\|[^{}]*\}\}", r"\1", text)  # {{a|b|c}} -> a
    text = text.replace("{{", "").replace("}}", "")
    return text.replace("\\{", "{").replace("\\}", "}").strip()


def clean_description(text):
    """A description without markup, mnemonics ([c]reate) and the final colon."""
    text = re.sub(r"\[(\w+)\]", r"\1", text)
    return re.sub(r"[`*]", "", text).strip().rstrip(":").strip()


def read_page(path):
    """One page as an object; "cmd" is None where the page has no title."""
    cmd, summary, examples, pending = None, [], [], None
    for line in path.read_text(encoding="utf-8").splitlines():
        if line.startswith("# "):
            cmd = line[2:].strip()
        elif line.startswith("> "):
            if not NOT_SUMMARY.match(line):
                summary.append(re.sub(r"[`*]", "", line[2:]).strip())
        elif line.startswith("- "):
            pending = clean_description(line[2:])
        elif line.startswith("`") and pending:
            examples.append([pending, clean_command(line.strip().strip("`"))])
            pending = None
    return {"cmd": cmd, "summary": " ".join(summary), "examples": examples}


def read_pages(root):
    """Yield the pages that are kept, platform by platform in order of their names."""
    for platform in PLATFORMS:
        for path in sorted((root / "pages" / platform).glob("*.md")):
            page = read_page(path)
            page["languages"] = sum(1 for _ in root.glob(f"pages.*/{platform}/{path.name}"))
            if page["cmd"] and page["examples"] and "is an alias" not in page["summary"]:
                yield page


def main():
    if len(sys.argv) != 3 or sys.argv[1].startswith("-"):
        sys.exit(__doc__)
    n_pages = n_examples = 0
    with open(sys.argv[2], "w", encoding="utf-8") as out:
        for page in read_pages(Path(sys.argv[1])):
            out.write(json.dumps(page, ensure_ascii=False) + "\n")
            n_pages += 1
            n_examples += len(page["examples"])
    print(f"{n_pages} pages, {n_examples} examples -> {sys.argv[2]}")


if __name__ == "__main__":
    main()
