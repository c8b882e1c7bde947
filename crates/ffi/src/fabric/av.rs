//! Address vectors: peers, by number.

use std::ptr::null_mut;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::domain::Domain;
use super::error::{Result, errno_name};
use super::info::AddressFormat;
use super::object::{Owned, required};
use super::sys::{self, Zeroed};

/// A peer, by its number in an address vector (`fi_addr_t`). An endpoint accepts only peers of the vector that it is
/// bound to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Peer {
    pub(crate) number: sys::fi_addr_t,
    pub(crate) vector: u64,
}

impl Peer {}

/// An address that the provider refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BadAddress {
    /// Its index among the given addresses.
    pub index: usize,
    /// The provider's code; 0 if it gave none.
    pub code: i32,
    /// The reason.
    pub why: String,
}

/// The provider refused some addresses.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{} of {} addresses were refused, the first ({}) because: {}", .bad.len(), .peers.len(), .bad[0].index, .bad[0].why)]
pub struct InsertError {
    /// The accepted addresses, at their indices.
    pub peers: Vec<Option<Peer>>,
    /// The refused addresses; at least one.
    pub bad: Vec<BadAddress>,
}

/// The peers of endpoints (`fi_av(3)`).
pub struct AddressVector {
    raw: Owned<sys::fid_av>,
    /// No other vector of the process has it.
    pub(crate) id: u64,
    domain: Arc<Domain>,
}

static NEXT: AtomicU64 = AtomicU64::new(0);

/// Longer than any address, because providers get no length, and read as much as their format has.
const LONGEST: usize = 512;

impl AddressVector {
    /// Makes an empty vector (`fi_av_open`). `count` is the expected number of peers; there may be more.
    ///
    /// # Errors
    ///
    /// The errors of the provider.
    pub fn open(domain: &Arc<Domain>, count: usize) -> Result<Arc<AddressVector>> {
        const CALL: &str = "fi_av_open";
        // SAFETY: the table lives as long as the domain.
        let open = unsafe { required!(domain.ops(), fi_ops_domain, av_open, CALL) }?;
        let mut attr = sys::fi_av_attr::zeroed();
        attr.type_ = match domain.info().domain_attr().av_type {
            sys::FI_AV_UNSPEC => sys::FI_AV_TABLE,
            chosen => chosen,
        };
        attr.count = count;
        let mut raw = null_mut();
        // SAFETY: the domain is alive, and so are the attributes; one pointer is written into a live variable.
        let answer = unsafe { open(domain.as_raw(), &mut attr, &mut raw, null_mut()) };
        domain.library().check(CALL, answer.into())?;
        // SAFETY: the library made it for this caller.
        let raw = unsafe { Owned::new(domain.library(), CALL, raw) }?;
        Ok(Arc::new(AddressVector {
            raw,
            id: NEXT.fetch_add(1, Ordering::Relaxed),
            domain: Arc::clone(domain),
        }))
    }

    pub(crate) fn object(&self) -> &Owned<sys::fid_av> {
        &self.raw
    }

    /// Adds addresses from [`Endpoint::name`](super::Endpoint::name), and numbers them (`fi_av_insert`). If an address
    /// is added twice, both may get the same number.
    ///
    /// # Errors
    ///
    /// [`InsertError`] has the refused addresses and the accepted ones.
    pub fn insert<A: AsRef<[u8]>>(&self, addresses: &[A]) -> Result<Vec<Peer>, InsertError> {
        let mut peers = Vec::with_capacity(addresses.len());
        let mut bad = Vec::new();
        for (index, address) in addresses.iter().enumerate() {
            match self.insert_one(address.as_ref()) {
                Ok(peer) => peers.push(Some(peer)),
                Err((code, why)) => {
                    peers.push(None);
                    bad.push(BadAddress { index, code, why });
                }
            }
        }
        if bad.is_empty() {
            Ok(peers.into_iter().flatten().collect())
        } else {
            Err(InsertError { peers, bad })
        }
    }

    fn insert_one(&self, address: &[u8]) -> Result<Peer, (i32, String)> {
        check(self.domain.info().address_format(), address).map_err(|why| (0, why))?;
        const CALL: &str = "fi_av_insert";
        let object = self.raw.as_ptr();
        // SAFETY: the object is alive, and its table lives as long.
        let insert = unsafe { required!((*object).ops, fi_ops_av, insert, CALL) }
            .map_err(|error| (error.code, error.to_string()))?;
        // Aligned for any address, and zero behind it.
        let mut buffer = [0u64; LONGEST / 8];
        for (word, bytes) in buffer.iter_mut().zip(address.chunks(8)) {
            let mut whole = [0; 8];
            whole[..bytes.len()].copy_from_slice(bytes);
            *word = u64::from_ne_bytes(whole);
        }
        let mut peer = sys::FI_ADDR_NOTAVAIL;
        // SAFETY: the vector is alive; the address is followed by zeros up to more than any format has; one number is
        // written into a live variable. No event queue is bound, so the call is over when it returns.
        let answer = unsafe { insert(object, buffer.as_ptr().cast(), 1, &mut peer, 0, null_mut()) };
        match answer {
            1 if peer != sys::FI_ADDR_NOTAVAIL => Ok(Peer {
                number: peer,
                vector: self.id,
            }),
            code if code < 0 => Err((
                -code,
                format!(
                    "{} ({})",
                    errno_name(-code),
                    self.domain.library().describe(-code)
                ),
            )),
            _ => Err((0, "the provider refused it, and gave no reason".to_owned())),
        }
    }

    /// The domain.
    pub fn domain(&self) -> &Arc<Domain> {
        &self.domain
    }
}

const AF_INET: u16 = 2;
const AF_INET6: u16 = 10;

/// Whether an address can be of this format. Providers would read past the end of one that is too short, or whose
/// family stands for a longer one.
fn check(format: AddressFormat, address: &[u8]) -> Result<(), String> {
    if address.is_empty() || address.len() >= LONGEST {
        return Err(format!("{} bytes are no address", address.len()));
    }
    let socket = |families: &[(u16, usize)]| {
        let family = match address {
            [low, high, ..] => u16::from_ne_bytes([*low, *high]),
            _ => return Err("it is too short for a socket address".to_owned()),
        };
        match families.iter().find(|(known, _)| *known == family) {
            Some((_, length)) if address.len() >= *length => Ok(()),
            Some((_, length)) => Err(format!(
                "{} bytes, where {length} are needed",
                address.len()
            )),
            None => Err(format!("the address family {family}")),
        }
    };
    match format {
        AddressFormat::SOCKADDR_IN => socket(&[(AF_INET, 16)]),
        AddressFormat::SOCKADDR_IN6 => socket(&[(AF_INET6, 28)]),
        AddressFormat::SOCKADDR => socket(&[(AF_INET, 16), (AF_INET6, 28)]),
        AddressFormat::STR if !address.contains(&0) => Err("a string that does not end".to_owned()),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_as_long_as_its_format_needs() {
        let mut v4 = vec![0u8; 16];
        v4[0] = 2;
        assert_eq!(check(AddressFormat::SOCKADDR_IN, &v4), Ok(()));
        assert!(check(AddressFormat::SOCKADDR_IN, &v4[..15]).is_err());
        assert!(check(AddressFormat::SOCKADDR_IN6, &v4).is_err());
        v4[0] = 10;
        assert!(check(AddressFormat::SOCKADDR, &v4).is_err());
        assert!(check(AddressFormat::SOCKADDR_IN, &[2]).is_err());
        assert!(check(AddressFormat::STR, b"fi_shm://1").is_err());
        assert_eq!(check(AddressFormat::STR, b"fi_shm://1\0"), Ok(()));
        assert!(check(AddressFormat::CXI, &[]).is_err());
        assert!(check(AddressFormat::CXI, &[1; LONGEST]).is_err());
    }
}
