//! A profile as pprof's file: a protocol buffer, with gzip. `go tool pprof`, Pyroscope, Parca, speedscope and Perfetto read it.
//!
//! Used by `ebb profile -o` and `ebb diff`. Also other programs' files are read; what is missing in them is 0.

use std::collections::HashMap;
use std::io::{Read as _, Write as _};
use std::time::{SystemTime, UNIX_EPOCH};

use flate2::Compression;
use flate2::read::MultiGzDecoder;
use flate2::write::GzEncoder;

use super::profile::{Location, Module, Profile, Stack, Sum};
use super::symbols::Line;

/// A larger profile is not read.
const MOST_BYTES: u64 = 1 << 30;
/// Values of a sample, in the order of Go's heap profiles: objects and bytes that were allocated, and that are in use.
const TYPES: [(&str, &str); 4] =
    [("alloc_objects", "count"), ("alloc_space", "bytes"), ("inuse_objects", "count"), ("inuse_space", "bytes")];

/// Why bytes are no profile.
#[derive(Debug, thiserror::Error)]
pub enum NoPprof {
    /// They end in the middle, or are something else.
    #[error("not a pprof file")]
    Format,
    /// They are of a kind that is not about memory.
    #[error("it has no inuse_space and no alloc_space: it is no heap profile")]
    NoHeap,
    /// They are too many.
    #[error("larger than 1 GiB")]
    TooLong,
}

#[derive(Default)]
struct Message(Vec<u8>);

impl Message {
    fn varint(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.0.push(value.to_le_bytes()[0] | 0x80);
            value >>= 7;
        }
        self.0.push(value.to_le_bytes()[0]);
    }

    fn number(&mut self, field: u64, value: u64) {
        if value != 0 {
            self.varint(field << 3);
            self.varint(value);
        }
    }

    fn bytes(&mut self, field: u64, bytes: &[u8]) {
        self.varint(field << 3 | 2);
        self.varint(bytes.len() as u64);
        self.0.extend_from_slice(bytes);
    }

    fn packed(&mut self, field: u64, values: impl IntoIterator<Item = u64>) {
        let mut packed = Message::default();
        values.into_iter().for_each(|value| packed.varint(value));
        self.bytes(field, &packed.0);
    }
}

/// Texts by their number; the first is empty.
struct Strings<'a> {
    numbers: HashMap<&'a str, u64>,
    texts: Vec<&'a str>,
}

impl<'a> Strings<'a> {
    fn number(&mut self, text: &'a str) -> u64 {
        *self.numbers.entry(text).or_insert_with(|| {
            self.texts.push(text);
            self.texts.len() as u64 - 1
        })
    }
}

/// The file. `shown` is the type that readers show first, where it is not the last; `time_ns` is when the profile was read.
pub fn write(profile: &Profile, shown: Option<&'static str>, time_ns: u64) -> Vec<u8> {
    let mut strings = Strings { numbers: HashMap::from([("", 0)]), texts: vec![""] };
    let mut out = Message::default();
    let mut kind = |strings: &mut Strings<'_>, field, (name, unit)| {
        let mut kind = Message::default();
        kind.number(1, strings.number(name));
        kind.number(2, strings.number(unit));
        out.bytes(field, &kind.0);
    };
    TYPES.into_iter().for_each(|it| kind(&mut strings, 1, it));
    kind(&mut strings, 11, ("space", "bytes"));
    for stack in &profile.stacks {
        let mut sample = Message::default();
        sample.packed(1, stack.locations.iter().map(|&at| at as u64 + 1));
        let (all, live) = (stack.allocated, stack.live);
        let values = [all.objects, all.bytes, live.objects, live.bytes];
        sample.packed(2, values.map(|value| value.max(0.0).round() as u64));
        out.bytes(2, &sample.0);
    }
    for (id, module) in (1..).zip(&profile.modules) {
        let mut mapping = Message::default();
        mapping.number(1, id);
        mapping.number(2, module.start);
        mapping.number(3, module.end);
        mapping.number(4, module.offset);
        mapping.number(5, strings.number(&module.file));
        mapping.number(6, strings.number(module.build_id.as_deref().unwrap_or_default()));
        out.bytes(3, &mapping.0);
    }
    let mut functions: HashMap<(&str, &str), (u64, bool)> = HashMap::new();
    for (id, location) in (1..).zip(&profile.locations) {
        let mut place = Message::default();
        place.number(1, id);
        place.number(2, location.module.map_or(0, |at| at as u64 + 1));
        place.number(3, location.address);
        for line in &location.lines {
            let next = functions.len() as u64 + 1;
            let key = (line.function.as_str(), line.file.as_deref().unwrap_or_default());
            let (function, _) = *functions.entry(key).or_insert_with(|| (next, location.is_python()));
            let mut of = Message::default();
            of.number(1, function);
            of.number(2, line.line.into());
            place.bytes(4, &of.0);
        }
        out.bytes(4, &place.0);
    }
    let mut functions: Vec<_> = functions.into_iter().collect();
    functions.sort_unstable_by_key(|(_, (id, _))| *id);
    for ((name, file), (id, is_python)) in functions {
        let mut function = Message::default();
        function.number(1, id);
        function.number(2, strings.number(name));
        // pprof takes what is in angle brackets out of a name that is also the linker's.
        function.number(3, if is_python { 0 } else { strings.number(name) });
        function.number(4, strings.number(file));
        out.bytes(5, &function.0);
    }
    out.number(9, time_ns);
    out.number(10, profile.seconds.map_or(0, |it| (it.max(0.0) * 1e9) as u64));
    out.number(12, profile.interval);
    let comments: Vec<u64> = profile.notes.iter().map(|note| strings.number(note)).collect();
    out.packed(13, comments);
    out.number(14, shown.map_or(0, |shown| strings.number(shown)));
    for text in strings.texts {
        out.bytes(6, text.as_bytes());
    }
    let mut gzip = GzEncoder::new(Vec::new(), Compression::default());
    // Memory takes everything.
    let _ = gzip.write_all(&out.0);
    gzip.finish().unwrap_or_default()
}

/// The time of a profile that is read now.
pub fn now_ns() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    now.map_or(0, |now| u64::try_from(now.as_nanos()).unwrap_or(0))
}

/// A field of a message that is read.
enum Value<'a> {
    Number(u64),
    Bytes(&'a [u8]),
}

struct Fields<'a>(&'a [u8]);

impl<'a> Fields<'a> {
    fn varint(&mut self) -> Option<u64> {
        let mut value = 0;
        for shift in (0..64).step_by(7) {
            let (&byte, rest) = self.0.split_first()?;
            self.0 = rest;
            value |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                return Some(value);
            }
        }
        None
    }

    fn take(&mut self, count: u64) -> Option<&'a [u8]> {
        let (bytes, rest) = self.0.split_at_checked(usize::try_from(count).ok()?)?;
        self.0 = rest;
        Some(bytes)
    }

    /// Calls `each` with every field; `None` where the bytes make no sense.
    fn each(mut self, mut each: impl FnMut(u64, Value<'a>) -> Option<()>) -> Option<()> {
        while !self.0.is_empty() {
            let tag = self.varint()?;
            let value = match tag & 7 {
                0 => Value::Number(self.varint()?),
                1 => Value::Bytes(self.take(8)?),
                2 => {
                    let len = self.varint()?;
                    Value::Bytes(self.take(len)?)
                }
                5 => Value::Bytes(self.take(4)?),
                _ => return None,
            };
            each(tag >> 3, value)?;
        }
        Some(())
    }
}

/// Adds a repeated number, packed or not.
fn repeated(list: &mut Vec<u64>, value: Value<'_>) -> Option<()> {
    match value {
        Value::Number(number) => list.push(number),
        Value::Bytes(bytes) => {
            let mut fields = Fields(bytes);
            while !fields.0.is_empty() {
                list.push(fields.varint()?);
            }
        }
    }
    Some(())
}

/// Numbers of a flat message by their fields, up to 15; other fields are passed over.
fn numbers(bytes: &[u8]) -> Option<[u64; 16]> {
    let mut found = [0; 16];
    Fields(bytes).each(|field, value| {
        if let (Value::Number(number), Ok(field)) = (value, usize::try_from(field))
            && let Some(place) = found.get_mut(field)
        {
            *place = number;
        }
        Some(())
    })?;
    Some(found)
}

/// Reads a file, with gzip or without.
pub fn read(bytes: &[u8]) -> Result<Profile, NoPprof> {
    let mut plain = Vec::new();
    let bytes = if bytes.starts_with(&[0x1f, 0x8b]) {
        let mut decoder = MultiGzDecoder::new(bytes).take(MOST_BYTES + 1);
        decoder.read_to_end(&mut plain).map_err(|_| NoPprof::Format)?;
        &plain[..]
    } else {
        bytes
    };
    if bytes.len() as u64 > MOST_BYTES {
        return Err(NoPprof::TooLong);
    }
    parse(bytes).ok_or(NoPprof::Format)?.build()
}

/// A location: numbers of its mapping and its address; of each line the function's number, and the line.
type Place = (u64, u64, Vec<(u64, u64)>);

/// The parts of a file in its order.
#[derive(Default)]
struct Parts<'a> {
    types: Vec<u64>,
    samples: Vec<(Vec<u64>, Vec<u64>)>,
    modules: HashMap<u64, [u64; 16]>,
    locations: HashMap<u64, Place>,
    functions: HashMap<u64, (u64, u64)>,
    strings: Vec<&'a [u8]>,
    duration_ns: u64,
    period: u64,
}

fn parse(bytes: &[u8]) -> Option<Parts<'_>> {
    let mut parts = Parts::default();
    Fields(bytes).each(|field, value| {
        match (field, value) {
            (1, Value::Bytes(bytes)) => parts.types.push(numbers(bytes)?[1]),
            (2, Value::Bytes(bytes)) => {
                let (mut places, mut values) = (Vec::new(), Vec::new());
                Fields(bytes).each(|field, value| match field {
                    1 => repeated(&mut places, value),
                    2 => repeated(&mut values, value),
                    _ => Some(()),
                })?;
                parts.samples.push((places, values));
            }
            (3, Value::Bytes(bytes)) => {
                let module = numbers(bytes)?;
                parts.modules.insert(module[1], module);
            }
            (4, Value::Bytes(bytes)) => {
                let place = numbers(bytes)?;
                let mut lines = Vec::new();
                Fields(bytes).each(|field, value| {
                    if let (4, Value::Bytes(bytes)) = (field, value) {
                        let line = numbers(bytes)?;
                        lines.push((line[1], line[2]));
                    }
                    Some(())
                })?;
                parts.locations.insert(place[1], (place[2], place[3], lines));
            }
            (5, Value::Bytes(bytes)) => {
                let function = numbers(bytes)?;
                parts.functions.insert(function[1], (function[2], function[4]));
            }
            (6, Value::Bytes(bytes)) => parts.strings.push(bytes),
            (10, Value::Number(number)) => parts.duration_ns = number,
            (12, Value::Number(number)) => parts.period = number,
            _ => {}
        }
        Some(())
    })?;
    (!parts.types.is_empty()).then_some(parts)
}

impl Parts<'_> {
    fn text(&self, number: u64) -> String {
        let bytes = usize::try_from(number).ok().and_then(|at| self.strings.get(at));
        String::from_utf8_lossy(bytes.unwrap_or(&&b""[..])).into_owned()
    }

    fn build(self) -> Result<Profile, NoPprof> {
        let index = |name: &str| self.types.iter().position(|&it| self.text(it) == name);
        let [all_objects, all_bytes, objects, bytes] = TYPES.map(|(name, _)| index(name));
        if all_bytes.is_none() && bytes.is_none() {
            return Err(NoPprof::NoHeap);
        }
        let mut profile = Profile {
            interval: self.period,
            seconds: (self.duration_ns > 0).then_some(self.duration_ns as f64 / 1e9),
            ..Profile::default()
        };
        let mut modules = HashMap::new();
        for (id, module) in &self.modules {
            modules.insert(*id, profile.modules.len());
            let build_id = self.text(module[6]);
            profile.modules.push(Module {
                file: self.text(module[5]),
                build_id: (!build_id.is_empty()).then_some(build_id),
                start: module[2],
                end: module[3],
                offset: module[4],
            });
        }
        let mut locations = HashMap::new();
        for (id, (module, address, lines)) in &self.locations {
            let line = |&(function, line): &(u64, u64)| {
                let (name, file) = self.functions.get(&function).copied().unwrap_or_default();
                let file = self.text(file);
                let file = (!file.is_empty()).then_some(file);
                let line = u32::try_from(line).unwrap_or(0);
                Line { function: self.text(name), file, line }
            };
            let mut lines: Vec<Line> = lines.iter().map(line).collect();
            if lines.is_empty() {
                lines.push(Line { function: format!("{address:#x}"), file: None, line: 0 });
            }
            locations.insert(*id, profile.locations.len());
            let module = modules.get(module).copied();
            profile.locations.push(Location { address: *address, module, lines });
        }
        for (places, values) in &self.samples {
            let value = |index: Option<usize>| {
                let value = index.and_then(|at| values.get(at)).copied().unwrap_or(0);
                // Differences have samples below zero.
                value.cast_signed() as f64
            };
            profile.stacks.push(Stack {
                locations: places.iter().filter_map(|id| locations.get(id).copied()).collect(),
                allocated: Sum { objects: value(all_objects), bytes: value(all_bytes) },
                live: Sum { objects: value(objects), bytes: value(bytes) },
                growth: None,
            });
        }
        Ok(profile)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    pub(crate) fn example() -> Profile {
        let line = |name: &str| Line { function: name.to_owned(), file: Some("a.c".into()), line: 7 };
        let location = |address, name| Location { address, module: Some(0), lines: vec![line(name)] };
        Profile {
            seconds: Some(60.0),
            interval: 1 << 19,
            stacks: vec![Stack {
                locations: vec![1, 0],
                allocated: Sum { objects: 3.0, bytes: 3000.0 },
                live: Sum { objects: 2.0, bytes: 2000.0 },
                growth: None,
            }],
            locations: vec![location(0x1000, "main"), location(0x1100, "leak")],
            modules: vec![Module {
                file: "/bin/x".into(),
                build_id: Some("ab12".into()),
                start: 0x1000,
                end: 0x2000,
                offset: 0,
            }],
            ..Profile::default()
        }
    }

    fn named(profile: &Profile) -> Vec<Vec<&str>> {
        let of = |stack| profile.lines(stack).map(|line| line.function.as_str()).collect();
        profile.stacks.iter().map(of).collect()
    }

    #[test]
    fn what_was_written_is_read() {
        let profile = example();
        let read = read(&write(&profile, Some("alloc_space"), 1)).unwrap();
        assert_eq!((read.seconds, read.interval), (profile.seconds, profile.interval));
        assert_eq!(named(&read), [["leak", "main"]]);
        assert_eq!((read.total(), &read.modules), (profile.total(), &profile.modules));
    }

    #[test]
    fn what_is_cut_short_or_something_else_is_refused() {
        let whole = write(&example(), None, 1);
        let mut plain = Vec::new();
        MultiGzDecoder::new(&whole[..]).read_to_end(&mut plain).unwrap();
        for cut in 0..plain.len() {
            // Many cuts leave a whole message; none may panic.
            let _ = read(&plain[..cut]);
        }
        assert!(matches!(read(b"{}"), Err(NoPprof::Format)));
        assert!(matches!(read(&whole[..20]), Err(NoPprof::Format)));
        assert!(matches!(read(&[10, 2, 8, 1, 50, 0, 50, 3, b'c', b'p', b'u']), Err(NoPprof::NoHeap)));
    }
}
