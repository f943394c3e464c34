//! All that a check found, as text and as JSON. Pure.

use serde::Serialize;

use super::declared::Kind;
use super::finding::{Finding, Id, Severity};

/// The version of the JSON; grows when a field changes its meaning or goes.
const FORMAT: u32 = 1;

/// What was looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Subject {
    /// Running processes.
    Processes,
    /// A Dockerfile.
    Dockerfile,
    /// An unpacked root file system.
    Root,
    /// A file of services.
    #[serde(untagged)]
    File(Kind),
}

/// Whether the allocator is in charge.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// Everywhere.
    InCharge,
    /// Not of every process, or not with the settings it was given.
    NotInCharge,
    /// A right is missing to know.
    NoPermission,
    /// There is not enough evidence.
    Unknown,
}

/// The whole result.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Report {
    format: u32,
    /// The target as the user named it.
    target: String,
    subject: Subject,
    /// The allocator that should be in charge; `null` where nothing names one.
    allocator: Option<String>,
    /// Whether it is, everywhere; `null` where that is not known.
    in_charge: Option<bool>,
    /// How many programs were looked at, in a root file system.
    #[serde(skip_serializing_if = "Option::is_none")]
    programs: Option<usize>,
    processes: Vec<ProcessLine>,
    findings: Vec<Finding>,
    /// Nothing asks for an allocator: the program brings it.
    #[serde(skip)]
    is_brought: bool,
}

/// One line of JSON, of strings and numbers only: it cannot fail, and would have to be seen if it did.
pub(crate) fn json(report: &impl Serialize) -> String {
    serde_json::to_string(report).unwrap_or_else(|error| format!("{{\"error\":\"{error}\"}}"))
}

/// One process.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ProcessLine {
    /// Its number.
    pub pid: i32,
    /// Its program.
    pub program: String,
    /// Whether the allocator is in charge of it.
    pub in_charge: Option<bool>,
    /// The file that its `malloc` comes from.
    pub malloc: Option<String>,
    /// The allocator that this file is, where it is known.
    pub allocator: Option<String>,
    /// Its version, which ebbmalloc tells.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// Settings that the allocator in charge has read from the environment.
    pub settings: Vec<String>,
    /// How long ebbmalloc keeps idle pages in this process, as it says itself, in milliseconds.
    pub idle_time_ms: Option<u64>,
    /// Whether ebbmalloc has taken over CPython's small objects in this process, as it says itself.
    pub serves_cpython: Option<bool>,
}

impl Report {
    /// Sums up. Errors first, then what is unknown, then notes; otherwise in the order given.
    pub fn new(
        target: &str,
        subject: Subject,
        allocator: Option<String>,
        processes: Vec<ProcessLine>,
        mut findings: Vec<Finding>,
    ) -> Self {
        findings.sort_by_key(|finding| std::cmp::Reverse(finding.severity));
        let worst = findings.iter().map(|finding| finding.severity).max();
        Self {
            format: FORMAT,
            target: target.to_owned(),
            subject,
            allocator,
            in_charge: match worst {
                Some(Severity::Error) => Some(false),
                Some(Severity::Unknown) => None,
                _ => Some(true),
            },
            programs: None,
            processes,
            findings,
            is_brought: false,
        }
    }

    /// The program brings the allocator: nothing has to preload one.
    #[must_use]
    pub fn brought_by_program(mut self) -> Self {
        self.is_brought = true;
        self
    }

    /// Adds how many programs were looked at.
    #[must_use]
    pub fn with_programs(mut self, programs: usize) -> Self {
        self.programs = Some(programs);
        self
    }

    /// The answer in short.
    pub fn answer(&self) -> Answer {
        match self.in_charge {
            Some(true) => Answer::InCharge,
            Some(false) => Answer::NotInCharge,
            None if self.findings.iter().any(|it| it.id == Id::Closed) => Answer::NoPermission,
            None => Answer::Unknown,
        }
    }

    /// The findings.
    pub fn findings(&self) -> &[Finding] {
        &self.findings
    }

    /// One line of JSON.
    pub fn json(&self) -> String {
        json(self)
    }

    /// Lines for a reader: the answer, the processes, the findings with their remedies.
    pub fn text(&self) -> String {
        let mut lines = vec![self.headline()];
        lines.extend(self.processes.iter().map(ProcessLine::text));
        for finding in &self.findings {
            lines.push(String::new());
            lines.extend(finding_lines(finding));
        }
        lines.join("\n") + "\n"
    }

    fn headline(&self) -> String {
        let Some(allocator) = self.allocator.as_deref() else {
            return format!("{}: no allocator is configured", self.target);
        };
        let not = self.processes.iter().filter(|it| it.in_charge == Some(false));
        let (not, all) = (not.count(), self.processes.len());
        if self.is_brought {
            let with = self.processes.iter().filter(|it| it.in_charge == Some(true)).count();
            let of = format!(" in {with} of {}", count(all));
            let place = if all == 1 { "" } else { &of };
            let target = &self.target;
            return format!("{target}: malloc is {allocator}{place}; no other allocator is configured");
        }
        let (is, of) = match self.subject {
            Subject::Processes => ("is", format!(" of {}", count(all))),
            _ => ("will be", String::new()),
        };
        let what = match (self.subject, self.in_charge) {
            (_, Some(true)) => format!("{allocator} {is} in charge{of}"),
            (Subject::Processes, Some(false)) if not > 0 => {
                format!("{allocator} is NOT in charge of {not}{of}")
            }
            (Subject::Processes, Some(false)) => {
                format!("{allocator} is in charge{of}, but not with the settings given")
            }
            (_, Some(false)) => format!("{allocator} will NOT be in charge"),
            (_, None) => format!("it is not known whether {allocator} {is} in charge{of}"),
        };
        match self.programs {
            Some(programs) => format!("{}: {what} ({programs} programs read)", self.target),
            None => format!("{}: {what}", self.target),
        }
    }
}

impl ProcessLine {
    fn text(&self) -> String {
        let state = match self.in_charge {
            Some(true) => "yes",
            Some(false) => "NO",
            None => "?",
        };
        let mut line = format!("  {state:<4} {} {}", self.pid, self.program);
        if let Some(malloc) = &self.malloc {
            line += &format!(": malloc from {malloc}");
            let named = self.allocator.iter().chain(&self.version);
            let named = named.map(String::as_str).collect::<Vec<_>>().join(" ");
            if !named.is_empty() {
                line += &format!(" ({named})");
            }
        }
        if !self.settings.is_empty() {
            line += &format!(", with {}", self.settings.join(" "));
        }
        match self.idle_time_ms {
            Some(u64::MAX) => line += ", returns no idle pages by itself",
            Some(idle) => line += &format!(", returns pages that are idle for {idle} ms"),
            None => {}
        }
        if self.serves_cpython == Some(true) {
            line += ", serves CPython's small objects";
        }
        line
    }
}

fn finding_lines(finding: &Finding) -> Vec<String> {
    let weight = match finding.severity {
        Severity::Error => "error",
        Severity::Unknown => "unknown",
        Severity::Note => "note",
    };
    let place = match (finding.pid, &finding.file) {
        (Some(pid), _) => format!("process {pid}: "),
        (None, Some(file)) => format!("{file}: "),
        (None, None) => String::new(),
    };
    vec![format!("{weight} [{}] {place}{}", finding.id.name(), finding.what), format!("  to do: {}", finding.remedy)]
}

fn count(processes: usize) -> String {
    match processes {
        1 => "1 process".to_owned(),
        more => format!("{more} processes"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(findings: Vec<Finding>) -> Report {
        let line = ProcessLine {
            pid: 7,
            program: "/bin/p".to_owned(),
            in_charge: Some(findings.is_empty()),
            malloc: Some("/l/libc.so.6".to_owned()),
            allocator: None,
            version: None,
            settings: vec!["A=1".to_owned()],
            idle_time_ms: None,
            serves_cpython: None,
        };
        Report::new("p", Subject::Processes, Some("jemalloc".to_owned()), vec![line], findings)
    }

    #[test]
    fn one_error_is_a_no_and_a_note_is_not() {
        for (ids, answer) in [
            (&[][..], Answer::InCharge),
            (&[Id::StaticTls], Answer::InCharge),
            (&[Id::Unreadable], Answer::Unknown),
            (&[Id::StaticTls, Id::Closed], Answer::NoPermission),
            (&[Id::StaticTls, Id::Unreadable, Id::NotAsked], Answer::NotInCharge),
        ] {
            let report = report(ids.iter().map(|id| Finding::new(*id, "w")).collect());
            assert_eq!(report.answer(), answer, "{ids:?}");
            assert_eq!(report.findings().first().map(|it| it.id), ids.last().copied());
        }
    }

    #[test]
    fn the_text_names_result_place_and_remedy() {
        let error = Finding::new(Id::NotAsked, "nothing asks").of_process(7);
        let text = report(vec![error]).text();
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[0], "p: jemalloc is NOT in charge of 1 of 1 process");
        assert_eq!(lines[1], "  NO   7 /bin/p: malloc from /l/libc.so.6, with A=1");
        assert_eq!(lines[3], "error [not-asked] process 7: nothing asks");
        assert!(lines[4].starts_with("  to do: set LD_PRELOAD"));
    }

    #[test]
    fn the_json_has_the_names() {
        let error = Finding::new(Id::NotAsked, "nothing asks").in_file("Dockerfile:3");
        let value: serde_json::Value = serde_json::from_str(&report(vec![error]).json()).unwrap();
        assert_eq!((&value["format"], &value["in_charge"]), (&1.into(), &false.into()));
        assert_eq!(value["findings"][0]["id"], "not-asked");
        assert_eq!(value["findings"][0]["severity"], "error");
        assert_eq!(value["findings"][0]["file"], "Dockerfile:3");
    }
}
