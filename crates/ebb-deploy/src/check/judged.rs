//! What the judgement of a file comes to.

use super::finding::Finding;

/// What was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Judged {
    /// The allocator that the image asks for.
    pub allocator: Option<String>,
    /// What is wrong.
    pub findings: Vec<Finding>,
}
