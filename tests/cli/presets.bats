#!/usr/bin/env bats
# Prompts of the user: -T, --prompt-template, --set.
load helpers

setup() {
    config_setup
    mkdir "$PROMPTS"
}

# prompt NAME LINE…: write a prompt.
prompt() {
    local name=$1
    shift
    printf '%s\n' "$@" >"$PROMPTS/$name.txt"
}


# answer ARGS…: text and tokens of an answer.
answer() {
    "$QWICK" --json --exact --greedy -n 12 "$@" | jget '(o["text"], o["tokens"], o["usage"]["prompt_tokens"])'
}

@test "-T: the input and values take the places of their fields" {
    prompt do '{verb} {}' 'with "{}", {"a": 1} and {x-y}'
    local text=$'list a{}b\nwith "a{}b", {"a": 1} and {verb} }'
    equal "$(answer -T do --set verb=list --set 'x-y={verb} }' 'a{}b' </dev/null)" \
        "$(answer "$text" </dev/null)"
    # the parts of the prompt are the input: files, a pipe, the argument
    echo one >"$T/f"
    equal "$(echo two | answer --prompt-template 'say {} now' -f "$T/f" three)" \
        "$(answer $'say one\n\ntwo\n\nthree now' </dev/null)"
    # a template without {} is the prompt, and needs no input
    prompt whole 'list files' ''
    equal "$(answer -T whole </dev/null)" "$(printf 'list files\n\n' | answer)"
    # a path, and a file without a final newline; a pipe
    printf 'list {{}} {}' >"$T/p.txt"
    equal "$(answer -T "$T/p.txt" files </dev/null)" "$(answer 'list {} files' </dev/null)"
    equal "$(answer -T <(echo 'list {}') files </dev/null)" "$(answer 'list files' </dev/null)"
    # a value may be empty or have =
    equal "$(answer --prompt-template 'list{a} {b}' --set a= --set b=c=d </dev/null)" \
        "$(answer 'list c=d' </dev/null)"
    equal "$(answer --prompt-template 'list {a}' --set a=$'\xff' </dev/null)" \
        "$(answer 'list �' </dev/null)"
}

@test "options of a prompt rank between the config file and the environment" {
    prompt a '# a comment' 'max-tokens = 3' 'stop = "\n\n"' '---' 'list {}'
    n() { "$QWICK" --json --ignore-eos "$@" files </dev/null | jget 'len(o["tokens"])'; }
    equal "$(n -T a)" 3
    equal "$(QWICK_MAX_TOKENS=4 n -T a)" 4
    equal "$(n -T a -n 5)" 5
    printf 'max-tokens = 2\ntemp = 0\n[generate]\nmax-tokens = 6\n' >"$XDG_CONFIG_HOME/qwick/config"
    equal "$(n -T a)" 3
    equal "$(n)" 6
    run -0 --separate-stderr q --show-config -T a
    [[ $output == *$'\nmax-tokens          3                         '"$PROMPTS/a.txt:2"$'\n'* ]]
    [[ $output == *$'\nstop                "\\n\\n"                    '"$PROMPTS/a.txt:3"$'\n'* ]]
    [[ $output == *"$XDG_CONFIG_HOME/qwick/config:2"* ]]
    [[ $output == *$'\npreset              a                         command line\n'* ]]
    # options of other verbs are checked and have no effect here; a line ---
    # may also begin the options
    prompt b '---' 'max-tokens = 4' 'dim = 5' '---' 'list {}'
    equal "$(n -T b)" 4
    # --no-config reads a prompt that the command names
    equal "$(n -T a --no-config)" 3
    # CRLF, and a byte order mark
    printf '\357\273\277max-tokens = 7\r\n--- \r\nlist {}\r\n' >"$PROMPTS/c.txt"
    equal "$(n -T c)" 7
    equal "$(answer -T c files </dev/null)" "$(answer "list files" </dev/null)"
    # options only
    prompt d 'max-tokens = 2' '---' '{}'
    equal "$(n -T d)" 2
}

@test "text that only looks like options is text" {
    prompt a '# Rules' '' 'Be brief.' '---' '{}'
    equal "$(answer -T a hi </dev/null)" \
        "$(answer $'# Rules\n\nBe brief.\n---\nhi' </dev/null)"
    prompt b 'x = 3' '{}'
    equal "$(answer -T b hi </dev/null)" "$(answer $'x = 3\nhi' </dev/null)"
    prompt c 'Note: temp = 1' '---' '{}'
    equal "$(answer -T c hi </dev/null)" "$(answer $'Note: temp = 1\n---\nhi' </dev/null)"
    prompt d 'temp == 1' '---' '{}'
    equal "$(answer -T d hi </dev/null)" "$(answer $'temp == 1\n---\nhi' </dev/null)"
}

@test "faults name the file, the line and the field" {
    local f=$PROMPTS/p.txt
    prompt summarise '{}'
    prompt translate '{}'
    fails 2 "$PROMPTS: -T sumarise: no such prompt, did you mean summarise; there are: summarise, translate" -T sumarise hi
    fails 2 "$PROMPTS: -T xyzzy: no such prompt; there are: summarise, translate" -T xyzzy hi
    (cd "$T" && echo '{}' >here && fails 2 "-T ./here is the file here" -T here hi)
    XDG_CONFIG_HOME=$T/none fails 2 "$T/none/qwick/prompts: -T a: no such prompt; the directory has none" -T a hi
    fails 1 "$T/none/a.txt: cannot open" -T "$T/none/a.txt" hi
    # each is TEXT | ARGUMENTS | MESSAGE
    while IFS='|' read -r text args message; do
        # shellcheck disable=SC2059
        printf -- "$text" >"$f"
        # shellcheck disable=SC2086
        fails 2 "$message" -T p $args
    done <<END
a\n{x}|hi|$f: has no {} for the input
a\n{}{x}|hi|$f:2: {x} has no value; --set x=VALUE gives it one, and {{x}} is the text {x}
a\n{}||$f:2: {} needs an input
a {}|hi --set x=1|--set x: $f has no {x}
a {{x}} {}|hi --set x=1|--set x: $f has no {x}
a {x} {}|hi --set x|--set x: is not NAME=VALUE
a {x} {}|hi --set =1|--set =1: is not NAME=VALUE
a {x} {}|hi --set {x}=1|--set {x}=1: is not NAME=VALUE
a {x} {}|hi --set x=1 --set x=2|--set x: is given twice
\n{ x }|hi|$f:2: "{ x }": a field has no blanks
{"a":\n{"b": 1}}|hi|$f:2: "{{" and "}}" are one brace each, but line 1 has a single one
temp = 1\n{}|hi|$f:1: is an option, but no line "---" ends the options
---\ntemp = 1\n{}|hi|$f:1: is an option, but no line "---"
temp: 1\n---\n{}|hi|$f:1: an option is OPTION = VALUE, not OPTION: VALUE
\n# c\ntemp = x\n---\n{}|hi|$f:3: temp: "x": expected a number
tepm = 1\n---\n{}|hi|$f:1: tepm: unknown option, did you mean temp
temp = 1\nfoo\n---\n{}|hi|$f:2: "foo": is not NAME = VALUE
temp = 1\ntemp = 2\n---\n{}|hi|$f:2: temp: is set twice, first at $f:1
temp = 1\n[batch]\n---\n{}|hi|$f:2: "[batch]": only the config file has sections
output = x\n---\n{}|hi|$f:1: output: belongs to one command
preset = x\n---\n{}|hi|$f:1: preset: belongs to one command
x\0y|hi|$f: has a NUL byte
{x}|--set x=|no prompt
END
    mkdir "$PROMPTS/dir.txt"
    fails 1 "$PROMPTS/dir.txt: is not a regular file" -T dir hi
    prompt p '{}'
    fails 2 "--preset: cannot be combined with --prompt-template" -T p --prompt-template '{}' hi
    fails 2 "--set: has no effect without --preset or --prompt-template" --set a=b hi
    fails 2 "--chat-json: cannot be combined with --preset" -T p --chat-json x
    fails 2 "--prompt-ids: cannot be combined with --preset" -T p --prompt-ids 1
    fails 2 "-T: needs a value" -T
    echo 'preset = p' >"$XDG_CONFIG_HOME/qwick/config"
    fails 2 "preset: belongs to one command" hi
    rm "$XDG_CONFIG_HOME/qwick/config"
    # no variable of the environment sets it
    equal "$(QWICK_PRESET=p answer hi </dev/null)" "$(answer hi </dev/null)"
}

@test "text from outside is no control token in a template either" {
    n() { "$QWICK" --json -n 1 "$@" </dev/null | jget 'o["usage"]["prompt_tokens"]'; }
    equal "$(n --prompt-template 'a {}' '<|im_end|>')" "$(n 'a <|im_end|>')"
    [ "$(n 'a <|im_end|>')" -gt "$(n --allow-special 'a <|im_end|>')" ]
}

@test "batch: a template in each form of the input" {
    prompt do 'max-tokens = 3' '---' '{verb} {}'
    printf '{"id":1,"prompt":"files","verb":"list"}\n{"prompt":"fi{}les","temperature":0}\n' |
        "$QWICK" batch --exact --greedy -T do --set verb=show >"$T/b"
    for i in 1 2; do
        [ $i = 1 ] && text="list files" || text="show fi{}les"
        equal "$(sed -n ${i}p "$T/b" | jget '(o["tokens"], o["usage"]["prompt_tokens"])')" \
            "$(q --json --exact --greedy -n 3 "$text" | jget '(o["tokens"], o["usage"]["prompt_tokens"])')"
    done
    jlines 'o[0]["id"] == 1' <"$T/b"
    printf '%s\n' '{"prompt":"a"}' '{"verb":"a"}' '{"messages":[],"id":"m"}' \
        '{"verb":"a","prompt":["b"]}' '{"verb":{},"prompt":"b","id":7}' 'x' '[]' \
        '{"verb":true,"prompt":2}' >"$T/in"
    run -1 --separate-stderr q batch -T do -i "$T/in"
    echo "$output" | jlines '[("record: %s" % w in x.get("error", "")) or w in x.get("error", "")
        for x, w in zip(o, [
            "do.txt:3: {verb} has no value; --set verb=VALUE", "has no \"prompt\" for {}",
            "messages: cannot be combined with", "prompt: must be a string or a number for {}",
            "verb: must be a string or a number for {verb}", "offset", "is not an object"])] == [True] * 7
        and o[2]["id"] == "m" and o[4]["id"] == 7 and "text" in o[7]'
    [[ $stderr != *"is not an option"* ]]
    prompt none 'list {verb}'
    echo '{"prompt":"a","verb":"b"}' >"$T/in"
    run -1 --separate-stderr q batch -T none -i "$T/in"
    echo "$output" | jlines '"prompt: '"$PROMPTS"'/none.txt has no {} for it" in o[0]["error"]'
}

@test "score: the filled template is what is scored" {
    prompt do '{verb} {}'
    printf 'files' >"$T/f"
    s() { q score --perplexity "$@"; }
    equal "$(s -T do --set verb=show files)" "$(s 'show files')"
    equal "$(s -T do --set verb=show -f "$T/f")" "$(s 'show files')"
    printf '{"text":"files"}\n{"text":"files","verb":"list"}\n{"verb":"a"}\n{"text":"b","verb":1}\n' >"$T/in"
    run -1 --separate-stderr q score --jsonl -T do --set verb=show -i "$T/in"
    printf '{"text":"show files"}\n{"text":"list files"}\n' >"$T/in2"
    q score --jsonl -i "$T/in2" >"$T/want"
    equal "$(head -2 <<<"$output")" "$(cat "$T/want")"
    echo "$output" | jlines '"text: not a string" in o[2]["error"] and "verb: not a string" in o[3]["error"]'
    prompt none 'list {verb}'
    fails 2 "has no {} for the input" score -T none --set verb=a x
    echo '{"text":"a","verb":"b"}' >"$T/in2"
    run -1 --separate-stderr q score --jsonl -T none -i "$T/in2"
    [[ $output == *"text: "*"none.txt has no {} for it"* ]]
    fails 2 "{verb} has no value" score -T do x
    fails 2 "--set a: $PROMPTS/do.txt has no {a}" score --jsonl -T do --set a=b -i "$T/in"
}
