//! Small trees in memory.

use std::io;
use std::path::Path;

use crate::tree::Tree;
use crate::{cycles, describe, read, resolve};

/// Reads a target whose root is the first of these files.
fn tree(files: &[(&str, &str)], is_test: bool) -> Result<Tree, String> {
    let load = |path: &Path| {
        let file = files.iter().find(|(name, _)| Path::new(name) == path);
        let file = file.ok_or(io::ErrorKind::NotFound)?;
        Ok(file.1.to_owned())
    };
    read::read(Path::new(files[0].0), is_test, load)
}

/// The imports between files, without the folder `src`: `a b` if `a.rs` imports `b.rs`.
fn edges_of(tree: &Tree) -> Vec<String> {
    let name = |file: usize| {
        let path = tree.files[file].with_extension("");
        let path = path.strip_prefix("src").unwrap_or(&path);
        path.display().to_string()
    };
    let edges = resolve::edges(tree);
    let edges = edges
        .keys()
        .map(|(from, to)| format!("{} {}", name(*from), name(*to)));
    let mut edges: Vec<_> = edges.collect();
    edges.sort();
    edges
}

fn edges(files: &[(&str, &str)]) -> Vec<String> {
    edges_of(&tree(files, false).unwrap())
}

/// The imports of a crate whose module `a` has this text. Beside it are `b` with `struct B`, `enum Kind` and `fn b`,
/// and `c` with `struct C` and a child `d` with `struct D`.
fn of_a(text: &str) -> Vec<String> {
    edges(&[
        (
            "src/lib.rs",
            "mod a; mod b; mod c; pub(crate) use b::B as Renamed;",
        ),
        ("src/a.rs", text),
        (
            "src/b.rs",
            "pub struct B; pub enum Kind { One } pub fn b() {} pub trait Shows {} pub const ALL: u8 = 0;",
        ),
        (
            "src/c/mod.rs",
            "mod d; pub use self::d::D; pub use super::b; pub struct C;",
        ),
        ("src/c/d.rs", "pub struct D; pub fn made() {}"),
    ])
}

#[test]
fn every_kind_of_path_is_seen() {
    for text in [
        "use crate::b::B;",
        "use crate::{b::{Kind, B}};",
        "use crate::b::{self}; fn f(_: b::B) {}",
        "use crate::b::B as Other;",
        "use crate::b::Shows as _;",
        "use crate::b::*;",
        "use super::b::B;",
        "use super::super::b::B;",
        "use self::super::b::B;",
        "use crate::b as other; fn f() { other::b() }",
        "pub use crate::b::B;",
        "pub(crate) use crate::b::*;",
        "use crate::b::Kind::*;",
        "use crate::b::Kind::One;",
        "use crate::Renamed;",
        "fn f() { use crate::b::B; }",
        "mod inner { use super::super::b::B; }",
        "mod inner { mod more { fn f() { crate::b::b() } } }",
        "fn f() { crate::b::b() }",
        "fn f() { let x = super::b::ALL; }",
        "fn f() -> crate::b::B { loop {} }",
        "fn f(_: Vec<Option<&crate::b::B>>) {}",
        "fn f(_: impl crate::b::Shows) {}",
        "fn f<T>() where T: crate::b::Shows {}",
        "fn f() { match 0 { crate::b::ALL => {} _ => {} } }",
        "fn f() { if let crate::b::Kind::One = x {} }",
        "fn f() { <crate::b::B>::new() }",
        "fn f() { <u8 as crate::b::Shows>::show() }",
        "fn f() { crate::b::B {} }",
        "fn f() { x.map(crate::b::b) }",
        "fn f() { x.get::<crate::b::B>() }",
        "impl crate::b::Shows for u8 {}",
        "impl crate::b::B {}",
        "struct A { b: crate::b::B }",
        "type A = [crate::b::B; 2];",
        "fn f() { println!(\"{}\", crate::b::b()) }",
        "fn f() { assert!(matches!(x, super::b::Kind::One)) }",
        "made! { use crate::b::{B, Kind}; }",
        "use crate::b; fn f() { println!(\"{}\", b::b()) }",
        "macro_rules! made { () => { $crate::b::b() } }",
        "macro_rules! made { () => { use $crate::b::B; } }",
        "#[cfg(not(test))] use crate::b::B;",
        "#[cfg(any(test, feature = \"x\"))] use crate::b::B;",
        "#[cfg(feature = \"x\")] fn f() { crate::b::b() }",
    ] {
        assert!(of_a(text).contains(&"a b".to_owned()), "{text}");
    }
}

#[test]
fn what_is_no_import_is_not_seen() {
    for text in [
        "use std::b::B;",
        "use ::b::B;",
        "fn f() { ::b::b() }",
        "use crate::b;",
        "mod b { pub struct B; } use b::B;",
        "struct B; fn f(_: B) {}",
        "fn f() { x.b(); let b = 1; b + self.b }",
        "fn f() { println!(\"{}\", x.b::<u8>()) }",
        "macro_rules! made { ($b:ident) => { b::b(); $b::b() } }",
        "/// See [`crate::b::B`].\nstruct A;",
        "#[doc = \"crate::b::B\"] struct A;",
        "pub(in crate::b) struct A;",
        "fn f() { other::crate_b::B }",
    ] {
        assert!(!of_a(text).contains(&"a b".to_owned()), "{text}");
    }
}

#[test]
fn code_for_tests_and_documentation_does_not_count() {
    for text in [
        "#[cfg(test)] use crate::b::B;",
        "#[cfg(doc)] use crate::b::B;",
        "#[cfg(all(test, not(miri)))] use crate::b::B;",
        "#[cfg(not(not(test)))] use crate::b::B;",
        "#[cfg(any(test, doc))] use crate::b::B;",
        "#[cfg(test)] mod tests { use crate::b::B; }",
        "#[cfg(test)] mod no_such_file;",
        "#[test] fn f() { crate::b::b() }",
        "#![cfg(test)] use crate::b::B;",
        "fn f() { #[cfg(test)] crate::b::b(); }",
        "fn f() { #[cfg(test)] let x = crate::b::b(); }",
        "fn f() { #[cfg(test)] { crate::b::b() } }",
        "fn f() { #[cfg(test)] println!(\"{}\", crate::b::b()); }",
        "fn f() { match 0 { #[cfg(test)] 1 => crate::b::b(), _ => {} } }",
        "struct A { #[cfg(test)] b: crate::b::B }",
        "fn f() { A { #[cfg(test)] b: crate::b::b() } }",
        "enum A { #[cfg(test)] B(crate::b::B) }",
        "impl A { #[cfg(test)] fn f() { crate::b::b() } }",
        "trait A { #[cfg(test)] fn f() { crate::b::b() } }",
    ] {
        assert!(!of_a(text).contains(&"a b".to_owned()), "{text}");
    }
    let program = tree(
        &[
            ("tests/job/main.rs", "mod a; mod b;"),
            ("tests/job/a.rs", "#[test] fn f() { crate::b::b() }"),
            ("tests/job/b.rs", "pub fn b() {}"),
        ],
        true,
    );
    assert_eq!(edges_of(&program.unwrap()), ["tests/job/a tests/job/b"]);
}

#[test]
fn a_path_leads_to_the_file_that_defines_the_name() {
    // The path goes through the facade, which is not imported.
    assert_eq!(of_a("use crate::c::D;"), ["a c/d"]);
    assert_eq!(of_a("use crate::c; fn f(_: c::D) {}"), ["a c/d"]);
    assert_eq!(of_a("use crate::c::b::B;"), ["a b"]);
    // If nothing defines a name, a macro may have. The last known module counts.
    assert_eq!(of_a("use crate::c::Unknown;"), ["a c/mod"]);
    assert_eq!(of_a("use crate::c::D::new;"), ["a c/d"]);
    // Globs, and chains of them.
    let files = |a| {
        edges(&[
            ("src/lib.rs", "mod a; mod b; mod facade;"),
            ("src/a.rs", a),
            ("src/b.rs", "pub struct B; pub fn b() {} pub struct Other;"),
            (
                "src/facade.rs",
                "mod deep; pub use deep::*; pub use crate::b::*;",
            ),
            ("src/facade/deep.rs", "pub struct Deep;"),
        ])
    };
    assert_eq!(
        files("use crate::facade::Deep;"),
        ["a facade/deep", "facade b"]
    );
    assert_eq!(files("use crate::facade::B;"), ["a b", "facade b"]);
    let globs = "use crate::facade::*; fn f(_: Deep) { b() }";
    assert_eq!(
        files(globs),
        ["a b", "a facade", "a facade/deep", "facade b"]
    );
    // A function with the name of a module.
    let same = [
        ("src/lib.rs", "mod a; mod b; fn b() {}"),
        ("src/a.rs", "fn f() { crate::b::b() }"),
        ("src/b.rs", "pub fn b() {}"),
    ];
    assert_eq!(edges(&same), ["a b"]);
    // Children can name what a parent imports for itself.
    let parents = [
        ("src/lib.rs", "mod a; mod b; use b::B;"),
        ("src/a.rs", "use super::B;"),
        ("src/b.rs", "pub struct B;"),
    ];
    assert_eq!(edges(&parents), ["a b", "lib b"]);
}

#[test]
fn a_parent_that_declares_and_re_exports_imports_nothing() {
    let parent = |text| {
        edges(&[
            ("src/lib.rs", text),
            ("src/a.rs", "pub struct A; pub fn a() {}"),
        ])
    };
    assert!(parent("mod a; pub use a::A; pub(crate) use self::a::a;").is_empty());
    assert!(parent("mod a; pub use a::*;").is_empty());
    assert!(parent("mod a; pub mod prelude { pub use crate::a::A; }").is_empty());
    assert_eq!(parent("mod a; use a::A;"), ["lib a"]);
    assert_eq!(parent("mod a; fn f() { a::a() }"), ["lib a"]);
    // A re-export that the parent uses itself.
    assert_eq!(parent("mod a; pub use a::A; struct Has(A);"), ["lib a"]);
    assert_eq!(parent("mod a; pub use a::a; fn f() { a() }"), ["lib a"]);
    // An item from elsewhere is imported, even if it is only re-exported.
    let sibling = [
        ("src/lib.rs", "mod a; mod b;"),
        ("src/a.rs", "pub use crate::b::B;"),
        ("src/b.rs", "pub struct B;"),
    ];
    assert_eq!(edges(&sibling), ["a b"]);
}

#[test]
fn macros_are_found_with_and_without_a_path() {
    let files = |c| {
        edges(&[
            ("src/lib.rs", "#[macro_use] mod a; mod b; mod c;"),
            ("src/a.rs", "macro_rules! made { () => {} }"),
            (
                "src/b.rs",
                "#[macro_export] macro_rules! open { () => {} } macro_rules! named { () => {} } pub(crate) use named;",
            ),
            ("src/c.rs", c),
        ])
    };
    assert_eq!(files("made!();"), ["c a"]);
    assert_eq!(files("fn f() { crate::open!() }"), ["c b"]);
    assert_eq!(files("use crate::b::named; fn f() { named!() }"), ["c b"]);
    assert!(files("fn f() { println!() }").is_empty());
}

#[test]
fn modules_are_found_wherever_their_files_lie() {
    let found = edges(&[
        (
            "src/main.rs",
            "mod a; mod inline { mod deep; } #[path = \"../common/shared.rs\"] mod shared; mod base;",
        ),
        (
            "src/a.rs",
            "mod child; #[path = \"odd.rs\"] mod odd; use crate::base::Base;",
        ),
        ("src/a/child.rs", "use crate::base::Base;"),
        ("src/odd.rs", "mod below; use crate::base::Base;"),
        ("src/below.rs", "use crate::base::Base;"),
        ("src/inline/deep.rs", "use crate::base::Base;"),
        ("common/shared.rs", "use super::base::Base;"),
        ("src/base.rs", "pub struct Base;"),
    ]);
    assert_eq!(
        found,
        [
            "a base",
            "a/child base",
            "below base",
            "common/shared base",
            "inline/deep base",
            "odd base"
        ]
    );
    let lost = tree(&[("src/lib.rs", "\nmod lost;")], false).err().unwrap();
    assert_eq!(lost, "src/lib.rs:2: module `lost` has no file");
    let broken = tree(&[("src/lib.rs", "\nfn {")], false).err().unwrap();
    assert!(broken.starts_with("src/lib.rs:2: "), "{broken}");
}

#[test]
fn imports_that_form_a_ring_end() {
    let ring = [
        ("src/lib.rs", "mod a; mod b;"),
        (
            "src/a.rs",
            "pub use crate::b::X; pub use crate::b::*; use self::c as d; use self::d as c; fn f() { c::e() }",
        ),
        ("src/b.rs", "pub use crate::a::X; pub use crate::a::*;"),
    ];
    assert_eq!(edges(&ring), ["a b", "b a"]);
}

#[test]
fn a_cycle_is_reported_with_its_imports() {
    let files = [
        (
            "src/lib.rs",
            "pub mod a;\nmod b;\nmod c;\nmod base;\npub use a::A;",
        ),
        (
            "src/a.rs",
            "use crate::base::Base;\nuse crate::b::B;\npub struct A(B, Base);",
        ),
        (
            "src/b.rs",
            "pub struct B;\nimpl B {\n    fn up(&self) -> super::c::C { loop {} }\n}",
        ),
        (
            "src/c.rs",
            "use crate::base::Base;\nuse crate::A;\npub struct C(A, Base);",
        ),
        ("src/base.rs", "pub struct Base;"),
    ];
    let tree = tree(&files, false).unwrap();
    let edges = resolve::edges(&tree);
    let cycles = cycles(&tree, &edges);
    let [cycle] = cycles.as_slice() else {
        panic!("{} cycles", cycles.len())
    };
    let expected = "  3 files of lib x import each other:
    src/a.rs
    src/b.rs
    src/c.rs
  src/a.rs:2 imports crate::b::B from src/b.rs
  src/b.rs:3 imports super::c::C from src/c.rs
  src/c.rs:2 imports crate::A from src/a.rs
";
    assert_eq!(describe(&tree, &edges, cycle, "lib x"), expected);
}

#[test]
fn a_facade_over_modules_in_layers_is_no_cycle() {
    let files = [
        ("src/lib.rs", "mod upper; mod window; pub use upper::Upper;"),
        (
            "src/upper.rs",
            "use crate::window::{Lower, Window}; pub struct Upper;",
        ),
        (
            "src/window/mod.rs",
            "//! Windows.\nmod lower; mod tall; pub use lower::Lower; pub use tall::Window;",
        ),
        (
            "src/window/lower.rs",
            "pub struct Lower; #[cfg(test)] mod tests { use crate::Upper; }",
        ),
        (
            "src/window/tall.rs",
            "use super::Lower; pub struct Window(Lower);",
        ),
    ];
    let tree = tree(&files, false).unwrap();
    assert!(cycles(&tree, &resolve::edges(&tree)).is_empty());
}
