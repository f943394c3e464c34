//! Properties of all kinds of file at once: whatever the text, nothing panics; whatever is written, no line of the
//! user's is lost, and a second look finds nothing to do.

use proptest::prelude::*;
use proptest::sample::select;

use super::edit::apply;
use super::manifest::{CRATES, Manifest, Own};
use super::unit::Files;
use super::*;
use crate::check::declared::{self, Kind};

fn desired(name: &str) -> Desired {
    Desired::example(name, &[("MALLOC_CONF", "narenas:1,dirty_decay_ms:0")])
}

fn fixed(kind: Option<Kind>, text: &str, desired: &Desired) -> Result<Fixed, Refused> {
    match kind {
        None => dockerfile::fix("f", text, None, &|_: &str| None, desired),
        Some(Kind::Compose) => compose::fix("f", text, &|_| true, desired),
        Some(Kind::Kubernetes) => kubernetes::fix("f", text, &|_| true, Some("i"), desired),
        Some(Kind::Procfile) => procfile::fix("f", text, &|_| true, desired),
        Some(Kind::Supervisor) => supervisor::fix("f", text, &|_| true, desired),
        Some(Kind::Script) => script::fix("f", text, desired),
        Some(Kind::Unit) => unit::fix(&Files { name: "f", text, drop_ins: &[] }, desired),
    }
}

/// Every program of a text, whatever kind of file it is.
fn fixed_by_name(name: &str, text: &str) -> Result<Fixed, Refused> {
    let variables = [("V".to_owned(), "1 2".to_owned())].into();
    let desired = Desired { library: Some("/l.so".to_owned()), variables, ..desired("ebbmalloc") };
    match name {
        "main.rs" => source::fix(name, text, CRATES[0], "so").map(|it| it.fixed),
        "supervisord.conf" => supervisor::fix(name, text, &|it| it.name == "a", &desired),
        _ => script::fix(name, text, &desired),
    }
}

#[track_caller]
fn assert_fixed(name: &str, text: &str, expected: &str) {
    let after = apply(text, &fixed_by_name(name, text).unwrap().edits);
    assert_eq!(after, expected);
    assert_eq!(fixed_by_name(name, &after).unwrap().edits, [], "{after}");
}

/// Each case of `tests.cases`: `== NAME: FILE ==`, a text, and what it becomes.
#[test]
fn each_text_becomes_what_its_case_says() {
    for case in include_str!("tests.cases").split("\n== ") {
        let (heading, text) = case.split_once(" ==\n").unwrap();
        let (before, after) = text.split_once("-- becomes --\n").unwrap();
        println!("{heading}");
        assert_fixed(heading.rsplit(' ').next().unwrap(), before, &format!("{}\n", after.trim_end()));
    }
}

#[test]
fn line_ends_and_a_missing_last_one_stay() {
    let exports = "export LD_PRELOAD=/l.so${LD_PRELOAD:+:$LD_PRELOAD}\r\nexport V='1 2'\r\n";
    assert_fixed("run.sh", "#!/bin/sh\r\nexec app\r\n", &format!("#!/bin/sh\r\n{exports}exec app\r\n"));
    let exports = exports.replace('\r', "");
    assert_fixed("run.sh", "#!/bin/sh", &format!("#!/bin/sh\n{}", exports.trim_end()));
    let section = "[program:a]\r\n  command = x";
    let option = "\r\n  environment = LD_PRELOAD=\"/l.so\",V=\"1 2\"";
    assert_fixed("supervisord.conf", section, &format!("{section}{option}"));
}

#[test]
fn what_has_the_last_word_or_is_of_its_own_kind_is_refused() {
    let deep = format!("fn main() {{ {} }}", "(".repeat(100_000));
    for (name, text) in [
        ("run.sh", "if x; then export LD_PRELOAD=/x.so; fi\nexec app\n"),
        ("run.sh", "export LD_PRELOAD=/x.so\nexport LD_PRELOAD=/y.so\nexec app\n"),
        ("run.sh", "LD_PRELOAD=/x.so exec app\n"),
        ("run.sh", "B=1 LD_PRELOAD=/x.so\nexec app\n"),
        ("run.sh", "exec env LD_PRELOAD=/x.so app\n"),
        ("run.sh", "f() {\n  exec env LD_PRELOAD=/x.so app\n}\nf\n"),
        ("run.sh", "export LD_PRELOAD=\"$(find / -name x.so)\"\nexec app\n"),
        ("run.sh", "#!/usr/bin/python3\nimport os\n"),
        ("run.sh", "echo \"\n"),
        ("main.rs", "#[global_allocator]\nstatic A: Counting<System> = Counting::new(System);\nfn main() {}\n"),
        ("main.rs", "#[global_allocator]\nstatic A: Jemalloc = Jemalloc;\nfn main() {}\n"),
        ("main.rs", "#![no_std]\nfn main() {}\n"),
        ("main.rs", "mod a { #[global_allocator]\nstatic A: X = X; }\nfn main() {}\n"),
        ("main.rs", "fn main() {"),
        ("main.rs", &deep),
    ] {
        let message = fixed_by_name(name, text).unwrap_err().to_string();
        assert!(message.contains("nothing was changed"), "{text}: {message}");
    }
}

#[test]
fn the_crate_of_the_allocator_before_is_known() {
    let text = "use tikv_jemallocator::Jemalloc;\n#[global_allocator]\nstatic A: Jemalloc = Jemalloc;\nfn main() {}\n";
    let changed = source::fix("main.rs", text, CRATES[0], "so").unwrap();
    assert_eq!(changed.before, Some(CRATES[1]));
    assert!(!source::uses(&apply(text, &changed.fixed.edits), CRATES[1]));
}

const KINDS: [Kind; 6] = [Kind::Compose, Kind::Kubernetes, Kind::Procfile, Kind::Unit, Kind::Supervisor, Kind::Script];

fn keeps_lines(before: &str, after: &str) -> bool {
    let mut rest = after.lines();
    before.lines().all(|line| rest.any(|it| it == line))
}

fn proposed(kind: Option<Kind>, text: &str, desired: &Desired) -> Result<Fixed, TestCaseError> {
    fixed(kind, text, desired).map_err(|it| TestCaseError::fail(format!("{it}: {text}")))
}

/// What the changes promise for a text in which nothing is replaced.
fn assert_kept(kind: Option<Kind>, text: &str, desired: &Desired) -> Result<(), TestCaseError> {
    let after = apply(text, &proposed(kind, text, desired)?.edits);
    prop_assert!(keeps_lines(text, &after), "{}\n---\n{}", text, after);
    prop_assert!(proposed(kind, &after, desired)?.edits.is_empty(), "{}", after);
    let Some(kind) = kind else { return Ok(()) };
    let services = declared::services(kind, std::path::Path::new("f"), &after);
    for service in services.map_err(TestCaseError::fail)? {
        let value = service.variable("LD_PRELOAD").and_then(|it| it.value.clone());
        prop_assert!(value.is_some_and(|it| !it.is_empty()), "{}: {}", service.name, after);
    }
    Ok(())
}

/// Pieces that mean something somewhere, put together at random.
fn fragments() -> impl Strategy<Value = String> {
    // Separated by §.
    const SCRAPS: &str = "\
        FROM a\n§FROM §ENV §LD_PRELOAD=§LD_PRELOAD§\\\n§\"§'§ §\n§\r\n§#§# c\n§RUN <<E\n§E\n§services:\n§  a:\n§\
        \x20   environment:\n§      - §{§}§[§]§,§: §:§- §&x §*x§|\n§>-\n§apiVersion: v1\nkind: Pod\n§spec:\n§\
        containers:\n§env:\n§name: x\n§value: y\n§---\n§...\n§[Service]\n§ExecStart=§Environment=§web: §export §;§&&§\
        $§${§=§ü§\u{feff}§\0§\t§<<: *x\n§? §! §%§[program:a]\n§command=x\n§environment=§A=\"1\"§  B=2,\n§%(x)s§;§\
        #!/bin/sh\n§set -e\n§export LD_PRELOAD=a.so\n§if x; then\n§fi\n§case x in\n§a) §esac\n§$(§(§)§`§exec §<<§<<-§\
        |§\r§[package]\n§[dependencies]\n§mimalloc§ = \"1\"\n§fn main() {}\n§#[global_allocator]\n§\
        static A: X = X;\n§use a::b;\n";
    prop::collection::vec(select(SCRAPS.split('§').collect::<Vec<_>>()), 0..40).prop_map(|it| it.concat())
}

fn dockerfile_text() -> impl Strategy<Value = String> {
    // Separated by §.
    const LINES: &str = "\
        RUN make \\\n    # why\n    && make install§RUN apt-get install -y \\\n    a \\\n    b§COPY . /app§\
        ENV A=1 \\\n    B=\"2 3\"§USER app§USER root§WORKDIR /app§EXPOSE 80§LABEL a=b§§# comment§ARG X=1§\
        RUN <<E\n# in\nmake\nE§HEALTHCHECK NONE§VOLUME /data§  run echo x§ONBUILD RUN x§STOPSIGNAL TERM";
    const BASES: &str = "debian:12 ubuntu:24.04 alpine:3.20 python:3.12-slim-bookworm example.com/x";
    let bases = select(BASES.split(' ').collect::<Vec<_>>());
    let lines = select(LINES.split('§').collect::<Vec<_>>());
    let stage = (bases, prop::collection::vec(lines, 0..8)).prop_map(|(base, lines)| {
        let lines: String = lines.iter().map(|line| format!("{line}\n")).collect();
        format!("FROM {base}\n{lines}")
    });
    const ENDS: &[&str] = &["", "CMD [\"app\"]\n", "CMD app", "\n# start\nENTRYPOINT [\"app\"]\n"];
    let end = select(ENDS);
    (prop::collection::vec(stage, 1..4), end, any::<bool>())
        .prop_map(|(stages, end, dos)| with_line_ends(stages.concat() + end, dos))
}

/// Two texts, in one order or the other.
fn either_way(first: bool, one: &str, other: &str) -> String {
    if first { format!("{one}{other}") } else { format!("{other}{one}") }
}

fn with_line_ends(text: String, dos: bool) -> String {
    if dos { text.replace('\n', "\r\n") } else { text }
}

fn compose_text() -> impl Strategy<Value = String> {
    const ENVIRONMENTS: &[&str] = &[
        "",
        "    environment:\n      A: 1 # c\n\n      B: \"x\"\n",
        "    environment:\n    - A=1\n    - 'B=2'\n",
        "    environment: {A: 1}\n",
        "    environment: [A=1, \"B=2\"]\n",
        "    environment:\n",
        "    environment: {}\n",
        "    environment:\n      A: |\n        x\n\n        y\n\n",
    ];
    const VOLUMES: &[&str] = &["", "    volumes:\n    - ./a:/a\n", "    volumes: [\"a:/b\"]\n"];
    const OTHERS: &[&str] = &[
        "    ports:\n      - \"1:1\"\n",
        "    # comment\n",
        "\n",
        "    command: x\n",
        "    labels: {a: b}\n",
        "    image: ü # x\n",
    ];
    let others = prop::sample::subsequence(OTHERS, 0..6);
    let service = (select(ENVIRONMENTS), select(VOLUMES), others, any::<bool>());
    (prop::collection::vec(service, 1..4), any::<bool>()).prop_map(|(services, ends)| {
        let services = services.into_iter().zip(["a", "b", "c"]);
        let text = services.map(|((environment, volumes, others, first), name)| {
            let others = format!("{volumes}{}", others.concat());
            let keys = either_way(first, environment, &others);
            format!("  {name}:\n    restart: always\n{keys}")
        });
        let end = if ends { "volumes:\n  a: {}\n" } else { "# end" };
        format!("# head\nservices:\n{}{end}", text.collect::<String>())
    })
}

fn manifest_text() -> impl Strategy<Value = String> {
    const ENVS: &[&str] = &[
        "",
        "        env:\n        - name: A\n          value: \"1\"\n",
        "        env:\n          - name: A\n            value: b # c\n",
        "        env: []\n",
        "        env: [{name: A, value: b}]\n",
        "        env:\n",
    ];
    const REST: &[&str] = &[
        "",
        "      volumes:\n      - name: x\n        emptyDir: {}\n",
        "      initContainers:\n        - name: i\n          image: j\n",
        "      # end\n",
    ];
    let container = (select(ENVS), any::<bool>()).prop_map(|(env, mounts)| {
        let mounts = if mounts { "        volumeMounts:\n        - {name: x, mountPath: /x}\n" } else { "" };
        format!("      - name: c\n        image: d\n{env}{mounts}")
    });
    (prop::collection::vec(container, 1..3), select(REST), select(REST)).prop_map(|(containers, first, second)| {
        let second = if first == second { "" } else { second };
        let spec = format!("      containers:\n{}{first}{second}", containers.concat());
        format!("apiVersion: apps/v1\nkind: Deployment\nmetadata:\n  name: x\nspec:\n  template:\n    spec:\n{spec}---\n# more\na: 1\n")
    })
}

fn supervisor_text() -> impl Strategy<Value = String> {
    const ENVIRONMENTS: &[&str] = &[
        "",
        "environment=A=1\n",
        "environment = A=\"1,2\", B='3' ; c\n",
        "environment=\n",
        "environment: A=\"x\",\n",
        "environment=\n    A=\"%(here)s\",\n    ; c\n    B=\"100%%\"\n",
        "ENVIRONMENT=A=1\nenvironment=B=2;C=3\n",
    ];
    const OTHERS: &[&str] = &[
        "command=app --x\n  --y ; z\n", "user = nobody\n", "; comment\n", "\n", "stdout_logfile = /x%%y\n",
        "# environment=B=1\n", "autorestart=true\n",
    ];
    const HEADS: &[&str] = &[
        "",
        "[supervisord]\nnodaemon=true\n\n",
        "; ü\n[supervisord]\nenvironment=A=\"0\",D=4\n",
        "[unix_http_server]\nfile = /s\n\n[include]\nfiles = c/*.conf\n",
    ];
    let program = (
        select(&["program", "fcgi-program", "eventlistener"][..]),
        select(ENVIRONMENTS),
        prop::sample::subsequence(OTHERS, 0..7),
        any::<bool>(),
    );
    let programs = prop::collection::vec(program, 0..3);
    (select(HEADS), programs, any::<bool>(), any::<bool>()).prop_map(|(head, programs, dos, ends)| {
        let mut text = format!("{head}[program:z]\ncommand=z\n");
        for (number, (kind, environment, others, first)) in programs.into_iter().enumerate() {
            let options = either_way(first, environment, &others.concat());
            text += &format!("[{kind}:{number}]\n{options}");
        }
        if ends {
            text.truncate(text.trim_end().len());
        }
        with_line_ends(text, dos)
    })
}

fn script_text() -> impl Strategy<Value = String> {
    const HEADS: &[&str] = &[
        "",
        "#!/bin/sh\n",
        "#!/usr/bin/env bash\n# why\n#\n\n",
        "#!/bin/bash -e\n\nset -euo pipefail\n",
        "# no shebang\nset -e # c\n\n# d\n",
    ];
    const LINES: &[&str] = &[
        "mkdir -p /x\n",
        "if [ -n \"$A\" ]; then\n    export B=1\nfi\n",
        "cat > /c <<EOF\nexport LD_PRELOAD=/no.so\n$X `y`\nEOF\n",
        "case \"$1\" in\n  -*) set -- app \"$@\" ;;\nesac\n",
        "f() {\n\techo \"it's $(g 'h' | wc -l)\"\n}\n",
        "\n",
        "# LD_PRELOAD=/no.so\n",
        "export C='a b' D\n",
        "for x in 1 2; do echo $((x << 2)); done\n",
        "(cd /x && a) || true\n",
        "[ \"$(id -u)\" = 0 ] && exec gosu app \"$0\" \"$@\"\n",
    ];
    const ENDS: &[&str] = &["exec \"$@\"\n", "exec app", "f \"$@\"\n", "exec gosu app app \\\n  --x\n", ""];
    let lines = prop::collection::vec(select(LINES), 0..6);
    (select(HEADS), lines, select(ENDS), any::<bool>())
        .prop_map(|(head, lines, end, dos)| with_line_ends(format!("{head}{}{end}", lines.concat()), dos))
}

const NAMES: &[&str] = &["ebbmalloc", "jemalloc"];

proptest! {
    #[test]
    fn no_text_makes_anything_panic(text in fragments(), name in select(&["ebbmalloc", "jemalloc", "glibc"][..])) {
        for kind in KINDS.map(Some).into_iter().chain([None]) {
            if let Ok(fixed) = fixed(kind, &text, &desired(name)) {
                let after = apply(&text, &fixed.edits);
                super::edit::lines(&text, &fixed.edits);
                super::edit::diff("f", Some(&text), &after);
            }
        }
        if let Ok(manifest) = Manifest::parse("f", &text) {
            let _ = manifest.fix(CRATES[0], &[CRATES[2]], &Own::Path("p".to_owned()), "w");
        }
        let _ = source::fix("f", &text, CRATES[0], "w");
    }

    #[test]
    fn a_dockerfile_keeps_its_lines(text in dockerfile_text(), name in select(NAMES)) {
        assert_kept(None, &text, &desired(name))?;
    }

    #[test]
    fn a_compose_file_keeps_its_lines(text in compose_text(), name in select(NAMES)) {
        // A line in brackets, and a last one without an end, grows.
        if !text.contains("environment: {") && !text.contains("environment: [") && !text.contains("volumes: [") {
            assert_kept(Some(Kind::Compose), &text, &desired(name))?;
        }
        let after = apply(&text, &proposed(Some(Kind::Compose), &text, &desired(name))?.edits);
        prop_assert!(proposed(Some(Kind::Compose), &after, &desired(name))?.edits.is_empty());
    }

    /// The existing text stays byte for byte: there are only insertions.
    #[test]
    fn a_supervisors_file_keeps_what_it_has(text in supervisor_text(), name in select(NAMES)) {
        let first = proposed(Some(Kind::Supervisor), &text, &desired(name))?;
        prop_assert!(!first.edits.is_empty());
        prop_assert!(first.edits.iter().all(|it| it.at.is_empty()), "{}", text);
        let after = apply(&text, &first.edits);
        prop_assert!(proposed(Some(Kind::Supervisor), &after, &desired(name))?.edits.is_empty(), "{}", after);
        let programs = declared::supervisor::programs(&after).map_err(TestCaseError::fail)?;
        for program in programs {
            let own = program.own.as_ref().and_then(|it| it.pair("LD_PRELOAD"));
            prop_assert!(own.is_some_and(|it| it.value.is_some()), "{}", after);
        }
    }

    #[test]
    fn a_script_keeps_its_lines(text in script_text(), name in select(NAMES)) {
        prop_assume!(!text.is_empty());
        assert_kept(Some(Kind::Script), &text, &desired(name))?;
    }

    #[test]
    fn a_manifest_keeps_its_lines(text in manifest_text(), name in select(NAMES)) {
        if text.contains("env: [") {
            let after = apply(&text, &proposed(Some(Kind::Kubernetes), &text, &desired(name))?.edits);
            prop_assert!(proposed(Some(Kind::Kubernetes), &after, &desired(name))?.edits.is_empty());
        } else {
            assert_kept(Some(Kind::Kubernetes), &text, &desired(name))?;
        }
    }
}
