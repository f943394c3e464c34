//! `ebb trim --every` on a process, until it is dropped.

use std::process::{Child, Command, Stdio};

use crate::harness;

/// A tool that trims again and again. Ends with this value.
pub struct Rounds(pub Child);

impl Rounds {
    /// Starts it: whatever there is to return, without a pause between.
    pub fn start(pid: &str) -> Self {
        let mut command: Command = harness::ebb();
        command.args(["trim", pid, "--inject", "--min", "0", "--every", "1ms"]);
        command.args(["--wait", "60s", "--no-children", "--json"]);
        let child = command.stdout(Stdio::null()).spawn().expect("ebb");
        Self(child)
    }
}

impl Drop for Rounds {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
