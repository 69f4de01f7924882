#!/usr/bin/env bats
# What README.md says is what the program does.
load helpers

setup() {
    common_setup
}

@test "README: at most 900 words" {
    [ "$(wc -w <README.md)" -le 900 ]
}

@test "README: each example gives what stands below it" {
    mkdir "$T/bin"
    ln -s "$QWICK" "$T/bin/qwick"
    python3 - "$T" <<'PY'
import os, re, subprocess, sys
text = open("README.md").read()
block = next(b for b in re.findall(r"^```\n(.*?)^```$", text, re.M | re.S)
             if b.startswith("$ "))
examples = re.split(r"^\$ ", block, flags=re.M)[1:]
assert len(examples) == 8, len(examples)
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
        "$T/main.c" "$lib" -lyajl -lutf8proc -fopenmp -ldl -lm -lpthread
    [ "$("$T/main")" = ls ]
}

@test "README: files and options that it names exist" {
    python3 - "$QWICK" <<'PY'
import os, re, subprocess, sys
text = re.sub(r"\$\(pkg-config[^)]*\)", "", open("README.md").read())
for name in re.findall(r"`((?:docs|tests|bench|include|models)/[\w./-]+|[A-Z]+\.md)`", text):
    assert os.path.exists(name), name
help = "".join(subprocess.run([sys.argv[1], v, "--help"], capture_output=True,
                              text=True, check=True).stdout
               for v in ("generate", "batch", "choose", "logits", "quantize"))
for option in set(re.findall(r"(?<![\w-])(--[a-z][a-z-]+)", text)):
    assert option + " " in help or option + "\n" in help or option + "[" in help, option
PY
}
