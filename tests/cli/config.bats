#!/usr/bin/env bats
# Options from the config file and the environment.
load helpers

setup() {
    config_setup
}

# config LINE...: write the config file.
config() {
    printf '%s\n' "$@" >"$CONFIG"
}

# n_tokens VERB…: the number of tokens of an answer of generate.
n_tokens() {
    q --json --ignore-eos "$@" "list files" | jget 'len(o["tokens"])'
}

# source_of OPTION ARGS…: print the option's value and source that --show-config
# prints.
source_of() {
    local option=$1
    shift
    q --show-config "$@" | sed -n "s/^$option  *\(.*[^ ]\)   *\([^ ].*\)\$/\1|\2/p"
}

@test "the config file, the environment and the command line, in this order" {
    equal "$(n_tokens -n 9)" 9
    config '# most tokens' '' 'max-tokens = 2'
    equal "$(n_tokens)" 2
    equal "$(QWICK_MAX_TOKENS=3 n_tokens)" 3
    equal "$(QWICK_MAX_TOKENS=3 n_tokens -n 4)" 4
    equal "$(QWICK_MAX_TOKENS= n_tokens)" 2
    config 'max-tokens = 2' '[generate]' 'max-tokens = 5' '[batch]' 'max-tokens = 6'
    equal "$(n_tokens)" 5
    equal "$(n_tokens run)" 5
    equal "$(echo '{"prompt":"list files"}' | "$QWICK" batch --ignore-eos |
        jget 'len(o["tokens"])')" 6
    config 'max-tokens = 2' '[run]' 'max-tokens = 5'
    equal "$(n_tokens)" 5
    config '[batch]' 'max-tokens = 6'
    equal "$(n_tokens -n 9)" 9
}

# The id Qwen/Demo is in the cache, as $snapshot; the directory of its name, in
# $T/cwd, is another model.
demo_twice() {
    export HOME=$T/home
    snapshot=$HOME/.cache/huggingface/hub/models--Qwen--Demo/snapshots/abc
    mkdir -p "$snapshot" "${snapshot%/*/*}/refs" "$T/cwd/Qwen/Demo"
    printf abc >"${snapshot%/*/*}/refs/main"
    cp models/demo/* "$snapshot"
    cp models/demo/* "$T/cwd/Qwen/Demo"
}

@test "what lies in the current directory shadows no model of a setting" {
    model() { (cd "$T/cwd" && q --json -n 1 "$@" hi 2>/dev/null) | jget 'o["model"], o["tokens"]'; }
    path() { (cd "$T/cwd" && q inspect --json "$@") | jget 'o["path"]'; }
    demo_twice
    cp -r "$T/cwd/Qwen/Demo" "$T/cwd/plain"
    equal "$(path -m Qwen/Demo)" Qwen/Demo
    equal "$(path -m ./Qwen/Demo)" ./Qwen/Demo
    equal "$(QWICK_MODEL=Qwen/Demo path)" "$snapshot"
    equal "$(QWICK_MODEL=./Qwen/Demo path)" ./Qwen/Demo
    cp -r "$T/cwd/Qwen/Demo" "$HOME/own"
    equal "$(QWICK_MODEL="~/own" path)" "$HOME/own"
    equal "$(QWICK_MODEL=$T/cwd/Qwen/Demo path)" "$T/cwd/Qwen/Demo"
    echo 'model = Qwen/Demo' >"$CONFIG"
    equal "$(path)" "$snapshot"
    equal "$(path -m Qwen/Demo)" Qwen/Demo
    q models alias d=Qwen/Demo
    equal "$(path -m d)" "$snapshot"
    equal "$(QWICK_MODEL=d path)" "$snapshot"
    (cd "$T/cwd" && q quantize --bits 8 -o "$T/q8" 2>/dev/null)
    equal "$(q inspect --json -m "$T/q8" | jget 'o["path"]')" "$T/q8"
    # a draft of the config file, too
    mkdir "$T/cwd/d"
    printf 'model = Qwen/Demo\ndraft = d\n' >"$CONFIG"
    (cd "$T/cwd" && q -n 2 hi) >/dev/null 2>"$T/err"
    grep -q "draft: is the model itself" "$T/err"
    # a path without ./ is no name
    rm "$CONFIG"
    cd "$T/cwd"
    for m in plain models/x.gguf; do
        QWICK_MODEL=$m fails 3 "is written ./$m" inspect
        echo "model = $m" >"$CONFIG"
        fails 3 "$m: no model has this name in" inspect
        rm "$CONFIG"
    done
    fails 3 "models/x.gguf: no such file" inspect -m models/x.gguf
}

@test "an explicit name that is a directory and an id gets a note" {
    demo_twice
    cd "$T/cwd"
    on_terminal() { script -qefc "'$QWICK' count $* hi" /dev/null </dev/null | tr -d '\r'; }
    local -x COLUMNS=200 # no message ends its line between words
    [[ $(on_terminal -m Qwen/Demo) == *"note: Qwen/Demo: is the path; the model of this name in the Hugging Face cache is $snapshot"* ]]
    equal "$(on_terminal -m ./Qwen/Demo)" 1
    equal "$(QWICK_MODEL=Qwen/Demo on_terminal)" 1
    run -0 --separate-stderr q count -m Qwen/Demo hi
    [ -z "$stderr" ]
}

@test "the place of the file" {
    unset XDG_CONFIG_HOME
    mkdir -p "$T/.config/qwick"
    echo 'max-tokens = 2' >"$T/.config/qwick/config"
    equal "$(n_tokens)" 2
    equal "$(XDG_CONFIG_HOME=relative n_tokens)" 2
    equal "$(XDG_CONFIG_HOME=$T/none n_tokens -n 8)" 8
    equal "$(env -u HOME "$QWICK" --show-config </dev/null | sed -n 2p)" \
        "# config file: none, HOME is not set"
}

@test "--no-config and QWICK_NO_CONFIG leave the file unread" {
    config 'max-tokens = 2' 'no such line'
    fails 2 "$CONFIG:2: \"no such line\": is not NAME = VALUE" hi
    equal "$(n_tokens --no-config -n 7)" 7
    equal "$(QWICK_NO_CONFIG=on n_tokens -n 7)" 7
    equal "$(QWICK_MAX_TOKENS=3 n_tokens --no-config)" 3
    QWICK_NO_CONFIG=off fails 2 "no such line" hi
    QWICK_NO_CONFIG=maybe fails 2 \
        'QWICK_NO_CONFIG: "maybe": expected on or off' hi
    # help needs no configuration that is right
    run -0 q --help
    run -0 q batch --help
    run -0 q help batch
    run -0 q --version
    run -0 q version
}

@test "values: quotes, flags, lists, home, line ends" {
    printf '\357\273\277stop = "a\\tb#"  \r\n  stop=é # "\n' >"$CONFIG"
    fails 2 "$CONFIG:2: stop: a comment has its own line" hi
    printf '\357\273\277stop = "a\\tb#"  \r\n  stop=é"#\r\nextract = on\r\n' >"$CONFIG"
    equal "$(source_of stop)" "\"a\\tb#\" \"é\\\"#\"|$CONFIG:2"
    equal "$(source_of extract)" "on|$CONFIG:3"
    equal "$(QWICK_EXTRACT=off source_of extract)" "off|QWICK_EXTRACT"
    equal "$(QWICK_STOP=x source_of stop)" '"x"|QWICK_STOP'
    equal "$(source_of stop --stop y --stop z)" '"y" "z"|command line'
    config 'stop = a' '[generate]' 'stop = b'
    equal "$(source_of stop)" "\"b\"|$CONFIG:3"
    config 'model = ~/tiny' 'system = ""'
    demo_as tiny
    equal "$(q --json "list files" | jget 'o["model"]')" "$T/tiny"
    equal "$(source_of model)" "$T/tiny|$CONFIG:1"
    equal "$(source_of system)" "\"\"|$CONFIG:2"
    config 'threads = 1,2' # a list in bench only
    fails 2 "$CONFIG:1: threads: \"1,2\": expected an integer, 1..1024" hi
    config '[bench]' 'threads = 1,2' 'prefix-cache = on'
    fails 2 "$CONFIG:3: prefix-cache: bench has no such option; generate has it" hi
    config '[bench]' 'threads = 1,2'
    equal "$(source_of threads bench)" "1,2|$CONFIG:2"
    for on in on ON true yes 1; do
        equal "$(QWICK_GREEDY=$on source_of greedy)" "on|QWICK_GREEDY"
    done
    for off in off false No 0; do
        equal "$(QWICK_GREEDY=$off source_of greedy)" "off|QWICK_GREEDY"
    done
    equal "$(QWICK_PREFIX_CACHE=on source_of prefix-cache)" "on|QWICK_PREFIX_CACHE"
}

@test "faults name the line, the option and the value" {
    local c=$CONFIG
    # each is LINE | MESSAGE
    while IFS='|' read -r line message; do
        config '# a comment' "$line"
        fails 2 "$message" hi
        fails 2 "$message" tokenize hi
    done <<END
threads = x|$c:2: threads: "x": expected an integer, 1..1024
threads =|$c:2: threads: "": expected an integer, 1..1024
thredas = 2|$c:2: thredas: unknown option, did you mean threads
max_tokens = 2|$c:2: max_tokens: unknown option, did you mean max-tokens
--threads = 2|$c:2: --threads: unknown option, did you mean threads
frobnicate = 2|$c:2: frobnicate: unknown option
n = 2|$c:2: n: unknown option
= 2|$c:2: "= 2": is not NAME = VALUE
threads 2|$c:2: "threads 2": is not NAME = VALUE
[bach]|$c:2: [bach]: no such verb, did you mean batch
[nonsense]|$c:2: [nonsense]: no such verb
[batch|$c:2: "[batch": a section is [VERB]
[]|$c:2: []: no such verb
prompt = hi|$c:2: prompt: belongs to one command
output = x|$c:2: output: belongs to one command
allow-special = on|$c:2: allow-special: belongs to one command
no-config = on|$c:2: no-config: belongs to one command
show-config = on|$c:2: show-config: belongs to one command
kv = f64|$c:2: kv: "f64" is none of f32|f16|q8|q4
json = maybe|$c:2: json: "maybe": expected on or off
prefix-cache = /tmp/x|$c:2: prefix-cache: "/tmp/x": expected on or off; cache-dir names the place
dim = 0|$c:2: dim: "0": expected an integer
prefix-cache-size = 1X|$c:2: prefix-cache-size: "1X": expected a number of bytes
temp = nan|$c:2: temp: "nan": expected a number
model =|$c:2: model: the value is empty
system = "a|$c:2: system: offset
system = "a" b|$c:2: system: offset
system = "a\u0000b"|$c:2: system: has a NUL character
system = a # b|$c:2: system: a comment has its own line
END
    config 'threads = 1' 'threads = 2'
    fails 2 "$c:2: threads: is set twice, first at $c:1" hi
    config '[batch]' 'seed = 1' '[embed]' 'seed = 2'
    fails 2 "$c:4: seed: embed has no such option; generate has it" hi
    config '[batch]' 'seed = 1' '[embed]' 'dim = x'
    fails 2 "$c:4: dim: \"x\": expected an integer" hi
    printf 'threads = 1\0\n' >"$CONFIG"
    fails 2 "$c: has a NUL byte" hi
    QWICK_TEMP=hot fails 2 'QWICK_TEMP: "hot": expected a number, 0..' --no-config hi
    head -c 1100000 /dev/zero | tr '\0' '#' >"$CONFIG"
    fails 1 "$c: " hi
}

@test "a file that cannot be read is an error" {
    config 'threads = 1'
    chmod 000 "$CONFIG"
    if [ "$(id -u)" != 0 ]; then
        fails 1 "$CONFIG: cannot open: Permission denied (--no-config goes on without it)" hi
    fi
    chmod 644 "$CONFIG"
    rm "$CONFIG"
    mkdir "$CONFIG"
    fails 1 "$CONFIG: is not a regular file" hi
    rmdir "$CONFIG"
    mkfifo "$CONFIG"
    fails 1 "$CONFIG: is not a regular file" hi
    rm "$CONFIG"
    ln -s "$CONFIG" "$CONFIG"
    fails 1 "$CONFIG: cannot open: Too many levels" hi
}

@test "defaults without effect give way to the command line" {
    config 'system = Be brief.' 'think-budget = 5' 'temp = 0.5' 'top-k = 5' \
        'kv = q8' 'stop = x' 'cache-dir = ~/cache' 'logprobs = 2'
    run -0 --separate-stderr q -v -n 2 --raw --greedy --exact "list files"
    [[ $stderr == *"$CONFIG:1: system: has no effect with --raw"* ]]
    [[ $stderr == *"$CONFIG:3: temp: has no effect with --greedy"* ]]
    [[ $stderr == *"$CONFIG:4: top-k: has no effect with --greedy"* ]]
    [[ $stderr == *"$CONFIG:5: kv: has no effect with --exact"* ]]
    [[ $stderr == *"$CONFIG:8: logprobs: has no effect without --json or --jsonl"* ]]
    mixed=$output
    equal "$mixed" "$(q --no-config -n 2 --raw --greedy --exact "list files")"
    rm -rf "$T/cache"
    # the system prompt counts where it can
    n=$(q --json -n 1 hi | jget 'o["usage"]["prompt_tokens"]')
    m=$(q --no-config --json -n 1 hi | jget 'o["usage"]["prompt_tokens"]')
    [ "$n" -gt "$m" ]
    echo "Speak." >"$T/system.txt"
    equal "$(q --json -n 1 --system-file "$T/system.txt" hi | jget 'o["usage"]["prompt_tokens"]')" \
        "$(q --no-config --json -n 1 -s Speak. hi | jget 'o["usage"]["prompt_tokens"]')"
    echo '[{"role":"user","content":"hi"}]' >"$T/chat.json"
    equal "$(q --json -n 1 --chat-json "$T/chat.json" | jget 'o["usage"]["prompt_tokens"]')" "$m"
    # a repeated measurement uses no cache on disk
    rm -rf "$T/cache"
    run -0 hurried q -q -n 1 --repeat 2 --profile-timing hi
    [ ! -e "$T/cache" ]
    config 'regex = [0-9]+' 'stop = x'
    equal "$(q --choices 'aa,bb' hi | tr b a)" aa
    config 'choices = "aa,bb"' 'json-indent = 2'
    [[ $(q --regex '[0-9]{3}' hi) =~ ^[0-9]{3}$ ]]
    config 'system = a' 'system-file = b'
    fails 2 "$CONFIG:1: system: cannot be combined with $CONFIG:2: system-file" hi
    config 'raw = on'
    fails 2 "--system: has no effect with --raw ($CONFIG:1)" -s a hi
    QWICK_RAW=off run -0 q -s a -n 1 hi
    # in choose, whose arguments are a part of generate's
    config 'system = Be brief.'
    equal "$(q choose --json -a a -a b --chat-json "$T/chat.json")" \
        "$(q choose --no-config --json -a a -a b --chat-json "$T/chat.json")"
    # of templates, with a checkpoint that has none
    mkdir "$T/plain"
    ln -s "$PWD"/models/demo/{config.json,tokenizer.json,model.safetensors} "$T/plain/"
    config 'template-arg = a=1' 'think = off' 'system = a'
    run -0 q -m "$T/plain" -n 1 hi
    run -0 "$QWICK" batch -m "$T/plain" -n 1 <<<'{"prompt":"hi"}'
    fails 2 "--template-arg: has no effect with a checkpoint that has no chat template" \
        -m "$T/plain" --no-config --template-arg a=1 hi
}

@test "--show-config" {
    config 'threads = 1' '[batch]' 'seed = 7'
    run -0 --separate-stderr env QWICK_KV=q8 "$QWICK" --show-config batch -n 5
    [ -z "$stderr" ]
    [ "${lines[0]}" = "# verb: batch" ]
    [ "${lines[1]}" = "# config file: $CONFIG" ]
    equal "$(source_of threads batch)" "1|$CONFIG:1"
    equal "$(source_of seed batch)" "7|$CONFIG:3"
    equal "$(source_of seed)" "random|default"
    equal "$(source_of max-tokens batch -n 5)" "5|command line"
    equal "$(source_of max-tokens -n 5 batch)" "5|command line"
    equal "$(source_of json)" "off|default"
    equal "$(QWICK_KV=q8 source_of kv batch)" "q8|QWICK_KV"
    # each option of the verb that a default can have
    q --show-config embed | grep -q '^dim  '
    [ -z "$(q --show-config embed | grep -E '^(seed|output|help|lines) ')" ]
    fails 2 "\"bach\": --show-config takes a verb, and no other arguments" \
        --show-config bach
    rm "$CONFIG"
    equal "$(q --show-config | sed -n 2p)" "# config file: $CONFIG, does not exist"
    equal "$(q --no-config --show-config | sed -n 2p)" "# config file: $CONFIG, ignored: no-config"
    run -0 q help --show-config
    run -0 q --show-config version
}

@test "variables of other programs are left alone, misspelt ones are not" {
    run -0 --separate-stderr env QWICK_BIN=/x QWICK_VERSION=3 QWICK_OUTPUT=/x \
        QWICK_PROMPT=x QWICK_DIR=/x QWICK_threads=x QWICK_=x QWICK_DIM=3 \
        "$QWICK" -n 1 --ignore-eos "list files" </dev/null
    [[ $stderr != *QWICK* ]]
    run -0 --separate-stderr env QWICK_THREDS=3 "$QWICK" count hi </dev/null
    [ "$stderr" = "qwick: warning: QWICK_THREDS: no option has this name, did you mean --threads?" ]
    run -0 --separate-stderr env QWICK_THREDS=3 "$QWICK" count -q hi </dev/null
    [ -z "$stderr" ]
}
