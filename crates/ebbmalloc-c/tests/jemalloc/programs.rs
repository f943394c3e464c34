//! Debian's programs that are linked to jemalloc, on ebbmalloc under its name: they start, serve, and
//! have no other jemalloc mapped.

use std::path::PathBuf;

use crate::harness::require;

/// A daemon's file: those live in folders that are not on everybody's path.
pub fn daemon(program: &str, package: &str) -> PathBuf {
    let there = ["/usr/sbin", "/usr/bin"]
        .iter()
        .map(|folder| PathBuf::from(folder).join(program))
        .find(|file| file.is_file());
    there.unwrap_or_else(|| require(program, package))
}
