#!/usr/bin/env bats
# --help and --version.
load helpers

load hub

setup() {
    common_setup
    VERBS=$(all_verbs)
}

teardown() {
    hub_stop
}

@test "--help and -h: stdout, exit 0, no model needed" {
    run -0 --separate-stderr env QWICK_MODEL=/nonexistent "$QWICK" --help
    [ -z "$stderr" ]
    [[ $output == "usage: qwick"* ]]
    main=$output
    [ "$(q -h)" = "$main" ]
    [ "$(q help)" = "$main" ]
    [ "$(q -m /nonexistent --help)" = "$main" ]
    [ "$(q "list files" --help)" = "$main" ]
    [ "$(q run --help)" = "$(q generate --help)" ]
    for v in $VERBS; do
        run -0 --separate-stderr q $v --help
        [ -z "$stderr" ]
        [[ $output == "usage: qwick $v "*$'\n\nExamples\n  '* ]]
    done
}

@test "the first page: 40 lines, each verb once in its group, ten options" {
    q --help >"$T/first"
    [ "$(wc -l <"$T/first")" -le 40 ]
    command python3 - "$T/first" <<'PY'
import glob, re, sys
text = open(sys.argv[1]).read()
parts = dict(re.findall(r"^(Verbs|Options|Examples)\n((?:  .*\n)+)", text, re.M))
groups = [line[23:].replace(" (the default)", "").split()
          for line in parts["Verbs"].splitlines()]
listed = [verb for group in groups for verb in group]
assert groups[0][0] == "generate", groups
pages = [p[len("man/qwick-"):-2] for p in glob.glob("man/qwick-*.1")]
# a verb that is missing here has no .group in its row
assert sorted(listed) == sorted(pages), set(listed) ^ set(pages)
assert max(map(len, groups)) <= 8
assert len(re.findall(r"^  (?:-\w, |    )--", parts["Options"], re.M)) == 10
assert len(parts["Examples"].splitlines()) == 3
assert "qwick pull Qwen/Qwen3-4B-GGUF:Q4_K_M" in text
PY
    # the topics that it names exist
    run -0 sed -n '/TOPIC:$/{n;p}' "$T/first"
    [ "$(wc -w <<<"$output")" -ge 6 ]
    for topic in $output; do
        q help "$topic" >"$T/topic"
        [ -s "$T/topic" ]
    done
}

@test "generate --help has all options of generate, and the shared ones are one line" {
    q help generate >"$T/page"
    for o in --prompt --file --samples --tools --think-budget --json-order --seed; do
        grep -q -e "^  .*$o" "$T/page"
    done
    [ "$(grep -c '^Shared options (qwick help options): ' "$T/page")" -eq 1 ]
    run ! grep -e --no-sandbox -e --isa "$T/page"
    [ "$(shared_options generate | wc -l)" -ge 18 ]
    [ "$(shared_options version | wc -l)" -eq 6 ]
    # an option before the verb changes nothing
    equal "$(q -h batch)" "$(q batch -h)"
}

@test "--version" {
    [ "$(q --version)" = "qwick 0.1.0" ]
    [ "$(q -V)" = "qwick 0.1.0" ]
    [ "$(q tokenize --version)" = "qwick 0.1.0" ]
}

@test "version -v: the commit, the compiler, the machine, the kernels, the libraries" {
    run -0 --separate-stderr q version -v
    [ -z "$stderr" ]
    equal "$(cut -d ' ' -f 1 <<<"$output" | tr '\n' ' ')" \
        "qwick commit compiler system cpu cpu_id kernels libraries "
    [ "${lines[0]}" = "qwick 0.1.0" ]
    [[ ${lines[1]} =~ ^commit\ +([0-9a-f]{12}(-dirty)?|unknown)$ ]]
    [[ ${lines[2]} =~ ^compiler\ +(gcc|Clang)\ [0-9]+ ]]
    [[ ${lines[6]} =~ ^kernels\ +"$(q inspect --json | jget 'o["isa"]'), " ]]
    [[ ${lines[7]} == *" glibc 2."*" libutf8proc.so."* ]]
    [[ $output != *"$(uname -n) "* && $output != *"$(id -un) "* ]]
    # only the verb has details
    [ "$(q -v --version)" = "qwick 0.1.0" ]
}

@test "help has no line over 80 columns" {
    { q --help
        for v in $VERBS $TOPICS; do q help $v; done
    } | awk 'length > 80 { print; bad = 1 } END { exit bad }'
}

TOPICS="verbs options templates config scripts choosing-a-model"

# Make a directory with what the examples of pages name, and go there.
example_files() {
    mkdir "$T/work"
    quick_qwick
    export PATH="$T/bin:$PATH"
    cd "$T/work"
    printf 'Ann wrote this on Monday.\nIt has two lines.\n' >notes.txt
    printf '{"prompt":"list files"}\n{"prompt":"disk usage"}\n' >prompts.jsonl
    echo '[{"role":"user","content":"list files"}]' >chat.json
}

@test "the examples of each --help run" {
    example_files
    for v in $VERBS; do
        # they need a hub, a terminal, or do not end
        [[ $v != @(pull|chat|serve) ]] || continue
        q $v --help | awk '/^Examples$/ { on = 1; next }
            !NF { on = 0 }
            on { print substr($0, 3) }' >examples
        [ -s examples ] || { echo "$v: no examples"; return 1; }
        while IFS= read -r line <&9; do
            [[ $line == *"qwick"* ]]
            run -0 bash -o pipefail -c "$line" </dev/null
        done 9<examples
    done
}

# Print the commands of a topic: lines that two blanks begin, neither rows of options
# nor of verbs.
topic_commands() {
    q help "$1" | grep -P '^  (?! |-|[a-z]+ {3,})' || true
}

@test "the commands of each topic run" {
    example_files
    for topic in $TOPICS; do
        [ "$topic" != choosing-a-model ] || continue # below
        topic_commands "$topic" >"$T/commands"
        [ "$topic" = verbs ] || [ "$(wc -l <"$T/commands")" -ge 4 ]
        run -0 bash -e -o pipefail "$T/commands" </dev/null
        rm -rf "$T/.config"
    done
}

@test "the commands of choosing-a-model run, with a hub" {
    local missing
    if missing=$(hub_missing); then skip "$missing for the web server"; fi
    hub_places
    gguf_repository Qwen/Qwen3-4B-GGUF Qwen3-4B-Q4_K_M
    topic_commands choosing-a-model >"$T/commands"
    [ "$(wc -l <"$T/commands")" -ge 6 ]
    hub_start
    hub_setup
    hub_qwick
    cd "$T"
    run -0 --separate-stderr bash -e -o pipefail "$T/commands" </dev/null
    [[ $output == *"Qwen3-4B-Q4_K_M"*yes* ]]
    # the last commands made it the default
    equal "$(QWICK_MODEL='' "$QWICK" --json -n 1 hi </dev/null | jget 'o["model"]')" Qwen3-4B-Q4_K_M
}
