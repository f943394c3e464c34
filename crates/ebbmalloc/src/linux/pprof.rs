//! A pprof file of the own process, in the smallest form: no names, and gzip without compression.

use std::collections::HashMap;
use std::ffi::{CStr, c_int, c_void};
use std::time::{SystemTime, UNIX_EPOCH};

use ebbmalloc_core::runtime::profile_control as control;

/// What a sample's values are.
const TYPES: [(&str, &str); 4] =
    [("alloc_objects", "count"), ("alloc_space", "bytes"), ("inuse_objects", "count"), ("inuse_space", "bytes")];
/// More words are not kept of a profile that grows while it is read.
const ROOM_WORDS: usize = 4096;
/// The smallest page.
const PAGE: u64 = 4096;
/// Objects are in these units.
const OBJECT: u64 = ebb_stats::profile::OBJECT;

/// See [`crate::profile::pprof`].
pub fn file() -> Option<Vec<u8>> {
    let stacks = stacks()?;
    let modules = modules();
    let time = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |it| it.as_nanos());
    let message = message(&stacks, &modules, u64::try_from(time).unwrap_or(0));
    Some(gzip(&message))
}

/// Return addresses, the innermost first, and the [`TYPES`].
type Stack = (Vec<u64>, [u64; 4]);

/// The stacks. Nothing is allocated while the profile is visited.
fn stacks() -> Option<Vec<Stack>> {
    if !control::is_active() {
        return None;
    }
    let mut words = 0;
    control::visit(&mut |frames, _| words += 1 + TYPES.len() + frames.len());
    let mut flat: Vec<u64> = Vec::with_capacity(words + ROOM_WORDS);
    let most = flat.capacity();
    control::visit(&mut |frames, values| {
        if flat.len() + 1 + values.len() + frames.len() <= most {
            flat.push(frames.len() as u64);
            flat.extend_from_slice(&values);
            flat.extend(frames.iter().map(|&frame| frame as u64));
        }
    });
    let mut stacks = Vec::new();
    let mut rest = &flat[..];
    while let [depth, all_objects, all, objects, live, frames @ ..] = rest {
        let (frames, after) = frames.split_at_checked(usize::try_from(*depth).ok()?)?;
        let values = [all_objects.div_ceil(OBJECT), *all, objects.div_ceil(OBJECT), *live];
        stacks.push((frames.to_vec(), values));
        rest = after;
    }
    Some(stacks)
}

/// A part of a file that is mapped to run.
#[derive(Default)]
struct Module {
    start: u64,
    end: u64,
    offset: u64,
    file: String,
    build_id: String,
}

/// What is mapped to run, in order.
fn modules() -> Vec<Module> {
    let mut modules: Vec<Module> = Vec::new();
    // SAFETY: `add_modules` takes what `dl_iterate_phdr` gives it, and the list lives until that returns.
    unsafe { libc::dl_iterate_phdr(Some(add_modules), (&raw mut modules).cast()) };
    modules.sort_by_key(|module| module.start);
    modules
}

/// # Safety
/// `info` is of a loaded object; `modules` is a list of [`Module`].
unsafe extern "C" fn add_modules(info: *mut libc::dl_phdr_info, _: libc::size_t, modules: *mut c_void) -> c_int {
    // SAFETY: both are valid (fn contract); an object's headers are there as long as it is loaded, and its name ends
    // with a NUL.
    let (info, modules, headers, name) = unsafe {
        let info = &*info;
        let headers = std::slice::from_raw_parts(info.dlpi_phdr, usize::from(info.dlpi_phnum));
        let name = (!info.dlpi_name.is_null()).then(|| CStr::from_ptr(info.dlpi_name));
        (info, &mut *modules.cast::<Vec<Module>>(), headers, name)
    };
    let mut file = name.map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    if file.is_empty() {
        // The program itself.
        let program = std::env::current_exe().unwrap_or_default();
        file = program.to_string_lossy().into_owned();
    }
    let notes = headers.iter().filter(|it| it.p_type == libc::PT_NOTE).map(|it| {
        let start = (info.dlpi_addr + it.p_vaddr) as *const u8;
        // SAFETY: notes are loaded with the object.
        unsafe { std::slice::from_raw_parts(start, usize::try_from(it.p_memsz).unwrap_or(0)) }
    });
    let build_id = notes.filter_map(build_id).next().unwrap_or_default();
    let runs = |it: &&libc::Elf64_Phdr| it.p_type == libc::PT_LOAD && it.p_flags & libc::PF_X != 0;
    modules.extend(headers.iter().filter(runs).map(|it| {
        let first = info.dlpi_addr + it.p_vaddr;
        // Whole pages, as the kernel maps them: readers know no others.
        let before = first % PAGE;
        let (file, build_id) = (file.clone(), build_id.clone());
        let end = (first + it.p_memsz).next_multiple_of(PAGE);
        Module { start: first - before, end, offset: it.p_offset.wrapping_sub(before), file, build_id }
    }));
    0
}

/// The build id in notes, as hexadecimal digits.
fn build_id(mut notes: &[u8]) -> Option<String> {
    let word = |bytes: &[u8], at: usize| {
        let bytes = bytes.get(at..at + 4)?.try_into().ok()?;
        usize::try_from(u32::from_ne_bytes(bytes)).ok()
    };
    loop {
        let (name, data, kind) = (word(notes, 0)?, word(notes, 4)?, word(notes, 8)?);
        let start = 12 + name.next_multiple_of(4);
        let bytes = notes.get(start..start.checked_add(data)?)?;
        if kind == 3 && notes.get(12..16) == Some(b"GNU\0") {
            return Some(bytes.iter().map(|byte| format!("{byte:02x}")).collect());
        }
        notes = notes.get(start + data.next_multiple_of(4)..)?;
    }
}

/// A protocol buffer that is being written.
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

    /// Numbers by their fields.
    fn numbers(mut self, numbers: &[(u64, u64)]) -> Self {
        for &(field, value) in numbers {
            self.varint(field << 3);
            self.varint(value);
        }
        self
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
struct Texts(Vec<String>);

impl Texts {
    fn number(&mut self, text: &str) -> u64 {
        let known = self.0.iter().position(|it| it == text);
        known.unwrap_or_else(|| {
            self.0.push(text.to_owned());
            self.0.len() - 1
        }) as u64
    }
}

fn message(stacks: &[Stack], modules: &[Module], time_ns: u64) -> Vec<u8> {
    let mut texts = Texts(vec![String::new()]);
    let mut out = Message::default();
    for (field, (name, unit)) in TYPES.map(|it| (1, it)).into_iter().chain([(11, ("space", "bytes"))]) {
        let kind = [(1, texts.number(name)), (2, texts.number(unit))];
        out.bytes(field, &Message::default().numbers(&kind).0);
    }
    let mut locations: HashMap<u64, u64> = HashMap::new();
    let mut addresses = Vec::new();
    for (frames, values) in stacks {
        let mut sample = Message::default();
        let places: Vec<u64> = frames
            .iter()
            .map(|frame| {
                // The call, not the instruction after it.
                let address = frame.saturating_sub(1);
                *locations.entry(address).or_insert_with(|| {
                    addresses.push(address);
                    addresses.len() as u64
                })
            })
            .collect();
        sample.packed(1, places);
        sample.packed(2, *values);
        out.bytes(2, &sample.0);
    }
    for (id, module) in (1..).zip(modules) {
        let (file, build_id) = (texts.number(&module.file), texts.number(&module.build_id));
        let numbers = [(1, id), (2, module.start), (3, module.end), (4, module.offset), (5, file), (6, build_id)];
        out.bytes(3, &Message::default().numbers(&numbers).0);
    }
    for (id, address) in (1..).zip(addresses) {
        let at = modules.partition_point(|module| module.end <= address);
        let module = modules.get(at).filter(|module| module.start <= address);
        let numbers = [(1, id), (2, module.map_or(0, |_| at as u64 + 1)), (3, address)];
        out.bytes(4, &Message::default().numbers(&numbers).0);
    }
    for text in &texts.0 {
        out.bytes(6, text.as_bytes());
    }
    out.numbers(&[(9, time_ns), (12, 1 << control::lg_sample())]).0
}

/// The bytes as gzip, as they are.
fn gzip(bytes: &[u8]) -> Vec<u8> {
    const MOST: usize = 65_535;
    let mut out = vec![0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 255];
    let blocks = bytes.chunks(MOST);
    let last = blocks.len().saturating_sub(1);
    for (at, block) in blocks.enumerate() {
        let len = u16::try_from(block.len()).unwrap_or(u16::MAX);
        out.push(u8::from(at == last));
        out.extend(len.to_le_bytes());
        out.extend((!len).to_le_bytes());
        out.extend_from_slice(block);
    }
    let sum = bytes.iter().fold(u32::MAX, |sum, &byte| {
        (0..8).fold(sum ^ u32::from(byte), |sum, _| (sum >> 1) ^ (0xedb8_8320 & 0u32.wrapping_sub(sum & 1)))
    });
    out.extend((!sum).to_le_bytes());
    out.extend(u32::try_from(bytes.len()).unwrap_or(0).to_le_bytes());
    out
}
