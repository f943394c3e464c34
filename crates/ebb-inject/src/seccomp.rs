//! What a thread's seccomp filters say to the system calls that malloc_trim makes, and to the one that restores
//! the thread: a filter may kill for them.
//!
//! A filter is a program of classic BPF; it is run here on what the kernel would give it. Only "allow" and "log"
//! are a yes. Docker's default profile says yes.

use libc::sock_filter;
use nix::errno::Errno;

use crate::refusal::Left;
use crate::tracee::Tracee;

/// What is needed: malloc_trim's calls, what it waits with for a lock, and the way back.
const NEEDED: [(i64, &str); 4] = [
    (libc::SYS_rt_sigreturn, "rt_sigreturn"),
    (libc::SYS_madvise, "madvise"),
    (libc::SYS_brk, "brk"),
    (libc::SYS_futex, "futex"),
];
/// `AUDIT_ARCH_X86_64`.
const ARCHITECTURE: u32 = 0xc000_003e;
/// Words that a program may keep, and the length of `struct seccomp_data` in words.
const SCRATCH_WORDS: usize = 16;
const DATA_BYTES: u32 = 64;
const DATA_WORDS: usize = DATA_BYTES as usize / 4;
const ACTION: u32 = 0xffff_0000;
/// The third and fourth argument of madvise and futex as malloc uses them: `MADV_DONTNEED`.
const ADVICE: u32 = 4;

/// Whether its filters let all that is needed pass.
pub fn check(tracee: &Tracee) -> Result<(), Left> {
    for number in 0.. {
        let filter = match tracee.filter(number) {
            Ok(Some(filter)) => filter,
            Ok(None) => return Ok(()),
            // Not the right, or a kernel that does not tell.
            Err(errno @ (Errno::EACCES | Errno::EPERM | Errno::EIO | Errno::EINVAL)) => {
                let why = match errno {
                    Errno::EACCES | Errno::EPERM => "reading it needs CAP_SYS_ADMIN: run ebb as root",
                    _ => "this kernel does not support reading it",
                };
                return Err(Left::FilterUnread(why.to_owned()));
            }
            Err(errno) => return Err(errno.into()),
        };
        if let Some((_, name)) = NEEDED.iter().find(|(call, _)| !allows(&filter, *call)) {
            return Err(Left::Filter(name));
        }
    }
    Ok(())
}

fn allows(filter: &[sock_filter], call: i64) -> bool {
    let mut data = [0; DATA_WORDS];
    let Ok(number) = u32::try_from(call) else {
        return false;
    };
    (data[0], data[1]) = (number, ARCHITECTURE);
    if call == libc::SYS_madvise {
        // Number, architecture, instruction pointer, then arguments of two words each.
        data[4 + 2 * 2] = ADVICE;
    }
    let verdict = run(filter, &data).map(|verdict| verdict & ACTION);
    matches!(verdict, Some(libc::SECCOMP_RET_ALLOW | libc::SECCOMP_RET_LOG))
}

/// Runs a program; `None` for one that the kernel would not have taken.
fn run(program: &[sock_filter], data: &[u32; DATA_WORDS]) -> Option<u32> {
    let (mut a, mut x) = (0u32, 0u32);
    let mut scratch = [0u32; SCRATCH_WORDS];
    let mut at = 0usize;
    // Jumps go forward only, so this ends.
    loop {
        let sock_filter { code, jt, jf, k } = *program.get(at)?;
        at += 1;
        let code = u32::from(code);
        let operand = if code & libc::BPF_X != 0 { x } else { k };
        match code & 0x07 {
            libc::BPF_LD => {
                a = match code & 0xe0 {
                    libc::BPF_IMM => k,
                    libc::BPF_ABS => *data.get(k as usize / 4)?,
                    libc::BPF_MEM => *scratch.get(k as usize)?,
                    libc::BPF_LEN => DATA_BYTES,
                    _ => return None,
                }
            }
            libc::BPF_LDX => {
                x = match code & 0xe0 {
                    libc::BPF_IMM => k,
                    libc::BPF_MEM => *scratch.get(k as usize)?,
                    libc::BPF_LEN => DATA_BYTES,
                    _ => return None,
                }
            }
            libc::BPF_ST => *scratch.get_mut(k as usize)? = a,
            libc::BPF_STX => *scratch.get_mut(k as usize)? = x,
            libc::BPF_ALU => {
                a = match code & 0xf0 {
                    libc::BPF_ADD => a.wrapping_add(operand),
                    libc::BPF_SUB => a.wrapping_sub(operand),
                    libc::BPF_MUL => a.wrapping_mul(operand),
                    libc::BPF_DIV => a.checked_div(operand)?,
                    libc::BPF_OR => a | operand,
                    libc::BPF_AND => a & operand,
                    libc::BPF_XOR => a ^ operand,
                    libc::BPF_LSH => a.checked_shl(operand)?,
                    libc::BPF_RSH => a.checked_shr(operand)?,
                    libc::BPF_NEG => a.wrapping_neg(),
                    _ => return None,
                }
            }
            libc::BPF_JMP => {
                let taken = match code & 0xf0 {
                    libc::BPF_JA => {
                        at = at.checked_add(k as usize)?;
                        continue;
                    }
                    libc::BPF_JEQ => a == operand,
                    libc::BPF_JGT => a > operand,
                    libc::BPF_JGE => a >= operand,
                    libc::BPF_JSET => a & operand != 0,
                    _ => return None,
                };
                at += usize::from(if taken { jt } else { jf });
            }
            libc::BPF_RET => {
                return match code & 0x18 {
                    libc::BPF_A => Some(a),
                    _ => Some(operand),
                };
            }
            _ => match code & 0xf8 {
                libc::BPF_TXA => a = x,
                _ => x = a,
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn step(code: u32, jt: u8, jf: u8, k: u32) -> sock_filter {
        sock_filter { code: code as u16, jt, jf, k }
    }

    const LOAD: u32 = libc::BPF_LD | libc::BPF_W | libc::BPF_ABS;
    const EQUAL: u32 = libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K;
    const RETURN: u32 = libc::BPF_RET | libc::BPF_K;

    /// Kills for one call, allows all others.
    fn all_but(call: i64) -> Vec<sock_filter> {
        vec![
            step(LOAD, 0, 0, 0),
            step(EQUAL, 0, 1, call as u32),
            step(RETURN, 0, 0, libc::SECCOMP_RET_KILL_PROCESS),
            step(RETURN, 0, 0, libc::SECCOMP_RET_ALLOW),
        ]
    }

    #[test]
    fn a_call_that_a_filter_kills_for_is_refused_and_others_pass() {
        let filter = all_but(libc::SYS_madvise);
        assert!(!allows(&filter, libc::SYS_madvise));
        assert!(allows(&filter, libc::SYS_brk));
    }

    #[test]
    fn arguments_and_architecture_are_seen() {
        let advice = |advice: u32| {
            vec![
                step(LOAD, 0, 0, 16 + 2 * 8),
                step(EQUAL, 0, 1, advice),
                step(RETURN, 0, 0, libc::SECCOMP_RET_ALLOW),
                step(RETURN, 0, 0, libc::SECCOMP_RET_ERRNO | 1),
            ]
        };
        assert!(allows(&advice(ADVICE), libc::SYS_madvise));
        assert!(!allows(&advice(8), libc::SYS_madvise));
        let architecture = vec![
            step(LOAD, 0, 0, 4),
            step(EQUAL, 1, 0, ARCHITECTURE),
            step(RETURN, 0, 0, libc::SECCOMP_RET_KILL_THREAD),
            step(RETURN, 0, 0, libc::SECCOMP_RET_ALLOW),
        ];
        assert!(allows(&architecture, libc::SYS_brk));
    }

    #[test]
    fn a_program_that_leads_nowhere_allows_nothing() {
        assert!(!allows(&[], libc::SYS_brk));
        let jump = libc::BPF_JMP | libc::BPF_JA;
        assert!(!allows(&[step(jump, 0, 0, u32::MAX)], libc::SYS_brk));
        assert!(!allows(&[step(LOAD, 0, 0, 4000)], libc::SYS_brk));
    }
}
