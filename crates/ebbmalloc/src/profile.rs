//! The heap profile of this process as a pprof file, for a service's `/debug/pprof/heap`.
//!
//! It has addresses and build ids, not names: `go tool pprof`, Pyroscope and Parca find those. docs/profiling.md says how
//! sampling is switched on.

/// Live blocks by the stack that allocated them, estimated from samples: a pprof file with gzip. `None` while nothing is
/// sampled, without memory for it, and on systems where ebbmalloc passes requests through.
pub fn pprof() -> Option<Vec<u8>> {
    #[cfg(target_os = "linux")]
    return crate::linux::pprof::file();
    #[cfg(not(target_os = "linux"))]
    None
}
