//! What allocators other than glibc's hold, against what they say themselves: real programs, at rest.

mod harness;
mod jemalloc;
mod mimalloc;
mod musl;
mod tcmalloc;
