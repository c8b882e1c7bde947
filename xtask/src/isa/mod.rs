//! Memory order in the code of AMD GPUs, which no emulation sees: a check of the assembly that becomes a code object.
//!
//! # Model
//!
//! The check follows every path of every function, with all that may be under way there ([`state`]). It relies on the
//! remarks of `kernels/machine/amd.cuh`, and on what LLVM documents of each GPU ([`rules`]):
//!
//! - A release: behind the last store of this wave, the cache is written back and awaited.
//! - An acquire: the access is awaited, and then the caches are invalidated.
//! - Nothing of the wave is under way at a barrier.
//! - An access has the modifiers of its scope. One with such modifiers has a remark.
//! - No register is touched while its value is under way.
//!
//! About a caller, a function supposes that everything is under way; about a callee, that it leaves stores behind.
//!
//! # Failure
//!
//! The check must know all waits, and all accesses of memory: an unknown one is an error. [`mutants`] shows what the
//! check finds.

use std::collections::{BTreeMap, BTreeSet};

use parse::{Does, Function};
use rules::Rules;
use state::{State, Wrong};

mod mutants;
mod parse;
mod rules;
mod state;
#[cfg(test)]
mod tests;

pub(crate) use mutants::judge;

/// All that is wrong in the assembly for a kind of GPU, place by place.
///
/// # Errors
///
/// If there is something in the assembly that the check does not know.
pub(crate) fn check(assembly: &str, gpu: &str) -> Result<Vec<String>, String> {
    let rules = Rules::of(gpu)?;
    let mut all = Vec::new();
    for function in parse::functions(assembly)? {
        for (at, wrong) in follow(&function, &rules, |_, _| ())? {
            all.push(describe(&function, at, wrong));
        }
    }
    Ok(all)
}

fn describe(function: &Function, at: usize, wrong: Wrong) -> String {
    let instruction = &function.code[at];
    format!(
        "{wrong}: line {}, `{}`, in {}",
        instruction.line,
        instruction.words.join(" "),
        function.name
    )
}

/// Follows all paths of a function, and returns all that is wrong. `sees` gets each instruction with the state before it,
/// as often as that state grows.
fn follow(
    function: &Function,
    rules: &Rules,
    mut sees: impl FnMut(usize, &State),
) -> Result<BTreeSet<(usize, Wrong)>, String> {
    let mut starts: BTreeMap<usize, State> = BTreeMap::new();
    let mut faults = BTreeSet::new();
    let heads: BTreeSet<usize> = function.labels.values().copied().collect();
    let mut paths = vec![0];
    starts.insert(0, State::at_start(function.is_kernel, rules));
    while let Some(start) = paths.pop() {
        let mut state = starts[&start].clone();
        let mut at = start;
        let mut go_to = |to: usize, state: &State| {
            let is_new = match starts.get_mut(&to) {
                Some(known) => known.join(state),
                None => {
                    starts.insert(to, state.clone());
                    true
                }
            };
            if is_new {
                paths.push(to);
            }
        };
        loop {
            let instruction = function.code.get(at);
            let instruction = instruction.ok_or_else(|| format!("{} has no end", function.name))?;
            sees(at, &state);
            let mut wrong = Vec::new();
            state.step(instruction, rules, &mut wrong);
            faults.extend(wrong.into_iter().map(|wrong| (at, wrong)));
            if let Does::Branch { to, always } = &instruction.does {
                let to = function.labels.get(to);
                let to = *to.ok_or_else(|| format!("{} has no such label", function.name))?;
                go_to(to, &state);
                if *always {
                    break;
                }
            }
            if matches!(instruction.does, Does::Return | Does::End) {
                break;
            }
            at += 1;
            if heads.contains(&at) {
                go_to(at, &state);
                break;
            }
        }
    }
    Ok(faults)
}
