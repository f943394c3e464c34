//! Makes a process or a cgroup give memory back. The only part of `ebb` that changes what it looks at.
//!
//! - [`inject`]: a call of malloc_trim in a process on glibc, by one of its threads or by CPython itself.
//! - [`reclaim`]: the kernel's reclaim of a cgroup's page cache.
//!
//! Used by `ebb trim`, after `ebb-diagnosis` has judged what would come of it.

pub mod inject;
pub mod reclaim;
