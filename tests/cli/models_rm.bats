#!/usr/bin/env bats
# qwick models rm: removing models from the Hugging Face cache.
load helpers

setup() {
    common_setup
    export HF_HUB_CACHE=$T/hub
    R=$T/hub/models--org--x
}

# snapshot REPO HASH NAME=BLOB…: links to blobs, which get 1000 bytes each.
snapshot() {
    local repo=$T/hub/models--$1 hash=$2 pair name blob up
    shift 2
    mkdir -p "$repo/refs" "$repo/blobs" "$repo/snapshots/$hash"
    for pair; do
        name=${pair%=*} blob=${pair#*=} up=
        case $name in */*) up=../; mkdir -p "$repo/snapshots/$hash/${name%/*}" ;; esac
        [ -e "$repo/blobs/$blob" ] || head -c 1000 /dev/zero >"$repo/blobs/$blob"
        ln -s "$up../../blobs/$blob" "$repo/snapshots/$hash/$name"
    done
}

# ref REPO NAME HASH
ref() { printf %s "$3" >"$T/hub/models--$1/refs/$2"; }

# Two snapshots of org/x that share a blob.
two_snapshots() {
    snapshot org--x aaa config.json=c1 model.safetensors=w
    snapshot org--x bbb config.json=c2 model.safetensors=w
    ref org--x main bbb
    ref org--x v1 aaa
    ref org--x also bbb
}

# Three quantizations, one in parts in a directory.
quantizations() {
    snapshot org--x-GGUF aaa config.json=c x-Q8_0.gguf=q8 x-Q4_K_M.gguf=q4 \
        BF16/x-BF16-00001-of-00002.gguf=b1 BF16/x-BF16-00002-of-00002.gguf=b2
    ref org--x-GGUF main aaa
    G=$T/hub/models--org--x-GGUF
}

# What is in a directory, without directories.
tree() { (cd "$1" && find . ! -type d | sort | paste -sd' '); }

@test "a snapshot goes with its references, and blobs that no other one links" {
    two_snapshots
    equal "$(q models rm org/x --force)" "$(printf '1000\torg/x')"
    equal "$(tree "$R")" "./blobs/c1 ./blobs/w ./refs/v1 ./snapshots/aaa/config.json ./snapshots/aaa/model.safetensors"
    [ ! -e "$R/snapshots/bbb" ]
    fails 3 "org/x: no such directory" inspect -m org/x
    # again: no other model is found
    run ! q models rm org/x --force
    [ -e "$R/snapshots/aaa" ]
    # the last one: nothing stays
    equal "$(q models rm org/x@v1 --force --json)" \
        "{\"removed\":[{\"name\":\"org/x@v1\",\"path\":\"$R/snapshots/aaa\",\"files\":2,\"bytes\":2000,\"complete\":true}],\"bytes\":2000}"
    [ ! -e "$R" ]
    [ -d "$T/hub" ]
    fails 3 "org/x: no model has this name" models rm org/x --force
}

@test "one quantization of several, with its parts" {
    quantizations
    equal "$(q models rm org/x-GGUF:Q8_0 --force)" "$(printf '1000\torg/x-GGUF:Q8_0')"
    [ ! -e "$G/blobs/q8" ] && [ ! -L "$G/snapshots/aaa/x-Q8_0.gguf" ]
    [ -e "$G/blobs/q4" ] && [ -e "$G/refs/main" ]
    fails 3 "no model has this name" models rm org/x-GGUF:Q8_0 --force
    equal "$(q models rm org/x-GGUF:BF16 --force)" "$(printf '2000\torg/x-GGUF:BF16')"
    equal "$(tree "$G")" "./blobs/c ./blobs/q4 ./refs/main ./snapshots/aaa/config.json ./snapshots/aaa/x-Q4_K_M.gguf"
    [ ! -e "$G/snapshots/aaa/BF16" ]
    # by the name that qwick models shows; a file that another snapshot has stays
    snapshot org--x-GGUF bbb y-Q4_K_M.gguf=q4
    equal "$(q models rm x-Q4_K_M --force)" "$(printf '0\tx-Q4_K_M')"
    [ -e "$G/snapshots/bbb/y-Q4_K_M.gguf" ]
    # the only file of a snapshot goes with it
    q models rm org/x-GGUF@bbb:Q4_K_M --force
    [ ! -e "$G/snapshots/bbb" ] && [ ! -e "$G/blobs/q4" ]
}

@test "a blob stays while a link of any form leads to it" {
    local to
    for to in "$R/blobs/w" "../../../models--org--x/blobs/w" "../../snapshots/../blobs/w"; do
        snapshot org--x aaa config.json=c model.safetensors=w
        snapshot org--x bbb config.json=c
        ln -s "$to" "$R/snapshots/bbb/model.safetensors"
        ref org--x main aaa
        fails 2 "2 files of org/x in $R/snapshots/aaa, 0 B" models rm org/x
        equal "$(q models rm org/x --force)" "$(printf '0\torg/x')"
        [ -e "$R/snapshots/bbb/model.safetensors" ]
        rm -r "$R"
    done
}

@test "parts without the first one go together" {
    quantizations
    rm "$G/snapshots/aaa/BF16/x-BF16-00001-of-00002.gguf"
    for i in 2 3; do
        head -c 1000 /dev/zero >"$G/blobs/n$i"
        ln -s "../../blobs/n$i" "$G/snapshots/aaa/x-F16-0000$i-of-00003.gguf"
    done
    q models rm org/x-GGUF/BF16/x-BF16-00002-of-00002.gguf --force
    [ ! -e "$G/snapshots/aaa/BF16" ] && [ ! -e "$G/blobs/b2" ]
    f=$G/snapshots/aaa/x-F16-00002-of-00003.gguf
    equal "$(q models rm "$f" --force --json)" \
        "{\"removed\":[{\"name\":\"$f\",\"path\":\"$f\",\"files\":2,\"bytes\":2000,\"complete\":true}],\"bytes\":2000}"
    [ -e "$G/blobs/q4" ]
    [ -z "$(ls "$G/snapshots/aaa" "$G/blobs" | grep -e F16 -e '^n')" ]
}

@test "an id without a type is the whole snapshot" {
    quantizations
    equal "$(q models rm org/x-GGUF --force)" "$(printf '5000\torg/x-GGUF')"
    [ ! -e "$G" ]
}

@test "several models of one command; a misspelt one removes nothing" {
    quantizations
    two_snapshots
    fails 3 "org/y: no model has this name" models rm org/x-GGUF:Q8_0 org/y --force
    [ -e "$G/blobs/q8" ]
    equal "$(q models rm org/x-GGUF:Q8_0 org/x-GGUF:Q4_K_M org/x@v1 --force | paste -sd' ')" \
        "$(printf '1000\torg/x-GGUF:Q8_0 1000\torg/x-GGUF:Q4_K_M 1000\torg/x@v1')"
}

@test "without a terminal, and usage" {
    two_snapshots
    fails 2 "2 files of org/x in $R/snapshots/bbb, 1.00 kB: without a terminal, --force removes them" models rm org/x
    fails 2 "without a terminal" models rm org/x --json
    [ -e "$R/snapshots/bbb/config.json" ]
    fails 2 "rm: needs the name of a model" models rm --force
    fails 2 "--force: has no effect without rm" models --force
    fails 2 "--force: has no effect without rm" models alias --force
    fails 2 "--no-speed: has no effect with rm" models rm org/x --no-speed
    export XDG_CONFIG_HOME=$T/config
    q models alias small=org/x 2>/dev/null
    fails 2 "small: is an alias: name its model org/x" models rm small --force
    [ -e "$R/snapshots/bbb/config.json" ]
}

@test "on a terminal it asks" {
    two_snapshots
    python3 - "$QWICK" <<'PY'
import os, pty, sys
def ask(answer):
    pid, fd = pty.fork()
    if not pid:
        os.execv(sys.argv[1], [sys.argv[1], "models", "rm", "org/x"])
    out = b""
    while b"Type yes" not in out:
        out += os.read(fd, 4096)
    os.write(fd, answer)
    try:
        while True:
            got = os.read(fd, 4096)
            if not got: break
            out += got
    except OSError:
        pass
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), out
here = os.environ["HF_HUB_CACHE"] + "/models--org--x/snapshots/bbb"
code, out = ask(b"no\n")
assert code == 1 and b"nothing is removed" in out and os.path.exists(here), (code, out)
code, out = ask(b"yes\n")
assert code == 0 and b"1000\torg/x" in out and not os.path.exists(here), (code, out)
PY
}

@test "what others keep is refused by name" {
    mkdir -p "$T/lib/org/tiny" "$T/.lmstudio/models/org/lm" "$T/plain"
    cp models/demo/* "$T/lib/org/tiny"
    cp models/demo/* "$T/.lmstudio/models/org/lm"
    cp models/demo/* "$T/plain"
    QWICK_MODEL_PATH=$T/lib fails 2 "tiny: $T/lib/org/tiny: is in your QWICK_MODEL_PATH" models rm tiny --force
    fails 2 "org/lm: $T/.lmstudio/models/org/lm: is LM Studio's" models rm org/lm --force
    fails 2 "$T/plain: is not in the Hugging Face cache" models rm "$T/plain" --force
    head -c 8 /dev/zero >"$T/x.gguf"
    fails 2 "$T/x.gguf: is not in the Hugging Face cache" models rm "$T/x.gguf" --force
    mkdir -p "$T/o/manifests/registry.ollama.ai/library/qwen3" "$T/o/blobs"
    hex=$(printf a | sha256sum | cut -d' ' -f1)
    printf a >"$T/o/blobs/sha256-$hex"
    printf '{"layers":[{"mediaType":"application/vnd.ollama.image.model","digest":"sha256:%s","size":1}]}' \
        "$hex" >"$T/o/manifests/registry.ollama.ai/library/qwen3/4b"
    OLLAMA_MODELS=$T/o fails 2 "qwen3:4b: $T/o/blobs/sha256-$hex: is Ollama's: remove it with ollama rm" models rm qwen3:4b --force
    [ -e "$T/o/blobs/sha256-$hex" ] && [ -e "$T/plain/config.json" ] && [ -e "$T/lib/org/tiny/config.json" ]
}

@test "a name of several models lists them" {
    snapshot org--x aaa config.json=c model.safetensors=w
    snapshot other--x aaa config.json=c model.safetensors=w
    ref org--x main aaa
    ref other--x main aaa
    fails 2 "x: 2 models have this name: choose one of org/x, other/x" models rm x --force
    # another case of letters is another name
    fails 3 "ORG/x: no model has this name" models rm ORG/x --force
    q models rm "$R/snapshots/aaa/" --force
    [ ! -e "$R" ]
    # alone, its short name is enough
    q models rm x --force
    [ -z "$(ls "$T/hub")" ]
}

@test "links are removed, and never what they lead to" {
    mkdir -p "$T/out"
    echo mine >"$T/out/file"
    snapshot org--x aaa config.json=c model.safetensors=w
    ref org--x main aaa
    ln -s "$T/out/file" "$R/snapshots/aaa/abs.json"
    ln -s "$T/out" "$R/snapshots/aaa/dir"
    ln -s ../../blobs/../../../../out/file "$R/snapshots/aaa/up.json"
    ln -s ../../blobs/gone "$R/snapshots/aaa/dangling"
    ln -s "$T/out/file" "$R/blobs/l"
    ln -s ../../blobs/l "$R/snapshots/aaa/l.json"
    ln -s "$T/out" "$R/refs/more"
    ln -s "$T/out" "$R/.no_exist"
    equal "$(q models rm org/x --force)" "$(printf '2000\torg/x')"
    [ ! -e "$R" ] && [ "$(tree "$T/out")" = ./file ]
    # a snapshot that is a link, and directories that are
    snapshot org--x aaa config.json=c
    cp models/demo/* "$T/out"
    ln -s "$T/out" "$R/snapshots/bbb"
    q models rm org/x@bbb --force
    [ -e "$T/out/model.safetensors" ] && [ ! -L "$R/snapshots/bbb" ] && [ -e "$R/blobs/c" ]
    mv "$R/blobs" "$T/blobs"
    ln -s "$T/blobs" "$R/blobs"
    fails 1 "$R/blobs: is a symbolic link" models rm org/x@aaa --force
    rm "$R/blobs"
    mv "$T/blobs" "$R/blobs"
    mv "$R" "$T/elsewhere"
    ln -s "$T/elsewhere" "$R"
    fails 1 "$R: is a symbolic link" models rm org/x@aaa --force
    [ -e "$T/elsewhere/snapshots/aaa/config.json" ]
}

@test "an interrupted removal leaves nothing half, and the next one ends it" {
    two_snapshots
    # after the references; the snapshot is whole
    rm "$R/refs/main" "$R/refs/also"
    q models --names | grep -q 'org/x@bbb'
    # after the rename: it is not listed
    mkdir "$R/.removed-bbb"
    mv "$R/snapshots/bbb" "$R/.removed-bbb/@snapshot"
    [ "$(q models --names | cut -f2)" = org/x@v1 ]
    equal "$(q models rm org/x --force)" "$(printf '1000\torg/x')"
    [ "$(tree "$R")" = "./blobs/c1 ./blobs/w ./refs/v1 ./snapshots/aaa/config.json ./snapshots/aaa/model.safetensors" ]
    [ ! -e "$R/.removed-bbb" ]
    # the last one, whose blobs are still there
    mkdir "$R/.removed-aaa"
    mv "$R/snapshots/aaa" "$R/.removed-aaa/@snapshot"
    q models rm org/x --force
    [ ! -e "$R" ]
    # a file, after its first part
    quantizations
    mkdir -p "$G/.removed-aaa/BF16"
    mv "$G/snapshots/aaa/BF16/x-BF16-00001-of-00002.gguf" "$G/.removed-aaa/BF16"
    ! q models --names | grep BF16 || false
    q models rm org/x-GGUF:BF16 --force
    equal "$(tree "$G")" "./blobs/c ./blobs/q4 ./blobs/q8 ./refs/main ./snapshots/aaa/config.json ./snapshots/aaa/x-Q4_K_M.gguf ./snapshots/aaa/x-Q8_0.gguf"
    # one that was downloaded again stays
    mkdir "$G/.removed-aaa"
    cp -a "$G/snapshots/aaa/x-Q8_0.gguf" "$G/.removed-aaa"
    q models rm org/x-GGUF:Q4_K_M --force
    [ -e "$G/snapshots/aaa/x-Q8_0.gguf" ] && [ ! -e "$G/.removed-aaa" ] && [ ! -e "$G/blobs/q4" ]
    # with all its parts
    rm -r "$G"
    quantizations
    mkdir -p "$G/.removed-aaa/BF16"
    cp -a "$G"/snapshots/aaa/BF16/*-00001-* "$G/.removed-aaa/BF16"
    q models rm org/x-GGUF:Q4_K_M --force
    equal "$(ls "$G/snapshots/aaa/BF16")" "$(printf 'x-BF16-0000%s-of-00002.gguf\n' 1 2)"
    [ -e "$G/blobs/b1" ] && [ -e "$G/blobs/b2" ] && [ ! -e "$G/.removed-aaa" ]
}

@test "a file with another name frees nothing" {
    two_snapshots
    ln "$R/blobs/c2" "$T/mine"
    fails 2 "2 files of org/x in $R/snapshots/bbb, 0 B" models rm org/x
    equal "$(q models rm org/x --force)" "$(printf '0\torg/x')"
    [ ! -e "$R/blobs/c2" ] && [ -e "$T/mine" ]
}

@test "killed at any step, the snapshot is whole or not listed, and rm ends it" {
    command -v strace >/dev/null || skip "no strace"
    for call in unlinkat renameat; do
        for n in 1 2 3 4 5 6 7 8; do
            rm -rf "$T/hub"
            two_snapshots
            strace -qq -o /dev/null -e trace=$call -e inject=$call:signal=KILL:when=$n \
                "$QWICK" models rm org/x --force </dev/null >/dev/null 2>&1 && break
            if [ -e "$R/snapshots/bbb" ]; then
                [ -e "$R/snapshots/bbb/config.json" ] && [ -e "$R/snapshots/bbb/model.safetensors" ]
                q models rm "$R/snapshots/bbb" --force
            else
                ! q models --names | grep bbb || false
                q models rm org/x --force || [ ! -e "$R/.removed-bbb" ]
            fi
            equal "$(tree "$R")" "./blobs/c1 ./blobs/w ./refs/v1 ./snapshots/aaa/config.json ./snapshots/aaa/model.safetensors"
        done
    done
}

@test "a download that runs, by qwick-pull or huggingface_hub, keeps its repository" {
    two_snapshots
    exec 9<"$R"
    flock -n 9
    fails 1 "$R: a download into it, or a removal, is running" models rm org/x --force 9<&-
    exec 9<&-
    mkdir -p "$T/hub/.locks/models--org--x"
    exec 9>"$T/hub/.locks/models--org--x/w.lock"
    flock -n 9
    fails 1 "$R: a download into it, or a removal, is running" models rm org/x --force 9<&-
    exec 9<&-
    [ -e "$R/snapshots/bbb/config.json" ]
    q models rm org/x --force
}

@test "an incomplete download goes as a whole" {
    snapshot org--x aaa
    head -c 500 /dev/zero >"$R/blobs/w.incomplete"
    q models --no-speed | grep -q "incomplete download"
    equal "$(q models rm org/x --force)" "$(printf '500\torg/x')"
    [ ! -e "$R" ]
}

@test "a store that cannot be changed" {
    two_snapshots
    as=()
    if [ "$(id -u)" = 0 ]; then
        command -v setpriv >/dev/null || skip "root may write everything"
        as=(setpriv --bounding-set -dac_override,-dac_read_search)
    fi
    chmod a-w "$R/blobs"
    run -1 --separate-stderr "${as[@]}" "$QWICK" models rm org/x --force </dev/null
    [ "$stderr" = "qwick: $R/blobs: cannot be changed: Permission denied" ]
    [ -z "$output" ] && [ -e "$R/refs/main" ] && [ -e "$R/snapshots/bbb/config.json" ]
    chmod u+w "$R/blobs"
}

@test "a reference to a snapshot that is missing" {
    two_snapshots
    ref org--x main gone
    fails 2 "0 files of org/x in $R, 0 B" models rm org/x
    q models rm org/x --force
    equal "$(cd "$R/refs" && echo *)" "also v1"
    [ -e "$R/snapshots/bbb/config.json" ]
    # then nothing is left to remove by this name
    fails 3 "org/y@v2: no model has this name" models rm org/y@v2 --force
}

@test "leftovers of a snapshot whose download was begun again" {
    snapshot org--x aaa
    mkdir -p "$R/.removed-aaa/@snapshot"
    head -c 1000 /dev/zero >"$R/blobs/w"
    ln -s ../../blobs/w "$R/.removed-aaa/@snapshot/model.safetensors"
    : >"$R/blobs/c.incomplete"
    equal "$(q models rm org/x --force)" "$(printf '1000\torg/x')"
    [ ! -e "$R" ]
}
