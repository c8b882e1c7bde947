//! Reads a target's files into a [`Tree`].

use std::io;
use std::path::{Component, Path, PathBuf};

use proc_macro2::{Span, TokenStream, TokenTree};
use syn::punctuated::Punctuated;
use syn::spanned::Spanned as _;
use syn::visit::{self, Visit};
use syn::{Attribute, Expr, Ident, Item, Meta, Token, UseTree, Visibility};

use crate::tree::{FileId, Kind, Mention, ModuleId, Name, Segments, Tree};

/// Reads the target with this root file, and all files that its `mod` declarations name.
///
/// `is_test` says whether `cfg(test)` holds. `load` returns a file's text.
pub(crate) fn read(
    root: &Path,
    is_test: bool,
    load: impl Fn(&Path) -> io::Result<String>,
) -> Result<Tree, String> {
    let mut tree = Tree::default();
    let file = tree.add_file(root.to_owned());
    let module = tree.add_module(file, None);
    let folder = root.parent().unwrap_or(Path::new("")).to_owned();
    let mut waiting = vec![Waiting {
        module,
        file,
        folder,
    }];
    while let Some(next) = waiting.pop() {
        let path = tree.files[next.file].clone();
        let text = load(&path).map_err(|why| format!("{}: {why}", path.display()))?;
        let parsed = syn::parse_file(&text).map_err(|why| {
            let line = why.span().start().line;
            format!("{}:{line}: {why}", path.display())
        })?;
        let mut reader = Reader {
            tree: &mut tree,
            waiting: &mut waiting,
            load: &load,
            is_test,
            beside: path.parent().unwrap_or(Path::new("")).to_owned(),
            folder: next.folder,
            file: next.file,
            module: next.module,
            is_in_block: false,
            missing: None,
        };
        if reader.is_live(&parsed.attrs) {
            reader.visit_file(&parsed);
        }
        if let Some(missing) = reader.missing {
            return Err(missing);
        }
    }
    Ok(tree)
}

/// A file that is still to be read.
struct Waiting {
    module: ModuleId,
    file: FileId,
    /// The folder for the files of its child modules.
    folder: PathBuf,
}

struct Reader<'a, L> {
    tree: &'a mut Tree,
    waiting: &'a mut Vec<Waiting>,
    load: &'a L,
    is_test: bool,
    /// The module that is being read.
    module: ModuleId,
    file: FileId,
    /// The folder for the files of its child modules.
    folder: PathBuf,
    /// The folder from which a `#[path]` attribute in it starts.
    beside: PathBuf,
    /// The reader is in the body of a function, whose items have no path.
    is_in_block: bool,
    /// A declared module that has no file.
    missing: Option<String>,
}

impl<L: Fn(&Path) -> io::Result<String>> Reader<'_, L> {
    /// Whether code with these attributes is compiled into the target. All features count as on.
    fn is_live(&self, attributes: &[Attribute]) -> bool {
        attributes.iter().all(|attribute| {
            let path = attribute.path();
            if path.is_ident("cfg") {
                let condition = attribute.parse_args::<Meta>();
                return condition.map_or(true, |it| self.holds(&it) != Some(false));
            }
            // `#[test]`, `#[tokio::test]`
            let is_test = path.segments.last().is_some_and(|it| it.ident == "test");
            self.is_test || !is_test
        })
    }

    /// Whether a condition holds; `None` if it may hold or not.
    fn holds(&self, condition: &Meta) -> Option<bool> {
        match condition {
            Meta::Path(path) if path.is_ident("test") => Some(self.is_test),
            Meta::Path(path) if path.is_ident("doc") => Some(false),
            Meta::Path(_) | Meta::NameValue(_) => None,
            Meta::List(list) => {
                let parts = Punctuated::<Meta, Token![,]>::parse_terminated;
                let parts = list.parse_args_with(parts).ok()?;
                let mut parts = parts.iter().map(|part| self.holds(part));
                if list.path.is_ident("not") {
                    return parts.next()?.map(|holds| !holds);
                }
                // One part decides `any` if it holds, and `all` if it does not.
                let decides = list.path.is_ident("any");
                let parts: Vec<_> = parts.collect();
                if parts.contains(&Some(decides)) {
                    Some(decides)
                } else if parts.contains(&None) {
                    None
                } else {
                    Some(!decides)
                }
            }
        }
    }

    fn mention(&mut self, path: Segments, span: Span, kind: Kind) {
        self.tree.mentions.push(Mention {
            module: self.module,
            line: span.start().line,
            path,
            kind,
        });
    }

    /// `use …;`, which adds names to the module.
    fn import(&mut self, tree: &UseTree, is_private: bool) {
        for Imported {
            path,
            name,
            is_glob,
            span,
        } in imported(tree)
        {
            let module = &mut self.tree.modules[self.module];
            if is_glob {
                module.globs.push(path.clone());
            }
            if let Some(name) = name {
                let stands_for = Name::Import(path.clone());
                self.tree.name(self.module, name, stands_for);
            }
            let kind = match (is_private, is_glob) {
                (true, false) => Kind::Import,
                (true, true) => Kind::Glob,
                (false, false) => Kind::ReExport,
                (false, true) => Kind::GlobReExport,
            };
            self.mention(path, span, kind);
        }
    }

    /// A path, with the part in angle brackets before it, if there is one: `<A as B>::c` mentions `A` and `B`.
    fn qualified<'ast>(
        &mut self,
        own: Option<&'ast syn::QSelf>,
        path: &'ast syn::Path,
        is_call: bool,
    ) {
        let mut length = path.segments.len();
        if let Some(own) = own {
            self.visit_type(&own.ty);
            length = own.position;
        }
        if path.leading_colon.is_none() && length > 0 {
            let segments = path.segments.iter().take(length);
            let segments: Segments = segments.map(|segment| plain(&segment.ident)).collect();
            // A single lower-case name is a variable, unless it is called.
            if is_call || segments.len() > 1 || is_capital(&segments[0]) {
                self.mention(segments, path.span(), Kind::Inline);
            }
        }
        for segment in &path.segments {
            self.visit_path_arguments(&segment.arguments);
        }
    }

    /// The paths among tokens whose meaning is unknown. In the rules of a macro, only paths count that say
    /// where they start (`crate`, `self`, `super`).
    fn tokens(&mut self, tokens: TokenStream, in_rules: bool) {
        let tokens: Vec<TokenTree> = tokens.into_iter().collect();
        let punct = |at: usize, mark: char| matches!(tokens.get(at), Some(TokenTree::Punct(it)) if it.as_char() == mark);
        let colons = |at: usize| punct(at, ':') && punct(at + 1, ':');
        let mut at = 0;
        while let Some(token) = tokens.get(at) {
            at += 1;
            let first = match token {
                TokenTree::Group(group) => {
                    self.tokens(group.stream(), in_rules);
                    continue;
                }
                TokenTree::Ident(first) => first,
                TokenTree::Punct(_) | TokenTree::Literal(_) => continue,
            };
            if first == "use"
                && let Some(length) = (0..)
                    .take_while(|&it| at + it < tokens.len())
                    .find(|&it| punct(at + it, ';'))
            {
                let path = tokens[at..at + length]
                    .iter()
                    .filter(|it| it.to_string() != "$");
                let path: TokenStream = path.cloned().collect();
                if let Ok(tree) = syn::parse2::<UseTree>(path) {
                    // It adds no names to this module, since the place where the macro puts it is unknown.
                    for Imported { path, span, .. } in imported(&tree) {
                        if is_root(&path[0]) || !in_rules {
                            self.mention(path, span, Kind::Import);
                        }
                    }
                    at += length;
                    continue;
                }
            }
            // A field, a lifetime, the rest of a path, and a variable of a macro are no paths of this crate.
            let before = at.checked_sub(2);
            let follows = |mark: char| before.is_some_and(|it| punct(it, mark));
            let is_range = follows('.') && before.is_some_and(|it| it > 0 && punct(it - 1, '.'));
            let is_part = (follows('.') && !is_range)
                || follows('\'')
                || before.is_some_and(|it| it > 0 && colons(it - 1))
                || (follows('$') && first != "crate");
            let mut path = vec![plain(first)];
            while colons(at)
                && let Some(TokenTree::Ident(next)) = tokens.get(at + 2)
            {
                path.push(plain(next));
                at += 3;
            }
            if is_part {
                continue;
            }
            let is_macro = punct(at, '!') && !punct(at + 1, '=');
            let is_call = matches!(tokens.get(at), Some(TokenTree::Group(group)) if group.delimiter() == proc_macro2::Delimiter::Parenthesis);
            let is_rooted = path.len() > 1 && is_root(&path[0]);
            let is_path = path.len() > 1 || is_macro || is_call || is_capital(&path[0]);
            if is_rooted || (is_path && !in_rules) {
                let kind = if is_macro { Kind::Macro } else { Kind::Inline };
                self.mention(path, first.span(), kind);
            }
        }
    }

    /// `mod name;` or `mod name { … }`
    fn module(&mut self, item: &syn::ItemMod) {
        let name = plain(&item.ident);
        let path = item.attrs.iter().find_map(path_attribute);
        let Some((_, items)) = &item.content else {
            let (file, folder) = match path {
                Some(path) => {
                    let file = normal(&self.beside.join(path));
                    let folder = file.parent().unwrap_or(Path::new("")).to_owned();
                    (file, folder)
                }
                None => {
                    let folder = self.folder.join(&name);
                    let files = [folder.with_extension("rs"), folder.join("mod.rs")];
                    let file = files.into_iter().find(|file| (self.load)(file).is_ok());
                    let Some(file) = file else {
                        let here = self.tree.files[self.file].display();
                        let line = item.ident.span().start().line;
                        self.missing = Some(format!("{here}:{line}: module `{name}` has no file"));
                        return;
                    };
                    (file, folder)
                }
            };
            let file = self.tree.add_file(file);
            let module = self.tree.add_module(file, Some(self.module));
            self.tree.name(self.module, name, Name::Module(module));
            self.waiting.push(Waiting {
                module,
                file,
                folder,
            });
            return;
        };
        let module = self.tree.add_module(self.file, Some(self.module));
        self.tree
            .name(self.module, name.clone(), Name::Module(module));
        let folder = match path {
            Some(path) => normal(&self.beside.join(path)),
            None => self.folder.join(name),
        };
        let outer = (
            std::mem::replace(&mut self.module, module),
            std::mem::replace(&mut self.folder, folder.clone()),
            std::mem::replace(&mut self.beside, folder),
            std::mem::replace(&mut self.is_in_block, false),
        );
        for item in items {
            self.visit_item(item);
        }
        (self.module, self.folder, self.beside, self.is_in_block) = outer;
    }
}

/// Skips code that is not compiled into the target.
macro_rules! only_live {
    ($($visit:ident: $node:ident),* $(,)?) => {$(
        fn $visit(&mut self, node: &'ast syn::$node) {
            if self.is_live(&node.attrs) {
                visit::$visit(self, node);
            }
        }
    )*};
}

impl<'ast, L: Fn(&Path) -> io::Result<String>> Visit<'ast> for Reader<'_, L> {
    only_live! {
        visit_arm: Arm,
        visit_field: Field,
        visit_field_pat: FieldPat,
        visit_field_value: FieldValue,
        visit_foreign_item_fn: ForeignItemFn,
        visit_foreign_item_static: ForeignItemStatic,
        visit_impl_item_const: ImplItemConst,
        visit_impl_item_fn: ImplItemFn,
        visit_impl_item_macro: ImplItemMacro,
        visit_impl_item_type: ImplItemType,
        visit_local: Local,
        visit_stmt_macro: StmtMacro,
        visit_trait_item_const: TraitItemConst,
        visit_trait_item_fn: TraitItemFn,
        visit_trait_item_macro: TraitItemMacro,
        visit_trait_item_type: TraitItemType,
        visit_variant: Variant,
    }

    fn visit_item(&mut self, item: &'ast Item) {
        let (attributes, name) = match item {
            Item::Const(it) => (&it.attrs, Some(&it.ident)),
            Item::Enum(it) => (&it.attrs, Some(&it.ident)),
            Item::ExternCrate(it) => (&it.attrs, None),
            Item::Fn(it) => (&it.attrs, Some(&it.sig.ident)),
            Item::ForeignMod(it) => (&it.attrs, None),
            Item::Impl(it) => (&it.attrs, None),
            Item::Macro(it) => (&it.attrs, it.ident.as_ref()),
            Item::Mod(it) => (&it.attrs, None),
            Item::Static(it) => (&it.attrs, Some(&it.ident)),
            Item::Struct(it) => (&it.attrs, Some(&it.ident)),
            Item::Trait(it) => (&it.attrs, Some(&it.ident)),
            Item::TraitAlias(it) => (&it.attrs, Some(&it.ident)),
            Item::Type(it) => (&it.attrs, Some(&it.ident)),
            Item::Union(it) => (&it.attrs, Some(&it.ident)),
            Item::Use(it) => (&it.attrs, None),
            _ => return,
        };
        if !self.is_live(attributes) {
            return;
        }
        if let Some(name) = name
            && !self.is_in_block
        {
            let name = plain(name);
            if let Item::Macro(_) = item {
                let known = self.tree.macros.entry(name.clone()).or_default();
                known.push(self.module);
                if attributes
                    .iter()
                    .any(|it| it.path().is_ident("macro_export"))
                {
                    let here = Name::Item(self.module);
                    self.tree.name(crate::tree::ROOT, name.clone(), here);
                }
            }
            self.tree.name(self.module, name, Name::Item(self.module));
        }
        visit::visit_item(self, item);
    }

    fn visit_item_use(&mut self, item: &'ast syn::ItemUse) {
        if item.leading_colon.is_none() {
            let is_private = matches!(item.vis, Visibility::Inherited);
            self.import(&item.tree, is_private);
        }
    }

    fn visit_item_extern_crate(&mut self, item: &'ast syn::ItemExternCrate) {
        if item.ident == "self"
            && let Some((_, name)) = &item.rename
        {
            let root = Name::Import(vec!["crate".to_owned()]);
            self.tree.name(self.module, plain(name), root);
        }
    }

    fn visit_item_mod(&mut self, item: &'ast syn::ItemMod) {
        self.module(item);
    }

    fn visit_item_macro(&mut self, item: &'ast syn::ItemMacro) {
        if item.ident.is_some() {
            self.tokens(item.mac.tokens.clone(), true);
        } else {
            self.visit_macro(&item.mac);
        }
    }

    fn visit_foreign_item(&mut self, item: &'ast syn::ForeignItem) {
        let name = match item {
            syn::ForeignItem::Fn(it) => &it.sig.ident,
            syn::ForeignItem::Static(it) => &it.ident,
            syn::ForeignItem::Type(it) => &it.ident,
            _ => return,
        };
        self.tree
            .name(self.module, plain(name), Name::Item(self.module));
        visit::visit_foreign_item(self, item);
    }

    fn visit_block(&mut self, block: &'ast syn::Block) {
        let outer = std::mem::replace(&mut self.is_in_block, true);
        visit::visit_block(self, block);
        self.is_in_block = outer;
    }

    fn visit_expr(&mut self, expr: &'ast Expr) {
        if self.is_live(expr_attributes(expr)) {
            visit::visit_expr(self, expr);
        }
    }

    fn visit_expr_call(&mut self, call: &'ast syn::ExprCall) {
        match &*call.func {
            Expr::Path(path) => self.qualified(path.qself.as_ref(), &path.path, true),
            other => self.visit_expr(other),
        }
        for argument in &call.args {
            self.visit_expr(argument);
        }
    }

    fn visit_expr_path(&mut self, path: &'ast syn::ExprPath) {
        self.qualified(path.qself.as_ref(), &path.path, false);
    }

    fn visit_type_path(&mut self, path: &'ast syn::TypePath) {
        self.qualified(path.qself.as_ref(), &path.path, true);
    }

    fn visit_expr_struct(&mut self, it: &'ast syn::ExprStruct) {
        self.qualified(it.qself.as_ref(), &it.path, true);
        for field in &it.fields {
            self.visit_field_value(field);
        }
        if let Some(rest) = &it.rest {
            self.visit_expr(rest);
        }
    }

    fn visit_path(&mut self, path: &'ast syn::Path) {
        self.qualified(None, path, true);
    }

    fn visit_macro(&mut self, call: &'ast syn::Macro) {
        if call.path.leading_colon.is_none() {
            let path = call.path.segments.iter();
            let path = path.map(|segment| plain(&segment.ident)).collect();
            self.mention(path, call.path.span(), Kind::Macro);
        }
        self.tokens(call.tokens.clone(), false);
    }

    // Neither imports anything.
    fn visit_attribute(&mut self, _: &'ast Attribute) {}
    fn visit_visibility(&mut self, _: &'ast Visibility) {}
}

/// One path of a `use` tree.
struct Imported {
    path: Segments,
    /// The new name. A glob has no name, and neither has `as _`.
    name: Option<String>,
    is_glob: bool,
    span: Span,
}

/// Every path of a `use` tree.
fn imported(tree: &UseTree) -> Vec<Imported> {
    let mut found = Vec::new();
    add_imported(tree, &[], &mut found);
    found
}

/// Adds the paths of a tree behind this beginning.
fn add_imported(tree: &UseTree, before: &[String], found: &mut Vec<Imported>) {
    let with = |ident: &Ident| {
        let mut path = before.to_vec();
        // `a::{self}` is `a`.
        if before.is_empty() || ident != "self" {
            path.push(plain(ident));
        }
        path
    };
    let (path, name) = match tree {
        UseTree::Path(path) => return add_imported(&path.tree, &with(&path.ident), found),
        UseTree::Group(group) => {
            let trees = group.items.iter();
            return trees.for_each(|tree| add_imported(tree, before, found));
        }
        UseTree::Glob(_) => (before.to_vec(), None),
        UseTree::Name(name) => {
            let path = with(&name.ident);
            let name = path.last().cloned();
            (path, name)
        }
        UseTree::Rename(rename) => {
            let name = (rename.rename != "_").then(|| plain(&rename.rename));
            (with(&rename.ident), name)
        }
    };
    found.push(Imported {
        path,
        name,
        is_glob: matches!(tree, UseTree::Glob(_)),
        span: tree.span(),
    });
}

/// The name without `r#`.
fn plain(ident: &Ident) -> String {
    let name = ident.to_string();
    name.strip_prefix("r#").map(str::to_owned).unwrap_or(name)
}

fn is_capital(name: &str) -> bool {
    name.starts_with(char::is_uppercase)
}

fn is_root(segment: &str) -> bool {
    ["crate", "self", "super"].contains(&segment)
}

/// The value of `#[path = "…"]`.
fn path_attribute(attribute: &Attribute) -> Option<String> {
    let Meta::NameValue(it) = &attribute.meta else {
        return None;
    };
    let Expr::Lit(value) = &it.value else {
        return None;
    };
    match &value.lit {
        syn::Lit::Str(path) if it.path.is_ident("path") => Some(path.value()),
        _ => None,
    }
}

/// The same path, without `..` if possible.
fn normal(path: &Path) -> PathBuf {
    let mut normal = PathBuf::new();
    for component in path.components() {
        let above = matches!(normal.components().next_back(), Some(Component::Normal(_)));
        match component {
            Component::CurDir => {}
            Component::ParentDir if above => drop(normal.pop()),
            other => normal.push(other),
        }
    }
    normal
}

fn expr_attributes(expr: &Expr) -> &[Attribute] {
    macro_rules! attributes {
        ($($kind:ident),* $(,)?) => {
            match expr {
                $(Expr::$kind(it) => &it.attrs,)*
                _ => &[],
            }
        };
    }
    attributes!(
        Array, Assign, Async, Await, Binary, Block, Break, Call, Cast, Closure, Const, Continue,
        Field, ForLoop, Group, If, Index, Infer, Let, Lit, Loop, Macro, Match, MethodCall, Paren,
        Path, Range, RawAddr, Reference, Repeat, Return, Struct, Try, TryBlock, Tuple, Unary,
        Unsafe, While, Yield,
    )
}
