//! An image under judgement, and how it asks for an allocator: by `ENV`, by the line that starts it, by a script, through
//! `ebb run`; where it only seems to; whether its program takes a library at all. Pure.

use std::path::Path;

use super::image::{Stage, Stages};
use crate::check::base::Base;
use crate::check::declared::script::Script;
use crate::check::finding::{Finding, Id};
use crate::check::start::Start;

pub(super) struct Image<'a> {
    pub(super) name: &'a str,
    pub(super) stages: &'a Stages,
    pub(super) chain: Vec<&'a Stage>,
    pub(super) start: Option<Start>,
    pub(super) context: &'a dyn Context,
}

/// The files that the builder is given.
pub trait Context {
    /// The text of one.
    fn read(&self, file: &str) -> Option<String>;

    /// Why the builder has no such file; none where it has, or where that is not known.
    fn lacks(&self, _file: &str) -> Option<String> {
        None
    }
}

impl<F: Fn(&str) -> Option<String>> Context for F {
    fn read(&self, file: &str) -> Option<String> {
        self(file)
    }
}

/// How the image asks for an allocator.
pub(super) struct Request {
    /// What `LD_PRELOAD` holds, or the name given to `ebb run`.
    pub(super) text: String,
    pub(super) line: usize,
    /// Whether a shell has replaced what it replaces.
    pub(super) by_shell: bool,
}

impl Image<'_> {
    pub(super) fn at(&self, line: usize, id: Id, what: String) -> Finding {
        Finding::new(id, what).in_file(format!("{}:{line}", self.name))
    }

    /// How the image asks for an allocator; where it does not, why not.
    pub(super) fn request(&self) -> (Option<Request>, Vec<Finding>) {
        let start = self.start.as_ref();
        let by_start = |text: &str, start: &Start| Request { text: text.to_owned(), line: start.line, by_shell: true };
        if let Some(start) = start
            && let Some(name) = start.through_ebb()
        {
            return (Some(by_start(name, start)), Vec::new());
        }
        // An empty one takes back what the base image sets.
        let set = self.variable("LD_PRELOAD").filter(|(text, _)| !text.trim().is_empty());
        if let Some((text, line)) = set {
            let dropped = start.and_then(|start| {
                let by = start.drops_environment()?;
                let what = format!("{by} starts the service without the LD_PRELOAD that ENV sets");
                Some(self.at(start.line, Id::EnvironmentDropped, what))
            });
            return (Some(Request { text, line, by_shell: false }), dropped.into_iter().collect());
        }
        if let Some(start) = start
            && let Some(text) = start.assigned("LD_PRELOAD")
        {
            return (Some(by_start(text, start)), Vec::new());
        }
        match self.script() {
            Some((request, finding)) => (request, vec![finding]),
            None => (None, vec![self.not_requested()]),
        }
    }

    /// Whether the program that is started takes a library at all.
    pub(super) fn program(&self) -> Option<Finding> {
        let start = self.start.as_ref()?;
        for stage in &self.chain {
            for run in &stage.runs {
                let gains = ["setcap ", "chmod u+s", "chmod +s", "chmod 4"];
                let gains = gains.iter().any(|it| run.value.contains(it));
                let mut words = run.value.split([' ', '\n', ';', '&', '\\']);
                if gains && words.any(|word| word.contains('/') && start.names(word)) {
                    let what = "the program gains rights when it starts (set-uid or setcap), so its loader \
                                ignores LD_PRELOAD unless the caller has them already";
                    return Some(self.at(run.line, Id::SecureMode, what.to_owned()));
                }
            }
            for copy in &stage.copies {
                let Some(from) = copy.value.from.as_deref().and_then(|it| self.stages.named(it)) else {
                    continue;
                };
                let started = |source: &String| start.names(&copy.value.target_of(source));
                if copy.value.to != "."
                    && copy.value.sources.iter().any(started)
                    && let Some((id, why)) = kind_of_build(&from)
                {
                    let what = format!("the program comes from the stage {}, {why}", from[0].base);
                    return Some(self.at(copy.line, id, what));
                }
            }
        }
        None
    }

    /// A variable as `ENV` leaves it.
    fn variable(&self, name: &str) -> Option<(String, usize)> {
        self.chain.iter().find_map(|stage| {
            let set = stage.env.iter().rev().find(|it| it.value.0 == name)?;
            Some((set.value.1.clone(), set.line))
        })
    }

    /// A script of the build context that sets the variable.
    fn script(&self) -> Option<(Option<Request>, Finding)> {
        let copies = self.chain.iter().flat_map(|stage| &stage.copies);
        let (copy, source, set) = copies.filter(|it| it.value.from.is_none()).find_map(|copy| {
            copy.value.sources.iter().find_map(|source| {
                let set = self.context.read(source).as_deref().and_then(set_by_script)?;
                Some((copy, source, set))
            })
        })?;
        let to = copy.value.target_of(source);
        let (id, what) = match &self.start {
            Some(start) if start.names(&to) && set.exported => {
                let what = format!(
                    "LD_PRELOAD is set in {to} only: docker run --entrypoint, docker exec and a pod's command start \
                     programs without it"
                );
                let finding = self.at(start.line, Id::EntrypointBypassed, what).as_note();
                let request = Request { text: set.value, line: copy.line, by_shell: true };
                return Some((Some(request), finding));
            }
            Some(start) if start.names(&to) => {
                let what = format!("{to} sets LD_PRELOAD without `export`, so no program gets it");
                (Id::EnvironmentDropped, what)
            }
            _ => {
                let what = format!("LD_PRELOAD is set in {to}, which the image does not start");
                (Id::EntrypointBypassed, what)
            }
        };
        Some((None, self.at(copy.line, id, what)))
    }

    /// Nothing names the variable where it counts; perhaps something does where it does not.
    fn not_requested(&self) -> Finding {
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
}

/// What kind of program a stage builds, as far as its commands tell.
fn kind_of_build(chain: &[&Stage]) -> Option<(Id, &'static str)> {
    let lowest = chain.last()?;
    if Base::parse(&lowest.base).is_go() {
        return Some((Id::AllocatorInside, "which builds with Go: its heap is not malloc's"));
    }
    let runs = || chain.iter().flat_map(|stage| &stage.runs);
    if runs().any(|run| run.value.contains("linux-musl") || run.value.contains("crt-static")) {
        let why = "which builds a static program: nothing can be preloaded into it";
        return Some((Id::StaticProgram, why));
    }
    None
}

/// What a script puts into `LD_PRELOAD`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SetByScript {
    /// The value, as it is written.
    pub value: String,
    /// Whether programs get it.
    pub exported: bool,
}

/// How a shell script sets `LD_PRELOAD`, the exported assignment first.
pub fn set_by_script(text: &str) -> Option<SetByScript> {
    let script = Script::parse(Path::new(""), text).ok()?;
    let sets = || script.sets_of("LD_PRELOAD");
    if let Some(set) = sets().find(|it| it.is_exported).or(sets().next()) {
        let written = || text[set.at.clone()].to_owned();
        return Some(SetByScript { value: set.value.clone().unwrap_or_else(written), exported: set.is_exported });
    }
    let (_, value) = script.given.into_iter().next()?;
    Some(SetByScript { value, exported: true })
}

/// Whether a file name is one under which images keep their entrypoint.
pub fn is_entrypoint_name(path: &Path) -> bool {
    path.file_name().and_then(|name| name.to_str()).is_some_and(|name| {
        let name = name.to_ascii_lowercase();
        name.contains("entrypoint") || matches!(name.as_str(), "start.sh" | "run.sh" | "init.sh")
    })
}
