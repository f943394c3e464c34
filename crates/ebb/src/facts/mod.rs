//! Plain facts: what one half of the tool tells another.
//!
//! `trial` and `proc` produce them, `verdict` concludes from them, `report` renders them, `commands` carries
//! them across; none of these imports another. Only data and serde here, no behaviour beyond trivial
//! accessors.

pub mod against;
pub mod diagnosis;
pub mod difference;
#[cfg(test)]
pub mod example;
pub mod growth;
pub mod snapshot;
pub mod sureness;
pub mod trial;
pub mod trim;
