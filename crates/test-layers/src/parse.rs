//! Reads the modules of one source file with `syn`. Items under a `cfg` that mentions `test` are left out.

use proc_macro2::{Literal, TokenStream, TokenTree};
use syn::spanned::Spanned;
use syn::visit::{self, Visit};
use syn::{Attribute, Item, UseTree, Visibility};

use crate::module::{Import, Segments};

/// What one module of a file holds.
#[derive(Debug, Default)]
pub struct Parsed {
    /// Names that the module defines.
    pub items: Vec<String>,
    /// Macros that the crate's root has by `#[macro_export]`.
    pub exported_macros: Vec<String>,
    /// Names of `use` declarations.
    pub imports: Vec<Import>,
    /// Other paths with their lines.
    pub paths: Vec<(Segments, usize)>,
    /// String literals with their lines, those of macros and attributes included; no doc comments.
    pub strings: Vec<(String, usize)>,
    /// Modules in other files: name, and the file that `#[path]` gives.
    pub files: Vec<(String, Option<String>)>,
    /// Modules in this file.
    pub inline: Vec<(String, Parsed)>,
    /// Lines of test code inside the file.
    pub test_lines: usize,
}

/// The modules of a source text.
///
/// # Errors
///
/// Those of `syn`, with the line.
pub fn parse(text: &str) -> syn::Result<Parsed> {
    let file = syn::parse_file(text)?;
    Ok(Parsed::from_items(&file.items))
}

impl Parsed {
    fn from_items(items: &[Item]) -> Parsed {
        let mut parsed = Parsed::default();
        for item in items {
            parsed.visit_item(item);
        }
        parsed
    }

    fn add_use(&mut self, tree: &UseTree, prefix: &mut Segments, is_public: bool) {
        let line = tree.span().start().line;
        let (last, name) = match tree {
            UseTree::Path(path) => {
                prefix.push(path.ident.to_string());
                self.add_use(&path.tree, prefix, is_public);
                prefix.pop();
                return;
            }
            UseTree::Group(group) => {
                for tree in &group.items {
                    self.add_use(tree, prefix, is_public);
                }
                return;
            }
            UseTree::Name(name) => (Some(name.ident.to_string()), name.ident.to_string()),
            UseTree::Rename(rename) => (Some(rename.ident.to_string()), rename.rename.to_string()),
            UseTree::Glob(_) => (None, String::new()),
        };
        let mut path = prefix.clone();
        let mut name = last.is_some().then_some(name);
        match last.as_deref() {
            // `use a::b::{self}` is `use a::b`.
            Some("self") => name = path.last().cloned(),
            Some(last) => path.push(last.to_owned()),
            None => {}
        }
        self.imports.push(Import { path, name, is_public, line });
    }

    /// Paths among the tokens of a macro, which `syn` does not parse: `a::b`, `crate::a::b`, `$crate::a::b`.
    fn add_tokens(&mut self, tokens: TokenStream) {
        let mut path = Segments::new();
        let mut line = 0;
        let mut colons = 0;
        for token in tokens {
            match token {
                TokenTree::Ident(ident) => {
                    if colons != 2 {
                        self.end_path(&mut path, line);
                        line = ident.span().start().line;
                    }
                    path.push(ident.to_string());
                    colons = 0;
                    continue;
                }
                TokenTree::Punct(punct) if punct.as_char() == ':' && !path.is_empty() => {
                    colons += 1;
                    continue;
                }
                TokenTree::Group(group) => self.add_tokens(group.stream()),
                TokenTree::Literal(literal) => self.add_literal(literal),
                TokenTree::Punct(_) => {}
            }
            self.end_path(&mut path, line);
            colons = 0;
        }
        self.end_path(&mut path, line);
    }

    fn add_literal(&mut self, literal: Literal) {
        let line = literal.span().start().line;
        if let Ok(text) = syn::parse2::<syn::LitStr>(TokenTree::from(literal).into()) {
            self.strings.push((text.value(), line));
        }
    }

    fn end_path(&mut self, path: &mut Segments, line: usize) {
        let path = std::mem::take(path);
        if !path.is_empty() {
            self.paths.push((path, line));
        }
    }

    fn define(&mut self, item: &Item) {
        let name = match item {
            Item::Const(item) => &item.ident,
            Item::Enum(item) => &item.ident,
            Item::Fn(item) => &item.sig.ident,
            Item::Static(item) => &item.ident,
            Item::Struct(item) => &item.ident,
            Item::Trait(item) => &item.ident,
            Item::Type(item) => &item.ident,
            Item::Union(item) => &item.ident,
            Item::Macro(item) => {
                let Some(ident) = &item.ident else { return };
                if item.attrs.iter().any(|attr| attr.path().is_ident("macro_export")) {
                    self.exported_macros.push(ident.to_string());
                }
                ident
            }
            _ => return,
        };
        self.items.push(name.to_string());
    }
}

impl<'ast> Visit<'ast> for Parsed {
    fn visit_item(&mut self, item: &'ast Item) {
        if is_test(attributes(item)) {
            let span = item.span();
            self.test_lines += span.end().line + 1 - span.start().line;
            return;
        }
        match item {
            Item::Use(item) => {
                let is_public = !matches!(item.vis, Visibility::Inherited);
                self.add_use(&item.tree, &mut Segments::new(), is_public);
            }
            Item::Mod(item) => match &item.content {
                Some((_, items)) => {
                    let mut inner = Parsed::from_items(items);
                    self.test_lines += std::mem::take(&mut inner.test_lines);
                    self.inline.push((item.ident.to_string(), inner));
                }
                None => {
                    let path = item.attrs.iter().find_map(path_attribute);
                    self.files.push((item.ident.to_string(), path));
                }
            },
            _ => {
                self.define(item);
                visit::visit_item(self, item);
            }
        }
    }

    fn visit_impl_item(&mut self, item: &'ast syn::ImplItem) {
        let attributes = match item {
            syn::ImplItem::Const(item) => &item.attrs,
            syn::ImplItem::Fn(item) => &item.attrs,
            _ => return visit::visit_impl_item(self, item),
        };
        if !is_test(attributes) {
            visit::visit_impl_item(self, item);
        }
    }

    fn visit_path(&mut self, path: &'ast syn::Path) {
        let segments = path.segments.iter().map(|segment| segment.ident.to_string());
        let line = path.span().start().line;
        self.paths.push((segments.collect(), line));
        visit::visit_path(self, path);
    }

    fn visit_macro(&mut self, macro_: &'ast syn::Macro) {
        self.visit_path(&macro_.path);
        self.add_tokens(macro_.tokens.clone());
    }

    fn visit_lit_str(&mut self, text: &'ast syn::LitStr) {
        self.strings.push((text.value(), text.span().start().line));
    }

    // `pub(in crate::a)` and `#[derive(a::B)]` are no imports.
    fn visit_visibility(&mut self, _: &'ast Visibility) {}
    fn visit_attribute(&mut self, attribute: &'ast Attribute) {
        if let syn::Meta::List(list) = &attribute.meta {
            for token in list.tokens.clone() {
                if let TokenTree::Literal(literal) = token {
                    self.add_literal(literal);
                }
            }
        }
    }
}

fn attributes(item: &Item) -> &[Attribute] {
    match item {
        Item::Const(item) => &item.attrs,
        Item::Enum(item) => &item.attrs,
        Item::ExternCrate(item) => &item.attrs,
        Item::Fn(item) => &item.attrs,
        Item::ForeignMod(item) => &item.attrs,
        Item::Impl(item) => &item.attrs,
        Item::Macro(item) => &item.attrs,
        Item::Mod(item) => &item.attrs,
        Item::Static(item) => &item.attrs,
        Item::Struct(item) => &item.attrs,
        Item::Trait(item) => &item.attrs,
        Item::Type(item) => &item.attrs,
        Item::Union(item) => &item.attrs,
        Item::Use(item) => &item.attrs,
        _ => &[],
    }
}

/// Whether a `cfg` mentions `test` outside a `not`: `test`, `all(test, loom)`, `any(test, feature = "fake-os")`.
fn is_test(attributes: &[Attribute]) -> bool {
    attributes.iter().any(|attribute| match &attribute.meta {
        syn::Meta::List(list) => list.path.is_ident("cfg") && mentions_test(list.tokens.clone()),
        _ => false,
    })
}

fn mentions_test(tokens: TokenStream) -> bool {
    let mut is_negated = false;
    tokens.into_iter().any(|token| match token {
        TokenTree::Ident(ident) => {
            is_negated = ident == "not";
            ident == "test"
        }
        TokenTree::Group(group) => !is_negated && mentions_test(group.stream()),
        _ => false,
    })
}

/// `FILE` of `#[path = "FILE"]`, and of the first `#[cfg_attr(CONDITION, path = "FILE")]`.
fn path_attribute(attribute: &Attribute) -> Option<String> {
    let tokens: TokenStream = match &attribute.meta {
        syn::Meta::NameValue(value) if value.path.is_ident("path") => return literal(&value.value),
        syn::Meta::List(list) if list.path.is_ident("cfg_attr") => {
            let mut tokens = list.tokens.clone().into_iter();
            tokens.find(|token| matches!(token, TokenTree::Ident(ident) if ident == "path"))?;
            tokens.nth(1)?.into()
        }
        _ => return None,
    };
    syn::parse2::<syn::LitStr>(tokens).ok().map(|text| text.value())
}

fn literal(value: &syn::Expr) -> Option<String> {
    let syn::Expr::Lit(literal) = value else {
        return None;
    };
    match &literal.lit {
        syn::Lit::Str(text) => Some(text.value()),
        _ => None,
    }
}
