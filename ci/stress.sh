#!/bin/sh
# Threads against the purger on the real kernel. Arguments go to the test program; EBB_MUTATION as for
# loom.sh. Optimised: the window between an owner's store and its load is two instructions.
set -eu
cd "$(dirname "$0")/.."
export CARGO_TARGET_DIR="${CARGO_TARGET_DIR:-target}/stress"
export CARGO_PROFILE_TEST_OPT_LEVEL=2
test_program=$(cargo rustc --quiet -p ebbmalloc-core --lib --profile test --message-format=json -- \
    --cfg "ebb_mutation=\"${EBB_MUTATION:-none}\"" |
    sed -n 's/.*"name":"ebbmalloc_core".*"executable":"\([^"]*\)".*/\1/p')
[ -x "$test_program" ] || { echo "stress.sh: the test does not build" >&2; exit 2; }
[ $# -gt 0 ] || set -- stress_tests
exec "$test_program" "$@"
