//! Whether the allocator in charge reads the settings that it was given. Pure.
//!
//! Every allocator reads its variables once, at the first request, and none says that a variable
//! is another one's; so each variable that is there is held against the allocator in charge.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};

use ebb_allocators::Allocator;
use ebb_process::environ::Variables;
use ebb_process::inside::Inside;

use super::finding::{Finding, Id};

/// Whose settings a variable holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Family {
    /// Allocators that read it.
    read_by: &'static [Allocator],
    /// The variable's name, or its start.
    variable: &'static str,
    is_prefix: bool,
    /// Whether its text is `key:value,...`.
    pairs: bool,
}

const FAMILIES: &[Family] = &[
    Family::list("EBB_CONF", &[Allocator::Ebbmalloc]),
    // ebbmalloc reads jemalloc's as well.
    Family::list("MALLOC_CONF", &[Allocator::Jemalloc, Allocator::Ebbmalloc]),
    Family::list("_RJEM_MALLOC_CONF", &[]),
    Family::prefix("MIMALLOC_", &[Allocator::Mimalloc]),
    Family::prefix("TCMALLOC_", &[Allocator::Tcmalloc]),
    Family::prefix("MALLOC_ARENA_", &[Allocator::Glibc]),
    Family { is_prefix: false, ..Family::prefix("MALLOC_TRIM_THRESHOLD_", &[Allocator::Glibc]) },
    Family::prefix("MALLOC_MMAP_", &[Allocator::Glibc]),
];

impl Family {
    const fn list(variable: &'static str, read_by: &'static [Allocator]) -> Self {
        Self { read_by, variable, is_prefix: false, pairs: true }
    }

    const fn prefix(variable: &'static str, read_by: &'static [Allocator]) -> Self {
        Self { read_by, variable, is_prefix: true, pairs: false }
    }

    fn of(name: &OsStr) -> Option<&'static Self> {
        let name = name.to_str()?;
        let is = |it: &&Self| name == it.variable || it.is_prefix && name.starts_with(it.variable);
        FAMILIES.iter().find(is)
    }
}

/// What is known about one process.
#[derive(Clone, Copy, Debug)]
pub struct Given<'a> {
    /// The allocator in charge.
    pub in_charge: Allocator,
    /// The one compiled into the program.
    pub inside: Option<Inside>,
    /// Whether the process runs in secure mode, where allocators do not trust the environment.
    pub secure: bool,
    /// What it was started with.
    pub at_start: &'a Variables,
    /// What it has now.
    pub now: Option<&'a Variables>,
    /// Settings that the allocator really has, where its own variables tell.
    pub in_force: &'a InForce,
}

impl<'a> Given<'a> {
    /// What is known before a service runs.
    fn of(in_charge: Allocator, at_start: &'a Variables, in_force: &'a InForce) -> Self {
        Self { in_charge, inside: None, secure: false, at_start, now: None, in_force }
    }
}

/// Settings by key.
pub type InForce = BTreeMap<&'static str, String>;

/// What is wrong with settings that a file declares for a service, which is not running.
pub fn judge_declared<N, V>(in_charge: Allocator, set: impl Iterator<Item = (N, V)>) -> Vec<Finding>
where
    N: Into<OsString>,
    V: Into<OsString>,
{
    let at_start: Variables = set.map(|(name, value)| (name.into(), value.into())).collect();
    judge(&Given::of(in_charge, &at_start, &InForce::new()))
}

/// What is wrong with the settings.
pub fn judge(given: &Given<'_>) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (name, value) in given.at_start {
        let Some(family) = Family::of(name) else { continue };
        let name = name.to_string_lossy();
        findings.extend(of_start(given, family, &name, &value.to_string_lossy()));
    }
    findings.extend(overruled(given));
    for (name, value) in given.now.into_iter().flatten() {
        let reads = |family: &Family| family.read_by.contains(&given.in_charge);
        if Family::of(name).is_some_and(reads) && given.at_start.get(name) != Some(value) {
            let (name, value) = (name.to_string_lossy(), value.to_string_lossy());
            let who = word(given.in_charge);
            let what = format!("{name}={value} was set by the program itself, after {who} had read its settings");
            findings.push(Finding::new(Id::SettingsTooLate, what));
        }
    }
    findings
}

fn of_start(given: &Given<'_>, family: &Family, name: &str, value: &str) -> Option<Finding> {
    let own = given.inside.and_then(Inside::settings_variable);
    if own.is_some_and(|own| own == name) {
        return malformed(name, value);
    }
    if let (Some(inside), Some(own)) = (given.inside, own)
        && name == "MALLOC_CONF"
    {
        let what = format!("{name} is not read: the program has {inside}, which reads {own}");
        return Some(Finding::new(Id::SettingsUnread, what));
    }
    if !family.read_by.contains(&given.in_charge) {
        let who = word(given.in_charge);
        let what = format!("{name} is not a setting of {who}, which is in charge");
        return Some(Finding::new(Id::SettingsOfAnother, what));
    }
    if given.secure {
        let what = format!("{name} is not read: the program gained rights when it started");
        return Some(Finding::new(Id::SettingsUnread, what));
    }
    if family.pairs { malformed(name, value) } else { None }
}

/// Requested settings that differ from the allocator's.
fn overruled(given: &Given<'_>) -> Vec<Finding> {
    let texts = read(given);
    // The last of two settings of a key counts.
    let asked: BTreeMap<&str, (&str, &str)> = texts
        .iter()
        .flat_map(|(name, text)| {
            let pairs = text.split(',').filter_map(|pair| pair.split_once(':'));
            pairs.map(|(key, value)| (key, (name.as_str(), value)))
        })
        .collect();
    asked
        .iter()
        .filter_map(|(key, (name, value))| {
            let real = given.in_force.get(key).filter(|real| real != value)?;
            Some(Finding::new(
                Id::SettingsUnread,
                format!("{name} sets {key}:{value}, but {} has {key}:{real}", word(given.in_charge)),
            ))
        })
        .collect()
}

/// The word for it in sentences.
fn word(in_charge: Allocator) -> &'static str {
    match in_charge {
        Allocator::Musl => "the C library",
        known => known.name(),
    }
}

fn malformed(name: &str, value: &str) -> Option<Finding> {
    // jemalloc's own limit: what is no pair ends the reading of the text, the rest included.
    let bad = value.split(',').find(|pair| {
        let key = pair.split_once(':').map_or("", |(key, _)| key);
        let is_key = |key: &str| {
            !key.is_empty() && key.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_.".contains(&byte))
        };
        !pair.is_empty() && !is_key(key)
    })?;
    Some(Finding::new(Id::SettingsMalformed, format!("{name}: \"{bad}\" is not KEY:VALUE")))
}

/// The settings that the allocator in charge has read.
pub fn read(given: &Given<'_>) -> BTreeMap<String, String> {
    let own = given.inside.and_then(Inside::settings_variable);
    let counts = |name: &OsStr| match own {
        Some(own) => name == own,
        None => Family::of(name).is_some_and(|it| it.read_by.contains(&given.in_charge)),
    };
    given
        .at_start
        .iter()
        .filter(|(name, _)| !given.secure && counts(name))
        .map(|(name, value)| {
            let text = |it: &OsStr| it.to_string_lossy().into_owned();
            (text(name), text(value))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn variables(pairs: &[(&str, &str)]) -> Variables {
        pairs.iter().map(|(name, value)| (name.into(), value.into())).collect()
    }

    fn found(in_charge: Allocator, start: &[(&str, &str)], now: &[(&str, &str)]) -> Vec<Id> {
        let (at_start, now) = (variables(start), variables(now));
        let in_force = InForce::new();
        let given = Given::of(in_charge, &at_start, &in_force);
        judge(&Given { now: Some(&now), ..given }).iter().map(|finding| finding.id).collect()
    }

    #[test]
    fn a_variable_is_judged_by_its_reader_its_time_and_its_form() {
        const ARENAS: &[(&str, &str)] = &[("MALLOC_ARENA_MAX", "2")];
        const CONF: &[(&str, &str)] = &[("MALLOC_CONF", "narenas:1")];
        const OTHER: &[(&str, &str)] = &[("MALLOC_CONF", "narenas:2")];
        const NO_PAIR: &[(&str, &str)] = &[("MALLOC_CONF", "narenas=1")];
        const SPACED: &[(&str, &str)] = &[("MALLOC_CONF", "narenas:1, tcache:false")];
        const TWO: &[(&str, &str)] = &[("MALLOC_CONF", "narenas:1,dirty_decay_ms:0")];
        for (in_charge, start, now, ids) in [
            (Allocator::Glibc, ARENAS, ARENAS, vec![]),
            (Allocator::Jemalloc, ARENAS, ARENAS, vec![Id::SettingsOfAnother]),
            (Allocator::Ebbmalloc, CONF, CONF, vec![]),
            (Allocator::Mimalloc, CONF, CONF, vec![Id::SettingsOfAnother]),
            (Allocator::Jemalloc, &[("MALLOC_CHECK_", "3")], &[], vec![]),
            (Allocator::Jemalloc, &[], CONF, vec![Id::SettingsTooLate]),
            (Allocator::Jemalloc, CONF, OTHER, vec![Id::SettingsTooLate]),
            (Allocator::Glibc, &[], CONF, vec![]),
            // Taken out later is fine.
            (Allocator::Jemalloc, CONF, &[], vec![]),
            (Allocator::Jemalloc, TWO, &[], vec![]),
            (Allocator::Jemalloc, NO_PAIR, &[], vec![Id::SettingsMalformed]),
            (Allocator::Jemalloc, SPACED, &[], vec![Id::SettingsMalformed]),
            (Allocator::Jemalloc, &[("MALLOC_CONF", "")], &[], vec![]),
        ] {
            assert_eq!(found(in_charge, start, now), ids, "{in_charge}: {start:?}, now {now:?}");
        }
    }

    #[test]
    fn a_prefixed_jemalloc_reads_a_prefixed_variable() {
        let at_start = variables(&[("MALLOC_CONF", "narenas:1"), ("_RJEM_MALLOC_CONF", "tcache:false")]);
        let in_force = InForce::from([("tcache", "false".to_owned())]);
        let given = Given::of(Allocator::Jemalloc, &at_start, &in_force);
        let given = Given { inside: Some(Inside::PrefixedJemalloc), ..given };
        let ids: Vec<Id> = judge(&given).iter().map(|finding| finding.id).collect();
        assert_eq!(ids, [Id::SettingsUnread], "MALLOC_CONF");
        let deaf = Given { in_force: &InForce::from([("tcache", "true".to_owned())]), ..given };
        let findings = judge(&deaf);
        let text = "_RJEM_MALLOC_CONF sets tcache:false, but jemalloc has tcache:true";
        assert!(findings.iter().any(|it| it.what == text), "{findings:?}");
    }
}
