//! A Dockerfile as the image that it makes: the chain of stages down to the base, and what they set,
//! run, copy and start. Pure.
//!
//! The syntax is parse-dockerfile's, with the places of instructions. dockerfile-parser 0.9 has those of the variables of
//! `ENV`, too, but knows no here-documents.

use std::ops::Range;

use parse_dockerfile::{Command, Flag, Instruction, Source};

use super::copied::Copied;
use super::variables::{Known, assignments, expand, expand_words};

/// A value, and the line that gave it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Placed<T> {
    pub value: T,
    /// Counted from one.
    pub line: usize,
}

/// What `CMD` or `ENTRYPOINT` says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Words {
    Exec(Vec<String>),
    Shell(String),
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Stage {
    /// What it is built on: another stage, or an image.
    pub base: String,
    pub name: Option<String>,
    pub platform: Option<String>,
    pub env: Vec<Placed<(String, String)>>,
    /// `ARG` with a value.
    pub args: Vec<Placed<(String, String)>>,
    pub runs: Vec<Placed<String>>,
    pub copies: Vec<Placed<Copied>>,
    pub entrypoint: Option<Placed<Words>>,
    pub cmd: Option<Placed<Words>>,
    /// The last `USER`.
    pub user: Option<String>,
    /// Its instructions as written in the text, `FROM` first.
    pub pieces: Vec<Piece>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Piece {
    pub keyword: String,
    /// From the keyword to the end of its last line, that line's end not included.
    pub at: Range<usize>,
    pub user: Option<String>,
}

/// All stages, in order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stages(Vec<Stage>);

impl Stages {
    /// Reads the text; the error says why it is no Dockerfile.
    pub fn parse(text: &str) -> Result<Self, String> {
        let file = parse_dockerfile::parse(text).map_err(|error| error.to_string())?;
        let line = |at: usize| text[..at].matches('\n').count() + 1;
        let starts: Vec<usize> = file.instructions.iter().map(start_of).collect();
        let mut known = Known::new();
        for arg in file.global_args() {
            known.extend(assignments(&expand(&arg.arguments.value, &known)));
        }
        let mut stages: Vec<Stage> = Vec::new();
        for stage in file.stages() {
            let mut own = Stage {
                base: expand(&stage.from.image.value, &known),
                name: stage.from.as_.as_ref().map(|(_, name)| name.value.to_string()),
                platform: option(&stage.from.options, "platform").map(|it| expand(it, &known)),
                ..Stage::default()
            };
            // Variables of the stage: those of the stage it is built on are in force, too.
            let mut variables = Known::new();
            if let Some(base) = find(&stages, &own.base) {
                let env = chain(&stages, base).into_iter().rev().flat_map(|it| &it.env);
                variables.extend(env.map(|it| it.value.clone()));
            }
            own.pieces.push(piece(text, &starts, stage.from.from.span.start, None));
            for instruction in stage.instructions {
                read(instruction, &mut own, &mut variables, &known, &line);
                let user = match instruction {
                    Instruction::User(user) => Some(user.arguments.value.to_string()),
                    _ => None,
                };
                own.pieces.push(piece(text, &starts, start_of(instruction), user));
            }
            stages.push(own);
        }
        if stages.is_empty() {
            return Err("it has no FROM".to_owned());
        }
        Ok(Self(stages))
    }

    /// The stage that makes the image, and those below it, the nearest first. `target` is the name of
    /// another stage to build.
    pub(crate) fn chain(&self, target: Option<&str>) -> Option<Vec<&Stage>> {
        let last = match target {
            Some(name) => find(&self.0, name)?,
            None => self.0.len().checked_sub(1)?,
        };
        Some(chain(&self.0, last))
    }

    pub(crate) fn all(&self) -> &[Stage] {
        &self.0
    }

    /// What the stages are called, for a message.
    pub fn names(&self) -> String {
        let names: Vec<&str> = self.0.iter().filter_map(|it| it.name.as_deref()).collect();
        match names.as_slice() {
            [] => "none of its stages has a name".to_owned(),
            names => format!("it has {}", names.join(", ")),
        }
    }

    /// The stages that are not in `chain`: what they set ends with the build.
    pub(crate) fn others(&self, chain: &[&Stage]) -> Vec<&Stage> {
        let is_in = |stage: &Stage| chain.iter().any(|it| std::ptr::eq(*it, stage));
        self.0.iter().filter(|stage| !is_in(stage)).collect()
    }

    /// The stage of that name or number, and those below it; none for an image from elsewhere.
    pub(crate) fn named(&self, name: &str) -> Option<Vec<&Stage>> {
        let place = find(&self.0, name).or_else(|| name.parse().ok())?;
        (place < self.0.len()).then(|| chain(&self.0, place))
    }
}

fn start_of(instruction: &Instruction<'_>) -> usize {
    let keyword = match instruction {
        Instruction::Add(it) => &it.add,
        Instruction::Arg(it) => &it.arg,
        Instruction::Cmd(it) => &it.cmd,
        Instruction::Copy(it) => &it.copy,
        Instruction::Entrypoint(it) => &it.entrypoint,
        Instruction::Env(it) => &it.env,
        Instruction::Expose(it) => &it.expose,
        Instruction::From(it) => &it.from,
        Instruction::Healthcheck(it) => &it.healthcheck,
        Instruction::Label(it) => &it.label,
        Instruction::Maintainer(it) => &it.maintainer,
        Instruction::Onbuild(it) => &it.onbuild,
        Instruction::Run(it) => &it.run,
        Instruction::Shell(it) => &it.shell,
        Instruction::Stopsignal(it) => &it.stopsignal,
        Instruction::User(it) => &it.user,
        Instruction::Volume(it) => &it.volume,
        Instruction::Workdir(it) => &it.workdir,
        // The parser's list may grow; what is not known has no place.
        _ => return usize::MAX,
    };
    keyword.span.start
}

/// An instruction reaches to the next one, without the comments and empty lines in front of that.
fn piece(text: &str, starts: &[usize], start: usize, user: Option<String>) -> Piece {
    let start = start.min(text.len());
    let next = starts.iter().copied().filter(|it| *it > start && *it <= text.len()).min();
    let whole = &text[start..next.unwrap_or(text.len())];
    let mut length = 0;
    let mut at = 0;
    for line in whole.split_inclusive('\n') {
        let word = line.trim_start();
        if at == 0 || !(word.is_empty() || word.starts_with('#')) {
            length = at + line.trim_end_matches(['\r', '\n']).len();
        }
        at += line.len();
    }
    let keyword = whole.split(char::is_whitespace).next().unwrap_or_default();
    Piece { keyword: keyword.to_ascii_uppercase(), at: start..start + length, user }
}

fn find(stages: &[Stage], name: &str) -> Option<usize> {
    let is_called = |stage: &Stage| stage.name.as_deref().is_some_and(|own| own.eq_ignore_ascii_case(name));
    stages.iter().rposition(is_called)
}

fn chain(stages: &[Stage], last: usize) -> Vec<&Stage> {
    let mut chain = Vec::new();
    let mut place = Some(last);
    while let Some(at) = place {
        let stage = &stages[at];
        chain.push(stage);
        // Only stages above it can be meant.
        place = find(&stages[..at], &stage.base);
    }
    chain
}

fn read(
    instruction: &Instruction<'_>,
    own: &mut Stage,
    variables: &mut Known,
    global: &Known,
    line: &impl Fn(usize) -> usize,
) {
    match instruction {
        Instruction::Env(env) => {
            let line = line(env.env.span.start);
            for pair in assignments(&expand_words(&env.arguments.value, variables)) {
                variables.insert(pair.0.clone(), pair.1.clone());
                own.env.push(Placed { value: pair, line });
            }
        }
        Instruction::Arg(arg) => {
            let line = line(arg.arg.span.start);
            let text = expand(&arg.arguments.value, variables);
            if let Some(value) = global.get(text.trim()) {
                variables.insert(text.trim().to_owned(), value.clone());
            }
            for pair in assignments(&text).into_iter().filter(|_| text.contains('=')) {
                variables.insert(pair.0.clone(), pair.1.clone());
                own.args.push(Placed { value: pair, line });
            }
        }
        Instruction::Run(run) => {
            let mut text = match words(&run.arguments) {
                Words::Exec(words) => words.join(" "),
                Words::Shell(text) => text,
            };
            text.extend(run.here_docs.iter().map(|it| format!("\n{}", it.value)));
            own.runs.push(Placed { value: text, line: line(run.run.span.start) });
        }
        Instruction::Copy(copy) => {
            let from = option(&copy.options, "from");
            let value = copied(from, &copy.src, &copy.dest.value, variables);
            own.copies.push(Placed { value, line: line(copy.copy.span.start) });
        }
        Instruction::Add(add) => {
            let value = copied(None, &add.src, &add.dest.value, variables);
            own.copies.push(Placed { value, line: line(add.add.span.start) });
        }
        Instruction::Entrypoint(entrypoint) => {
            let line = line(entrypoint.entrypoint.span.start);
            own.entrypoint = Some(Placed { value: words(&entrypoint.arguments), line });
        }
        Instruction::Cmd(cmd) => {
            own.cmd = Some(Placed { value: words(&cmd.arguments), line: line(cmd.cmd.span.start) });
        }
        Instruction::User(user) => own.user = Some(user.arguments.value.to_string()),
        _ => {}
    }
}

/// The value of `--NAME=VALUE`.
fn option<'a>(options: &'a [Flag<'_>], name: &str) -> Option<&'a str> {
    let flag = options.iter().find(|flag| flag.name.value == name)?;
    Some(&flag.value.as_ref()?.value)
}

fn copied(from: Option<&str>, sources: &[Source<'_>], to: &str, known: &Known) -> Copied {
    let path = |source: &Source<'_>| match source {
        Source::Path(path) => Some(expand(&path.value, known)),
        _ => None,
    };
    Copied { from: from.map(str::to_owned), sources: sources.iter().filter_map(path).collect(), to: expand(to, known) }
}

fn words(command: &Command<'_>) -> Words {
    match command {
        Command::Exec(words) => Words::Exec(words.value.iter().map(|it| it.value.to_string()).collect()),
        Command::Shell(text) => Words::Shell(text.value.replace("\\\n", " ")),
        _ => Words::Shell(String::new()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "ARG VERSION=3.12\nFROM debian:12 AS build\nENV A=1\nRUN make\n\
        FROM python:${VERSION}-slim AS base\nENV B=2 \\\n  C=\"x y\"\nCMD [\"python\"]\n\
        FROM base\nENV D=$B$C\nCOPY --from=build /lib/*.so.2 /usr/local/lib/\n";

    #[test]
    fn the_image_is_the_last_stage_and_those_below_it() {
        let stages = Stages::parse(TEXT).unwrap();
        let chain = stages.chain(None).unwrap();
        let bases: Vec<&str> = chain.iter().map(|it| it.base.as_str()).collect();
        assert_eq!(bases, ["base", "python:3.12-slim"]);
        assert_eq!(chain[0].env[0].value, ("D".to_owned(), "2x y".to_owned()));
        assert_eq!(chain[0].env[0].line, 10);
        assert_eq!(stages.others(&chain)[0].name.as_deref(), Some("build"));
        assert_eq!(stages.chain(Some("build")).unwrap().len(), 1);
        assert!(stages.chain(Some("nobody")).is_none());
    }

    #[test]
    fn an_instruction_ends_before_the_comment_of_the_next() {
        let text = "FROM a\nRUN x \\\n  # inside\n  && y\n\n# of the next\n  USER app # z\nRUN <<E\n# in it\nE\n";
        let stages = Stages::parse(text).unwrap();
        let pieces = &stages.chain(None).unwrap()[0].pieces;
        let texts: Vec<&str> = pieces.iter().map(|it| &text[it.at.clone()]).collect();
        assert_eq!(texts, ["FROM a", "RUN x \\\n  # inside\n  && y", "USER app # z", "RUN <<E\n# in it\nE"]);
        assert_eq!(pieces[3].keyword, "RUN");
    }

    #[test]
    fn a_copy_brings_the_files_that_it_names() {
        let stages = Stages::parse(TEXT).unwrap();
        let copy = &stages.chain(None).unwrap()[0].copies[0].value;
        let whole = Copied { from: None, sources: vec!["out".to_owned()], to: "/app".to_owned() };
        for (copied, path, brings, names) in [
            (copy, "/usr/local/lib/libjemalloc.so.2", true, true),
            (copy, "/usr/local/lib/libjemalloc.so.1", false, false),
            (copy, "/usr/lib/libjemalloc.so.2", false, false),
            (&whole, "/app/lib/a.so", true, false),
        ] {
            assert_eq!((copied.brings(path), copied.names(path)), (brings, names), "{path}");
        }
    }

    #[test]
    fn what_is_no_dockerfile_is_an_error() {
        assert!(Stages::parse("").is_err());
        assert!(Stages::parse("HELLO world").is_err());
    }
}
