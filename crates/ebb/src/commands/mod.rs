//! One verb a file. A command joins the pieces; it holds no rule and reads no process itself.

pub mod burst;
pub mod check;
pub mod compare;
pub mod diff;
pub mod fix;
pub mod run;
pub mod snap;
pub mod trim;
pub mod watch;
pub mod why;
