//! The leaves of a group of names, one line each.

use super::emitter::Emitter;
use super::value::{shown, value};
use crate::node::Kind;
use crate::tree::{DEPTH, name_to_mib};

/// The name of what is in force now, for a setting that can change after the start.
fn now_in_force(group: &str, setting: &str) -> Option<&'static str> {
    if group != "opt" {
        return None;
    }
    Some(match setting {
        "background_thread" => "background_thread",
        "dirty_decay_ms" => "arenas.dirty_decay_ms",
        "muzzy_decay_ms" => "arenas.muzzy_decay_ms",
        "prof_active" => "prof.active",
        "prof_thread_active_init" => "prof.thread_active_init",
        "lg_prof_sample" => "prof.lg_sample",
        _ => return None,
    })
}

/// Prints the leaves of a group, for JSON and in words alike.
pub(super) fn group(out: &mut Emitter<'_>, name: &'static str, title: &str) {
    let mut mib = [0; DEPTH];
    let Ok(depth) = name_to_mib(name.as_bytes(), &mut mib) else {
        return;
    };
    let Some(Kind::Group(nodes)) = crate::tree::node(&mib[..depth]).map(|node| &node.kind) else {
        return;
    };
    out.object(name);
    out.text(format_args!("{title}\n"));
    for (index, node) in nodes.iter().enumerate() {
        mib[depth] = index;
        let Some(shown) = shown(node, &mib[..=depth]) else {
            continue;
        };
        out.pair(node.name, &shown);
        out.text(format_args!("  {name}.{}: {shown}", node.name));
        if let Some(now) = now_in_force(name, node.name) {
            out.text(format_args!(" ({now}: "));
            if let Some(value) = value(format_args!("{now}")) {
                out.text(format_args!("{value}"));
            }
            out.text(format_args!(")"));
        }
        out.text(format_args!("\n"));
    }
    out.end_object();
}
