//! The readers of heaps on live processes that stand still, with words of their memory overwritten.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use ebb_inspect::core_file::find_layout;
use ebb_inspect::ebbmalloc::explain::Explainer;
use ebb_inspect::ebbmalloc::profile;
use ebb_inspect::{Heap, Target, Unsupported, glibc, jemalloc, mimalloc, musl, tcmalloc};
use ebb_process::symbols::Symbols;
use ebb_process::{Counters, heap, jvm, python, v8};
use fastrand::Rng;
use nix::sys::signal::Signal;
use test_needs::needs;

use crate::files;
use crate::harness::{self, Subject};

/// Small and large blocks of several threads, half of them freed.
const PROGRAM: &str = r#"
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
static void *some(void *seed) {
    unsigned n = (unsigned)(size_t)seed;
    static __thread void *kept[1500];
    for (int i = 0; i < 1500; i++) {
        n = n * 1103515245 + 12345;
        kept[i] = malloc(n >> 8 & (i % 100 ? 0x3ff : 0x3ffff));
    }
    for (int i = 0; i < 1500; i += 2) free(kept[i]);
    if (n & 1) pause();
    return 0;
}
int main(void) {
    pthread_t threads[4];
    for (size_t i = 0; i < 4; i++) pthread_create(&threads[i], 0, some, (void *)(i * 2 + 1));
    some((void *)0);
    sleep(2);
    puts("ready");
    fflush(stdout);
    for (;;) pause();
}
"#;

/// A process that stands still, and what is written into it.
struct Mutated {
    subject: Subject,
    memory: File,
    writable: Vec<(u64, u64)>,
}

impl Mutated {
    fn new(subject: Subject) -> Self {
        subject.signal(Signal::SIGSTOP);
        let place = format!("/proc/{}/mem", subject.pid());
        let memory = File::options().read(true).write(true).open(place).expect("its memory");
        let mappings = Target::open(subject.id.cast_signed()).and_then(|it| it.mappings());
        let writable = mappings.expect("mappings").into_iter();
        let writable = writable.filter(|it| it.readable && it.writable && !it.shared);
        let writable: Vec<_> = writable.map(|it| (it.start, it.end)).collect();
        Self { subject, memory, writable }
    }

    fn word(&self, at: u64) -> Option<u64> {
        let mut word = [0; 8];
        self.memory.read_exact_at(&mut word, at).ok()?;
        Some(u64::from_ne_bytes(word))
    }

    /// A word in use: of a mapping's start, of anywhere, or what some word points to.
    fn place(&self, random: &mut Rng) -> u64 {
        let (start, end) = self.writable[random.usize(..self.writable.len())];
        let bytes = if random.bool() { (end - start).min(1 << 16) } else { end - start };
        let mut at = start + random.u64(..bytes / 8) * 8;
        for _ in 0..random.u8(..40) {
            let Some(to) = self.word(at) else { break };
            let is_ours = self.writable.iter().any(|&(start, end)| start <= to && to < end.saturating_sub(64));
            at = if is_ours { to / 8 * 8 + random.u64(..8) * 8 } else { start + random.u64(..bytes / 8) * 8 };
        }
        at
    }

    /// Reads with other words in some places, which have their own again afterwards.
    fn each(&self, random: &mut Rng, read: impl FnOnce()) {
        let mut before = Vec::new();
        for _ in 0..random.usize(1..12) {
            let at = self.place(random);
            let Some(own) = self.word(at) else { continue };
            let word = match random.u8(..6) {
                0 => random.u64(..),
                1 => 1 << random.u8(..64),
                2 => u64::MAX - random.u64(..64),
                3 => own ^ 1 << random.u8(..64),
                4 => self.place(random),
                _ => random.u64(..4096),
            };
            if self.memory.write_all_at(&word.to_ne_bytes(), at).is_ok() {
                before.push((at, own));
            }
        }
        read();
        for (at, own) in before.iter().rev() {
            self.memory.write_all_at(&own.to_ne_bytes(), *at).expect("what could be written");
        }
    }
}

fn built(compiler: &str) -> (tempfile::TempDir, PathBuf) {
    let folder = harness::folder();
    let program = harness::compile(&folder, compiler, "heap", PROGRAM, &["-O1", "-pthread"]);
    (folder, program)
}

fn adds_up(heap: Result<Heap, Unsupported>) {
    if let Ok(heap) = heap {
        assert!(heap.breakdown.adds_up(), "{:?}", heap.breakdown);
    }
}

type Read = fn(&Target, &Path) -> Result<Heap, Unsupported>;

fn fuzz_reader(name: &str, compiler: &str, library: Option<PathBuf>, read: Read) {
    let (_folder, program) = built(compiler);
    let mut command = Command::new(&program);
    if let Some(library) = &library {
        command.env("LD_PRELOAD", library);
    }
    let target = Mutated::new(Subject::start(&mut command));
    let pid = target.subject.id.cast_signed();
    let open = || Target::open(pid).expect("it lives");
    let file = match library {
        Some(library) => library.canonicalize().expect("a file"),
        None if compiler == "musl-gcc" => {
            let mappings = open().mappings().expect("mappings");
            let mut files = mappings.iter().filter_map(|it| it.file());
            files.find(|it| it.to_string_lossy().contains("musl")).expect("musl").to_owned()
        }
        None => program,
    };
    read(&open(), &file).unwrap_or_else(|error| panic!("{name} is read while it is whole: {error}"));
    crate::fuzz(name, |random| target.each(random, || adds_up(read(&open(), &file))));
}

#[test]
fn glibcs() {
    fuzz_reader("reader of glibc", "cc", None, |target, _| glibc::read(target));
}

#[test]
fn musls() {
    needs!("musl-tools");
    fuzz_reader("reader of musl", "musl-gcc", None, musl::read);
}

#[test]
fn jemallocs() {
    needs!("libjemalloc2");
    fuzz_reader("reader of jemalloc", "cc", Some(harness::jemalloc()), jemalloc::read);
}

#[test]
fn mimallocs() {
    needs!("libmimalloc2.0");
    let library = harness::peer("libmimalloc.so.2.0", "libmimalloc2.0");
    fuzz_reader("reader of mimalloc", "cc", Some(library), mimalloc::read);
}

#[test]
fn tcmallocs() {
    needs!("libtcmalloc-minimal4");
    let library = harness::peer("libtcmalloc_minimal.so.4", "libtcmalloc-minimal4");
    fuzz_reader("reader of tcmalloc", "cc", Some(library), tcmalloc::read);
}

#[test]
fn ebbmallocs() {
    let (_folder, program) = built("cc");
    let subject = Subject::start(Command::new(program).env("LD_PRELOAD", harness::ebbmalloc()));
    let target = Mutated::new(subject);
    let pid = target.subject.id.cast_signed();
    let read = || heap::read(pid, Some("ebbmalloc"), None, &Counters::default());
    read().expect("a heap");
    crate::fuzz("reader of ebbmalloc", |random| target.each(random, || drop(read())));
}

#[test]
fn cpythons() {
    let code =
        "kept = [[i, str(i), {i: i}] for i in range(5000)]\nprint('ready', flush=True)\nimport sys; sys.stdin.read()";
    let target = Mutated::new(Subject::python(code));
    let pid = target.subject.id.cast_signed();
    python::read(pid, None).expect("objects");
    crate::fuzz("reader of CPython", |random| target.each(random, || drop(python::read(pid, None))));
}

#[test]
fn v8s() {
    needs!("nodejs");
    let code = "console.log('ready'); process.stdin.resume()";
    let target = Mutated::new(Subject::start(Command::new("node").args(["-e", code])));
    let pid = target.subject.id.cast_signed();
    let process = procfs::process::Process::new(pid).expect("it lives");
    let maps = ebb_process::mappings::read(&process).expect("mappings");
    v8::heap(pid, &maps).expect("a heap");
    crate::fuzz("reader of V8", |random| target.each(random, || drop(v8::heap(pid, &maps))));
}

/// What a look as a whole makes of such a process: libraries, environment, mappings.
#[test]
fn places_of_the_loader() {
    let (_folder, program) = built("cc");
    let target = Mutated::new(Subject::start(&mut Command::new(program)));
    let pid = target.subject.id.cast_signed();
    crate::fuzz("list of the loader", |random| {
        target.each(random, || {
            let _ = ebb_process::malloc_source(pid);
            let _ = ebb_process::environ::now(pid);
            let opened = Target::open(pid).expect("it lives");
            let _ = ebb_inject::Function::malloc_trim(&opened);
        });
    });
}

/// Blocks of a heap as `ebb explain` finds them, and the stacks of its profile with their names.
#[test]
fn blocks_and_stacks_of_ebbmalloc() {
    let (_folder, program) = built("cc");
    let mut command = Command::new(program);
    command.env("LD_PRELOAD", harness::ebbmalloc()).env("EBB_CONF", "prof:true,lg_prof_sample:14");
    let target = Mutated::new(Subject::start(&mut command));
    let pid = target.subject.id.cast_signed();
    let counters = Counters::default();
    let open = || Target::open(pid).expect("it lives");
    let mappings = open().mappings().expect("mappings");
    let switch = counters.switch(pid).expect("its profile");
    let (layout, _) = find_layout(open().memory(), &mappings).expect("a layout");
    crate::fuzz("blocks and stacks of ebbmalloc", |random| {
        let addresses: Vec<u64> = (0..20).map(|_| target.place(random)).collect();
        target.each(random, || {
            let opened = open();
            if let Ok(explainer) = Explainer::new(opened.memory(), &mappings, &layout) {
                addresses.iter().for_each(|&at| drop(explainer.find(at)));
            }
            let stacks =
                profile::state(opened.memory(), switch).and_then(|it| profile::read(opened.memory(), it.table));
            drop(stacks);
        });
    });
}

/// What a process has mapped, or left in /tmp: debug information, a map of compiled functions, counters of Java.
#[test]
fn files_of_a_process() {
    let folder = files::in_memory();
    let library = harness::compile(&folder, "cc", "a.so", PROGRAM, &["-g", "-O1", "-shared", "-fPIC"]);
    let whole = [std::fs::read(&library).expect("a file")];
    std::fs::create_dir(folder.path().join("hsperfdata_a")).expect("a folder");
    let java = folder.path().join("hsperfdata_a/7");
    let counters = [java_counters()];
    std::fs::write(&java, &counters[0]).expect("a file");
    let code = format!(
        "import mmap\nfiles = [open(name, 'r+b') for name in ({library:?}, {java:?})]\n\
         kept = [mmap.mmap(file.fileno(), 0, prot=prot) for file, prot in zip(files, (5, 3))]\n\
         print('ready', flush=True)\nimport sys; sys.stdin.read()"
    );
    let subject = Subject::python(&code);
    let pid = subject.id.cast_signed();
    let map = PathBuf::from(format!("/tmp/perf-{pid}.map"));
    let maps = ["7f0000000000 40 a\n0x7f0000000040 ffffffffffffffff b c\n7f0000000040 1 d\n"];
    let target = Arc::new(Target::open(pid).expect("it lives"));
    let mapped = target.mappings().expect("mappings").into_iter();
    let mapped = mapped.filter(|it| it.file().is_some_and(|file| file == library));
    let mapped = mapped.map(|it| (it.start, it.end)).next().expect("the library");
    let process = procfs::process::Process::new(pid).expect("it lives");
    let smaps = ebb_process::mappings::read(&process).expect("mappings");
    crate::fuzz("files of a process", |random| {
        std::fs::write(&library, files::elf_mutated(random, &whole)).expect("a file");
        std::fs::write(&map, files::mutated_bytes(random, &maps)).expect("a file");
        let mut bytes = files::mutated_bytes(random, &counters);
        bytes.resize(4096, 0);
        std::fs::write(&java, bytes).expect("a file");
        let _ = jvm::heap(&process, &smaps);
        if let Ok(mut symbols) = Symbols::of(&target) {
            for _ in 0..20 {
                let _ = symbols.at(random.u64(mapped.0..mapped.1));
                let _ = symbols.at(0x7f_0000_0000 << 8 | random.u64(..128));
            }
        }
    });
    let _ = std::fs::remove_file(map);
}

/// Two counters in the form of `hsperfdata`.
fn java_counters() -> Vec<u8> {
    let mut file = vec![0; 32];
    file[..6].copy_from_slice(&[0xca, 0xfe, 0xc0, 0xc0, 1, 2]);
    file[24] = 32;
    file[28] = 2;
    for name in ["sun.gc.generation.0.capacity", "sun.gc.generation.0.space.0.used"] {
        let mut entry = vec![0; 72];
        (entry[0], entry[4], entry[12], entry[16]) = (72, 20, b'J', 64);
        entry[20..20 + name.len()].copy_from_slice(name.as_bytes());
        entry[66] = 1;
        file.extend(entry);
    }
    file
}
