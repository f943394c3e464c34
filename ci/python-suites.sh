#!/usr/bin/env bash
# Test suites of CPython and of packages under a preload, against the same suites without it.
#
#   ci/python-suites.sh [-p PRELOAD] [-t TARGET] [SUITE]...
#
# SUITE: cpython numpy pandas pydantic orjson sqlalchemy django memray (all). PRELOAD: target/release/libebbmalloc.so.
# TARGET: cpython's tests, separated by commas, instead of the list below; "all" is every one.
# PYTHON names another interpreter than python3; it needs venv, pip and, for cpython, the module test.
#
# Packages are installed into target/python-suites; those whose wheels have no tests are downloaded as source too. A
# suite runs plainly, then under the preload. A test counts that fails under the preload, fails there again in a second
# run, and passes plainly: those are printed, and the status is 1. Output of each run: target/python-suites/SUITE.*.log
set -euo pipefail
cd "$(dirname "$0")/.."

root=$PWD/target/python-suites
preload=${CARGO_TARGET_DIR:-$PWD/target}/release/libebbmalloc.so
python=${PYTHON:-python3}
# Near to allocation, objects, threads and processes.
cpython=test_dict,test_list,test_set,test_tuple,test_bytes,test_unicode,test_long,test_float,test_array,test_memoryview
cpython+=,test_gc,test_weakref,test_descr,test_generators,test_coroutines,test_exceptions,test_json,test_pickle,test_re
cpython+=,test_threading,test_thread,test_threading_local,test_queue,test_concurrent_futures,test_asyncio,test_subprocess
cpython+=,test_multiprocessing_fork,test_multiprocessing_forkserver,test_multiprocessing_spawn,test_os,test_mmap,test_ctypes
cpython+=,test_capi,test_embed,test_cmd_line,test_sys,test_tracemalloc,test_faulthandler,test_importlib,test_xml_etree
cpython+=,test_sqlite3,test_zlib,test_bz2,test_lzma,test_decimal,test_datetime,test_struct,test_io,test_ssl,test_socket

while getopts p:t: option; do
    case $option in
    p) preload=$(realpath "$OPTARG") ;;
    t) cpython=$OPTARG ;;
    *) echo "usage: ci/python-suites.sh [-p PRELOAD] [-t TARGET] [SUITE]..." >&2; exit 64 ;;
    esac
done
shift $((OPTIND - 1))
(($# > 0)) || set -- cpython numpy pandas pydantic orjson sqlalchemy django memray
[[ -r $preload ]] || { echo "python-suites.sh: no $preload; make build, or -p" >&2; exit 64; }

# CPython's tests of what the preload changes on purpose: they want pymalloc's name as the default's, and figures of its
# arenas from sys._debugmallocstats.
expected='test_pythonmalloc |test_debugmallocstats '

venv=$root/venv
bin=$venv/bin/python
# The tests' own preload is set for the program alone: pip and the scripts go without.
as_asked() {
    if [[ $how == plain ]]; then "$@"; else env LD_PRELOAD="$preload" "$@"; fi
}

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
        "$python" -m pip download --quiet --no-deps --no-binary :all: -d "$folder.part" "$1==$version" >&2
        tar -xf "$folder.part"/*.tar.gz -C "$folder.part" --strip-components=1
        mv "$folder.part" "$folder"
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

packages_of() {
    case $1 in
    cpython) ;;
    numpy) echo numpy hypothesis pytest ;;
    pandas) echo pandas hypothesis pytest ;;
    pydantic) echo pydantic pytest pytest-mock pytest-examples dirty-equals jsonschema cloudpickle faker pytz \
        email-validator pytest-benchmark pytest-run-parallel inline-snapshot typing-inspection ;;
    orjson) echo orjson pytest numpy pytz python-dateutil psutil arrow pendulum faker ;;
    sqlalchemy) echo sqlalchemy pytest ;;
    django) echo django tblib jinja2 pyyaml ;;
    memray) echo memray ;;
    *) echo "python-suites.sh: no suite $1" >&2; exit 64 ;;
    esac
}

# failures LOG: names of tests that failed, in the ways of pytest, unittest and regrtest.
failures() {
    grep -vE "^(FAIL|ERROR): ($expected)" "$1" | sed -n -E -e 's/^(FAILED|ERROR) ([^ ]+::[^ ]+).*/\2/p' -e 's/^(FAIL|ERROR): ([A-Za-z_].*)/\2/p' \
        -e 's/^(test_[a-z_0-9]+) (crashed|failed \(env|failed$).*/\1/p' | sed 's/ \[.*//' | sort -u
}

status=0
mkdir -p "$root"
for suite; do
    packages=$(packages_of "$suite")
    [[ -z $packages ]] || install $packages
    for how in plain preloaded again; do
        log=$root/$suite.$how.log
        if [[ $how == again && ! -s $root/$suite.new ]]; then break; fi
        start=$SECONDS
        "run_$suite" >"$log" 2>&1 </dev/null || true
        failures "$log" >"$root/$suite.$how" || true
        if ! grep -qE '^(Total tests:|Ran )|[0-9]+ passed|Tests result:|Total allocations' "$log"; then
            echo "python-suites.sh: $suite $how ran no test:" >&2
            tail -3 "$log" >&2
            status=1
        fi
        echo "$suite $how: $(grep -c . "$root/$suite.$how" || true) failures, $((SECONDS - start)) s:" \
            "$(grep -E '^(Total tests:|Ran )|[0-9]+ passed' "$log" | tail -1)"
        if [[ $how == preloaded ]]; then
            comm -13 "$root/$suite.plain" "$root/$suite.preloaded" >"$root/$suite.new"
        fi
    done
    if [[ -s $root/$suite.new ]]; then
        comm -12 "$root/$suite.new" "$root/$suite.again" >"$root/$suite.count"
        if [[ -s $root/$suite.count ]]; then
            echo "$suite: fails under $(basename "$preload") only:"
            sed 's/^/    /' "$root/$suite.count"
            status=1
        fi
    fi
done
exit $status
