//! The protocol under the model checker: every interleaving, and every value that the memory model lets a load return.
//!
//! Run it by `RUSTFLAGS="--cfg loom" cargo test -p tidegate-words --release --test loom`, best with a target folder of
//! its own. `LOOM_MAX_PREEMPTIONS` overrides the bounds, and `TIDEGATE_LOOM_COUNT` prints (with `--nocapture`) how many
//! executions there were.
//!
//! Engine, bells and words are the real ones; so are the batches, laid out as windows lay them out. Data lies in cells
//! that know who has accessed them: an access that nothing orders after the last one is an error, whatever value it would
//! have seen. A wake-up that is lost is a deadlock, which is an error too.
//!
//! Each property has its mutants: the same model with one thing broken, which must be found, and by the error that is
//! meant. See `tidegate_words::sync::model` for those that break the protocol's own code; the others are batches that core
//! must not build.
//!
//! # Bounds
//!
//! Two or three threads (four where a rank dies beside two others), two or three epochs: one more than there are
//! buffers, so that each is used again. A thread is interrupted at most two or three times an execution where it could
//! go on, once where a model has many steps to die before; that it sleeps, ends, or reads an old value is not counted
//! and not bounded. All mutants are found within two interruptions. Nobody spins: that would only be more looks of the
//! same kind.
//!
//! # What this does not show
//!
//! - The data is moved element by element, and not by the host device's loops; nothing is said of what a GPU or a NIC
//!   does with the words.
//! - Loom lets no load return a value that is stored later (load buffering), which ARM allows for relaxed accesses. The one
//!   place where that matters is argued at [`tidegate_words::Bell::wait`].
//! - In loom a sequentially consistent fence also orders plain accesses after those before an earlier fence, which C++ does
//!   not promise. A missing release or acquire is therefore found only on the paths where no fence comes between: the first
//!   look of each wait comes before its fence, so there always is such a path.
//! - Loom takes sequentially consistent accesses for acquire and release ones. The words have none, only fences; the
//!   host's streams do, and they are modelled as accesses between two fences (see `tidegate_words::sync::model`).
#![cfg(loom)]

mod model;
