//! What was written is started for real: a Procfile's line by a shell, a unit's environment, a Rust program by Cargo.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use crate::harness::{ebb, ebbmalloc, output, stderr, stdout};
use crate::{Place, assert_code};

/// The command of the only process type.
fn command(place: &Place) -> String {
    let text = place.read("Procfile");
    text.trim_end()
        .split_once(": ")
        .expect("TYPE: COMMAND")
        .1
        .to_owned()
}

#[test]
fn a_procfile_starts_its_processes_on_the_library() {
    let library = ebbmalloc();
    for line in [
        "web: cat /proc/self/maps",
        "web: cd / && A=1 && exec cat proc/self/maps",
        "web: LD_PRELOAD=libnone.so cat /proc/self/maps",
    ] {
        let place = Place::with(&[("Procfile", &format!("{line}\n"))]);
        assert_code(
            &place.fix(&[
                "Procfile",
                "--write",
                "--library",
                library.to_str().unwrap(),
            ]),
            0,
        );
        for shell in ["sh", "bash"] {
            let maps = stdout(&output(
                Command::new(shell)
                    .args(["-c", &command(&place)])
                    .env_remove("LD_PRELOAD"),
            ));
            assert!(
                maps.contains("libebbmalloc.so"),
                "{shell}: {}",
                place.read("Procfile")
            );
        }
    }
}

/// Where systemd is, it reads what was written; elsewhere the drop-in's words are given to a process as systemd would.
#[test]
fn a_unit_with_its_drop_in_is_one_that_systemd_takes() {
    let library = ebbmalloc();
    let place = Place::with(&[(
        "app.service",
        "[Service]\nExecStart=/bin/cat /proc/self/maps\n",
    )]);
    let arguments = [
        "app.service",
        "--write",
        "--library",
        library.to_str().unwrap(),
        "--env",
        "A=b c 100%",
    ];
    assert_code(&place.fix(&arguments), 0);
    let drop_in = place.read("app.service.d/ebbmalloc.conf");
    let words = drop_in
        .lines()
        .filter_map(|it| it.strip_prefix("Environment="));
    let words: Vec<String> = words
        .flat_map(|it| shlex::split(it).expect("words"))
        .map(|it| it.replace("%%", "%"))
        .collect();
    let maps = stdout(&output(Command::new("env").args(&words).args([
        "sh",
        "-c",
        "cat /proc/self/maps; echo \"A=$A\"",
    ])));
    assert!(maps.contains("libebbmalloc.so"), "{drop_in}");
    assert!(maps.ends_with("A=b c 100%"), "{drop_in}");
    if let Ok(verified) = Command::new("systemd-analyze")
        .args(["verify", "--man=no"])
        .arg(place.path("app.service"))
        .output()
    {
        let said = String::from_utf8_lossy(&verified.stderr).into_owned();
        assert!(!said.contains("ebbmalloc.conf"), "{said}");
    }
}

/// From a package without an allocator, or on another one, to a running program that `ebb check` finds in order.
#[test]
fn a_fixed_package_builds_and_runs_on_ebbmalloc() {
    let source = "use std::io::{Read, Write};\n\nfn main() {\n    println!(\"ready\");\n    std::io::stdout().flush().unwrap();\n    \
                  let _ = std::io::stdin().read(&mut [0; 1]);\n}\n";
    let place = Place::with(&[
        (
            "Cargo.toml",
            "[package]\nname = \"fixed\"\nversion = \"0.1.0\"\nedition = \"2024\"\n\n[workspace]\n",
        ),
        ("src/main.rs", source),
    ]);
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .expect("crates")
        .join("ebbmalloc");
    assert_code(
        &place.fix(&[
            "Cargo.toml",
            "--write",
            "--crate-path",
            path.to_str().unwrap(),
        ]),
        0,
    );
    // The workspace's own versions, which are there already.
    fs::copy(
        path.ancestors()
            .nth(2)
            .expect("the workspace")
            .join("Cargo.lock"),
        place.path("Cargo.lock"),
    )
    .unwrap();
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).join("fixed");
    let built = output(
        Command::new(env!("CARGO"))
            .args(["build", "--quiet", "--offline", "--target-dir"])
            .arg(&target)
            .current_dir(place.path("")),
    );
    assert!(built.status.success(), "{}", stderr(&built));
    let mut program = Command::new(target.join("debug/fixed"))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("the program");
    let mut line = [0; 6];
    std::io::Read::read_exact(program.stdout.as_mut().expect("a pipe"), &mut line).expect("ready");
    let check = output(ebb().args(["check", "-a", "ebbmalloc", &program.id().to_string()]));
    drop(program.stdin.take());
    program.wait().expect("its end");
    assert_code(&check, 0);
}
