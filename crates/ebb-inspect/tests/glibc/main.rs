//! Reads the heaps of real processes whose state is known, and compares with what glibc says itself.
//!
//! On this machine's glibc; and, where `EBB_GLIBCS` names a folder that `ci/glibcs.sh` filled, on every version
//! there.

mod figures;
#[path = "../harness/mod.rs"]
mod harness;
mod program;
mod untouched;
