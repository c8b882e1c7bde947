//! Reports that ranks exchange when they meet.

use serde::Serialize;
use serde::de::DeserializeOwned;
use tidegate_hal::control::Control;

use super::error::JoinError;

/// Sends a report to all ranks, or why this rank has none, and receives theirs. Collective. So nobody waits for a rank
/// that has failed.
pub(super) fn tell<T: Serialize + DeserializeOwned>(
    control: &dyn Control,
    what: &str,
    mine: Result<T, JoinError>,
) -> Result<Vec<T>, JoinError> {
    let said = mine.as_ref().map_err(ToString::to_string);
    let bytes = postcard::to_stdvec(&said).expect("plain data can be encoded");
    let came = control.exchange(what, bytes);
    mine?;
    let mut all = Vec::new();
    for (rank, bytes) in came?.into_iter().enumerate() {
        let said: Result<Result<T, String>, _> = postcard::from_bytes(&bytes);
        let said = said.unwrap_or_else(|error| Err(error.to_string()));
        all.push(said.map_err(|reason| JoinError::Peer { rank, reason })?);
    }
    Ok(all)
}
