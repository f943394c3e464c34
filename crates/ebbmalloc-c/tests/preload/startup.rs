//! Hosts that others' preloads failed in: how the program is linked, loaded and started. The host neither dies nor hangs,
//! and the allocator is in charge with its settings, wherever the loader lets it.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use test_needs::{needs, skip};

use crate::harness::{Flavour, Run, Scratch, library, program_with, shared_object};

/// `startup.c`, linked with further arguments.
fn host(flags: &[&str]) -> PathBuf {
    program_with("startup", Flavour::Plain, &[flags, &["-ldl"]].concat())
}

/// What a case of `startup.c` runs under; it checks that the setting arrives.
fn run(program: impl AsRef<Path>, case: &str) -> Run {
    Run::preloaded(program.as_ref()).arg(case).env("EBB_CONF", SETTING)
}

const SETTING: &str = "dirty_decay_ms:1234";
const WORD: usize = 8;

macro_rules! hosts {
    ($($(#[$attribute:meta])* $name:ident: [$($flag:literal),*] $(patched $patch:ident)? $(.$method:ident($($argument:expr),*))*;)*) => {$(
        $(#[$attribute])*
        #[test]
        fn $name() {
            let program = host(&[$($flag),*]);
            $(let scratch = Scratch::new();
            let program = $patch(&program, &scratch);)?
            run(program, "serves")$(.$method($($argument),*))*.run().passed();
        }
    )*};
}

hosts! {
    /// Nothing is exported, not even copies of libc's variables.
    empty_gnu_hash_table: ["-fPIC", "-Wl,--hash-style=gnu"];
    gnu_hash_table_without_buckets: ["-fPIC", "-Wl,--hash-style=gnu"] patched without_buckets;
    sysv_hash_table_only: ["-Wl,--hash-style=sysv"];
    exported_symbols: ["-rdynamic"];
    /// `environ`, which the allocator reads, is copied into the program after it has read it.
    copy_relocations: ["-no-pie", "-fno-pie"];
    fixed_address: ["-no-pie"];
    fixed_address_without_randomisation: ["-no-pie"] .through(["setarch", "-R"]);
    /// Without DF_1_PIE, RELRO and separate segments for code; without randomisation it lies at 0x555555554000.
    old_pie: ["-pie", "-Wl,-z,norelro", "-Wl,-z,lazy", "-Wl,-z,noseparate-code", "-Wl,--hash-style=sysv"]
        patched without_flags_1 .through(["setarch", "-R"]);
    addresses_from_the_bottom: [] .through(["setarch", "--addr-compat-layout"]);
    readable_is_executable: [] .through(["setarch", "--read-implies-exec"]);
    lazy_binding: ["-Wl,-z,lazy"];
    bound_at_once: ["-Wl,-z,lazy"] .env("LD_BIND_NOW", "1");
    bound_at_each_call: ["-Wl,-z,lazy"] .env("LD_BIND_NOT", "1");
    executable_stack: ["-Wl,-z,execstack"];
    no_room_for_late_static_tls: [] .env("GLIBC_TUNABLES", "glibc.rtld.optional_static_tls=0");
    audited: ["-Wl,-z,lazy"] .env("LD_AUDIT", shared_object("startup_audit", &[]));
    audited_and_bound_at_once: [] .env("LD_AUDIT", shared_object("startup_audit", &[])) .env("LD_BIND_NOW", "1");
}

/// A copy of `program` in which `change` was made to the bytes of a section.
fn patched(program: &Path, scratch: &Scratch, section: &str, change: impl Fn(&mut [u8])) -> PathBuf {
    let (part, copy) = (scratch.path().join("section"), scratch.path().join("patched"));
    let objcopy = |verb: &str| {
        let part = format!("{section}={}", part.display());
        let done = Command::new("objcopy").args([verb, &part]).arg(program).arg(&copy).status();
        assert!(done.expect("objcopy").success(), "{verb} {part}");
    };
    objcopy("--dump-section");
    let mut bytes = fs::read(&part).expect("the section");
    change(&mut bytes);
    fs::write(&part, bytes).expect("the changed section");
    objcopy("--update-section");
    copy
}

/// Copies a program that will be started. Not in this process: a program that another test starts meanwhile would have
/// the copy open for writing for a moment, and it could not be started then (ETXTBSY).
fn copied(from: &Path, to: &Path) {
    let status = Command::new("cp").arg(from).arg(to).status();
    assert!(status.expect("cp").success(), "{}", from.display());
    fs::set_permissions(to, fs::Permissions::from_mode(0o755)).expect("its mode");
}

/// As other linkers leave the table if nothing is exported.
fn without_buckets(program: &Path, scratch: &Scratch) -> PathBuf {
    // Number of buckets, first symbol, words of the filter, its shift; the filter is empty already.
    patched(program, scratch, ".gnu.hash", |table| table[..4].fill(0))
}

/// The entry says nothing, as that of a linker that does not know it.
fn without_flags_1(program: &Path, scratch: &Scratch) -> PathBuf {
    const DT_FLAGS_1: [u8; WORD] = 0x6fff_fffb_u64.to_ne_bytes();
    patched(program, scratch, ".dynamic", |entries| {
        let flags = entries.chunks_mut(2 * WORD).find(|entry| entry[..WORD] == DT_FLAGS_1);
        flags.expect("the linker writes it")[WORD..].fill(0);
    })
}

/// A variable of the allocator's lies in the program, which is linked to the library that is preloaded.
#[test]
fn copy_relocation_of_the_allocators_own_variable() {
    let own = library().display().to_string();
    let program = host(&["-no-pie", "-fno-pie", "-DCOPIED", &own]);
    let listed = Command::new("readelf").arg("-rW").arg(&program).output().expect("readelf");
    let listed = String::from_utf8_lossy(&listed.stdout).into_owned();
    let is_copied = |line: &str| line.contains("_COPY") && line.contains("malloc_message");
    assert!(listed.lines().any(is_copied), "{listed}");
    run(program, "copied").run().passed();
}

/// `startup_bare.c` for the compiler's flags.
fn bare(flags: &[&str]) -> PathBuf {
    let own = ["-nostdlib", "-ffreestanding", "-fno-stack-protector", "-fno-sanitize=all"];
    program_with("startup_bare", Flavour::Plain, &[&own, flags].concat())
}

/// The loader loads the program and the allocator, and nothing else: no libc.
#[test]
fn program_without_libc() {
    let program = bare(&["-pie", "-fPIE", "-Wl,-z,dynamic-undefined-weak"]);
    Run::bare(&program).arg("without").run().passed();
    Run::preloaded(&program).arg("with").run().passed();
    let off = Run::preloaded(&program).arg("with").env("EBB_CONF", "purge:off,stats_print:true");
    off.run().passed();
}

#[test]
fn static_program_without_libc_ignores_the_preload() {
    Run::preloaded(bare(&["-static"])).arg("without").run().passed();
}

/// A library that takes `bytes` of the static TLS of each thread.
fn tls_library(bytes: &str) -> PathBuf {
    shared_object("startup_library", &[&format!("-DBYTES={bytes}")])
}

#[test]
fn libraries_with_much_static_tls() {
    let large = tls_library("4194304");
    let search = format!("-Wl,-rpath,{}", large.parent().expect("a folder").display());
    let program = host(&["-Wl,--no-as-needed", &large.display().to_string(), &search]);
    run(program, "serves").run().passed();
}

/// More small libraries than there is room for, and others for the rest.
fn tls_fillers() -> [Scratch; 2] {
    [("64", 200), ("8", 20)].map(|(bytes, count)| {
        let (folder, small) = (Scratch::new(), tls_library(bytes));
        for number in 0..count {
            fs::copy(&small, folder.path().join(format!("{number}.so"))).expect("a copy");
        }
        folder
    })
}

#[test]
fn static_tls_is_filled_by_the_program() {
    let folders = tls_fillers();
    let full = || run(host(&[]), "full").args(folders.iter().map(Scratch::path));
    full().run().passed();
    full().env("GLIBC_TUNABLES", "glibc.rtld.optional_static_tls=0").run().passed();
}

#[test]
fn allocator_is_loaded_late_where_static_tls_is_full() {
    let folders = tls_fillers();
    let full = Run::bare(host(&[])).arg("full").args(folders.iter().map(Scratch::path));
    full.arg(library()).env("EBB_TEST_NOT_IN_CHARGE", "1").run().passed();
}

#[test]
fn a_library_wants_an_executable_stack() {
    let library = shared_object("startup_library", &["-DBYTES=8", "-Wl,-z,execstack"]);
    run(host(&[]), "stack").arg(library).run().passed();
}

fn loader() -> PathBuf {
    let listed = Command::new("readelf").args(["-lW", "/bin/sh"]).output().expect("readelf");
    let listed = String::from_utf8_lossy(&listed.stdout).into_owned();
    let name = listed.split_once("interpreter: ").and_then(|(_, rest)| rest.split_once(']'));
    PathBuf::from(name.expect("a loader").0)
}

/// A copy of it, under a name that says nothing.
fn renamed_loader(scratch: &Scratch) -> PathBuf {
    let copy = scratch.path().join("start");
    copied(&loader(), &copy);
    copy
}

#[test]
fn renamed_loader_named_by_the_program() {
    let scratch = Scratch::new();
    let flag = format!("-Wl,--dynamic-linker={}", renamed_loader(&scratch).display());
    run(host(&[&flag]), "serves").run().passed();
}

#[test]
fn renamed_loader_set_by_patchelf() {
    needs!("patchelf");
    let scratch = Scratch::new();
    let (loader, copy) = (renamed_loader(&scratch), scratch.path().join("host"));
    for flags in [&["-pie"][..], &["-no-pie"]] {
        copied(&host(flags), &copy);
        let mut patchelf = Command::new("patchelf");
        let done = patchelf.arg("--set-interpreter").arg(&loader).arg(&copy).status();
        assert!(done.expect("patchelf").success());
        run(&copy, "serves").run().passed();
    }
}

#[test]
fn loader_started_with_the_program_as_its_argument() {
    let scratch = Scratch::new();
    let loader = renamed_loader(&scratch);
    let started = || Run::preloaded(&loader).env("EBB_CONF", SETTING);
    started().arg(host(&[])).arg("serves").run().passed();
    started().arg("--inhibit-cache").arg(host(&["-no-pie"])).arg("serves").run().passed();
    let named = Run::bare(&loader).arg("--preload").arg(library());
    named.env("EBB_CONF", SETTING).arg(host(&[])).arg("serves").run().passed();
}

/// 32-bit programs next to ours: the loader prints one line for each and starts them without it.
#[cfg(target_arch = "x86_64")]
mod narrow {
    use super::*;

    /// It has no malloc, and shows by that that nothing was preloaded.
    fn narrow() -> PathBuf {
        bare(&["-m32", "-pie", "-fPIE", "-Wl,-z,dynamic-undefined-weak"])
    }

    #[test]
    fn program_of_32_bits() {
        needs!("libc6-i386");
        let outcome = Run::preloaded(narrow()).arg("without").run().passed();
        assert!(outcome.stderr.contains("wrong ELF class"), "{}", outcome.describe());
        assert_eq!(outcome.stderr.lines().count(), 1, "{}", outcome.describe());
    }

    #[test]
    fn program_of_32_bits_is_started_by_one_of_64() {
        needs!("libc6-i386");
        let launch = program_with("launch", Flavour::Plain, &[]);
        let both = Run::witnessed(launch).arg(narrow()).arg("without").run().passed();
        both.in_charge_of("launch");
    }

    /// `$LIB` leads each to a folder of its own; there is none for 32 bits.
    #[test]
    fn the_loader_chooses_by_lib() {
        needs!("libc6-i386");
        let folder = Scratch::new();
        for lib in ["lib64", "lib/x86_64-linux-gnu"] {
            let place = folder.path().join(lib);
            fs::create_dir_all(&place).expect("a folder");
            fs::copy(library(), place.join("libebbmalloc.so")).expect("a copy");
        }
        let preload = folder.path().join("$LIB/libebbmalloc.so");
        for (program, word) in
            [(bare(&["-pie", "-fPIE", "-Wl,-z,dynamic-undefined-weak"]), "with"), (narrow(), "without")]
        {
            let outcome = Run::bare(program).arg(word).env("LD_PRELOAD", &preload).run().passed();
            let refused = outcome.stderr.contains("cannot be preloaded");
            assert_eq!(refused, word == "without", "{}", outcome.describe());
        }
    }
}

/// glibc before 2.34, where `dlopen` and threads are libraries of their own. `EBB_TEST_OLD_GLIBC` is the root that
/// `ci/glibcs.sh` unpacks.
mod split {
    use super::*;

    /// What the compiler and the linker need for it; none where there is no such root.
    fn flags() -> Option<Vec<String>> {
        let root = PathBuf::from(std::env::var_os("EBB_TEST_OLD_GLIBC")?);
        let (folder, of_linker) = (root.join("lib/x86_64-linux-gnu"), root.join("usr/lib/x86_64-linux-gnu"));
        Some(vec![
            format!("--sysroot={}", root.display()),
            format!("-B{}", of_linker.display()),
            format!("-L{}", of_linker.display()),
            format!("-Wl,--dynamic-linker={}/ld-linux-x86-64.so.2", folder.display()),
            format!("-Wl,-rpath,{}", folder.display()),
            // libpthread has a fork, a write and the like of its own, which a program without threads does not take.
            "-Wl,--as-needed".to_owned(),
            "-lc".to_owned(),
        ])
    }

    macro_rules! old {
        () => {{
            let Some(flags) = flags() else {
                skip!("no root with an old glibc: ci/glibcs.sh");
            };
            flags
        }};
    }

    fn with<'a>(flags: &'a [String], more: &'a str) -> Vec<&'a str> {
        flags.iter().map(String::as_str).chain([more]).collect()
    }

    #[test]
    fn program_with_both() {
        let flags = old!();
        let program = program_with("startup", Flavour::Plain, &with(&flags, "-ldl"));
        run(&program, "serves").run().passed();
        run(&program, "serves").env("LD_BIND_NOW", "1").run().passed();
    }

    #[test]
    fn program_with_neither() {
        let flags = old!();
        let program = program_with("startup_split", Flavour::Plain, &with(&flags, "-DEBB_STATIC"));
        Run::preloaded(program).run().passed();
    }

    #[test]
    fn library_brings_threads() {
        let flags = old!();
        let library = shared_object("startup_split", &with(&flags, "-DIN_LIBRARY"));
        let program = program_with("startup_split", Flavour::Plain, &with(&flags, "-ldl"));
        Run::preloaded(program).arg(library).run().passed();
    }
}
