//! How the preload object is linked: with nothing of libc, never unloaded, bound at once.

fn main() {
    let arguments = [
        "-nostdlib",
        "-nostartfiles",
        "-Wl,-soname,libebbmalloc.so",
        // Its functions stay reachable through every pointer and handler it has handed out.
        "-Wl,-z,nodelete",
        // No lazy binding: its first call may come before the loader is ready for one.
        "-Wl,-z,now",
        "-Wl,-z,relro",
    ];
    for argument in arguments {
        println!("cargo::rustc-cdylib-link-arg={argument}");
    }
    println!("cargo::rerun-if-changed=build.rs");
}
