//! One verb a file. A command joins the pieces; it holds no rule and reads no process itself.

pub mod compare;
pub mod run;
pub mod why;
