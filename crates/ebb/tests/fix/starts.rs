//! What was written is started for real: a Procfile's line by a shell, a unit's environment, programs by supervisord, a
//! script, a Rust program by Cargo.

use std::collections::BTreeMap;
use std::fs;
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use ebb_deploy::check::declared::supervisor;
use test_needs::needs;

use crate::harness::{ebb, ebbmalloc, output, stderr, stdout};
use crate::{Place, assert_code};

/// The command of the only process type.
fn command(place: &Place) -> String {
    let text = place.read("Procfile");
    text.trim_end().split_once(": ").expect("TYPE: COMMAND").1.to_owned()
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
        assert_code(&place.fix(&["Procfile", "--write", "--library", library.to_str().unwrap()]), 0);
        for shell in ["sh", "bash"] {
            let maps = stdout(&output(Command::new(shell).args(["-c", &command(&place)]).env_remove("LD_PRELOAD")));
            assert!(maps.contains("libebbmalloc.so"), "{shell}: {}", place.read("Procfile"));
        }
    }
}

/// Where systemd is, it reads what was written; elsewhere the drop-in's words are given to a process as systemd would.
#[test]
fn a_unit_with_its_drop_in_is_one_that_systemd_takes() {
    let library = ebbmalloc();
    let place = Place::with(&[("app.service", "[Service]\nExecStart=/bin/cat /proc/self/maps\n")]);
    let arguments = ["app.service", "--write", "--library", library.to_str().unwrap(), "--env", "A=b c 100%"];
    assert_code(&place.fix(&arguments), 0);
    let drop_in = place.read("app.service.d/ebbmalloc.conf");
    let words = drop_in.lines().filter_map(|it| it.strip_prefix("Environment="));
    let words: Vec<String> =
        words.flat_map(|it| shlex::split(it).expect("words")).map(|it| it.replace("%%", "%")).collect();
    let maps =
        stdout(&output(Command::new("env").args(&words).args(["sh", "-c", "cat /proc/self/maps; echo \"A=$A\""])));
    assert!(maps.contains("libebbmalloc.so"), "{drop_in}");
    assert!(maps.ends_with("A=b c 100%"), "{drop_in}");
    if let Ok(verified) =
        Command::new("systemd-analyze").args(["verify", "--man=no"]).arg(place.path("app.service")).output()
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
        ("Cargo.toml", "[package]\nname = \"fixed\"\nversion = \"0.1.0\"\nedition = \"2024\"\n\n[workspace]\n"),
        ("src/main.rs", source),
    ]);
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("crates").join("ebbmalloc");
    assert_code(&place.fix(&["Cargo.toml", "--write", "--crate-path", path.to_str().unwrap()]), 0);
    // The workspace's own versions, which are there already.
    fs::copy(path.ancestors().nth(2).expect("the workspace").join("Cargo.lock"), place.path("Cargo.lock")).unwrap();
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

/// A real supervisord that reads a file, on a socket of its own, ended with the test.
struct Supervisord(Child);

impl Supervisord {
    fn start(place: &Place, file: &str) -> Self {
        let mut command = Command::new("supervisord");
        command
            .args(["--nodaemon", "--configuration", file])
            .current_dir(place.path(""))
            .env_remove("LD_PRELOAD")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        Self(command.spawn().expect("supervisord"))
    }

    /// The process of the program that has written its number into the file.
    fn program(&mut self, place: &Place, file: &str) -> String {
        let deadline = Instant::now() + Duration::from_secs(60);
        loop {
            let text = fs::read_to_string(place.path(file)).unwrap_or_default();
            if text.ends_with('\n') {
                return text.trim().to_owned();
            }
            let ended = self.0.try_wait().expect("a child");
            let log = fs::read_to_string(place.path("log")).unwrap_or_default();
            assert!(ended.is_none(), "supervisord ended: {ended:?} {log}");
            assert!(Instant::now() < deadline, "no {file}: {log}");
            sleep(Duration::from_millis(20));
        }
    }
}

impl Drop for Supervisord {
    fn drop(&mut self) {
        // It ends its programs when it is asked to end.
        let pid = self.0.id().to_string();
        let _ = Command::new("kill").args(["-TERM", &pid]).status();
        let deadline = Instant::now() + Duration::from_secs(30);
        while self.0.try_wait().is_ok_and(|it| it.is_none()) && Instant::now() < deadline {
            sleep(Duration::from_millis(20));
        }
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A daemon with a program for each way to write `environment`; each writes its number and its variables, then waits.
fn supervised(environments: &[&str]) -> Place {
    let mut text =
        "[unix_http_server]\nfile=%(here)s/socket\n[supervisord]\nlogfile=%(here)s/log\npidfile=%(here)s/pid\n\
                    childlogdir=%(here)s\nenvironment=SHARED=\"s\"\n"
            .to_owned();
    for (number, environment) in environments.iter().enumerate() {
        text += &format!(
            "\n[program:p{number}]\ncommand=sh run.sh {number} ; waits\ndirectory=%(here)s\n{environment}startsecs=0\n"
        );
    }
    let script = "env > env.$1\necho $$ > n.$1\nmv n.$1 pid.$1\nexec sleep 120\n";
    Place::with(&[("supervisord.conf", &text), ("run.sh", script)])
}

#[test]
fn a_supervisord_starts_its_programs_on_the_library() {
    needs!("supervisor");
    let place = supervised(&[
        "",
        "environment=A=\"1,2\",B='x y' ; c\n",
        "environment =\n    A=\"100%%\",\n    ; B=\"2\",\n    C=3,\n",
        "environment=LD_PRELOAD=\"libnone.so\"\n",
        "environment=\n",
        "",
    ]);
    let library = ebbmalloc();
    let mut arguments = vec!["supervisord.conf", "--write", "--env", "D=50% a,b='c' d"];
    arguments.extend(["--library", library.to_str().unwrap()]);
    for name in ["p0", "p1", "p2", "p3", "p4"] {
        arguments.extend(["--service", name]);
    }
    assert_code(&place.fix(&arguments), 0);
    let mut daemon = Supervisord::start(&place, "supervisord.conf");
    for number in 0..5 {
        let pid = daemon.program(&place, &format!("pid.{number}"));
        let check = output(ebb().args(["check", "-a", "ebbmalloc", &pid]));
        assert_code(&check, 0);
        let maps = fs::read_to_string(format!("/proc/{pid}/maps")).expect("maps");
        assert!(maps.contains("libebbmalloc.so"), "{number}: {maps}");
        let env = place.read(&format!("env.{number}"));
        let has = |line: &str| assert!(env.lines().any(|it| it == line), "{number}: {line}: {env}");
        has("D=50% a,b='c' d");
        has("SHARED=s");
        match number {
            1 => ["A=1,2", "B=x y"].map(has).len(),
            2 => ["A=100%", "C=3"].map(has).len(),
            _ => 0,
        };
    }
    // The program that was not named has nothing of it.
    let other = daemon.program(&place, "pid.5");
    let maps = fs::read_to_string(format!("/proc/{other}/maps")).expect("maps");
    assert!(!maps.contains("libebbmalloc.so"), "{maps}");
    let env = place.read("env.5");
    assert!(!env.contains("D=50%") && env.contains("SHARED=s"), "{env}");
}

#[test]
fn a_script_starts_its_program_on_the_library() {
    let library = ebbmalloc();
    for body in [
        "exec cat /proc/self/maps\n",
        "# why\nset -eu\n\nf() {\n  exec \"$@\"\n}\nf cat /proc/self/maps",
        "export LD_PRELOAD=\"libnone.so $LD_PRELOAD\"\ncat /proc/self/maps\n",
        "LD_PRELOAD=libnone.so; export LD_PRELOAD\ncat <<E\nexport LD_PRELOAD=no\nE\ncat /proc/self/maps\n",
        "LD_PRELOAD=libnone.so\nexec env A=1 cat /proc/self/maps\n",
    ] {
        for (interpreter, inherited) in [("sh", ""), ("bash", "libother.so")] {
            let text = format!("#!/usr/bin/env {interpreter}\n{body}");
            let place = Place::with(&[("run.sh", &text)]);
            let path = place.path("run.sh");
            fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).expect("a mode");
            let arguments = ["run.sh", "--write", "--library", library.to_str().unwrap()];
            assert_code(&place.fix(&arguments), 0);
            let mut command = Command::new(&path);
            command.env_remove("LD_PRELOAD");
            if !inherited.is_empty() {
                command.env("LD_PRELOAD", inherited);
            }
            let started = output(&mut command);
            let (said, warned) = (stdout(&started), stderr(&started));
            assert!(said.contains("libebbmalloc.so"), "{}: {said}", place.read("run.sh"));
            // The loader says what it was asked for and does not find: libraries that were there stay in the list.
            for kept in [inherited, if body.contains("libnone") { "libnone.so" } else { "" }] {
                let is_own = kept == "libother.so" && body.contains("LD_PRELOAD=libnone.so");
                assert!(is_own || warned.contains(kept), "{kept}: {warned}");
            }
        }
    }
}

/// The reader of `environment` agrees with supervisor's own.
#[test]
fn supervisor_reads_what_the_reader_reads() {
    needs!("supervisor");
    const READ: &str = "import sys\nfrom supervisor.options import UnhosedConfigParser, expand\n\
        from supervisor.datatypes import dict_of_key_value_pairs as pairs\n\
        for text in sys.stdin.read().split('\\1'):\n\
        \x20try:\n\
        \x20 p = UnhosedConfigParser(); p.read_string(text)\n\
        \x20 for s in p.sections():\n\
        \x20  if s.startswith('program:'):\n\
        \x20   e = p.get(s, 'environment') if p.has_option(s, 'environment') else ''\n\
        \x20   print(s, sorted(pairs(expand(e, {}, 'e')).items()))\n\
        \x20except Exception as e: print('refused')\n\
        \x20print('--')\n";
    let texts = configurations();
    let mut python = Command::new("/usr/bin/python3")
        .args(["-c", READ])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("python3");
    let mut stdin = python.stdin.take().expect("a pipe");
    stdin.write_all(texts.join("\u{1}").as_bytes()).expect("a pipe");
    drop(stdin);
    let said = python.wait_with_output().expect("python3");
    let said = String::from_utf8(said.stdout).expect("UTF-8");
    let theirs: Vec<&str> = said.split_terminator("--\n").collect();
    assert_eq!(theirs.len(), texts.len());
    for (text, theirs) in texts.iter().zip(theirs) {
        let ours = match supervisor::programs(text) {
            Ok(programs) => programs.iter().map(shown).collect(),
            Err(_) => "refused\n".to_owned(),
        };
        assert_eq!(ours, theirs, "{text}");
    }
}

/// As Python shows it.
fn shown(program: &supervisor::Program) -> String {
    let own = program.own.iter().flat_map(|it| &it.pairs);
    let pairs: BTreeMap<&str, &str> = own.map(|it| (it.name.as_str(), it.value.as_deref().unwrap_or("?"))).collect();
    let pairs: Vec<String> = pairs.iter().map(|(name, value)| format!("('{name}', '{value}')")).collect();
    format!("program:{} [{}]\n", program.service.name, pairs.join(", "))
}

/// Every sequence of a few pieces that mean something, as the end of a file.
fn configurations() -> Vec<String> {
    const PIECES: [&str; 12] =
        ["A=1", "B=", ",", "\"x y\"", " ", "\n  ", "\n", " ;", "%%", "C='2'", "/l.so", "environment="];
    let mut all = vec![String::new()];
    let mut found = Vec::new();
    for _ in 0..3 {
        all = all.iter().flat_map(|it| PIECES.map(|piece| format!("{it}{piece}"))).collect();
        let texts = all.iter().map(|it| format!("[program:a]\nenvironment={it}\n"));
        found.extend(texts);
    }
    found
}
