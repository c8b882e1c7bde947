//! The functions of a PTX text: their parameters, and the shared memory that they take.

use std::collections::{HashMap, HashSet};

/// A function that can be launched.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Entry {
    pub(crate) name: String,
    /// The bytes of each parameter.
    pub(crate) sizes: Vec<usize>,
    /// The offset of each parameter.
    pub(crate) offsets: Vec<usize>,
    /// The bytes of shared memory of a block, without those that a launch asks for.
    pub(crate) shared: usize,
}

/// The functions of a text; `None` if it is no PTX.
pub(crate) fn entries(text: &str) -> Option<Vec<Entry>> {
    if !(text.contains(".version") && text.contains(".target")) {
        return None;
    }
    let names = Names::of(text)?;
    text.split(".entry")
        .skip(1)
        .map(|text| entry(text, &names))
        .collect()
}

/// The variables in shared memory, and what each function names: variables, and functions that it calls.
#[derive(Default)]
struct Names<'t> {
    variables: HashMap<&'t str, usize>,
    functions: HashMap<&'t str, HashSet<&'t str>>,
}

impl<'t> Names<'t> {
    fn of(text: &'t str) -> Option<Self> {
        let (mut names, mut at) = (Names::default(), "");
        for line in text.lines() {
            // The name of the next function stands in a comment.
            let line = line.split("//").next()?.trim_start();
            if let Some(variable) = line.strip_prefix(".shared") {
                let name = mangled(variable).next()?;
                let (bytes, align) = size(variable)?;
                names.variables.insert(name, bytes.next_multiple_of(align));
                continue;
            }
            at = function(line).unwrap_or(at);
            names.functions.entry(at).or_default().extend(mangled(line));
        }
        Some(names)
    }

    /// The bytes of all variables that a function may use, itself or by what it calls.
    fn shared(&self, function: &'t str) -> usize {
        let (mut found, mut left) = (HashSet::new(), vec![function]);
        while let Some(name) = left.pop() {
            if found.insert(name) {
                left.extend(self.functions.get(name).into_iter().flatten());
            }
        }
        found.iter().filter_map(|it| self.variables.get(it)).sum()
    }
}

/// The mangled names of a line. (All variables in shared memory have such names here, and so have functions that are
/// called.)
fn mangled(line: &str) -> impl Iterator<Item = &str> {
    let words = line.split(|c: char| !c.is_ascii_alphanumeric() && c != '_' && c != '$');
    words.filter(|word| word.starts_with("_Z"))
}

/// The name of the function that begins with a line: `.visible .entry name(`, or `.func (.param .b32 result) name`.
fn function(line: &str) -> Option<&str> {
    let (_, rest) = (line.split_once(".entry ")).or_else(|| line.split_once(".func "))?;
    let rest = rest.trim_start();
    let name = match rest.strip_prefix('(') {
        Some(result) => result.split_once(')')?.1.trim_start(),
        None => rest,
    };
    name.split(['(', '{', ' ']).next()
}

fn entry<'t>(text: &'t str, names: &Names<'t>) -> Option<Entry> {
    let name = text.trim_start();
    let end = name.find(|c: char| c == '(' || c == '{' || c.is_whitespace())?;
    let (name, rest) = name.split_at(end);
    let (mut sizes, mut offsets, mut used) = (Vec::new(), Vec::new(), 0_usize);
    if let Some(list) = rest.trim_start().strip_prefix('(') {
        for parameter in list
            .split_once(')')?
            .0
            .split(',')
            .filter(|p| p.contains(".param"))
        {
            let (size, align) = size(parameter)?;
            let offset = used.next_multiple_of(align);
            offsets.push(offset);
            sizes.push(size);
            used = offset + size;
        }
    }
    Some(Entry {
        name: name.to_owned(),
        sizes,
        offsets,
        shared: names.shared(name),
    })
}

/// `.param .align 8 .b8 name[256]`, or `.param .u64 name`: its bytes, and its alignment.
fn size(parameter: &str) -> Option<(usize, usize)> {
    let (mut each, mut align, mut words) = (None, None, parameter.split_whitespace());
    while let Some(word) = words.next() {
        match word {
            ".param" | ".ptr" | ".global" => {}
            ".align" => align = words.next()?.parse().ok(),
            _ => {
                let bits = word
                    .strip_prefix('.')
                    .and_then(|kind| kind.get(1..)?.parse::<usize>().ok());
                each = each.or(bits.map(|bits| bits / 8));
            }
        }
    }
    let each = each?;
    let count = match parameter.split_once('[') {
        Some((_, count)) => count.split_once(']')?.0.trim().parse().ok()?,
        None => 1,
    };
    Some((each * count, align.unwrap_or(each).max(1)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_function_takes_what_it_and_its_calls_take() {
        let text = "
            .version 9.0
            .target sm_90
            .func  (.param .b32 func_retval0) _Z5callsv
            ()
            ;
            .shared .align 4 .u32 _ZZ3allvE5teams;
            .func (.param .b32 func_retval0) _Z5callsv()
            {
                .shared .align 16 .b8 _ZZ5callsvE4room[4224];
                mov.u64 %rd1, _ZZ5callsvE4room;
                mov.u64 %rd2, _ZZ3allvE5teams;
            }
            .visible .entry alone(
                .param .align 8 .b8 alone_param_0[64]
            )
            { st.shared.u32 [_ZZ3allvE5teams], %r1; }
            // .globl _Z5callsv
            .visible .entry both()
            { call.uni (retval0), _Z5callsv, (); }
            .entry none()
            { ret; }
            // .globl _Z5callsv";
        let found = entries(text).unwrap();
        let shared: Vec<_> = found.iter().map(|it| (&it.name[..], it.shared)).collect();
        assert_eq!(shared, [("alone", 4), ("both", 4228), ("none", 0)]);
        assert_eq!(found[0].sizes, [64]);
    }
}
