//! Cases of the programs in `tests/programs`: one line for each test, with the flavour of the build, the program and its
//! arguments. The file of a program says what its cases check.

use std::time::Duration;

use crate::harness::{Flavour, Run, long, scaled, shared_object};

macro_rules! cases {
    ($($(#[$attribute:meta])* $name:ident: $flavour:ident $command:literal $(.$method:ident($($argument:expr),*))*;)*) => {$(
        $(#[$attribute])*
        #[test]
        fn $name() {
            if let Some(run) = Run::case(Flavour::$flavour, $command) {
                run$(.$method($($argument),*))*.run().passed();
            }
        }
    )*};
}

/// One test for each argument of a check.
macro_rules! tests {
    ($check:ident: $($name:ident: $argument:literal;)*) => {$(
        #[test]
        fn $name() {
            $check($argument);
        }
    )*};
}

mod interfaces {
    use super::*;

    cases! {
        alignment_up_to_a_gibibyte: Plain "interfaces alignments";
        edge_sizes_and_errno: Plain "interfaces sizes";
        clauses_of_malloc: Plain "interfaces clauses";
        contents_of_calloc_and_realloc: Plain "interfaces contents";
        contents_of_calloc_and_realloc_on_musl: Musl "interfaces contents";
        mallocx_and_its_kin: Plain "extended";
        new_and_delete: Plain "operators forms";
        clauses_of_new: Plain "operators clauses";
        // Its counter cannot start threads.
        every_size_is_served_or_refused_at_a_bounded_cost: Plain "huge" .env("EBB_CONF", "background_thread:false");
        every_size_where_the_address_space_is_limited: Plain "huge"
            .through(["prlimit", "--as=8589934592"]) .env("EBB_CONF", "background_thread:false");
        every_size_where_data_is_limited: Plain "huge"
            .through(["prlimit", "--data=1073741824"]) .env("EBB_CONF", "background_thread:false");
        operator_new_of_every_size_is_served_or_throws: Plain "operators every_size";
        operator_new_of_every_size_where_the_address_space_is_limited: Plain "operators every_size"
            .through(["prlimit", "--as=8589934592"]);
        operator_new_of_every_size_where_data_is_limited: Plain "operators every_size"
            .through(["prlimit", "--data=1073741824"]);
    }

    #[test]
    fn figures_are_true() {
        let outcome = Run::program("figures libc_figures").run().passed();
        assert!(!outcome.stderr.trim().is_empty(), "malloc_stats wrote nothing");
    }
}

mod threads {
    use super::*;

    cases! {
        thread_frees_after_its_destructors_ran: Plain "threads exit_rounds";
        thread_only_frees: Plain "threads free_only";
        slabs_become_whole_while_their_pages_leave: Plain "threads whole_slabs";
        thousand_threads_come_and_go: Plain "threads come_and_go";
        musl_thread_frees_after_its_destructors_ran: Musl "threads exit_rounds";
        thousand_musl_threads_come_and_go: Musl "threads come_and_go";
    }
}

/// The static archive: no weak name is resolved there.
mod archive {
    use super::*;

    cases! {
        static_glibc_program_forks: StaticGlibc "forks busy 200";
        static_musl_program_forks: StaticMusl "forks busy 200";
        static_glibc_threads_free_after_their_destructors_ran: StaticGlibc "threads exit_rounds";
        static_musl_threads_free_after_their_destructors_ran: StaticMusl "threads exit_rounds";
        thousand_static_glibc_threads_come_and_go: StaticGlibc "threads come_and_go";
        thousand_static_musl_threads_come_and_go: StaticMusl "threads come_and_go";
        contents_in_a_static_glibc_program: StaticGlibc "interfaces contents";
        contents_in_a_static_musl_program: StaticMusl "interfaces contents";
        static_glibc_program_gives_a_burst_back: StaticGlibc "returns burst asleep";
        static_musl_program_gives_a_burst_back: StaticMusl "returns burst asleep";
    }
}

/// A signal handler that allocates and frees while its thread is inside malloc.
mod signals {
    use super::*;

    cases! {
        // 10^6 deliveries, one after each instruction of the allocation functions. A thread that the allocator starts
        // inside a stepped call would inherit the trap flag with SIGTRAP blocked, which kills: no debugger steps like
        // this. The storm below has the purger.
        #[cfg(target_arch = "x86_64")]
        handler_allocates_at_every_instruction: Plain "signals step" .env("EBB_CONF", "purge:off");
        /// Asynchronous deliveries from a sibling, with the purger at work.
        handler_allocates_in_a_storm_of_signals: Plain "signals storm" .arg(scaled("100000", "1000000"));
        signal_handler_forks_in_the_middle_of_malloc: Plain "signals in_handler fork" .arg(scaled("500", "20000"));
        signal_handler_parts_in_the_middle_of_malloc: Plain "signals in_handler unshare" .arg(scaled("500", "20000"));
    }
}

/// Every way to a new process: fork among busy threads, the forks that run no handlers, vfork, posix_spawn and exec; and
/// the child's own return of memory.
mod forks {
    use super::*;

    cases! {
        threaded_process_forks_a_thousand_times: Plain "forks busy" .arg(scaled("1000", "5000"));
        threaded_musl_process_forks: Musl "forks busy" .arg(scaled("200", "2000"));
        raw_clone_child_allocates: Plain "forks forms clone 40";
        child_of_fork_without_handlers_allocates: Plain "forks forms _Fork 40";
        vfork_and_exec: Plain "forks forms vfork 100";
        fork_and_exec: Plain "forks forms fork_exec 100";
        posix_spawn: Plain "forks forms posix_spawn 100";
        // The purger ticks so often that about every tenth child is copied while it is at work.
        child_copied_while_the_purger_is_at_work_allocates: Plain "forks torn"
            .args([scaled("60", "1000"), "0"]) .env("EBB_CONF", "dirty_decay_ms:20");
        child_copied_while_threads_allocate_allocates: Plain "forks torn"
            .args([scaled("60", "1000"), "2"]) .env("EBB_CONF", "dirty_decay_ms:20");
        musl_child_copied_while_the_purger_is_at_work_allocates: Musl "forks torn"
            .args([scaled("60", "1000"), "0"]) .env("EBB_CONF", "dirty_decay_ms:20");
        forked_child_gives_its_burst_back: Plain "forks purge fork";
        raw_clone_child_gives_its_burst_back: Plain "forks purge clone";
    }
}

/// Storms of new processes, from six threads at once, next to threads that hold libc's own locks; and hundreds of threads
/// that part at once.
///
/// A round is 1000 processes. There are ten rounds, more of the cases that cost less. With `EBB_LONG=1`
/// there are 1000, or as many as `EBB_STORM_ROUNDS` says. A hang is a failure within half a minute, with a line that says
/// what each thread was at.
mod storms {
    use super::*;

    /// `share` of ten rounds, or of the long number.
    fn rounds(share: u32) -> u32 {
        let all = std::env::var("EBB_STORM_ROUNDS").ok();
        let all = all.map_or(1000, |number| number.parse().expect("a number of rounds"));
        if long() { (all * share / 10).max(1) } else { share }
    }

    /// The program has a watchdog of its own; the limit is for one that makes processes, but too slowly. A round takes
    /// 3 to 9 s on two cores, and has ten times that. The 9 s are those of `stdio`, where nearly every fork waits 10 ms at
    /// the gate for a thread that holds a lock of a file.
    fn limit(share: u32) -> Duration {
        Duration::from_secs(120) + Duration::from_secs(90) * rounds(share)
    }

    cases! {
        six_threads_fork_while_threads_come_and_go: Plain "storms threads"
            .arg(rounds(4).to_string()) .limit(limit(4));
        six_threads_fork_while_others_hold_the_locks_of_files: Plain "storms stdio"
            .arg(rounds(2).to_string()) .limit(limit(2));
        six_threads_fork_while_others_hold_the_locks_of_loader_and_locale: Plain "storms loader"
            .arg(rounds(2).to_string()) .arg(shared_object("plugin", &[])) .limit(limit(2));
        six_threads_fork_and_handlers_of_fork_allocate: Plain "storms handlers"
            .arg(rounds(2).to_string()) .limit(limit(2));
        /// A check, no reproduction: no deadlock of fork with musl's own locks is known.
        six_threads_of_a_musl_program_fork_while_threads_come_and_go: Musl "storms threads" .arg(scaled("1", "20"));
        hundreds_of_threads_leave_the_shared_working_directory: Plain "storms parting unshare 10";
        hundreds_of_threads_enter_a_namespace: Plain "storms parting setns 10";
        hundreds_of_threads_promise_to_gain_no_privileges: Plain "storms parting prctl 3";
    }
}

/// 90 % of a burst are back within 30 s, with no call by the program.
mod purge {
    use super::*;

    cases! {
        threads_asleep: Plain "returns burst asleep";
        threads_gone: Plain "returns burst gone";
        threads_busy_elsewhere: Plain "returns burst busy";
        threads_asleep_and_process_madvise_refused: Plain "returns burst asleep process_madvise";
        threads_gone_and_membarrier_refused: Plain "returns burst gone membarrier";
        musl_program: Musl "returns burst asleep";
    }
}

/// Limits of the address space and of data, before the start and lowered after it, and locked memory. RLIMIT_DATA stands
/// for overcommit_memory=2 as well, which is a setting of the whole machine: both refuse the step that makes reserved
/// memory writable, and neither counts addresses that are only reserved.
mod limits {
    use super::*;

    const ADDRESSES: [&str; 2] = ["prlimit", "--as=536870912"];
    const DATA: [&str; 2] = ["prlimit", "--data=536870912"];
    /// A reservation that is populated by mistake must fail the test, not the machine.
    const POPULATED: [&str; 2] = ["prlimit", "--data=2147483648"];

    cases! {
        address_space_limited_before_the_start: Plain "limits limited before as within" .through(ADDRESSES);
        address_space_limited_after_the_start: Plain "limits limited after as within";
        address_space_exhausted_and_freed: Plain "limits limited before as exhausted" .through(ADDRESSES);
        data_limited_before_the_start: Plain "limits limited before data within" .through(DATA);
        data_limited_after_the_start: Plain "limits limited after data within";
        data_exhausted_and_freed: Plain "limits limited before data exhausted" .through(DATA);
        all_memory_locked_from_the_start: Plain "limits locked future" .through(POPULATED);
        all_memory_locked_on_fault: Plain "limits locked onfault" .through(POPULATED);
        all_memory_locked_after_a_burst: Plain "limits locked late" .through(POPULATED);
    }
}

/// Memory that runs out; `cgroup` has the limit just above what lives.
mod pressure {
    use super::*;

    cases! {
        children_of_a_large_parent_come_and_go: Plain "pressure fork_storm".args([scaled("256", "2048"), scaled("100", "2000")]);
        thousands_of_threads_at_once: Plain "pressure many_threads".arg(scaled("2000", "10000"));
        no_mapping_is_left: Plain "pressure no_mapping_left";
        soaked: Plain "pressure soak".arg(soak_seconds()).limit(Duration::from_secs(8000));
        /// A machine that has been up for a hundred years.
        clock_that_is_far_ahead: Plain "returns burst asleep"
            .through(["unshare", "-T", "--fork", "--monotonic=3155760000", "--boottime=3155760000"]);
    }

    /// `EBB_SOAK_SECONDS`; `ci/soak.sh` adds up.
    fn soak_seconds() -> String {
        std::env::var("EBB_SOAK_SECONDS").unwrap_or_else(|_| scaled("5", "600").to_owned())
    }
}

/// Huge pages that a program asks for on its own blocks end with the blocks.
mod huge_pages {
    use super::*;

    cases! {
        a_block_that_is_freed: Plain "limits huge_pages free";
        what_a_smaller_block_gives_back: Plain "limits huge_pages shrink";
        a_block_that_moves: Plain "limits huge_pages move";
        /// The control: a wish that the allocator does not hear stays with the addresses.
        asked_without_the_wrapper: Plain "limits huge_pages raw";
    }
}

/// Seccomp filters: filters that refuse system calls of the allocator, with each of the two usual errors, before the
/// start and while it runs; and filters that kill. And rights that are dropped.
mod seccomp {
    use super::*;

    /// Four programs at once: they wait more than they work.
    fn refused(calls: &str) {
        std::thread::scope(|scope| {
            for error in ["EPERM", "ENOSYS"] {
                for moment in ["before", "late"] {
                    let run = Run::program("sandbox refused").args([calls, error, moment]);
                    scope.spawn(move || run.run().passed());
                }
            }
        });
    }

    tests! {
        refused:
        process_madvise_refused: "process_madvise";
        membarrier_refused: "membarrier";
        clone_refused: "clone";
        all_three_refused: "process_madvise+membarrier+clone";
    }

    cases! {
        files_and_sockets_kill: Plain "sandbox killed files";
        sandbox_that_kills_for_all_but_a_few_calls: Plain "sandbox killed sandbox";
        sandbox_whose_filter_the_allocator_does_not_see: Plain "sandbox killed unseen";
        sandbox_that_kills_with_the_purger_off: Plain "sandbox killed sandbox" .env("EBB_CONF", "purge:off");
        no_thread_keeps_the_rights_that_the_program_gave_up: Plain "sandbox no_new_privileges";
        no_thread_stays_root_when_the_program_does_not: Plain "sandbox dropped_root";
    }
}

/// unshare and setns without a fork, at several moments of the allocator's own life: right after a burst was freed, while
/// it is being returned, and when all is quiet again.
mod namespaces {
    use super::*;

    /// All at once: they wait more than they work.
    fn at_all_moments(form: &str) {
        std::thread::scope(|scope| {
            for wait_ms in ["0", "100", "700", "1500", "5000"] {
                let run = Run::program("sandbox namespaces").args([form, wait_ms]);
                scope.spawn(move || run.run().passed());
            }
        });
    }

    tests! {
        at_all_moments:
        unshare_user_namespace: "unshare_user";
        unshare_mount_namespace: "unshare_mount";
        setns_user_namespace: "setns_user";
        setns_mount_namespace: "setns_mount";
    }
}

/// Misuse of the heap ends in one line on stderr and an abort, whatever its form.
mod misuse {
    use super::*;

    const SIGABRT: i32 = 6;

    fn aborts_with_one_line(form: &str) {
        let outcome = Run::program("abuse").arg(form).run().killed_by(SIGABRT);
        let lines: Vec<_> = outcome.stderr.lines().collect();
        assert_eq!(lines.len(), 1, "{}", outcome.describe());
        assert!(lines[0].starts_with("ebbmalloc: "), "{}", outcome.describe());
    }

    macro_rules! forms {
        ($($name:ident)*) => {$(
            #[test]
            fn $name() {
                aborts_with_one_line(stringify!($name));
            }
        )*};
    }

    forms! {
        double_newest double_older double_other_thread double_large double_lent
        foreign_stack foreign_static foreign_mapped foreign_wild foreign_realloc
        interior interior_odd interior_lent interior_large interior_large_page
        exit_double_interleaved exit_double_interleaved_medium exit_double_first_of_twenty
        exit_unaligned exit_unaligned_multiple exit_interior exit_while_threads_allocate
        thread_end_unaligned tick_unaligned
    }
}
