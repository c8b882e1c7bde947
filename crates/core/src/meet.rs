//! How the ranks meet: bells, and NICs.

use std::sync::Arc;

use tidegate_hal::control::{Control, Handle, Packet};
use tidegate_hal::device::Device;
use tidegate_hal::memory::{Block as _, Sharing};
use tidegate_hal::nic::{Connection, Keep, Key, Memory, Nic, Registration};
use tidegate_words::Bell;

use crate::error::{Error, Result};
use crate::nic::Attached;

/// What each rank says of itself when the ranks meet.
#[derive(serde::Serialize, serde::Deserialize)]
struct Hello {
    device: String,
    nic: Option<HelloNic>,
}

#[derive(serde::Serialize, serde::Deserialize)]
struct HelloNic {
    name: String,
    address: Vec<u8>,
    /// The key to the rank's bell, and whether a handle goes with it.
    bell: (Vec<u8>, bool),
}

/// What a rank has when it has met the others.
pub(crate) struct Met<D: Device> {
    pub(crate) own_bell: Arc<D::Block>,
    /// Every rank's bell, or `None` where it is on another node.
    pub(crate) bells: Vec<Option<D::Block>>,
    pub(crate) nic: Option<Attached<D>>,
}

/// Exchanges bells, and what NICs need of each other. Collective.
pub(crate) fn meet<D: Device>(
    control: &dyn Control,
    device: &D,
    nic: Option<Arc<dyn Nic>>,
) -> Result<Met<D>> {
    let bytes = size_of::<Bell>();
    let own = Arc::new(device.alloc(bytes, Sharing::Peers)?);
    let mut handles = vec![own.share()?];
    let mut registration = None;
    let hello = Hello {
        device: D::NAME.into(),
        nic: match &nic {
            None => None,
            Some(nic) => {
                let memory = Memory {
                    base: own.base(),
                    bytes,
                    share: &|| own.share(),
                    keep: own.clone(),
                };
                // SAFETY: the block is kept; it holds a bell, which anybody may ring.
                let Registration { key, guard } = unsafe { nic.register(memory) }?;
                registration = Some(guard);
                let bell = (key.bytes, key.handle.is_some());
                handles.extend(key.handle);
                Some(HelloNic {
                    name: nic.name().into(),
                    address: nic.address(),
                    bell,
                })
            }
        },
    };
    let packet = Packet {
        bytes: postcard::to_stdvec(&hello).expect("plain data can be encoded"),
        handles,
    };
    let (mut bells, mut theirs) = (Vec::new(), Vec::new());
    for (rank, packet) in control.exchange("world", packet)?.into_iter().enumerate() {
        let said: Hello = postcard::from_bytes(&packet.bytes)
            .map_err(|e| Error::Invalid(format!("what rank {rank} said: {e}")))?;
        if said.device != D::NAME {
            let what = format!(
                "rank {rank} uses the device `{}`, this rank `{}`",
                said.device,
                D::NAME
            );
            return Err(Error::Invalid(what));
        }
        let mut handles = packet.handles.into_iter();
        let bell = handles
            .next()
            .map(|handle: Handle| device.map(handle, bytes));
        bells.push(bell.transpose()?);
        theirs.push((said.nic, handles.next()));
    }
    let nic = match (nic, registration) {
        (Some(nic), Some(guard)) => Some(attach(device, nic, guard, theirs)?),
        _ => None,
    };
    Ok(Met {
        own_bell: own,
        bells,
        nic,
    })
}

/// Connects the NIC with those of the other ranks.
fn attach<D: Device>(
    device: &D,
    nic: Arc<dyn Nic>,
    guard: Keep,
    theirs: Vec<(Option<HelloNic>, Option<Handle>)>,
) -> Result<Attached<D>> {
    let bytes = size_of::<Bell>();
    for (rank, (said, _)) in theirs.iter().enumerate() {
        if let Some(said) = said
            && said.name != nic.name()
        {
            let (theirs, mine) = (&said.name, nic.name());
            let what = format!("rank {rank} uses the NIC `{theirs}`, this rank `{mine}`");
            return Err(Error::Invalid(what));
        }
    }
    let address = |(said, _): &(Option<HelloNic>, _)| {
        said.as_ref()
            .map_or_else(Vec::new, |said| said.address.clone())
    };
    let doorbells = Arc::new(device.alloc(bytes, Sharing::Private)?);
    let connection = Connection {
        addresses: theirs.iter().map(address).collect(),
        bell: doorbells.base(),
        keep: doorbells.clone(),
    };
    // SAFETY: the block is zeroed, which is a bell, and kept.
    unsafe { nic.connect(connection) }?;
    let bells = theirs
        .into_iter()
        .enumerate()
        .map(|(rank, (said, handle))| {
            let key = said.map(|said| Key {
                bytes: said.bell.0,
                handle: handle.filter(|_| said.bell.1),
            });
            key.map(|key| nic.import(rank, key, bytes)).transpose()
        });
    let bells = bells.collect::<Result<_, _>>()?;
    Ok(Attached {
        nic,
        doorbells,
        bells,
        _registration: guard,
        #[cfg(test)]
        ignore_tickets: Default::default(),
    })
}
