#!/usr/bin/env bats
# make dist: the archive of the source. debian/: its version.
load helpers

setup() {
    common_setup
    unset MAKEFLAGS MFLAGS MAKELEVEL MAKEOVERRIDES SOURCE_DATE_EPOCH
    VERSION=$(sed -n 's/^#define QWICK_VERSION "\(.*\)"$/\1/p' include/qwick.h)
}

need_repository() {
    command -v make >/dev/null || skip "no make"
    [ "$(git rev-parse --show-toplevel 2>/dev/null)" = "$(pwd -P)" ] ||
        skip "no git repository"
}

# copy_of_tree DIR: a clone of the repository with the files of the working tree.
# Models and data are cut to 64 KiB: nothing here reads them, and compressing and
# unpacking them takes most of the time.
copy_of_tree() {
    git clone -q --no-checkout --shared . "$1"
    git ls-files -z | tar -c --null -T - | tar -x -C "$1"
    cp "$(git rev-parse --git-path index)" "$1/.git/index"
    find "$1/models" "$1/scripts" "$1/tests" -type f -size +64k \
        -exec truncate -s 64K {} +
}

@test "make dist: the same bytes with another umask, time zone, owner and checkout" {
    need_repository
    copy_of_tree "$T/one"
    (umask 077 && copy_of_tree "$T/two")
    find "$T/two" -name .git -prune -o -type f -exec touch -d 2001-02-03 {} +
    mkdir "$T/two/build"
    touch "$T/two/build/qwick" "$T/two/note.txt" "$T/two/src/draft.c"
    (cd "$T/one" && umask 022 && TZ=UTC LC_ALL=C make -s dist LEVEL=0) >"$T/out"
    (cd "$T/two" && umask 077 && TZ=Asia/Tokyo LC_ALL=C.UTF-8 XZ_DEFAULTS=-T2 \
        make -s dist LEVEL=0) >"$T/out2"
    cmp "$T"/{one,two}/build/qwick-"$VERSION".tar.xz
    cmp "$T/out" "$T/out2"
    [ "$(head -n 1 "$T/out")" = "build/qwick-$VERSION.tar.xz" ]
    (cd "$T/one/build" && sha256sum -c --quiet "qwick-$VERSION.tar.xz.sha256")
    # its files are those that git tracks, below one directory
    tar -tf "$T/one/build/qwick-$VERSION.tar.xz" | LC_ALL=C sort >"$T/names"
    git ls-files | sed "s|^|qwick-$VERSION/|" | LC_ALL=C sort | cmp - "$T/names"
    # all may read them, and programs are programs
    tar -tvf "$T/one/build/qwick-$VERSION.tar.xz" >"$T/list"
    run ! grep -vE '^(-rw-r--r--|-rwxr-xr-x|lrwxrwxrwx) 0/0 ' "$T/list"
    grep -q '^-rwxr-xr-x .*/scripts/qwick-pull$' "$T/list"

    # the archive has all that a build and make demo need; use the objects of the
    # tested build, which are newer than the archive's files
    [ -z "${SAN:-}" ] && [ -e build/libqwick-internal.a ] || return 0
    tar -xf "$T/one/build/qwick-$VERSION.tar.xz" -C "$T"
    cd "$T/qwick-$VERSION"
    find . -type f -exec touch -d 2001-02-03 {} +
    ln -s "$OLDPWD/build" build
    cp -p "$OLDPWD"/{qwick,libqwick.a,libqwick.so,qwick-pull} .
    run -0 --separate-stderr make demo CI=1
    [[ $output == *"ss -"* ]]
    run -2 --separate-stderr make dist
    [[ $stderr == *"no git repository"* ]]
}

@test "debian/changelog and CHANGELOG.md have the version of the header" {
    [ "$(head -n 1 debian/changelog)" = "qwick ($VERSION) unstable; urgency=medium" ]
    # and CHANGELOG.md is in step: a section for it, and at most one that is not released
    grep -qx "## $VERSION" CHANGELOG.md
    [ "$(grep -c '^## Not released yet' CHANGELOG.md)" -le 1 ]
    # and the name of the package has the number of the soname
    local number
    number=$(sed -n 's/^SONAME := libqwick\.so\.//p' Makefile)
    [[ $number =~ ^[0-9]+$ ]]
    grep -q "^Package: libqwick$number$" debian/control
    [ -e "debian/libqwick$number.install" ]
}
