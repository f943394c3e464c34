//! The place in a Dockerfile at which something is installed, and the user who does it. Pure.

use crate::check::dockerfile::{Piece, Stage};

/// A place in the text of a Dockerfile.
pub(super) struct At<'a> {
    pub(super) text: &'a str,
    /// The stage of the image, then the stages that it is built on.
    pub(super) chain: &'a [&'a Stage],
    /// The instruction after which a copy goes.
    pub(super) behind: &'a Piece,
}

pub(super) fn is_root(user: &str) -> bool {
    matches!(user.split(':').next(), Some("root" | "0"))
}

/// Whether what follows the instruction runs as another user than root.
pub(super) fn leaves_root(piece: &Piece) -> bool {
    piece.user.as_deref().is_some_and(|user| !is_root(user))
}
