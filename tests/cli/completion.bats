#!/usr/bin/env bats
# Completion in bash, zsh and fish, with one table of command lines for all.
load helpers

# A home directory with models of two stores, and a directory to complete in.
setup_file() {
    cd "$BATS_TEST_DIRNAME/../.." || return 1
    local d=$BATS_FILE_TMPDIR hub
    hub=$d/home/.cache/huggingface/hub
    mkdir -p "$hub/models--org--Muse/refs" "$hub/models--org--Muse/snapshots"
    printf 1 >"$hub/models--org--Muse/refs/main"
    ln -s "$PWD/models/demo" "$hub/models--org--Muse/snapshots/1"
    mkdir -p "$d/home/lib" "$d/work/dir" "$d/work/my dir" "$d/bin"
    cp -r models/demo "$d/home/lib/tiny:6k"
    mkdir -p "$d/home/.config/qwick/prompts"
    touch "$d/home/.config/qwick/prompts/"{to-french,to_english,other}.txt
    touch "$d/home/.config/qwick/prompts/tail"
    cp -r models/demo "$d/home/lib/Evil\$(touch pwned)"
    touch "$d/work/deep.gguf" "$d/work/data.txt" "$d/work/my file.txt"
    ln -s "$(realpath "${QWICK:-./qwick}")" "$d/bin/qwick"
}

setup() {
    common_setup
    D=$BATS_FILE_TMPDIR
    export HOME=$D/home QWICK_MODEL_PATH=$D/home/lib PATH=$D/bin:$PATH
    # The terminal's end kills qwick, and with it half of a search for leaks, for
    # which the other half would wait for ever.
    [ "${SAN:-}" != 1 ] || export ASAN_OPTIONS=detect_leaks=0
    LINE_PY=$PWD/tests/cli/complete_line.py
    cd "$D/work"
    for shell in bash zsh fish; do
        q completion $shell >"$T/qwick.$shell"
    done
}

need_shell() {
    command -v "$1" >/dev/null || skip "$1 is not installed"
}

# What may follow a line: LINE|WORD WORD...
table() {
    cat <<'TABLE'
qwick tok|tokenize
qwick sco|score
qwick completion |bash fish zsh
qwick help com|completion
qwick help te|templates
qwick help choo|choose choosing-a-model
qwick --think=|auto off on
qwick --think |auto off on
qwick --kv f|f16 f32
qwick --kv q|q4 q8
qwick embed --format |f32 jsonl npy tsv
qwick --tool-choice |auto none required
qwick cache |clear gc ls
qwick cache ls |
qwick -f da|data.txt
qwick --file=da|data.txt
qwick -f d|data.txt deep.gguf dir
qwick --chat-template da|data.txt
qwick --cache-dir d|dir
qwick --prefix-cache=d|dir
qwick --prefix-cache d|detokenize
qwick -p d|
qwick --stop d|
qwick -n d|
qwick -n5 d|detokenize
qwick da|
qwick x d|
qwick tokenize d|
qwick -m d|deep.gguf dir
qwick -md|deep.gguf dir
qwick -T t|to-french to_english
qwick -Tto-|to-french
qwick batch --preset=to_|to_english
qwick batch --preset d|data.txt dir
qwick -m Mu|Muse
qwick --draft Mu|Muse
qwick -m org/M|org/Muse
qwick --json tok|tokenize
qwick -m data.txt --json tok|tokenize
qwick -qm data.txt tok|tokenize
qwick -q rer|rerank
qwick --query|--query
qwick --query d|
qwick rerank -q d|
qwick rerank --quer|--query
qwick tokenize --quer|
qwick --skip-|--skip-special
qwick detokenize --sk|--skip-special
qwick run --prompt|--prompt --prompt-ids --prompt-template
qwick generate --prompt|--prompt --prompt-ids --prompt-template
qwick x --prompt|--prompt --prompt-ids --prompt-template
qwick -m x --json bench --re|--reps
qwick -p bench --prompt|--prompt --prompt-ids --prompt-template
qwick -- --mo|
qwick -- tok|
TABLE
    # the options of each verb are those of its help
    for verb in $(all_verbs); do
        printf 'qwick %s --|%s\n' "$verb" "$(verb_options "$verb" |
            tr '\n' ' ')"
    done
    printf 'qwick |%s run\n' "$(all_verbs | tr '\n' ' ')"
}

# Compare with the table what a shell offers: files of lines "LINE|WORD", in any
# order.
compare() {
    table >"$T/table"
    command python3 - "$T/table" "$1" <<'PY'
import re, sys
want, got = {}, {}
for line in open(sys.argv[1]):
    key, words = line.rstrip("\n").split("|")
    assert key not in want, key
    want[key] = set(words.split())
    got[key] = set()
for line in open(sys.argv[2]):
    if "|" not in line:
        continue
    key, word = line.rstrip("\n").split("|", 1)
    # some shells repeat the option or the letter, or end directories with /
    word = re.sub(r"^--[a-z-]+=|^-[a-zA-Z](?=.)", "", word).rstrip("/")
    if word:
        got[key].add(word)
bad = [(k, sorted(got[k] - want[k]), sorted(want[k] - got[k]))
       for k in want if got[k] != want[k]]
for key, more, less in bad:
    print("%r: too many: %s; missing: %s" % (key, more[:9], less[:9]))
assert len(want) > 60 and not bad
PY
}

@test "bash offers the verbs, options and values of the tables" {
    # as bash splits a line: at blanks, and around "=" and ":"
    cat >"$T/offer.bash" <<'SH'
source "$1"
while IFS= read -r line; do
    line=${line%%|*} rest=$line COMP_WORDS=()
    COMP_LINE=$line COMP_POINT=${#line}
    while [[ $rest =~ ^[[:space:]]*([=:]+|[^[:space:]=:]+) ]]; do
        COMP_WORDS+=("${BASH_REMATCH[1]}")
        rest=${rest#"${BASH_REMATCH[0]}"}
    done
    [[ $line != *' ' ]] || COMP_WORDS+=('')
    COMP_CWORD=$((${#COMP_WORDS[@]} - 1))
    _qwick qwick "${COMP_WORDS[COMP_CWORD]}" ''
    printf "%s|%s\n" "$line" ''
    for word in "${COMPREPLY[@]}"; do
        printf "%s|%s\n" "$line" "$word"
    done
done
SH
    table | bash -u "$T/offer.bash" "$T/qwick.bash" >"$T/offers" 2>"$T/err"
    compare "$T/offers"
    [ ! -s "$T/err" ]
}

@test "fish offers the verbs, options and values of the tables" {
    need_shell fish
    cat >"$T/offer.fish" <<'SH'
source $argv[1]
while read -l line
    set line (string replace -r '\|.*' '' -- $line)
    printf '%s|\n' $line
    for word in (complete -C "$line")
        printf '%s|%s\n' $line (string replace -r '\t.*' '' -- $word)
    end
end
SH
    table | fish --no-config "$T/offer.fish" "$T/qwick.fish" >"$T/offers" 2>"$T/err"
    compare "$T/offers"
    [ ! -s "$T/err" ]
}

zsh_setup() {
    cat >"$T/setup.zsh" <<SH
unset zle_bracketed_paste
LISTMAX=10000
autoload -Uz compinit && compinit -u -D
source $T/qwick.zsh
SH
}

@test "zsh offers the verbs, options and values of the tables" {
    need_shell zsh
    zsh_setup
    # write down what goes to the list of matches
    cat >>"$T/setup.zsh" <<SH
compadd() {
  local -a hits
  if [[ "\$*" != *-[OAD]\ * && "\$*" != *-[OAD][a-z_]* ]]; then
    builtin compadd -O hits "\$@"
    print -rl -- "\${(j: :)words}|"\${^hits} >>$T/offers
  fi
  builtin compadd "\$@"
}
SH
    mapfile -t lines < <(table | sed 's/|.*//')
    : >"$T/offers"
    command python3 "$LINE_PY" zsh "$T/setup.zsh" "${lines[@]}" >"$T/out"
    [ "$(wc -l <"$T/out")" -eq "${#lines[@]}" ]
    compare "$T/offers"
}

# What a shell makes of lines and the tabulator key.
typed() {
    cat <<'TABLE'
qwick comp|<qwick><completion>
qwick --think=of|<qwick><--think=off>
qwick -f my\ f|<qwick><-f><my file.txt>
qwick -f "my f|<qwick><-f><my file.txt>
qwick -m tiny:|<qwick><-m><tiny:6k>
qwick -m Evi|<qwick><-m><Evil$(touch pwned)>
qwick -p da|<qwick><-p><da>
TABLE
}

check_typed() {
    mapfile -t lines < <(typed | sed 's/|.*//')
    command python3 "$LINE_PY" "$1" "$2" "${lines[@]}" >"$T/out"
    diff <(typed | sed "s/[^|]*|//${3:+;$3}") "$T/out"
    [ ! -e pwned ]
}

@test "bash: names are quoted, and words with = and : are completed" {
    # a name that bash would not quote is not offered
    check_typed bash "$T/qwick.bash" 's/Evil.*/Evi>/'
}

@test "zsh: names are quoted, and words with = and : are completed" {
    need_shell zsh
    zsh_setup
    check_typed zsh "$T/setup.zsh"
}

@test "fish: names are quoted, and words with = and : are completed" {
    need_shell fish
    check_typed fish "$T/qwick.fish"
}

@test "models --names: a name and an id on each line, and nothing is opened" {
    run -0 --separate-stderr q models --names
    [ -z "$stderr" ]
    [ "$(grep -v ollama <<<"$output")" = "Evil\$(touch pwned)	Evil\$(touch pwned)
Muse	org/Muse
tiny:6k	tiny:6k" ]
    # a model that cannot be opened has a name; one that is not there has none
    local hub=$T/hub
    mkdir -p "$hub/models--a--B/refs" "$hub/models--a--B/snapshots/1" \
        "$hub/models--a--Gone/refs"
    printf 1 >"$hub/models--a--B/refs/main"
    echo '{' >"$hub/models--a--B/snapshots/1/config.json"
    echo >"$hub/models--a--B/snapshots/1/model.safetensors"
    printf 2 >"$hub/models--a--Gone/refs/main"
    unset QWICK_MODEL_PATH
    run -0 env HOME="$T" HF_HUB_CACHE="$hub" "$QWICK" models --names
    [ "$(grep -v ollama <<<"$output")" = "B	a/B" ]
    # a name that would break the lines is left out, with a warning
    mkdir -p "$T/path/"$'a\tb'
    cp "$D/home/lib/tiny:6k/"*.json "$D/home/lib/tiny:6k/"*.safetensors \
        "$T/path/"$'a\tb'
    QWICK_MODEL_PATH=$T/path run -0 --separate-stderr q models --names
    [[ $stderr == *"left out: their names have control characters"* ]]
    [[ $output != *$'a\tb'* ]]
    fails 2 "--names: cannot be combined with --json" models --names --json
    fails 2 "--no-speed: has no effect with --names" models --names --no-speed
}

@test "errors of the program stay out of the line" {
    cat >"$T/run.bash" <<'SH'
source "$1"
COMP_WORDS=(qwick -m M) COMP_CWORD=2
_qwick
echo "${#COMPREPLY[@]}"
SH
    mkdir -p "$T/config/qwick"
    echo broken >"$T/config/qwick/config"
    XDG_CONFIG_HOME=$T/config run -0 --separate-stderr bash "$T/run.bash" "$T/qwick.bash"
    [ "$output" = 1 ]
    [ -z "$stderr" ]
    QWICK_QUIET=maybe run -0 --separate-stderr bash "$T/run.bash" "$T/qwick.bash"
    [ "$output" = 0 ]
    [ -z "$stderr" ]
}

@test "completion: arguments" {
    fails 2 "expected the name of one shell: bash|zsh|fish" completion
    fails 2 "expected the name of one shell: bash|zsh|fish" completion bash zsh
    fails 2 '"tcsh" is none of bash|zsh|fish' completion tcsh
}
