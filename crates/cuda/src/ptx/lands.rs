//! Stores that someone looks for: bytes with tags, and registers of NICs.

use std::collections::BTreeMap;

use super::{Item, TEXTS, always, flow, functions, is_barrier, named};

/// Nothing is sent to a landing before the barrier of the wait. Landed data is read in whole words, a tag together with
/// its four bytes.
#[test]
fn what_lands_comes_after_the_barrier_of_the_wait() {
    let acquires = |line: &str| line.starts_with("ld.acquire") || line.contains("wait_long");
    let lands = |line: &str| line.starts_with("st.relaxed.sys.global.v2.u64");
    for (text, _) in TEXTS {
        let functions = functions(text);
        // Two kinds of teams have this function.
        let landing = named(&functions, "run_landing");
        assert_eq!(landing.len(), 2);
        for (name, items) in landing {
            let all = items
                .iter()
                .filter(|item| item.is("st.relaxed.sys.global.v2.u64"));
            // The bytes that were fetched before the wait, and the rest.
            let all = all.count();
            assert!(all >= 2, "{name}: {all}");
            assert_eq!(always(text, name, is_barrier, acquires, lands), all);
            // Landings have no fence and no release; this is their purpose.
            let orders = |item: &&Item| item.is("fence") || item.is("red.release");
            assert_eq!(items.iter().filter(orders).count(), 0, "{name}");
        }
        for part in ["run_landed", "landed_late"] {
            let both = named(&functions, part);
            assert_eq!(both.len(), 2);
            for (name, items) in both {
                let looks = items
                    .iter()
                    .filter(|item| item.is("ld.relaxed.sys.global.v2.u64"));
                assert_ne!(looks.count(), 0, "{name}");
            }
        }
    }
}

/// A fold puts nothing before the barrier behind its waits for exposures. If data has come by the word, it leaves tags in
/// the landings, later and elsewhere.
#[test]
fn what_a_fold_puts_comes_after_the_barrier_of_its_waits() {
    let acquires = |line: &str| line.starts_with("ld.acquire") || line.contains("wait_long");
    for (text, _) in TEXTS {
        let functions = functions(text);
        let [(name, items)] = named(&functions, "run_fold")[..] else {
            panic!("both kinds of teams have one function");
        };
        let mut puts = BTreeMap::new();
        flow::follow(text, name, is_barrier, acquires, |at, line, has| {
            if line.starts_with("st.relaxed.sys.global.v2.u64") {
                *puts.entry(at).or_insert(true) &= has;
            }
        });
        // A thread puts four pairs at a time.
        let behind = puts.values().filter(|has| **has).count();
        assert_eq!((behind, puts.len()), (4, 4), "{name}: {puts:?}");
        let orders = |item: &&Item| item.is("fence") || item.is("red.release");
        assert_eq!(items.iter().filter(orders).count(), 0, "{name}");
    }
}

/// The blocks of a fold count once all threads have read their operands. Only then are these stored to: by the last block,
/// or by the only one.
#[test]
fn a_fold_counts_behind_a_barrier_and_then_changes_operands() {
    let reads = |line: &str| line.starts_with("ld.relaxed.sys.global.u64");
    let counts = |line: &str| line.starts_with("atom.relaxed.gpu.global.inc.u32");
    let writes = |line: &str| line.starts_with("st.relaxed.sys.global.u64");
    for (text, _) in TEXTS {
        let functions = functions(text);
        let [(name, items)] = named(&functions, "run_fold")[..] else {
            panic!("both kinds of teams have one function");
        };
        assert_eq!(always(text, name, is_barrier, reads, counts), 1, "{name}");
        assert_eq!(always(text, name, is_barrier, counts, writes), 1, "{name}");
        assert_eq!(
            items.iter().filter(|it| it.is("red.relaxed")).count(),
            1,
            "{name}"
        );
    }
}

/// A register is stored to once, right behind a fence at system scope, which is behind the team's barrier.
#[test]
fn a_register_is_stored_to_right_behind_a_fence() {
    let fence = |line: &str| line == "fence.acq_rel.sys;";
    let stores = |line: &str| line.starts_with("st.mmio.relaxed.sys.global.u64");
    for (text, _) in TEXTS {
        let mut all = 0;
        for (name, items) in &functions(text) {
            let count = |start: &str| items.iter().filter(|item| item.is(start)).count();
            let expected = usize::from(name.contains("run_steps"));
            assert_eq!(count("st.mmio"), expected, "{name}");
            if expected == 0 {
                continue;
            }
            all += 1;
            // Nothing is done between the two, and nothing is written between the barrier and them.
            let others = |line: &str| {
                let primitive = items.contains(&Item::Primitive(line.to_owned()));
                primitive && !fence(line) && !stores(line) || line.starts_with("call")
            };
            assert_eq!(always(text, name, fence, others, stores), 1, "{name}");
            let writes = |line: &str| line.starts_with("st.global") || line.starts_with("call");
            assert_eq!(always(text, name, is_barrier, writes, fence), 1, "{name}");
        }
        // Steps, of each kind of team, in either kernel.
        assert_eq!(all, 4);
    }
}
