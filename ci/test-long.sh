#!/bin/bash
# What takes longer than a change should wait for, in about two hours on two cores. Every step runs,
# whatever the others did; commands and results go to the screen and to target/test-long.log, without
# this machine's paths. Status 0 if no step failed.
#
# A step that ends with status 3 lacks a tool of its own (ci/fuzz.sh, ci/sanitize.sh, ci/aarch64.sh, ci/vm.sh, ci/glibcs.sh, ci/pythons.sh,
# ci/hosts.sh, ci/free-threaded.sh, ci/cluster.py, ci/cuda.py, packages/crates.py, ci/semver.sh) and is skipped.
set -u
cd "$(dirname "$0")/.."
log=${CARGO_TARGET_DIR:-target}/test-long.log
failed=0

say() { printf '%s\n' "$*" | tee -a "$log"; }

# Paths of this machine say nothing to others; nor do the compiler's progress and each test that passed.
clean() {
    sed -u -E -e "s#$PWD/##g" -e "s#${CARGO_TARGET_DIR:-$PWD/target}#target#g" -e "s#$HOME#~#g" \
        -e '/^ *(Compiling|Checking|Downloading|Downloaded|Updating|Blocking|Locking|Adding) /d' \
        -e '/ \.\.\. ok$/d' -e '/has been running for over/d' -e '/^$/d' |
        grep --line-buffered -v -E '^(#[0-9]+|INFO|KEEP|[[:space:]]*[0-9]+: |ReloadedFiles)|ld\.so|DE: |# Uses:|NEW_FUNC|ecommended dictionary|^Aborted$'
}

# step COMMAND...
step() {
    say "\$ $*"
    local start=$SECONDS status
    env "$@" 2>&1 | clean | tee -a "$log"
    status=${PIPESTATUS[0]}
    case $status in
    0) say "passed in $((SECONDS - start)) s" ;;
    3) say "SKIPPED: a tool is missing" ;;
    *)
        say "FAILED with status $status after $((SECONDS - start)) s"
        failed=$((failed + 1))
        ;;
    esac
    say
}

mkdir -p "$(dirname "$log")" && : >"$log"
say "date      $(date -u '+%Y-%m-%d %H:%M UTC')"
say "commit    $(git describe --always --dirty 2>/dev/null)"
say "kernel    $(uname -sr) $(uname -m)"
say "processor $(nproc) x $(sed -n 's/^model name[^:]*: //p' /proc/cpuinfo | head -1)"
say "memory    $(awk '/^MemTotal/ { print int($2 / 1024) " MiB" }' /proc/meminfo)"
say "libc      $(ldd --version | head -1)"
say "compiler  $(rustc --version)"
say "python    $(python3 --version)"
say

# Preload suite: 1000 rounds of 1000 forks (EBB_STORM_ROUNDS sets another number; more than an hour of them is that), storms
# of a million signals, churn of 20000 threads, more of CPython's tests.
step EBB_LONG=1 cargo test --release -p ebbmalloc-c
# What ebb why says of real programs.
step ci/verdicts.sh
# The labelled processes, and what each remedy brings.
step EBB_LONG=1 cargo test -p ebbmalloc-cli --test why
# Steps of running services, with what happened before each.
step EBB_LONG=1 cargo test -p ebbmalloc-cli --test compare live::
# Trials of an image of podman.
step EBB_LONG=1 cargo test -p ebbmalloc-cli --test compare image
# Before a step builds another target/release/ebb.
step cargo test -p ebbmalloc-cli --test library
# What a look changes in services that fork: celery, PostgreSQL, redis while it saves.
step EBB_LONG=1 cargo test -p ebbmalloc-cli --test look
# Readers of allocators inside Rust programs.
step EBB_LONG=1 cargo test -p ebb-inspect --test regions
# malloc_trim called from outside, 1000 times in each program and service; ebb killed 100 times meanwhile.
step EBB_LONG=1 cargo test --release -p ebb-inject --test survive
step EBB_LONG=1 cargo test --release -p ebbmalloc-cli --test trim
# Model test of the heap, 32 programs of requests in `make test`.
step PROPTEST_CASES=4000 cargo test --release -p ebbmalloc-core --lib random_programs
# Every schedule of the models that end within minutes: none of them has a hundred forced switches. In the others two threads
# spin, or three meet at many steps.
step LOOM_MAX_PREEMPTIONS=100 ci/loom.sh loom_tests --skip tail_against_free --skip life_ --skip fork_against --skip against_fork
step LOOM_MAX_PREEMPTIONS=3 ci/loom.sh tail_against_free life_ fork_against against_fork
step ci/mutations.sh
# Threads against claims on the real kernel, two minutes instead of four seconds.
step EBB_LONG=1 ci/stress.sh
# Readers and parsers on mutated processes and texts; goes on where fuzz/totals.tsv ends.
step EBB_FUZZ_SECONDS=60 cargo test -p ebbmalloc-cli --test fuzz
step ci/fuzz.sh heap 300
step ci/fuzz.sh conf 60
step ci/sanitize.sh
step ci/aarch64.sh
# The tests and examples of the crates that Rust programs use for jemalloc.
step ci/tikv.sh
# Services of workloads/ whose tests need large packages.
step ci/workloads.sh
# Services of docs/recipes, from Debian's packages, PyPI, npm and crates.io.
step ci/recipes.py --check
# The commands of docs/cases, on the services of workloads/.
step ci/cases.py
# Redis from Debian's source, with active defragmentation.
step ci/redis-defrag.sh
# PyTorch on a GPU.
step ci/cuda.py
# glibc's heap is read on the versions that Debian's archive has; the machine's own is in `make test`.
step ci/glibcs.sh
# CPython is read in the versions that Debian's archive, pyenv or uv have, and 3.14 is asked to trim; python3 is in `make test`.
step ci/pythons.sh
# A free-threaded CPython, built from Debian's sources.
step ci/free-threaded.sh
# The crates that are published, outside of the workspace; with the oldest Rust, too. Their interfaces against the last release.
step packages/crates.py
step packages/crates.py --oldest
step ci/semver.sh
# What a release consists of: the archive in an empty root, the wheel in empty environments of each Python that is here, the
# packages in roots of Debian 11 to 13. The other architecture, emulated, where its compiler and Rust library are here.
for version in 3.9 3.11 3.13; do step ci/musl-python.sh "target/pythons/musl-$version" "$version"; done
archs=$(uname -m)
case $archs in x86_64) other=aarch64 ;; *) other=x86_64 ;; esac
if command -v "$other-linux-gnu-gcc" >/dev/null && [ -d "$(rustc --print target-libdir --target "$other-unknown-linux-gnu")" ]; then
    archs="$archs $other"
fi
step make dist "ARCHS=$archs"
# shellcheck disable=SC2086
step packages/.venv/bin/python packages/dist.py --out target/dist-again $archs
step diff -r dist target/dist-again
# That program and library on other C libraries. `ci/hosts.sh` has other kernels and architectures too, and takes an hour.
step ci/hosts.sh '*-x86_64'
step EBB_LONG=1 EBB_TEST_PYTHONS="$(ci/pythons.sh --list 2>/dev/null):$(ls "$PWD"/target/pythons/musl-*/bin/python3.*[0-9] 2>/dev/null | paste -sd:)" python3 -m unittest discover -s packages/tests
# The site, twice with the same bytes, then in a browser.
step make site
step packages/site/.venv/bin/python packages/site/build.py --program target/release/ebb --out target/site-again
step diff -r site target/site-again
step ci/python-env.sh packages/site/tests
step packages/site/tests/.venv/bin/python -m unittest discover -s packages/site/tests
# The admission policy and the manifests on kube-apiserver and etcd.
step ci/cluster.py
# cgroup version 2, on a kernel that has it.
step ci/vm/tests.sh
# What a hostile heap may hold, 256 of them in `make test`.
step PROPTEST_CASES=20000 cargo test --release -p ebb-inspect --lib hostile

say "$failed steps failed"
[ "$failed" -eq 0 ]
