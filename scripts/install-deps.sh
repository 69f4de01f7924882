#!/bin/sh
# Install the Debian/Ubuntu packages that qwick is built with. Does nothing,
# and needs neither root nor a network, when all of them are there.
set -eu

usage()
{
    cat <<'TEXT'
Usage: scripts/install-deps.sh [test | fuzz | analyse | races | html | arm | deb | check-deb | cluster]

Installs what `make` needs. With a word, also installs what a target of make needs:
  test       make check
  fuzz       make fuzz: clang and its OpenMP
  analyse    make analyse: clang-tidy and cppcheck
  races      make check-races: valgrind
  html       make check-html: Chromium and fonts
  arm        make check-arm: a compiler, libraries and an emulator for 64-bit ARM,
             whose packages dpkg is told to accept
  deb        make deb
  check-deb  make check-deb
  cluster    make check-cluster: Slurm, munge and GNU parallel
Only missing packages are installed, with apt-get (through sudo when not root).
TEXT
}

fail()
{
    echo "install-deps: $*" >&2
    exit 1
}

build_packages="gcc make libc6-dev libopenblas-openmp-dev libutf8proc-dev
    nettle-dev libmicrohttpd-dev libsqlite3-dev"
test_packages="libcmocka-dev bats xz-utils curl python3 parallel g++
    pkgconf"
fuzz_packages="clang libomp-dev"
analyse_packages="clang-tidy cppcheck"
races_packages="valgrind"
arm_packages="gcc-aarch64-linux-gnu qemu-user libgomp1:arm64
    libutf8proc-dev:arm64 nettle-dev:arm64 libmicrohttpd-dev:arm64
    libsqlite3-dev:arm64 libcmocka-dev:arm64"
deb_packages="debhelper dpkg-dev"
check_deb_packages="lintian mmdebstrap"
cluster_packages="slurm-wlm munge parallel python3"
html_packages="chromium fonts-dejavu-core"
foreign=

case "${1-}" in
'') packages=$build_packages ;;
test) packages="$build_packages $test_packages" ;;
fuzz) packages="$build_packages $fuzz_packages" ;;
analyse) packages="$build_packages $analyse_packages" ;;
races) packages="$build_packages $test_packages $races_packages" ;;
html) packages="$build_packages $html_packages" ;;
arm)
    packages="$build_packages $test_packages $arm_packages"
    foreign=arm64
    ;;
deb) packages="$build_packages $deb_packages" ;;
check-deb) packages="$build_packages $deb_packages $check_deb_packages" ;;
cluster) packages="$build_packages $cluster_packages" ;;
-h | --help)
    usage
    exit 0
    ;;
*)
    usage >&2
    exit 2
    ;;
esac
if [ $# -gt 1 ]; then
    usage >&2
    exit 2
fi

if ! command -v dpkg-query >/dev/null 2>&1 ||
    ! command -v apt-get >/dev/null 2>&1; then
    # shellcheck disable=SC2086 # a list of package names
    fail "no apt-get here (not Debian or Ubuntu); install the equivalents of:" \
        $packages
fi

missing=
for package in $packages; do
    # The status ends in "installed"; one removed with its configuration kept
    # is known to dpkg, but says "config-files".
    case "$(dpkg-query -W -f '${Status}\n' "$package" 2>/dev/null || :)" in
    *' installed'*) ;;
    *) missing="$missing $package" ;;
    esac
done
if [ -z "$missing" ]; then
    exit 0
fi

as_root=
if [ "$(id -u)" -ne 0 ]; then
    command -v sudo >/dev/null 2>&1 ||
        fail "neither root nor sudo; as root run: apt-get install$missing"
    as_root=sudo
fi

apt()
{
    # shellcheck disable=SC2086 # as_root is one word or none
    $as_root env DEBIAN_FRONTEND=noninteractive apt-get "$@"
}

echo "install-deps: installing$missing" >&2
if [ -n "$foreign" ] && ! dpkg --print-foreign-architectures |
    grep -qx "$foreign"; then
    $as_root dpkg --add-architecture "$foreign" ||
        fail "dpkg does not accept packages for $foreign"
fi
# A failed update may still leave usable lists behind: let install decide.
apt update -q ||
    echo "install-deps: apt-get update failed; trying the lists at hand" >&2
# shellcheck disable=SC2086 # a list of package names
apt install -y -q --no-install-recommends $missing ||
    fail "apt-get could not install:$missing (no network? On Ubuntu the" \
        "component 'universe' must be enabled)"
