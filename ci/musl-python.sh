#!/usr/bin/env bash
# Makes a CPython on musl, as Alpine has it: FOLDER/bin/pythonVERSION, with zlib and libffi, and, if asked for, OpenSSL. Three minutes
# on two cores, ten with OpenSSL; nothing where it is there already. VERSION is 3.9, 3.11 (if not given) or 3.13.
#
#   ci/musl-python.sh FOLDER [VERSION] [openssl]
#
# Needs apt-get with Debian's archive, musl-gcc (musl-tools), the kernel's headers (linux-libc-dev), make, perl; installs nothing outside
# of FOLDER. CPython is of the sources of the Debian that has it, zlib, libffi and OpenSSL are Debian 12's. musl itself is Debian 13's: some wheels have relative
# relocations packed (DT_RELR), which musl reads since 1.2.4. It names what is missing, with status 3.
set -euo pipefail
ci=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
lacks() { echo "musl-python.sh: $1" >&2; exit 3; }

usage() { echo "usage: ci/musl-python.sh FOLDER [3.9|3.11|3.13] [openssl]" >&2; exit 64; }
[[ $# -ge 1 && $# -le 3 ]] || usage
folder=$1 version=3.11
shift
if [[ ${1:-} == 3.* ]]; then
    version=$1
    shift
fi
openssl=${1:-}
[[ -z $openssl || $openssl == openssl ]] || usage
case $version in
3.9) release=bullseye ;;
3.11) release=bookworm ;;
3.13) release=trixie ;;
*) usage ;;
esac
[[ $(uname -m) == x86_64 ]] || lacks "for x86-64 only"
mkdir -p "$folder"
prefix=$(cd "$folder" && pwd)
if [[ -e $prefix/complete ]]; then
    exit
fi
for tool in musl-gcc make perl; do
    command -v "$tool" >/dev/null || lacks "$tool is missing; on Debian: apt-get install musl-tools make perl"
done
rm -rf "${prefix:?}"
mkdir -p "$prefix"/{lib,build/kernel}
build=$prefix/build
cd "$build"

"$ci/sources.sh" "$release" "$build" "python$version"
"$ci/sources.sh" bookworm "$build" zlib libffi $openssl
"$ci/unpack.sh" trixie "$build/musl" musl
cp "$(find musl -name libc.so | head -1)" "$prefix/lib/ld-musl-x86_64.so.1"

# musl-gcc that finds the kernel's headers, tells whose libraries it links, and has programs loaded by the newer musl.
ln -s /usr/include/linux kernel/linux
ln -s /usr/include/asm-generic kernel/asm-generic
ln -s "$(dirname "$(find /usr/include -path '*/asm/unistd.h' | head -1)")" kernel/asm
cat >cc <<EOF
#!/bin/sh
for word; do
    case \$word in -print-multiarch | --print-multiarch) echo \${EBB_MULTIARCH-x86_64-linux-musl}; exit ;; esac
done
exec musl-gcc "\$@" -idirafter $build/kernel -Wl,--dynamic-linker=$prefix/lib/ld-musl-x86_64.so.1
EOF
chmod +x cc
export CC=$build/cc
jobs=-j$(nproc)

# Each into a log: the end of the log says what failed.
made() {
    local name=$1
    shift
    mkdir -p "$name"
    tar -xf "$name"_*.orig.tar.* -C "$name" --strip-components=1
    (cd "$name" && eval "$@") >"$name.log" 2>&1 || { tail -n 20 "$name.log" >&2; lacks "$name could not be built: $build/$name.log"; }
}
made zlib "CFLAGS='-O2 -fPIC' ./configure --static --prefix='$prefix' && make $jobs && make install"
made libffi "./configure -q --host=x86_64-linux-musl --disable-shared --with-pic --disable-docs --prefix='$prefix' && make -s $jobs && make -s install"
[[ ! $openssl ]] || made openssl "./Configure linux-x86_64 no-shared no-tests no-engine no-async no-afalgeng -fPIC --prefix='$prefix' --libdir=lib &&
    make -s $jobs build_libs && make -s install_dev"
# Up to 3.9 it takes every Linux for one with glibc, and refuses another name.
[[ $version == 3.9 ]] && unnamed="EBB_MULTIARCH="
made "python$version" "${unnamed:-} ./configure -q ${openssl:+--with-openssl='$prefix'} --without-ensurepip --disable-test-modules --prefix='$prefix' \
    CPPFLAGS='-I$prefix/include' LDFLAGS='-L$prefix/lib' PKG_CONFIG=false && make -s $jobs && make -s altinstall"
"$prefix/bin/python$version" -c 'import ctypes, zlib'
cd "$prefix"
rm -rf "${build:?}"
touch complete
