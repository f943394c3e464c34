//! dlopen and dlclose: of objects that allocate, and of the allocator itself.

use crate::harness::{Flavour, Run, library, program, shared_object};

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
    Run::bare(program("late_dlopen", Flavour::Plain))
        .arg(library())
        .run()
        .passed();
}
