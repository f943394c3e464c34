//! The walk from a frame to its caller's, and on.

use crate::modules::Modules;
use crate::registers::Registers;
use crate::rules::{Memory, Reader, Rule};
use crate::{Host, PAGE};

/// A frame is at most that long: what looks longer is no frame pointer.
const FRAME_MOST: usize = 16 << 20;

/// See the crate. Large: for a static behind a lock.
pub struct Unwinder {
    modules: Modules,
    memory: Memory,
    reader: Reader,
}

/// The stack, read page by page, each after the kernel was asked.
struct Stack<'a, H> {
    host: &'a H,
    /// Addresses of pages that can be read, the newest first.
    pages: [usize; 2],
}

impl<H: Host> Stack<'_, H> {
    fn word(&mut self, address: usize) -> Option<usize> {
        if !address.is_multiple_of(size_of::<usize>()) {
            return None;
        }
        let page = address & !(PAGE - 1);
        if !self.pages.contains(&page) {
            if !self.host.is_readable(address) {
                return None;
            }
            self.pages = [page, self.pages[0]];
        }
        // SAFETY: the kernel says that the page can be read, and it is of the calling thread's stack or,
        // if the tables are wrong, of something else that is mapped; aligned. Volatile: not only ours.
        Some(unsafe { (address as *const usize).read_volatile() })
    }
}

impl Unwinder {
    /// Nothing is known yet. All of it is zero, so that a static of it costs no room in the file.
    #[allow(clippy::new_without_default)]
    pub const fn new() -> Self {
        Self { modules: Modules::new(), memory: Memory::new(), reader: Reader::new() }
    }

    /// Writes the return addresses of the stack of which `registers` are the innermost frame's to
    /// `frames`, the innermost first; returns how many. With `skip_own`, the innermost frames are left
    /// out that lie in the same code as `registers`: the caller's library. `stacks` gets their stack pointers: a frame's
    /// variables lie between its own and the next one.
    ///
    /// # Safety
    /// `registers` are the calling thread's, of a frame that is still there.
    pub unsafe fn walk(
        &mut self,
        host: &impl Host,
        registers: Registers,
        skip_own: bool,
        frames: &mut [usize],
        stacks: &mut [usize],
    ) -> usize {
        self.modules.next_walk();
        let mut stack = Stack { host, pages: [usize::MAX; 2] };
        let mut at = registers;
        let (mut count, mut innermost, mut own) = (0, true, skip_own);
        while let Some(place) = frames.get_mut(count) {
            // A call may be its function's last instruction: the caller is where the call is.
            let pc = if innermost { at.pc } else { at.pc - 1 };
            // SAFETY: a live frame's code stays loaded.
            let rule = unsafe { self.rule(host, pc) };
            let Some(caller) = self.leave(&mut stack, at, rule, innermost) else {
                break;
            };
            (at, innermost) = (caller, false);
            own = own && self.modules.are_one_code(caller.pc - 1, registers.pc);
            if !own {
                *place = caller.pc;
                if let Some(place) = stacks.get_mut(count) {
                    *place = caller.sp;
                }
                count += 1;
            }
        }
        count
    }

    /// The caller's registers; `None` at the end, and where the stack makes no sense any more.
    fn leave<H: Host>(&self, stack: &mut Stack<H>, at: Registers, rule: Rule, innermost: bool) -> Option<Registers> {
        let caller = match rule {
            Rule::End => return None,
            Rule::FramePointer => {
                if at.fp < at.sp || at.fp - at.sp > FRAME_MOST {
                    return None;
                }
                let pc = stack.word(at.fp.checked_add(8)?)?;
                // Without tables nothing says that this was a frame pointer.
                if !self.modules.knows(pc.checked_sub(1)?) {
                    return None;
                }
                Registers { pc, sp: at.fp.checked_add(16)?, fp: stack.word(at.fp)?, link: 0 }
            }
            Rule::Table { from_fp, frame, return_at, fp_at } => {
                let base = if from_fp { at.fp } else { at.sp };
                let frame = base.checked_add_signed(frame as isize)?;
                if frame < at.sp || (frame == at.sp && !innermost) {
                    return None;
                }
                let saved = |stack: &mut Stack<H>, offset: i32| stack.word(frame.checked_add_signed(offset as isize)?);
                let pc = match return_at {
                    Some(offset) => saved(stack, offset)?,
                    None if innermost => at.link,
                    None => return None,
                };
                let fp = match fp_at {
                    Some(offset) => saved(stack, offset)?,
                    None => at.fp,
                };
                Registers { pc, sp: frame, fp, link: 0 }
            }
        };
        (caller.pc >= PAGE).then_some(caller)
    }

    /// # Safety
    /// `pc` is code that stays loaded.
    unsafe fn rule(&mut self, host: &impl Host, pc: usize) -> Rule {
        if let Some(rule) = self.memory.get(pc) {
            return rule;
        }
        let unknown = !self.modules.knows(pc) || self.modules.is_stale(host, pc);
        if unknown && self.modules.refresh(host, pc) {
            self.memory.clear();
        }
        let rule = match self.modules.tables(host, pc) {
            // SAFETY: they were there just now, and the caller's code is in the same module.
            Some(tables) => unsafe { self.reader.rule(host, &tables, self.modules.name(pc), pc) },
            None => Rule::FramePointer,
        };
        // An address that is not known yet may be later.
        if self.modules.knows(pc) {
            self.memory.put(pc, rule);
        }
        rule
    }
}
