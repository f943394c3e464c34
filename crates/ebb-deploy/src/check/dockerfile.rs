//! A Dockerfile, read without building it: is the allocator named where the service starts, does
//! something install it, will the loader take it? Pure; files of the build context are asked for.
//!
//! What a base image has inside is known only for the common ones; for others the result says so.

use ebb_allocators::Allocator;
use ebb_process::elf::Libc;

use super::base::Base;
use super::finding::{Finding, Id, Judged};
use super::library::{allocator_of, file_name, is_pattern, path_architecture};
use super::settings;

mod copied;
mod image;
mod request;
mod start;
mod variables;

pub use image::Stages;
pub(crate) use image::{Piece, Stage};
pub use request::{Context, is_entrypoint_name, set_by_script};
pub(crate) use start::start;

use request::{Image, Request};

/// Judges the image that the Dockerfile called `name` makes. `context` is what the builder is given;
/// `target` names the stage to build, the last one by default. None where there is no such stage.
pub fn judge(name: &str, stages: &Stages, target: Option<&str>, context: &dyn Context) -> Option<Judged> {
    let chain = stages.chain(target)?;
    let start = start(&chain);
    let image = Image { name, stages, chain, start, context };
    Some(image.judge())
}

impl Image<'_> {
    fn judge(&self) -> Judged {
        let (request, mut findings) = self.request();
        let Some(request) = request else {
            return Judged { allocator: None, findings };
        };
        let entries = || request.text.split([' ', ':']).filter(|entry| !entry.is_empty());
        let known = entries().find(|entry| allocator_of(entry).is_some());
        let entry = known.or_else(|| entries().next()).unwrap_or(&request.text);
        let allocator = allocator_of(entry);
        findings.extend(self.path(entry, &request));
        if !findings.iter().any(|it| it.id == Id::NotExpanded) {
            findings.extend(self.library(entry, allocator, &request));
        }
        findings.extend(self.program());
        if let Some(in_charge) = allocator {
            let set = self.chain.iter().rev().flat_map(|stage| &stage.env);
            let wrong = settings::judge_declared(in_charge, set.map(|it| it.value.clone()));
            findings.extend(wrong.into_iter().map(|finding| finding.in_file(self.name)));
        }
        Judged { allocator: Some(allocator.map_or(entry, |it| it.name()).to_owned()), findings }
    }

    /// What the path itself says.
    fn path(&self, entry: &str, request: &Request) -> Option<Finding> {
        let text = &request.text;
        if !request.by_shell && text.contains("${LIB}") {
            let what = "the builder replaces $LIB by an empty text before the loader sees it: write \\$LIB";
            return Some(self.at(request.line, Id::NotExpanded, what.to_owned()));
        }
        if !request.by_shell && is_pattern(text) {
            let what = format!("LD_PRELOAD is \"{text}\", which the loader takes literally");
            return Some(self.at(request.line, Id::NotExpanded, what));
        }
        let architecture = path_architecture(entry)?;
        match self.base().1.and_then(platform_architecture) {
            Some(same) if same == architecture => None,
            Some(other) => {
                let what = format!("{entry} is a path for {architecture}, but the image is for {other}");
                Some(self.at(request.line, Id::ArchitecturePath, what))
            }
            None => {
                let what = format!("{entry} exists on {architecture} only");
                Some(self.at(request.line, Id::ArchitectureBound, what))
            }
        }
    }

    /// The image that all stages of the chain are built on, and the requested platform.
    fn base(&self) -> (Base<'_>, Option<&str>) {
        let platform = self.chain.iter().find_map(|it| it.platform.as_deref());
        let lowest = self.chain.last().map_or("scratch", |it| it.base.as_str());
        (Base::parse(lowest), platform)
    }

    /// Whether the library will be there, for this libc.
    fn library(&self, entry: &str, allocator: Option<Allocator>, request: &Request) -> Option<Finding> {
        let (base, _) = self.base();
        let found = |id, what: String| Some(self.at(request.line, id, what));
        if base.has_no_loader() {
            let what = "the base image has no loader: only static programs run in it, and nothing can be \
                        preloaded into them";
            return found(Id::StaticProgram, what.to_owned());
        }
        let libc = base.libc();
        if libc == Some(Libc::Musl) && entry.contains("-linux-gnu") {
            let what = format!("{entry} is a path for glibc, but the image has musl");
            return found(Id::WrongLibc, what);
        }
        let mut copies = self.chain.iter().flat_map(|stage| &stage.copies);
        if let Some(copy) = copies.find(|it| it.value.brings(entry)) {
            let from = copy.value.from.as_deref();
            if from.is_none()
                && let Some(source) = copy.value.source_of(entry)
                && let Some(why) = self.context.lacks(source)
            {
                let what = format!("the build fails at the copy of {source}: {why}");
                return Some(self.at(copy.line, Id::CopyMissing, what));
            }
            // libebbmalloc.so needs no libc.
            let theirs = from.filter(|_| allocator != Some(Allocator::Ebbmalloc));
            let theirs = theirs.and_then(|from| self.libc_of(from))?;
            let ours = libc.filter(|ours| *ours != theirs)?;
            let what = format!("{entry} comes from an image with {theirs}, but this one has {ours}");
            return Some(self.at(copy.line, Id::WrongLibc, what));
        }
        let packages = allocator.map(|it| it.packages().all_that_bring_it()).unwrap_or_default();
        let folder = entry.rsplit_once('/').map_or("", |it| it.0);
        let is_written = |run: &str| {
            let words: Vec<&str> = run.split_whitespace().collect();
            words.windows(4).any(|it| it == ["ebb", "library", "--out", folder])
        };
        let installs = |chain: &[&Stage]| {
            let mut texts = chain.iter().flat_map(|stage| &stage.runs).map(|run| &run.value);
            texts.any(|run| {
                let mut words = run.split([' ', '\t', '\n', '\\', '=', ';', '"', '\'']);
                words.any(|word| packages.contains(&word))
                    || run.contains(file_name(entry))
                    || allocator == Some(Allocator::Ebbmalloc) && is_written(run)
            })
        };
        if installs(&self.chain) || allocator.is_none() && !entry.contains('/') {
            return None;
        }
        let others = self.stages.others(&self.chain);
        if let Some(other) = others.iter().find(|stage| installs(&[**stage])) {
            let stage = other.name.as_deref().unwrap_or(&other.base);
            let what = format!("{entry} is installed in the stage {stage} only, which is not part of the image");
            return found(Id::PackageMissing, what);
        }
        let lowest = self.chain.last().map_or("", |it| it.base.as_str());
        if base.is_without_allocator() {
            let what = format!("no step installs {entry}, and {lowest} does not have it");
            return found(Id::PackageMissing, what);
        }
        let what = format!("no step installs {entry}, and it is not known whether {lowest} has it");
        found(Id::BaseUnknown, what)
    }

    /// The libc of a stage or image.
    fn libc_of(&self, from: &str) -> Option<Libc> {
        match self.stages.named(from) {
            Some(chain) => Base::parse(&chain.last()?.base).libc(),
            None => Base::parse(from).libc(),
        }
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
mod tests {
    use super::request::SetByScript;
    use super::*;

    fn judged_with(text: &str, context: &dyn Fn(&str) -> Option<String>) -> Judged {
        let stages = Stages::parse(text).unwrap();
        judge("Dockerfile", &stages, None, &context).unwrap()
    }

    /// Each case of `tests.cases`: `== NAME: FINDINGS ==`, then a Dockerfile with nothing in its context.
    #[test]
    fn each_dockerfile_has_the_findings_in_its_heading() {
        for case in include_str!("dockerfile/tests.cases").split("== ").skip(1) {
            let (heading, text) = case.split_once("==\n").unwrap();
            let (name, ids) = heading.split_once(':').unwrap();
            let judged = judged_with(text, &|_| None);
            let found: Vec<&str> = judged.findings.iter().map(|it| it.id.name()).collect();
            assert_eq!(found.join(" "), ids.trim(), "{name}: {:#?}", judged.findings);
        }
    }

    #[test]
    fn what_is_asked_for_and_where_is_said() {
        let text = "FROM debian:12\nENTRYPOINT [\"ebb\", \"run\", \"--\", \"p\"]\n";
        assert_eq!(judged_with(text, &|_| None).allocator.as_deref(), Some("ebbmalloc"));
        let text = "FROM debian:12 AS build\nENV LD_PRELOAD=a.so\nFROM debian:12\nCMD p\n";
        let judged = judged_with(text, &|_| None);
        assert_eq!(judged.findings[0].file.as_deref(), Some("Dockerfile:2"));
    }

    #[test]
    fn a_script_that_sets_it() {
        use super::super::Severity::{Error, Note};
        for (start, export, id, severity) in [
            ("ENTRYPOINT [\"/usr/local/bin/entry.sh\"]\nCMD [\"p\"]", "export ", Id::EntrypointBypassed, Note),
            ("CMD [\"p\"]", "export ", Id::EntrypointBypassed, Error),
            ("ENTRYPOINT [\"entry.sh\"]", "", Id::EnvironmentDropped, Error),
        ] {
            let script = format!("#!/bin/sh\n{export}LD_PRELOAD=libjemalloc.so.2\nexec \"$@\"\n");
            let context = |name: &str| (name == "entry.sh").then(|| script.clone());
            let text =
                format!("FROM debian:12\nRUN apt-get install libjemalloc2\nCOPY entry.sh /usr/local/bin/\n{start}\n");
            let findings = judged_with(&text, &context).findings;
            let found: Vec<_> = findings.into_iter().map(|it| (it.id, it.severity)).collect();
            assert_eq!(found, [(id, severity)], "{start}");
        }
    }

    #[test]
    fn the_stage_that_is_asked_for_counts() {
        let text = "FROM debian:12 AS one\nENV LD_PRELOAD=libjemalloc.so.2\nFROM debian:12 AS two\nCMD p\n";
        let stages = Stages::parse(text).unwrap();
        let id = |stage| {
            let judged = judge("f", &stages, Some(stage), &|_: &str| None)?;
            Some(judged.findings[0].id)
        };
        assert_eq!(id("one"), Some(Id::PackageMissing));
        assert_eq!(id("two"), Some(Id::BuildTimeOnly));
        assert_eq!(id("three"), None);
    }

    #[test]
    fn an_assignment_in_a_script_counts_where_it_is_exported() {
        for (text, exported) in [
            ("export LD_PRELOAD=a.so\n", Some(true)),
            ("LD_PRELOAD=\"a.so\"\nexport LD_PRELOAD\n", Some(true)),
            ("LD_PRELOAD=a.so exec p\n", Some(true)),
            ("LD_PRELOAD=a.so\nexec p\n", Some(false)),
            ("# export LD_PRELOAD=a.so\n", None),
        ] {
            let expected = exported.map(|exported| SetByScript { value: "a.so".to_owned(), exported });
            assert_eq!(set_by_script(text), expected, "{text}");
        }
    }

    /// A build context without a library.
    struct Without;

    impl Context for Without {
        fn read(&self, _: &str) -> Option<String> {
            None
        }

        fn lacks(&self, file: &str) -> Option<String> {
            Some(format!("{file} is not there"))
        }
    }

    #[test]
    fn a_copy_of_a_file_that_the_builder_does_not_have_is_an_error() {
        let judged = |copy: &str| {
            let text = format!("FROM debian:12\n{copy}\nENV LD_PRELOAD=/usr/local/lib/libebbmalloc.so\nCMD [\"p\"]\n");
            let judged = judge("Dockerfile", &Stages::parse(&text).unwrap(), None, &Without).unwrap();
            judged.findings.iter().map(|it| it.id).collect::<Vec<_>>()
        };
        for copy in ["COPY libebbmalloc.so /usr/local/lib/", "COPY a.so /usr/local/lib/libebbmalloc.so"] {
            assert_eq!(judged(copy), [Id::CopyMissing], "{copy}");
        }
        // Another stage, an address, a pattern and a folder name no file of the context.
        for copy in [
            "COPY --from=x libebbmalloc.so /usr/local/lib/",
            "ADD https://host/libebbmalloc.so /usr/local/lib/",
            "COPY *.so /usr/local/lib/",
            "COPY lib/ /usr/local/lib/",
        ] {
            assert!(!judged(copy).contains(&Id::CopyMissing), "{copy}");
        }
    }
}
