//! Calls before main: from constructors of objects preloaded before and behind the allocator, and
//! from resolvers of indirect functions, which run while the loader still relocates.

use crate::harness::{Flavour, Run, program, program_with, shared_object};

/// Both ways of binding: with `LD_BIND_NOW` the loader resolves everything at the start.
const BINDINGS: [Option<&str>; 2] = [None, Some("1")];

fn bound(run: Run, binding: Option<&str>) -> Run {
    match binding {
        Some(value) => run.env("LD_BIND_NOW", value),
        None => run,
    }
}

#[test]
fn constructor_of_an_object_behind_the_allocator_allocates() {
    for binding in BINDINGS {
        let run = Run::preloaded(program("early", Flavour::Plain));
        let early = shared_object("early_library", &[]);
        bound(run.beside(early, false), binding).run().passed();
    }
}

#[test]
fn constructor_of_an_object_before_the_allocator_allocates() {
    for binding in BINDINGS {
        let run = Run::preloaded(program("early", Flavour::Plain));
        let early = shared_object("early_library", &[]);
        bound(run.beside(early, true), binding).run().passed();
    }
}

#[test]
fn resolver_in_the_program_allocates() {
    for binding in BINDINGS {
        let program = program_with("ifunc", Flavour::Plain, &["-fno-plt"]);
        bound(Run::preloaded(program), binding).run().passed();
    }
}

/// The library is relocated before the allocator: its resolver calls a `malloc` that has no
/// relocated pointer yet. Unoptimised code calls its own functions through such pointers.
#[test]
#[cfg_attr(debug_assertions, ignore = "needs the optimised object")]
fn resolver_in_a_library_allocates_before_the_allocator_is_relocated() {
    let library = shared_object("ifunc_library", &["-fno-plt"]);
    let folder = library.parent().expect("a folder").display().to_string();
    let program = program_with(
        "ifunc",
        Flavour::Plain,
        &[
            "-DIN_LIBRARY",
            &format!("-L{folder}"),
            "-lifunc_library",
            &format!("-Wl,-rpath,{folder}"),
        ],
    );
    for binding in BINDINGS {
        bound(Run::preloaded(&program), binding).run().passed();
    }
}
