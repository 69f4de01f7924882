#!/bin/sh
# Injected faults, interrupted work, limits, texts and determinism in depth; a part of
# `make torture`, of which `make check` takes samples.
#   torture.sh QWICK DIR      ONLY="limits texts": these parts only
#   SEED=N (default 1) is the seed of what chance decides.
set -u
cd "$(dirname "$0")/.."
qwick=$1 dir=$2
seed=${SEED:-1}
only=${ONLY:-injection interrupt limits texts determinism allocations}
failed=0
mkdir -p "$dir"
${CC:-cc} -O2 -shared -fPIC -o "$dir/inject.so" tests/faults/inject.c || exit 1

# part NAME ARGS...: run a part, unless ONLY leaves it out.
part()
{
    name=$1
    shift
    case " $only " in
    *" $name "*) ;;
    *) return ;;
    esac
    echo "== $name"
    python3 "tests/torture/$name.py" "$@" || failed=1
}

part injection "$qwick" "$dir/inject.so" "$dir/injection" --seed "$seed" --most 200 --matrix
part interrupt "$qwick" "$dir/inject.so" "$dir/interrupt" --seed "$seed" --runs 100
part limits "$qwick" "$dir/limits"
part texts "$qwick" "$dir/texts"
part determinism "$qwick" "$dir/determinism" --seed "$seed" --runs 100
case " $only " in
*" allocations "*)
    echo "== allocations"
    QWICK=$qwick QWICK_FAULTS=all bats tests/cli/faults.bats || failed=1
    ;;
esac
exit $failed
