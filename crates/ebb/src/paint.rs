//! Colours for the word of a verdict, and for a limit that is near. Used by the commands on what they print to a terminal;
//! renderings themselves have no colours, so files and JSON never do.

use anstyle::AnsiColor;

use ebb_deploy::check::Answer;
use ebb_diagnosis::facts::diagnosis::{Diagnosis, VerdictKind};
use ebb_diagnosis::facts::growth::Growth;
use ebb_process::snapshot::Cgroup;
use ebb_trial::results as trial;

/// From this part of the limit on, files that the kernel can drop not counted.
const NEAR_LIMIT: f64 = 0.9;
/// How a sentence over several looks begins where nothing grows.
const STEADY: [&str; 4] = ["No growth", "Hardly any growth", "It shrinks", "Flat"];

/// What a word means for the service.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Tone {
    Fine,
    /// Memory is held that could be returned.
    Held,
    Bad,
}

impl Tone {
    fn paint(self, words: &str) -> String {
        let style = match self {
            Tone::Fine => AnsiColor::Green.on_default(),
            Tone::Held => AnsiColor::Yellow.on_default(),
            Tone::Bad => AnsiColor::Red.on_default(),
        };
        format!("{style}{words}{style:#}")
    }
}

/// A diagnosis as rendered: the verdict's word, and the headroom where the limit is near.
pub fn diagnosis(text: &str, diagnosis: &Diagnosis) -> String {
    let text = label(text, diagnosis);
    let headroom = |line: &&str| line.starts_with("At ") && line.contains(" % of the limit: ");
    let is_near = diagnosis.snapshot.cgroup.as_ref().is_some_and(is_near);
    match text.lines().find(headroom).filter(|_| is_near) {
        Some(line) => {
            let words = line.split(':').next().unwrap_or_default();
            first(&text, words, Tone::Bad)
        }
        None => text,
    }
}

/// The verdict's word of one look.
fn label(text: &str, diagnosis: &Diagnosis) -> String {
    let tone = match diagnosis.verdict.kind {
        VerdictKind::InUse => Tone::Fine,
        VerdictKind::Retention | VerdictKind::Mixed => Tone::Held,
        VerdictKind::LiveHeapGrows => Tone::Bad,
        VerdictKind::NotHeap | VerdictKind::NotEnoughEvidence => return text.to_owned(),
    };
    match diagnosis.verdict.sentence.split_once(':') {
        Some((words, _)) => first(text, &format!("{words}:"), tone),
        None => text.to_owned(),
    }
}

fn is_near(cgroup: &Cgroup) -> bool {
    let own = cgroup.limit_of.as_ref().is_none_or(|of| *of == cgroup.path);
    let files = cgroup.parts.inactive_file.filter(|_| own).unwrap_or(0);
    let usage = cgroup.limit_usage.or(cgroup.usage);
    Option::zip(usage, cgroup.limit)
        .is_some_and(|(usage, limit)| usage.saturating_sub(files) as f64 >= NEAR_LIMIT * limit as f64)
}

/// What `ebb why --watch` prints.
pub fn growth(text: &str, growth: &Growth) -> String {
    let sentence = &growth.verdict.sentence;
    if sentence.contains(" grows: ") {
        return first(text, "grows:", Tone::Bad);
    }
    let text = label(text, &growth.last);
    match STEADY.iter().find(|words| sentence.starts_with(**words)) {
        Some(words) => first(&text, words, Tone::Fine),
        None => text,
    }
}

/// What `ebb diff` prints. Growth between two looks alone is no leak.
pub fn difference(text: &str) -> String {
    let words = [
        (" grew from ", "grew", Tone::Held),
        (" shrank from ", "shrank", Tone::Fine),
        (" is unchanged at ", "is unchanged", Tone::Fine),
    ];
    let line = text.lines().next().unwrap_or_default();
    match words.iter().find(|(clause, ..)| line.contains(clause)) {
        Some((clause, words, tone)) => {
            let painted = clause.replacen(words, &tone.paint(words), 1);
            text.replacen(clause, &painted, 1)
        }
        None => text.to_owned(),
    }
}

/// A trial in a terminal, where the verdict is last.
pub fn trial(text: &str, kind: trial::VerdictKind) -> String {
    use trial::VerdictKind;
    const WORD: &str = "\nVerdict:";
    let tone = match kind {
        VerdictKind::Recommend | VerdictKind::NothingToGain | VerdictKind::NoRealDifference => Tone::Fine,
        VerdictKind::NoneHelps => Tone::Held,
        VerdictKind::LiveHeapGrows => Tone::Bad,
        VerdictKind::NotEnough => return text.to_owned(),
    };
    match text.rfind(WORD) {
        Some(at) => {
            let (before, verdict) = text.split_at(at);
            format!("{before}{}", first(verdict, WORD.trim_start(), tone))
        }
        None => text.to_owned(),
    }
}

/// A check, whose first line has the answer after the target.
pub fn check(text: &str, target: &str, answer: Answer) -> String {
    let tone = match answer {
        Answer::InCharge => Tone::Fine,
        Answer::NotInCharge => Tone::Bad,
        _ => return text.to_owned(),
    };
    let line = text.lines().next().unwrap_or_default();
    match line.strip_prefix(target).and_then(|it| it.strip_prefix(": ")) {
        Some(answer) => first(text, answer, tone),
        None => text.to_owned(),
    }
}

fn first(text: &str, words: &str, tone: Tone) -> String {
    text.replacen(words, &tone.paint(words), 1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use ebb_process::example;
    use ebb_process::snapshot::Process;
    use ebb_report::diagnosis::{Form, render};

    const RED: &str = "\u{1b}[31m";
    const GREEN: &str = "\u{1b}[32m";
    const YELLOW: &str = "\u{1b}[33m";
    const RESET: &str = "\u{1b}[0m";

    fn plain(text: &str) -> String {
        let mut text = text.to_owned();
        for code in [RED, GREEN, YELLOW, RESET] {
            text = text.replace(code, "");
        }
        text
    }

    fn one_process() -> Diagnosis {
        let process = Process { pid: 7, name: "service".into(), ..Process::default() };
        ebb_diagnosis::of(example::snapshot(vec![process]))
    }

    #[test]
    fn only_the_word_of_a_verdict_is_painted() {
        let mut of = one_process();
        for (kind, sentence, painted) in [
            (VerdictKind::InUse, "In use: a.", "\u{1b}[32mIn use:\u{1b}[0m a."),
            (VerdictKind::Retention, "Retention: a.", "\u{1b}[33mRetention:\u{1b}[0m a."),
            (VerdictKind::NotEnoughEvidence, "Not enough evidence: a.", "Not enough evidence: a."),
        ] {
            (of.verdict.kind, of.verdict.sentence) = (kind, sentence.to_owned());
            for form in [Form::Short(80), Form::Full] {
                let text = render(std::slice::from_ref(&of), form);
                let with = diagnosis(&text, &of);
                assert!(with.starts_with(painted), "{with}");
                assert_eq!(plain(&with), text);
            }
        }
    }

    #[test]
    fn growth_is_red_and_what_is_steady_is_judged_by_the_last_look() {
        let mut of = Growth {
            verdict: one_process().verdict,
            trends: Vec::new(),
            steps: Vec::new(),
            events: Vec::new(),
            rests: None,
            company: None,
            points: Vec::new(),
            last: one_process(),
        };
        let mut painted = |sentence: &str| {
            of.verdict.sentence = sentence.to_owned();
            growth(&format!("{sentence}\n"), &of)
        };
        assert_eq!(
            painted("The live heap of a (7) grows: 9 MB in 10 s."),
            format!("The live heap of a (7) {RED}grows:{RESET} 9 MB in 10 s.\n")
        );
        assert_eq!(
            painted("No growth in 10 s. Nothing to gain: a."),
            format!("{GREEN}No growth{RESET} in 10 s. {GREEN}Nothing to gain:{RESET} a.\n")
        );
        let short = "Too short: a.";
        assert_eq!(painted(short), format!("{short}\n"));
    }

    #[test]
    fn a_limit_is_near_where_dropped_files_would_not_help() {
        let mut of = one_process();
        for (usage, files, near) in [(95, 0, true), (95, 10, false), (80, 0, false)] {
            let mut cgroup = Cgroup { limit: Some(100_000_000), usage: Some(usage * 1_000_000), ..Cgroup::default() };
            cgroup.parts.inactive_file = Some(files * 1_000_000);
            of.snapshot.cgroup = Some(cgroup);
            let text = render(std::slice::from_ref(&of), Form::Short(80));
            assert!(text.contains(&format!("At {usage} % of the limit: ")), "{text}");
            let with = diagnosis(&text, &of);
            let expected = format!("{RED}At {usage} % of the limit{RESET}: ");
            assert_eq!(with.contains(&expected), near, "{with}");
        }
    }

    #[test]
    fn a_trials_verdict_a_check_and_a_difference_are_painted() {
        use trial::VerdictKind;
        let text = "! x: a note\n\nVerdict: x holds 6 MB.\n";
        let green = format!("\n{GREEN}Verdict:{RESET} x holds");
        assert!(super::trial(text, VerdictKind::Recommend).contains(&green));
        assert_eq!(super::trial(text, VerdictKind::NotEnough), text);
        assert_eq!(
            check("p: jemalloc is NOT in charge\n  NO 7\n", "p", Answer::NotInCharge),
            format!("p: {RED}jemalloc is NOT in charge{RESET}\n  NO 7\n")
        );
        assert_eq!(
            difference("grew (7) grew from 1 to 9 MB.\n"),
            format!("grew (7) {YELLOW}grew{RESET} from 1 to 9 MB.\n")
        );
    }
}
