//! Programs with CPython inside: one of our own, linked with libpython or opening it, and real ones that do the same.

use std::path::PathBuf;

use super::pythons::{Python, pythons};
use crate::harness::server::{free_port, get, wait_until};
use crate::harness::{Flavour, Run, Scratch, program, program_with, require};
use test_needs::needs;

const SHOW: &str = "import sys; print(sys.getallocatedblocks())";

/// Its libpython, if it has one apart from the program.
fn library_of(python: &Python) -> Option<PathBuf> {
    let asked =
        "import sysconfig; print(*map(sysconfig.get_config_var, ('LIBDIR', 'MULTIARCH', 'INSTSONAME')), sep='\\n')";
    let answer = Run::bare(&python.path).args(["-c", asked]).run().succeeded();
    let lines: Vec<_> = answer.stdout.lines().collect();
    let [folder, architecture, file] = lines[..] else {
        return None;
    };
    [PathBuf::from(folder).join(file), PathBuf::from(folder).join(architecture).join(file)]
        .into_iter()
        .find(|path| path.is_file() && file.contains(".so"))
}

fn libraries() -> Vec<PathBuf> {
    let of_all = pythons();
    let with_lock = of_all.iter().filter(|python| !python.is_free_threaded);
    with_lock.filter_map(library_of).collect()
}

/// What `embed` prints in each of its ways to start. The end of an interpreter sets back its allocators from 3.12 on, so that
/// the next one in the same process (`again`) has CPython's own.
fn expect(run: impl Fn() -> Run, library: &str) {
    for (mode, interpreters, by_malloc) in [
        ("plain", 1, true),
        ("isolated", 1, true),
        ("again", 3, true),
        ("subinterpreters", 4, true),
        ("own", 1, true),
        ("pymalloc", 1, false),
    ] {
        let outcome = run().args([library, mode]).run().passed();
        let blocks: Vec<u64> = outcome.stdout.lines().filter_map(|line| line.parse().ok()).collect();
        assert_eq!(blocks.len(), interpreters, "{mode}: {}", outcome.describe());
        let counted = if mode == "again" { &blocks[..1] } else { &blocks[..] };
        assert!(counted.iter().all(|&number| (number == 0) == by_malloc), "{mode}: {}", outcome.describe());
    }
}

#[test]
fn a_program_linked_with_libpython() {
    for library in libraries() {
        let file = library.to_string_lossy();
        let folder = library.parent().expect("a file has a folder").display();
        let arguments = ["-Wl,--no-as-needed", &file, &format!("-Wl,-rpath,{folder}"), "-ldl"];
        let embed = program_with("embed", Flavour::Plain, &arguments);
        expect(|| Run::preloaded(&embed), "-");
    }
}

#[test]
fn a_program_that_opens_libpython() {
    let embed = program("embed", Flavour::Plain);
    for library in libraries() {
        expect(|| Run::preloaded(&embed), &library.to_string_lossy());
    }
}

/// A library that has been there for a while may have objects of its own allocator, though no interpreter runs.
#[test]
fn a_libpython_that_is_opened_again_keeps_its_allocator() {
    let embed = program_with("embed", Flavour::Plain, &["-ldl"]);
    for library in libraries() {
        let folder = library.parent().expect("a file has a folder");
        let outcome = Run::preloaded(&embed)
            .env("LD_LIBRARY_PATH", folder)
            .args([library.as_os_str(), "reopened".as_ref()])
            .run()
            .passed();
        let blocks = outcome.stdout.lines().map_while(|line| line.parse().ok());
        let blocks: Vec<u64> = blocks.collect();
        assert!(blocks.len() == 3 && !blocks.contains(&0), "{}", outcome.describe());
    }
}

#[test]
fn gdb() {
    needs!("gdb");
    let script = format!("python {SHOW}");
    let outcome = Run::witnessed(require("gdb", "gdb"))
        .args(["-nx", "-batch", "-ex", &script])
        .run()
        .succeeded()
        .in_charge_of("gdb");
    assert_eq!(outcome.stdout.trim(), "0", "{}", outcome.describe());
}

#[test]
fn vim() {
    needs!("vim-nox");
    let scratch = Scratch::new();
    let out = scratch.path().join("blocks");
    let script = format!("py3 import sys; open('{}', 'w').write(str(sys.getallocatedblocks()))", out.display());
    Run::witnessed(require("vim.nox", "vim-nox"))
        .args(["-u", "NONE", "-es", "-c", &script, "-c", "qall!"])
        .run()
        .succeeded()
        .in_charge_of("vim");
    assert_eq!(std::fs::read_to_string(out).expect("vim wrote it"), "0");
}

const APPLICATION: &str = "import sys
def application(env, start):
    start('200 OK', [])
    return [str(sys.getallocatedblocks()).encode()]
";

/// Several times, so that more than one worker answers.
fn answers_zero(port: u16) {
    wait_until("the server answers", || get(port, "/").is_some());
    for _ in 0..10 {
        assert_eq!(get(port, "/").as_deref(), Some("0"));
    }
}

/// Opens its plugin, which is linked with libpython, and forks its workers from a started interpreter.
#[test]
fn uwsgi() {
    needs!("uwsgi-plugin-python3");
    let scratch = Scratch::new();
    let file = scratch.file("app.py", APPLICATION);
    let port = free_port();
    let server = Run::preloaded(require("uwsgi", "uwsgi-core"))
        .args("--plugin python3 --need-app --master --processes 2 --http-socket".split(' '))
        .arg(format!("127.0.0.1:{port}"))
        .arg("--wsgi-file")
        .arg(&file)
        .spawn();
    answers_zero(port);
    drop(server);
}

/// Its module is linked with libpython; sub-interpreters run the applications.
#[test]
fn mod_wsgi() {
    needs!("apache2-bin", "libapache2-mod-wsgi-py3");
    let scratch = Scratch::new();
    let folder = scratch.path().display();
    let file = scratch.file("app.wsgi", APPLICATION);
    let port = free_port();
    let modules = "/usr/lib/apache2/modules";
    let file = file.display();
    let configuration = format!(
        "ServerRoot {folder}\nServerName localhost\nListen 127.0.0.1:{port}\n\
         PidFile {folder}/pid\nErrorLog {folder}/errors\nDefaultRuntimeDir {folder}\n\
         LoadModule mpm_event_module {modules}/mod_mpm_event.so\n\
         LoadModule authz_core_module {modules}/mod_authz_core.so\n\
         LoadModule wsgi_module {modules}/mod_wsgi.so\n\
         WSGIScriptAlias / {file}\n<Directory {folder}>\nRequire all granted\n</Directory>\n"
    );
    let configuration = scratch.file("httpd.conf", &configuration);
    let server =
        Run::preloaded(require("apache2", "apache2-bin")).args(["-DFOREGROUND", "-f"]).arg(&configuration).spawn();
    answers_zero(port);
    drop(server);
}
