//! Compiles the suite's C and C++ programs into cargo's folder for tests, each once a run.

use std::collections::HashMap;
use std::env::consts::ARCH;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, LazyLock, Mutex, OnceLock};

use super::run::require;

/// How a program is built, beyond its source.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Flavour {
    /// Dynamically linked against the system's libc.
    Plain,
    /// Dynamically linked against musl.
    Musl,
    /// Statically linked against glibc, with the archive under test.
    StaticGlibc,
    /// Statically linked against musl, with the archive under test.
    StaticMusl,
    /// With the address sanitizer's runtime as a shared object.
    SanitizerShared,
    /// With the address sanitizer's runtime in the program.
    SanitizerStatic,
}

/// The compiler must not look through allocations: what it removes is not tested, and misuse
/// would become a warning.
const FLAGS: &[&str] = &[
    "-O1", "-g", "-pthread", "-Wall", "-Wextra", "-Werror", "-Wno-deprecated-declarations", "-Wno-free-nonheap-object",
    "-Wno-alloc-size-larger-than", "-fno-builtin-malloc", "-fno-builtin-calloc", "-fno-builtin-realloc",
    "-fno-builtin-free", "-fno-builtin-aligned_alloc", "-fno-builtin-memalign", "-fno-builtin-posix_memalign",
];

/// The executable of `tests/programs/NAME.c` (or `.cpp`); NAME may have a folder before it.
pub fn program(name: &str, flavour: Flavour) -> PathBuf {
    program_with(name, flavour, &[])
}

/// The same, with further arguments for the compiler.
pub fn program_with(name: &str, flavour: Flavour, extra: &[&str]) -> PathBuf {
    let mut arguments: Vec<String> = Vec::new();
    let compiler = match flavour {
        Flavour::Musl | Flavour::StaticMusl => "musl-gcc",
        _ if source(name).extension().is_some_and(|end| end == "cpp") => "g++",
        _ => "cc",
    };
    if compiler == "musl-gcc" {
        // The kernel's headers, which musl-tools leaves to the system's folders.
        for folder in ["/usr/include", &format!("/usr/include/{ARCH}-linux-gnu")] {
            arguments.extend(["-idirafter".to_owned(), folder.to_owned()]);
        }
    }
    match flavour {
        Flavour::StaticGlibc | Flavour::StaticMusl => {
            arguments.extend(["-static", "-DEBB_STATIC"].map(str::to_owned));
        }
        Flavour::SanitizerShared => arguments.push("-fsanitize=address".into()),
        Flavour::SanitizerStatic => {
            arguments.extend(["-fsanitize=address", "-static-libasan"].map(str::to_owned));
        }
        Flavour::Plain | Flavour::Musl => {}
    }
    if compiler == "g++" {
        arguments.extend(["-std=c++17", "-fno-allocation-dce"].map(str::to_owned));
    }
    arguments.push(source(name).display().to_string());
    if matches!(flavour, Flavour::StaticGlibc | Flavour::StaticMusl) {
        arguments.push(super::archive().display().to_string());
    }
    arguments.extend(extra.iter().map(|&one| one.to_owned()));
    let file = name.rsplit('/').next().expect("a name has a last part");
    compile(file, compiler, arguments)
}

/// The shared object of `tests/programs/NAME.c`.
pub fn shared_object(name: &str, extra: &[&str]) -> PathBuf {
    let mut arguments = vec!["-shared".to_owned(), "-fPIC".to_owned(), source(name).display().to_string()];
    arguments.extend(extra.iter().map(|&one| one.to_owned()));
    compile(&format!("lib{name}.so"), "cc", arguments)
}

fn source(name: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs");
    let cpp = folder.join(format!("{name}.cpp"));
    if cpp.exists() { cpp } else { folder.join(format!("{name}.c")) }
}

/// Compiled once for each set of arguments, into a folder of its own.
fn compile(output_name: &str, compiler: &str, arguments: Vec<String>) -> PathBuf {
    type Made = HashMap<(String, Vec<String>), Arc<OnceLock<PathBuf>>>;
    static MADE: LazyLock<Mutex<Made>> = LazyLock::new(Mutex::default);

    let slot = {
        let mut made = MADE.lock().expect("no test panics while it holds this");
        let number = made.len();
        let key = (format!("{compiler} {output_name}"), arguments.clone());
        let slot = made.entry(key).or_default();
        (Arc::clone(slot), number)
    };
    slot.0
        .get_or_init(|| {
            let folder =
                Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("preload-{}-{}", std::process::id(), slot.1));
            std::fs::create_dir_all(&folder).expect("a folder for compiled programs");
            let output = folder.join(output_name);
            require(compiler, package_of(compiler));
            let made = Command::new(compiler)
                .args(FLAGS)
                .args(&arguments)
                .arg("-o")
                .arg(&output)
                .output()
                .expect("the compiler can be run");
            assert!(made.status.success(), "{compiler} {arguments:?}:\n{}", String::from_utf8_lossy(&made.stderr));
            output
        })
        .clone()
}

fn package_of(compiler: &str) -> &'static str {
    match compiler {
        "musl-gcc" => "musl-tools",
        "g++" => "g++",
        _ => "gcc",
    }
}
