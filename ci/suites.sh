#!/usr/bin/env bash
# Test suites of other projects, under a preload and without it.
#
#   ci/suites.sh [-p PRELOAD] [-r RELEASE] [-t TARGET] [SUITE]...
#
# SUITE: perl ruby php redis git (all of Debian's sources; the default), postgresql mariadb node rust nginx, and cpython numpy
# pandas pydantic orjson sqlalchemy django memray. PRELOAD: target/release/libebbmalloc.so. RELEASE: Debian's, bookworm. perl,
# ruby, php, postgresql and nginx are the installed ones, with the tests of their sources; redis and git are built; node is
# npm's, of the version that Debian has the source of. NGINX_TESTS: the folder of nginx-tests, which Debian does not have.
# rust: the standard library's tests with the crate as global allocator. NODE_TESTS, MARIADB_SUITES: others than all of
# "parallel" and "main".
# TARGET: cpython's tests, separated by commas, instead of the list below; "all" is every one. PYTHON names another
# interpreter than python3; it needs venv, pip and, for cpython, the module test. Packages are installed into
# target/suites/venv; those whose wheels have no tests are downloaded as source too.
#
# A test counts that fails under the preload, fails there again in a second run, and passes plainly: those are printed, and
# the status is 1. Tests that fail under glibc too are in target/suites/SUITE.plain, all output in target/suites/SUITE.*.log.
# docs/proof.md has results. Without the archive of sources the status is 3.
set -euo pipefail
cd "$(dirname "$0")/.."

root=$PWD/target/suites
preload=${CARGO_TARGET_DIR:-$PWD/target}/release/libebbmalloc.so
release=bookworm
python=${PYTHON:-python3}
# Near to allocation, objects, threads and processes.
cpython=test_dict,test_list,test_set,test_tuple,test_bytes,test_unicode,test_long,test_float,test_array,test_memoryview
cpython+=,test_gc,test_weakref,test_descr,test_generators,test_coroutines,test_exceptions,test_json,test_pickle,test_re
cpython+=,test_threading,test_thread,test_threading_local,test_queue,test_concurrent_futures,test_asyncio,test_subprocess
cpython+=,test_multiprocessing_fork,test_multiprocessing_forkserver,test_multiprocessing_spawn,test_os,test_mmap,test_ctypes
cpython+=,test_capi,test_embed,test_cmd_line,test_sys,test_tracemalloc,test_faulthandler,test_importlib,test_xml_etree
cpython+=,test_sqlite3,test_zlib,test_bz2,test_lzma,test_decimal,test_datetime,test_struct,test_io,test_ssl,test_socket

while getopts p:r:t: option; do
    case $option in
    p) preload=$(realpath "$OPTARG") ;;
    r) release=$OPTARG ;;
    t) cpython=$OPTARG ;;
    *) echo "usage: ci/suites.sh [-p PRELOAD] [-r RELEASE] [-t TARGET] [SUITE]..." >&2; exit 64 ;;
    esac
done
shift $((OPTIND - 1))
(($# > 0)) || set -- perl ruby php redis git
[[ -r $preload ]] || { echo "suites.sh: no $preload; make build, or -p" >&2; exit 64; }

# The tests' own preload is set for the program alone: pip and the scripts go without.
as_asked() {
    if [[ $how == plain ]]; then "$@"; else env LD_PRELOAD="$preload" "$@"; fi
}

# --- Debian's sources

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

# unpack_packages PACKAGE...: Debian's packages for this machine, unpacked once into target/suites/deb, not installed.
unpack_packages() {
    mkdir -p "$root/deb/archives"
    local package
    for package; do
        if ! ls "$root/deb/archives/${package}"_* >/dev/null 2>&1; then
            (cd "$root/deb/archives" && apt-get -qq -o APT::Sandbox::User=root download "$package") >&2 || exit 3
            dpkg -x "$root/deb/archives/$package"_*.deb "$root/deb"
        fi
    done
}

# Its server does not run as root.
prepare_postgresql() {
    unpack postgresql-15
    unpack_packages postgresql-server-dev-15
    local folder=$root/postgresql-15 file
    for file in src/test/regress/regress contrib/spi/refint contrib/spi/autoinc; do
        cc -O1 -fPIC -shared -w -I"$root/deb/usr/include/postgresql/15/server" -I/usr/include/postgresql \
            -I"$root/deb/usr/include/postgresql/internal" -o "$folder/src/test/regress/$(basename $file).so" "$folder/$file.c"
    done
    ((UID != 0)) || chown -R postgres "$folder/src/test/regress"
}
run_postgresql() {
    local as=() installed=/usr/lib/postgresql/15
    ((UID != 0)) || as=(runuser -u postgres --)
    (cd "$root/postgresql-15/src/test/regress" && as_asked "${as[@]}" "$installed/lib/pgxs/src/test/regress/pg_regress" \
        --inputdir=. --dlpath=. --bindir="$installed/bin" --temp-instance=./instance --no-locale --encoding=UTF8 \
        --max-concurrent-tests=20 --schedule=parallel_schedule)
}
failed_postgresql() { sed -n -E 's/^(test)? +([a-z_0-9]+) +\.\.\. FAILED.*/\2/p' "$1"; }
tests_postgresql() { grep -cE '\.\.\. (ok|FAILED)' "$1"; }

# Tests that Debian's binaries cannot run are skipped by mtr itself.
prepare_mariadb() {
    unpack_packages mariadb-{server,server-core,client,client-core,test,test-data}
}
run_mariadb() {
    (cd "$root/deb/usr/share/mysql/mysql-test" && as_asked perl ./mysql-test-run.pl --force --max-test-fail=0 --parallel=2 --retry=0 \
        --testcase-timeout=10 --suite-timeout=600 --vardir="$root/mariadb" --suite="${MARIADB_SUITES:-main}")
}
failed_mariadb() { sed -n -E "s/^([A-Za-z_0-9.-]+( '[^']+')?) +w[0-9]+ \\[ fail \\].*/\1/p" "$1"; }
tests_mariadb() { grep -cE '\[ (pass|fail) \]' "$1"; }

prepare_node() {
    unpack nodejs
    local version
    version=$(ls "$root/sources" | sed -n -E 's/^nodejs_([0-9.]+).*\.orig\.tar.*/\1/p')
    npm install --silent --no-fund --no-audit --prefix "$root/node" "node@$version" >&2 || exit 3
}
run_node() {
    (cd "$root/nodejs" && as_asked python3 tools/test.py -p tap -j 2 --shell="$root/node/node_modules/node/bin/node" ${NODE_TESTS:-parallel})
}
failed_node() { sed -n -E 's/^not ok [0-9]+ ([^ ]+).*/\1/p' "$1"; }
tests_node() { grep -cE '^(ok|not ok) [0-9]' "$1"; }

# alloc's tests (of collections, strings, Rc, Arc, formatting) and those of std that are programs of their own, by the rustc
# they belong to. A copy of each program's root has the allocator where `how` is not plain.
prepare_rust() {
    unpack_packages rust-web-src rustc-web libstd-rust-web-dev libstd-rust-web-1.96 libllvm22
    local file
    [[ ! -d $root/rust ]] || return 0
    mkdir "$root/rust.part"
    cp -r "$root"/deb/usr/src/rustc-*/library/{alloc,alloctests,core,std} "$root/rust.part"
    cd "$root/rust.part"
    printf '[workspace]\nmembers = ["alloctests", "std"]\nresolver = "3"\n' >Cargo.toml
    printf '\n[dependencies]\nebbmalloc = { path = "%s" }\n' "$OLDPWD/crates/ebbmalloc" >>alloctests/Cargo.toml
    { printf '[package]\nname = "stdtests"\nedition = "2024"\n[lib]\npath = "none.rs"\n'
        sed -n -e '/^\[\[test/,/^$/p' -e '/^\[dev-dep/,/^$/p' std/Cargo.toml
        tail -2 alloctests/Cargo.toml; } >std/Cargo.new
    mv std/Cargo.new std/Cargo.toml && touch std/none.rs
    # As part of std's own crate, it needs no such line.
    sed -i '1i #![feature(sync_poison_mod)]' std/tests/sync/lib.rs
    for file in alloctests/{,tests/}lib.rs std/tests/*.rs std/tests/*/lib.rs; do
        printf '\n#[cfg(ebbmalloc)]\n#[global_allocator]\nstatic EBBMALLOC: ebbmalloc::Ebbmalloc = ebbmalloc::Ebbmalloc;\n' >>"$file"
    done
    cd "$OLDPWD" && mv "$root/rust.part" "$root/rust"
}
run_rust() {
    local flags=
    [[ $how == plain ]] || flags="--cfg ebbmalloc"
    (cd "$root/rust" && LD_LIBRARY_PATH=$root/deb/usr/lib/$(uname -m)-linux-gnu RUSTC=$root/deb/usr/bin/rustc RUSTC_BOOTSTRAP=1 \
        RUSTFLAGS="$flags -A warnings" CARGO_TARGET_DIR=$root/rust/target.$how cargo test --workspace --no-fail-fast --lib --tests)
}
failed_rust() { sed -n -E -e 's/^test (.*) \.\.\. FAILED/\1/p' -e 's/^error: (could not compile.*)/\1/p' "$1"; }
tests_rust() { sed -n -E 's/^test result: .* ([0-9]+) passed; ([0-9]+) failed.*/\1 \2/p' "$1" | awk '{ n += $1 + $2 } END { print n }'; }

prepare_nginx() {
    [[ -r ${NGINX_TESTS:-}/lib/Test/Nginx.pm ]] || { echo "suites.sh: NGINX_TESTS names no folder of nginx-tests" >&2; exit 3; }
    unpack_packages libnginx-mod-http-{geoip,image-filter,xslt-filter,perl} libnginx-mod-{mail,stream,stream-geoip} libgeoip1
    # The tests look for the module in Perl next to the program.
    mkdir -p "$root/nginx/src/http/modules/perl"
    ln -sf /usr/sbin/nginx "$root/nginx/nginx"
    cp -r "$root/deb/usr/lib/$(uname -m)-linux-gnu"/perl5/*/. "$root/nginx/src/http/modules/perl"
}
run_nginx() {
    (cd "$NGINX_TESTS" && export TEST_NGINX_BINARY=$root/nginx/nginx TEST_NGINX_GLOBALS='user root;' \
        TEST_NGINX_MODULES=$root/deb/usr/lib/nginx/modules LD_LIBRARY_PATH=$root/deb/usr/lib/$(uname -m)-linux-gnu &&
        as_asked prove -j 2 .)
}
failed_nginx() { sed -n -E 's/^(\.\/)?([a-z_0-9]+\.t) +\(Wstat.*/\2/p' "$1"; }
tests_nginx() { sed -n -E 's/^Files=[0-9]+, Tests=([0-9]+).*/\1/p' "$1"; }

# --- CPython and packages

# CPython's tests of what the preload changes on purpose: they want pymalloc's name as the default's, and figures of its
# arenas from sys._debugmallocstats.
expected='test_pythonmalloc |test_debugmallocstats '

venv=$root/venv
bin=$venv/bin/python
# install PACKAGE...: into the environment, once.
install() {
    [[ -x $bin ]] || { "$python" -m venv --without-pip "$venv" >&2; }
    "$python" -m pip --python "$bin" install --quiet --no-input --disable-pip-version-check --only-binary=:all: "$@" >&2
}

# source_of PACKAGE: the folder of the source distribution of the version that is installed.
source_of() {
    local version folder
    version=$("$bin" -c "import importlib.metadata as m; print(m.version('$1'))")
    folder=$root/source/$1-$version
    if [[ ! -d $folder ]]; then
        mkdir -p "$folder.part"
        "$python" -m pip download --quiet --no-deps --no-binary "$1" -d "$folder.part" "$1==$version" >&2 &&
            tar -xf "$folder.part"/*.tar.gz -C "$folder.part" --strip-components=1 && mv "$folder.part" "$folder"
    fi
    echo "$folder"
}

pytest() { (cd "$root" && as_asked "$bin" -m pytest -q -rfE -p no:cacheprovider "$@"); }

run_cpython() {
    local names=(${cpython//,/ })
    if [[ $cpython == all ]]; then
        names=()
    else
        # Some installations lack the folders of tests that are split.
        local folder kept=() name
        folder=$("$python" -c 'import test; print(test.__path__[0])')
        for name in "${names[@]}"; do
            if [[ -e $folder/$name.py || -d $folder/$name ]]; then kept+=("$name"); else echo "$name is not installed"; fi
        done
        names=("${kept[@]}")
    fi
    mkdir -p "$root/tmp"
    # A test that is interrupted needs SIGINT, which a shell ignores for commands in the background.
    (cd "$root/tmp" && as_asked env --default-signal=INT "$python" -m test -W -j2 --timeout 600 "${names[@]}")
}
run_numpy() {
    pytest --pyargs numpy._core.tests.test_multiarray numpy._core.tests.test_ufunc numpy._core.tests.test_mem_policy \
        numpy._core.tests.test_dtype numpy._core.tests.test_strings numpy.lib.tests.test_io numpy.ma.tests.test_core
}
run_pandas() { pytest --pyargs pandas.tests.frame.methods pandas.tests.series.methods pandas.tests.io.json; }
run_pydantic() { (cd "$(source_of pydantic)" && as_asked "$bin" -m pytest -q -rfE -p no:cacheprovider tests/test_main.py \
    tests/test_validators.py tests/test_json.py tests/test_types.py tests/test_dataclasses.py); }
run_orjson() { (cd "$(source_of orjson)" && as_asked "$bin" -m pytest -q -rfE -p no:cacheprovider test); }
run_sqlalchemy() { (cd "$(source_of sqlalchemy)" && as_asked "$bin" -m pytest -q -rfE -p no:cacheprovider test/base \
    test/engine test/orm/test_session.py test/orm/test_query.py test/sql/test_compiler.py --db sqlite); }
run_django() { (cd "$(source_of django)/tests" && as_asked "$bin" runtests.py --parallel 2 --verbosity 0 queries \
    aggregation model_forms template_tests serializers migrations cache utils_tests); }
# A profiler that hooks malloc and CPython's allocators; pip has no suite of its own for it.
run_memray() {
    local out=$root/memray.bin
    rm -f "$out"
    as_asked "$bin" -m memray run -q -f -o "$out" -c "x = [str(i) * 9 for i in range(200000)]" &&
        "$bin" -m memray stats "$out" | grep 'Total allocations' || echo "FAILED memray::run"
}

# Only a suite of Python's has packages.
packages_of() {
    case $1 in
    numpy) echo numpy hypothesis pytest ;;
    pandas) echo pandas hypothesis pytest ;;
    pydantic) echo pydantic pytest pytest-mock pytest-examples dirty-equals jsonschema cloudpickle faker pytz \
        email-validator pytest-benchmark pytest-run-parallel inline-snapshot typing-inspection ;;
    orjson) echo orjson pytest numpy pytz python-dateutil psutil arrow pendulum faker ;;
    sqlalchemy) echo sqlalchemy pytest ;;
    django) echo django tblib jinja2 pyyaml ;;
    memray) echo memray ;;
    esac
}

# failed_python LOG: names of tests that failed, in the ways of pytest, unittest and regrtest.
failed_python() {
    grep -vE "^(FAIL|ERROR): ($expected)" "$1" | sed -n -E -e 's/^(FAILED|ERROR) ([^ ]+::[^ ]+).*/\2/p' -e 's/^(FAIL|ERROR): ([A-Za-z_].*)/\2/p' \
        -e 's/^(test_[a-z_0-9]+) (crashed|failed \(env|failed$).*/\1/p' | sed 's/ \[.*//' | sort -u
}
tests_python() {
    sed -n -E -e 's/^Total tests: run=([0-9,]+).*/\1/p' -e 's/^Ran ([0-9]+) tests?.*/\1/p' -e 's/(.*[^0-9])?([0-9]+) passed.*/\2/p' \
        -e 's/.*Total allocations.*/1/p' "$1" | tail -1
}

status=0
mkdir -p "$root"
for suite; do
    declare -F "run_$suite" >/dev/null || { echo "suites.sh: no suite $suite" >&2; exit 64; }
    if declare -F "prepare_$suite" >/dev/null; then
        language=$suite
        "prepare_$suite"
    else
        language=python
        packages=$(packages_of "$suite")
        [[ -z $packages ]] || install $packages
    fi
    for how in plain preloaded again; do
        if [[ $how == again && ! -s $root/$suite.new ]]; then break; fi
        log=$root/$suite.$how.log start=$SECONDS
        "run_$suite" >"$log" 2>&1 </dev/null || true
        ("failed_$language" "$log" || true) | sort -u >"$root/$suite.$how"
        tests=$("tests_$language" "$log" || true)
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
