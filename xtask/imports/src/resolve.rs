//! Finds the file that defines what a path names, and so the files that each file imports.

use std::collections::BTreeMap;

use crate::tree::{FileId, Kind, Mention, ModuleId, Name, ROOT, Tree};

/// For a file and one that it imports: the place that shows it.
pub(crate) type Edges<'t> = BTreeMap<(FileId, FileId), &'t Mention>;

/// The imports between files.
pub(crate) fn edges(tree: &Tree) -> Edges<'_> {
    let mut edges = Edges::new();
    for mention in &tree.mentions {
        let from = tree.modules[mention.module].file;
        for to in files(tree, mention) {
            if to == from {
                continue;
            }
            // Readers look at the `use` lines first.
            let rank = |it: &Mention| (it.kind == Kind::Inline, it.line);
            let shown = edges.entry((from, to)).or_insert(mention);
            if rank(mention) < rank(shown) {
                *shown = mention;
            }
        }
    }
    edges
}

/// The files that a mention imports.
fn files(tree: &Tree, mention: &Mention) -> Vec<FileId> {
    let from = tree.modules[mention.module].file;
    let mut found = Search::new(tree).path(mention.module, &mention.path);
    if found.is_empty() && mention.kind == Kind::Macro && mention.path.len() == 1 {
        // Such a macro is not imported, since its definition precedes it in the text of the crate. If two macros have
        // the name, nothing is known.
        if let Some([module]) = tree.macros.get(&mention.path[0]).map(Vec::as_slice) {
            found.push(Found::Item(*module));
        }
    }
    let modules = found.into_iter().filter_map(|found| match found {
        Found::Item(module) => Some(module),
        // Importing a module imports nothing by itself. But a glob does, since traits have an effect without being
        // named.
        Found::Module(module) if is_glob(mention.kind) => Some(module),
        Found::Module(_) | Found::Foreign => None,
    });
    let is_re_export = matches!(mention.kind, Kind::ReExport | Kind::GlobReExport);
    let modules = modules.filter(|module| !(is_re_export && is_below(tree, from, *module)));
    modules.map(|module| tree.modules[module].file).collect()
}

fn is_glob(kind: Kind) -> bool {
    matches!(kind, Kind::Glob | Kind::GlobReExport)
}

/// Whether the module, or one above it, is in this file.
fn is_below(tree: &Tree, file: FileId, module: ModuleId) -> bool {
    let parent = |module: &ModuleId| tree.modules[*module].parent;
    let mut chain = std::iter::successors(Some(module), parent);
    chain.any(|module| tree.modules[module].file == file)
}

/// The thing that a path names.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Found {
    /// Something that this module defines, or may define by a macro.
    Item(ModuleId),
    Module(ModuleId),
    /// Something of another crate.
    Foreign,
}

/// One search. It never follows an import that it is already following, because imports can form a ring.
struct Search<'t> {
    tree: &'t Tree,
    /// A name in a module, and which of its meanings there.
    followed: Vec<(ModuleId, String, Meaning)>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Meaning {
    /// Its place among those that the name has.
    Named(usize),
    OfGlobs,
}

impl<'t> Search<'t> {
    fn new(tree: &'t Tree) -> Self {
        let followed = Vec::new();
        Search { tree, followed }
    }

    /// The things that a path in this module can name. None if its first name is unknown.
    fn path(&mut self, module: ModuleId, path: &[String]) -> Vec<Found> {
        let parent = |module: ModuleId| self.tree.modules[module].parent.unwrap_or(ROOT);
        let (mut found, rest) = match path[0].as_str() {
            "crate" => (vec![Found::Module(ROOT)], &path[1..]),
            "self" | "super" => {
                let ups = path
                    .iter()
                    .take_while(|it| ["self", "super"].contains(&it.as_str()));
                let start = ups.clone().fold(module, |module, up| match up.as_str() {
                    "super" => parent(module),
                    _ => module,
                });
                (vec![Found::Module(start)], &path[ups.count()..])
            }
            name => (self.name(module, name), &path[1..]),
        };
        for name in rest {
            // A function can have the name of a module, and leads no further.
            let is_module = |it: &Found| matches!(it, Found::Module(_));
            if found.iter().any(is_module) {
                found.retain(is_module);
            }
            found = found
                .into_iter()
                .flat_map(|found| match found {
                    Found::Module(module) => {
                        let found = self.name(module, name);
                        if found.is_empty() {
                            vec![Found::Item(module)]
                        } else {
                            found
                        }
                    }
                    // A variant, or an associated item.
                    other => vec![other],
                })
                .collect();
        }
        found
    }

    /// The things for which a name stands in a module.
    fn name(&mut self, module: ModuleId, name: &str) -> Vec<Found> {
        let tree = self.tree;
        let Some(names) = tree.modules[module].names.get(name) else {
            let key = (module, name.to_owned(), Meaning::OfGlobs);
            return self.follow(key, |search| search.name_of_globs(module, name));
        };
        let mut found = Vec::new();
        for (at, meaning) in names.iter().enumerate() {
            match meaning {
                Name::Item(module) => found.push(Found::Item(*module)),
                Name::Module(module) => found.push(Found::Module(*module)),
                Name::Import(path) => {
                    let key = (module, name.to_owned(), Meaning::Named(at));
                    found.extend(self.follow(key, |search| {
                        let found = search.path(module, path);
                        if found.is_empty() {
                            vec![Found::Foreign]
                        } else {
                            found
                        }
                    }));
                }
            }
        }
        found
    }

    /// Follows an import, unless it is being followed already.
    fn follow(
        &mut self,
        key: (ModuleId, String, Meaning),
        find: impl FnOnce(&mut Self) -> Vec<Found>,
    ) -> Vec<Found> {
        if self.followed.contains(&key) {
            return Vec::new();
        }
        self.followed.push(key);
        let found = find(self);
        self.followed.pop();
        found
    }

    /// The things for which a name stands in the modules whose names this one imports by globs.
    fn name_of_globs(&mut self, module: ModuleId, name: &str) -> Vec<Found> {
        let globs = self.tree.modules[module].globs.iter();
        globs
            .flat_map(|path| self.path(module, path))
            .collect::<Vec<_>>()
            .into_iter()
            .flat_map(|found| match found {
                Found::Module(module) => self.name(module, name),
                // These are the variants of an enum: the glob itself imports its file.
                Found::Item(_) | Found::Foreign => Vec::new(),
            })
            .collect()
    }
}
