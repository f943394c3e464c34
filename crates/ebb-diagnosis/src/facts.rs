//! Plain facts: what a diagnosis concludes. Only data and serde here, no behaviour beyond trivial accessors.

pub mod diagnosis;
pub mod difference;
pub mod growth;
pub mod trim;
