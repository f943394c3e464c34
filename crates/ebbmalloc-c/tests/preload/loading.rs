//! dlopen and dlclose: of objects that allocate, and of the allocator itself.

use crate::harness::{Flavour, Run, Scratch, library, program, shared_object};
use std::fs;

#[test]
fn plug_ins_that_allocate_come_and_go() {
    Run::preloaded(program("plugin_host", Flavour::Plain))
        .arg(shared_object("plugin", &[]))
        .run()
        .passed();
}

#[test]
fn plug_ins_lie_beside_what_was_loaded_before() {
    Run::preloaded(program("plugin_near", Flavour::Plain))
        .arg(shared_object("plugin", &[]))
        .run()
        .passed();
}

#[test]
fn allocator_is_loaded_late() {
    Run::bare(program("late_dlopen", Flavour::Plain)).arg(library()).run().passed();
}

#[test]
fn a_library_loaded_with_deepbind_shares_the_heap_and_its_runpath_counts() {
    let folder = Scratch::new();
    let plugin = shared_object("deep_plugin", &["-Wl,--enable-new-dtags,-rpath,$ORIGIN/own"]);
    let (own, host) = (folder.path().join("own"), folder.path().join("plugin.so"));
    fs::create_dir(&own).expect("a folder");
    fs::copy(&plugin, &host).expect("a copy");
    fs::copy(&plugin, own.join("libbeside.so")).expect("a copy");
    Run::preloaded(program("deep_host", Flavour::Plain))
        .arg(&host)
        .arg("libbeside.so")
        .run()
        .passed();
}
