//! The frame on a thread's stack from which the kernel restores the thread: what it would have pushed before
//! a signal's handler. Pure: bytes from registers.
//!
//! The function that is called returns to libc's own `mov $15, %rax; syscall`, as every handler does;
//! rt_sigreturn then reads this frame and puts back all registers, the vector state and the signal
//! mask. That needs no further help.

use ebb_inspect::exact::usize_of;
use libc::user_regs_struct;

use crate::xstate::Vectors;

/// Bytes below a function's stack pointer that it may use without moving it (System V, x86-64).
const RED_ZONE_BYTES: u64 = 128;
/// What xrstor wants its memory aligned to.
const XSAVE_ALIGNMENT: u64 = 64;
/// Stack that the function may use below the frame: a page for malloc_trim, seen to take less than 600 bytes,
/// and more for handlers of faults.
pub const ROOM_BYTES: u64 = 16 << 10;

/// The frame has the vector state's extended form, and tells the stack segment as it is.
const UC_FLAGS: u64 = 1 | 2 | 4;
/// `uc_link`, which the kernel neither reads nor writes but as 0: tells a frame of ours, when its
/// bytes still lie somewhere, from one of a handler.
const OURS: u64 = u64::from_le_bytes(*b"ebb-trim");
/// No mode of `sigaltstack`, so that the kernel leaves the thread's alternate stack as it is: which one that
/// is cannot be read from outside.
const NO_CHANGE_OF_ALTERNATE_STACK: u64 = 4;
/// Segments of 64-bit user code: cs, gs, fs, ss as the frame has them.
pub const SEGMENTS: u64 = 0x002b_0000_0000_0033;

/// `struct rt_sigframe`: the return address, `struct ucontext`, `siginfo_t`.
const FRAME_BYTES: usize = 8 + CONTEXT_BYTES + 128;
/// Flags, link, alternate stack, `struct sigcontext`, signal mask.
const CONTEXT_BYTES: usize = 8 + 8 + 24 + 256 + 8;
/// From a frame's first byte to its segments: return address, flags, link, alternate stack, 18 registers.
pub const TO_SEGMENTS: u64 = 8 + 8 + 8 + 24 + 18 * 8;
/// From a frame's first byte to its flags.
pub const TO_FLAGS: u64 = 8;
/// From a frame's first byte to its link.
pub const TO_LINK: u64 = 16;

/// What a thread is put back to.
#[derive(Clone, Debug)]
pub struct Context {
    /// Registers; where it goes on is `rip`.
    pub registers: user_regs_struct,
    /// Blocked signals.
    pub mask: u64,
    /// x87, SSE, AVX and the like.
    pub vectors: Vectors,
}

/// A frame and where it belongs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Frame {
    /// The address of the first byte, which is the stack pointer at the function's entry.
    pub address: u64,
    /// The frame, and above it the vector state.
    pub bytes: Vec<u8>,
}

impl Frame {
    /// The frame for `context`, below its red zone. `restorer` is the address of code that calls
    /// rt_sigreturn.
    pub fn new(context: &Context, restorer: u64) -> Self {
        let vectors = context.vectors.in_frame();
        let top = context.registers.rsp - RED_ZONE_BYTES;
        let vectors_at = (top - vectors.len() as u64) & !(XSAVE_ALIGNMENT - 1);
        // At a function's entry the stack is aligned to 16 just above the return address.
        let address = ((vectors_at - FRAME_BYTES as u64) & !15) - 8;
        let mut bytes = Vec::with_capacity(usize_of(vectors_at - address) + vectors.len());
        let it = &context.registers;
        let words = [
            restorer, UC_FLAGS, OURS, 0, NO_CHANGE_OF_ALTERNATE_STACK, 0, it.r8, it.r9, it.r10, it.r11, it.r12, it.r13,
            it.r14, it.r15, it.rdi, it.rsi, it.rbp, it.rbx, it.rdx, it.rax, it.rcx, it.rsp, it.rip, it.eflags,
            SEGMENTS, // Of a fault there is none: error, trap number, old mask, address.
            0, 0, 0, 0, vectors_at, 0, 0, 0, 0, 0, 0, 0, 0, context.mask,
        ];
        bytes.extend(words.into_iter().flat_map(u64::to_le_bytes));
        bytes.resize(usize_of(vectors_at - address), 0);
        bytes.extend(vectors);
        Self { address, bytes }
    }

    /// The lowest address that is used, the function's own included.
    pub fn lowest(&self) -> u64 {
        self.address - ROOM_BYTES
    }
}

/// Whether a frame of a handler begins at `flags - TO_FLAGS`, by its words: flags, link, segments. Frames of
/// ours are none.
pub fn is_of_a_handler(flags: u64, link: u64, segments: u64) -> bool {
    segments == SEGMENTS && flags != 0 && flags <= UC_FLAGS && link == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    fn context(rsp: u64) -> Context {
        // SAFETY: a struct of integers, for which zeros are a value.
        let mut registers: user_regs_struct = unsafe { std::mem::zeroed() };
        registers.rsp = rsp;
        registers.rip = 0x1111;
        registers.rax = 0x2222;
        Context { registers, mask: 0x3333, vectors: Vectors::of_thread(vec![7; 1024]).unwrap() }
    }

    fn word(frame: &Frame, offset: usize) -> u64 {
        u64::from_le_bytes(frame.bytes[offset..offset + 8].try_into().unwrap())
    }

    #[test]
    fn a_frame_lies_below_the_red_zone_and_is_aligned_as_a_call_wants_it() {
        for low_bits in 0..64 {
            let rsp = 0x7fff_0000_1000 + low_bits;
            let frame = Frame::new(&context(rsp), 0xabc);
            let end = frame.address + frame.bytes.len() as u64;
            assert!(end <= rsp - RED_ZONE_BYTES, "{low_bits}");
            assert!(end > rsp - RED_ZONE_BYTES - 2 * XSAVE_ALIGNMENT);
            assert_eq!(frame.address % 16, 8);
            let vectors = word(&frame, TO_SEGMENTS as usize + 8 + 32);
            assert_eq!(vectors % XSAVE_ALIGNMENT, 0);
            assert!(vectors > frame.address + FRAME_BYTES as u64 - 8 && vectors < end);
            assert_eq!(frame.bytes[(vectors - frame.address) as usize], 7);
        }
    }

    /// Offsets as in the kernel's structures, by libc's names of them.
    #[test]
    fn registers_are_where_the_kernel_reads_them() {
        let frame = Frame::new(&context(0x7fff_0000_1000), 0xabc);
        let of_register = |number: libc::c_int| {
            let context = std::mem::offset_of!(libc::ucontext_t, uc_mcontext);
            word(&frame, 8 + context + number as usize * 8)
        };
        assert_eq!(word(&frame, 0), 0xabc);
        assert_eq!(of_register(libc::REG_RIP), 0x1111);
        assert_eq!(of_register(libc::REG_RAX), 0x2222);
        assert_eq!(of_register(libc::REG_RSP), 0x7fff_0000_1000);
        assert_eq!(of_register(libc::REG_CSGSFS), SEGMENTS);
        let mask = std::mem::offset_of!(libc::ucontext_t, uc_sigmask);
        assert_eq!(word(&frame, 8 + mask), 0x3333);
    }

    #[test]
    fn a_frame_of_ours_is_not_taken_for_a_handlers() {
        let frame = Frame::new(&context(0x7fff_0000_1000), 0xabc);
        let [flags, link, segments] = [TO_FLAGS, TO_LINK, TO_SEGMENTS].map(|at| word(&frame, at as usize));
        assert!(!is_of_a_handler(flags, link, segments));
        assert!(is_of_a_handler(flags, 0, segments));
        assert!(!is_of_a_handler(flags, 0, 0x33));
    }
}
