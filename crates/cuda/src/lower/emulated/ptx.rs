//! Memory order, which the emulation does not see.
//!
//! # Model
//!
//! In the terms of PTX's memory model, data that one rank's team puts is seen by another rank's team, and by the kernels behind it:
//!
//! 1. *put → barrier*: a thread's stores come before the team's barrier in program order; the barrier synchronises with the thread that adds.
//! 2. *barrier → add*: that thread's `red.release.sys` comes after the barrier in program order. Release is cumulative: it covers what the thread has observed, so the stores of
//!    all threads of its team. A lane of several blocks has such a chain for each block, and each adds a part of its own; all parts are one release sequence on the word.
//! 3. *add → wait*: the wait's `ld.acquire.sys` reads a value that all parts have gone into. A read-modify-write carries on the release sequence of those before it,
//!    so the load synchronises with each.
//! 4. *wait → barrier → fetch*: the loading thread's barrier comes after the load, and the team's fetches come after the barrier. Another kernel comes after the whole grid.
//!
//! No step is worth anything if what is fetched comes from a cache that was filled before: so there is no `ld.global.nc`, and nothing that moves stays in L1.
//!
//! What is early, the sources that are fetched before the wait's barrier, is the stream's own by the contract of `Move::early`. What several blocks count before they advance an
//! operand has no order of its own: the count takes the value that was read as an argument, so it cannot be carried out before the read has been.
//!
//! Where the bulk engine copies, it is another *proxy* that reads and writes. One thread asks it to, and is the one that adds:
//!
//! 5. *wait → barrier → fetch*, for the engine: a `fence.proxy.async` for all of memory stands before the first copy, between what threads have done and what the engine does;
//! 6. *put → add*: the thread waits until all that was sent has been written (not only read), and fences again, before it comes to the barrier.
//!
//! A launch that began early has nothing to do with what came before it until `griddepcontrol.wait`: before that it reads its program, which no kernel writes.
//!
//! These tests look for each link in the committed PTX, in the order of the text: the barriers and the accesses of the primitives are inline assembly, which the compiler
//! does not reorder.

/// What happens in a function that order matters to.
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

/// What the kernel is compiled to, and whether that has what GPUs from 9.0 on have.
const TEXTS: [(&str, bool); 2] = [
    (tidegate_kernels::BATCH_PTX, false),
    (tidegate_kernels::BATCH_SM_90_PTX, true),
];

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

/// The entries of a text.
fn entries(functions: &[(String, Vec<Item>)], new: bool) -> Vec<&(String, Vec<Item>)> {
    let entries = named(functions, "tidegate_batch");
    let names: Vec<_> = entries.iter().map(|(name, _)| name.as_str()).collect();
    let expected: &[&str] = match new {
        true => &["tidegate_batch", "tidegate_batch_bulk"],
        false => &["tidegate_batch"],
    };
    assert_eq!(names, expected);
    entries
}

/// A wait is an acquire at system scope, then a barrier, and only then is anything written.
#[test]
fn what_is_put_comes_after_the_barrier_of_the_wait() {
    for (text, new) in TEXTS {
        let functions = functions(text);
        let lanes = named(&functions, "wait_and_copy");
        assert_eq!(lanes.len(), if new { 6 } else { 4 });
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

/// A team's add is a release at system scope, right behind its barrier.
#[test]
fn a_team_adds_right_after_its_barrier() {
    for (text, new) in TEXTS {
        let functions = functions(text);
        for (name, items) in entries(&functions, new) {
            let adds: Vec<_> = (0..items.len())
                .filter(|at| items[*at].is("red.release.sys.global.add.u64"))
                .collect();
            assert_eq!(adds.len(), 2, "{name}: teams of blocks, and warps");
            for kind in ["bar.sync", "bar.warp.sync"] {
                let mut before = adds.iter().map(|at| &items[at - 1]);
                assert!(before.any(|item| item.is(kind)), "{name}: {kind}");
            }
        }
        // Nothing else adds.
        let adds = |(_, items): &&(String, Vec<Item>)| {
            items
                .iter()
                .any(|item| item.is("red.release.sys.global.add"))
        };
        let others = functions.iter().filter(adds).count();
        assert_eq!(others, if new { 2 } else { 1 });
    }
}

/// Words are accessed with the orders of the protocol, and by nothing else; data never through the non-coherent path.
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
        "nanosleep.u32",
        "bar.sync 0",
        "bar.warp.sync 0xffffffff",
        "ld.global.L1::no_allocate.",
        "st.global.",
    ];
    // Arithmetic on data: at system scope, and without an order of its own.
    let arithmetic = [
        "atom.relaxed.sys.global.cas.",
        "red.relaxed.sys.global.add.",
    ];
    for (text, new) in TEXTS {
        for (name, items) in functions(text) {
            let more: &[&str] = match name.as_str() {
                name if name.contains("compute") => &arithmetic,
                name if new && name.contains("tidegate_batch") => &["griddepcontrol."],
                // Of which a test of its own looks at every one.
                name if new && name.contains("bulk_copy") => &[""],
                _ => &[],
            };
            for item in &items {
                let known = allowed.iter().chain(more).any(|start| item.is(start));
                assert!(known || matches!(item, Item::Call(_)), "{name}: {item:?}");
            }
        }
        for path in ["ld.global.nc", "ldu.", "ld.const", "tex."] {
            assert!(!text.contains(path), "{path}");
        }
    }
}

/// Until what stands before is over, a block reads a piece of its program, and does nothing else; only then does it let the next come, and only then does any thread go on.
#[test]
fn a_launch_that_began_early_waits_first() {
    let (text, new) = TEXTS[1];
    let functions = functions(text);
    for (name, items) in entries(&functions, new) {
        let first = [
            "ld.global.L1::no_allocate.v4.u32",
            "griddepcontrol.wait;",
            "griddepcontrol.launch_dependents;",
            "bar.sync 0;",
        ];
        let begin = items.iter().zip(first).all(|(item, text)| item.is(text));
        assert!(begin, "{name}: {:?}", &items[..4]);
        let later = items[4..].iter().any(|item| item.is("griddepcontrol"));
        assert!(!later, "{name}");
    }
}

/// The bulk engine's copies are ordered with everything that threads do before and after.
#[test]
fn the_bulk_engine_is_fenced() {
    let (text, new) = TEXTS[1];
    let functions = functions(text);
    let calls = |caller: &str, callee: &str| {
        let (_, items) = named(&functions, caller)[0];
        let is = |item: &Item| matches!(item, Item::Call(name) if name.contains(callee));
        items.iter().any(is)
    };
    // One kernel alone uses it, and for teams of blocks.
    let [plain, bulk] = entries(&functions, new)[..] else {
        panic!("there are two kernels");
    };
    let calls_bulk = |item: &Item| matches!(item, Item::Call(name) if name.contains("BulkBlock"));
    assert!(!plain.1.iter().any(calls_bulk));
    assert!(bulk.1.iter().any(calls_bulk));
    assert!(calls("carryI9BulkBlock", "bulk_copy"));
    assert!(!calls("carryI5Block", "bulk_copy") && !calls("carryI4Warp", "bulk_copy"));
    // In the order of the text, which is the order of a turn of its loop.
    let (name, items) = named(&functions, "bulk_copy")[0];
    let mut kinds: Vec<&str> = Vec::new();
    for item in items {
        let Item::Primitive(text) = item else {
            panic!("{name}: {item:?}");
        };
        // Without operands.
        let kind = match text.strip_prefix("{ .reg .pred p; ") {
            Some(rest) => rest.split(' ').next(),
            None if text.starts_with("cp.async.bulk.wait_group") => Some(text.as_str()),
            None => text.split([' ', ';']).next(),
        };
        let kind = kind.unwrap_or("");
        if kinds.last() != Some(&kind) {
            kinds.push(kind);
        }
    }
    assert_eq!(
        kinds,
        [
            "mbarrier.init.shared::cta.b64",
            "fence.proxy.async",
            // A place that is used again has been read.
            "cp.async.bulk.wait_group.read 0;",
            "mbarrier.arrive.expect_tx.shared::cta.b64",
            "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes",
            // A piece that is sent has arrived.
            "mbarrier.try_wait.parity.shared::cta.b64",
            "cp.async.bulk.global.shared::cta.bulk_group",
            "cp.async.bulk.commit_group",
            "cp.async.bulk.wait_group 0;",
            "fence.proxy.async",
            "mbarrier.inval.shared::cta.b64",
        ]
    );
}

/// The count of who has read an operand takes what was read as an argument.
#[test]
fn a_count_depends_on_the_operand() {
    for (text, new) in TEXTS {
        // Of each function that waits: two teams for each kernel, and what is copied early in two units.
        let counts = if new { 10 } else { 6 };
        assert_eq!(counts_that_depend(text), counts);
    }
}

fn counts_that_depend(text: &str) -> usize {
    let lines: Vec<_> = text.lines().map(str::trim).collect();
    let mut counts = 0;
    for (at, line) in lines.iter().enumerate() {
        let Some(count) = line.strip_prefix("atom.relaxed.gpu.global.inc.u32") else {
            continue;
        };
        counts += 1;
        // What it counts to, and what that is made of, back to the load.
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
