//! Which allocator with which settings: as the user says, else as a trial came out, else ours.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::Path;

use super::arguments::{Args, Channel};
use crate::commands::compare::earlier;
use crate::exit::{Exit, Failure, unknown_allocator};
use ebb_allocators::{Allocator, Choice, Environment, Library};
use ebb_deploy::fix::Desired;
use ebb_deploy::fix::desired::Release;
use ebb_trial::results::VerdictKind;
use ebb_trial::{choice, variant};

pub(super) enum Chosen {
    /// This allocator.
    Change(Desired),
    /// No change: the trial's sentence.
    Nothing(String),
}

/// The variant of a trial that shows jemalloc at its best without knowledge of the service.
const JEMALLOC: &str = "jemalloc-1000";

/// The allocator that should be in charge, with its settings.
pub(super) fn desired(args: &Args) -> Result<Chosen, Failure> {
    let mut desired = match &args.from {
        Some(path) => match of_trial(path)? {
            Chosen::Nothing(sentence) => return Ok(Chosen::Nothing(sentence)),
            Chosen::Change(desired) => desired,
        },
        None => of_arguments(args)?,
    };
    for (name, value) in &args.env {
        if name == "LD_PRELOAD" {
            return Err(Failure::usage("--env LD_PRELOAD").remedy("use --allocator and --library"));
        }
        desired.variables.insert(name.clone(), value.clone());
        desired.keep_existing = false;
    }
    if let Some(library) = &args.library {
        desired.library = Some(usable(library)?);
    }
    if args.channel == Channel::Release && desired.allocator == Allocator::Ebbmalloc {
        let image = args.library_image.as_deref().map(pullable).transpose()?;
        desired.release = Some(Release { version: env!("CARGO_PKG_VERSION").to_owned(), image });
    }
    Ok(Chosen::Change(desired))
}

/// The loader splits at spaces and colons; a relative path would be another one in each folder.
fn usable(library: &str) -> Result<String, Failure> {
    if library.contains([' ', ':', '\n', '\t', '$', '"', '\''])
        || library.contains('/') && !library.starts_with('/')
        || library.is_empty()
    {
        return Err(Failure::usage(format!("--library {library}"))
            .remedy("give an absolute path or a bare name, without spaces, colons, dollar signs or quotes"));
    }
    Ok(library.to_owned())
}

/// An image's name; what looks like a digest has to be one.
fn pullable(image: &str) -> Result<String, Failure> {
    let is_hex = |it: &str| it.len() == 64 && it.bytes().all(|it| it.is_ascii_hexdigit());
    let is_digest = |it: &str| it.strip_prefix("sha256:").is_some_and(is_hex);
    let is_plain = !image.is_empty() && image.bytes().all(|it| it.is_ascii_graphic());
    if is_plain && image.split_once('@').is_none_or(|(_, digest)| is_digest(digest)) {
        return Ok(image.to_owned());
    }
    Err(Failure::usage(format!("--library-image {image}: not the name of an image"))
        .remedy("give NAME@sha256: and 64 digits"))
}

fn of_arguments(args: &Args) -> Result<Desired, Failure> {
    let name = args.allocator.as_deref().unwrap_or(Allocator::Ebbmalloc.name());
    let known = Allocator::from_choice(name);
    let allocator = known.ok_or_else(|| unknown_allocator(name, ""))?;
    let why = match &args.allocator {
        Some(_) => "as requested".to_owned(),
        None => "it returns idle memory without a setting".to_owned(),
    };
    if args.conf.is_empty() {
        let variables = if allocator == Allocator::Jemalloc { settings_of(JEMALLOC) } else { BTreeMap::new() };
        return Ok(Desired { allocator, library: None, release: None, variables, keep_existing: true, why });
    }
    let choice = if allocator.is_of_libc() {
        Choice::System
    } else {
        Choice::Library(Library { path: allocator.name().into(), allocator: Some(allocator) })
    };
    let change = Environment::of(&choice, &args.conf, |_| None)?;
    let text = |text: OsString| text.to_string_lossy().into_owned();
    let set = change.changes.into_iter().filter_map(|(name, value)| Some((text(name), text(value?))));
    let variables = set.filter(|(name, _)| name != "LD_PRELOAD").collect();
    Ok(Desired { allocator, library: None, release: None, variables, keep_existing: false, why })
}

/// The environment of a variant that every trial knows.
fn settings_of(name: &str) -> BTreeMap<String, String> {
    let parsed = variant::parse(&[name.to_owned()], &BTreeMap::new());
    parsed.ok().and_then(|it| it.into_iter().next()).map(|it| it.env).unwrap_or_default()
}

/// What a trial recommends.
fn of_trial(path: &Path) -> Result<Chosen, Failure> {
    let unusable = |why: String| {
        Failure::at(Exit::Usage, path, why).remedy("give the results.json that `ebb compare -o DIR` writes")
    };
    let trial = earlier::read(path)?;
    let sentence = trial.verdict.sentence.trim_end_matches('.').to_owned();
    let name = match (trial.verdict.kind, &trial.verdict.variant) {
        (VerdictKind::Recommend, Some(name)) => name,
        (VerdictKind::Recommend, None) => {
            return Err(unusable("it recommends a variant without a name".to_owned()));
        }
        (VerdictKind::NotEnough, _) => {
            return Err(
                Failure::at(Exit::NotEnoughEvidence, path, sentence).remedy("repeat the trial, or name an --allocator")
            );
        }
        _ => return Ok(Chosen::Nothing(sentence)),
    };
    let Some(variant) = trial.variants.iter().find(|it| it.name == *name) else {
        return Err(unusable(format!("it recommends {name}, but has no such variant")));
    };
    let by_file = || Allocator::from_file_name(variant.allocator.rsplit('/').next().unwrap_or_default());
    let Some(allocator) = Allocator::from_choice(&variant.allocator).or_else(by_file) else {
        let why = format!("the trial recommends {}, which ebb does not know", variant.allocator);
        return Err(Failure::at(Exit::Unsupported, path, why).remedy("write the change by hand"));
    };
    let (variables, of_python) = choice::environment(&trial, variant);
    let of_python = of_python.map_or_else(String::new, |why| format!("; {why}"));
    Ok(Chosen::Change(Desired {
        allocator,
        library: None,
        release: None,
        variables,
        keep_existing: false,
        why: format!("the trial of {}: {sentence}{of_python}", trial.workload.name),
    }))
}
