//! How the preload object is linked: with nothing of libc, never unloaded, bound at once. Builds
//! `ebbmalloc-compat` as well, which is the same object under jemalloc's name.

fn main() {
    let soname = match std::env::var("CARGO_PKG_NAME").as_deref() {
        Ok("ebbmalloc-compat") => "-Wl,-soname,libjemalloc.so.2",
        _ => "-Wl,-soname,libebbmalloc.so.0",
    };
    let arguments = [
        "-nostdlib", "-nostartfiles", soname,
        // Its functions stay reachable through every pointer and handler it has handed out.
        "-Wl,-z,nodelete",
        // No lazy binding: its first call may come before the loader is ready for one.
        "-Wl,-z,now", "-Wl,-z,relro",
    ];
    for argument in arguments {
        println!("cargo::rustc-cdylib-link-arg={argument}");
    }
    println!("cargo::rerun-if-changed=build.rs");
}
