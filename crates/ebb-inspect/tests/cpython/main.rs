//! CPython read from outside, against what it says about itself: the collector's state and lists against the
//! module `gc`, the arenas against `sys._debugmallocstats()`.
//!
//! The interpreter is `python3`; `EBB_TEST_PYTHONS` names others, separated by colons, as
//! `ci/test-long.sh` does.

mod own_mimalloc;

use std::io::{BufRead, BufReader, Read};
use std::process::{Child, Command, Stdio};

use ebb_inspect::cpython::{Arenas, Python};
use ebb_inspect::{Heap, Target, Unsupported};

/// Objects that only this program has, a burst of which half is gone, and then its own figures; it ends
/// with its stdin. `os.read` makes no object that stays.
const PROGRAM: &str = r#"
import gc, os, sys
class Marker:
    __slots__ = ("a", "b")
gc.set_threshold(701, 11, 12)
markers = [Marker() for _ in range(12345)]
burst = [bytes(40) + str(i).encode() for i in range(200000)]
del burst[::2]
gc.collect()
if "off" in sys.argv:
    gc.disable()
if "freeze" in sys.argv:
    gc.freeze()
tracked = [len(gc.get_objects(generation=i)) for i in range(3)]
print(gc.isenabled(), *tracked, gc.get_freeze_count(), flush=True)
sys._debugmallocstats()
sys.stderr.flush()
print("ready", flush=True)
os.read(0, 1)
"#;

struct Program {
    child: Child,
    first: String,
    stats: String,
}

impl Program {
    fn start(python: &str, code: &str, arguments: &[&str]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let stats = folder.path().join("stats");
        let mut child = Command::new(python)
            .args(["-c", code])
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(std::fs::File::create(&stats).unwrap())
            .spawn()
            .unwrap_or_else(|error| panic!("{python}: {error}: apt-get install python3"));
        let mut out = BufReader::new(child.stdout.take().unwrap());
        let mut line = || {
            let mut line = String::new();
            out.read_line(&mut line).unwrap();
            line.trim().to_owned()
        };
        let first = line();
        let ready = line();
        let mut text = String::new();
        let mut file = std::fs::File::open(&stats).unwrap();
        file.read_to_string(&mut text).unwrap();
        assert_eq!(ready, "ready", "{python}: {text}");
        Self { child, first, stats: text }
    }

    fn read(&self) -> Python {
        let target = Target::open(self.child.id() as i32).unwrap();
        Python::read(&target, &[]).unwrap()
    }

    /// A figure of `_debugmallocstats`: `# name = 1,234`; of all interpreters that have told theirs.
    fn figure(&self, name: &str) -> u64 {
        let lines = self.stats.lines().filter(|line| line.contains(name));
        let value = |line: &str| line.rsplit_once('=').unwrap().1.trim().replace(',', "");
        let values: Vec<u64> = lines.map(|line| value(line).parse().unwrap()).collect();
        assert!(!values.is_empty(), "{name} is not in {}", self.stats);
        values.iter().sum()
    }

    /// Asserts that what was read of the arenas is what the interpreters say.
    #[track_caller]
    fn assert_told(&self, python: &str, arenas: &Arenas) {
        assert_eq!(arenas.unread, 0);
        assert_eq!(arenas.count, self.figure("# arenas allocated current"), "{python}");
        let near = |what, found, said| assert_near(what, found, said, 16 << 10);
        near("used", arenas.used_bytes, self.figure("# bytes in allocated blocks"));
        near("available", arenas.available_bytes, self.figure("# bytes in available blocks"));
        near("unused", arenas.unused_pool_bytes, self.figure("unused pools *"));
        assert!(arenas.resident_bytes <= arenas.bytes);
        assert!(arenas.resident_bytes > arenas.used_bytes / 2);
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        drop(self.child.stdin.take());
        let _ = self.child.wait();
    }
}

/// Starts an interpreter and waits for the first byte that it prints.
fn started(command: &mut Command) -> Child {
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let stdout = child.stdout.as_mut().unwrap();
    stdout.read_exact(&mut [0]).unwrap();
    child
}

/// Reads an interpreter that prints and then waits for the end of its input.
fn read_while_it_waits(command: &mut Command) -> Python {
    let mut child = started(command);
    let read = Python::read(&Target::open(child.id() as i32).unwrap(), &[]).unwrap();
    drop(child.stdin.take());
    child.wait().unwrap();
    read
}

/// The same of code that an interpreter runs, with its heap.
fn read_with_heap(python: &str, code: &str) -> (Heap, Python) {
    let mut child = started(Command::new(python).args(["-c", code]));
    let target = Target::open(child.id() as i32).unwrap();
    let heap = ebb_inspect::glibc::read(&target).unwrap();
    let read = Python::read(&target, &heap.large).unwrap();
    drop(child.stdin.take());
    child.wait().unwrap();
    (heap, read)
}

fn pythons() -> Vec<String> {
    match std::env::var("EBB_TEST_PYTHONS") {
        Ok(names) => names.split(':').map(str::to_owned).collect(),
        Err(_) => vec!["python3".to_owned()],
    }
}

/// What happens between the interpreter's own figures and the end of its last line: a few objects.
#[track_caller]
fn assert_near(what: &str, found: u64, said: u64, most: u64) {
    assert!(found.abs_diff(said) <= most, "{what}: {found} read, {said} said");
}

#[test]
fn the_collector_as_the_module_gc_tells_it() {
    for python in pythons() {
        for (arguments, enabled) in [(&[][..], true), (&["off", "freeze"], false)] {
            let program = Program::start(&python, PROGRAM, arguments);
            let read = program.read();
            assert_eq!(read.interpreters.len(), 1);
            assert_eq!(read.interpreters[0].id, 0);
            let collector = read.interpreters[0].collector.as_ref().expect("its state");
            assert!(collector.complete, "{python}");
            assert_eq!(collector.enabled, enabled);
            assert_eq!(collector.thresholds, [701, 11, 12], "{python}");
            let words: Vec<&str> = program.first.split(' ').collect();
            for (index, &tracked) in collector.tracked.iter().enumerate() {
                let said = words[index + 1].parse().unwrap();
                let most = if index == 0 { 50 } else { 0 };
                assert_near("tracked", tracked, said, most);
            }
            // The last of the words; none is frozen in the first program, all in the second.
            let frozen: u64 = words[4].parse().unwrap();
            assert_eq!((collector.frozen, frozen > 10_000), (frozen, !enabled), "{python}");
            let markers = collector.types.iter().find(|it| it.name.as_deref() == Some("Marker"));
            let markers = markers.expect("the type");
            assert_eq!(markers.count, 12345);
            // The head, two words of an object, two slots.
            assert_eq!(markers.bytes, 12345 * (16 + 32));
        }
    }
}

#[test]
fn the_arenas_as_debugmallocstats_tells_them() {
    for python in pythons() {
        let program = Program::start(&python, PROGRAM, &[]);
        let read = program.read();
        let arenas = read.arenas.unwrap_or_else(|| panic!("{python}: no arenas"));
        program.assert_told(&python, &arenas);
        // Half of the burst is gone, and its pools stay.
        assert!(arenas.available_bytes > 5 << 20, "{arenas:?}");
    }
}

/// Lists and pools change while they are read: every look ends, and what it says holds together.
#[test]
fn a_busy_interpreter() {
    let code = "import os, sys\nprint(flush=True)\nkept = []\nwhile True:\n \
                kept.append([(i,) for i in range(100)])\n if len(kept) > 500: del kept[::2]\n";
    for python in pythons() {
        let mut child = started(Command::new(&python).args(["-c", code]));
        let target = Target::open(child.id() as i32).unwrap();
        for _ in 0..10 {
            let read = Python::read(&target, &[]);
            // The state itself does not move, so only its lists can be torn.
            let read = read.unwrap_or_else(|error| panic!("{python}: {error}"));
            let collector = read.interpreters[0].collector.as_ref().expect("its state");
            let counted: u64 = collector.types.iter().map(|it| it.count).sum();
            let tracked: u64 = collector.tracked.iter().sum();
            assert_eq!(counted, tracked + collector.frozen);
            let arenas = read.arenas.expect("arenas");
            assert!(arenas.used_bytes + arenas.available_bytes + arenas.unused_pool_bytes <= arenas.bytes);
            assert!(arenas.resident_bytes <= arenas.bytes);
        }
        child.kill().unwrap();
        child.wait().unwrap();
    }
}

#[test]
fn two_interpreters_in_a_process() {
    const CODE: &str = "import os\n\
        try: import _interpreters as i\n\
        except ImportError: import _xxsubinterpreters as i\n\
        x = i.create(); print(flush=True); os.read(0, 1)";
    for python in pythons() {
        let read = read_while_it_waits(Command::new(&python).args(["-c", CODE]));
        let ids: Vec<i64> = read.interpreters.iter().map(|it| it.id).collect();
        assert_eq!(ids, [1, 0], "{python}");
        for interpreter in &read.interpreters {
            let is_told = interpreter.collector.is_some();
            assert_eq!(is_told, read.version != (3, 8) || interpreter.id == 0);
            if let Some(collector) = &interpreter.collector {
                assert!(collector.complete, "{python}");
                assert!(collector.types.iter().any(|it| it.name.as_deref() == Some("dict")));
            }
        }
    }
}

/// Three more interpreters hold a burst, the last of them in the arenas of the main one; with an argument the first has
/// freed its own. Those tell their figures who have arenas of their own: before 3.12 only the main one.
const SEVERAL: &str = r#"
import os, sys
try: import _interpreters as i
except ImportError: import _xxsubinterpreters as i
burst = "burst = [bytes(40) + str(i).encode() for i in range(%d)]; del burst[::2]; import sys"
own = [i.create(), i.create()]
if sys.version_info >= (3, 13): sharing = i.create("legacy")
elif sys.version_info >= (3, 9): sharing = i.create(isolated=False)
else: sharing = i.create()
for each, length in zip([*own, sharing], [100000, 200000, 300000]):
    i.run_string(each, burst % length)
if len(sys.argv) > 1:
    i.run_string(own[0], "del burst")
print("told", flush=True)
if sys.version_info >= (3, 12):
    for each in own:
        i.run_string(each, "sys._debugmallocstats()")
sys._debugmallocstats()
sys.stderr.flush()
print("ready", flush=True)
os.read(0, 1)
"#;

#[test]
fn the_arenas_of_several_interpreters_add_up() {
    for python in pythons() {
        let [held, freed] = [&[][..], &["freed"]].map(|arguments| {
            let program = Program::start(&python, SEVERAL, arguments);
            let read = program.read();
            assert_eq!(read.interpreters.len(), 4, "{python}");
            let arenas = read.arenas.unwrap_or_else(|| panic!("{python}: no arenas"));
            program.assert_told(&python, &arenas);
            arenas
        });
        // Three halves of bursts, of 56 bytes or more a block.
        assert!(held.used_bytes > 300_000 * 56, "{python}: {held:?}");
        let gone = held.used_bytes - freed.used_bytes;
        assert!(gone > 50_000 * 56, "{python}: {held:?} {freed:?}");
    }
}

/// A block of 3 MB belongs to a `bytearray` that lies in the arenas of the second interpreter.
#[test]
fn large_blocks_of_another_interpreter_have_owners() {
    const CODE: &str = "import os\n\
        try: import _interpreters as i\n\
        except ImportError: import _xxsubinterpreters as i\n\
        x = i.create(); i.run_string(x, 'kept = bytearray(3 << 20)'); print(flush=True); os.read(0, 1)";
    for python in pythons() {
        let (heap, read) = read_with_heap(&python, CODE);
        let names: Vec<_> = read.buffers.iter().map(|it| it.name.as_deref()).collect();
        assert_eq!(names, [Some("bytearray")], "{python}: {:?} {:?}", read.arenas, heap.large);
    }
}

/// The kernel joins mappings: large blocks follow 100 MB of arenas in the same mapping, and all are found.
#[test]
fn large_blocks_behind_arenas() {
    const CODE: &str = "import os\n\
        objects = [None] * 600000\n\
        kept = [bytearray(n) for n in (1100000, 1300000, 1700000)]\n\
        for i in range(600000): objects[i] = bytes(100) + str(i).encode()\n\
        print(flush=True); os.read(0, 1)";
    for python in pythons() {
        let (heap, read) = read_with_heap(&python, CODE);
        let found = heap.glibc.as_ref().unwrap();
        assert!(found.mmapped_complete, "{python}: {found:?}");
        let arrays = read.buffers.iter().find(|it| it.name.as_deref() == Some("bytearray"));
        assert_eq!(arrays.map(|it| it.count), Some(3), "{python}: {:?}", read.buffers);
    }
}

/// Buffers of every kind that an interpreter without packages has; numbers that look like addresses by chance.
const BUFFERS: &str = r#"
import array, ctypes, os, sys
kept = [bytes(3 << 20), bytes(2 << 20), "\u20ac" * (2 << 20), bytearray(5 << 20), array.array("d", bytes(6 << 20)),
        ctypes.create_string_buffer(7 << 20), [None] * (1 << 20), dict.fromkeys(range(100000))]
libc = ctypes.CDLL(None)
libc.malloc.restype = ctypes.c_void_p
libc.memset.argtypes = ctypes.c_void_p, ctypes.c_int, ctypes.c_size_t
libc.memset(libc.malloc(9 << 20), 7, 9 << 20)
print(flush=True)
os.read(0, 1)
"#;

#[test]
fn large_blocks_have_owners() {
    for python in pythons() {
        let (heap, read) = read_with_heap(&python, BUFFERS);
        let told: u64 = read.buffers.iter().map(|it| it.count).sum();
        assert_eq!(told, heap.large.len() as u64);
        let found = heap.glibc.as_ref().unwrap();
        assert!(found.mmapped_complete, "{python}: {found:?}");
        let owned = |name: Option<&str>| {
            let name = name.map(str::to_owned);
            read.buffers.iter().find(|it| it.name == name)
        };
        for (name, count, megabytes) in [
            (Some("bytes"), 2, 5),
            (Some("str"), 1, 4),
            (Some("bytearray"), 1, 5),
            (Some("array.array"), 1, 6),
            (Some("c_char_Array_7340032"), 1, 7),
            (Some("list"), 1, 8),
            (None, 1, 9),
        ] {
            let found = owned(name).unwrap_or_else(|| panic!("{python}: {name:?} {:?}", read.buffers));
            // A page for its head, and what the interpreter rounds up to.
            let least = megabytes << 20;
            assert_eq!(found.count, count, "{python}: {name:?} {:?}", read.buffers);
            assert!((least..least + least / 8 + 8192).contains(&found.bytes), "{python}: {found:?}");
        }
        assert!(owned(Some("dict")).is_some_and(|it| it.bytes > 2 << 20), "{python}: {:?}", read.buffers);
    }
}

#[test]
fn without_pymalloc_there_are_no_arenas() {
    let read = read_while_it_waits(
        Command::new("python3")
            .args(["-c", "import os; print(flush=True); os.read(0, 1)"])
            .env("PYTHONMALLOC", "malloc"),
    );
    assert_eq!(read.arenas, None);
    assert_eq!(read.interpreters.len(), 1);
}

#[test]
fn a_process_without_python() {
    let own = Target::open(std::process::id() as i32).unwrap();
    assert_eq!(Python::read(&own, &[]), Err(Unsupported::NoPython));
}
