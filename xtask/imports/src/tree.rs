//! The modules of one target, and every path in their code, as [`crate::read`] finds them.

use std::collections::{BTreeMap, HashMap};
use std::path::PathBuf;

/// An index into [`Tree::modules`].
pub(crate) type ModuleId = usize;

/// An index into [`Tree::files`].
pub(crate) type FileId = usize;

/// The root module of each tree.
pub(crate) const ROOT: ModuleId = 0;

/// One target: a library, a program, a test program.
#[derive(Default)]
pub(crate) struct Tree {
    pub(crate) files: Vec<PathBuf>,
    pub(crate) modules: Vec<Module>,
    pub(crate) mentions: Vec<Mention>,
    /// The modules that define a `macro_rules!` macro of this name. Such a macro can be called without a path.
    pub(crate) macros: BTreeMap<String, Vec<ModuleId>>,
}

/// A module: a whole file, or a part of one.
pub(crate) struct Module {
    pub(crate) file: FileId,
    pub(crate) parent: Option<ModuleId>,
    /// A name can stand for several things, since types, values and macros have separate name spaces.
    pub(crate) names: HashMap<String, Vec<Name>>,
    /// The modules whose names it imports by globs.
    pub(crate) globs: Vec<Segments>,
}

/// The parts of a path, with `crate`, `self` and `super`.
pub(crate) type Segments = Vec<String>;

/// A meaning of a name in a module.
pub(crate) enum Name {
    /// Something that this module defines. (A macro can have its name in the root module, and its definition
    /// elsewhere.)
    Item(ModuleId),
    Module(ModuleId),
    Import(Segments),
}

/// A path in the code.
pub(crate) struct Mention {
    /// The module that contains it.
    pub(crate) module: ModuleId,
    pub(crate) line: usize,
    pub(crate) path: Segments,
    pub(crate) kind: Kind,
}

/// How a path is mentioned.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// `use path;`
    Import,
    /// `use path::*;`
    Glob,
    /// `pub use path;`, or another visibility.
    ReExport,
    /// `pub use path::*;`, or another visibility.
    GlobReExport,
    /// `path!()`
    Macro,
    /// Anywhere else.
    Inline,
}

impl Tree {
    /// Adds a file, unless it is there already: two modules can have the same one.
    pub(crate) fn add_file(&mut self, path: PathBuf) -> FileId {
        let known = self.files.iter().position(|file| *file == path);
        known.unwrap_or_else(|| {
            self.files.push(path);
            self.files.len() - 1
        })
    }

    pub(crate) fn add_module(&mut self, file: FileId, parent: Option<ModuleId>) -> ModuleId {
        self.modules.push(Module {
            file,
            parent,
            names: HashMap::new(),
            globs: Vec::new(),
        });
        self.modules.len() - 1
    }

    pub(crate) fn name(&mut self, module: ModuleId, name: String, stands_for: Name) {
        let names = &mut self.modules[module].names;
        names.entry(name).or_default().push(stands_for);
    }
}
