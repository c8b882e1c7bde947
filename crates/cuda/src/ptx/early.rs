//! Launches that begin early: what they do before the work in front is over, and when they let the next one begin.

use std::collections::BTreeSet;

use super::flow::{self, always, body};
use super::{Item, TEXTS, entry, functions, is_barrier, is_of_stamps};

/// Until the work in front is over, a block only reads a part of its program. Then it lets the next launch begin, and
/// only then does any thread go on.
#[test]
fn a_launch_that_began_early_waits_first() {
    for (text, _) in TEXTS.into_iter().filter(|(_, new)| *new) {
        let functions = functions(text);
        let waits = |line: &str| line.starts_with("griddepcontrol.wait");
        let owns = [
            "run_land",
            "run_fold",
            "run_steps",
            "run_listed",
            "run_behind",
            "run_checks",
            "tidegate_reduce",
        ];
        let own = |name: &str| owns.iter().any(|own| name.contains(own)) && !name.contains("_late");
        let (name, items) = entry(&functions);
        let others = |line: &str| {
            let primitive = items.contains(&Item::Primitive(line.to_owned()));
            // Some lanes do so themselves: see below. (The function of a call is on the next line.)
            let calls = line.starts_with("_Z") && !own(line);
            (primitive && !waits(line)) || calls
        };
        // One barrier is for the state that all teams of a block share.
        let body_of = body(text, name);
        let first = body_of.iter().position(|line| is_barrier(line));
        let first = first.expect("there are barriers");
        let mut found = BTreeSet::new();
        flow::follow(
            text,
            name,
            waits,
            |_| false,
            |at, line, has| {
                if others(line) && at != first {
                    assert!(has, "{name}: {line} ({at})");
                    found.insert(at);
                }
            },
        );
        assert!(found.len() > 40, "{name}: {}", found.len());
        // For two kinds of short forms, for posts, and for lanes that only wait. Each passes once, and the last in two
        // places.
        assert_eq!(waits_and_lets(items), Some((4, 5)), "{name}");
        for (name, items) in &functions {
            if own(name) {
                let passes = match name {
                    name if name.contains("run_steps") => 0,
                    // When all data is promised, or at the end.
                    name if name.contains("run_landed") => 2,
                    _ => 1,
                };
                // Posts of that kernel wait by themselves, and pass.
                let each = 1 + usize::from(name.contains("tidegate_reduce"));
                assert_eq!(waits_and_lets(items), Some((each, each * passes)), "{name}");
                let body = body(text, name);
                let wait = body.iter().position(|line| waits(line)).expect("it waits");
                // Only the program is read: steps, by one line; lists, by eight lines, or as many as a thread puts at a
                // time; and the lane itself. Nothing is written.
                let begin = &body[..wait];
                let (fetch, expected): (&[&str], usize) = match name {
                    name if name.contains("run_steps") || name.contains("run_fold") => {
                        (&["v4.u32"], 1)
                    }
                    name if name.contains("Scattered") => (&["u32"], 8),
                    // Units of 16 bytes, and one unit.
                    name if name.contains("GatheredI3V16") => (&["u32"], 4 + 1),
                    name if name.contains("Gathered") => (&["v4.u32", "u64", "u32"], 2 + 1),
                    _ => (&[], 0),
                };
                let fetches = |line: &&&str| {
                    let rest = line.strip_prefix("ld.global.L1::no_allocate.");
                    rest.is_some_and(|rest| fetch.iter().any(|fetch| rest.starts_with(fetch)))
                };
                let steps: Vec<_> = begin.iter().filter(fetches).collect();
                assert_eq!(steps.len(), expected, "{name}");
                let writes =
                    |line: &&&str| ["st.", "red.", "atom."].iter().any(|w| line.starts_with(w));
                let mut writes = begin.iter().filter(writes);
                assert!(writes.all(|line| !line.contains(".global")), "{name}");
                // The barrier before it is for the state that threads of the team share.
                let others = |line: &str| {
                    let primitive = items.contains(&Item::Primitive(line.to_owned()));
                    let begins = waits(line) || is_barrier(line) || steps.contains(&&line);
                    (primitive && !begins) || line.starts_with("_Z") && !own(line)
                };
                // A reduction begins with a look at the stream's state, and two calls.
                let least = match name.contains("tidegate_reduce") {
                    true => 3,
                    false => 6,
                };
                let found = always(text, name, waits, |_| false, others);
                assert!(found >= least, "{name}: {found}");
            } else {
                let passes = usize::from(name.contains("wait_late"));
                let entry = name.contains("tidegate_batch");
                assert_eq!(waits_and_lets(items) != Some((0, passes)), entry, "{name}");
            }
        }
    }
}

/// A team lets the next launch begin, because it does not wait any more, behind the barrier of its wait, on all paths.
/// Some have no barrier: a post and a reduction, which wait for nothing; a lane that only waits, which [`waits`](super::waits)
/// follows; and a wait for a landing that finds the promise in the word.
#[test]
fn who_passes_does_so_behind_the_barrier_of_its_wait() {
    for (text, _) in TEXTS.into_iter().filter(|(_, new)| *new) {
        let (mut behind, mut elsewhere) = (0, 0);
        for (name, _) in functions(text)
            .iter()
            .filter(|(name, _)| !is_of_stamps(name))
        {
            let lines = body(text, name);
            let lets = |line: &str| line.starts_with("griddepcontrol.launch_dependents");
            // Right behind the wait for the work in front is another case: there the launch was asked to let the next one
            // begin.
            let asked: Vec<_> = (lines.iter().enumerate())
                .filter(|(_, line)| line.starts_with("griddepcontrol.wait"))
                .filter_map(|(at, _)| {
                    Some(at + 1 + lines[at..].iter().skip(1).position(|l| lets(l))?)
                })
                .collect();
            let begins = |line: &str| line.starts_with("griddepcontrol.wait");
            let mut found = std::collections::BTreeMap::new();
            flow::follow(text, name, is_barrier, begins, |at, line, has| {
                if lets(line) && !asked.contains(&at) {
                    *found.entry(at).or_insert(true) &= has;
                }
            });
            behind += found.values().filter(|has| **has).count();
            elsewhere += found.values().filter(|has| !**has).count();
        }
        // For two kinds of teams each: short forms; copies behind their wait; landings, on either side; lists, gathered
        // and scattered, of three units; counted lanes, of two; and late waits. For warps alone: checks of a kernel. In one
        // function for both: folds. Posts and reductions are in both kernels, or in one.
        assert_eq!(
            (behind, elsewhere),
            (2 + 2 + 4 + 12 + 4 + 2 + 1 + 1, 3 + 1 + 2 + 1)
        );
    }
}

/// How many waits for the work in front there are, if the next launch may begin right behind each; and how often it may
/// begin elsewhere, because a team does not wait any more.
fn waits_and_lets(items: &[Item]) -> Option<(usize, usize)> {
    let is = |at: usize, what: &str| items.get(at).is_some_and(|item: &Item| item.is(what));
    let all = (0..items.len()).filter(|at| is(*at, "griddepcontrol"));
    let (waits, lets): (Vec<_>, Vec<_>) = all.partition(|at| is(*at, "griddepcontrol.wait"));
    let let_come = |at: &usize| is(*at, "griddepcontrol.launch_dependents");
    let behind = waits.iter().all(|at| lets.contains(&(at + 1)));
    (behind && lets.iter().all(let_come)).then_some((waits.len(), lets.len() - waits.len()))
}
