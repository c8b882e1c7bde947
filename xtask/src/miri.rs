//! The step `miri`. Miri interprets the tests, and so finds undefined behaviour that no machine shows. It is about a
//! hundred times slower than a processor. So only a deep run interprets all tests; other runs take a third of each
//! program's.

use crate::changed;
use crate::command::{Cmd, cmd};
use crate::need::{Need, Toolchain, nightly};
use crate::step::{GIT, Scope, Step, Tier};

const MIRI: Need = Need::Component {
    toolchain: Toolchain::Nightly,
    name: "miri",
};
/// Miri builds its own standard library from this.
const RUST_SRC: Need = Need::Component {
    toolchain: Toolchain::Nightly,
    name: "rust-src",
};
/// The row of the table.
pub(crate) const STEP: Step = Step {
    name: "miri",
    what: "no undefined behaviour, whichever token is forgotten, and whenever a NIC reads",
    tier: Tier::Full,
    needs: &[MIRI, RUST_SRC, GIT],
    commands,
};

/// A program of tests.
struct Program {
    /// The arguments by which cargo finds it.
    line: &'static str,
    /// The tests to run, by a part of their names.
    tests: &'static str,
    /// The tests leak on purpose.
    leaks: bool,
    /// The tests of two thirds, by parts of their names. The last third is all others.
    thirds: [&'static str; 2],
}

/// Miri uses one processor, so these run beside each other, with the longest first.
const PROGRAMS: &[Program] = &[
    Program {
        line: "-p tidegate-core --lib",
        tests: "nic:: part::tests::slices window::rest::",
        leaks: true,
        thirds: [
            "nic::tests::slots nic::tests::ends part::tests::slices window::rest::",
            "nic::tests::scarce nic::tests::refused nic::tests::registers nic::tests::staged",
        ],
    },
    Program {
        line: "-p tidegate-core --test forget",
        tests: "",
        leaks: true,
        thirds: [
            "an_access an_epoch an_outbox an_exchange worlds futures",
            "an_idle an_exposed an_inbox regions kernels streams",
        ],
    },
    Program {
        line: "-p tidegate-host --lib",
        tests: "",
        leaks: false,
        thirds: ["moves::", "tests::a_ tests::of_ tests::what_"],
    },
    Program {
        line: "-p tidegate-core --test memory",
        tests: "adopted:: elements::",
        leaks: false,
        thirds: ["adopted::", "elements::a elements::c elements::h"],
    },
    Program {
        line: "-p tidegate-loopback --test contract",
        tests: "",
        leaks: false,
        thirds: ["a_ring a_doorbell", "a_queue_that what_finds"],
    },
];

fn miri(line: &str) -> Cmd {
    let cargo = cmd("cargo").arg(format!("+{}", nightly()));
    cargo.arg("miri").args(line)
}

fn commands(scope: &Scope) -> Result<Vec<Cmd>, String> {
    let turn = match scope.tier {
        Tier::Deep => None,
        Tier::Quick | Tier::Full => Some(changed::turn(&scope.root, 3)?),
    };
    let test = |program: &Program| {
        // The tests need the time, and files. (Miri has a target folder of its own, `target/miri`.)
        let mut flags = "-Zmiri-disable-isolation".to_owned();
        if program.leaks {
            flags += " -Zmiri-ignore-leaks";
        }
        let test = miri("test")
            .args(program.line)
            .env("MIRIFLAGS", flags)
            .arg("--");
        match turn {
            None => test.args(program.tests),
            Some(0) => test.args(program.thirds[0]),
            Some(1) => test.args(program.thirds[1]),
            Some(_) => {
                let others = program.thirds.iter().flat_map(|third| third.split(' '));
                others.fold(test.args(program.tests), |test, name| {
                    test.arg("--skip").arg(name)
                })
            }
        }
    };
    // Its standard library is built first, alone.
    let mut all = vec![miri("setup")];
    for (at, program) in PROGRAMS.iter().enumerate() {
        let test = test(program);
        all.push(if at == 0 { test } else { test.beside() });
    }
    Ok(all)
}
