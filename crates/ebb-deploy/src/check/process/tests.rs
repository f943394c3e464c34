use ebb_allocators::Allocator;

use super::*;
use ebb_process::elf::{Libc, Machine};

const JEMALLOC: &str = "/l/libjemalloc.so.2";

fn wanted() -> Wanted {
    Wanted::from_preload(&[missing(JEMALLOC)]).unwrap()
}

fn missing(text: &str) -> Entry {
    Entry { text: text.to_owned(), file: EntryFile::Missing }
}

fn variables(preload: &str) -> Variables {
    Variables::from([("LD_PRELOAD".into(), preload.into())])
}

fn process(malloc: Malloc) -> Process {
    Process {
        pid: 7,
        parent: 6,
        program: "/bin/p".to_owned(),
        target: Some(Target {
            machine: Machine { machine: 62, bits: 64, little_endian: true },
            libc: Libc::Glibc,
            page_bytes: None,
        }),
        secure: false,
        malloc: Ok(malloc),
        at_start: Ok(Variables::new()),
        now: None,
        preloaded: Vec::new(),
        inside: None,
        in_force: InForce::new(),
        entrypoints: Vec::new(),
    }
}

fn on_libc() -> Process {
    process(Malloc::Libc("/l/libc.so.6".into()))
}

#[track_caller]
fn assert_only(process: &Process, ancestors: &[Ancestor], id: Id) {
    let found = judge(process, &wanted(), ancestors);
    assert_eq!(found.iter().map(|it| it.id).collect::<Vec<_>>(), [id], "{found:?}");
    assert_eq!(found[0].pid, Some(7));
}

#[test]
fn the_library_in_charge_is_no_finding() {
    let fine = process(Malloc::Library(JEMALLOC.into(), Some(Allocator::Jemalloc)));
    assert_eq!(in_charge(&fine, &wanted()), Some(true));
    assert_eq!(judge(&fine, &wanted(), &[]), []);
    // By the functions it has, whatever the file is called.
    let renamed = process(Malloc::Library("/opt/a.so".into(), Some(Allocator::Jemalloc)));
    assert_eq!(in_charge(&renamed, &wanted()), Some(true));
}

#[test]
fn where_the_variable_was_lost_is_told() {
    assert_only(&on_libc(), &[], Id::NotAsked);
    let scripted = Process { entrypoints: vec!["/entrypoint.sh".to_owned()], ..on_libc() };
    assert_only(&scripted, &[], Id::EntrypointBypassed);
    let late = Process { now: Some(variables("x.so:/l/libjemalloc.so.2")), ..on_libc() };
    assert_only(&late, &[], Id::PreloadTooLate);

    let ancestor = |pid, preload: Option<&str>| Ancestor {
        pid,
        program: format!("/bin/a{pid}"),
        preload: preload.map(str::to_owned),
    };
    let ancestors = [ancestor(6, None), ancestor(5, Some(JEMALLOC))];
    assert_only(&on_libc(), &ancestors, Id::EnvironmentDropped);
    let found = judge(&on_libc(), &wanted(), &ancestors);
    assert!(found[0].what.contains("/bin/a6 (process 6) was started without it"), "{found:?}");
}

#[test]
fn what_keeps_an_asked_library_out_is_told() {
    let asked = |process: Process| Process {
        preloaded: vec![missing(JEMALLOC)],
        at_start: Ok(variables(JEMALLOC)),
        ..process
    };
    assert_only(&asked(on_libc()), &[], Id::LibraryMissing);
    let secure = Process { secure: true, ..asked(on_libc()) };
    assert_only(&secure, &[], Id::SecureMode);
    assert_only(&asked(process(Malloc::Static)), &[], Id::StaticProgram);
    let go = Process { inside: Some(Inside::Go), ..asked(process(Malloc::Static)) };
    assert_only(&go, &[], Id::AllocatorInside);
    let jemalloc = || asked(process(Malloc::Library(JEMALLOC.into(), Some(Allocator::Jemalloc))));
    let with = |inside| Process { inside: Some(inside), ..jemalloc() };
    let mimalloc = with(Inside::Mimalloc);
    assert_eq!(in_charge(&mimalloc, &wanted()), Some(false));
    assert_only(&mimalloc, &[], Id::AllocatorInside);
    // What is inside is what is wanted.
    let jemalloc = with(Inside::PrefixedJemalloc);
    assert_eq!(in_charge(&jemalloc, &wanted()), Some(true));
}

#[test]
fn what_cannot_be_read_is_neither_yes_nor_no() {
    let closed = Process { malloc: Err(Unreadable::Permission), ..on_libc() };
    assert_eq!(in_charge(&closed, &wanted()), None);
    assert_only(&closed, &[], Id::Closed);
    let half = Process { at_start: Err(Unreadable::Permission), ..on_libc() };
    assert_only(&half, &[], Id::Closed);
}

#[test]
fn the_systems_own_is_wanted_too() {
    let system = Wanted { name: "glibc".to_owned(), allocator: Some(Allocator::Glibc), file: None };
    assert_eq!(judge(&on_libc(), &system, &[]), []);
    let other = process(Malloc::Library(JEMALLOC.into(), Some(Allocator::Jemalloc)));
    assert_eq!(judge(&other, &system, &[])[0].id, Id::OtherFirst);
}
