//! The note about huge pages where a service stays on glibc's malloc, and the glibc of this machine asks for them by
//! default: on aarch64 since 2.43.

use std::env::consts::ARCH;
use std::fs;
use std::path::Path;

use ebb_allocators::Allocator;
use ebb_deploy::fix::Desired;
use ebb_inspect::glibc::{self, Version};
use ebb_process::heap::{HUGE_PAGES, NO_HUGE_PAGES};
use procfs::Current;

/// The note, if the file `text` with the change leaves glibc's default in force on this machine.
pub(super) fn note(desired: &Desired, text: &str) -> Option<String> {
    let is_set =
        text.contains(HUGE_PAGES) || desired.variables.values().any(|it| it.contains(HUGE_PAGES));
    if desired.allocator != Allocator::Glibc || is_set {
        return None;
    }
    let folder = format!("{ARCH}-linux-gnu");
    let files = ["/lib64", "/usr/lib64", "/lib", "/usr/lib"].map(Path::new);
    let files =
        files.iter().flat_map(|it| [it.join("libc.so.6"), it.join(&folder).join("libc.so.6")]);
    let version = files.filter(|it| it.is_file()).find_map(|it| glibc::version_of(&it))?;
    let enabled = fs::read_to_string("/sys/kernel/mm/transparent_hugepage/enabled").ok()?;
    if !asks(ARCH, version, &enabled) {
        return None;
    }
    Some(sentence(version, procfs::Meminfo::current().ok()?.anon_hugepages?))
}

fn sentence(version: Version, huge: u64) -> String {
    format!(
        "glibc {version} asks for huge pages by default, which can keep free memory resident. They take {:.0} MB on this \
         machine; ebb check PID says how much of a process's is free. --env {NO_HUGE_PAGES} ends that",
        huge as f64 / 1e6
    )
}

/// Whether it asks for them by default, and the kernel has some.
fn asks(arch: &str, version: Version, enabled: &str) -> bool {
    arch == "aarch64" && version >= Version { major: 2, minor: 43 } && !enabled.contains("[never]")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_newer_glibcs_on_aarch64_ask_by_default() {
        let of = |minor| Version { major: 2, minor };
        assert!(sentence(of(43), 300_400_000).contains("They take 300 MB on this machine"));
        for (arch, minor, enabled, expected) in [
            ("aarch64", 43, "always [madvise] never\n", true),
            ("aarch64", 44, "[always] madvise never\n", true),
            ("aarch64", 43, "always madvise [never]\n", false),
            ("aarch64", 42, "always [madvise] never\n", false),
            ("x86_64", 43, "always [madvise] never\n", false),
        ] {
            assert_eq!(asks(arch, of(minor), enabled), expected, "{arch} {minor} {enabled}");
        }
    }
}
