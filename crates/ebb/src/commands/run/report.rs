//! What `ebb run --verify` found, as a model and as text or JSON. Pure.

use serde::Serialize;

use ebb_process::{MallocSource, Unreadable};

/// The wording.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Style {
    /// Lines for a reader.
    Text,
    /// One line of JSON.
    Json,
}

/// The version of the JSON; grows when a field changes its meaning or goes.
const FORMAT: u32 = 1;

/// The whole finding.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct Report {
    format: u32,
    /// The allocator as the user named it.
    allocator: String,
    /// The preloaded file; none for the system's own allocator.
    library: Option<String>,
    /// Whether every process that was read runs on it; `null` where none could be judged, or one
    /// could not and all others do.
    in_charge: Option<bool>,
    /// Every process, in the order in which they were seen; one that executed another program, twice.
    processes: Vec<ProcessReport>,
    /// Processes that ended before their memory map could be read.
    ended_unread: usize,
    /// The only program that is to have it.
    #[serde(skip_serializing_if = "Option::is_none")]
    child: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct ProcessReport {
    pid: i32,
    program: String,
    in_charge: Option<bool>,
    /// The file that its `malloc` comes from, where it is known.
    malloc: Option<String>,
    /// Why it is not in charge, or not known to be.
    why: Option<String>,
}

impl ProcessReport {
    /// What was found of one process. `is_ours` judges a source of malloc.
    pub(super) fn new(
        pid: i32,
        program: String,
        found: &Result<MallocSource, Unreadable>,
        is_ours: impl Fn(&MallocSource) -> bool,
    ) -> Self {
        let (in_charge, malloc, why) = match found {
            Ok(source) => {
                let file = match source {
                    MallocSource::File(path) => Some(path.display().to_string()),
                    MallocSource::Static | MallocSource::Nobody => None,
                };
                let ours = is_ours(source);
                let why = match (ours, source, &file) {
                    (true, ..) => None,
                    (_, MallocSource::Static, _) => Some("it is statically linked".to_owned()),
                    (_, _, Some(file)) => Some(format!("it uses malloc from {file}")),
                    (_, _, None) => Some("it has no malloc".to_owned()),
                };
                (Some(ours), file, why)
            }
            Err(error) => (None, None, Some(error.to_string())),
        };
        Self { pid, program, in_charge, malloc, why }
    }

    /// The same process, whose loader takes no such library.
    pub(super) fn refusing(self, why: String) -> Self {
        Self { in_charge: Some(false), why: Some(why), ..self }
    }
}

impl Report {
    /// Builds the report from its processes.
    pub(super) fn new(
        allocator: &str,
        library: Option<String>,
        processes: Vec<ProcessReport>,
        ended_unread: usize,
    ) -> Self {
        let verdicts = || processes.iter().map(|process| process.in_charge);
        let in_charge = if verdicts().any(|it| it == Some(false)) {
            Some(false)
        } else {
            (!processes.is_empty() && verdicts().all(|it| it.is_some())).then_some(true)
        };
        let allocator = allocator.to_owned();
        Self { format: FORMAT, allocator, library, in_charge, processes, ended_unread, child: None }
    }

    /// The same where only processes of one program are judged.
    pub(super) fn of_child(self, child: Option<String>) -> Self {
        Self { child, ..self }
    }

    pub(super) fn lines(&self, style: Style) -> Vec<String> {
        match style {
            Style::Json => vec![serde_json::to_string(self).unwrap_or_else(|error| {
                // Strings and numbers only: it cannot fail, and would have to be seen if it did.
                format!("{{\"format\":{FORMAT},\"error\":\"{error}\"}}")
            })],
            Style::Text => self.text().iter().map(|line| format!("ebb: {line}")).collect(),
        }
    }

    fn text(&self) -> Vec<String> {
        let preloaded = self.library.as_deref().unwrap_or("no preload");
        let name = format!("{} ({preloaded})", self.allocator);
        let count = self.processes.len();
        let all = if count == 1 { "the process".to_owned() } else { format!("all {count} processes") };
        let not = self.processes.iter().filter(|process| process.in_charge == Some(false)).count();
        let mut lines = vec![match self.in_charge {
            Some(true) => format!("{name} is in charge of {all}"),
            Some(false) => format!("{name} is NOT in charge of {not} of {count} processes"),
            None if count == 0 && self.child.is_some() => {
                let child = self.child.as_deref().unwrap_or_default();
                format!("no {child} was seen; one that is started by its path does not pass the wrapper")
            }
            None if count == 0 => {
                format!("it is not known whether {name} was in charge: the program ended too soon")
            }
            None => format!("it is not known whether {name} is in charge of {all}"),
        }];
        for process in &self.processes {
            let why = process.why.iter();
            lines.extend(why.map(|why| format!("  process {} {}: {why}", process.pid, process.program)));
        }
        if self.ended_unread > 0 && count > 0 {
            let more = self.ended_unread;
            lines.push(format!("  {more} more ended before their memory map could be read"));
        }
        lines
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn process(pid: i32, found: Result<MallocSource, Unreadable>) -> ProcessReport {
        ProcessReport::new(pid, "/bin/p".to_owned(), &found, |source| *source == MallocSource::File("/l/a.so".into()))
    }

    fn ours() -> ProcessReport {
        process(1, Ok(MallocSource::File("/l/a.so".into())))
    }

    fn verdict(processes: Vec<ProcessReport>) -> Report {
        Report::new("a", Some("/l/a.so".to_owned()), processes, 0)
    }

    #[test]
    fn one_process_without_it_is_a_no_and_one_unread_is_no_yes() {
        assert_eq!(verdict(vec![ours(), ours()]).in_charge, Some(true));
        let fixed = process(2, Ok(MallocSource::Static));
        assert_eq!(verdict(vec![ours(), fixed.clone()]).in_charge, Some(false));
        let closed = process(3, Err(Unreadable::Permission));
        assert_eq!(verdict(vec![ours(), closed.clone()]).in_charge, None);
        assert_eq!(verdict(vec![closed, fixed]).in_charge, Some(false));
        assert_eq!(verdict(Vec::new()).in_charge, None);
    }

    #[test]
    fn the_text_names_what_is_wrong() {
        let libc = process(7, Ok(MallocSource::File("/l/libc.so.6".into())));
        let lines = verdict(vec![ours(), libc]).lines(Style::Text);
        assert_eq!(
            lines,
            [
                "ebb: a (/l/a.so) is NOT in charge of 1 of 2 processes",
                "ebb:   process 7 /bin/p: it uses malloc from /l/libc.so.6",
            ]
        );
    }

    #[test]
    fn the_json_is_one_line_with_its_version() {
        let lines = verdict(vec![ours()]).lines(Style::Json);
        let value: serde_json::Value = serde_json::from_str(&lines[0]).unwrap();
        assert_eq!(value["format"], 1);
        assert_eq!(value["in_charge"], true);
        assert_eq!(value["processes"][0]["malloc"], "/l/a.so");
    }
}
