//! A Dockerfile, read without building it: is the allocator named where the service starts, does
//! something install it, will the loader take it? Pure; files of the build context are asked for.
//!
//! What a base image has inside is known only for the common ones; for others the result says so.

use ebb_process::elf::Libc;

use ebb_allocators::Allocator;

use super::base::Base;
use super::finding::{Finding, Id, Judged};
use super::library::{allocator_of, file_name, is_pattern, path_architecture};
use super::settings;

mod asked;
mod copied;
mod image;
mod program;
mod start;
mod variables;

pub use asked::{Context, is_entrypoint_name, set_by_script};
pub use image::{Malformed, Piece, Stage, Stages};
pub use start::start;

use asked::{Asked, Image};

/// Judges the image that the Dockerfile called `name` makes. `context` is what the builder is given;
/// `target` names the stage to build, the last one by default. None where there is no such stage.
pub fn judge(
    name: &str,
    stages: &Stages,
    target: Option<&str>,
    context: &dyn Context,
) -> Option<Judged> {
    let chain = stages.chain(target)?;
    let start = start(&chain);
    let image = Image { name, stages, chain, start, context };
    Some(image.judge())
}

impl Image<'_> {
    fn judge(&self) -> Judged {
        let (asked, mut findings) = self.asked();
        let Some(asked) = asked else {
            return Judged { allocator: None, findings };
        };
        let entry = asked
            .text
            .split([' ', ':'])
            .find(|entry| allocator_of(entry).is_some())
            .or_else(|| asked.text.split([' ', ':']).find(|entry| !entry.is_empty()))
            .unwrap_or(&asked.text);
        let allocator = allocator_of(entry);
        findings.extend(self.path(entry, &asked));
        if !findings.iter().any(|it| it.id == Id::NotExpanded) {
            findings.extend(self.library(entry, allocator, &asked));
        }
        findings.extend(self.program());
        findings.extend(self.settings(allocator));
        Judged { allocator: Some(allocator.map_or(entry, |it| it.name()).to_owned()), findings }
    }

    /// What the path itself says.
    fn path(&self, entry: &str, asked: &Asked) -> Vec<Finding> {
        let text = &asked.text;
        if !asked.by_shell && (is_pattern(text) || text.contains("${LIB}")) {
            let what = if text.contains("${LIB}") {
                "the builder replaces $LIB by an empty text before the loader sees it: write \\$LIB"
                    .to_owned()
            } else {
                format!("LD_PRELOAD is \"{text}\", which the loader takes literally")
            };
            return vec![self.at(asked.line, Id::NotExpanded, what)];
        }
        let Some(architecture) = path_architecture(entry) else {
            return Vec::new();
        };
        let platform = self.base().1.and_then(platform_architecture);
        match platform {
            Some(other) if other != architecture => vec![self.at(
                asked.line,
                Id::ArchitecturePath,
                format!("{entry} is a path for {architecture}, but the image is for {other}"),
            )],
            Some(_) => Vec::new(),
            None => vec![self.at(
                asked.line,
                Id::ArchitectureBound,
                format!("{entry} exists on {architecture} only"),
            )],
        }
    }

    /// The image that all stages of the chain are built on, and the requested platform.
    fn base(&self) -> (Base<'_>, Option<&str>) {
        let platform = self.chain.iter().find_map(|it| it.platform.as_deref());
        let lowest = self.chain.last().map_or("scratch", |it| it.base.as_str());
        (Base::parse(lowest), platform)
    }

    /// Whether the library will be there, for this libc.
    fn library(&self, entry: &str, allocator: Option<Allocator>, asked: &Asked) -> Vec<Finding> {
        let (base, _) = self.base();
        if base.has_no_loader() {
            let what = "the base image has no loader: only static programs run in it, and nothing can be \
                        preloaded into them";
            return vec![self.at(asked.line, Id::StaticProgram, what.to_owned())];
        }
        let libc = base.libc();
        if libc == Some(Libc::Musl) && entry.contains("-linux-gnu") {
            let what = format!("{entry} is a path for glibc, but the image has musl");
            return vec![self.at(asked.line, Id::WrongLibc, what)];
        }
        let is_path = entry.contains('/');
        for copy in self.chain.iter().flat_map(|stage| &stage.copies) {
            if !copy.value.brings(entry) {
                continue;
            }
            let from = copy.value.from.as_deref();
            if from.is_none()
                && let Some(source) = copy.value.source_of(entry)
                && let Some(why) = self.context.lacks(source)
            {
                let what = format!("the build fails at the copy of {source}: {why}");
                return vec![self.at(copy.line, Id::CopyMissing, what)];
            }
            // libebbmalloc.so needs no libc.
            let theirs = from.filter(|_| allocator != Some(Allocator::Ebbmalloc));
            let theirs = theirs.and_then(|from| self.libc_of(from));
            return match (&libc, theirs) {
                (Some(ours), Some(theirs)) if *ours != theirs => vec![self.at(
                    copy.line,
                    Id::WrongLibc,
                    format!("{entry} comes from an image with {theirs}, but this one has {ours}"),
                )],
                _ => Vec::new(),
            };
        }
        let runs = |chain: &[&Stage]| {
            let texts = chain.iter().flat_map(|stage| &stage.runs);
            let packages =
                allocator.map(|it| it.packages().all_that_bring_it()).unwrap_or_default();
            texts.clone().any(|run| {
                let words = || run.value.split([' ', '\t', '\n', '\\', '=', ';', '"', '\'']);
                words().any(|word| packages.contains(&word)) || run.value.contains(file_name(entry))
            })
        };
        if runs(&self.chain) {
            return Vec::new();
        }
        if allocator.is_none() && !is_path {
            return Vec::new();
        }
        let others = self.stages.others(&self.chain);
        if let Some(other) = others.iter().find(|stage| runs(&[**stage])) {
            let what = format!(
                "{entry} is installed in the stage {} only, which is not part of the image",
                other.name.as_deref().unwrap_or(&other.base)
            );
            return vec![self.at(asked.line, Id::PackageMissing, what)];
        }
        let lowest = self.chain.last().map_or("", |it| it.base.as_str());
        vec![if base.is_without_allocator() {
            let what = format!("no step installs {entry}, and {lowest} does not have it");
            self.at(asked.line, Id::PackageMissing, what)
        } else {
            let what =
                format!("no step installs {entry}, and it is not known whether {lowest} has it");
            self.at(asked.line, Id::BaseUnknown, what)
        }]
    }

    /// The libc of a stage or image.
    fn libc_of(&self, from: &str) -> Option<Libc> {
        match self.stages.named(from) {
            Some(chain) => Base::parse(&chain.last()?.base).libc(),
            None => Base::parse(from).libc(),
        }
    }

    fn settings(&self, allocator: Option<Allocator>) -> Vec<Finding> {
        let Some(in_charge) = allocator else {
            return Vec::new();
        };
        let set = self.chain.iter().rev().flat_map(|stage| &stage.env);
        settings::judge_declared(in_charge, set.map(|it| it.value.clone()))
            .into_iter()
            .map(|finding| finding.in_file(self.name))
            .collect()
    }
}

/// Docker's name of a platform, as our architecture.
fn platform_architecture(platform: &str) -> Option<&'static str> {
    let mut parts = platform.split('/');
    let (first, second) = (parts.next()?, parts.next());
    Some(match second.unwrap_or(first) {
        "amd64" | "x86_64" => "x86-64",
        "arm64" | "aarch64" => "arm64",
        "386" => "i386",
        "arm" => "arm",
        "riscv64" => "riscv64",
        "ppc64le" => "ppc64le",
        "s390x" => "s390x",
        "loong64" => "loongarch64",
        _ => return None,
    })
}

#[cfg(test)]
mod tests;
