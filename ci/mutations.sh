#!/bin/sh
# Shows that the proofs can fail: takes one fence, check or mark out of the allocator at a time and
# demands that the test of that protocol notices. Fails if one stays green.
set -u
cd "$(dirname "$0")/.."
survivors=0

# expect_red MUTATION TEST COMMAND...: the command runs TEST over the mutated allocator.
expect_red() {
    mutation=$1 test=$2
    shift 2
    log=$(EBB_MUTATION=$mutation timeout 300 "$@" "$test" 2>&1)
    status=$?
    # 101: a test failed; above 128: a signal, such as the allocator's own abort. Anything else (no
    # build, no end) proves nothing.
    if [ "$status" -eq 101 ] || [ "$status" -gt 128 ]; then
        echo "caught    $mutation by $test"
    else
        echo "SURVIVED  $mutation: $test did not notice (status $status)"
        echo "$log" | tail -20
        survivors=$((survivors + 1))
    fi
}

expect_red lock_release lock_hands_over_the_value ci/loom.sh
expect_red leaving_slots refill_against_return ci/loom.sh
expect_red leaving_count refill_against_return ci/loom.sh
expect_red leaving_count remote_free_against_release ci/loom.sh
expect_red leaving_waste a_slab_that_is_whole_while_its_waste_leaves_stays ci/stress.sh
expect_red leaving_extent extent_against_its_neighbours ci/loom.sh
expect_red leaving_tail tail_against_free ci/loom.sh
expect_red pending_free tail_against_free ci/loom.sh
expect_red owner_barrier owner_against_claim ci/loom.sh
expect_red seize_check owner_against_claim ci/loom.sh
expect_red seize_acquire owner_against_claim ci/loom.sh
expect_red exit_lock exit_against_claim ci/loom.sh
expect_red fork_wait fork_against_claim ci/loom.sh
expect_red fork_pass fork_against_pass ci/loom.sh
expect_red gate_fence guest_against_fork ci/loom.sh
expect_red life_fence life_holder_against_a_start ci/loom.sh
expect_red life_wake life_two_holders_of_a_thread_that_runs ci/loom.sh
expect_red fork_torn a_copy_that_was_torn ci/stress.sh
expect_red lent_tails the_quick_way_is_open_again ci/stress.sh
expect_red reset_drain explicit ci/stress.sh
expect_red home_slots explicit ci/stress.sh
expect_red membarrier claims_under_load ci/stress.sh
exit "$survivors"
