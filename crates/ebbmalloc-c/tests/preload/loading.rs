//! What is loaded with the program, before main and later: constructors and resolvers of indirect functions that allocate,
//! dlopen and dlclose of objects that allocate, and of the allocator itself.

use std::fs;

use crate::harness::{Flavour, Run, Scratch, library, program, program_with, shared_object};

/// Passes with both ways of binding: with `LD_BIND_NOW` the loader resolves everything at the start.
fn passes_however_bound(run: impl Fn() -> Run) {
    run().run().passed();
    run().env("LD_BIND_NOW", "1").run().passed();
}

fn constructor_allocates(first: bool) {
    let early = shared_object("early_library", &[]);
    passes_however_bound(|| Run::program("loading early").beside(early.clone(), first));
}

#[test]
fn constructor_of_an_object_behind_the_allocator_allocates() {
    constructor_allocates(false);
}

#[test]
fn constructor_of_an_object_before_the_allocator_allocates() {
    constructor_allocates(true);
}

#[test]
fn resolver_in_the_program_allocates() {
    let program = program_with("ifunc", Flavour::Plain, &["-fno-plt"]);
    passes_however_bound(|| Run::preloaded(&program));
}

/// The library is relocated before the allocator: its resolver calls a `malloc` that has no
/// relocated pointer yet. Unoptimised code calls its own functions through such pointers.
#[test]
#[cfg_attr(debug_assertions, ignore = "needs the optimised object")]
fn resolver_in_a_library_allocates_before_the_allocator_is_relocated() {
    let library = shared_object("ifunc_library", &["-fno-plt"]);
    let folder = library.parent().expect("a folder").display().to_string();
    let (search, runpath) = (format!("-L{folder}"), format!("-Wl,-rpath,{folder}"));
    let arguments = ["-DIN_LIBRARY", &search, "-lifunc_library", &runpath];
    let program = program_with("ifunc", Flavour::Plain, &arguments);
    passes_however_bound(|| Run::preloaded(&program));
}

#[test]
fn plug_ins_that_allocate_come_and_go() {
    Run::program("loading plug_ins").arg(shared_object("plugin", &[])).run().passed();
}

#[test]
fn plug_ins_lie_beside_what_was_loaded_before() {
    Run::program("loading near").arg(shared_object("plugin", &[])).run().passed();
}

#[test]
fn allocator_is_loaded_late() {
    Run::bare(program("loading", Flavour::Plain))
        .arg("late")
        .arg(library())
        .env("EBB_TEST_NOT_IN_CHARGE", "1")
        .run()
        .passed();
}

#[test]
fn a_library_loaded_with_deepbind_shares_the_heap_and_its_runpath_counts() {
    let folder = Scratch::new();
    let plugin = shared_object("plugin", &["-Wl,--enable-new-dtags,-rpath,$ORIGIN/own"]);
    let (own, host) = (folder.path().join("own"), folder.path().join("plugin.so"));
    fs::create_dir(&own).expect("a folder");
    fs::copy(&plugin, &host).expect("a copy");
    fs::copy(&plugin, own.join("libbeside.so")).expect("a copy");
    Run::program("loading deepbind").arg(&host).arg("libbeside.so").run().passed();
}
