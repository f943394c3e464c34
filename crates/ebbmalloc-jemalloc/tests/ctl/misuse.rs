//! Wrong names, sizes and directions: what comes back, and that nothing has changed.

use core::ffi::c_void;
use core::ptr::{null, null_mut};
use ebbmalloc_core::runtime;
use ebbmalloc_core::size::{CLASSES, SMALL_MAX};
use ebbmalloc_jemalloc::call::Call;
use ebbmalloc_jemalloc::nodes::ROOT;
use ebbmalloc_jemalloc::{Access, Errno, Kind, Node, Type, by_mib, by_name, name_to_mib, read, read_mib, write};

fn boot() {
    // SAFETY: allocated just now.
    unsafe { runtime::free(runtime::malloc(1)) };
}

/// Reads `name` into a buffer of `bytes`; the result, and the length that it reports.
fn read_into(name: &str, bytes: usize) -> (Result<(), Errno>, usize, [u8; 16]) {
    let (mut buffer, mut length) = ([0xee; 16], bytes);
    // SAFETY: the buffer is longer than any `bytes` below.
    let call = unsafe { Call::new(&[], buffer.as_mut_ptr().cast(), &raw mut length, null(), 0) };
    (by_name(name.as_bytes(), &call), length, buffer)
}

#[test]
fn names_that_are_none() {
    boot();
    let behind_the_bins = format!("arenas.bin.{CLASSES}.size");
    for name in [
        "",
        ".",
        "stats",
        "stats.",
        "stats.allocated.",
        "stats.allocated.more",
        "arenas.bin",
        "arenas.bin.0",
        &behind_the_bins,
        "arenas.bin.x.size",
        "arenas.bin..size",
        "arena.4098.initialized",
        "stats.arenas.4095.nthreads",
        "arenas.lextent.187.size",
        "opt.no_such",
        "opt.purge",
        "thread",
        "epochs",
        "epoc",
        "arenas.bin.99999999999999999999999.size",
    ] {
        assert_eq!(read_into(name, 8).0, Err(Errno::ENOENT), "{name}");
    }
}

#[test]
fn numbers_stand_for_names_as_far_as_there_is_room() {
    boot();
    let mut mib = [99; 7];
    let depth = name_to_mib(b"arenas.bin.3.size", &mut mib).unwrap();
    assert_eq!((depth, mib[2]), (4, 3));
    let mut sizes = Vec::new();
    for bin in 0..CLASSES {
        mib[2] = bin;
        sizes.push(read_mib::<usize>(&mib[..4]).unwrap());
    }
    assert!(sizes.is_sorted() && sizes[CLASSES - 1] == SMALL_MAX);
    mib[2] = CLASSES;
    assert_eq!(read_mib::<usize>(&mib[..4]), Err(Errno::ENOENT));
    assert_eq!(read_mib::<usize>(&mib[..3]), Err(Errno::ENOENT));
    let mut short = [99; 2];
    assert_eq!(name_to_mib(b"arenas.bin.3.size", &mut short), Ok(2));
    assert_eq!(short, mib[..2]);
    assert_eq!(name_to_mib(b"arenas.bin", &mut short), Ok(2));
    assert_eq!(name_to_mib(b"arenas.pin", &mut short), Err(Errno::ENOENT));
    assert_eq!(name_to_mib(b"arenas.bin", &mut []), Ok(0));
    // SAFETY: nothing is read or written.
    let call = unsafe { Call::new(&[77, 1], null_mut(), null_mut(), null(), 0) };
    assert_eq!(by_mib(&call), Err(Errno::ENOENT));
}

/// All leaves with their names, an index of 0 wherever one is asked for.
fn leaves(nodes: &'static [Node], before: &str, all: &mut Vec<(String, Access, Type)>) {
    for node in nodes {
        let name = format!("{before}{}", node.name);
        match &node.kind {
            Kind::Leaf { access, value, .. } => all.push((name, *access, *value)),
            Kind::Group(members) => leaves(members, &format!("{name}."), all),
            Kind::Indexed(indexed) => leaves(indexed.members, &format!("{name}.0."), all),
        }
    }
}

fn bytes_of(value: Type) -> usize {
    match value {
        Type::Bool => 1,
        Type::Unsigned => 4,
        _ => 8,
    }
}

#[test]
fn every_name_can_be_read_by_its_type_and_no_other() {
    boot();
    let mut all = Vec::new();
    leaves(ROOT, "", &mut all);
    assert!(all.len() > 150);
    let plain = all.iter().filter(|(_, access, _)| *access == Access::Read);
    for (name, _, value) in plain {
        let bytes = bytes_of(*value);
        let (result, length, _) = read_into(name, bytes);
        if result == Err(Errno::ENOENT) {
            // The texts that settings were read from are names only where there are such texts.
            assert!(name.starts_with("opt.malloc_conf."), "{name}");
            continue;
        }
        assert_eq!((result, length), (Ok(()), bytes), "{name}");
        assert_eq!(read_into(name, bytes - 1).0, Err(Errno::EINVAL), "{name}");
        // It is never written.
        let new = [0u8; 8];
        // SAFETY: as long as it says.
        let call = unsafe { Call::new(&[], null_mut(), null_mut(), new.as_ptr().cast::<c_void>(), bytes) };
        assert_eq!(by_name(name.as_bytes(), &call), Err(Errno::EPERM), "{name}");
    }
}

#[test]
fn a_wrong_size_is_not_written() {
    boot();
    let before = read::<bool>(b"background_thread").unwrap();
    assert_eq!(write(b"background_thread", 0u32), Err(Errno::EINVAL));
    assert_eq!(read::<bool>(b"background_thread"), Ok(before));
    assert_eq!(write(b"epoch", 1u32), Err(Errno::EINVAL));
}

#[test]
fn a_bound_on_threads_is_kept_within_that_of_the_settings() {
    boot();
    assert_eq!(read::<usize>(b"max_background_threads"), Ok(4));
    assert_eq!(write(b"max_background_threads", 2usize), Ok(()));
    assert_eq!(read::<usize>(b"max_background_threads"), Ok(2));
    assert_eq!(write(b"max_background_threads", 0usize), Err(Errno::EINVAL));
    assert_eq!(write(b"max_background_threads", 5usize), Err(Errno::EINVAL));
    assert_eq!(read::<usize>(b"max_background_threads"), Ok(2));
    assert_eq!(write(b"max_background_threads", 4usize), Ok(()));
}

#[test]
fn the_texts_of_settings_that_are_not_there_are_no_names() {
    boot();
    for name in ["symlink", "env_var", "global_var", "global_var_2_conf_harder"] {
        let name = format!("opt.malloc_conf.{name}");
        let there = name.ends_with("symlink") && std::fs::read_link("/etc/malloc.conf").is_ok();
        assert_eq!(read_into(&name, 8).0.is_ok(), there, "{name}");
    }
}
