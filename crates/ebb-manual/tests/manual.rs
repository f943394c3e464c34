//! The pages and completions as their readers read them: groff, man, bash, zsh, fish.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use tempfile::TempDir;
use test_needs::needs;

fn written() -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    let program = env!("CARGO_BIN_EXE_ebb-manual");
    let status = Command::new(program).arg(folder.path()).status().unwrap();
    assert!(status.success());
    folder
}

/// What the command prints; it succeeds and stderr stays empty.
fn output(command: &mut Command) -> String {
    let output = command.output().unwrap();
    let (stdout, stderr) = [output.stdout, output.stderr].map(|bytes| String::from_utf8(bytes).unwrap()).into();
    assert!(output.status.success() && stderr.is_empty(), "{command:?}\n{stdout}{stderr}");
    stdout
}

fn verbs() -> Vec<String> {
    let command = ebb::cli::command();
    let verbs: Vec<_> = command.get_subcommands().map(|verb| verb.get_name().to_owned()).collect();
    assert!(verbs.len() >= 10, "{verbs:?}");
    verbs
}

fn page(folder: &TempDir, name: &str) -> PathBuf {
    folder.path().join("share/man/man1").join(format!("{name}.1"))
}

#[test]
fn every_verb_has_a_page_and_no_page_is_without_a_verb() {
    let folder = written();
    let pages = fs::read_dir(page(&folder, "ebb").parent().unwrap()).unwrap();
    let mut found: Vec<_> = pages.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    let mut wanted: Vec<_> = verbs().iter().map(|verb| format!("ebb-{verb}.1")).collect();
    wanted.push("ebb.1".to_owned());
    found.sort();
    wanted.sort();
    assert_eq!(found, wanted);
}

#[test]
fn pages_render_without_warnings_and_keep_the_lines_of_examples() {
    needs!("groff-base");
    let folder = written();
    for name in verbs().iter().map(|verb| format!("ebb-{verb}")).chain(["ebb".to_owned()]) {
        let mut groff = Command::new("groff");
        groff.args(["-man", "-ww", "-Tascii", "-rLL=200n", "-P-cbou"]).arg(page(&folder, &name));
        let text = output(&mut groff);
        assert!(text.contains(&format!("{name} - ")), "{text}");
        if let Some(verb) = name.strip_prefix("ebb-") {
            let command = ebb::cli::command();
            let help = command.find_subcommand(verb).unwrap().get_after_help().unwrap();
            for example in help.to_string().lines().skip(1) {
                let rendered: Vec<_> = text.lines().map(str::trim).collect();
                assert!(rendered.contains(&example.trim()), "{example} is not in\n{text}");
            }
        }
    }
}

#[test]
fn man_finds_the_pages_of_an_installation() {
    needs!("groff-base", "man-db");
    let folder = written();
    let mut man = Command::new("man");
    man.env("MANPATH", folder.path().join("share/man"));
    let text = output(man.args(["-P", "cat", "ebb-why"]));
    assert!(text.contains("ebb why"), "{text}");
}

#[test]
fn bash_completes_a_verb_and_an_option() {
    let folder = written();
    let file = folder.path().join("share/bash-completion/completions/ebb");
    let script = r#"source "$1"
        COMP_WORDS=(ebb wh) COMP_CWORD=1; _ebb ebb wh ebb; echo "${COMPREPLY[*]}"
        COMP_WORDS=(ebb trim --dr) COMP_CWORD=2; _ebb ebb --dr trim; echo "${COMPREPLY[*]}""#;
    assert_eq!(shell("bash", script, &file), "why\n--dry-run\n");
}

#[test]
fn fish_completes_a_verb_and_an_option() {
    needs!("fish");
    let folder = written();
    let file = folder.path().join("share/fish/vendor_completions.d/ebb.fish");
    let script = "source $argv[2]; complete -C 'ebb wh'; complete -C 'ebb trim --dr'";
    let text = shell("fish", script, &file);
    let words: Vec<_> = text.lines().filter_map(|line| line.split('\t').next()).collect();
    assert_eq!(words, ["why", "--dry-run"], "{text}");
}

/// Through a terminal: zsh completes only there.
#[test]
fn zsh_completes_a_verb() {
    needs!("zsh");
    let folder = written();
    let functions = folder.path().join("share/zsh/site-functions");
    let script = r#"zmodload zsh/zpty
        zpty shell "zsh -f -i"
        zpty -w shell "fpath=('$1' \$fpath); autoload -Uz compinit; compinit -u -D; PROMPT=; echo READ''Y"
        zpty -r -m shell text '*READY*'
        zpty -w -n shell $'ebb wh\t'
        zpty -r -m shell text '*ebb why*' && echo completed
        zpty -d shell"#;
    assert_eq!(shell("zsh", script, &functions), "completed\n");
}

/// What a script prints that has FILE as its argument, within 20 s.
fn shell(shell: &str, script: &str, file: &Path) -> String {
    let mut command = Command::new("timeout");
    command.args(["20", shell]);
    // Without the configuration of this machine.
    if shell == "zsh" {
        command.arg("-f");
    }
    output(command.args(["-c", script, shell]).arg(file))
}
