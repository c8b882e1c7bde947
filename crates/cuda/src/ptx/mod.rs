//! Memory order in the PTX, which the emulation does not see.
//!
//! # Model
//!
//! One rank's team puts data, and another rank's team sees it, as do the kernels behind that team. In the terms of
//! PTX's memory model this has four links:
//!
//! 1. *put → barrier*: a thread's stores come before the team's barrier in program order. The barrier synchronises with
//!    the thread that adds.
//! 2. *barrier → add*: that thread's `red.release.sys` comes after the barrier in program order. Release is cumulative:
//!    it covers everything that the thread has observed, and so the stores of all threads of its team. A lane of
//!    several blocks has such a chain for each block, and each block adds a part. All parts are one release sequence on
//!    the word.
//! 3. *add → wait*: the wait's `ld.acquire.sys` reads a value that includes all parts. A read-modify-write continues
//!    the release sequence of those before it, so the load synchronises with each of them.
//! 4. *wait → barrier → fetch*: the loading thread's barrier comes after the load, and the team's fetches come after
//!    the barrier. Another kernel comes after the whole grid.
//!
//! None of this helps if a fetch is served by a cache that was filled before. So there is no `ld.global.nc`, and no
//! move keeps data in L1.
//!
//! Sources that are fetched early, before the wait's barrier, are the stream's own by the contract of `Move::early`.
//! The count by which several blocks find out that all have read an operand has no order of its own. It takes the value
//! that was read as an argument, so it cannot come before the read.
//!
//! A team's promise, which is most of its part, is a `red.relaxed.sys`, and announces no data. As a read-modify-write
//! it continues the release sequence. So link 3 holds even if promises come between the releases of several blocks.
//!
//! A launch that began early touches nothing of the work in front of it before `griddepcontrol.wait`. Before that it
//! reads only its program, which no kernel writes.
//!
//! A post is a lane that only adds. It makes a release in two steps: `fence.acq_rel.sys`, then `red.relaxed.sys`. One
//! thread does both, and nothing is written in between. The work in front of the batch has happened before its
//! `griddepcontrol.wait`, and so before the fence.
//!
//! A word of the host is not added to. It is counted in this GPU's memory by `atom.acq_rel.gpu`, and then stored by
//! `st.release.sys`. Each of several blocks counts behind its barrier, and acquires what was counted before. So the
//! store of the last block comes after the puts of all blocks, and releases them. (A lane that rings in parts has one
//! block, so each of its stores comes after the puts so far.)
//!
//! A register of a NIC is stored to by `st.mmio.relaxed.sys`. It is made exactly once, and the model says nothing else
//! about it, because the NIC reads memory without being a thread. The order comes from the `fence.acq_rel.sys` right
//! before it. The thread that has rung makes this fence; if one thread carries out the lane alone, it does so behind
//! its team's barrier. The fence covers all that the thread has done and seen: the count of the doorbell, which carries
//! the puts of the other blocks, and the doorbell itself.
//!
//! A lane that only waits is one thread, and has no barrier: its word is needed by other kernels, which come after the
//! whole grid. [`waits`] checks that this thread does what the source says, in that order, by carrying out the
//! instructions one by one.
//!
//! These tests look for each link in the committed PTX. The barriers and the accesses of the primitives are inline
//! assembly, which the compiler does not reorder, but may place anywhere. So if a function has several paths, the tests
//! follow all of them.

mod early;
#[path = "../../../../kernels/flow.rs"]
mod flow;
mod lands;
#[path = "../../../../tests/common/random.rs"]
mod random;
mod thread;
mod waits;

use flow::always;

/// An item of a function that matters for memory order.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Item {
    /// An instruction of a primitive.
    Primitive(String),
    Call(String),
}

impl Item {
    fn is(&self, start: &str) -> bool {
        matches!(self, Item::Primitive(text) if text.starts_with(start))
    }

    fn is_barrier(&self) -> bool {
        self.is("bar.")
    }
}

/// The texts that the kernel is compiled to, and whether a text is for GPUs from 9.0 on. Those of the stamped kernel come
/// last.
const TEXTS: [(&str, bool); 4] = [
    (tidegate_kernels::BATCH_PTX, false),
    (tidegate_kernels::BATCH_SM_90_PTX, true),
    (tidegate_kernels::STAMPED_PTX, false),
    (tidegate_kernels::STAMPED_SM_90_PTX, true),
];

/// Whether a function is one of `kernels/stamped.cu` for stamps or clocks. What it counts and stores orders nothing else.
fn is_of_stamps(name: &str) -> bool {
    ["end_leg", "tidegate_clock"]
        .iter()
        .any(|own| name.contains(own))
}

/// The comment in the PTX that tells a promise from an add behind a fence.
const PROMISES: &str = "// promises";

/// Functions with bodies, by name.
fn functions(text: &str) -> Vec<(String, Vec<Item>)> {
    let mut functions: Vec<(String, Vec<Item>)> = Vec::new();
    let (mut name, mut inside, mut assembly, mut call) = (String::new(), false, false, false);
    for line in text.lines() {
        let text = line.trim();
        if !inside {
            if line.contains(".func") || line.contains(".entry") {
                let rest = text.rsplit([' ', ')']).find(|part| !part.is_empty());
                name = rest.unwrap_or("").trim_end_matches('(').to_owned();
            }
            if line == "{" {
                inside = true;
                functions.push((std::mem::take(&mut name), Vec::new()));
            }
            continue;
        }
        let items = &mut functions.last_mut().expect("one was pushed").1;
        match text {
            "// begin inline asm" => assembly = true,
            "// end inline asm" => assembly = false,
            _ if line == "}" => inside = false,
            _ if assembly => items.push(Item::Primitive(text.to_owned())),
            _ if text.starts_with("call") => call = true,
            _ => {}
        }
        if call && let Some(at) = text.find("_Z") {
            let callee = text[at..].split([',', ';']).next().unwrap_or("").trim();
            items.push(Item::Call(callee.to_owned()));
            call = false;
        }
    }
    functions
}

fn named<'a>(functions: &'a [(String, Vec<Item>)], part: &str) -> Vec<&'a (String, Vec<Item>)> {
    let found: Vec<_> = functions
        .iter()
        .filter(|(name, _)| name.contains(part))
        .collect();
    assert!(!found.is_empty(), "there is a function {part}");
    found
}

/// The one entry of a text.
fn entry(functions: &[(String, Vec<Item>)]) -> &(String, Vec<Item>) {
    let [entry] = named(functions, "tidegate_batch")[..] else {
        panic!("a text has one kernel");
    };
    assert!(["tidegate_batch", "tidegate_batch_stamped"].contains(&&entry.0[..]));
    entry
}

fn is_barrier(line: &str) -> bool {
    line.starts_with("bar.sync") || line.starts_with("bar.warp.sync")
}

/// Everything is written after the barrier of the wait, in short forms too.
#[test]
fn lanes_in_short_put_after_the_barrier_of_the_wait() {
    let acquires = |line: &str| line.starts_with("ld.acquire") || line.contains("wait_long");
    let puts = |line: &str| line.starts_with("st.global");
    let is_put = |item: &Item| item.is("st.global");
    for (text, _) in TEXTS {
        let functions = functions(text);
        // For two kinds of teams: lists, gathers and scatters, of three kinds of units, and counted lanes, of two, at
        // once and late.
        let late = named(&functions, "run_late");
        let listed = named(&functions, "run_listed");
        assert_eq!((late.len(), listed.len()), (2, 24 + 8));
        // A late wait returns behind a barrier.
        let waits = named(&functions, "wait_late");
        assert_eq!(waits.len(), 2);
        for (name, _) in waits {
            let returns = |line: &str| line.starts_with("ret");
            assert!(
                always(text, name, is_barrier, acquires, returns) > 0,
                "{name}"
            );
        }
        let is_behind = |line: &str| is_barrier(line) || line.contains("wait_late");
        let short = late.into_iter().chain(listed);
        for (name, items) in std::iter::once(entry(&functions)).chain(short) {
            // (Only primitives count: the kernel's plain stores are faults.)
            let stores = items.iter().filter(|item| is_put(item)).count();
            let found = always(text, name, is_behind, acquires, |line| {
                puts(line) && items.contains(&Item::Primitive(line.to_owned()))
            });
            assert!(found > 0 && found == stores, "{name}: {found}");
            let acquires = items.iter().filter(|item| item.is("ld.acquire")).count();
            // For two kinds of teams, and for lanes that only wait: the first wait, and those that follow.
            let expected = match name {
                name if name.contains("_late") => 0,
                name if name.contains("run_listed") => 2,
                _ => 6,
            };
            assert_eq!(acquires, expected, "{name}");
        }
    }
}

/// A team that promises has finished its waits, and promises once. Behind the promise nothing is acquired, and no
/// function that waits is called. Every short form with an add promises, at once and late.
#[test]
fn who_promises_waits_no_more() {
    let promises = |line: &str| line.ends_with(PROMISES);
    let waits = |line: &str| {
        let calls = ["wait_l", "wait_f", "wait_t", "wait_a", "landed"];
        let calls = line.starts_with("_Z") && calls.iter().any(|name| line.contains(name));
        calls || line.starts_with("ld.acquire") || line.starts_with("griddep")
    };
    for (text, _) in TEXTS {
        let mut all = 0;
        for (name, items) in &functions(text) {
            let expected = items.iter().filter(|item| match item {
                Item::Primitive(line) => promises(line),
                Item::Call(_) => false,
            });
            let expected = expected.count();
            if expected == 0 {
                continue;
            }
            all += expected;
            // When it returns, a team may let the next launch begin.
            let mut found = 0;
            flow::follow(
                text,
                name,
                promises,
                |_| false,
                |at, line, has| {
                    let lets = line.starts_with("griddepcontrol.launch_dependents");
                    let more = waits(line) && !lets || promises(line);
                    assert!(!(has && more), "{name}: {line} ({at})");
                    found += usize::from(promises(line) && !has);
                },
            );
            assert_eq!(found, expected, "{name}");
        }
        // As in `a_team_adds_right_after_its_barrier`, without the lanes in steps.
        assert_eq!(all, 2 + 2 + 2 + 24 + 8);
    }
}

/// A post's fence is before its add on every path, and nothing is written in between.
#[test]
fn a_post_adds_after_its_fence() {
    let fence = |line: &str| line == "fence.acq_rel.sys;";
    let add = |line: &str| {
        line.starts_with("red.relaxed.sys.global.add.u64") && !line.ends_with(PROMISES)
    };
    for (text, _) in TEXTS {
        let functions = functions(text);
        let (name, items) = entry(&functions);
        let fences = items.iter().filter(|item| item.is("fence.acq_rel.sys"));
        assert_eq!(fences.count(), 1, "{name}");
        // (Only primitives count: after a fault that is recorded in between, there is no add.)
        let writes = |line: &str| {
            let primitive = items.contains(&Item::Primitive(line.to_owned()));
            primitive && (line.starts_with("st.global") || line.starts_with("griddepcontrol.wait"))
        };
        assert_eq!(always(text, name, fence, writes, add), 1, "{name}");
    }
}

/// A wait is an acquire at system scope, and then a barrier. Only after that is anything written.
#[test]
fn what_is_put_comes_after_the_barrier_of_the_wait() {
    for (text, _) in TEXTS {
        let functions = functions(text);
        let lanes = named(&functions, "wait_and_copy");
        assert_eq!(lanes.len(), 4);
        for (name, items) in lanes {
            let barrier = items.iter().position(Item::is_barrier);
            let barrier = barrier.unwrap_or_else(|| panic!("{name} has a barrier"));
            let kind = if name.contains("Warp") {
                "bar.warp.sync"
            } else {
                "bar.sync"
            };
            assert!(items[barrier].is(kind), "{name}: {:?}", items[barrier]);
            let (before, after) = items.split_at(barrier);
            assert!(
                before
                    .iter()
                    .any(|item| item.is("ld.acquire.sys.global.u64"))
            );
            assert!(!before.iter().any(|item| item.is("st.global")), "{name}");
            assert!(after.iter().any(|item| item.is("st.global")), "{name}");
            assert!(!after.iter().any(|item| item.is("ld.acquire")), "{name}");
        }
    }
}

/// A team's add is a release at system scope, behind its barrier on every path, and nothing is written in between. So
/// is its count for a word of the host, for which the scope of this GPU is enough.
#[test]
fn a_team_adds_right_after_its_barrier() {
    let writes = |line: &str| line.starts_with("st.global") || line.starts_with("call");
    for (text, _) in TEXTS {
        let (mut adds, mut counts) = (0, 0);
        for (name, items) in functions(text)
            .iter()
            .filter(|(name, _)| !is_of_stamps(name))
        {
            let count = |start: &str| items.iter().filter(|item| item.is(start)).count();
            // A barrier orders the functions of its kind of team; a kernel has both kinds.
            let barriers = |line: &str| match name.as_str() {
                name if name.contains("tidegate_batch") => is_barrier(line),
                name if name.contains("Warp") => line.starts_with("bar.warp.sync"),
                _ => line.starts_with("bar.sync"),
            };
            let steps = name.contains("run_steps");
            let expected = match name.as_str() {
                name if name.contains("tidegate_batch") => [2, 0],
                // A landing has no add.
                name if name.contains("run_land") || name.contains("run_fold") => [0, 0],
                // The kernel before has added.
                name if name.contains("run_checks") => [0, 0],
                // No stream waits for a reduction.
                name if name.contains("tidegate_reduce") => [0, 0],
                name if name.contains("run_") => [1, usize::from(steps)],
                _ => [0, 0],
            };
            let kinds = ["red.release.sys.global.add", "atom.acq_rel.gpu.global.add"];
            assert_eq!(kinds.map(count), expected, "{name}");
            for (kind, expected) in kinds.into_iter().zip(expected) {
                let add = |line: &str| line.starts_with(kind);
                let found = if expected == 0 {
                    0
                } else {
                    always(text, name, barriers, writes, add)
                };
                assert_eq!(found, expected, "{name}: {kind}");
            }
            adds += expected[0];
            counts += expected[1];
        }
        // In short, of each kind of team; late; behind the wait; of listed units, gathered and scattered, of three
        // sizes, and of counted units, of two, at once and late; and in steps, of either kernel.
        let units = 24 + 8;
        assert_eq!((adds, counts), (2 + 2 + 2 + units + 4, 4));
    }
}

/// A value that is stored to a word of the host has been counted, or poisoned, on every path to the store.
#[test]
fn what_is_stored_for_the_host_was_counted() {
    let counts = |line: &str| line.starts_with("atom.acq_rel.gpu.global.");
    let stores = |line: &str| line.starts_with("st.release.sys.global.u64");
    for (text, _) in TEXTS {
        let mut all = 0;
        for (name, items) in functions(text)
            .iter()
            .filter(|(name, _)| !is_of_stamps(name))
        {
            let expected = items
                .iter()
                .filter(|item| item.is("st.release.sys.global.u64"));
            let expected = expected.count();
            if expected > 0 {
                assert!(
                    name.contains("run_steps") || name.contains("give_up"),
                    "{name}"
                );
                assert_eq!(always(text, name, counts, is_barrier, stores), expected);
            }
            all += expected;
        }
        // For each kind of team, in either kernel: a count, poison from the first step on, behind a wait, and behind a
        // check of a number; and a short form that gives up.
        assert_eq!(all, 4 * 4 + 1);
    }
}

/// Sums are the host's, to the bit. Instructions with `.ftz` treat subnormal numbers as 0, and so does an atomic
/// addition of 32-bit floats to global memory, in every form.
#[test]
fn subnormal_numbers_are_kept() {
    for (text, _) in TEXTS {
        let flushes = |line: &&str| {
            let atomic = ["red.", "atom."].iter().any(|start| line.contains(start));
            line.contains(".ftz") || atomic && line.contains(".add") && line.contains("f32")
        };
        assert_eq!(text.lines().find(flushes), None);
        assert!(text.contains("\tadd.f32 \t"), "sums of them are made");
    }
}

fn is_time(item: &Item) -> bool {
    matches!(item, Item::Primitive(line) if line.ends_with(", %globaltimer;"))
}

/// Words are accessed only with the orders of the protocol, and data never through the non-coherent path.
#[test]
fn primitives_have_their_orders() {
    let allowed = [
        "ld.acquire.sys.global.u64",
        "ld.relaxed.sys.global.u64",
        "ld.relaxed.sys.global.u32",
        "st.relaxed.sys.global.u64",
        "st.release.sys.global.u32",
        "red.release.sys.global.add.u64",
        "red.release.sys.global.or.b64",
        "atom.acq_rel.sys.global.or.b32",
        "atom.relaxed.gpu.global.inc.u32",
        "atom.relaxed.cta.shared::cta.add.u32",
        "nanosleep.u32",
        "bar.sync 0",
        "bar.warp.sync 0xffffffff",
        "ld.global.L1::no_allocate.",
        "st.global.",
        // Arithmetic on halves, in registers.
        "cvt.f32.f16",
        "cvt.rn.f16.f32",
        "cvt.rn.bf16.f32",
        "add.rn.f16x2",
        "fma.rn.bf16x2",
    ];
    // Arithmetic on data is at system scope, and without an order of its own.
    // (`red.add.f32` is not part of it: see `subnormal_numbers_are_kept`.)
    let arithmetic = [
        "atom.relaxed.sys.global.cas.",
        "red.relaxed.sys.global.add.u",
        "red.relaxed.sys.global.add.f64",
    ];
    let counts = ["atom.acq_rel.gpu.global.", "st.release.sys.global.u64"];
    let steps = [
        "griddepcontrol.",
        counts[0],
        counts[1],
        "fence.acq_rel.sys;",
        "st.mmio.relaxed.sys.global.u64",
    ];
    let posts = ["fence.acq_rel.sys;", "red.relaxed.sys.global.add.u64"];
    const LANDS: &str = "st.relaxed.sys.global.v2.u64";
    let stamps = [
        counts[0],
        counts[1],
        LANDS,
        "atom.relaxed.sys.global.cas.b64",
    ];
    for (text, new) in TEXTS {
        let stamped = text.contains("tidegate_batch_stamped");
        for (name, items) in functions(text) {
            let more: &[&str] = match name.as_str() {
                name if is_of_stamps(name) => &stamps,
                name if name.contains("compute") => &arithmetic,
                // Before 9.0 nothing is launched early, and there are no such instructions.
                name if name.contains("run_steps") && !new => &steps[1..],
                name if name.contains("run_steps") => &steps,
                // Behind a wait that took long.
                name if name.contains("wait_late") && new => &["griddepcontrol."],
                name if name.contains("run_listed_late") => &[],
                name if name.contains("run_listed") && new => &["griddepcontrol."],
                name if name.contains("run_behind") && new => &["griddepcontrol."],
                name if name.contains("run_checks") && new => &["griddepcontrol."],
                name if name.contains("tidegate_reduce") => match new {
                    true => &[posts[0], posts[1], "griddepcontrol."],
                    false => &posts,
                },
                name if name.contains("give_up") => &counts,
                name if name.contains("run_landing") => &[LANDS, "griddepcontrol."],
                name if name.contains("land") || name.contains("fold") => &[
                    LANDS,
                    "ld.relaxed.sys.global.v2.u64",
                    posts[1],
                    "griddepcontrol.",
                ],
                name if name.contains("tidegate_batch") => match new {
                    true => &[posts[0], posts[1], "griddepcontrol."],
                    false => &posts,
                },
                _ => &[],
            };
            let lane = name.contains("run_") || name.contains("tidegate_batch");
            let adds = lane && !["land", "fold", "steps"].iter().any(|it| name.contains(it));
            let promises =
                |item: &Item| matches!(item, Item::Primitive(line) if line.ends_with(PROMISES));
            for item in items.iter().filter(|item| !(adds && promises(item))) {
                let known = allowed.iter().chain(more).any(|start| item.is(start));
                let known = known || stamped && is_time(item);
                assert!(known || matches!(item, Item::Call(_)), "{name}: {item:?}");
            }
        }
        for path in ["ld.global.nc", "ldu.", "ld.const", "tex."] {
            assert!(!text.contains(path), "{path}");
        }
    }
}

/// The count of the blocks that have read an operand takes the read value as an argument. (That of a fold comes behind a
/// barrier: [`lands`].)
#[test]
fn a_count_depends_on_the_operand() {
    for (text, _) in TEXTS {
        // In short, of two teams; behind the wait; of listed units, gathered and scattered, of three sizes, and of
        // counted units, of two; in steps, of each team in either kernel; and the early copies there, in two units.
        let units = 12 + 4;
        assert_eq!(counts_that_depend(text), 2 + 2 + units + 4 + 4);
    }
}

fn counts_that_depend(text: &str) -> usize {
    let lines: Vec<_> = text.lines().map(str::trim).collect();
    let (mut counts, mut folds) = (0, false);
    for (at, line) in lines.iter().enumerate() {
        if line.starts_with(".func") || line.contains(".entry") {
            folds = line.contains("run_fold");
        }
        if folds {
            continue;
        }
        let Some(count) = line.strip_prefix("atom.relaxed.gpu.global.inc.u32") else {
            continue;
        };
        counts += 1;
        // The address that it counts at, and the registers that it is computed from, back to the load.
        let mut wanted: Vec<&str> = count
            .rsplit([',', ' '])
            .find(|part| part.starts_with('%'))
            .map(|part| part.trim_end_matches(';'))
            .into_iter()
            .collect();
        let found = lines[at.saturating_sub(80)..at].iter().rev().any(|line| {
            let mut words = line.split([' ', ',', '\t', '{', '}', ';', '[', ']']);
            let code = words.next().unwrap_or("");
            let operands: Vec<_> = words.filter(|word| word.starts_with('%')).collect();
            match operands.split_first() {
                Some((to, from)) if wanted.contains(to) => {
                    if code.starts_with("ld.relaxed.sys.global.u64") {
                        return true;
                    }
                    wanted.extend(from);
                    false
                }
                _ => false,
            }
        });
        assert!(found, "line {at}: {line}");
    }
    counts
}
