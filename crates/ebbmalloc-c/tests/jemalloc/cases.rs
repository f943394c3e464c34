//! The programs on both libraries: the cases, what settings make the libraries say and how they end a process, and the installation
//! of ebbmalloc under jemalloc's name.

use std::env::consts::ARCH;
use std::os::unix::fs::symlink;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;
use std::{env, fs};

use crate::harness::library::build;
use crate::harness::{Flavour, Outcome, Run, Scratch, archive, program_with};

/// A test of each library.
macro_rules! both {
    ($name:ident) => {
        mod $name {
            use super::Library;

            #[test]
            fn on_jemalloc() {
                super::$name(Library::Jemalloc);
            }

            #[test]
            fn on_ebbmalloc() {
                super::$name(Library::Ebbmalloc);
            }
        }
    };
}

const SIGABRT: i32 = 6;

fn outcome(library: Library, case: [&str; 2], settings: Settings) -> Outcome {
    let folder = Scratch::new();
    library.run(case, settings, &folder).run()
}

/// A program that ends with memory in use.
const AT_EXIT: [&str; 2] = ["statistics", "at_exit"];

fn at_exit(library: Library, settings: &'static str) -> Outcome {
    outcome(library, AT_EXIT, Settings::Environment(settings))
}

fn is_aborted(outcome: &Outcome) -> bool {
    outcome.status.and_then(|status| status.signal()) == Some(SIGABRT)
}

macro_rules! cases {
    ($($name:ident: $program:literal $case:literal, $settings:expr;)*) => {
        $(both!($name);
        fn $name(library: Library) {
            outcome(library, [$program, $case], $settings).passed();
        })*
    };
}

const NONE: Settings = Settings::Environment("");
const CONF: &str = "narenas:3,dirty_decay_ms:1234,muzzy_decay_ms:-1,tcache:false,background_thread:false,\
    lg_extent_max_active_fit:5,oversize_threshold:0,retain:true,stats_print_opts:J,dss:disabled";
const CLICKHOUSE: &str = "percpu_arena:percpu,oversize_threshold:0,muzzy_decay_ms:0,dirty_decay_ms:5000,prof:true,\
    prof_active:true,prof_thread_active_init:false,background_thread:true,lg_extent_max_active_fit:8";
const DORIS: &str = "percpu_arena:percpu,background_thread:true,metadata_thp:auto,dirty_decay_ms:30000,\
    muzzy_decay_ms:30000,oversize_threshold:0,lg_tcache_max:16";
const DEVICE: &str = "narenas:1,tcache:false,dirty_decay_ms:10000,muzzy_decay_ms:10000,background_thread:true";

cases! {
    arenas: "arenas" "made", NONE;
    many_arenas: "arenas" "many", NONE;
    decay: "arenas" "decay", NONE;
    purge: "arenas" "purged", Settings::Compiled("dirty_decay_ms:-1,muzzy_decay_ms:-1");
    reset: "arenas" "reset", NONE;
    background: "arenas" "background", NONE;
    hooks: "hooks" "own_pool", NONE;
    default_hooks: "hooks" "default_ones", NONE;
    hooks_allocate: "hooks" "that_allocate", NONE;
    hooks_borders: "hooks_borders" "books", NONE;
    mallocx: "extended" "made", NONE;
    rallocx: "extended" "resized", NONE;
    sallocx: "extended" "sized", NONE;
    xallocx: "extended" "resized_in_place", NONE;
    batch: "extended" "batches", NONE;
    utilization: "extended" "utilization", NONE;
    defragment: "extended" "defragment", Settings::Compiled("dirty_decay_ms:0,muzzy_decay_ms:0,narenas:1");
    standard: "standard" "edges", NONE;
    aligned_alloc: "standard" "aligned", NONE;
    posix_memalign: "standard" "posix_aligned", NONE;
    overflow: "standard" "too_large", NONE;
    sizes: "standard" "size_classes", NONE;
    fill_junk: "standard" "filled_by_settings", Settings::Environment("junk:true");
    fill_junk_alloc: "standard" "filled_by_settings", Settings::Environment("junk:alloc");
    fill_junk_free: "standard" "filled_by_settings", Settings::Environment("junk:free");
    fill_zero: "standard" "filled_by_settings", Settings::Environment("zero:true");
    zero_realloc_frees: "standard" "zero_realloc", Settings::Environment("zero_realloc:free");
    zero_realloc_allocates: "standard" "zero_realloc", Settings::Environment("zero_realloc:alloc");
    stats: "statistics" "figures", NONE;
    json: "statistics" "json", NONE;
    message: "statistics" "message", NONE;
    allocated: "threads" "allocated", NONE;
    caches: "threads" "caches", NONE;
    errors: "tree" "errors", NONE;
    mib: "tree" "mib", NONE;
    options: "tree" "options", NONE;
    epoch: "tree" "epoch", NONE;
    conf: "tree" "compiled_in", Settings::Compiled(CONF);
    environment: "tree" "environment", Settings::Both {
        compiled: "dirty_decay_ms:1234,muzzy_decay_ms:55,narenas:5",
        environment: "dirty_decay_ms:777,narenas:2",
    };
    deployed_sse: "tree" "deployed", Settings::Environment("background_thread:true,dirty_decay_ms:1000,muzzy_decay_ms:1000");
    deployed_device: "tree" "deployed", Settings::Environment(DEVICE);
    deployed_rails: "tree" "deployed", Settings::Environment("dirty_decay_ms:1000,narenas:2,background_thread:true");
    deployed_clickhouse: "tree" "deployed", Settings::Environment(CLICKHOUSE);
    deployed_doris: "tree" "deployed", Settings::Environment(DORIS);
    prof_hooks: "profile" "hooks", Settings::Environment("prof:true,lg_prof_sample:0,prof_prefix:heap");
    prof: "profile" "controlled", Settings::Environment("prof:true,prof_active:false,lg_prof_sample:12,prof_prefix:heap");
}

both!(an_unknown_key_is_named_and_the_program_runs);
fn an_unknown_key_is_named_and_the_program_runs(library: Library) {
    let outcome = at_exit(library, "dirty_decay:5,narenas:2").passed();
    assert!(outcome.stderr.contains("dirty_decay:5"), "{}", outcome.describe());
}

both!(a_value_that_is_none_is_named);
fn a_value_that_is_none_is_named(library: Library) {
    for pair in ["dirty_decay_ms:soon", "tcache:perhaps", "zero_realloc:panic"] {
        let outcome = at_exit(library, pair).passed();
        assert!(outcome.stderr.contains(pair), "{}", outcome.describe());
    }
}

both!(abort_conf_ends_the_process);
fn abort_conf_ends_the_process(library: Library) {
    let outcome = at_exit(library, "abort_conf:true,nonsense:1");
    assert!(is_aborted(&outcome), "{}", outcome.describe());
    assert!(outcome.stderr.contains("nonsense:1"), "{}", outcome.describe());
}

both!(settings_that_are_all_known_say_nothing);
fn settings_that_are_all_known_say_nothing(library: Library) {
    let settings = "abort_conf:true,narenas:2,dirty_decay_ms:500,muzzy_decay_ms:0,\
                    background_thread:true,tcache_max:4096,lg_extent_max_active_fit:4,\
                    retain:true,thp:default,metadata_thp:disabled,percpu_arena:disabled,\
                    oversize_threshold:0,dss:secondary,prof:false,abort:false";
    let outcome = at_exit(library, settings).passed();
    assert_eq!(outcome.stderr, "", "{library:?}");
}

both!(zero_realloc_may_end_the_process);
fn zero_realloc_may_end_the_process(library: Library) {
    let outcome = outcome(library, ["standard", "zero_realloc"], Settings::Environment("zero_realloc:abort"));
    assert!(is_aborted(&outcome), "{}", outcome.describe());
    assert!(outcome.stderr.contains("realloc"), "{}", outcome.describe());
}

both!(stats_print_writes_at_the_end);
fn stats_print_writes_at_the_end(library: Library) {
    let text = at_exit(library, "stats_print:true").passed();
    for part in ["___ Begin jemalloc statistics ___", "opt.narenas: ", "Allocated: ", "--- End jemalloc statistics ---"]
    {
        assert!(text.stderr.contains(part), "{part}: {}", text.describe());
    }
    let settings = "stats_print:true,stats_print_opts:Jmdablxhe";
    let json = at_exit(library, settings).passed();
    let json = json.stderr.trim();
    assert!(json.starts_with('{') && json.ends_with('}') && json.contains("\"jemalloc\""), "{json}");
}

both!(confirm_conf_shows_where_settings_came_from);
fn confirm_conf_shows_where_settings_came_from(library: Library) {
    let settings = "confirm_conf:true,dirty_decay_ms:321";
    let outcome = at_exit(library, settings).passed();
    assert!(outcome.stderr.contains("dirty_decay_ms:321"), "{}", outcome.describe());
}

both!(a_leak_is_reported_and_the_last_profile_written);
fn a_leak_is_reported_and_the_last_profile_written(library: Library) {
    let folder = Scratch::new();
    let settings = "prof:true,prof_leak:true,prof_final:true,lg_prof_sample:0,prof_prefix:last";
    let run = library.run(AT_EXIT, Settings::Environment(settings), &folder);
    let outcome = run.run().passed();
    assert!(outcome.stderr.contains("Leak approximation summary"), "{}", outcome.describe());
    let names: Vec<_> = fs::read_dir(folder.path())
        .expect("the scratch folder")
        .map(|entry| entry.expect("an entry").file_name().into_string())
        .map(|name| name.expect("a plain name"))
        .collect();
    assert!(
        names.len() == 1 && names[0].starts_with("last.") && names[0].ends_with(".f.heap"),
        "{library:?}: {names:?}"
    );
    let profile = fs::read_to_string(folder.path().join(&names[0])).expect("the profile");
    assert!(profile.starts_with("heap_v2/1\n"), "{library:?}: {profile}");
    let bytes = profile.split("t*: ").nth(1).and_then(|totals| {
        let of_all = totals.split([':', '[']).nth(1)?;
        of_all.trim().parse::<usize>().ok()
    });
    assert!(bytes.is_some_and(|bytes| bytes >= 123_456), "{library:?}: {profile}");
}

/// Whose libjemalloc.so.2 the loader finds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Library {
    Jemalloc,
    Ebbmalloc,
}

impl Library {
    /// The folder for LD_LIBRARY_PATH.
    pub fn folder(self) -> PathBuf {
        match self {
            Self::Ebbmalloc => installation().join("lib"),
            Self::Jemalloc => jemalloc_folder().to_owned(),
        }
    }

    /// A case of a program of `tests/programs/jemalloc` with these settings, in a folder of its own.
    pub fn run(self, [program, case]: [&str; 2], settings: Settings, folder: &Scratch) -> Run {
        let folder_of_library = self.folder();
        let file = folder_of_library.join("libjemalloc.so.2");
        let file = file.canonicalize().unwrap_or_else(|error| {
            panic!("{}: {error}", file.display());
        });
        let (compiled, environment) = match settings {
            Settings::Environment(settings) => ("", settings),
            Settings::Compiled(settings) => (settings, ""),
            Settings::Both { compiled, environment } => (compiled, environment),
        };
        let run = Run::bare(executable(program, compiled))
            .arg(case)
            .env("LD_LIBRARY_PATH", folder_of_library)
            .env("EBB_TEST_LIBRARY", file)
            .folder(folder.path());
        if environment.is_empty() { run } else { run.env("MALLOC_CONF", environment) }
    }
}

/// Where a program has its settings from: `MALLOC_CONF`, or compiled into its variable `malloc_conf`.
#[derive(Clone, Copy)]
pub enum Settings {
    Environment(&'static str),
    Compiled(&'static str),
    Both { compiled: &'static str, environment: &'static str },
}

/// One executable for both libraries: compiled with the installed header, linked to jemalloc.
fn executable(name: &str, compiled: &str) -> PathBuf {
    let include = format!("-I{}", installation().join("include").display());
    let linked = jemalloc_folder().join("libjemalloc.so.2");
    let linked = linked.display().to_string();
    let settings = format!("-DCOMPILED_SETTINGS=\"{compiled}\"");
    let all = [&*include, &*linked, &*settings];
    let arguments = if compiled.is_empty() { &all[..2] } else { &all[..] };
    program_with(&format!("jemalloc/{name}"), Flavour::Plain, arguments)
}

/// The folder of an installation for programs that are linked to libjemalloc.so.2, of the release
/// profile like the archive in it.
pub fn installation() -> &'static Path {
    static INSTALLATION: OnceLock<PathBuf> = OnceLock::new();
    INSTALLATION.get_or_init(|| {
        archive();
        build("build", "release", &[]);
        let built = build("build", "release", &["--package", "ebbmalloc-compat"]);
        let prefix = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("installation-{}", std::process::id()));
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../ci/install-compat.sh");
        let status = Command::new(&script).arg(&prefix).arg(&built).status();
        assert!(status.is_ok_and(|status| status.success()), "{} failed", script.display());
        prefix
    })
}

/// A folder that holds jemalloc's libjemalloc.so.2 and nothing else.
fn jemalloc_folder() -> &'static Path {
    static FOLDER: OnceLock<(Scratch, PathBuf)> = OnceLock::new();
    &FOLDER
        .get_or_init(|| {
            let file = match env::var_os("EBB_TEST_JEMALLOC") {
                Some(named) => PathBuf::from(named),
                None => PathBuf::from(format!("/usr/lib/{ARCH}-linux-gnu/libjemalloc.so.2")),
            };
            assert!(file.is_file(), "no jemalloc at {}: apt-get install libjemalloc2", file.display());
            let scratch = Scratch::new();
            let link = scratch.path().join("libjemalloc.so.2");
            symlink(&file, &link).expect("a link in the scratch folder");
            let folder = scratch.path().to_owned();
            (scratch, folder)
        })
        .1
}
