"""The demo model's training texts: pairs of a request in plain English and its answer.

Two sources lie beside this file. tldr.jsonl (made by prepare_tldr.py) has pages of commands with
described examples; shell_tasks_*.jsonl has tasks, each an answer and several phrasings of the
request, both with slots such as {file:log} or {port} that are filled with random values.

All randomness comes from the random.Random that a function is given. The order of its draws is
part of the result: the published model belongs to exactly this order.
"""

import json
import re
from pathlib import Path

HERE = Path(__file__).parent

# Commands that are asked for without naming the tool, and that every pass repeats.
CORE_COMMANDS = frozenset(
    """
    alias apropos apt apt-get awk base64 basename bash bc bzip2 cal cat cd chgrp chmod chown
    clear cmp column comm cp cron crontab csplit curl cut date dd df diff dig dirname dmesg
    docker du echo egrep env expand export fgrep file find fold free fsck fuser fuse gcc git
    git-add git-bisect git-branch git-checkout git-clone git-commit git-diff git-fetch git-grep
    git-init git-log git-merge git-pull git-push git-rebase git-remote git-reset git-restore
    git-rm git-show git-stash git-status git-switch git-tag gpg grep groupadd gunzip gzip head
    history hostname htop id ifconfig install ip ip-address ip-route jobs journalctl jq kill
    killall less link ln locate ls lsblk lscpu lsof make man md5sum mkdir mkfs mktemp mount mv
    nano nc netstat nice nl nohup nproc od openssl passwd paste patch pgrep pidof ping pip pkill
    printf ps pwd python readlink renice rename rm rmdir rsync scp screen sed seq sha256sum
    shred shuf sleep sort split ss ssh ssh-copy-id ssh-keygen stat strace strings su sudo sync
    sysctl systemctl tac tail tar tee test time timeout tmux top touch tr traceroute tree
    truncate type umount uname unexpand uniq unzip uptime useradd usermod vim vmstat w wait
    watch wc wget whatis whereis which who whoami xargs xxd yes zcat zip
    """.split()
)

# What people say for the words of tldr descriptions; one is drawn.
SYNONYMS = {
    "display": ["show", "print", "display", "list"],
    "list": ["list", "show", "display"],
    "show": ["show", "display", "print"],
    "print": ["print", "show", "display"],
    "delete": ["delete", "remove"],
    "remove": ["remove", "delete"],
    "directory": ["directory", "folder"],
    "directories": ["directories", "folders", "dirs"],
    "archive": ["archive", "archive file"],
    "create": ["create", "make"],
    "execute": ["run", "execute"],
    "search": ["search", "look"],
    "file": ["file", "file"],
    "compressed": ["compressed", "zipped"],
    "extract": ["extract", "unpack"],
    "start": ["start", "launch"],
    "kill": ["kill", "stop"],
    "information": ["information", "info"],
    "(compressed)": ["", "compressed", "tar.gz", "zipped"],
    "modify": ["change", "modify"],
    "terminate": ["kill", "terminate", "stop"],
}

FILE_STEMS = """
    notes report data results backup photos server access error access_log config settings users
    orders sales budget draft thesis invoice music video app main test index setup utils helper
    model train log todo readme list names emails input output old new archive project website
    docs src build dist tmp images assets release update march april week1 q3 final script
""".split()

SEARCH_WORDS = """
    error warning failed timeout password user admin login TODO FIXME import main localhost null
    exception foo bar hello world price total name email version debug http https root nginx
    python token secret key value class function return
""".split()

# Closed lists of values by kind of slot.
SLOT_VALUES = {
    "dir": [
        "projects", "src", "docs", "backup", "photos", "/var/log", "/etc", "/tmp", "~/Downloads",
        "build", "music", "data", "website", "/home/ann", "logs",
    ],
    "user": ["ann", "bob", "carol", "deploy", "www-data", "alice", "postgres", "mia"],
    "group": ["staff", "docker", "sudo", "developers", "www-data", "users"],
    "host": ["server1", "example.com", "db.local", "web01", "myhost", "backup.example.org"],
    "domain": ["example.com", "example.org", "mysite.net"],
    "proc": ["nginx", "firefox", "python3", "node", "java", "chrome", "postgres", "sshd"],
    "service": ["nginx", "ssh", "docker", "cron", "postgresql", "apache2", "redis"],
    "branch": [
        "main", "develop", "feature-login", "hotfix", "release-2", "test-branch", "fix-typo",
    ],
    "remote": ["origin", "upstream", "backup"],
    "container": ["web", "db", "redis", "app1", "my_container"],
    "volume": ["pgdata", "cache", "uploads"],
    "image": ["nginx", "ubuntu", "postgres:16", "myapp", "python:3.12", "alpine"],
    "package": ["vim", "git", "curl", "htop", "nginx", "requests", "numpy", "jq"],
    "iface": ["eth0", "wlan0", "enp3s0"],
    "ext": ["txt", "log", "jpg", "py", "md", "csv", "json", "tmp", "bak", "c", "html"],
    "mode": ["644", "755", "600", "700", "640", "664"],
    "size": ["100M", "10M", "1G", "500k", "50M", "2G", "5M"],
    "char": [",", ";", ":", "|", "a", "x"],
    "key": ["id_rsa", "id_ed25519", "deploy_key"],
    "var": ["EDITOR", "API_KEY", "DEBUG", "MY_VAR", "PORT", "TOKEN"],
    "value": ["vim", "1", "production", "hello", "en_US.UTF-8"],
}

FILE_EXTENSIONS = [
    "txt", "log", "csv", "json", "md", "py", "sh", "conf", "html", "xml", "c", "yaml",
]
ARCHIVE_EXTENSIONS = ["tar.gz", "zip", "tar"]

NUMBER_RANGES = {
    "port": (22, 9999),
    "pid": (100, 32000),
    "n": (2, 59),
    "days": (1, 90),
    "column": (1, 9),
    "seconds": (1, 120),
}

# Kinds of slots that are half of the time filled with a word of the dictionary.
OPEN_KINDS = {
    "user", "group", "proc", "service", "container", "image", "package", "volume", "value",
    "remote",
}

# Commands whose slot values must not be absolute paths or hidden files.
DESTRUCTIVE = re.compile(r"\brm\b|-delete|-R\b|shred|mkfs|truncate|unlink|mv\b")

# {{ and }} are braces, {name} is a slot.
PIECE = re.compile(r"\{\{|\}\}|\{([^{}]+)\}")

QUESTION = re.compile(r"(how|what|which|is|who|where|can|explain|when)\b", re.I)


def read_jsonl(path):
    """The objects of a file with one JSON object a line."""
    with open(path, encoding="utf-8") as lines:
        return [json.loads(line) for line in lines]


def read_dictionary():
    """All lower-case words of the tldr pages, sorted: values are drawn from it by index."""
    with open(HERE / "tldr.jsonl", encoding="utf-8") as lines:
        return sorted({word for line in lines for word in re.findall(r"\b[a-z]{3,11}\b", line)})


DICTIONARY = read_dictionary()


def read_pages():
    """The pages of core commands, and of those that at least four languages describe."""
    pages = read_jsonl(HERE / "tldr.jsonl")
    return [page for page in pages if is_core(page) or page["languages"] >= 4]


def read_tasks():
    """All tasks, file by file."""
    return [task for path in sorted(HERE.glob("shell_tasks_*.jsonl")) for task in read_jsonl(path)]


def is_core(page):
    """Whether a page describes one of the core commands."""
    return page["cmd"].replace(" ", "-") in CORE_COMMANDS


def lower_first(text):
    """Text with its first letter lower-case, unless an abbreviation begins it."""
    return text[0].lower() + text[1:] if text[1:2].islower() else text


# ---- requests from tldr pages ----


def replace_synonyms(rng, description):
    """Each word replaced by a random one that people use for it."""
    words = [rng.choice(SYNONYMS.get(word.lower(), [word])) for word in description.split()]
    description = " ".join(words).replace("  ", " ").strip()
    return description[0].upper() + description[1:]


def drop_small_words(rng, text):
    """Text with about half of its small words left out, as people do when they type."""
    small = ("a", "an", "the", "specific", "specified", "given")
    return " ".join(word for word in text.split() if word not in small or rng.random() < 0.5)


def phrase_request(rng, cmd, description, widely_used):
    """A request for what the description says.

    It names the tool always, or less than half of the time where the tool is widely used.
    """
    if rng.random() < 0.4:
        description = replace_synonyms(rng, description)
    text = lower_first(description)
    named = f"{rng.choice(['with', 'using', 'with', 'via'])} {cmd}"
    if rng.random() < 0.35:
        text = drop_small_words(rng, text)
    plain = rng.choice([
        description,
        text,
        text,
        f"how do I {text}?",
        f"How to {text}",
        f"how to {text}",
        f"command to {text}",
        f"I want to {text}",
        f"{text}?",
        f"how can I {text} in linux?",
        f"please {text}",
        f"{text} in the terminal",
        f"What is the command to {text}?",
    ])
    with_tool = rng.choice([
        f"{description} {named}",
        f"{text} {named}",
        f"{cmd}: {text}",
        f"{cmd} {text}",
        f"how do I {text} {named}?",
        f"How to {text} {named}",
        f"use {cmd} to {text}",
        f"Use {cmd} to {text}",
        f"{cmd}, {text}",
    ])
    return plain if widely_used and rng.random() < 0.6 else with_tool


def page_dialogues(rng, page, held_out):
    """Yield (request, answer) pairs from a page, without the held-out (cmd, description)."""
    cmd, summary = page["cmd"], page["summary"]
    widely_used = is_core(page) or page["languages"] >= 7
    for description, line in page["examples"]:
        if (cmd, description) in held_out:
            continue
        yield phrase_request(rng, cmd, description, widely_used), line
        if rng.random() < 0.3:
            request = rng.choice([
                f"explain: {line}",
                f"What does `{line}` do?",
                f"explain `{line}`",
                f"what does {line} do",
            ])
            yield request, description + "."
    if summary and rng.random() < 0.6:
        request = rng.choice([
            f"what is {cmd}?",
            f"What is {cmd}?",
            f"what does {cmd} do?",
            f"describe {cmd}",
            f"what is the {cmd} command for?",
        ])
        yield request, summary
    if rng.random() < 0.3:
        kept = [pair for pair in page["examples"] if (cmd, pair[0]) not in held_out][:4]
        request = rng.choice([
            f"tldr {cmd}",
            f"examples of {cmd}",
            f"show me how to use {cmd}",
            f"{cmd} examples",
        ])
        yield request, "\n".join(f"# {description}\n{line}" for description, line in kept)


# ---- requests from tasks ----


def any_word(rng):
    """A word drawn from some thousands, so that the model learns to copy, not to remember."""
    word = rng.choice(DICTIONARY)
    return rng.choice([
        word,
        word,
        word,
        word,
        word.capitalize(),
        word + str(rng.randint(1, 99)),
        f"{word}_{rng.choice(DICTIONARY)}",
        f"{word}-{rng.choice(DICTIONARY)}",
    ])


def file_value(rng, kind, extension):
    """A file name; an extension that the slot asks for is kept."""
    if rng.random() < 0.35:
        stem = rng.choice(FILE_STEMS) + rng.choice(["", "", "", "2", "_old", "-new", "_2024"])
    else:
        stem = any_word(rng)
    if not extension:
        extension = rng.choice(FILE_EXTENSIONS if kind == "file" else ARCHIVE_EXTENSIONS)
    return f"{stem}.{extension}"


def ip_value(rng):
    """An IPv4 address, half of the time a private one."""
    if rng.random() < 0.5:
        return ".".join(str(rng.randint(1, 254)) for _ in range(4))
    return f"192.168.{rng.randint(0, 9)}.{rng.randint(2, 254)}"


def url_value(rng):
    """A web address with or without a path."""
    scheme = rng.choice(["https://", "http://"])
    host = rng.choice([
        "example.com",
        "example.org",
        "localhost:8080",
        f"{rng.choice(DICTIONARY)}.org",
    ])
    path = rng.choice(["", "/file.zip", f"/{any_word(rng)}.json", f"/{any_word(rng)}"])
    return scheme + host + path


def commit_value(rng):
    """What names a git commit."""
    return rng.choice([
        f"HEAD~{rng.randint(1, 9)}",
        "".join(rng.choice("0123456789abcdef") for _ in range(7)),
    ])


def tag_value(rng):
    """A version tag."""
    tag = f"v{rng.randint(0, 9)}.{rng.randint(0, 20)}"
    return tag + rng.choice(["", f".{rng.randint(0, 9)}"])


def message_value(rng):
    """Some words, as for a commit message."""
    return " ".join(rng.choice(DICTIONARY) for _ in range(rng.randint(2, 4)))


def word_value(rng):
    """A word to search for."""
    return rng.choice(SEARCH_WORDS) if rng.random() < 0.3 else rng.choice(DICTIONARY)


def dir_value(rng, destructive):
    """A directory; below the current one where the command destroys."""
    if rng.random() < 0.4:
        value = rng.choice(SLOT_VALUES["dir"])
    else:
        value = rng.choice(["", "", "", "~/", "/srv/", "./"]) + any_word(rng)
    return value.lstrip("/~.").replace("/", "_") if destructive else value


SIMPLE_KINDS = {
    "ip": ip_value,
    "url": url_value,
    "commit": commit_value,
    "tag": tag_value,
    "message": message_value,
    "word": word_value,
}


def slot_value(rng, slot, destructive):
    """A random value for one slot such as file, file:log, dir2 or port."""
    name, _, extension = slot.partition(":")
    kind = name.rstrip("0123456789")
    if kind in ("file", "archive"):
        return file_value(rng, kind, extension)
    if kind in NUMBER_RANGES:
        return str(rng.randint(*NUMBER_RANGES[kind]))
    if kind in SIMPLE_KINDS:
        return SIMPLE_KINDS[kind](rng)
    if kind == "dir":
        return dir_value(rng, destructive)
    if kind in ("host", "domain") and rng.random() < 0.5:
        return f"{rng.choice(DICTIONARY)}.{rng.choice(['com', 'org', 'net', 'local', 'io'])}"
    if kind == "branch" and rng.random() < 0.5:
        return rng.choice(["feature/", "fix/", ""]) + any_word(rng)
    if kind in OPEN_KINDS and rng.random() < 0.5:
        return rng.choice(DICTIONARY)
    return rng.choice(SLOT_VALUES[kind]) if kind in SLOT_VALUES else any_word(rng)


def slots_of(text):
    """The names of the slots in a text, in order."""
    return [match.group(1) for match in PIECE.finditer(text) if match.group(1)]


def fill(text, values):
    """Text with its slots replaced by their values and double braces by single ones."""

    def replace(match):
        return values[match.group(1)] if match.group(1) else match.group(0)[0]

    return PIECE.sub(replace, text)


def draw_slot_values(rng, text, destructive):
    """A value for each slot in a text, no two alike."""
    values, used = {}, set()
    for slot in dict.fromkeys(slots_of(text)):
        values[slot] = slot_value(rng, slot, destructive)
        while values[slot] in used:
            values[slot] = slot_value(rng, slot, destructive)
        used.add(values[slot])
    return values


def loosen(rng, request):
    """A request as people type it: lower case, a courtesy, small words left out."""
    draw = rng.random()
    if draw < 0.15:
        request = lower_first(request)
    elif draw < 0.22:
        request = request.rstrip("?") + rng.choice(["", "?", " please", " in linux", " in bash"])
    elif draw < 0.30 and not QUESTION.match(request):
        opening = rng.choice(["how do I ", "how to ", "please ", "command to ", "I need to "])
        request = opening + lower_first(request)
    if rng.random() < 0.15:
        small = ("a", "an", "the", "my", "this", "all")
        words = request.split(" ")
        request = " ".join(word for word in words if word not in small or rng.random() < 0.4)
    return request


def task_dialogue(rng, task, phrasing):
    """One (request, answer) pair from a task and one of its phrasings."""
    destructive = bool(DESTRUCTIVE.search(task["answer"]))
    values = draw_slot_values(rng, phrasing + " " + task["answer"], destructive)
    return loosen(rng, fill(phrasing, values)), fill(task["answer"], values)
