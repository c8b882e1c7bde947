//! Why an endpoint cannot be opened.

use tidegate_ffi::fabric::{FabricError, LoadError};

/// Why there is no endpoint. Its `Debug` is its `Display`, so that a `main` that returns it says what is wrong.
///
/// # Examples
///
/// ```
/// # mod tidegate { pub use tidegate_fabric as fabric; }
/// use tidegate::fabric::wire::libfabric::{Choice, FabricWire, OpenError};
///
/// match FabricWire::open(&Choice::at("127.0.0.1").provider("pigeon")) {
///     Err(OpenError::UnknownProvider { there, .. }) => println!("there are {there:?}"),
///     Err(error) => println!("{error}"),
///     Ok(_) => unreachable!("there is no such provider"),
/// }
/// ```
#[derive(thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// There is no usable library.
    #[error(transparent)]
    Load(#[from] LoadError),
    /// libfabric has no provider of the name that was asked for.
    #[error("{}: libfabric has no such provider here; {}", asked(*.by, .provider), list(.there))]
    UnknownProvider {
        /// What was asked for.
        provider: String,
        /// The variable or option that named it, where that is known.
        by: Option<&'static str>,
        /// Those that are there.
        there: Vec<String>,
    },
    /// No provider has what is needed, or not the one that was asked for.
    #[error(
        "{} at {address} has what is needed: {needs}; {}",
        none(*.by, .provider.as_deref()),
        list(.there)
    )]
    NoProvider {
        /// The one that was asked for.
        provider: Option<String>,
        /// The variable or option that named it, where that is known.
        by: Option<&'static str>,
        /// The address that it was to be bound to.
        address: String,
        /// What it must be able to do.
        needs: &'static str,
        /// Those that are there, whatever they can do.
        there: Vec<String>,
    },
    /// The triggered engine was asked for, and the provider cannot.
    #[error("no triggered engine: {tried}")]
    NotTriggered {
        /// Which providers were tried, and what each said.
        tried: String,
    },
    /// A variable of the environment says what it cannot.
    #[error("{variable}={value:?}: {reason}")]
    BadVariable {
        /// The variable.
        variable: &'static str,
        /// Its value.
        value: String,
        /// What it must be.
        reason: &'static str,
    },
    /// A call was refused.
    #[error(transparent)]
    Fabric(#[from] FabricError),
}

impl std::fmt::Debug for OpenError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        std::fmt::Display::fmt(self, f)
    }
}

/// Who asked for what.
fn asked(by: Option<&'static str>, provider: &str) -> String {
    match by {
        Some(by) => format!("{by}={provider}"),
        None => format!("provider `{provider}`"),
    }
}

/// Who has not what is needed.
fn none(by: Option<&'static str>, provider: Option<&str>) -> String {
    match provider {
        Some(name) => format!(
            "{}: nothing that this libfabric provider offers",
            asked(by, name)
        ),
        None => "no libfabric provider".into(),
    }
}

/// The providers that are there.
fn list(there: &[String]) -> String {
    match there {
        [] => "there are none".into(),
        _ => format!("there are: {}", there.join(", ")),
    }
}
