#!/usr/bin/env bash
# Makes a CPython on musl, as the real service's Alpine has it, with this workload's packages: .musl/bin/python3.11. Ten minutes on two
# cores; nothing where it is there already.
#
#   ./musl.sh
#
# Needs apt-get with Debian's archive, musl-gcc (musl-tools), the kernel's headers (linux-libc-dev), make, perl and Python 3.11 with pip; installs
# nothing outside of .musl. CPython 3.11, zlib, libffi and OpenSSL are of Debian 12's sources. musl itself is Debian 13's: the wheels have
# relative relocations packed (DT_RELR), which musl reads since 1.2.4. It names what is missing, with status 3.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"
lacks() { echo "musl.sh: $1" >&2; exit 3; }

prefix=$PWD/.musl
python=$prefix/bin/python3.11
if [[ -e $prefix/complete ]]; then
    exit
fi
for tool in musl-gcc make perl python3.11; do
    command -v "$tool" >/dev/null || lacks "$tool is missing; on Debian: apt-get install musl-tools make perl python3.11"
done
rm -rf "${prefix:?}"
mkdir -p "$prefix"/{lib,build/kernel}
build=$prefix/build
cd "$build"

ci=$(cd ../../../../ci && pwd)
"$ci/sources.sh" bookworm "$build" python3.11 zlib libffi openssl
"$ci/unpack.sh" trixie "$build/musl" musl
cp "$(find musl -name libc.so | head -1)" "$prefix/lib/ld-musl-x86_64.so.1"

# musl-gcc that finds the kernel's headers, tells whose libraries it links, and has programs loaded by the newer musl.
ln -s /usr/include/linux kernel/linux
ln -s /usr/include/asm-generic kernel/asm-generic
ln -s "$(dirname "$(find /usr/include -path '*/asm/unistd.h' | head -1)")" kernel/asm
cat >cc <<EOF
#!/bin/sh
for word; do
    case \$word in -print-multiarch | --print-multiarch) echo x86_64-linux-musl; exit ;; esac
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
made openssl "./Configure linux-x86_64 no-shared no-tests no-engine no-async no-afalgeng -fPIC --prefix='$prefix' --libdir=lib &&
    make -s $jobs build_libs && make -s install_dev"
made python3.11 "./configure -q --with-openssl='$prefix' --without-ensurepip --disable-test-modules --prefix='$prefix' \
    CPPFLAGS='-I$prefix/include' LDFLAGS='-L$prefix/lib' PKG_CONFIG=false && make -s $jobs && make -s altinstall"

# The same versions as on glibc, by the same hashes. Some packages have a wheel for musl 1.1 only.
../../../../ci/python-env.sh --lock ../.. >requirements.txt
python3.11 -m pip install --quiet --no-input --disable-pip-version-check --require-hashes --only-binary=:all: --no-deps \
    --platform musllinux_1_2_x86_64 --platform musllinux_1_1_x86_64 --platform any \
    --python-version 3.11 --implementation cp --abi cp311 \
    --target "$prefix/lib/python3.11/site-packages" -r requirements.txt
echo "$(cd ../../.. && pwd)" >"$prefix/lib/python3.11/site-packages/workloads.pth"
"$python" -c 'import ctypes, pyarrow, ssl, uvloop'
cd "$prefix"
rm -rf "${build:?}"
touch complete
