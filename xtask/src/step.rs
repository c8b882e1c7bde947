//! What a step is, and what several have in common.

use std::path::{Path, PathBuf};

use crate::command::Cmd;
use crate::need::Need;

/// One check.
pub(crate) struct Step {
    /// What `--only` calls it.
    pub(crate) name: &'static str,
    /// What it proves, in one line.
    pub(crate) what: &'static str,
    /// The smallest run that includes it.
    pub(crate) tier: Tier,
    /// What it cannot run without.
    pub(crate) needs: &'static [Need],
    /// What it runs, in order, up to the first that fails.
    /// There may be none, where nothing has changed.
    pub(crate) commands: fn(&Scope) -> Result<Vec<Cmd>, String>,
}

/// How much is run. A larger run includes all steps of the smaller ones, and a step may run more in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Tier {
    /// `--quick`: five minutes. What has changed, and whether anything works at all.
    Quick,
    /// What continuous integration runs: 25 minutes on two processors.
    Full,
    /// `--deep`: everything there is.
    Deep,
}

/// Where the steps run, and how much of them.
#[derive(Clone)]
pub(crate) struct Scope {
    /// What was asked for, and at least the tier of the step.
    pub(crate) tier: Tier,
    /// The repository's root.
    pub(crate) root: PathBuf,
    /// A folder that the steps may fill, and that no one else uses; removed at the end.
    pub(crate) scratch: PathBuf,
}

/// The packages of a release build. All its steps name them alike: another choice would unify the dependencies' features
/// in another way, and build them once more. What checks the sources is no part of the product.
pub(crate) const PRODUCT: &str = "--workspace --exclude xtask --exclude xtask-imports";

/// What all small runs of Faces have in common. Every rank has start values of its own, so that a message that goes to the wrong one is seen.
pub(crate) const FACES_ALL: &str = "--init global --counts 2,1,3 --rounds 1 --variants st,st-graph,st-strided,st-strided-graph,st-separate,rma,p2p";

pub(crate) const GIT: Need = Need::Apt {
    program: "git",
    package: "git",
};
/// With it comes the library.
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
