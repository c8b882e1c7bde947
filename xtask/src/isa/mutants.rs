//! What the check finds: each wait and each write-back or invalidation of a cache is deleted, one at a time.
//!
//! A deletion that the check does not find must do no harm. That is proved by what may be under way at each place, with
//! the instruction and without it ([`harmless`]). A deletion without a proof fails.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::{fs, io};

use super::parse::{self, Does, Function, Instruction, Remark};
use super::rules::Rules;
use super::state::State;
use super::{describe, follow};
use crate::zig::Zig;

/// Why it does no harm that an instruction is deleted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Harmless {
    /// Without it, the same may be under way everywhere: nothing, or only what another path leaves under way, too.
    Idle,
    /// On every path behind it, other waits await the same before anything depends on that.
    Later,
}

/// The verdicts over the mutants of an assembly file.
#[derive(Default, Debug)]
pub(super) struct Verdicts {
    /// How many deleted instructions of caches were found, and how many waits.
    caches: usize,
    waits: usize,
    harmless: BTreeMap<Harmless, Vec<String>>,
    /// All others.
    pub(super) survivors: Vec<String>,
}

/// How many of a hundred deletions are found, at least. The others wait for nothing, or too early.
const LEAST: usize = 85;

/// Deletes each instruction of the batch kernel that orders memory, and looks whether the check finds that. And compiles
/// it without the waits that mend the compiler's weaknesses: the check must find these, too.
pub(crate) fn judge(zig: &Zig, kernels: &Path, gpus: &[&str]) -> Result<(), String> {
    const KERNEL: &str = "batch";
    let weak = weak_copy(kernels, &zig.folder("weak")?)?;
    for gpu in gpus {
        let verdicts = verdicts(&zig.assembly(kernels, KERNEL, gpu)?, gpu)?;
        let of = |why| verdicts.harmless.get(&why).map_or(0, Vec::len);
        let found = verdicts.caches + verdicts.waits;
        println!(
            "{gpu}: found {found} ({} of caches, {} waits); proved harmless: {} wait for nothing, {} wait for what later waits await",
            verdicts.caches,
            verdicts.waits,
            of(Harmless::Idle),
            of(Harmless::Later)
        );
        for (why, places) in &verdicts.harmless {
            for place in places {
                println!("    {why:?}: {place}");
            }
        }
        if !verdicts.survivors.is_empty() {
            return Err(format!("{gpu}: {}", verdicts.survivors.join("\n")));
        }
        // If the check were blind to something, all of that would count as harmless.
        let all = found + of(Harmless::Idle) + of(Harmless::Later);
        if found * 100 < all * LEAST || verdicts.caches == 0 {
            return Err(format!("{gpu}: only {found} of {all} were found"));
        }
        let faults = super::check(&zig.assembly(&weak, KERNEL, gpu)?, gpu)?;
        println!(
            "{gpu}: without the waits that mend the compiler, the check finds {} places",
            faults.len()
        );
        let mut weaknesses = vec!["a release,"];
        if !Rules::of(gpu)?.counts_stores {
            weaknesses.extend(["a write-back that is not awaited", "a barrier,"]);
        }
        for weakness in weaknesses {
            if !faults.iter().any(|fault| fault.starts_with(weakness)) {
                return Err(format!("{gpu}: the check does not find {weakness}"));
            }
        }
    }
    Ok(())
}

/// A copy of the sources whose `drain` does nothing.
fn weak_copy(kernels: &Path, to: &Path) -> Result<PathBuf, String> {
    let copy = || -> io::Result<bool> {
        fs::create_dir_all(to.join("machine"))?;
        let mut is_changed = false;
        for within in ["", "machine"] {
            for entry in fs::read_dir(kernels.join(within))? {
                let path = entry?.path();
                let is_source = path
                    .extension()
                    .is_some_and(|ending| ending == "cu" || ending == "cuh");
                let (true, Some(name)) = (is_source, path.file_name()) else {
                    continue;
                };
                let text = fs::read_to_string(&path)?;
                let weak = WAITS
                    .iter()
                    .fold(text.clone(), |text, wait| text.replace(wait, ""));
                is_changed |= weak != text;
                fs::write(to.join(within).join(name), weak)?;
            }
        }
        Ok(is_changed)
    };
    match copy() {
        Ok(true) => Ok(to.to_owned()),
        Ok(false) => Err("the waits of `drain` are not found in the sources".into()),
        Err(error) => Err(format!("{}: {error}", to.display())),
    }
}

/// The waits of `drain`, in `kernels/machine/amd.cuh`.
const WAITS: [&str; 2] = [
    "__builtin_amdgcn_s_waitcnt(0);",
    r#"asm volatile("s_waitcnt_vscnt null, 0x0" ::: "memory");"#,
];

/// Deletes each instruction that orders memory, one at a time.
pub(super) fn verdicts(assembly: &str, gpu: &str) -> Result<Verdicts, String> {
    let rules = Rules::of(gpu)?;
    let mut verdicts = Verdicts::default();
    for function in parse::functions(assembly)? {
        let states = states(&function, &rules)?;
        for (at, instruction) in function.code.iter().enumerate() {
            let does = &instruction.does;
            if !matches!(does, Does::Wait(_) | Does::Cache) {
                continue;
            }
            let mutant = without(&function, at);
            if !follow(&mutant, &rules, |_, _| ())?.is_empty() {
                match does {
                    Does::Cache => verdicts.caches += 1,
                    _ => verdicts.waits += 1,
                }
                continue;
            }
            let place = describe(&function, at, "not found");
            match harmless(&mutant, &states, &self::states(&mutant, &rules)?) {
                Ok(why) => verdicts.harmless.entry(why).or_default().push(place),
                Err(at) => {
                    let depends = describe(&function, at, "this may depend on it");
                    verdicts.survivors.push(format!("{place}; {depends}"));
                }
            }
        }
    }
    Ok(verdicts)
}

fn without(function: &Function, at: usize) -> Function {
    let mut mutant = function.clone();
    mutant.code[at] = Instruction {
        words: vec!["s_nop".to_owned()],
        registers: Vec::new(),
        does: Does::Nothing,
        ..mutant.code[at].clone()
    };
    mutant
}

/// What may be under way before each instruction, over all paths; `None` if no path comes there.
fn states(function: &Function, rules: &Rules) -> Result<Vec<Option<State>>, String> {
    let mut states = vec![None; function.code.len()];
    // States only grow, so the last one has all paths.
    follow(function, rules, |at, state| {
        states[at] = Some(state.clone())
    })?;
    Ok(states)
}

/// Why a deletion that was not found does no harm.
///
/// Where the states with and without the instruction are equal, the deletion has no effect any more. Between it and
/// these places, nothing may depend on the difference: no register is touched that is under way, as the check has found,
/// and there is nothing but waits, branches, arithmetic, accesses of which no order is asked, and calls. (A function
/// supposes of its caller that everything is under way.)
///
/// # Errors
///
/// An instruction that may depend on it.
fn harmless(
    mutant: &Function,
    with: &[Option<State>],
    without: &[Option<State>],
) -> Result<Harmless, usize> {
    let mut why = Harmless::Idle;
    for (at, instruction) in mutant.code.iter().enumerate() {
        if with[at] == without[at] {
            continue;
        }
        why = Harmless::Later;
        // A remark of this kind is of an access without an order.
        if !matches!(
            instruction.does,
            Does::Wait(_)
                | Does::Branch { .. }
                | Does::Remark(Remark::At(_))
                | Does::Access(_)
                | Does::Call
                | Does::Nothing
        ) {
            return Err(at);
        }
    }
    Ok(why)
}
