//! `opt.*`: the settings in force, a leaf for each key that jemalloc mirrors; made of the table of keys.

use crate::arenas;
use crate::call::Call;
use crate::errno::Result;
use crate::node::{Access, Node, Text};
use ebbmalloc_core::base::exact::{u32_of, usize_of};
use ebbmalloc_core::runtime::conf::keys::{KEYS, MIRRORED, OWN_DECAY, Shape, Width};
use ebbmalloc_core::runtime::conf::{Id, Source};
use ebbmalloc_core::runtime::{face, in_force};

static MIRROR: [Node; MIRRORED + 1] = {
    let mut nodes = [const { Node::group("malloc_conf", SOURCES) }; MIRRORED + 1];
    let mut place = 0;
    while place < MIRRORED {
        nodes[place] = mirror(place);
        place += 1;
    }
    nodes
};

pub static NODES: &[Node] = &MIRROR;

const fn mirror(place: usize) -> Node {
    let name = KEYS[place].name;
    let read = Access::Read;
    match KEYS[place].shape {
        Shape::Truth | Shape::OnOff => Node::leaf::<bool>(name, read, |call| give(call, |number| number != 0)),
        Shape::Number { width, .. } => match width {
            Width::Unsigned => Node::leaf::<u32>(name, read, |call| give(call, |number| u32_of(usize_of(number)))),
            Width::I64 => Node::leaf::<i64>(name, read, |call| give(call, |number| number.cast_signed())),
            Width::Size => Node::leaf::<usize>(name, read, |call| give(call, usize_of)),
            Width::SignedSize => {
                Node::leaf::<isize>(name, read, |call| give(call, |number| usize_of(number).cast_signed()))
            }
        },
        Shape::Decay => Node::leaf::<isize>(name, read, |call| give(call, decay)),
        Shape::Arenas => Node::leaf::<u32>(name, read, |call| give(call, |_| u32_of(arenas::automatic()))),
        Shape::Ratio => Node::leaf::<u32>(name, read, |call| give(call, |number| u32_of(usize_of(number)))),
        Shape::Choice(_) => Node::leaf::<Text>(name, read, |call| {
            call.read_only()?;
            let place = key(call);
            let Shape::Choice(words) = KEYS[place].shape else { unreachable!("the leaf was made for a choice") };
            call.give(words[usize_of(in_force::number_at(place))].as_ptr())
        }),
        Shape::Text(_) | Shape::Path(_) => Node::leaf::<Text>(name, read, |call| {
            call.read_only()?;
            let place = key(call);
            let (Shape::Text(at) | Shape::Path(at)) = KEYS[place].shape else {
                unreachable!("the leaf was made for a text")
            };
            let unset = if place == Id::ProfPrefix as usize { c"jeprof" } else { c"" };
            call.give(in_force::text(at).unwrap_or(unset).as_ptr())
        }),
        Shape::LogOf(_) | Shape::Bytes => panic!("a key without a mirror"),
    }
}

fn key(call: &Call<'_>) -> usize {
    call.mib[1]
}

fn give<T: Copy>(call: &Call<'_>, convert: fn(u64) -> T) -> Result<()> {
    call.read_only()?;
    call.give(convert(in_force::number_at(key(call))))
}

/// Where no decay was set, ebbmalloc's own delay.
fn decay(number: u64) -> isize {
    if number == OWN_DECAY {
        return face::own_decay_ms();
    }
    usize_of(number).cast_signed()
}

/// The texts that the settings were read from.
static SOURCES: &[Node] = &[
    source("symlink", |call| text(call, Source::Link)),
    source("env_var", |call| text(call, Source::Malloc)),
    source("global_var", |call| text(call, Source::Program)),
    source("global_var_2_conf_harder", |call| text(call, Source::Harder)),
];

const fn source(name: &'static str, run: fn(&Call<'_>) -> Result<()>) -> Node {
    Node::leaf::<Text>(name, Access::Read, run)
}

/// ENOENT where there is no such text, as in jemalloc.
fn text(call: &Call<'_>, source: Source) -> Result<()> {
    let text = in_force::source(source).ok_or(crate::Errno::ENOENT)?;
    call.read_only()?;
    call.give(text.as_ptr())
}
