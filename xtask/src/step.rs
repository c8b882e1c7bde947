//! The type of a step, and common parts of several steps.

use std::path::{Path, PathBuf};

use crate::command::Cmd;
use crate::need::Need;

/// One check.
pub(crate) struct Step {
    /// Its name for `--only`.
    pub(crate) name: &'static str,
    /// A line that says what it checks.
    pub(crate) what: &'static str,
    /// The smallest run that includes it.
    pub(crate) tier: Tier,
    /// The things without which it cannot run.
    pub(crate) needs: &'static [Need],
    /// Its commands, in order. It stops at the first that fails. There may be none, if nothing has changed.
    pub(crate) commands: fn(&Scope) -> Result<Vec<Cmd>, String>,
}

/// How much is run. A larger run includes all steps of the smaller ones, and a step may do more in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Tier {
    /// `--quick`: five minutes, for the changed parts and a few basic checks.
    Quick,
    /// The run of continuous integration: 25 minutes on two processors.
    Full,
    /// `--deep`: everything.
    Deep,
}

/// Where the steps run, and how much of them.
#[derive(Clone)]
pub(crate) struct Scope {
    /// The requested tier, or the step's own if that is larger.
    pub(crate) tier: Tier,
    /// The repository's root.
    pub(crate) root: PathBuf,
    /// A folder for files of the steps, which nothing else uses. It is removed at the end.
    pub(crate) scratch: PathBuf,
}

/// The packages of a release build. All its steps name the same packages, because another choice would unify the
/// dependencies' features in another way, and build them again. Packages that check the sources are left out.
pub(crate) const PRODUCT: &str = "--workspace --exclude xtask --exclude xtask-imports";

/// Common options of all small runs of Faces. Every rank has start values of its own, so that a message to a wrong rank
/// is noticed.
pub(crate) const FACES_ALL: &str = "--init global --counts 2,1,3 --rounds 1 --variants st,st-graph,st-strided,st-strided-graph,st-separate,rma,p2p";

pub(crate) const GIT: Need = Need::Apt {
    program: "git",
    package: "git",
};
/// The library is in the same package.
pub(crate) const LIBFABRIC: Need = Need::Apt {
    program: "fi_info",
    package: "libfabric-bin",
};
pub(crate) const IPROUTE: Need = Need::Apt {
    program: "ip",
    package: "iproute2",
};

/// The repository's root: the folder above this package.
pub(crate) fn root() -> PathBuf {
    let package = Path::new(env!("CARGO_MANIFEST_DIR"));
    package
        .parent()
        .expect("this package lies in a folder of the repository")
        .to_owned()
}
