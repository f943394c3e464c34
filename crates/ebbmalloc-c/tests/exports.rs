//! What the preload object defines and wants, name by name, and that the header says the same.
//!
//! A name too many replaces something of the program's; a strong name that is undefined makes the
//! loader of the other libc refuse the object. And how much of it is data.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;
use test_needs::needs;

#[allow(dead_code)]
#[path = "preload/harness/library.rs"]
mod library;

const C_NAMES: &str = "aligned_alloc calloc cfree dallocx dlopen free free_aligned_sized free_sized mallinfo mallinfo2 je_get_defrag_hint \
    madvise mallctl mallctlbymib mallctlnametomib malloc malloc_info malloc_stats malloc_stats_print malloc_trim \
    malloc_usable_size mallocx mallopt memalign nallocx posix_memalign prctl pvalloc rallocx realloc reallocarray \
    sallocx sdallocx setns unshare valloc xallocx";

const CXX_NAMES: &str = "_ZdaPv _ZdaPvRKSt9nothrow_t _ZdaPvSt11align_val_t _ZdaPvSt11align_val_tRKSt9nothrow_t _ZdaPvm _ZdaPvmSt11align_val_t \
    _ZdlPv _ZdlPvRKSt9nothrow_t _ZdlPvSt11align_val_t _ZdlPvSt11align_val_tRKSt9nothrow_t _ZdlPvm _ZdlPvmSt11align_val_t \
    _Znam _ZnamRKSt9nothrow_t _ZnamSt11align_val_t _ZnamSt11align_val_tRKSt9nothrow_t _Znwm _ZnwmRKSt9nothrow_t \
    _ZnwmSt11align_val_t _ZnwmSt11align_val_tRKSt9nothrow_t";

/// jemalloc's variables, which a program may define or set; each is empty until then.
const VARIABLES: &str = "malloc_conf malloc_conf_2_conf_harder malloc_message";

/// What the object uses of a program where it is there; all weak.
const WANTED_NAMES: &str = "PyMem_GetAllocator PyMem_SetAllocator PyMem_SetupDebugHooks Py_IsInitialized Py_PreInitialize \
    _Py_MergeZeroLocalRefcount _ZSt15get_new_handlerv _ZSt17__throw_bad_allocv __errno_location \
    __libc_dlopen_mode __libc_dlsym __libc_single_threaded __register_atfork _r_debug dl_iterate_phdr dladdr \
    dlerror dlsym environ fwrite pthread_atfork pthread_getspecific pthread_key_create \
    pthread_key_delete pthread_setspecific";

fn output(program: &str, arguments: &[&str], file: &Path) -> String {
    let output = Command::new(program).args(arguments).arg(file).output();
    let output = output.unwrap_or_else(|error| panic!("{program} (package binutils): {error}"));
    assert!(output.status.success(), "{program} of {}", file.display());
    String::from_utf8(output.stdout).unwrap()
}

/// The dynamic symbols, each with the letter that nm gives it.
fn symbols(arguments: &[&str]) -> BTreeSet<(char, String)> {
    let text = output("nm", arguments, library::library());
    let symbol = |line: &str| {
        let mut words = line.split_whitespace().rev();
        let name = words.next().unwrap().to_owned();
        (words.next().unwrap().chars().next().unwrap(), name)
    };
    text.lines().map(symbol).collect()
}

fn with_letter(letter: char, names: &str) -> BTreeSet<(char, String)> {
    names.split_whitespace().map(|name| (letter, name.to_owned())).collect()
}

#[test]
fn only_the_listed_names_are_defined() {
    let mut expected = with_letter('T', C_NAMES);
    expected.extend(with_letter('T', CXX_NAMES));
    expected.extend(with_letter('B', VARIABLES));
    assert_eq!(symbols(&["-D", "--defined-only"]), expected);
}

#[test]
fn only_weak_names_are_undefined() {
    let expected = with_letter('w', WANTED_NAMES);
    assert_eq!(symbols(&["-D", "--undefined-only"]), expected);
}

#[test]
fn it_needs_no_other_object_and_stays_loaded() {
    let dynamic = output("readelf", &["-dW"], library::library());
    assert!(!dynamic.contains("(NEEDED)"), "{dynamic}");
    assert!(!dynamic.contains("(TEXTREL)"), "{dynamic}");
    for flag in ["BIND_NOW", "STATIC_TLS", "NODELETE", "[libebbmalloc.so.0]"] {
        assert!(dynamic.contains(flag), "{flag} in\n{dynamic}");
    }
}

#[test]
fn its_thread_local_storage_is_two_words() {
    let segments = output("readelf", &["-lW"], library::library());
    let line = segments.lines().find(|line| line.trim_start().starts_with("TLS"));
    let words: Vec<_> = line.expect("a TLS segment").split_whitespace().collect();
    assert_eq!((words[4], words[5]), ("0x000000", "0x000010"), "{segments}");
}

#[test]
fn the_headers_go_with_either_language_and_libc() {
    needs!("musl-tools");
    // Includes the other one.
    let header = Path::new(env!("CARGO_MANIFEST_DIR")).join("include/jemalloc/jemalloc.h");
    let strict = ["-Wall", "-Wextra", "-pedantic", "-Werror", "-fsyntax-only"];
    for (compiler, language, standard) in [
        ("gcc", "c", "-std=c99"),
        ("gcc", "c", "-std=gnu17"),
        ("g++", "c++", "-std=c++11"),
        ("g++", "c++", "-std=gnu++20"),
        ("musl-gcc", "c", "-std=c11"),
    ] {
        let mut command = Command::new(compiler);
        command.args(strict).args([standard, "-x", language]).arg(&header);
        let status = command.status();
        let status = status.unwrap_or_else(|error| panic!("{compiler} is not there: {error}"));
        assert!(status.success(), "{compiler} {standard}");
    }
}

/// One word of the static heap that is not zero at the start would put 180 kB into the file, and into every process.
#[test]
fn the_static_heap_takes_no_room_in_the_file() {
    let sections = output("size", &["-A", "-d"], library::library());
    let line = sections.lines().find(|line| line.starts_with(".data ")).unwrap();
    let bytes: usize = line.split_whitespace().nth(1).unwrap().parse().unwrap();
    assert!(bytes < 32 << 10, "{sections}");
}
