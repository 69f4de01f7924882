#!/bin/sh
# Build the Debian packages from a copy of the tree, into build/deb/. DEBEMAIL and
# DEBFULLNAME, if set, name the maintainer; the project has no mail address.
set -eu
cd "$(dirname "$0")/.."

if [ $# -gt 0 ]; then
    echo "usage: scripts/make-deb.sh" >&2
    exit 2
fi
scripts/install-deps.sh deb
version=$(sed -n 's/^#define QWICK_VERSION "\(.*\)"$/\1/p' include/qwick.h)
packaged=$(dpkg-parsechangelog -S Version)
if [ "$packaged" != "$version" ]; then
    echo "make-deb: debian/changelog has version $packaged, include/qwick.h $version" >&2
    exit 1
fi

rm -rf build/deb
source=build/deb/qwick-$version
mkdir -p "$source"
# An unpacked archive of make dist has no git: all but what make makes.
if git rev-parse --git-dir >/dev/null 2>&1; then
    git ls-files -z >build/deb/files
else
    find . -path ./build -prune -o \( -type f -o -type l \) ! -path './*qwick' \
        ! -path './libqwick.*' ! -path './qwick-pull' -print0 >build/deb/files
fi
tar --create --file build/deb/tree.tar --null --files-from build/deb/files
tar --extract --file build/deb/tree.tar -C "$source"
rm build/deb/files build/deb/tree.tar

if [ -n "${DEBEMAIL-}" ]; then
    maintainer="${DEBFULLNAME:-The qwick authors} <$DEBEMAIL>"
    sed -i "s|^Maintainer: .*|Maintainer: $maintainer|" "$source/debian/control"
    sed -i "s|^ -- .*>  | -- $maintainer  |" "$source/debian/changelog"
fi

# The options of a make that runs this script are not those of the package.
unset MAKEFLAGS MFLAGS MAKELEVEL MAKEOVERRIDES BUILD SAN CI CFLAGS LDFLAGS
(
    cd "$source"
    DEB_BUILD_OPTIONS="parallel=$(nproc) ${DEB_BUILD_OPTIONS-}" \
        dpkg-buildpackage -b -us -uc
) >build/deb/log 2>&1 || {
    tail -n 30 build/deb/log >&2
    echo "make-deb: the build failed; build/deb/log has all of its output" >&2
    exit 1
}
rm -rf "$source"
ls build/deb/*.deb
