use super::*;

const PRELOAD: &str = "ENV LD_PRELOAD=/usr/lib/libjemalloc.so.2\n";

fn judged_with(text: &str, context: &dyn Fn(&str) -> Option<String>) -> Judged {
    let stages = Stages::parse(text).unwrap();
    judge("Dockerfile", &stages, None, &context).unwrap()
}

/// The results of a Dockerfile with nothing in its context.
#[track_caller]
fn assert_found(text: &str, ids: &[Id]) {
    let judged = judged_with(text, &|_| None);
    let found: Vec<Id> = judged.findings.iter().map(|it| it.id).collect();
    assert_eq!(found, ids, "{text}{:#?}", judged.findings);
}

#[test]
fn an_image_in_order_has_no_finding() {
    assert_found(
        &format!("FROM debian:12\nRUN apt-get install -y libjemalloc2\n{PRELOAD}CMD [\"p\"]\n"),
        &[],
    );
    assert_found(
        &format!("FROM alpine:3.20\nRUN apk add --no-cache jemalloc\n{PRELOAD}CMD p\n"),
        &[],
    );
    assert_found(
        "FROM python:3.12-slim\nCOPY ebb libebbmalloc.so /usr/local/lib/\n\
         ENV LD_PRELOAD=/usr/local/lib/libebbmalloc.so EBB_CONF=stats_print:true\nCMD [\"p\"]\n",
        &[],
    );
    let judged = judged_with(
        "FROM debian:12\nCOPY out/ /opt/\nENTRYPOINT [\"ebb\", \"run\", \"--\", \"p\"]\n",
        &|_| None,
    );
    assert_eq!(judged.allocator.as_deref(), Some("ebbmalloc"));
}

#[test]
fn where_the_variable_is_set_for_the_build_only() {
    assert_found("FROM debian:12\nCMD p\n", &[Id::NotAsked]);
    assert_found(
        "FROM debian:12\nARG LD_PRELOAD=/usr/lib/libjemalloc.so.2\nCMD p\n",
        &[Id::BuildTimeOnly],
    );
    assert_found(
        "FROM debian:12\nRUN export LD_PRELOAD=/usr/lib/libjemalloc.so.2\nCMD p\n",
        &[Id::BuildTimeOnly],
    );
    assert_found(
        &format!("FROM debian:12 AS build\n{PRELOAD}FROM debian:12\nCMD p\n"),
        &[Id::BuildTimeOnly],
    );
    let judged =
        judged_with(&format!("FROM debian:12 AS build\n{PRELOAD}FROM debian:12\nCMD p\n"), &|_| {
            None
        });
    assert_eq!(judged.findings[0].file.as_deref(), Some("Dockerfile:2"));
}

#[test]
fn a_library_that_nothing_installs() {
    assert_found(&format!("FROM debian:12\n{PRELOAD}CMD p\n"), &[Id::PackageMissing]);
    assert_found(
        &format!(
            "FROM debian:12 AS b\nRUN apt-get install libjemalloc2\nFROM debian:12\n{PRELOAD}CMD p\n"
        ),
        &[Id::PackageMissing],
    );
    assert_found(&format!("FROM example.com/base:1\n{PRELOAD}CMD p\n"), &[Id::BaseUnknown]);
}

#[test]
fn a_path_of_one_architecture() {
    let image = |from: &str| {
        format!(
            "FROM {from}debian:12\nRUN apt-get install libjemalloc2\n\
             ENV LD_PRELOAD=/usr/lib/x86_64-linux-gnu/libjemalloc.so.2\nCMD p\n"
        )
    };
    assert_found(&image(""), &[Id::ArchitectureBound]);
    assert_found(&image("--platform=linux/amd64 "), &[]);
    assert_found(&image("--platform=linux/arm64 "), &[Id::ArchitecturePath]);
}

#[test]
fn what_only_a_shell_would_replace() {
    let image = |value: &str| {
        format!("FROM debian:12\nRUN apt-get install libjemalloc2\nENV LD_PRELOAD={value}\nCMD p\n")
    };
    assert_found(&image("/usr/lib/*/libjemalloc.so.2"), &[Id::NotExpanded]);
    assert_found(&image("/usr/lib/$(uname\\ -m)-linux-gnu/libjemalloc.so.2"), &[Id::NotExpanded]);
    assert_found(&image("/usr/$LIB/libjemalloc.so.2"), &[Id::NotExpanded]);
    assert_found(&image("/usr/\\$LIB/libjemalloc.so.2"), &[]);
}

#[test]
fn a_library_of_glibc_in_an_image_of_musl() {
    assert_found(
        &format!(
            "FROM debian:12 AS b\nRUN apt-get install libjemalloc2\nFROM python:3.12-alpine\n\
             COPY --from=b /usr/lib/x86_64-linux-gnu/libjemalloc.so.2 /usr/lib/\n{PRELOAD}CMD p\n"
        ),
        &[Id::WrongLibc],
    );
    assert_found(
        "FROM alpine:3.20\nENV LD_PRELOAD=/usr/lib/aarch64-linux-gnu/libjemalloc.so.2\nCMD p\n",
        &[Id::ArchitectureBound, Id::WrongLibc],
    );
    // libebbmalloc.so fits both.
    assert_found(
        "FROM debian:12 AS b\nFROM alpine:3.20\nCOPY --from=b /o/libebbmalloc.so /usr/lib/\n\
         ENV LD_PRELOAD=/usr/lib/libebbmalloc.so\nCMD p\n",
        &[],
    );
}

#[test]
fn a_start_that_drops_the_environment() {
    let image = |start: &str| {
        format!("FROM debian:12\nRUN apt-get install libjemalloc2\n{PRELOAD}{start}\n")
    };
    assert_found(&image("CMD [\"sudo\", \"-u\", \"app\", \"p\"]"), &[Id::EnvironmentDropped]);
    assert_found(&image("CMD exec su - app -c p"), &[Id::EnvironmentDropped]);
    assert_found(&image("CMD exec gosu app p"), &[]);
}

#[test]
fn a_script_that_sets_it() {
    let image = |start: &str| {
        format!(
            "FROM debian:12\nRUN apt-get install libjemalloc2\nCOPY entry.sh /usr/local/bin/\n{start}\n"
        )
    };
    let found = |start: &str, script: &'static str| {
        let context = |name: &str| (name == "entry.sh").then(|| script.to_owned());
        let findings = judged_with(&image(start), &context).findings;
        findings.into_iter().map(|it| (it.id, it.severity)).collect::<Vec<_>>()
    };
    let exports = "#!/bin/sh\nexport LD_PRELOAD=libjemalloc.so.2\nexec \"$@\"\n";
    use super::super::Severity::{Error, Note};
    assert_eq!(
        found("ENTRYPOINT [\"/usr/local/bin/entry.sh\"]\nCMD [\"p\"]", exports),
        [(Id::EntrypointBypassed, Note)]
    );
    assert_eq!(found("CMD [\"p\"]", exports), [(Id::EntrypointBypassed, Error)]);
    assert_eq!(
        found("ENTRYPOINT [\"entry.sh\"]", "#!/bin/sh\nLD_PRELOAD=libjemalloc.so.2\nexec \"$@\"\n"),
        [(Id::EnvironmentDropped, Error)]
    );
}

#[test]
fn a_program_that_takes_no_library() {
    assert_found(
        &format!(
            "FROM golang:1.23 AS b\nRUN go build -o /out/p .\nFROM debian:12\n\
             RUN apt-get install libjemalloc2\nCOPY --from=b /out/p /usr/bin/p\n{PRELOAD}CMD [\"p\"]\n"
        ),
        &[Id::AllocatorInside],
    );
    assert_found(
        &format!(
            "FROM rust:1 AS b\nRUN cargo build --target x86_64-unknown-linux-musl\nFROM alpine\n\
             RUN apk add jemalloc\nCOPY --from=b /target/p /usr/bin/\n{PRELOAD}CMD [\"p\"]\n"
        ),
        &[Id::StaticProgram],
    );
    assert_found(
        &format!("FROM scratch\nCOPY p /p\n{PRELOAD}CMD [\"/p\"]\n"),
        &[Id::StaticProgram],
    );
    assert_found(
        &format!(
            "FROM debian:12\nRUN apt-get install libjemalloc2 && setcap cap_net_bind_service+ep /usr/bin/p\n\
             {PRELOAD}CMD [\"/usr/bin/p\"]\n"
        ),
        &[Id::SecureMode],
    );
}

#[test]
fn settings_that_nobody_reads() {
    assert_found(
        &format!(
            "FROM debian:12\nRUN apt-get install libjemalloc2\n{PRELOAD}\
             ENV MALLOC_ARENA_MAX=2 MALLOC_CONF=narenas=1\nCMD p\n"
        ),
        &[Id::SettingsOfAnother, Id::SettingsMalformed],
    );
}

#[test]
fn the_stage_that_is_asked_for_counts() {
    let text = format!("FROM debian:12 AS one\n{PRELOAD}FROM debian:12 AS two\nCMD p\n");
    let stages = Stages::parse(&text).unwrap();
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
    let set = |text: &str| set_by_script(text).map(|it| (it.value, it.exported));
    let value = |text: &str, exported| Some((text.to_owned(), exported));
    assert_eq!(set("export LD_PRELOAD=a.so\n"), value("a.so", true));
    assert_eq!(set("LD_PRELOAD=\"a.so\"\nexport LD_PRELOAD\n"), value("a.so", true));
    assert_eq!(set("LD_PRELOAD=a.so exec p\n"), value("a.so", true));
    assert_eq!(set("LD_PRELOAD=a.so\nexec p\n"), value("a.so", false));
    assert_eq!(set("# export LD_PRELOAD=a.so\n"), None);
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
