//! Plain facts: what one half of the tool tells another.
//!
//! `trial` produces them, `report` renders them, `commands` carries them across; none of the
//! three imports another. Only data and serde here, no behaviour beyond trivial accessors.

#[cfg(test)]
pub mod example;
pub mod trial;
