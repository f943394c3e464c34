//! Misuse of the heap ends in one line on stderr and an abort, whatever its form.

use crate::harness::{Flavour, Run, program};

const SIGABRT: i32 = 6;

fn aborts_with_one_line(form: &str) {
    let outcome =
        Run::preloaded(program("abuse", Flavour::Plain)).arg(form).run().killed_by(SIGABRT);
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
    double_newest
    double_older
    double_other_thread
    double_large
    double_lent
    foreign_stack
    foreign_static
    foreign_mapped
    foreign_wild
    foreign_realloc
    interior
    interior_odd
    interior_lent
    interior_large
    interior_large_page
    exit_double_interleaved
    exit_double_interleaved_medium
    exit_double_first_of_twenty
    exit_unaligned
    exit_unaligned_multiple
    exit_interior
    exit_while_threads_allocate
    thread_end_unaligned
    tick_unaligned
}
