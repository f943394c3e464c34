//! The source of a Rust program: `#[global_allocator]` in its root file. Read by syn, changed as text.

use proc_macro2::{TokenStream, TokenTree};
use std::ops::Range;
use syn::spanned::Spanned;
use syn::{Item, ItemStatic, UseTree};

use super::edit::{line_end, line_start};
use super::manifest::{CRATES, Crate};
use super::{Edit, Fixed, Refused};

/// Deeper nesting than this no person writes; the parser is recursive.
const MOST_LEVELS: usize = 200;

/// What a program's root file needs, and which crate it takes its allocator from until now.
pub struct Changed {
    /// The edits.
    pub fixed: Fixed,
    /// The crate that is not its allocator any more.
    pub before: Option<Crate>,
}

/// Makes `desired_crate` the program's global allocator.
pub fn fix(name: &str, text: &str, desired_crate: Crate, why: &str) -> Result<Changed, Refused> {
    let file = parse(name, text)?;
    let mut fixed = Fixed::default();
    let ours = format!("{}::{}", desired_crate.module(), desired_crate.type_name);
    let allocators: Vec<&ItemStatic> = file.items.iter().filter_map(global_allocator).collect();
    let Some(first) = allocators.first() else {
        if tokens(text).is_some_and(|it| names(&it, "global_allocator") > 0) {
            let what = format!("{name} has a #[global_allocator] that is not at its top level");
            return Err(Refused::cannot(what, "change it by hand"));
        }
        fixed.edits.push(insertion(text, &file.items, &ours, why));
        verify(name, text, &fixed)?;
        return Ok(Changed { fixed, before: None });
    };
    if allocators.len() > 1 {
        let what = format!("{name} has {} global allocators under cfg conditions", allocators.len());
        return Err(Refused::cannot(what, "change them by hand"));
    }
    let Some(before) = crate_of(first, &file.items) else {
        let line = text[..first.span().byte_range().start].matches('\n').count() + 1;
        let what = format!("{name}:{line}: the program has an allocator of its own");
        return Err(Refused::cannot(what, "change it by hand"));
    };
    if before == desired_crate {
        return Ok(Changed { fixed, before: None });
    }
    let why = format!("replaces {}: {why}", before.package);
    fixed.edits.push(Edit::replace(first.ty.span().byte_range(), ours.clone(), why));
    fixed.edits.push(Edit::replace(first.expr.span().byte_range(), ours, "its value is its name"));
    if let Some(at) = import(text, &file.items, before) {
        fixed.edits.push(Edit::replace(at, "", format!("{} is unused", before.package)));
    }
    verify(name, text, &fixed)?;
    Ok(Changed { fixed, before: Some(before) })
}

/// Whether a source uses a crate.
pub fn uses(text: &str, of: Crate) -> bool {
    let module = of.module();
    match tokens(text) {
        Some(tokens) => names(&tokens, &module) > 0,
        None => text.contains(&module),
    }
}

fn parse(name: &str, text: &str) -> Result<syn::File, Refused> {
    let mut level = 0_usize;
    let deepest = text.bytes().map(|it| {
        match it {
            b'(' | b'[' | b'{' => level += 1,
            b')' | b']' | b'}' => level = level.saturating_sub(1),
            _ => {}
        }
        level
    });
    if deepest.max().is_some_and(|it| it > MOST_LEVELS) {
        let what = format!("{name} nests deeper than {MOST_LEVELS} levels");
        return Err(Refused::not_understood(what));
    }
    let file: syn::File = syn::parse_str(text).map_err(|error| {
        let start = error.span().start();
        Refused::not_understood(format!("{name}:{}: {error}", start.line))
    })?;
    if file.attrs.iter().any(|it| it.path().is_ident("no_std")) {
        let what = format!("{name} is no_std, so it chooses its allocator itself");
        return Err(Refused::cannot(what, "change it by hand"));
    }
    Ok(file)
}

fn verify(name: &str, text: &str, fixed: &Fixed) -> Result<(), Refused> {
    parse(name, &super::edit::apply(text, &fixed.edits)).map(drop)
}

fn global_allocator(item: &Item) -> Option<&ItemStatic> {
    let Item::Static(item) = item else { return None };
    let is_global = item.attrs.iter().any(|it| it.path().is_ident("global_allocator"));
    is_global.then_some(item)
}

/// The known crate whose type is the allocator's, by its path or by what is imported; its value is the type's name.
fn crate_of(item: &ItemStatic, items: &[Item]) -> Option<Crate> {
    let syn::Type::Path(path) = &*item.ty else {
        return None;
    };
    if !matches!(&*item.expr, syn::Expr::Path(_)) {
        return None;
    }
    let last = path.path.segments.last()?.ident.to_string();
    let first = path.path.segments.first()?.ident.to_string();
    let by_path = CRATES.iter().find(|it| it.module() == first && it.type_name == last);
    let imported = |of: &&Crate| of.type_name == last && items.iter().any(|it| imports(it, **of));
    by_path.or_else(|| CRATES.iter().find(imported)).copied()
}

fn imports(item: &Item, of: Crate) -> bool {
    matches!(item, Item::Use(item) if matches!(&item.tree, UseTree::Path(path) if path.ident == of.module()))
}

/// The line that imports the type and nothing else, if nothing else uses it.
fn import(text: &str, items: &[Item], of: Crate) -> Option<Range<usize>> {
    let plain = |item: &&Item| {
        matches!(item, Item::Use(item) if matches!(&item.tree, UseTree::Path(path)
            if path.ident == of.module() && matches!(&*path.tree, UseTree::Name(name) if name.ident == of.type_name)))
    };
    let item = items.iter().find(plain)?;
    // The import itself, the static's type and its value.
    if names(&tokens(text)?, of.type_name) > 3 {
        return None;
    }
    let at = item.span().byte_range();
    let start = line_start(text, at.start);
    let end = text[at.end..].find('\n').map_or(text.len(), |it| at.end + it + 1);
    // Only whole lines; of the empty lines around it one stays.
    let is_alone = text[start..at.start].trim().is_empty() && text[at.end..end].trim().is_empty();
    let line = line_end(text);
    let is_between = text[..start].ends_with(&line.repeat(2)) && text[end..].starts_with(line);
    let end = if is_between { end + line.len() } else { end };
    is_alone.then_some(start..end)
}

/// After the imports and modules at the top, else in front of the first item.
fn insertion(text: &str, items: &[Item], ours: &str, why: &str) -> Edit {
    let is_leading = |item: &&Item| match item {
        Item::Use(_) | Item::ExternCrate(_) => true,
        Item::Mod(item) => item.content.is_none(),
        _ => false,
    };
    let is_taken = tokens(text).is_some_and(|it| names(&it, "GLOBAL") > 0);
    let name = if is_taken { "ALLOCATOR" } else { "GLOBAL" };
    let mut lines = vec!["#[global_allocator]".to_owned(), format!("static {name}: {ours} = {ours};")];
    let why = format!("the program allocates all memory from it: {why}");
    if let Some(last) = items.iter().take_while(is_leading).last() {
        lines.insert(0, String::new());
        return Edit::below(text, last.span().byte_range().end, &lines, why);
    }
    lines.push(String::new());
    let end = line_end(text);
    let mut at = items.first().map_or(text.len(), |it| it.span().byte_range().start);
    at = line_start(text, at);
    // The comment of the first item stays with it.
    while let Some(line) =
        text[..at].lines().last().filter(|it| it.trim_start().starts_with("//") && !it.trim_start().starts_with("//!"))
    {
        at = text[..at].trim_end_matches(['\r', '\n']).len() - line.len();
    }
    let new: String = lines.iter().map(|it| format!("{it}{end}")).collect();
    Edit::replace(at..at, new, why)
}

fn tokens(text: &str) -> Option<TokenStream> {
    text.parse().ok()
}

/// How often a name occurs.
fn names(tokens: &TokenStream, name: &str) -> usize {
    let of_token = |token: TokenTree| match token {
        TokenTree::Ident(ident) => usize::from(ident == name),
        TokenTree::Group(group) => names(&group.stream(), name),
        _ => 0,
    };
    tokens.clone().into_iter().map(of_token).sum()
}
