//! What a Java virtual machine says of its heap: the performance counters that it keeps in a mapped file
//! (`/tmp/hsperfdata_USER/PID`), as `jstat` reads them. They are read from the process's memory, not by the path.
//!
//! Format: `PerfDataPrologue` and `PerfDataEntry` in HotSpot's perfMemory.hpp, version 2.

use std::os::unix::fs::FileExt;

use procfs::process::{MMapPath, MemoryMaps, Process};

use crate::snapshot::Managed;

/// Bytes of the file at most; HotSpot's default is 32 kB.
const MOST_BYTES: u64 = 1 << 20;
/// Counters at most.
const MOST_ENTRIES: u32 = 10_000;
/// Bytes of an entry before its name.
const ENTRY_BYTES: usize = 20;
const LONG: u8 = b'J';
const TEXT: u8 = b'B';

/// The counters of `process`; `None` where there are none, or they cannot be read.
pub fn heap(process: &Process, maps: &MemoryMaps) -> Option<Managed> {
    let map = maps.iter().find(|map| match &map.pathname {
        MMapPath::Path(path) => path.to_string_lossy().contains("/hsperfdata_"),
        _ => false,
    })?;
    let (start, end) = map.address;
    let mut data = vec![0; usize::try_from(end.checked_sub(start)?.min(MOST_BYTES)).ok()?];
    process.mem().ok()?.read_exact_at(&mut data, start).ok()?;
    parse(&data)
}

/// The heap's counters in a file; `None` where it has none.
fn parse(data: &[u8]) -> Option<Managed> {
    const LITTLE_ENDIAN: u8 = 1;
    if data.get(..6)? != [0xca, 0xfe, 0xc0, 0xc0, LITTLE_ENDIAN, 2] {
        return None;
    }
    let mut managed = Managed::default();
    let mut at = word(data, 24)?;
    for _ in 0..word(data, 28)?.min(MOST_ENTRIES as usize) {
        let entry = data.get(at..)?;
        let length = word(entry, 0)?;
        if length < ENTRY_BYTES {
            return None;
        }
        let name = text(entry.get(word(entry, 4)?..)?);
        let value = entry.get(word(entry, 16)?..)?;
        match *entry.get(12)? {
            LONG if name.starts_with("sun.gc.generation.") => {
                let value = u64::from_le_bytes(value.get(..8)?.try_into().ok()?);
                let is_of_space = name.contains(".space.");
                if is_of_space && name.ends_with(".used") {
                    managed.used = managed.used.saturating_add(value);
                } else if !is_of_space && name.ends_with(".capacity") {
                    managed.committed = managed.committed.saturating_add(value);
                }
            }
            TEXT if name == "java.property.java.version" => {
                managed.reader = format!("Java {}", text(value));
            }
            _ => {}
        }
        at = at.checked_add(length)?;
    }
    (managed.committed > 0 && managed.used <= managed.committed).then_some(managed)
}

fn word(data: &[u8], at: usize) -> Option<usize> {
    let bytes = data.get(at..at.checked_add(4)?)?.try_into().ok()?;
    usize::try_from(u32::from_le_bytes(bytes)).ok()
}

/// Up to its NUL, at most 100 characters, without what a terminal would obey.
fn text(bytes: &[u8]) -> String {
    let end = bytes.iter().position(|&byte| byte == 0).unwrap_or(bytes.len()).min(100);
    String::from_utf8_lossy(&bytes[..end]).replace(char::is_control, "\u{fffd}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(name: &str, kind: u8, value: &[u8]) -> Vec<u8> {
        let at = (ENTRY_BYTES + name.len() + 1).next_multiple_of(8);
        let length = (at + value.len()).next_multiple_of(8);
        let mut entry = vec![0; length];
        for (place, number) in [(0, length), (4, ENTRY_BYTES), (16, at)] {
            entry[place..place + 4].copy_from_slice(&(number as u32).to_le_bytes());
        }
        entry[12] = kind;
        entry[ENTRY_BYTES..ENTRY_BYTES + name.len()].copy_from_slice(name.as_bytes());
        entry[at..at + value.len()].copy_from_slice(value);
        entry
    }

    fn file(entries: &[Vec<u8>]) -> Vec<u8> {
        let mut data = vec![0xca, 0xfe, 0xc0, 0xc0, 1, 2, 0, 1];
        data.resize(32, 0);
        data[24..28].copy_from_slice(&32u32.to_le_bytes());
        data[28..32].copy_from_slice(&(entries.len() as u32).to_le_bytes());
        data.extend(entries.concat());
        data
    }

    #[test]
    fn generations_are_added_up_and_a_cut_or_hostile_file_is_none() {
        let long = |name: &str, value: u64| entry(name, LONG, &value.to_le_bytes());
        let data = file(&[
            long("sun.gc.generation.0.capacity", 100),
            long("sun.gc.generation.0.space.0.capacity", 90),
            long("sun.gc.generation.0.space.0.used", 30),
            entry("java.property.java.version", TEXT, b"17.0.1\x1b\0"),
            long("sun.gc.generation.1.capacity", 1000),
            long("sun.gc.generation.1.space.0.used", 500),
        ]);
        let expected = Managed { reader: "Java 17.0.1\u{fffd}".to_owned(), committed: 1100, used: 530 };
        assert_eq!(parse(&data), Some(expected));
        for length in 0..data.len() {
            assert_eq!(parse(&data[..length]), None, "{length}");
        }
        let mut endless = data.clone();
        endless[32..36].fill(0);
        assert_eq!(parse(&endless), None);
        assert_eq!(parse(&file(&[long("sun.gc.generation.0.space.0.used", 30)])), None);
    }
}
