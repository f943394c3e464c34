//! What `ebb trim` foresaw, did and measured, in a terminal: a paragraph for each process.

use std::fmt::Write;

use ebb_diagnosis::facts::trim::{Call, Left, Measured, Outcome, PageCache, Prediction, ProcessTrim, Trim};

/// Renders all of a trim.
pub fn render(trim: &Trim) -> String {
    let mut out = String::new();
    for process in &trim.processes {
        one(&mut out, process);
    }
    if let Some(cache) = &trim.page_cache {
        page_cache(&mut out, cache);
    }
    out
}

fn one(out: &mut String, process: &ProcessTrim) {
    let allocator = process.allocator.as_deref().unwrap_or("unknown allocator");
    let _ = writeln!(out, "{} ({}), {allocator}", process.name, process.pid);
    if let Some(predicted) = &process.predicted {
        let _ = writeln!(out, "  expected  {}", expected(predicted));
    }
    let _ = match &process.outcome {
        Outcome::Trimmed(call) => writeln!(out, "  done      {}", done(call)),
        Outcome::Left(left) => writeln!(out, "  not done  {}", not_done(left)),
    };
    if let Some(measured) = &process.measured {
        let _ = writeln!(out, "  measured  {}", found(measured));
    }
}

fn expected(predicted: &Prediction) -> String {
    format!(
        "malloc_trim returns {} MB in {}; it leaves {} MB free at the ends of secondary arenas and {} MB pinned",
        mb(predicted.returns),
        predicted.pause_s.map_or("an unknown time".to_owned(), |pause_s| format!("about {}", time(pause_s))),
        mb(predicted.tops),
        mb(predicted.pinned)
    )
}

fn done(call: &Call) -> String {
    let ran = match call.ran_s {
        Some(ran_s) => format!("ran malloc_trim for {}", time(ran_s)),
        None => "was still in malloc_trim when ebb stopped looking".to_owned(),
    };
    match (call.stopped_s, call.waited_s) {
        (Some(stopped_s), _) => {
            format!("thread {} was stopped for {} and {ran}; no other thread was stopped", call.thread, time(stopped_s))
        }
        (None, Some(waited_s)) => format!(
            "Python's thread {} ran the script after {}; the script's thread {ran}; no thread was stopped",
            call.thread,
            time(waited_s)
        ),
        (None, None) => format!("thread {} {ran}", call.thread),
    }
}

fn not_done(left: &Left) -> String {
    match &left.remedy {
        Some(remedy) => format!("{}; {remedy}", left.why),
        None => left.why.clone(),
    }
}

fn found(measured: &Measured) -> String {
    let mut text = format!(
        "{} MB were returned: {} MB resident before, {} MB after",
        signed_mb(measured.returned()),
        mb(measured.rss_before),
        mb(measured.rss_after)
    );
    match (measured.heap_after, measured.left) {
        (Some(after), Some(left)) => {
            let _ = write!(
                text,
                "; heap {} and {} MB; malloc_trim would now return {} MB",
                mb(measured.heap_before),
                mb(after),
                mb(left)
            );
        }
        _ => text.push_str("; the heap could not be read again"),
    }
    text
}

fn page_cache(out: &mut String, cache: &PageCache) {
    let known = |bytes: Option<u64>| bytes.map_or("unknown".to_owned(), mb);
    let _ = writeln!(out, "page cache of {}", cache.cgroup);
    let _ = writeln!(out, "  expected  {} MB of files could be dropped", known(cache.before));
    let _ = match &cache.refused {
        Some(left) => writeln!(out, "  not done  {}", not_done(left)),
        None => writeln!(
            out,
            "  measured  {} MB of files before, {} MB after; anonymous {} and {} MB",
            known(cache.before),
            known(cache.after),
            known(cache.anon_before),
            known(cache.anon_after)
        ),
    };
}

fn mb(bytes: u64) -> String {
    signed_mb(bytes as i64)
}

fn signed_mb(bytes: i64) -> String {
    format!("{:.1}", bytes as f64 / 1e6)
}

/// A time with a unit that suits it.
fn time(seconds: f64) -> String {
    match seconds {
        seconds if seconds < 0.1 => format!("{:.1} ms", seconds * 1e3),
        seconds => format!("{seconds:.2} s"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ebb_diagnosis::facts::trim::{Reason, Route};
    use ebb_process::snapshot::{Target, TargetKind};

    fn of(outcome: Outcome, measured: Option<Measured>) -> String {
        render(&Trim {
            target: Target { asked: "7".to_owned(), kind: TargetKind::Pid },
            taken: String::new(),
            processes: vec![ProcessTrim {
                pid: 7,
                name: "service".to_owned(),
                allocator: Some("glibc".to_owned()),
                predicted: Some(Prediction {
                    returns: 701_200_000,
                    tops: 1_000_000,
                    pinned: 2_500_000,
                    pause_s: Some(0.1234),
                }),
                outcome,
                measured,
            }],
            page_cache: None,
        })
    }

    #[test]
    fn a_trim_is_foreseen_done_and_measured() {
        let call = Call {
            route: Route::Inject,
            thread: 9,
            stopped_s: Some(0.0012),
            waited_s: None,
            ran_s: Some(0.2),
            attempts: 1,
        };
        let measured = Measured {
            rss_before: 900_000_000,
            rss_after: 200_000_000,
            heap_before: 850_000_000,
            heap_after: Some(150_000_000),
            left: Some(0),
        };
        let text = of(Outcome::Trimmed(call), Some(measured));
        assert_eq!(
            text,
            "service (7), glibc\n  \
             expected  malloc_trim returns 701.2 MB in about 0.12 s; it leaves 1.0 MB free at the ends of secondary arenas \
             and 2.5 MB pinned\n  \
             done      thread 9 was stopped for 1.2 ms and ran malloc_trim for 0.20 s; no other thread was stopped\n  \
             measured  700.0 MB were returned: 900.0 MB resident before, 200.0 MB after; heap 850.0 and 150.0 MB; \
             malloc_trim would now return 0.0 MB\n"
        );
    }

    #[test]
    fn a_script_is_told_from_a_stopped_thread() {
        let call = Call {
            route: Route::RemoteExec,
            thread: 7,
            stopped_s: None,
            waited_s: Some(0.0031),
            ran_s: Some(0.0114),
            attempts: 1,
        };
        assert_eq!(
            done(&call),
            "Python's thread 7 ran the script after 3.1 ms; the script's thread ran malloc_trim for 11.4 ms; \
             no thread was stopped"
        );
    }

    #[test]
    fn what_was_not_done_has_its_reason_and_what_to_do() {
        let left = Left {
            reason: Reason::NotAsked,
            why: "nothing was changed".to_owned(),
            remedy: Some("--inject".to_owned()),
        };
        let text = of(Outcome::Left(left), None);
        assert!(text.ends_with("not done  nothing was changed; --inject\n"), "{text}");
    }

    #[test]
    fn a_process_that_grew_meanwhile_is_told_as_such() {
        let measured = Measured { rss_before: 100, rss_after: 5_000_100, ..Measured::default() };
        assert!(found(&measured).starts_with("-5.0 MB were returned"));
    }
}
