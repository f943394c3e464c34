//! One verb per file, with a folder where it has several. A command reads its arguments, calls the libraries and
//! prints; the rules are in the libraries.

pub mod agent;
mod autoscale;
pub mod burst;
pub mod check;
pub mod compare;
pub mod diff;
mod events;
pub mod explain;
pub mod fix;
pub mod fleet;
pub mod library;
mod life;
pub mod profile;
pub mod run;
pub mod snap;
pub mod top;
pub mod trim;
pub mod watch;
pub mod why;
