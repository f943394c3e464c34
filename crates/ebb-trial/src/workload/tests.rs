//! What is read and what is refused, with the message that a person sees.

use super::*;

const MINIMAL: &str = r#"
format = 1
[workload]
name = "tiny"
[vars]
rest = 0.5
size = 10
[cycles]
rounds = 4
[service]
command = ["./service", "--port", "{port}", "--size", "{size}"]
ready = { http = "http://127.0.0.1:{port}/health" }
[[phase]]
name = "burst"
kind = "burst"
cycle = "rounds"
command = ["./load"]
[[phase]]
name = "rest"
kind = "idle"
cycle = "rounds"
seconds = "{rest}"
[profile.quick]
repetitions = 2
variants = ["glibc", "jemalloc"]
vars = { rest = 0.1 }
cycles = { rounds = 1 }
"#;

fn parse(text: &str, profile: Option<&str>) -> Result<Workload, String> {
    Workload::parse(text, Path::new("workload.toml"), PathBuf::from("/w"), profile)
}

#[test]
fn a_variant_may_be_another_program_with_its_allocator_inside() {
    let inside = "[variants.inside]\nallocator = \"ebbmalloc\"\nlinked = true\n\
                  command = [\"./other\", \"{port}\"]\n";
    let workload = parse(&format!("{MINIMAL}{inside}"), None).unwrap();
    let variant = &workload.variants["inside"];
    assert_eq!((variant.linked, variant.command.as_ref().unwrap().len()), (true, 2));
    for (from, to, expected) in [
        ("ebbmalloc", "tcmalloc", "cannot recognise allocator"),
        ("{port}", "{prot}", "prot"),
        ("\"./other\", \"{port}\"", "", "a command is empty"),
    ] {
        let message = parse(&format!("{MINIMAL}{}", inside.replace(from, to)), None).unwrap_err();
        assert!(message.contains(expected), "{message}");
    }
}

#[test]
fn a_profile_overrides_what_it_names_and_nothing_else() {
    let full = parse(MINIMAL, None).unwrap();
    assert_eq!((full.cycles["rounds"], full.vars()["rest"].as_str()), (4, "0.5"));
    assert_eq!(full.repetitions, None);
    let quick = parse(MINIMAL, Some("quick")).unwrap();
    assert_eq!((quick.cycles["rounds"], quick.vars()["rest"].as_str()), (1, "0.1"));
    assert_eq!(quick.vars()["size"], "10");
    assert_eq!(quick.repetitions, Some(2));
    assert_eq!(quick.chosen_variants.unwrap(), ["glibc", "jemalloc"]);
}

#[test]
fn what_cannot_be_run_is_refused_with_a_reason() {
    let cases = [
        ("format = 1", "format = 9", "format = 9 is not supported"),
        ("\"{size}\"", "\"{sise}\"", "{sise} is not known here"),
        ("kind = \"idle\"", "kind = \"load\"", "a loaded phase has a `command`"),
        ("seconds = \"{rest}\"", "seconds = \"{rest}x\"", "is not a time"),
        ("cycle = \"rounds\"", "cycle = \"sounds\"", "has no number for \"sounds\""),
        ("name = \"tiny\"", "nome = \"tiny\"", "unknown field `nome`"),
        ("command = [\"./load\"]", "command = []", "a command is empty"),
        ("[profile.quick]", "[trim]\n[profile.quick]", "[trim] needs http or command"),
        (
            "command = [\"./load\"]",
            "command = [\"./load\"]\nask = { http = \"http://x/\" }",
            "only an idle phase has `ask`",
        ),
        ("seconds = \"{rest}\"", "seconds = 1\nask = { method = \"GET\" }", "`ask` needs http or command"),
    ];
    for (from, to, expected) in cases {
        let message = parse(&MINIMAL.replacen(from, to, 1), None).unwrap_err();
        assert!(message.contains(expected), "{to}: {message}");
    }
}

#[test]
fn a_workload_without_a_rest_after_the_load_and_an_unknown_profile_are_refused() {
    let (head, tail) = MINIMAL.split_once("[[phase]]\nname = \"rest\"").unwrap();
    let (_, profile) = tail.split_once("[profile.quick]").unwrap();
    let message = parse(&format!("{head}[profile.quick]{profile}"), None).unwrap_err();
    assert!(message.contains("no idle phase after a load"), "{message}");
    assert!(parse(MINIMAL, Some("demo")).unwrap_err().contains("it has: quick"));
}

#[test]
fn each_kind_of_readiness_is_read() {
    for ready in ["{ tcp = \"127.0.0.1:{port}\" }", "{ command = [\"true\"] }", "{ line = \"listening on [0-9]{4}\" }"]
    {
        let text = MINIMAL.replace("{ http = \"http://127.0.0.1:{port}/health\" }", ready);
        parse(&text, None).unwrap();
    }
}
