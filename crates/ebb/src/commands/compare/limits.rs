//! The limits of a trial: what its service may use, and what it may hold after the rest.

use crate::arguments;
use crate::exit::{Exit, Failure};
use ebb_process::limited_cgroup::{self, CgroupParent};
use ebb_trial::results::{Column, Limits, MaxRest, Variant};
use ebb_trial::sampler::{RunCgroup, RunCgroups};
use std::path::PathBuf;

/// `--memory-max`, `--cpus`, `--max-rest`.
#[derive(Debug, clap::Args)]
#[group(skip)]
#[command(next_help_heading = "Limits")]
pub struct Args {
    /// Memory limit of the service, such as 1G or 512Mi, by a cgroup for each run. An OOM kill is a result.
    #[arg(long, value_name = "SIZE", value_parser = size)]
    memory_max: Option<u64>,

    /// CPU limit of the service, such as 0.5 or 2.
    #[arg(long, value_name = "N", value_parser = cpus)]
    cpus: Option<f64>,

    /// Exit with 15 if a variant (default: the first) holds more than this after the rest, or does not reach its
    /// rest; may be repeated.
    #[arg(long, value_name = "[VARIANT=]SIZE", value_parser = max_rest)]
    max_rest: Vec<(Option<String>, u64)>,
}

fn size(text: &str) -> Result<u64, String> {
    match arguments::size(text)? {
        0 => Err("write a size above 0, such as 512Mi".to_owned()),
        bytes => Ok(bytes),
    }
}

fn cpus(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        // The kernel takes no quota below a millisecond of its period of a tenth of a second.
        Ok(cpus) if (0.01..=1024.0).contains(&cpus) => Ok(cpus),
        _ => Err("write a number of processors from 0.01 to 1024".into()),
    }
}

fn max_rest(text: &str) -> Result<(Option<String>, u64), String> {
    // The name of a variant may have an = in it, a size never.
    match text.rsplit_once('=') {
        Some((name, bytes)) => Ok((Some(name.to_owned()), size(bytes)?)),
        None => Ok((None, size(text)?)),
    }
}

impl Args {
    /// What the service of each run is held to.
    pub fn limits(&self) -> Limits {
        Limits { memory_max_bytes: self.memory_max, cpus: self.cpus }
    }

    /// Creates cgroups, and has created one to try it; none if no limit was requested.
    pub fn cgroups(&self) -> Result<Option<Box<dyn RunCgroups>>, Failure> {
        if self.memory_max.is_none() && self.cpus.is_none() {
            return Ok(None);
        }
        let limits = limited_cgroup::Limits { memory_bytes: self.memory_max, cpus: self.cpus };
        let parent = CgroupParent::find(limits).map_err(|error| {
            let what = format!("--memory-max and --cpus need a cgroup, which cannot be created: {error}");
            Failure::new(Exit::Permission, what).remedy(
                "run ebb as root, or under cgroup v2 in a delegated scope: systemd-run --user --scope \
                 -p Delegate=yes ebb compare ...",
            )
        })?;
        Ok(Some(Box::new(Cgroups(parent))))
    }

    /// The variants that `--max-rest` is about, before anything is started.
    pub fn check(&self, names: &[&str]) -> Result<(), Failure> {
        let unknown = self.max_rest.iter().filter_map(|(name, _)| name.as_deref()).find(|name| !names.contains(name));
        unknown.map_or(Ok(()), |name| {
            let what = format!("--max-rest {name}: this trial has no such variant");
            Err(Failure::usage(what).remedy(format!("it has: {}", names.join(", "))))
        })
    }

    /// The outcome of `--max-rest`.
    pub fn judge(&self, variants: &[Variant]) -> Vec<MaxRest> {
        let asked = self.max_rest.iter().filter_map(|(name, max_bytes)| {
            let variant = match name {
                Some(name) => variants.iter().find(|variant| variant.name == *name)?,
                None => variants.first()?,
            };
            let summary = variant.summary.as_ref();
            let after_rest = summary.and_then(|summary| summary.median(Column::AfterRest));
            Some(MaxRest {
                variant: variant.name.clone(),
                max_bytes: *max_bytes,
                after_rest_bytes: after_rest.map(|bytes| bytes as u64),
                kept: after_rest.is_some_and(|bytes| bytes <= *max_bytes as f64)
                    && variant.runs.iter().all(|run| run.oom.is_none()),
            })
        });
        asked.collect()
    }
}

/// Creates cgroups for the trial.
struct Cgroups(CgroupParent);

impl RunCgroups for Cgroups {
    fn create(&self, name: &str) -> Result<Box<dyn RunCgroup>, String> {
        match self.0.create(name) {
            Ok(made) => Ok(Box::new(Made(made))),
            Err(error) => Err(error.to_string()),
        }
    }
}

struct Made(limited_cgroup::LimitedCgroup);

impl RunCgroup for Made {
    fn procs_files(&self) -> Vec<PathBuf> {
        self.0.procs_files()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_decimal_unless_they_say_otherwise() {
        assert_eq!(size("100M"), Ok(100_000_000));
        assert_eq!(size("1Gi"), Ok(1 << 30));
        assert_eq!(size("1.5GB"), Ok(1_500_000_000));
        for text in ["", "0", "-1M", "much", "1X"] {
            assert!(size(text).unwrap_err().contains("512Mi"), "{text}");
        }
    }

    #[test]
    fn a_rest_is_of_the_first_variant_or_of_a_named_one() {
        assert_eq!(max_rest("64M"), Ok((None, 64_000_000)));
        assert_eq!(max_rest("glibc+A=b=64M"), Ok((Some("glibc+A=b".into()), 64_000_000)));
        assert!(max_rest("glibc=").is_err());
    }
}
