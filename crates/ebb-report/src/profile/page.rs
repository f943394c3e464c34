//! One page with a flame graph, which needs nothing from the network.

use ebb_process::profile::Profile;
use serde::ser::{Serialize, SerializeTuple, Serializer};
use serde_json::json;

use super::formats::{Seq, bytes};
use super::functions::{Row, rows};
use super::shown::{ROWS, Shown, head, mb};
use super::tree::{Node, Tree};

/// The page.
pub fn page(profile: &Profile) -> Result<String, String> {
    let rows = rows(profile, Shown::Live);
    let row = |row: &Row| [row.place.clone(), mb(row.own.bytes), mb(row.variance.sqrt()), mb(row.with_callees)];
    let tree = Tree::of(profile);
    let data = serde_json::to_string(&(&tree.names, tree.root()));
    let contents = json!({
        "script": include_str!("../page/flame.js"),
        "title": profile.title,
        "head": head(profile).lines().collect::<Vec<_>>(),
        "rows": rows.iter().take(ROWS).map(|(_, it)| row(it)).collect::<Vec<_>>(),
        "notes": profile.notes,
        // What ends a script has this letter.
        "data": data.map_err(|error| error.to_string())?.replace('<', "\\u003c"),
    });
    crate::html::fill(include_str!("../page/flame.html"), contents).map_err(|error| error.to_string())
}

/// Number of its name, bytes that are still there, bytes allocated, what it calls.
impl Serialize for Node<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut node = serializer.serialize_tuple(4)?;
        node.serialize_element(&self.name())?;
        node.serialize_element(&bytes(self.bytes(Shown::Live)))?;
        node.serialize_element(&bytes(self.bytes(Shown::Allocated)))?;
        node.serialize_element(&Seq(|| self.children()))?;
        node.end()
    }
}
