//! The protocol under the model checker: every interleaving, and every value that the memory model lets a load return.
//!
//! Run it by `RUSTFLAGS="--cfg loom" cargo test -p tidegate-words --release --test loom`, best with a target folder of
//! its own. `LOOM_MAX_PREEMPTIONS` overrides the bounds. With `TIDEGATE_LOOM_COUNT` and `--nocapture`, it prints how
//! many executions there were.
//!
//! Engine, bells and words are the real ones, and batches look like those of windows. Data lies in cells that know
//! their accesses: an access that nothing orders after the last one is an error, whatever value it would have seen. A
//! lost wake-up is a deadlock, which is an error, too.
//!
//! Each property has its mutants: the same model with one thing broken, in which the checker must find the intended
//! error. `tidegate_words::sync::model` has the mutants that break the protocol's own code. The others are batches that
//! core must not build.
//!
//! # Bounds
//!
//! A model has two or three threads (four if a rank dies beside two others), and two or three epochs. That is one epoch
//! more than there are buffers, so that each buffer is used again.
//!
//! A thread that could go on is interrupted at most two or three times in an execution (once, if a model has many steps
//! before which a rank may die). There is no bound on how often it sleeps, ends, or reads an old value. All mutants are
//! found within two interruptions. No thread spins, because spinning would only repeat the same looks.
//!
//! # What this does not show
//!
//! - The data is moved element by element, and not by the host device's loops. Nothing is checked of GPUs and NICs.
//! - In loom, no load returns a value that is stored later (load buffering), which ARM allows for relaxed accesses.
//!   [`tidegate_words::Bell::wait`] argues the one place where that matters.
//! - In loom, a sequentially consistent fence also orders plain accesses after it behind those before an earlier fence,
//!   which C++ does not promise. So a missing release or acquire is found only on paths without a fence in between.
//!   There always is such a path, because the first look of each wait comes before its fence.
//! - Loom makes sequentially consistent accesses acquire and release only. The words have no such accesses, only
//!   fences. The host's streams have them, and are modelled with a fence on both sides of each (see
//!   `tidegate_words::sync::model`).
#![cfg(loom)]

mod model;
