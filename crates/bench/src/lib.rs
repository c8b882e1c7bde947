//! The benchmarks of tidegate, and how their results are reported.
//!
//! # Model
//!
//! [`faces`] is the benchmark that the others are judged by: the nearest-neighbour exchange of a
//! spectral-element code. Everything in it that does not send messages stands on its own: its
//! [parameters](faces::params), the [layout](faces::layout) of a block and of its 26 messages, the
//! CPU [kernels](faces::kernels), the [verification](faces::verify) and the
//! [loops](faces::schedule) around the clock. A *variant* (how the messages travel) implements
//! [`faces::schedule::Exchange`] and gets all of that; [`faces::variants`] are those over this
//! library, and [`faces::driver`] runs them. [`exchange`] is the same without kernels, for any messages;
//! [`program`] is the program that runs either. All are written once, over a [`device`]: the host, or GPUs.
//!
//! Each rank produces one [`results::RankSample`] a run. Rank 0 collects them, makes [`results::Row`]s, and prints them
//! as a [terminal table](results::table), as [JSON](results::files) or as a self-contained [HTML page](report).
//! [`peers`] runs the same with other libraries, whose rows stand beside ours. [`mpi`] runs the same over MPI in the same
//! processes, [`osu`] has the put benchmarks of the MPI world, and [`collectives`] all collectives. [`throttling`]
//! compares the policies for few trigger slots. [`charts`] draws the results of a machine with GPUs, and [`nodes`]
//! makes the tables between nodes.
//!
//! # Failures
//!
//! Parameters are refused before anything runs ([`faces::params::ParamsError`]). A wrong result
//! never disappears: the sample of that rank carries the reason, the row says `FAILED`, and
//! [`results::exit_code`] is not zero.

pub mod charts;
pub mod cli;
pub mod collectives;
pub mod device;
pub mod exchange;
pub mod faces;
pub mod mpi;
pub mod nodes;
pub mod osu;
pub mod peers;
pub mod program;
pub mod progress;
mod ranks;
pub mod report;
pub mod results;
mod rounds;
mod svg;
mod table;
pub mod throttling;
pub mod transport;
