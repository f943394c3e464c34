//! How a frame is left: what the tables say about an address, in short, and a memory for it.

use crate::elf::Tables;
use crate::registers::{FP, RETURN, SP};
use core::mem::MaybeUninit;
use gimli::{
    BaseAddresses, CfaRule, EhFrame, EhFrameHdr, NativeEndian, Pointer, Register, RegisterRule,
    UnwindContext, UnwindContextStorage, UnwindSection, UnwindTableRow,
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

/// What gimli works in, made at its first use: too long for a small stack.
pub struct Reader {
    context: MaybeUninit<Context>,
    ready: bool,
}

impl Reader {
    /// Nothing.
    pub const fn new() -> Self {
        Self { context: MaybeUninit::uninit(), ready: false }
    }

    /// What `tables` say about `pc`.
    ///
    /// # Safety
    /// The tables are those of a module that stays loaded meanwhile.
    pub unsafe fn rule(&mut self, tables: &Tables, pc: usize) -> Rule {
        // SAFETY: `look_up` asks for what this function asks for: the module of `tables` stays loaded.
        unsafe { self.look_up(tables, pc) }.unwrap_or(Rule::FramePointer)
    }

    fn context(&mut self) -> &mut Context {
        if !self.ready {
            self.context.write(Context::new_in());
            self.ready = true;
        }
        // SAFETY: `ready` is set only after `context` was written.
        unsafe { self.context.assume_init_mut() }
    }

    /// # Safety
    /// As for [`Reader::rule`].
    unsafe fn look_up(&mut self, tables: &Tables, pc: usize) -> Option<Rule> {
        let bytes = |start: usize, len| {
            // SAFETY: index and frames lie in a segment of the module, which stays loaded during the call (fn contract) and is
            // mapped for reading only. The bounds of `frames` are checked below before they are used.
            unsafe { core::slice::from_raw_parts(start as *const u8, len) }
        };
        let index = EhFrameHdr::new(bytes(tables.index, tables.index_bytes), NativeEndian);
        let bases = BaseAddresses::default().set_eh_frame_hdr(tables.index as u64);
        let index = index.parse(&bases, 8).ok()?;
        let Pointer::Direct(frames) = index.eh_frame_ptr() else {
            return None;
        };
        let frames_at = usize::try_from(frames).ok()?;
        let frames_bytes = tables.end.checked_sub(frames_at)?;
        let segment = tables.index.min(frames_at);
        // `.eh_frame` lies in the segment of its index.
        if frames_at < segment || tables.index.abs_diff(frames_at) > tables.end - segment {
            return None;
        }
        let bases = bases.set_eh_frame(frames);
        let frames = EhFrame::new(bytes(frames_at, frames_bytes), NativeEndian);
        let table = index.table()?;
        let row = table
            .unwind_info_for_address(
                &frames,
                &bases,
                self.context(),
                pc as u64,
                EhFrame::cie_from_offset,
            )
            .ok()?;
        rule_of(row)
    }
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
