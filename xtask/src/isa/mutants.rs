//! What the check finds: each wait and each write-back or invalidation of a cache is deleted, one at a time.
//!
//! A deletion that the check does not find must do no harm, for one of the [`Harmless`] reasons.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::{fs, io};

use super::parse::{self, Does, Function, Instruction, Wait};
use super::rules::Rules;
use super::{describe, follow};
use crate::zig::Zig;

/// Why it does no harm that an instruction is deleted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Harmless {
    /// Nothing that it waits for is under way, on any path.
    Idle,
    /// The wait beside it waits for as much.
    Doubled,
    /// It only awaits values of registers, and later waits await them again before an instruction names one of them.
    Early,
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
            "{gpu}: found {found} ({} of caches, {} waits); harmless: {} wait for nothing, {} are beside as strong a wait, {} await registers that later waits await",
            verdicts.caches,
            verdicts.waits,
            of(Harmless::Idle),
            of(Harmless::Doubled),
            of(Harmless::Early)
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
        let real = found + of(Harmless::Early);
        if found * 10 < real * 9 || verdicts.caches == 0 {
            return Err(format!("{gpu}: only {found} of {real} were found"));
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
        let waits = looks(&function, &rules)?;
        for (at, look) in waits.iter().enumerate() {
            let does = &function.code[at].does;
            if !matches!(does, Does::Wait(_) | Does::Cache) {
                continue;
            }
            if !follow(&without(&function, at), &rules, |_, _| ())?.is_empty() {
                match does {
                    Does::Cache => verdicts.caches += 1,
                    _ => verdicts.waits += 1,
                }
                continue;
            }
            let place = describe(&function, at, "not found");
            match harmless(&function, at, look) {
                Some(why) => verdicts.harmless.entry(why).or_default().push(place),
                None => verdicts.survivors.push(place),
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

/// What a wait is for, over all paths.
#[derive(Clone, Debug)]
struct Look {
    idle: bool,
    awaited: BTreeSet<u16>,
}

fn looks(function: &Function, rules: &Rules) -> Result<Vec<Look>, String> {
    let look = Look {
        idle: true,
        awaited: BTreeSet::new(),
    };
    let mut looks = vec![look; function.code.len()];
    follow(function, rules, |at, state| {
        if let Does::Wait(wait) = function.code[at].does {
            let (idle, awaited) = state.look_at(wait, rules);
            looks[at].idle &= idle;
            looks[at].awaited.extend(awaited);
        }
    })?;
    Ok(looks)
}

/// Why a deletion that was not found does no harm.
fn harmless(function: &Function, at: usize, look: &Look) -> Option<Harmless> {
    let Does::Wait(wait) = function.code[at].does else {
        return None;
    };
    if look.idle {
        return Some(Harmless::Idle);
    }
    let is_beside = |instruction: &&Instruction| {
        matches!(
            instruction.does,
            Does::Wait(_) | Does::Remark(_) | Does::Nothing
        )
    };
    let mut after = function.code[at + 1..].iter().take_while(is_beside);
    let mut before = function.code[..at].iter().rev().take_while(is_beside);
    let does_as_much = |other: &Instruction| match other.does {
        Does::Wait(other) => covers(other, wait),
        _ => false,
    };
    let is_label = function.labels.values().any(|label| *label == at + 1);
    if after.any(does_as_much) || (!is_label && before.any(does_as_much)) {
        return Some(Harmless::Doubled);
    }
    (!look.awaited.is_empty()).then_some(Harmless::Early)
}

fn covers(other: Wait, wait: Wait) -> bool {
    let covers = |other: Option<u8>, wait: Option<u8>| match (other, wait) {
        (_, None) => true,
        (None, Some(_)) => false,
        (Some(other), Some(wait)) => other <= wait,
    };
    covers(other.vector, wait.vector)
        && covers(other.stores, wait.stores)
        && covers(other.near, wait.near)
}
