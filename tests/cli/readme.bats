#!/usr/bin/env bats
# README.md agrees with the program.
load helpers
load hub

teardown() {
    hub_stop
}

# Write the commands of README.md's block that begins with a word to
# $T/commands.sh.
block() {
    python3 - "$1" >"$T/commands.sh" <<'PY'
import re, sys
blocks = re.findall(r"^```\n(.*?)^```$", open("README.md").read(), re.M | re.S)
found = [b for b in blocks if b.split()[:len(sys.argv[1].split())]
         == sys.argv[1].split()]
assert len(found) == 1, found
print(found[0])
PY
    mkdir -p "$T/bin"
    export PATH="$T/bin:$PATH"
}

# shim NAME WORD…: make a program that runs the words followed by its
# arguments.
shim() {
    local name=$1
    shift
    printf '#!/bin/sh\nexec %s "$@"\n' "$*" >"$T/bin/$name"
    chmod +x "$T/bin/$name"
}

@test "README: at most 1,100 words" {
    [ "$(wc -w <README.md)" -le 1100 ]
}

@test "README: each example prints the text below it" {
    mkdir "$T/bin"
    ln -s "$QWICK" "$T/bin/qwick"
    python3 - "$T" <<'PY'
import os, re, subprocess, sys
text = open("README.md").read()
block = next(b for b in re.findall(r"^```\n(.*?)^```$", text, re.M | re.S)
             if b.startswith("$ "))
examples = re.split(r"^\$ ", block, flags=re.M)[1:]
assert len(examples) == 9, len(examples)
env = dict(os.environ, PATH=sys.argv[1] + "/bin:" + os.environ["PATH"])
steady = lambda s: re.sub(r'"timing":\{.*?\}', '"timing":{}', s)
for example in examples:
    command, want = example.split("\n", 1)
    got = subprocess.run(["bash", "-c", command], env=env, cwd=sys.argv[1],
                         stdin=subprocess.DEVNULL, capture_output=True, text=True)
    assert got.returncode == 0, (command, got.stderr)
    assert steady(got.stdout).strip() == steady(want).strip(), (command, got.stdout)
PY
}

@test "README: each verb has an example, and the examples of the table run" {
    mkdir "$T/bin"
    ln -s "$QWICK" "$T/bin/qwick"
    python3 - "$T" <<'PY'
import os, re, subprocess, sys
text = open("README.md").read()
env = dict(os.environ, PATH=sys.argv[1] + "/bin:" + os.environ["PATH"])
qwick = lambda command: subprocess.run(
    ["bash", "-c", command], env=env, cwd=sys.argv[1], stdin=subprocess.DEVNULL,
    capture_output=True, text=True)
table = re.findall(r"^\| `(qwick .*?)` \|", text, re.M)
shown = {c.split()[1] for c in table} | set(re.findall(r"qwick ([a-z]+)\b", text))
verbs = set(re.findall(r"^  ([a-z]+) {2,}\S", qwick("qwick help verbs").stdout, re.M))
assert "batch" in verbs and not verbs - shown - {"generate", "version"}, verbs - shown
for command in table:
    verb = command.split()[1]
    if verb in ("chat", "bench", "serve"):  # a terminal, minutes, no end
        command = "qwick help " + verb
    got = qwick(command)
    assert got.returncode == 0, (command, got.stderr)
PY
}

@test "README: the commands that install" {
    command -v make >/dev/null || skip "no make"
    block "make demo"
    shim sudo
    # use the tested build, and drop the options of a make that runs this test
    local build=$(realpath --relative-to=. "$(dirname "$QWICK")")
    [ "$build" != . ] || build=build
    unset MFLAGS MAKELEVEL MAKEOVERRIDES
    export MAKEFLAGS="BUILD=$build SAN=${SAN:-} CI=1" DESTDIR=$T/dest
    [ -z "${SAN:-}" ] || sed -i "s|^\./qwick|$QWICK|" "$T/commands.sh"
    run -0 bash -e "$T/commands.sh" </dev/null
    for file in bin/qwick bin/qwick-pull share/man/man1/qwick.1 \
        lib/libqwick.a include/qwick.h; do
        [ -s "$T/dest/usr/local/$file" ]
    done
}

@test "README: it leads with the commands that fetch a model and ask it" {
    local missing
    if missing=$(hub_missing); then skip "$missing for the web server"; fi
    block "qwick pull"
    [ "$(sed -n '/^```$/{n;p;q}' README.md)" = "$(head -n 1 "$T/commands.sh")" ]
    # the demo model stands for the hub's model
    hub_places
    gguf_repository Qwen/Qwen3-4B-GGUF Qwen3-4B-Q4_K_M
    hub_start
    hub_setup
    hub_qwick
    cd "$T"
    run -0 --separate-stderr bash -e "$T/commands.sh" </dev/null
    # the directory with the file, and the answer
    [ -s "${lines[0]}/Qwen3-4B-Q4_K_M.gguf" ]
    [ -n "${lines[1]}" ]
}

@test "README: the commands that quantize a model" {
    block "qwick quantize"
    local hub=$T/hub/models--Qwen--Qwen3-4B
    mkdir -p "$hub/refs" "$hub/snapshots"
    echo 1 >"$hub/refs/main"
    ln -s "$PWD/models/demo" "$hub/snapshots/1"
    export HF_HUB_CACHE=$T/hub
    shim qwick "$QWICK"
    cd "$T"
    run -0 --separate-stderr bash -e "$T/commands.sh" </dev/null
    [ -n "$output" ]
    [ -s qwen3-4b/model.safetensors ]
}

@test "README: the C program compiles, and answers" {
    python3 -c 'import re
print(re.search(r"^```c\n(.*?)^```$", open("README.md").read(), re.M | re.S)[1])' \
        >"$T/main.c"
    lib=$(dirname "$QWICK")/libqwick.a
    [ -e "$lib" ] || skip "no $lib"
    flags=
    [ -z "$SAN" ] || flags=-fsanitize=address,undefined
    # shellcheck disable=SC2086
    "${CC:-cc}" -std=c11 -Wall -Wextra -Werror $flags -Iinclude -o "$T/main" \
        "$T/main.c" "$lib" -lutf8proc -lnettle -fopenmp -ldl -lm -lpthread
    [ "$("$T/main")" = ls ]
}

@test "README, architecture and CONTRIBUTING: what they name exists" {
    python3 - "$QWICK" <<'PY'
import os, re, subprocess, sys
text = re.sub(r"\$\(pkg-config[^)]*\)", "", open("README.md").read())
for name in re.findall(r"`((?:docs|tests|bench|include|models)/[\w./-]+|[A-Z]+\.md)`", text):
    assert os.path.exists(name), name
for page in ("docs/architecture.md", "CONTRIBUTING.md"):
    for name in re.findall(r"`((?:src|docs|tests|bench|include|scripts)/[\w./-]+)`",
                           open(page).read()):
        assert os.path.exists(name), (page, name)
help = "".join(subprocess.run([sys.argv[1], "help", v], capture_output=True,
                              text=True, check=True).stdout
               for v in ("options", "generate", "batch", "choose", "quantize",
                         "embed"))
for option in set(re.findall(r"(?<![\w-])(--[a-z][a-z-]+)", text)):
    assert option + " " in help or option + "\n" in help or option + "[" in help, option
PY
}
