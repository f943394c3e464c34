//! How a frame is left: what the tables say about an address, in short, and a memory for it.

use crate::elf::Tables;
use crate::registers::{FP, RETURN, SP};
use crate::{Host, ReadAt};
use core::ffi::CStr;
use core::mem::MaybeUninit;
use gimli::{
    BaseAddresses, CfaRule, EhFrame, NativeEndian, Register, RegisterRule, UnwindContext, UnwindContextStorage,
    UnwindSection, UnwindTableRow,
};

/// How to get from a frame to its caller's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rule {
    /// There is no caller.
    End,
    /// By the frame pointer: the tables say nothing.
    FramePointer,
    /// As the tables say.
    Table {
        /// The frame's address is counted from the frame pointer, else from the stack pointer.
        from_fp: bool,
        /// The frame's address: so many bytes from there.
        frame: i32,
        /// The return address is so many bytes from the frame's address; `None`: in the link register.
        return_at: Option<i32>,
        /// So is the caller's frame pointer; `None`: it is in its register still.
        fp_at: Option<i32>,
    },
}

/// Room for the largest rows that compilers make: all registers that a callee saves.
#[derive(Debug)]
struct Storage;

impl UnwindContextStorage<usize> for Storage {
    type Rules = [(Register, RegisterRule<usize>); 40];
    type Stack = [UnwindTableRow<usize, Self>; 4];
}

type Context = UnwindContext<usize, Storage>;

/// Bytes that are read of a function's entry, with the common entry that it refers to. Compilers make some of
/// 3 KiB.
const ROOM_BYTES: usize = 4096;
/// Bytes of it for the common entry: at most some 40 are used.
const SHARED_BYTES: u32 = 128;
/// Entries of the index that are read at once.
const ENTRIES: usize = 32;
const ENTRY_BYTES: usize = 8;
/// Version 1; `.eh_frame`'s address, the number of entries, and entries of four bytes each, those relative to the index.
const INDEX_HEAD: [u8; 4] = [1, 0x1b, 0x03, 0x3b];
const INDEX_HEAD_BYTES: usize = 12;

/// What gimli works in, made at its first use, and what was read: too long for a small stack.
pub struct Reader {
    context: MaybeUninit<Context>,
    ready: bool,
    room: [u8; ROOM_BYTES],
}

impl Reader {
    /// Nothing.
    pub const fn new() -> Self {
        Self { context: MaybeUninit::uninit(), ready: false, room: [0; ROOM_BYTES] }
    }

    /// What `tables` say about `pc`: read from the file `name`, if that is the one that is mapped, else in memory.
    ///
    /// # Safety
    /// The tables are those of a module that stays loaded meanwhile.
    pub unsafe fn rule(&mut self, host: &impl Host, tables: &Tables, name: Option<&CStr>, pc: usize) -> Rule {
        let in_memory = |at: usize, into: &mut [u8]| {
            // SAFETY: headers and segment are as long as `elf::tables` found them, and stay mapped (fn contract); both ends of the
            // segment were seen to be there. `into` is apart from them.
            unsafe { core::ptr::copy_nonoverlapping(at as *const u8, into.as_mut_ptr(), into.len()) };
            true
        };
        let mut rule = None;
        if let Some(name) = name {
            host.read_file(name, &mut |read_at| {
                if self.is_mapped(tables, read_at, &in_memory) {
                    let in_file =
                        |at: usize, into: &mut [u8]| read_at((at - tables.start).wrapping_add(tables.file_start), into);
                    rule = self.look_up(tables, pc, &in_file);
                }
            });
        }
        // Not asked for sooner: a page about which the kernel is asked becomes resident too.
        let is_there = || host.is_readable(tables.index) && host.is_readable((tables.end - 8) & !7);
        rule.or_else(|| is_there().then(|| self.look_up(tables, pc, &in_memory))?).unwrap_or(Rule::FramePointer)
    }

    /// Whether a file has the headers that are mapped.
    fn is_mapped(&mut self, tables: &Tables, file: &ReadAt, memory: &ReadAt) -> bool {
        let (at, bytes) = tables.headers;
        let Some(room) = self.room.get_mut(..2 * bytes) else { return false };
        let (one, other) = room.split_at_mut(bytes);
        file(0, one) && memory(at, other) && one == other
    }

    fn context(&mut self) -> (&mut Context, &[u8]) {
        if !self.ready {
            self.context.write(Context::new_in());
            self.ready = true;
        }
        // SAFETY: `ready` is set only after `context` was written.
        (unsafe { self.context.assume_init_mut() }, &self.room)
    }

    /// `read` is asked for bytes between `tables.start` and `tables.end`.
    #[inline(never)]
    fn look_up(&mut self, tables: &Tables, pc: usize, read: &ReadAt) -> Option<Rule> {
        const SHARED: usize = SHARED_BYTES as usize;
        let at = find(tables, pc, read)?;
        // The common entry comes first, then that of the function, which has the distance to it.
        let room = &mut self.room[SHARED..];
        let bytes = room.len().min(tables.end - at);
        read(at, &mut room[..bytes]).then_some(())?;
        let distance = word(room, 4)?;
        let shared = (at + 4).checked_sub(distance as usize)?;
        (tables.start..at).contains(&shared).then_some(())?;
        room[4..8].copy_from_slice(&(SHARED_BYTES + 4).to_ne_bytes());
        let shared_bytes = SHARED.min(tables.end - shared);
        read(shared, &mut self.room[..shared_bytes]).then_some(())?;
        let bases = BaseAddresses::default().set_eh_frame((at - SHARED) as u64);
        let (context, room) = self.context();
        let frames = EhFrame::new(&room[..SHARED + bytes], NativeEndian);
        let own = frames.fde_from_offset(&bases, SHARED.into(), EhFrame::cie_from_offset);
        let row = own.ok()?.unwind_info_for_address(&frames, &bases, context, pc as u64).ok()?;
        rule_of(row)
    }
}

/// The word of four bytes at `offset`.
fn word(bytes: &[u8], offset: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(bytes.get(offset..offset + 4)?.try_into().ok()?))
}

/// Where the description of the function at `pc` lies: by the index, whose entries are ordered pairs of a function's address
/// and its description's, relative to the index.
fn find(tables: &Tables, pc: usize, read: &ReadAt) -> Option<usize> {
    let mut head = [0; INDEX_HEAD_BYTES];
    let count = (tables.index_bytes.checked_sub(head.len())?) / ENTRY_BYTES;
    read(tables.index, &mut head).then_some(())?;
    let count = (word(&head, 8)? as usize).min(count);
    let entries = tables.index + head.len();
    let relative = |bytes: &[u8], offset| {
        let distance = word(bytes, offset)?.cast_signed();
        Some(tables.index.wrapping_add_signed(distance as isize))
    };
    let (mut first, mut end) = (0, count);
    let mut some = [0; ENTRIES * ENTRY_BYTES];
    while end - first > ENTRIES {
        let middle = first.midpoint(end);
        read(entries + middle * ENTRY_BYTES, &mut some[..4]).then_some(())?;
        if relative(&some, 0)? <= pc { first = middle } else { end = middle }
    }
    let some = &mut some[..(end - first) * ENTRY_BYTES];
    read(entries + first * ENTRY_BYTES, some).then_some(())?;
    let is_before = |entry: &&[u8]| relative(entry, 0).is_some_and(|start| start <= pc);
    let at = relative(some.chunks(ENTRY_BYTES).take_while(is_before).last()?, 4)?;
    let is_inside = head[..4] == INDEX_HEAD && tables.start <= at && at < tables.end;
    is_inside.then_some(at)
}

fn rule_of(row: &UnwindTableRow<usize, Storage>) -> Option<Rule> {
    let CfaRule::RegisterAndOffset { register, offset } = *row.cfa() else {
        return None;
    };
    let from_fp = match register {
        FP => true,
        SP => false,
        _ => return None,
    };
    let return_at = match row.register(RETURN) {
        Some(RegisterRule::Offset(offset)) => Some(i32::try_from(offset).ok()?),
        // An outermost frame says so; on x86-64 every other has its return address on the stack.
        Some(RegisterRule::Undefined) => return Some(Rule::End),
        None | Some(RegisterRule::SameValue) if cfg!(target_arch = "aarch64") => None,
        None => return Some(Rule::End),
        Some(_) => return None,
    };
    let fp_at = match row.register(FP) {
        Some(RegisterRule::Offset(offset)) => Some(i32::try_from(offset).ok()?),
        None | Some(RegisterRule::SameValue | RegisterRule::Undefined) => None,
        Some(_) => return None,
    };
    Some(Rule::Table { from_fp, frame: i32::try_from(offset).ok()?, return_at, fp_at })
}

const REMEMBERED: usize = 4096;

/// Rules of addresses that were asked for before.
pub struct Memory {
    rules: [(usize, MaybeUninit<Rule>); REMEMBERED],
}

impl Memory {
    /// Nothing. All of it is zero.
    pub const fn new() -> Self {
        Self { rules: [const { (0, MaybeUninit::uninit()) }; REMEMBERED] }
    }

    /// The rule of `pc`, if it is remembered.
    pub fn get(&self, pc: usize) -> Option<Rule> {
        let (known, rule) = &self.rules[Self::place(pc)];
        // SAFETY: each rule that was written has an address next to it, and no other entry has one; none is 0.
        (*known == pc && pc != 0).then(|| unsafe { rule.assume_init() })
    }

    /// Remembers it.
    pub fn put(&mut self, pc: usize, rule: Rule) {
        self.rules[Self::place(pc)] = (pc, MaybeUninit::new(rule));
    }

    /// Forgets everything.
    pub fn clear(&mut self) {
        for (pc, _) in &mut self.rules {
            *pc = 0;
        }
    }

    fn place(pc: usize) -> usize {
        (pc.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) % REMEMBERED
    }
}
