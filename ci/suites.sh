#!/usr/bin/env bash
# Test suites of programs from Debian's sources, under a preload and without it.
#
#   ci/suites.sh [-p PRELOAD] [-r RELEASE] [SUITE]...
#
# SUITE: perl ruby php redis git (all). PRELOAD: target/release/libebbmalloc.so. RELEASE: Debian's, bookworm. perl, ruby and php
# are the installed ones, with the tests of their sources; redis and git are built. ci/python-suites.sh has CPython's.
#
# A test counts that fails under the preload, fails there again in a second run, and passes plainly: those are printed, and
# the status is 1. Tests that fail under glibc too are in target/suites/SUITE.plain, all output in target/suites/SUITE.*.log.
# docs/suites.md has results. Without the archive of sources the status is 3.
set -euo pipefail
cd "$(dirname "$0")/.."

root=$PWD/target/suites
preload=${CARGO_TARGET_DIR:-$PWD/target}/release/libebbmalloc.so
release=bookworm
while getopts p:r: option; do
    case $option in
    p) preload=$(realpath "$OPTARG") ;;
    r) release=$OPTARG ;;
    *) echo "usage: ci/suites.sh [-p PRELOAD] [-r RELEASE] [SUITE]..." >&2; exit 64 ;;
    esac
done
shift $((OPTIND - 1))
(($# > 0)) || set -- perl ruby php redis git
[[ -r $preload ]] || { echo "suites.sh: no $preload; make build, or -p" >&2; exit 64; }

as_asked() {
    if [[ $how == plain ]]; then "$@"; else env LD_PRELOAD="$preload" "$@"; fi
}

# unpack SOURCE: the folder of Debian's original source, downloaded and unpacked once.
unpack() {
    local folder=$root/$1
    if [[ ! -d $folder ]]; then
        ci/sources.sh "$release" "$root/sources" "$1" >&2 || exit 3
        rm -rf "$folder.part" && mkdir -p "$folder.part"
        tar -xf "$(ls "$root/sources/$1"_*.orig.tar.* | head -1)" -C "$folder.part" --strip-components=1
        mv "$folder.part" "$folder"
    fi
}

prepare_perl() {
    unpack perl
    local lib
    # The modules that the installed perl has, where the tests look for them.
    for lib in $(perl -e 'print "@INC"'); do [[ -d $lib ]] && cp -rn "$lib/." "$root/perl/lib/" || true; done
    ln -sf "$(command -v perl)" "$root/perl/perl"
    ln -sf ../perl "$root/perl/t/perl"
}
run_perl() { (cd "$root/perl/t" && as_asked ./perl TEST base/*.t cmd/*.t comp/*.t io/*.t re/*.t op/*.t mro/*.t uni/*.t); }
failed_perl() { sed -n -E 's/^(t\/[^ ]+) \.+ ?(FAILED|Dubious|.*dumped|Non-zero).*/\1/p' "$1"; }
tests_perl() { sed -n -E 's/.*tests=([0-9]+)/\1/p' "$1" | tail -1; }

prepare_ruby() { unpack ruby3.1; }
run_ruby() {
    (cd "$root/ruby3.1" && as_asked ruby --disable-gems -I tool/lib -I lib tool/test/runner.rb --ruby="$(command -v ruby)" \
        --excludes-dir=test/excludes test/ruby)
}
failed_ruby() { sed -n -E 's/^(([A-Z][A-Za-z0-9]*::?)*Test[A-Za-z0-9_:]*#test_[a-zA-Z0-9_?!]+).*/\1/p' "$1"; }
tests_ruby() { sed -n -E 's/^([0-9]+) tests, .*/\1/p' "$1" | tail -1; }

prepare_php() { unpack php8.2; }
run_php() {
    (cd "$root/php8.2" && TEST_PHP_EXECUTABLE=$(command -v php8.2) NO_INTERACTION=1 as_asked php8.2 run-tests.php -q -j2 \
        Zend tests ext/standard ext/spl ext/date ext/pcre ext/json ext/reflection)
}
failed_php() { sed -n -E 's/.*FAIL.* \[([^]]+\.phpt)\].*/\1/p' "$1"; }
tests_php() { sed -n -E 's/^Number of tests : +[0-9]+ +([0-9]+).*/\1/p' "$1" | tail -1; }

# With libc's malloc, which a preload replaces.
prepare_redis() { unpack redis && make -s -C "$root/redis" -j2 MALLOC=libc >"$root/redis.build.log" 2>&1; }
run_redis() { (cd "$root/redis" && as_asked ./runtest --clients 2 --skip-till "" --tags "-slow -needs:debug"); }
failed_redis() { sed -n -E 's/^.*\[(err|exception)\]: (.*) in tests.*/\2/p' "$1"; }
tests_redis() { grep -c '\[ok\]' "$1"; }

prepare_git() {
    unpack git
    make -s -C "$root/git" -j2 NO_GETTEXT=1 NO_TCLTK=1 NO_CURL=1 >"$root/git.build.log" 2>&1
}
run_git() {
    (cd "$root/git/t" && rm -rf test-results && as_asked make -s -k -j2 DEFAULT_TEST_TARGET=test GIT_TEST_OPTS=--no-color \
        T="$(cd "$root/git/t" && echo t0[0-3]*.sh t1[0-3]*.sh t3[0-4]*.sh t5[0-3]*.sh)" test)
}
failed_git() { sed -n -E 's/^not ok ([0-9]+ - .*[^#].*)$/\1/p' "$1" | grep -v '# TODO known breakage' || true; }
tests_git() { grep -cE '^(ok|not ok) [0-9]' "$1"; }

status=0
mkdir -p "$root"
for suite; do
    declare -F "run_$suite" >/dev/null || { echo "suites.sh: no suite $suite" >&2; exit 64; }
    "prepare_$suite"
    for how in plain preloaded again; do
        if [[ $how == again && ! -s $root/$suite.new ]]; then break; fi
        log=$root/$suite.$how.log start=$SECONDS
        "run_$suite" >"$log" 2>&1 </dev/null || true
        "failed_$suite" "$log" | sort -u >"$root/$suite.$how"
        tests=$("tests_$suite" "$log" || true)
        if [[ ${tests:-0} == 0 ]]; then
            echo "suites.sh: $suite $how ran no test: $log" >&2
            status=1
        fi
        echo "$suite $how: $tests tests, $(wc -l <"$root/$suite.$how") fail, $((SECONDS - start)) s"
        if [[ $how == preloaded ]]; then comm -13 "$root/$suite.plain" "$root/$suite.preloaded" >"$root/$suite.new"; fi
    done
    if [[ -s $root/$suite.new ]] && comm -12 "$root/$suite.new" "$root/$suite.again" >"$root/$suite.count" && [[ -s $root/$suite.count ]]; then
        echo "$suite: fails under $(basename "$preload") only:"
        sed 's/^/    /' "$root/$suite.count"
        status=1
    fi
done
exit $status
