use super::request::SetByScript;
use super::*;

fn judged_with(text: &str, context: &dyn Fn(&str) -> Option<String>) -> Judged {
    let stages = Stages::parse(text).unwrap();
    judge("Dockerfile", &stages, None, &context).unwrap()
}

/// Each case of `tests.cases`: `== NAME: FINDINGS ==`, then a Dockerfile with nothing in its context.
#[test]
fn each_dockerfile_has_the_findings_in_its_heading() {
    for case in include_str!("tests.cases").split("== ").skip(1) {
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
        (
            "ENTRYPOINT [\"/usr/local/bin/entry.sh\"]\nCMD [\"p\"]",
            "export ",
            Id::EntrypointBypassed,
            Note,
        ),
        ("CMD [\"p\"]", "export ", Id::EntrypointBypassed, Error),
        ("ENTRYPOINT [\"entry.sh\"]", "", Id::EnvironmentDropped, Error),
    ] {
        let script = format!("#!/bin/sh\n{export}LD_PRELOAD=libjemalloc.so.2\nexec \"$@\"\n");
        let context = |name: &str| (name == "entry.sh").then(|| script.clone());
        let text = format!(
            "FROM debian:12\nRUN apt-get install libjemalloc2\nCOPY entry.sh /usr/local/bin/\n{start}\n"
        );
        let findings = judged_with(&text, &context).findings;
        let found: Vec<_> = findings.into_iter().map(|it| (it.id, it.severity)).collect();
        assert_eq!(found, [(id, severity)], "{start}");
    }
}

#[test]
fn the_stage_that_is_asked_for_counts() {
    let text =
        "FROM debian:12 AS one\nENV LD_PRELOAD=libjemalloc.so.2\nFROM debian:12 AS two\nCMD p\n";
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
        let text = format!(
            "FROM debian:12\n{copy}\nENV LD_PRELOAD=/usr/local/lib/libebbmalloc.so\nCMD [\"p\"]\n"
        );
        let judged = judge("Dockerfile", &Stages::parse(&text).unwrap(), None, &Without).unwrap();
        judged.findings.iter().map(|it| it.id).collect::<Vec<_>>()
    };
    for copy in ["COPY libebbmalloc.so /usr/local/lib/", "COPY a.so /usr/local/lib/libebbmalloc.so"]
    {
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
