#!/bin/sh
# Write build/qwick-VERSION.tar.xz and its checksum beside it. The archive has
# the files that git tracks, as they are in the working tree. Its bytes depend on
# these files and on the time of the last commit (or SOURCE_DATE_EPOCH), and on
# nothing else: not on the umask, the time zone, the user or the time of the
# checkout. LEVEL is xz's, 6 by default.
set -eu
cd "$(dirname "$0")/.."

if [ $# -gt 0 ]; then
    echo "usage: scripts/make-dist.sh" >&2
    exit 2
fi
if ! top=$(git rev-parse --show-toplevel 2>/dev/null) ||
    [ "$top" != "$(pwd -P)" ]; then
    echo "make-dist: this is no git repository, so the list of files is not known" >&2
    exit 1
fi
version=$(sed -n 's/^#define QWICK_VERSION "\(.*\)"$/\1/p' include/qwick.h)
epoch=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct)}
name=qwick-$version
out=build/$name.tar.xz
if ! git diff --quiet HEAD --; then
    echo "make-dist: warning: the files differ from the last commit" >&2
fi

mkdir -p build
work=$(mktemp -d build/dist.XXXXXX)
trap 'rm -rf "$work"' EXIT
# Each step writes a file, so that none can fail unnoticed in a pipe. One thread
# of xz: the number of threads changes the archive.
git ls-files -z >"$work/files"
LC_ALL=C sort -z -o "$work/files" "$work/files"
unset TAR_OPTIONS XZ_DEFAULTS XZ_OPT
tar --create --file "$work/$name.tar" --no-recursion --format=ustar \
    --transform "flags=r;s|^|$name/|" --mtime "@$epoch" --owner 0 --group 0 \
    --numeric-owner --mode 'u=rwX,go=rX' --null --files-from "$work/files"
xz -T1 "-${LEVEL:-6}" -c "$work/$name.tar" >"$work/$name.tar.xz"
(cd "$work" && sha256sum "$name.tar.xz" >"$name.tar.xz.sha256")
mv "$work/$name.tar.xz" "$out"
mv "$work/$name.tar.xz.sha256" "$out.sha256"
echo "$out"
cat "$out.sha256"
