//! A Dockerfile: `ENV` in the stage that makes the image, and what brings the library there.
//!
//! `ENV` and not an entrypoint: it counts for everything that is started in the container, by whatever
//! command. It comes after everything that is run and copied, so that no step of the build is
//! preloaded, and before nothing that a cache would have to do again.

use crate::check::base::Base;
use crate::check::dockerfile::{self, Context, Piece, Stage, Stages};
use crate::check::library::file_name;
use crate::check::{Id, Judged};
use ebb_allocators::Allocator;

use super::desired::{Changes, Setting};
use super::{Desired, Edit, Fixed, Refused};

mod install;
mod place;
mod python;
mod value;

/// A Dockerfile under repair.
struct Image<'a> {
    name: &'a str,
    text: &'a str,
    stages: Stages,
    target: Option<&'a str>,
    context: &'a dyn Context,
    desired: &'a Desired,
}

/// What puts the allocator in charge of the image that stage `target`, by default the last, makes.
/// `context` is what the builder is given.
pub fn fix(
    name: &str,
    text: &str,
    target: Option<&str>,
    context: &dyn Context,
    desired: &Desired,
) -> Result<Fixed, Refused> {
    let stages = Stages::parse(text)
        .map_err(|error| Refused::not_understood(format!("ebb cannot parse the Dockerfile {name}: {error}")))?;
    if stages.chain(target).is_none() {
        let what = format!("{name} has no stage {}", target.unwrap_or_default());
        return Err(Refused::not_understood(what).remedy(stages.names()));
    }
    Image { name, text, stages, target, context, desired }.fix()
}

impl Image<'_> {
    fn chain(&self) -> Vec<&Stage> {
        self.stages.chain(self.target).unwrap_or_default()
    }

    fn fix(&self) -> Result<Fixed, Refused> {
        let chain = self.chain();
        let Some(stage) = chain.first() else {
            return Err(Refused::not_understood(format!("{} has no stage", self.name)));
        };
        self.refuse_other_ways()?;
        let base = chain.last().map_or("scratch", |it| it.base.as_str());
        let present = |name: &str| present(self.text, &chain, name);
        let behind = last_step(stage);
        let in_front_of = |place: usize| stage.pieces.iter().rev().find(|it| it.at.end <= place).unwrap_or(behind);
        // What a release installs has to be there only where the loader looks for it.
        let preload = value::of(self.text, stage, "LD_PRELOAD");
        let needed = preload.map_or(behind, |it| in_front_of(it.start));
        let at = |behind| place::At { text: self.text, chain: &chain, behind };
        let asks_already = self.spelling(&[], &present).is_some();
        let is_named = self.desired.library.is_some() || asks_already;
        let source = install::Source::of(self.desired, Base::parse(base), &at(needed), is_named)?;
        let library = self.desired.library.clone().unwrap_or_else(|| source.library(self.desired));
        let Changes { settings, notes } = self.desired.changes(&library, &present);
        let mut fixed = Fixed { edits: Vec::new(), notes };
        let mut new = Vec::new();
        for setting in &settings {
            match value::of(self.text, stage, &setting.name) {
                Some(place) => fixed.edits.push(replaced(self.text, place, setting)),
                None => new.push(setting),
            }
        }
        // In front of an ENV that already exists: its library has to be there from then on.
        let first_env = fixed.edits.iter().map(|it| it.at.start).min();
        let install_behind = match (&self.desired.release, first_env) {
            (Some(_), _) => needed,
            (None, Some(place)) => in_front_of(place),
            (None, None) => behind,
        };
        let spelling = self.spelling(&settings, &present).unwrap_or(library);
        // A folder that is copied whole may have the library of an image that asks for it, and of no other.
        let is_guess = !asks_already && is_only_in_a_folder(&chain, &spelling);
        if self.desired.preloads() && (is_guess || !self.has_library(&fixed, &new, behind)?) {
            fixed.edits.extend(source.edits(self.desired, &at(install_behind), &spelling)?);
            fixed.notes.extend(source.notes(self.desired));
        }
        for setting in new {
            fixed.edits.push(env(self.text, behind, setting));
        }
        self.verify(&fixed)?;
        Ok(fixed)
    }

    /// Where the image asks for an allocator in a way that `ENV` does not reach, there is one place too many.
    fn refuse_other_ways(&self) -> Result<(), Refused> {
        let chain = self.chain();
        let judged = self.judge(&self.stages);
        let remedy = "set it by ENV, so that it applies however the program is started";
        if let Some(start) = dockerfile::start(&chain) {
            if let Some(named) = start.through_ebb() {
                let what = format!(
                    "{}:{}: the image already starts its program by `ebb run` on {named}",
                    self.name, start.line
                );
                if named != self.desired.allocator.name() {
                    return Err(Refused::cannot(what, "name the allocator there"));
                }
            }
            if start.assigned("LD_PRELOAD").is_some() {
                let what = format!("{}:{}: the command itself sets LD_PRELOAD", self.name, start.line);
                let remedy = format!("remove it there, then run ebb fix again; {remedy}");
                return Err(Refused::cannot(what, &remedy));
            }
        }
        // A script would have the last word over ENV.
        let by_script = judged.findings.iter().find(|it| {
            matches!(it.id, Id::EntrypointBypassed)
                || it.id == Id::EnvironmentDropped && it.what.contains("without `export`")
        });
        let Some(finding) = by_script else { return Ok(()) };
        let what = format!("{}: {}", finding.file.as_deref().unwrap_or(self.name), finding.what);
        let remedy = format!("remove it from the script, then run ebb fix again; {remedy}");
        Err(Refused::cannot(what, &remedy))
    }

    fn judge(&self, stages: &Stages) -> Judged {
        dockerfile::judge(self.name, stages, self.target, self.context)
            .unwrap_or(Judged { allocator: None, findings: Vec::new() })
    }

    /// The value that the loader will see: the existing value where that stays.
    fn spelling(&self, settings: &[Setting], present: &dyn Fn(&str) -> Option<String>) -> Option<String> {
        let change = settings.iter().find(|it| it.name == "LD_PRELOAD").map(|it| it.value.clone());
        let value = change.or_else(|| present("LD_PRELOAD"))?;
        let is_ours = |entry: &&str| Allocator::from_file_name(file_name(entry)) == Some(self.desired.allocator);
        value.split([' ', ':']).find(is_ours).map(str::to_owned)
    }

    /// Whether something brings the library already: asked of `ebb check`, with the variables set.
    fn has_library(&self, fixed: &Fixed, new: &[&Setting], behind: &Piece) -> Result<bool, Refused> {
        let mut edits = fixed.edits.clone();
        edits.extend(new.iter().map(|it| env(self.text, behind, it)));
        let text = super::edit::apply(self.text, &edits);
        let stages = Stages::parse(&text).map_err(|error| self.defect(&error))?;
        let judged = self.judge(&stages);
        Ok(!judged.findings.iter().any(|it| matches!(it.id, Id::PackageMissing | Id::BaseUnknown)))
    }

    /// Every instruction that was there is still there, in its order, but for the values that were changed.
    fn verify(&self, fixed: &Fixed) -> Result<(), Refused> {
        let text = super::edit::apply(self.text, &fixed.edits);
        let after = Stages::parse(&text).map_err(|error| self.defect(&error))?;
        let overlaps = |edit: &Edit, piece: &Piece| edit.at.start < piece.at.end && edit.at.end > piece.at.start;
        let touched = |piece: &&Piece| fixed.edits.iter().any(|edit| overlaps(edit, piece));
        let mut now = pieces(&after).map(|it| &text[it.at.clone()]);
        let mut kept = pieces(&self.stages).filter(|it| !touched(it)).map(|it| &self.text[it.at.clone()]);
        if kept.all(|piece| now.any(|it| it == piece)) {
            return Ok(());
        }
        Err(self.defect("the change would alter another instruction"))
    }

    fn defect(&self, why: &str) -> Refused {
        Refused::in_file(self.name, why)
    }
}

fn pieces(stages: &Stages) -> impl Iterator<Item = &Piece> {
    stages.all().iter().flat_map(|it| &it.pieces)
}

/// Whether nothing but a folder that is copied whole may bring the file `path`.
fn is_only_in_a_folder(chain: &[&Stage], path: &str) -> bool {
    let copies: Vec<_> = chain.iter().flat_map(|it| &it.copies).map(|it| &it.value).collect();
    path.contains('/') && copies.iter().any(|it| it.brings(path)) && !copies.iter().any(|it| it.names(path))
}

/// The last instruction after which only instructions come that say how the container starts.
fn last_step(stage: &Stage) -> &Piece {
    const AT_THE_END: &str = "CMD ENTRYPOINT EXPOSE HEALTHCHECK STOPSIGNAL USER LABEL VOLUME MAINTAINER";
    let is_step = |it: &&Piece| !AT_THE_END.split(' ').any(|word| word == it.keyword);
    // FROM is a step.
    stage.pieces.iter().rev().find(is_step).unwrap_or(&stage.pieces[0])
}

/// What a variable is set to when the container starts, as it is written where that is in the last stage.
fn present(text: &str, chain: &[&Stage], name: &str) -> Option<String> {
    if let Some(place) = chain.first().and_then(|stage| value::of(text, stage, name)) {
        return Some(value::unquoted(&text[place]).0.to_owned());
    }
    let set = |stage: &&Stage| {
        let of_name = stage.env.iter().rev().find(|it| it.value.0 == name)?;
        Some(of_name.value.1.clone())
    };
    chain.iter().find_map(set)
}

fn replaced(text: &str, place: std::ops::Range<usize>, setting: &Setting) -> Edit {
    let (_, quote) = value::unquoted(&text[place.clone()]);
    let quote = if setting.value.contains(' ') && quote.is_empty() { "\"" } else { quote };
    Edit::replace(place, format!("{quote}{}{quote}", setting.value), &*setting.why)
}

fn env(text: &str, behind: &Piece, setting: &Setting) -> Edit {
    let value = &setting.value;
    let is_plain = value.chars().all(|it| it.is_ascii_alphanumeric() || "-_./:,=+@%".contains(it));
    let escaped = value.replace('\\', "\\\\").replace('"', "\\\"").replace('$', "\\$");
    let value = if is_plain { value.clone() } else { format!("\"{escaped}\"") };
    let line = format!("ENV {}={value}", setting.name);
    Edit::below(text, behind.at.end, &[line], &*setting.why)
}
