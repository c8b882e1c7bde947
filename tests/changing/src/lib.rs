//! Macros for `tests/types`: changes that a program can make behind another macro's back, without the word `unsafe`;
//! the command line with which the test itself is compiled; and the twins of programs that must not compile.

use std::collections::HashMap;
use std::fs;
use std::path::Path;
use std::sync::Mutex;

use proc_macro::{TokenStream, TokenTree};
use quote::quote;
use syn::{ItemFn, ItemStruct, LitStr, Type, parse_macro_input};

/// Gives all fields of a struct the type in the attribute, after a derive above has seen the struct.
#[proc_macro_attribute]
pub fn fields(ty: TokenStream, item: TokenStream) -> TokenStream {
    let ty = parse_macro_input!(ty as Type);
    let mut item = parse_macro_input!(item as ItemStruct);
    for field in &mut item.fields {
        field.ty = ty.clone();
    }
    quote!(#item).into()
}

/// Replaces an item by the contents of the attribute, after a derive above has seen the item.
#[proc_macro_attribute]
pub fn becomes(other: TokenStream, _item: TokenStream) -> TokenStream {
    other
}

/// Makes an unsafe function a safe one.
#[proc_macro_attribute]
pub fn safe(_: TokenStream, item: TokenStream) -> TokenStream {
    let mut item = parse_macro_input!(item as ItemFn);
    item.sig.safety = syn::Safety::Default;
    quote!(#item).into()
}

/// `turns!(KEY: A; B; C)` is `A` the first time that a program has this key, then `B`, and `C` from then on.
#[proc_macro]
pub fn turns(input: TokenStream) -> TokenStream {
    static TURNS: Mutex<Option<HashMap<String, usize>>> = Mutex::new(None);

    let mut input = input.into_iter();
    let key = input.next().expect("a key").to_string();
    input.next().expect("a colon");
    let mut all = vec![TokenStream::new()];
    for token in input {
        match token {
            TokenTree::Punct(punct) if punct.as_char() == ';' => all.push(TokenStream::new()),
            token => all.last_mut().expect("one at least").extend([token]),
        }
    }
    let mut turns = TURNS.lock().expect("no macro has panicked here");
    let turn = turns.get_or_insert_default().entry(key).or_default();
    let now = all.swap_remove((*turn).min(all.len() - 1));
    *turn += 1;
    now
}

/// The compiler that compiles this, and its arguments, as an array of strings. With these a test compiles other
/// programs against the same libraries that cargo has built for it. The target folder may have several versions of
/// them.
#[proc_macro]
pub fn compiler(_: TokenStream) -> TokenStream {
    let program = fs::read_link("/proc/self/exe").expect("the compiler's path can be read");
    let arguments = fs::read("/proc/self/cmdline").expect("its arguments can be read");
    let arguments = String::from_utf8(arguments).expect("its arguments are text");
    let words = arguments.split_terminator('\0').skip(1);
    let program = program.to_str().expect("its path is text");
    quote!([#program, #(#words),*]).into()
}

/// `twins!("tests/compile_fail")`: the twin of each program `rowNN_*.rs` in this folder of the package, as a module,
/// and a test that runs its `main`. A twin lacks the lines that end with `// wrong`, and has those that begin with `//
/// right: `.
#[proc_macro]
pub fn twins(folder: TokenStream) -> TokenStream {
    let folder = parse_macro_input!(folder as LitStr).value();
    let package = std::env::var("CARGO_MANIFEST_DIR").expect("cargo compiles this");
    let folder = Path::new(&package).join(folder);
    let listed = fs::read_dir(&folder).expect("the folder can be read");
    let paths = listed.map(|entry| entry.expect("its entries can be read").path());
    let is_row = |name: &str| name.starts_with("row") && name.ends_with(".rs");
    let mut paths: Vec<_> = paths
        .filter_map(|path| Some(path.to_str()?.to_owned()))
        .filter(|path| path.rsplit('/').next().is_some_and(is_row))
        .collect();
    paths.sort();
    let twins = paths.iter().map(|path| {
        let program = fs::read_to_string(path).expect("the program can be read");
        let lines = program.lines().filter(|line| !line.ends_with("// wrong"));
        let twin = lines.map(|line| line.trim_start().trim_start_matches("// right: "));
        let twin: String = twin.flat_map(|line| [line, "\n"]).collect();
        let name = path.rsplit('/').next().expect("it has a name");
        let name = name.trim_end_matches(".rs");
        // The path makes it compile again when the program changes.
        format!(
            "mod {name} {{
                const _: &str = include_str!({path:?});
                {twin}
                #[test]
                fn runs() {{
                    main().unwrap();
                }}
            }}"
        )
    });
    let twins: String = twins.collect();
    twins.parse().expect("the twins are Rust")
}
