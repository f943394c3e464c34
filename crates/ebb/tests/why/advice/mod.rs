//! What `ebb why` and `ebb trim` advise, tried: a remedy must return at least half of the bytes that it is
//! advised for, on a process in the state in which it is advised.
//!
//! The states are those of `tests/fixtures/advice/states.c`. Tests that build for long or need a JDK, Go or
//! pyarrow are behind `EBB_LONG`.

mod native;
mod process;
mod runtimes;
