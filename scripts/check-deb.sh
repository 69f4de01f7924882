#!/usr/bin/env bash
# Build the Debian packages, run lintian on them, and install, use and remove
# them in a fresh system that mmdebstrap makes of this machine's package sources.
# Where packages or namespaces cannot be had, it prints SKIP and the reason.
set -u
cd "$(dirname "$0")/.." || exit

skip()
{
    printf 'SKIP: %s\n' "$1"
    exit 0
}

if ! why=$(scripts/install-deps.sh check-deb 2>&1); then
    skip "$(tail -n 1 <<<"$why")"
fi
scripts/make-deb.sh || exit 1

echo "== lintian"
# Without DEBEMAIL the packages have no mail address that works.
allowed=()
[ -n "${DEBEMAIL-}" ] ||
    allowed=(--suppress-tags bogus-mail-host,bogus-mail-host-in-debian-changelog)
lintian --fail-on error,warning "${allowed[@]}" build/deb/*.changes || exit 1

# In a namespace the hooks are another user, who must see these files.
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
chmod 755 "$work"
mkdir -m 777 "$work/marks"
mkdir "$work/packages"
for file in build/deb/*.deb; do
    [[ $file == *-dbgsym_* ]] || cp "$file" "$work/packages"
done

# The sources of this machine, and its proxy.
sources=()
for file in /etc/apt/sources.list /etc/apt/sources.list.d/*.{list,sources}; do
    [ ! -s "$file" ] || sources+=("$file")
done
[ ${#sources[@]} -gt 0 ] || skip "apt has no sources on this machine"
suite=$(. /etc/os-release && echo "${VERSION_CODENAME-}")
[ -n "$suite" ] || skip "this system has no code name"
options=()
proxy=
eval "$(apt-config shell proxy Acquire::http::Proxy)"
[ -z "$proxy" ] || options+=(--aptopt="Acquire::http::Proxy \"$proxy\"")

cat >"$work/inside.sh" <<'SH'
set -eux
export DEBIAN_FRONTEND=noninteractive LC_ALL=C.UTF-8 HOME=/root
cd /tmp/packages

# try_program: the installed program answers, and its pages and scripts are there.
try_program()
{
    test "$(qwick "list files" </dev/null)" = ls
    qwick --version
    qwick-pull --help >/dev/null
    dpkg -L qwick | grep -q '/man1/qwick\.1\.gz$'
    for file in bash-completion/completions/qwick zsh/vendor-completions/_qwick \
        fish/vendor_completions.d/qwick.fish; do
        test -s /usr/share/$file
    done
    test -s /usr/share/doc/qwick/contrib/systemd/user/qwick-serve.service
    zgrep -q '^# ' /usr/share/doc/qwick/stability.md*
}

# Dependencies come with apt; later dpkg alone installs and removes.
apt-get install -y -q --no-install-recommends ./*.deb
try_program
dpkg -r libqwick-dev libqwick1 qwick qwick-doc
test ! -e /usr/bin/qwick
dpkg -i ./*.deb
try_program

apt-get install -y -q --no-install-recommends gcc libc6-dev pkgconf
cat >/tmp/main.c <<'C'
#include <qwick_tools.h>
#include <stdio.h>

int main(void)
{
    struct qwick_engine_options o = qwick_engine_defaults();
    struct qwick_engine *eng = NULL;
    struct qwick_err e;
    int bad = qwick_engine_open(&eng, &o, &e);
    puts(bad ? e.msg : "the library opens a model");
    qwick_engine_close(eng);
    return bad;
}
C
gcc -Wall -Werror -o /tmp/main /tmp/main.c $(pkg-config --cflags --libs qwick)
/tmp/main
gcc -static-libgcc -o /tmp/digits /usr/share/doc/libqwick-dev/examples/digits.c \
    $(pkg-config --cflags --libs qwick)

dpkg -P libqwick-dev libqwick1 qwick qwick-doc
left=$(find /usr /etc /var/lib/dpkg/info -name '*qwick*')
test -z "$left"
echo "the packages left nothing behind"
SH

echo "== a fresh $suite: install, run, remove"
# The first hook leaves a mark: whatever fails before it is not about qwick.
if ! mmdebstrap --variant=apt "${options[@]}" \
    --customize-hook="touch '$work/marks/started'" \
    --customize-hook="cp -r '$work/packages' '$work/inside.sh' \"\$1/tmp\"" \
    --customize-hook='chroot "$1" sh /tmp/inside.sh' \
    "$suite" /dev/null "${sources[@]}" >"$work/log" 2>&1; then
    if [ ! -e "$work/marks/started" ]; then
        skip "mmdebstrap makes no system here: $(grep '^E: ' "$work/log" | head -n 1)"
    fi
    cat "$work/log"
    echo "FAIL: the packages in a fresh system"
    exit 1
fi
grep -vE '^(I: |Get:|Selecting|Preparing|Unpacking|Setting up|\(Reading)' "$work/log"
echo "PASS: the packages in a fresh system"
