//! The machine of a trial, for its report. What cannot be read is left out.

use ebb_trial::results::Machine;
use procfs::Current;

pub fn read() -> Machine {
    let cpu = procfs::CpuInfo::current().ok();
    let (page_fault_s, page_return_s) = page_costs_s();
    Machine {
        cpu: cpu.as_ref().and_then(|cpu| cpu.model_name(0).map(str::to_owned)),
        processors: std::thread::available_parallelism().ok().map(usize::from),
        memory_bytes: procfs::Meminfo::current().ok().map(|memory| memory.mem_total),
        kernel: line("/proc/sys/kernel/osrelease"),
        thp: line("/sys/kernel/mm/transparent_hugepage/enabled").and_then(|text| bracketed(&text)),
        system: std::fs::read_to_string("/etc/os-release").ok().and_then(|text| pretty_name(&text)),
        page_fault_s,
        page_return_s,
    }
}

/// Of a page that is touched, and of returning it before.
#[cfg(all(target_os = "linux", target_arch = "x86_64", target_env = "gnu"))]
fn page_costs_s() -> (Option<f64>, Option<f64>) {
    let cost = ebb_inject::Refault::measure().ok();
    (cost.map(|cost| cost.touched.as_secs_f64()), cost.map(|cost| cost.returned.as_secs_f64()))
}

#[cfg(not(all(target_os = "linux", target_arch = "x86_64", target_env = "gnu")))]
fn page_costs_s() -> (Option<f64>, Option<f64>) {
    (None, None)
}

fn line(path: &str) -> Option<String> {
    std::fs::read_to_string(path).ok().map(|text| text.trim().to_owned())
}

/// The chosen one of "always [madvise] never".
fn bracketed(text: &str) -> Option<String> {
    let (_, rest) = text.split_once('[')?;
    rest.split_once(']').map(|(chosen, _)| chosen.to_owned())
}

fn pretty_name(text: &str) -> Option<String> {
    let line = text.lines().find_map(|line| line.strip_prefix("PRETTY_NAME="))?;
    Some(line.trim_matches('"').to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_chosen_setting_and_the_system_are_found() {
        assert_eq!(bracketed("always [madvise] never").as_deref(), Some("madvise"));
        assert_eq!(bracketed("none"), None);
        assert_eq!(pretty_name("ID=x\nPRETTY_NAME=\"X 12\"\n").as_deref(), Some("X 12"));
    }
}
