#!/bin/sh
# Model checks of the allocator's races: every schedule of a few threads, over the shipped functions.
# Arguments go to the test program: a name chooses a model. EBB_MUTATION=NAME takes one fence, check or
# mark out of the allocator (see mutations.sh), which the model must notice.
#
# RUSTFLAGS is set for this build alone, in a folder of its own, so that it spoils no other build.
set -eu
cd "$(dirname "$0")/.."
export RUSTFLAGS="--cfg loom"
export CARGO_TARGET_DIR="${CARGO_TARGET_DIR:-target}/loom"
export CARGO_PROFILE_TEST_OPT_LEVEL=1
# Few bugs need more than two forced switches of threads (Musuvathi and Qadeer, 2007).
export LOOM_MAX_PREEMPTIONS="${LOOM_MAX_PREEMPTIONS:-2}"
# The mutation goes to this crate alone: with RUSTFLAGS every dependency would be built again.
test_program=$(cargo rustc --quiet -p ebbmalloc-core --lib --profile test --message-format=json -- \
    --cfg "ebb_mutation=\"${EBB_MUTATION:-none}\"" |
    sed -n 's/.*"name":"ebbmalloc_core".*"executable":"\([^"]*\)".*/\1/p')
[ -x "$test_program" ] || { echo "loom.sh: the models do not build" >&2; exit 2; }
[ $# -gt 0 ] || set -- loom_tests
exec "$test_program" "$@"
