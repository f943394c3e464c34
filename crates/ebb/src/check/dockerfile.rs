//! A Dockerfile, read without building it: is the allocator named where the service starts, does
//! something install it, will the loader take it? Pure; files of the build context are asked for.
//!
//! What a base image has inside is known only for the common ones; for others the result says so.

use std::path::Path;

use crate::allocators;
use crate::proc::elf::Libc;
use crate::proc::environ::Variables;

use super::library::{is_pattern, path_architecture};
use super::settings;
use super::{Finding, Id};

mod base;
mod image;
mod start;
mod variables;

pub use image::{Malformed, Stages};

use base::Base;
use image::{Stage, file_name};
use start::Start;

/// What was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Judged {
    /// The allocator that the image asks for.
    pub allocator: Option<String>,
    /// What is wrong.
    pub findings: Vec<Finding>,
}

/// How the image asks for an allocator.
struct Asked {
    /// What `LD_PRELOAD` holds, or the name given to `ebb run`.
    text: String,
    line: usize,
    /// Whether a shell has replaced what it replaces.
    by_shell: bool,
}

/// An image under judgement.
struct Image<'a> {
    name: &'a str,
    stages: &'a Stages,
    chain: Vec<&'a Stage>,
    start: Option<Start>,
    context: &'a dyn Fn(&str) -> Option<String>,
}

/// Judges the image that the Dockerfile called `name` makes. `context` reads a file of the build context;
/// `target` names the stage to build, the last one by default. None where there is no such stage.
pub fn judge(
    name: &str,
    stages: &Stages,
    target: Option<&str>,
    context: &dyn Fn(&str) -> Option<String>,
) -> Option<Judged> {
    let chain = stages.chain(target)?;
    let start = start::start(&chain);
    let image = Image {
        name,
        stages,
        chain,
        start,
        context,
    };
    Some(image.judge())
}

impl Image<'_> {
    fn judge(&self) -> Judged {
        let (asked, mut findings) = self.asked();
        let Some(asked) = asked else {
            return Judged {
                allocator: None,
                findings,
            };
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
        Judged {
            allocator: Some(allocator.unwrap_or(entry).to_owned()),
            findings,
        }
    }

    fn at(&self, line: usize, id: Id, what: String) -> Finding {
        Finding::new(id, what).in_file(format!("{}:{line}", self.name))
    }

    /// How the image asks for an allocator; where it does not, why not.
    fn asked(&self) -> (Option<Asked>, Vec<Finding>) {
        let mut findings = Vec::new();
        let start = self.start.as_ref();
        if let Some(start) = start
            && let Some(name) = start.through_ebb()
        {
            let asked = Asked {
                text: name.to_owned(),
                line: start.line,
                by_shell: true,
            };
            return (Some(asked), findings);
        }
        if let Some((text, line)) = self.variable("LD_PRELOAD") {
            if let Some(start) = start
                && let Some(by) = start.drops_environment()
            {
                let what = format!("{by} starts the service without the LD_PRELOAD that ENV sets");
                findings.push(self.at(start.line, Id::EnvironmentDropped, what));
            }
            let asked = Asked {
                text,
                line,
                by_shell: false,
            };
            return (Some(asked), findings);
        }
        if let Some(start) = start
            && let Some(text) = start.assigned("LD_PRELOAD")
        {
            let asked = Asked {
                text: text.to_owned(),
                line: start.line,
                by_shell: true,
            };
            return (Some(asked), findings);
        }
        if let Some((asked, finding)) = self.script() {
            findings.extend(finding);
            return (asked, findings);
        }
        findings.push(self.nobody_asks());
        (None, findings)
    }

    /// A variable as `ENV` leaves it.
    fn variable(&self, name: &str) -> Option<(String, usize)> {
        self.chain.iter().find_map(|stage| {
            let set = stage.env.iter().rev().find(|it| it.value.0 == name)?;
            Some((set.value.1.clone(), set.line))
        })
    }

    /// A script of the build context that sets the variable.
    fn script(&self) -> Option<(Option<Asked>, Option<Finding>)> {
        let copies = self.chain.iter().flat_map(|stage| &stage.copies);
        for copy in copies.filter(|copy| copy.value.from.is_none()) {
            for source in &copy.value.sources {
                let Some(set) = (self.context)(source).as_deref().and_then(set_by_script) else {
                    continue;
                };
                let to = if copy.value.to.ends_with('/') {
                    format!("{}{}", copy.value.to, file_name(source))
                } else {
                    copy.value.to.clone()
                };
                let start = self.start.as_ref();
                let (id, what) = match start {
                    Some(start) if start.names(&to) && set.exported => {
                        let finding = self
                            .at(
                                start.line,
                                Id::EntrypointBypassed,
                                format!(
                                    "LD_PRELOAD is set in {to} only: docker run --entrypoint, docker exec and \
                                     a pod's command start programs without it"
                                ),
                            )
                            .as_note();
                        let asked = Asked {
                            text: set.value,
                            line: copy.line,
                            by_shell: true,
                        };
                        return Some((Some(asked), Some(finding)));
                    }
                    Some(start) if start.names(&to) => (
                        Id::EnvironmentDropped,
                        format!("{to} sets LD_PRELOAD without `export`, so no program gets it"),
                    ),
                    _ => (
                        Id::EntrypointBypassed,
                        format!("LD_PRELOAD is set in {to}, which the image does not start"),
                    ),
                };
                return Some((None, Some(self.at(copy.line, id, what))));
            }
        }
        None
    }

    /// Nothing names the variable where it counts; perhaps something does where it does not.
    fn nobody_asks(&self) -> Finding {
        let in_build = |what: &str, line| {
            let what = format!("LD_PRELOAD is set by {what}, which ends with the build");
            self.at(line, Id::BuildTimeOnly, what)
        };
        for stage in &self.chain {
            if let Some(arg) = stage.args.iter().find(|it| it.value.0 == "LD_PRELOAD") {
                return in_build("ARG", arg.line);
            }
            let sets = |text: &str| text.contains("LD_PRELOAD=");
            if let Some(run) = stage.runs.iter().find(|it| sets(&it.value)) {
                return in_build("RUN", run.line);
            }
        }
        for stage in self.stages.others(&self.chain) {
            if let Some(env) = stage.env.iter().find(|it| it.value.0 == "LD_PRELOAD") {
                return in_build("ENV in another stage", env.line);
            }
        }
        Finding::new(Id::NotAsked, "nothing in the image sets LD_PRELOAD").in_file(self.name)
    }

    /// What the path itself says.
    fn path(&self, entry: &str, asked: &Asked) -> Vec<Finding> {
        let text = &asked.text;
        if !asked.by_shell && (is_pattern(text) || text.contains("${LIB}")) {
            let what = if text.contains("${LIB}") {
                "the builder replaces $LIB by nothing before the loader sees it: write \\$LIB"
                    .to_owned()
            } else {
                format!("the loader gets \"{text}\", which it takes literally")
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
                format!("{entry} is the path of {architecture}, the image is for {other}"),
            )],
            Some(_) => Vec::new(),
            None => vec![self.at(
                asked.line,
                Id::ArchitectureBound,
                format!("{entry} exists on {architecture} only"),
            )],
        }
    }

    /// The image that all stages of the chain are built on, and the platform asked for.
    fn base(&self) -> (Base<'_>, Option<&str>) {
        let platform = self.chain.iter().find_map(|it| it.platform.as_deref());
        let lowest = self.chain.last().map_or("scratch", |it| it.base.as_str());
        (Base::parse(lowest), platform)
    }

    /// Whether the library will be there, for this libc.
    fn library(&self, entry: &str, allocator: Option<&str>, asked: &Asked) -> Vec<Finding> {
        let (base, _) = self.base();
        if base.has_no_loader() {
            let what = "the base image has no loader: only static programs run in it, and nothing can be \
                        preloaded into them";
            return vec![self.at(asked.line, Id::StaticProgram, what.to_owned())];
        }
        let libc = base.libc();
        if libc == Some(Libc::Musl) && entry.contains("-linux-gnu") {
            let what = format!("{entry} is a path of glibc, the image has musl");
            return vec![self.at(asked.line, Id::WrongLibc, what)];
        }
        let is_path = entry.contains('/');
        for copy in self.chain.iter().flat_map(|stage| &stage.copies) {
            if !copy.value.brings(entry) {
                continue;
            }
            let from = copy.value.from.as_deref();
            // libebbmalloc.so needs no libc.
            let theirs = from.filter(|_| allocator != Some("ebbmalloc"));
            let theirs = theirs.and_then(|from| self.libc_of(from));
            return match (&libc, theirs) {
                (Some(ours), Some(theirs)) if *ours != theirs => vec![self.at(
                    copy.line,
                    Id::WrongLibc,
                    format!("{entry} comes from an image with {theirs}, this one has {ours}"),
                )],
                _ => Vec::new(),
            };
        }
        let runs = |chain: &[&Stage]| {
            let texts = chain.iter().flat_map(|stage| &stage.runs);
            let packages = packages_of(allocator);
            texts.clone().any(|run| {
                let words = || {
                    run.value
                        .split([' ', '\t', '\n', '\\', '=', ';', '"', '\''])
                };
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
            let what = format!("nothing installs {entry}, and {lowest} does not have it");
            self.at(asked.line, Id::PackageMissing, what)
        } else {
            let what =
                format!("nothing here installs {entry}: whether {lowest} has it is not known");
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

    /// Whether the program that is started takes a library at all.
    fn program(&self) -> Vec<Finding> {
        let Some(start) = &self.start else {
            return Vec::new();
        };
        for stage in &self.chain {
            for run in &stage.runs {
                let gains = run.value.contains("setcap ")
                    || run.value.contains("chmod u+s")
                    || run.value.contains("chmod +s")
                    || run.value.contains("chmod 4");
                let mut words = run.value.split([' ', '\n', ';', '&', '\\']);
                if gains && words.any(|word| word.contains('/') && start.names(word)) {
                    let what = "the program gains rights when it starts (set-uid or setcap), so its loader \
                                ignores LD_PRELOAD unless the caller has them already";
                    return vec![self.at(run.line, Id::SecureMode, what.to_owned())];
                }
            }
            for copy in &stage.copies {
                let Some(from) = copy
                    .value
                    .from
                    .as_deref()
                    .and_then(|it| self.stages.named(it))
                else {
                    continue;
                };
                let started = |name: &str| start.names(&target_of(&copy.value.to, name));
                if copy.value.sources.iter().any(|source| started(source))
                    && let Some((id, why)) = kind_of_build(&from)
                {
                    let what = format!("the program comes from the stage {}, {why}", from[0].base);
                    return vec![self.at(copy.line, id, what)];
                }
            }
        }
        Vec::new()
    }

    fn settings(&self, allocator: Option<&'static str>) -> Vec<Finding> {
        let Some(in_charge) = allocator else {
            return Vec::new();
        };
        let set = self.chain.iter().rev().flat_map(|stage| &stage.env);
        let at_start: Variables = set
            .map(|it| (it.value.0.clone().into(), it.value.1.clone().into()))
            .collect();
        let given = settings::Given {
            in_charge,
            inside: None,
            secure: false,
            at_start: &at_start,
            now: None,
        };
        settings::judge(&given)
            .into_iter()
            .map(|finding| finding.in_file(self.name))
            .collect()
    }
}

/// The known allocator that an entry names.
fn allocator_of(entry: &str) -> Option<&'static str> {
    let name = file_name(entry);
    allocators::by_file_name(name)
        .or_else(|| allocators::by_name(name))
        .map(|it| it.name)
}

/// All names of the allocator's package; its development package brings it along.
fn packages_of(allocator: Option<&str>) -> Vec<&'static str> {
    let Some(known) = allocator.and_then(allocators::by_name) else {
        return Vec::new();
    };
    let mut names = known.packages.all();
    names.extend(match known.name {
        "jemalloc" => &[
            "libjemalloc-dev",
            "libjemalloc1",
            "jemalloc-dev",
            "jemalloc-devel",
        ][..],
        "mimalloc" => &["libmimalloc-dev", "mimalloc", "mimalloc-dev"],
        "tcmalloc" => &[
            "libgoogle-perftools-dev",
            "google-perftools",
            "gperftools",
            "libgoogle-perftools4",
        ],
        _ => &[],
    });
    names
}

fn target_of(to: &str, source: &str) -> String {
    if to.ends_with('/') || to == "." {
        format!("{to}{}", file_name(source))
    } else {
        to.to_owned()
    }
}

/// What kind of program a stage builds, as far as its commands tell.
fn kind_of_build(chain: &[&Stage]) -> Option<(Id, &'static str)> {
    let lowest = chain.last()?;
    if Base::parse(&lowest.base).is_go() {
        return Some((
            Id::AllocatorInside,
            "which builds with Go: its heap is not malloc's",
        ));
    }
    let runs = || chain.iter().flat_map(|stage| &stage.runs);
    if runs().any(|run| run.value.contains("linux-musl") || run.value.contains("crt-static")) {
        return Some((
            Id::StaticProgram,
            "which builds a static program: nothing can be preloaded into it",
        ));
    }
    None
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

/// What a script puts into `LD_PRELOAD`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SetByScript {
    /// The value, as it is written.
    pub value: String,
    /// Whether programs get it.
    pub exported: bool,
}

/// The first assignment of `LD_PRELOAD` in a shell script.
pub fn set_by_script(text: &str) -> Option<SetByScript> {
    const ASSIGNMENT: &str = "LD_PRELOAD=";
    let code = |line: &&str| !line.trim_start().starts_with('#');
    let line = text
        .lines()
        .filter(code)
        .find(|it| it.contains(ASSIGNMENT))?;
    let (before, after) = line.split_once(ASSIGNMENT)?;
    let words = shlex::split(after).unwrap_or_else(|| vec![after.trim().to_owned()]);
    let value = words.first().cloned().unwrap_or_default();
    let exports_later = text
        .lines()
        .filter(code)
        .any(|it| it.trim_start().starts_with("export LD_PRELOAD"));
    // `LD_PRELOAD=x exec program` gives it to that program.
    let before_a_command = words.len() > 1 && !words[1].starts_with(['#', ';']);
    let exported = before.trim_end().ends_with("export")
        || before.trim_end().ends_with("env")
        || before.contains("declare -x")
        || exports_later
        || before_a_command
        || text.lines().any(|it| it.trim() == "set -a");
    Some(SetByScript { value, exported })
}

/// Whether a file name is one under which images keep their entrypoint.
pub fn is_entrypoint_name(path: &Path) -> bool {
    path.file_name()
        .and_then(|name| name.to_str())
        .is_some_and(|name| {
            let name = name.to_ascii_lowercase();
            name.contains("entrypoint")
                || matches!(name.as_str(), "start.sh" | "run.sh" | "init.sh")
        })
}

#[cfg(test)]
mod tests;
