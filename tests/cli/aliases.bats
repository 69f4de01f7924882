#!/usr/bin/env bats
# qwick models alias: the user's own names of models.
load helpers

setup() {
    common_setup
    export XDG_CONFIG_HOME=$T/config
    FILE=$XDG_CONFIG_HOME/qwick/aliases
}

# model ARGS…: the model that answers.
model() {
    q --json -n 1 "$@" "list files" | jget 'o["model"]'
}

@test "an alias is set, followed, listed, changed and removed" {
    demo_as tiny
    demo_as other
    q models alias t="$T/tiny"
    equal "$(model -m t)" "$T/tiny"
    equal "$(QWICK_MODEL=t model)" "$T/tiny"
    # a path becomes absolute; an alias may name another
    (cd "$T" && q models alias o=other u=o)
    equal "$(cat "$FILE")" "t = \"$T/tiny\""$'\n'"o = \"$T/other\""$'\n''u = "o"'
    equal "$(model -m u)" "$T/other"
    q --draft t -n 1 "list files" -q >/dev/null
    equal "$(q models alias)" "t = $T/tiny"$'\n'"o = $T/other"$'\n''u = o'
    equal "$(q models alias --json)" "$(q models --json --no-speed | jget 'o["aliases"]' |
        python3 -c 'import sys; print("{\"aliases\":" + sys.stdin.read().strip().replace("\x27", "\"").replace(": ", ":").replace(", ", ",") + "}")')"
    run -0 --separate-stderr q models --no-speed
    [[ $output == *$'aliases\n'"t = $T/tiny"$'\n'* ]]
    q models alias o=t
    equal "$(model -m u)" "$T/tiny"
    q models unalias u t
    equal "$(q models alias)" 'o = t'
    # o now names nothing
    fails 3 "o, an alias ($FILE:1): t: no such directory" -m o hi
    fails 2 "$FILE: uu: no such alias" models unalias uu
    # the built-in options of models have no effect here
    fails 2 "--no-speed: has no effect with alias" models alias --no-speed
    fails 2 "--json: has no effect when aliases change" models unalias o --json
    fails 2 "unalias: needs the name of an alias" models unalias
    fails 2 'alias: "x": is not NAME=MODEL' models alias x
    fails 2 'alias: "x=": is not NAME=MODEL' models alias x=
    fails 2 '"foo": only alias, unalias and rm take arguments' models foo
}

@test "a path wins over an alias, an alias over a short name" {
    demo_as tiny
    mkdir -p "$T/path"
    cp -r "$T/tiny" "$T/path/Qwen3-9B"
    export QWICK_MODEL_PATH=$T/path
    # the model in QWICK_MODEL_PATH has the short name as its name
    equal "$(model -m Qwen3-9B)" Qwen3-9B
    q models alias Qwen3-9B="$T/tiny"
    equal "$(model -m Qwen3-9B)" "$T/tiny"
    equal "$(model -m qwen3-9b)" qwen3-9b # an alias is exact
    equal "$(model -m Qwen3-9B --no-config)" Qwen3-9B
    equal "$(QWICK_NO_CONFIG=on model -m Qwen3-9B)" Qwen3-9B
    demo_as Qwen3-9B
    equal "$(cd "$T" && model -m Qwen3-9B)" Qwen3-9B
    # but not for the model of an alias
    q models alias two="$T/tiny" one=two
    equal "$(model -m one)" "$T/tiny"
    demo_as two
    equal "$(cd "$T" && model -m one)" "$T/tiny"
    # a path becomes absolute, even before it exists
    (cd "$T" && q models alias later=./later up=../x/y.gguf 2>"$T/err")
    grep -qxF "later = \"$T/./later\"" "$FILE"
    grep -qxF "up = \"$T/../x/y.gguf\"" "$FILE"
    # an alias of a short name
    q models alias nine=qwen3-9b
    equal "$(model -m nine)" qwen3-9b
}

@test "loops and models that are not there" {
    demo_as tiny
    q models alias a="$T/tiny" b=a
    fails 2 "a: would lead back to itself, as an alias of b" models alias a=b
    fails 2 "c: would lead back to itself, as an alias of c" models alias c=c
    run -0 --separate-stderr q models alias d=Qwen/Nope
    one_error_line
    [[ $stderr == *"warning: d: the alias is set, but its model cannot be opened: Qwen/Nope: no such directory"* ]]
    fails 3 "d, an alias ($FILE:3): Qwen/Nope: no such directory" -m d hi
    printf 'x = y\ny = x\n' >"$FILE"
    fails 2 "$FILE:1: x: this alias leads back to an alias before it" -m x hi
    # names that -m would read in another way
    for name in '' a/b a:b '.a' '~a' '-a' 'a b' '#a' '[a' 'a.gguf' $'a\nb' 'a"b'; do
        fails 2 'cannot be the name of an alias' models alias -- "$name=$T/tiny"
    done
    for line in 'a' '= b' 'a =' 'a/b = c' 'a = "x'; do
        printf '# mine\n%s\n' "$line" >"$FILE"
        fails 2 "$FILE:2: " -m nothing hi
        fails 2 "$FILE:2: " models alias
        fails 2 "$FILE:2: " models alias n="$T/tiny"
        equal "$(cat "$FILE")" "# mine"$'\n'"$line"
    done
    printf 'a = b\na = c\n' >"$FILE"
    fails 2 "$FILE:2: a: is on line 1 as well" -m nothing hi
    # a model that is a path needs no aliases
    equal "$(model -m "$T/tiny")" "$T/tiny"
}

@test "the file keeps its other lines, its rights and its place behind a link" {
    demo_as tiny
    mkdir -p "$XDG_CONFIG_HOME/qwick" "$T/dotfiles"
    printf '# mine\n\n  a =  Qwen/A\n# b\nb = Qwen/B' >"$T/dotfiles/aliases"
    chmod 600 "$T/dotfiles/aliases"
    ln -s "$T/dotfiles/aliases" "$FILE"
    q models alias c="$T/tiny"
    equal "$(cat "$FILE")" $'# mine\n\n  a =  Qwen/A\n# b\nb = Qwen/B\n'"c = \"$T/tiny\""
    q models unalias a
    equal "$(cat "$FILE")" $'# mine\n\n# b\nb = Qwen/B\n'"c = \"$T/tiny\""
    [ -L "$FILE" ] && [ "$(stat -c %a "$T/dotfiles/aliases")" = 600 ]
    [ -z "$(find "$XDG_CONFIG_HOME/qwick/" "$T/dotfiles" -name '*.tmp')" ]
    # many at once: none is lost
    rm "$FILE"
    for i in {1..12}; do q models alias "m$i=$T/tiny" & done
    wait
    equal "$(q models alias | sort)" "$(for i in {1..12}; do echo "m$i = $T/tiny"; done | sort)"
    # no place for the file
    run -2 --separate-stderr env -u HOME -u XDG_CONFIG_HOME "$QWICK" models alias x="$T/tiny"
    [[ $stderr == *"there is no place for aliases: HOME is not set"* ]]
}
