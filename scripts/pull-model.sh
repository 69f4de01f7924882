#!/usr/bin/env bash
# Download a checkpoint from the Hugging Face hub, with curl and coreutils only.
set -euo pipefail

usage()
{
    cat <<'TEXT'
Usage: scripts/pull-model.sh [-r REVISION] [-d DIR] ORG/NAME

Downloads what qwick needs of a model (config, tokenizer, template, safetensors
weights) into the local Hugging Face cache, where `qwick -m ORG/NAME` and
transformers find it. An interrupted download goes on where it stopped; sizes
and checksums are verified. Prints the directory of the checkpoint.

  -r REVISION  branch, tag or commit (default: main)
  -d DIR       put plain files into DIR instead of the cache
  -h, --help   show this text

Environment: HF_TOKEN (for gated models), HF_ENDPOINT (default:
https://huggingface.co), HF_HUB_CACHE, HF_HOME, XDG_CACHE_HOME as for
transformers; http_proxy and the like as for curl.

Example: scripts/pull-model.sh Qwen/Qwen3-0.6B && qwick -m Qwen/Qwen3-0.6B "hi"
TEXT
}

fail()
{
    printf 'pull-model: %s\n' "$*" >&2
    exit 1
}

usage_error()
{
    printf 'pull-model: %s (see --help)\n' "$*" >&2
    exit 2
}

say()
{
    if [ -t 2 ]; then
        printf '%s\n' "$*" >&2
    fi
}

human()
{
    awk -v n="$1" 'BEGIN {
        split("B KiB MiB GiB TiB", unit, " ")
        for (i = 1; n >= 1024 && i < 5; i++) n /= 1024
        printf(i == 1 ? "%d %s" : "%.1f %s", n, unit[i])
    }'
}

# ---- talking to the hub ----

# curl with what every request needs. The token goes in through a file
# descriptor, so that the process list does not show it; curl itself keeps it
# from other hosts when redirected.
hub_curl()
{
    local config=
    if [ -n "${HF_TOKEN-}" ]; then
        config="header = \"Authorization: Bearer $HF_TOKEN\""
    fi
    curl -K <(printf '%s\n' "$config") --fail --location \
        --connect-timeout 20 --speed-limit 1 --speed-time 60 "$@"
}

# What curl's exit code and the HTTP status mean: one line, then the end.
fail_download()
{
    local what=$1 code=$2 status=$3 log=$4
    case "$code:$status" in
    6:* | 7:* | 5:*)
        fail "$endpoint: cannot connect: offline? (curl: exit $code)" ;;
    22:401)
        if [ -n "${HF_TOKEN-}" ]; then
            fail "$what: refused (HTTP 401): HF_TOKEN is not valid, or no" \
                "such model"
        fi
        fail "$what: no such model, or it is private or gated (HTTP 401):" \
            "then set HF_TOKEN" ;;
    22:403)
        fail "$what: gated or private (HTTP 403): accept its terms at" \
            "$endpoint/$model and set HF_TOKEN" ;;
    22:404) fail "$what: no such model, revision or file (HTTP 404)" ;;
    22:429) fail "$what: too many requests (HTTP 429): try again later" ;;
    22:*) fail "$what: HTTP status $status" ;;
    23:*) fail "$what: cannot be written: disk full?" ;;
    28:*) fail "$what: timed out: run again to go on" ;;
    35:* | 51:* | 58:* | 60:*)
        fail "$endpoint: TLS: $(tail -n 1 "$log" | sed 's/^curl: //')" ;;
    *) fail "$what: $(tail -n 1 "$log" | sed 's/^curl: //') (exit $code);" \
        "run again to go on" ;;
    esac
}

# Reads the hub's description of a model; prints "sha COMMIT", then for each
# file "file SIZE BLOB_ID SHA256 NAME", "-" standing for what is not there.
read_model_info()
{
    tr -d '\r\n' |
        grep -oE '"([^"\\]|\\.)*"|[][{}:,]|[^][{}:,"[:space:]]+' |
        awk '
        function text(token)
        {
            return token ~ /^"/ ? substr(token, 2, length(token) - 2) : token
        }
        function value(token)
        {
            if (depth == 1 && key[1] == "sha")
                print "sha", text(token)
            else if (key[1] != "siblings")
                return
            else if (depth == 3)
                entry[key[3]] = text(token)
            else if (depth == 4 && key[3] == "lfs" && key[4] == "sha256")
                entry["sha256"] = text(token)
        }
        function field(name)
        {
            return name in entry && entry[name] != "" ? entry[name] : "-"
        }
        /^[[{]$/ { key[++depth] = ""; colon = 0; next }
        /^[]}]$/ {
            if ($0 == "}" && depth == 3 && key[1] == "siblings") {
                print "file", field("size"), field("blobId"),
                    field("sha256"), field("rfilename")
                split("", entry)
            }
            depth--
            colon = 0
            next
        }
        $0 == ":" { key[depth] = text(last); colon = 1; next }
        $0 == "," { colon = 0; next }
        {
            if (colon)
                value($0)
            last = $0
        }'
}

fetch_model_info()
{
    local url code=0 status
    url="$endpoint/api/models/$model/revision/${revision//\//%2F}?blobs=true"
    status=$(hub_curl -sS -o "$tmp/info.json" -w '%{http_code}' "$url" \
        2>"$tmp/curl.log") || code=$?
    if [ "$code" -ne 0 ]; then
        fail_download "$model@$revision" "$code" "$status" "$tmp/curl.log"
    fi
    read_model_info <"$tmp/info.json" >"$tmp/info" ||
        fail "$endpoint: the answer for $model is no model description"
    commit=$(awk '$1 == "sha" { print $2; exit }' "$tmp/info")
    case $commit in
    '' | *[!0-9a-f]*)
        fail "$endpoint: the answer for $model names no commit" ;;
    esac
}

# ---- which files ----

has_file()
{
    awk -v name="$1" '$1 == "file" && $5 == name && NF == 5 { found = 1 }
        END { exit !found }' "$tmp/info"
}

choose_files()
{
    local name
    files=()
    for name in config.json generation_config.json tokenizer.json \
        tokenizer_config.json chat_template.jinja; do
        if has_file "$name"; then
            files+=("$name")
        fi
    done
    has_file config.json || fail "$model: has no config.json"
    if has_file model.safetensors.index.json; then
        files+=(model.safetensors.index.json)
    elif has_file model.safetensors; then
        files+=(model.safetensors)
    else
        while read -r name; do
            files+=("$name")
        done < <(awk '$1 == "file" && NF == 5 && $5 !~ /\// &&
            $5 ~ /\.safetensors$/ { print $5 }' "$tmp/info")
        case "${files[*]}" in
        *.safetensors*) ;;
        *) fail "$model: has no weights in safetensors format" ;;
        esac
    fi
}

# The shards that an index names, once it is here.
choose_shards()
{
    local name n=0
    while read -r name; do
        case $name in
        */* | .*) fail "$model: the index names a shard '$name'" ;;
        esac
        has_file "$name" ||
            fail "$model: the index names '$name', which is not there"
        files+=("$name")
        n=$((n + 1))
    done < <(grep -oE '"[^"\\]*\.safetensors"' "$1" | tr -d '"' | sort -u)
    [ "$n" -gt 0 ] || fail "$model: the index names no shards"
}

# ---- one file ----

size_of()
{
    stat -L -c %s "$1" 2>/dev/null || echo 0
}

# The hub names large files by their SHA-256 and small ones as git does.
checksum_of()
{
    local file=$1 sha256=$2
    if [ "$sha256" != - ]; then
        sha256sum <"$file" | cut -d ' ' -f 1
    else
        { printf 'blob %s\0' "$(size_of "$file")" && cat "$file"; } |
            sha1sum | cut -d ' ' -f 1
    fi
}

check_space()
{
    local dir=$1 needed=$2 name=$3 free
    free=$(df -Pk "$dir" 2>/dev/null | awk 'NR == 2 { print $4 }') || return 0
    case $free in
    '' | *[!0-9]*) return 0 ;;
    esac
    if [ "$((needed / 1024))" -ge "$free" ]; then
        fail "$name: disk full: needs $(human "$needed")," \
            "$(human $((free * 1024))) free in $dir"
    fi
}

# Bring FILE to SIZE bytes: from the start, or from where it ends.
fetch()
{
    local name=$1 file=$2 size=$3 attempt=0 code status have
    local url=$endpoint/$model/resolve/$commit/$name
    local progress=-sS
    if [ -t 2 ]; then
        progress=--progress-bar
    fi
    if [ "$(size_of "$file")" -gt "$size" ]; then
        rm -f "$file"
    fi
    check_space "$(dirname "$file")" $((size - $(size_of "$file"))) "$name"
    say "$name ($(human "$size"))"
    [ -e "$file" ] || : >"$file"
    while have=$(size_of "$file") && [ "$have" -lt "$size" ]; do
        code=0
        if [ -t 2 ]; then
            # Its bar is written to the terminal; errors come with it.
            : >"$tmp/curl.log"
            status=$(hub_curl $progress -C - -o "$file" -w '%{http_code}' \
                "$url") || code=$?
        else
            status=$(hub_curl $progress -C - -o "$file" -w '%{http_code}' \
                "$url" 2>"$tmp/curl.log") || code=$?
        fi
        attempt=$((attempt + 1))
        case "$code:$status" in
        0:*)
            # Complete as far as the server goes: the size check decides.
            break ;;
        33:* | 22:416)
            # This server cannot resume.
            [ "$attempt" -le 2 ] || break
            : >"$file" ;;
        18:* | 28:* | 52:* | 55:* | 56:* | 92:* | 22:5??)
            # Broken off: go on as long as it gets further.
            if [ "$attempt" -ge 5 ] && [ "$(size_of "$file")" -le "$have" ]
            then
                fail_download "$name" "$code" "$status" "$tmp/curl.log"
            fi
            sleep 1 ;;
        *) fail_download "$name" "$code" "$status" "$tmp/curl.log" ;;
        esac
    done
}

# Set size, id (the name of its blob) and sha256 of a file in the list.
look_up()
{
    local name=$1
    read -r size blob sha256 < <(awk -v name="$name" \
        '$1 == "file" && $5 == name { print $2, $3, $4; exit }' "$tmp/info")
    case "$size$blob" in
    *[!0-9a-f]*) fail "$endpoint: lists no size or checksum for $name" ;;
    esac
    case $sha256 in
    -) id=$blob ;;
    *[!0-9a-f]*) fail "$endpoint: lists a malformed checksum for $name" ;;
    *) id=$sha256 ;;
    esac
}

# Download to PARTIAL, verify, and move to FILE.
fetch_verified()
{
    local name=$1 partial=$2 file=$3 got
    fetch "$name" "$partial" "$size"
    got=$(size_of "$partial")
    if [ "$got" -ne "$size" ]; then
        rm -f "$partial"
        fail "$name: $got bytes came, expected $size; removed: run again"
    fi
    got=$(checksum_of "$partial" "$sha256")
    if [ "$got" != "$id" ]; then
        rm -f "$partial"
        fail "$name: checksum mismatch: $got, expected $id; removed: run again"
    fi
    mv -f "$partial" "$file"
}

# Into the cache: blobs/ID, and a link to it in the snapshot. A blob got its
# name after it was verified.
pull_to_cache()
{
    local name=$1 file
    look_up "$name"
    file=$repo/blobs/$id
    if [ ! -f "$file" ] || [ "$(size_of "$file")" -ne "$size" ]; then
        fetch_verified "$name" "$file.incomplete" "$file"
    fi
    ln -sfn "../../blobs/$id" "$target/$name"
}

pull_to_dir()
{
    local name=$1 file=$target/$1
    look_up "$name"
    if [ -f "$file" ] && [ "$(size_of "$file")" -eq "$size" ] &&
        [ "$(checksum_of "$file" "$sha256")" = "$id" ]; then
        return
    fi
    fetch_verified "$name" "$target/.$name.${id:0:12}.incomplete" "$file"
}

# ---- main ----

revision=main
dir=
if [ "${1-}" = --help ]; then
    usage
    exit 0
fi
while getopts :r:d:h option; do
    case $option in
    r) revision=$OPTARG ;;
    d) dir=$OPTARG ;;
    h)
        usage
        exit 0
        ;;
    :) usage_error "option -$OPTARG needs a value" ;;
    *) usage_error "unknown option -$OPTARG" ;;
    esac
done
shift $((OPTIND - 1))
[ $# -eq 1 ] || usage_error "give one ORG/NAME"
model=$1
case $model in
*/*/* | */ | /* | .* | */.* | *[!A-Za-z0-9_./-]*)
    usage_error "'$model' is no ORG/NAME" ;;
*/*) ;;
*) usage_error "'$model' is no ORG/NAME" ;;
esac
case $revision in
'' | /* | */ | *..* | *[!A-Za-z0-9_./-]*)
    usage_error "'$revision' is no revision" ;;
esac
endpoint=${HF_ENDPOINT:-https://huggingface.co}
endpoint=${endpoint%/}
case ${HF_TOKEN-} in
*[!A-Za-z0-9_.-]*) fail "HF_TOKEN: holds characters that no token has" ;;
esac
command -v curl >/dev/null || fail "curl is not installed"

tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT

fetch_model_info
choose_files

if [ -n "$dir" ]; then
    target=$dir
    mkdir -p "$target" || fail "$target: cannot be made"
    lock=$target
    pull=pull_to_dir
else
    if [ -n "${HF_HUB_CACHE-}" ]; then
        hub=$HF_HUB_CACHE
    elif [ -n "${HF_HOME-}" ]; then
        hub=$HF_HOME/hub
    else
        hub=${XDG_CACHE_HOME:-${HOME:?}/.cache}/huggingface/hub
    fi
    repo=$hub/models--${model/\//--}
    target=$repo/snapshots/$commit
    mkdir -p "$repo/blobs" "$target" "$repo/refs" ||
        fail "$repo: cannot be made"
    lock=$repo
    pull=pull_to_cache
fi
exec 9<"$lock"
if command -v flock >/dev/null; then
    flock -n 9 || fail "$lock: another download into it is running"
fi

for name in "${files[@]}"; do
    "$pull" "$name"
done
if [ "${files[${#files[@]} - 1]}" = model.safetensors.index.json ]; then
    files=()
    choose_shards "$target/model.safetensors.index.json"
    for name in "${files[@]}"; do
        "$pull" "$name"
    done
fi

# The reference comes last: until here, nothing claims that the model is there.
if [ -z "$dir" ] && [ "$revision" != "$commit" ]; then
    ref=$repo/refs/$revision
    mkdir -p "$(dirname "$ref")"
    printf %s "$commit" >"$ref.$$"
    mv -f "$ref.$$" "$ref"
fi
if [ -n "$dir" ]; then
    say "done: qwick -m $dir"
else
    say "done: qwick -m $model"
fi
printf '%s\n' "$target"
