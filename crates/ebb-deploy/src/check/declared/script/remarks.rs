//! What the reader of scripts has to say of one: what comes too late, what no program gets, what holds only sometimes.
//! Pure.

use super::commands::Command;
use super::set::Set;
use super::value::unquoted;
use crate::check::declared::service::Remark;
use crate::check::finding::Id;
use crate::check::start::Start;

/// An `exec` under a condition through a program that drops the environment.
pub(super) fn dropped_elsewhere(command: &Command, words: &[&str]) -> Option<Remark> {
    let start = Start {
        words: words.iter().copied().map(unquoted).collect(),
        by_shell: true,
        line: command.line,
    };
    let by = start.drops_environment()?;
    let what = format!("{by} starts programs without the LD_PRELOAD of the script");
    Some(Remark::error(command.line, Id::EnvironmentDropped, what).as_note())
}

/// What is to be said of a script as such.
pub(super) fn of_script(
    name: &str,
    text: &str,
    sets: &[Set],
    start: Option<&Start>,
) -> Vec<Remark> {
    let mut remarks = Vec::new();
    let preloads = || sets.iter().filter(|it| it.name == "LD_PRELOAD");
    let counts = preloads().any(|it| it.is_exported && !it.is_late);
    if let (Some(set), Some(start)) = (preloads().find(|it| it.is_late), start) {
        let what = format!("the program was already started in line {}", start.line);
        let remark = Remark::error(set.line, Id::PreloadTooLate, what);
        remarks.push(if counts { remark.as_note() } else { remark });
    } else if let Some(set) = preloads().find(|it| !it.is_exported)
        && !counts
    {
        let what = "LD_PRELOAD is set without `export`, so no program gets it";
        remarks.push(Remark::error(set.line, Id::EnvironmentDropped, what));
    }
    if counts {
        if let Some(set) = preloads().find(|it| !it.is_late)
            && !preloads().any(|it| it.is_plain)
        {
            let what = "LD_PRELOAD is set under a condition; otherwise the program runs without it";
            remarks.push(Remark::error(set.line, Id::NotAsked, what).as_note());
        }
        let what = format!(
            "LD_PRELOAD is set in {name} only: docker run --entrypoint, docker exec and a pod's command start programs without it"
        );
        let line = preloads().find(|it| !it.is_late).map_or(1, |it| it.line);
        remarks.push(Remark::error(line, Id::EntrypointBypassed, what).as_note());
    }
    if text.contains("\r\n") {
        let what = "the lines end with a carriage return, which the kernel and the shell treat as part of a name or value";
        remarks.push(Remark::error(1, Id::LineEnds, what).as_note());
    }
    remarks
}
