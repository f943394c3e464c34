#!/bin/sh
# Builds `ebb` as one static program that carries libebbmalloc.so and ebbmalloc.h.
#
#   ci/program.sh          this machine's architecture, quickly: target/release/ebb. libebbmalloc.so has to be there.
#   ci/program.sh packed CARGO OPTION...
#                          the same, unoptimised, with the library and its archive, as packages/dist.py wants them:
#                          target/packed/built/ARCH. With the options of `make unit-programs`, which is done before, all crates
#                          but ebb are there already.
#   ci/program.sh static   for a release, optimised, x86-64 and aarch64, below target/static/ARCH:
#                          ebb, libebbmalloc.so, libjemalloc.so.2 (the same for programs that are linked to jemalloc),
#                          ebbmalloc.h, and ebb.debug, libebbmalloc.so.debug and libjemalloc.so.2.debug for debuggers.
#
# ARCHS="x86_64" limits `static` to one architecture. The other one needs gcc-aarch64-linux-gnu and its Rust library;
# without them `static` ends with status 3, unless ARCHS leaves it out. The commit is EBB_COMMIT, or that of the checkout.
set -eu
cd "$(dirname "$0")/.."
root=$PWD
own=$(uname -m)
EBB_COMMIT=${EBB_COMMIT:-$(git describe --always --dirty --abbrev=12 --exclude '*' 2>/dev/null || echo unknown)}
export EBB_COMMIT
# Nothing else of the target's settings: functions that begin at a cache line are for the allocator.
program_flags="-C target-feature=+crt-static -C link-arg=-Wl,--build-id=sha1"

binutils() { # ARCH TOOL...
    arch=$1 tool=$2
    shift 2
    if [ "$arch" = "$own" ]; then "$tool" "$@"; else "$arch-linux-gnu-$tool" "$@"; fi
}

# Replaces a file only if it has changed, so that cargo does not link again.
place() { # FROM TO
    if cmp -s "$1" "$2"; then rm "$1"; else mv "$1" "$2"; fi
}

carry() { # ARCH STRIPPED: what the program carries, below $EBB_CARRY
    mkdir -p "$EBB_CARRY/$1"
    gzip -9n <"$2" >"$EBB_CARRY/$1/new"
    place "$EBB_CARRY/$1/new" "$EBB_CARRY/$1/libebbmalloc.so.gz"
}

carry_header() {
    cp crates/ebbmalloc-c/include/ebbmalloc.h "$EBB_CARRY/new"
    place "$EBB_CARRY/new" "$EBB_CARRY/ebbmalloc.h"
}

# A library that is not there is an empty file.
carry_nothing() { # ARCH
    mkdir -p "$EBB_CARRY/$1"
    : >"$EBB_CARRY/$1/new"
    place "$EBB_CARRY/$1/new" "$EBB_CARRY/$1/libebbmalloc.so.gz"
}

# What is built for this machine; its library, stripped, lies below $EBB_CARRY too.
carry_own() {
    mkdir -p "$EBB_CARRY"
    strip -o "$EBB_CARRY/libebbmalloc.so" target/release/libebbmalloc.so
    for arch in x86_64 aarch64; do
        if [ "$arch" = "$own" ]; then carry "$arch" "$EBB_CARRY/libebbmalloc.so"; else carry_nothing "$arch"; fi
    done
    carry_header
}

case ${1:-quick} in
quick)
    # With --target, build scripts and macros are not linked statically.
    export EBB_CARRY="$root/target/carry"
    carry_own
    RUSTFLAGS="$program_flags" CARGO_PROFILE_RELEASE_LTO=false CARGO_PROFILE_RELEASE_CODEGEN_UNITS=16 \
        CARGO_PROFILE_RELEASE_DEBUG=0 \
        ${CARGO:-cargo} build --release -p ebbmalloc-cli --features carried --target "$own-unknown-linux-gnu"
    cp "target/$own-unknown-linux-gnu/release/ebb" target/release/ebb.new
    mv target/release/ebb.new target/release/ebb
    exit
    ;;
packed)
    export EBB_CARRY="$root/target/packed/carry"
    built=target/packed/built/$own
    carry_own
    shift
    # The flags are for the program alone, not for what it shares with the tests; a wrapper is no reason to compile again.
    cat >target/packed/rustc.new <<EOF
#!/bin/sh
case " \$* " in *" --crate-name ebb "*" --crate-type bin "*) exec "\$@" $program_flags ;; esac
exec "\$@"
EOF
    chmod +x target/packed/rustc.new
    mv target/packed/rustc.new target/packed/rustc
    RUSTC_WRAPPER="$root/target/packed/rustc" ${CARGO:-cargo} test --no-run "$@" --features ebbmalloc-cli/carried --test library
    mkdir -p "$built"
    strip -o "$built/ebb" target/debug/ebb
    "$built/ebb" --version | grep -q ', static' || { echo "program.sh: target/debug/ebb is not static" >&2; exit 70; }
    cp "$EBB_CARRY/libebbmalloc.so" "$built"
    strip --strip-debug -o "$built/libebbmalloc.a" target/release/libebbmalloc.a
    target/debug/ebb-manual "$built"
    exit
    ;;
static) ;;
*)
    echo "program.sh: $1: not known; write nothing, packed or static" >&2
    exit 64
    ;;
esac

archs=${ARCHS:-x86_64 aarch64}
for arch in $archs; do
    [ "$arch" = "$own" ] || command -v "$arch-linux-gnu-gcc" >/dev/null || {
        echo "program.sh: gcc-$arch-linux-gnu is not installed; ARCHS=$own builds for this machine only" >&2
        exit 3
    }
    [ -d "$(rustc --print target-libdir --target "$arch-unknown-linux-gnu")" ] || {
        echo "program.sh: no Rust library for $arch: rustup target add $arch-unknown-linux-gnu" >&2
        exit 3
    }
done
[ "$own" = aarch64 ] || export CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_LINKER=aarch64-linux-gnu-gcc
[ "$own" = x86_64 ] || export CARGO_TARGET_X86_64_UNKNOWN_LINUX_GNU_LINKER=x86_64-linux-gnu-gcc
# The same bytes from every folder.
same="--remap-path-prefix=$root=/ebbmalloc --remap-path-prefix=${CARGO_HOME:-$HOME/.cargo}=/cargo"
export EBB_CARRY="$root/target/static/carry"

split() { # ARCH FROM TO: the program stripped, what was taken off in TO.debug, and a link between them
    binutils "$1" objcopy --only-keep-debug --compress-debug-sections=zlib "$2" "$3.debug"
    chmod 644 "$3.debug"
    binutils "$1" strip -o "$3.new" "$2"
    (cd "$(dirname "$3")" && binutils "$1" objcopy "--add-gnu-debuglink=$(basename "$3").debug" "$(basename "$3").new")
    mv "$3.new" "$3"
}

for arch in x86_64 aarch64; do
    case " $archs " in *" $arch "*) ;; *) carry_nothing "$arch"; continue ;; esac
    target=$arch-unknown-linux-gnu
    flags=$same
    # As .cargo/config.toml, which RUSTFLAGS replaces.
    [ "$arch" = aarch64 ] || flags="$flags -C llvm-args=-align-all-functions=6"
    RUSTFLAGS="$flags -C link-arg=-Wl,--build-id=sha1" ${CARGO:-cargo} build --profile dist -p ebbmalloc-c -p ebbmalloc-compat --target "$target"
    mkdir -p "target/static/$arch"
    split "$arch" "target/$target/dist/libebbmalloc.so" "target/static/$arch/libebbmalloc.so"
    split "$arch" "target/$target/dist/libjemalloc.so" "target/static/$arch/libjemalloc.so.2"
    carry "$arch" "target/static/$arch/libebbmalloc.so"
    cp crates/ebbmalloc-c/include/ebbmalloc.h "target/static/$arch/ebbmalloc.h"
done
carry_header
for arch in $archs; do
    target=$arch-unknown-linux-gnu
    # lld, which Rust has for x86-64 alone, packs relocations and joins equal functions: 0.5 MB.
    smaller=
    [ "$arch" = aarch64 ] || smaller="-C link-arg=-Wl,-z,pack-relative-relocs,--icf=all"
    # A panic aborts, so the program needs no unwind tables; debuggers find theirs in the debug file.
    RUSTFLAGS="$program_flags $same -C force-unwind-tables=no $smaller" ${CARGO:-cargo} build --profile dist -p ebbmalloc-cli --features carried --target "$target"
    split "$arch" "target/$target/dist/ebb" "target/static/$arch/ebb"
    chmod 755 "target/static/$arch/ebb"
done
