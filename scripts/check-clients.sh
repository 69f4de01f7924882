#!/usr/bin/env bash
# Run libraries and agents of other projects against `qwick serve` (tests/clients).
# They come from npm, and go into a temporary folder; after that there is no network.
# Prints SKIP where that is not possible.
#   QWICK       the binary (default ./qwick)
#   MAKE_MODEL  bench/make_model, which makes the checkpoint
#   PACKAGES    a folder in which the packages are installed already, or where to keep
#               them and the logs
#   CLIENTS     names of clients, to run only these
set -eu
cd "$(dirname "$0")/.."
QWICK=$(realpath "${QWICK:-./qwick}")
MAKE_MODEL=$(realpath "${MAKE_MODEL:-build/bench/make_model}")
source=$PWD/tests/clients
tokenizer=$PWD/build/testdata/qwen3-tokenizer

skip()
{
    echo "SKIP check-clients: $*"
    exit 0
}

command -v node >/dev/null && command -v npm >/dev/null || skip "needs Node.js and npm"
node -e 'process.exit(parseInt(process.versions.node) < 20 ? 1 : 0)' || skip "needs Node.js 20"
if [ -n "${PACKAGES:-}" ]; then
    mkdir -p "$PACKAGES"
else
    PACKAGES=$(mktemp -d)
    trap 'rm -rf "$PACKAGES"' EXIT
fi
cd "$PACKAGES"
if ! cmp -s "$source/package.json" installed.json; then
    # without a network, npm install tries for a long time
    timeout 30 npm view zod version >npm.log 2>&1 || skip "npm reaches no registry"
    cp "$source/package.json" .
    npm install --loglevel=error --no-audit --no-fund >npm.log 2>&1 ||
        skip "npm cannot install the packages: $(grep -m 1 error npm.log)"
    cp package.json installed.json
fi
# the programs find the packages beside them
cp "$source"/*.mjs .
if [ ! -d model ]; then
    "$MAKE_MODEL" --shape 0.6B --layers 1 --tokenizer "$tokenizer" model.new
    mv model.new model
fi

# In a network of its own, with the loopback device alone, no client reaches anything.
if unshare -rn ip link set lo up 2>/dev/null; then
    # shellcheck disable=SC2016 # for the inner shell
    exec_alone='ip link set lo up && exec "$@"'
    # shellcheck disable=SC2086 # a list of names
    unshare -rn sh -c "$exec_alone" - node check.mjs "$QWICK" model . ${CLIENTS:-}
else
    echo "note: no network namespace: only the settings of the clients keep them offline"
    # shellcheck disable=SC2086 # a list of names
    node check.mjs "$QWICK" model . ${CLIENTS:-}
fi
