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
            None => built().join("libebbmalloc.so"),
        };
        file.canonicalize()
            .unwrap_or_else(|error| panic!("no library under test at {}: {error}", file.display()))
    })
}

/// The static archive of the same build.
pub fn archive() -> PathBuf {
    built().join("libebbmalloc.a")
}

/// Whether another allocator than ebbmalloc is under test.
pub fn is_foreign() -> bool {
    env::var_os("EBB_TEST_PRELOAD").is_some_and(|named| {
        !Path::new(&named)
            .file_name()
            .is_some_and(|name| name.to_string_lossy().starts_with("libebbmalloc"))
    })
}

/// The profile's folder of the target directory, freshly built: `cargo test` leaves a package's
/// shared object and archive in `deps`, or does not build them at all.
fn built() -> &'static Path {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    BUILT.get_or_init(|| {
        let test = env::current_exe().expect("the test's own path");
        let profile_dir = test
            .parent()
            .and_then(Path::parent)
            .expect("tests lie in TARGET/PROFILE/deps");
        let profile = profile_dir.file_name().expect("the profile's folder");
        let mut cargo = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
        cargo
            .args(["build", "--quiet", "--package", "ebbmalloc-c", "--profile"])
            .arg(if profile == "debug" {
                "dev".as_ref()
            } else {
                profile
            })
            .arg("--target-dir")
            .arg(profile_dir.parent().expect("the target directory"))
            .current_dir(env!("CARGO_MANIFEST_DIR"));
        let status = cargo.status().expect("cargo can be run");
        assert!(status.success(), "cargo build of ebbmalloc-c failed");
        profile_dir.to_owned()
    })
}
