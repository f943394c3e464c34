//! The note about huge pages where a service stays on glibc's malloc and glibc asks for them: by default on aarch64
//! since 2.43. What they cost is read from the running service where the file names one: a unit of systemd.

use std::env::consts::ARCH;
use std::fs;
use std::path::Path;

use ebb_allocators::Allocator;
use ebb_deploy::fix::Desired;
use ebb_inspect::glibc::{self, Version};
use ebb_inspect::{HugePages, Target};
use ebb_process::cgroup::Place;
use ebb_process::heap::{HUGE_PAGES, NO_HUGE_PAGES};

/// The note, if `file`, which is `text` before the change, leaves huge pages of glibc in force.
pub(super) fn note(desired: &Desired, file: &Path, text: &str) -> Option<String> {
    let is_set = text.contains(HUGE_PAGES) || desired.variables.values().any(|it| it.contains(HUGE_PAGES));
    if desired.allocator != Allocator::Glibc || is_set {
        return None;
    }
    of_unit(file).or_else(of_machine)
}

/// What the unit's processes have, if it runs here.
fn of_unit(file: &Path) -> Option<String> {
    let unit = file.file_name()?.to_str().filter(|it| it.ends_with(".service"))?;
    let pids: Vec<i32> = Place::find(unit).iter().flat_map(Place::pids).collect();
    let found: Vec<HugePages> = pids.into_iter().filter_map(of_process).collect();
    (!found.is_empty()).then(|| measured(unit, &found))
}

fn of_process(pid: i32) -> Option<HugePages> {
    let target = Target::open(pid).ok()?;
    if !glibc::asks_for_huge_pages(&target).ok()? {
        return None;
    }
    glibc::read(&target).ok()?.huge_pages
}

fn measured(unit: &str, found: &[HugePages]) -> String {
    let mb = |of: fn(&HugePages) -> u64| found.iter().map(of).sum::<u64>() as f64 / 1e6;
    format!(
        "glibc's malloc in {unit} asks for huge pages: {:.1} MB of its arenas are in such pages, at most {:.1} MB of these are \
         free. --env {NO_HUGE_PAGES} ends that",
        mb(|it| it.resident),
        mb(|it| it.free)
    )
}

/// That this machine's glibc asks for them. What they would cost a service that is not known here is not known either.
fn of_machine() -> Option<String> {
    let folder = format!("{ARCH}-linux-gnu");
    let files = ["/lib64", "/usr/lib64", "/lib", "/usr/lib"].map(Path::new);
    let files = files.iter().flat_map(|it| [it.join("libc.so.6"), it.join(&folder).join("libc.so.6")]);
    let version = files.filter(|it| it.is_file()).find_map(|it| glibc::version_of(&it))?;
    let enabled = fs::read_to_string("/sys/kernel/mm/transparent_hugepage/enabled").ok()?;
    asks(ARCH, version, &enabled).then(|| {
        format!(
            "glibc {version} asks for huge pages by default, which can keep free memory resident; ebb check PID says how \
             many MB of a process. --env {NO_HUGE_PAGES} ends that"
        )
    })
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

    #[test]
    fn the_processes_of_a_unit_are_added_up() {
        let found = [(120_000_000, 80_000_000), (30_000_000, 0)];
        let found = found.map(|(resident, free)| HugePages { resident, free });
        let note = measured("shop.service", &found);
        for words in ["in shop.service", "150.0 MB of its arenas", "80.0 MB of these", NO_HUGE_PAGES] {
            assert!(note.contains(words), "{words} is not in: {note}");
        }
    }
}
