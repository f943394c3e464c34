//! Finds, and where needed builds, the library under test: that of the profile the tests were
//! built in, or the one named by EBB_TEST_PRELOAD.

use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

/// The preload object, with links resolved.
pub fn library() -> &'static Path {
    static LIBRARY: OnceLock<PathBuf> = OnceLock::new();
    LIBRARY.get_or_init(|| {
        let file = match env::var_os("EBB_TEST_PRELOAD") {
            Some(named) => PathBuf::from(named),
            None => build("build", profile(), &[]).join("libebbmalloc.so"),
        };
        file.canonicalize().unwrap_or_else(|error| panic!("no library under test at {}: {error}", file.display()))
    })
}

/// The static archive: a compilation of its own, with strong references, and always of the release
/// profile, which makes one object of it. Of several the linker would take some, and then libc's
/// malloc as well.
pub fn archive() -> &'static Path {
    static ARCHIVE: OnceLock<PathBuf> = OnceLock::new();
    ARCHIVE.get_or_init(|| {
        let kind = ["--features", "archive", "--crate-type", "staticlib"];
        build("rustc", "release", &kind).join("libebbmalloc.a")
    })
}

/// Whether another allocator than ebbmalloc is under test.
pub fn is_foreign() -> bool {
    env::var_os("EBB_TEST_PRELOAD").is_some_and(|named| {
        !Path::new(&named).file_name().is_some_and(|name| name.to_string_lossy().starts_with("libebbmalloc"))
    })
}

fn profile_dir() -> PathBuf {
    let test = env::current_exe().expect("the test's own path");
    let folder = test.parent().and_then(Path::parent);
    folder.expect("tests lie in TARGET/PROFILE/deps").to_owned()
}

/// The name of the profile the tests were built in.
fn profile() -> String {
    let folder = profile_dir();
    let name = folder.file_name().expect("the profile's folder");
    match name.to_str() {
        Some("debug") => "dev".to_owned(),
        name => name.expect("profiles have plain names").to_owned(),
    }
}

/// Runs cargo for this package, and the ones named with it, and returns the folder of its output:
/// `cargo test` itself leaves a package's shared object in `deps`, or does not build it at all.
pub fn build(verb: &str, profile: impl AsRef<str>, further: &[&str]) -> PathBuf {
    let profile = profile.as_ref();
    let target = profile_dir().with_file_name("");
    let status = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
        .args([verb, "--quiet", "--package", "ebbmalloc-c"])
        .args(["--profile", profile])
        .arg("--target-dir")
        .arg(&target)
        .args(further)
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .status()
        .expect("cargo can be run");
    assert!(status.success(), "cargo {verb} of ebbmalloc-c failed");
    target.join(if profile == "dev" { "debug" } else { profile })
}
