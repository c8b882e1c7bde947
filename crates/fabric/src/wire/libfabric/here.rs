//! What libfabric has on this machine, for people.

use tidegate_ffi::fabric::{Hints, Library, Location};

use super::error::OpenError;

/// What libfabric has on this machine.
///
/// # Examples
///
/// ```
/// # mod tidegate { pub use tidegate_fabric as fabric; }
/// match tidegate::fabric::wire::libfabric::here() {
///     Ok(here) => println!("libfabric {}.{}: {:?}", here.version.0, here.version.1, here.providers),
///     Err(error) => println!("{error}"), // there is no libfabric
/// }
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Here {
    /// The version of the library.
    pub version: (u32, u32),
    /// Its providers, in its order. Some are listed only if they are asked for by name.
    pub providers: Vec<String>,
}

/// Lists what there is. It opens nothing.
///
/// # Errors
///
/// [`OpenError`] if there is no library, or if it lists nothing.
pub fn here() -> Result<Here, OpenError> {
    let library = Library::load()?;
    let mut providers = Vec::new();
    for info in library.query(&Hints::new(), Location::ANY)? {
        let name = info.provider();
        if !providers.contains(&name) {
            providers.push(name);
        }
    }
    Ok(Here {
        version: library.version(),
        providers,
    })
}
