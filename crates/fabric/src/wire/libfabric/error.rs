//! Why an endpoint cannot be opened.

use tidegate_ffi::fabric::{FabricError, LoadError};

/// Why an endpoint cannot be opened. Its `Debug` is its `Display`, so that a `main` that returns it shows a readable
/// error.
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
    /// libfabric has no provider of the requested name.
    #[error("{}: libfabric has no such provider here; {}", asked(*.by, .provider), list(.there))]
    UnknownProvider {
        /// The requested name.
        provider: String,
        /// The variable or option that named it, if that is known.
        by: Option<&'static str>,
        /// The providers that are there.
        there: Vec<String>,
    },
    /// No provider has what is needed, or not the one that was asked for.
    #[error(
        "{} at {address} has what is needed: {needs}; {}",
        none(*.by, .provider.as_deref()),
        list(.there)
    )]
    NoProvider {
        /// The requested provider.
        provider: Option<String>,
        /// The variable or option that named it, if that is known.
        by: Option<&'static str>,
        /// The address to which it should have been bound.
        address: String,
        /// The abilities that it must have.
        needs: &'static str,
        /// All providers that are there.
        there: Vec<String>,
    },
    /// No hardware can fire, and the triggered engine was requested, or the software engine cannot be opened either.
    #[error("no triggered engine: {tried}")]
    NotTriggered {
        /// The providers that were tried, and the error of each.
        tried: String,
    },
    /// A variable of the environment has a wrong value.
    #[error("{variable}={value:?}: {reason}")]
    BadVariable {
        /// The variable.
        variable: &'static str,
        /// Its value.
        value: String,
        /// The values that it may have.
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

/// The text that says what requested the provider.
fn asked(by: Option<&'static str>, provider: &str) -> String {
    match by {
        Some(by) => format!("{by}={provider}"),
        None => format!("provider `{provider}`"),
    }
}

/// The text that says which providers lack an ability.
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
