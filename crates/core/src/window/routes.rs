//! How the ranks of a window reach each other's memory.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use tidegate_hal::control::{Handle, Letter, Packet};
use tidegate_hal::device::Device;
use tidegate_hal::memory::{Block as _, Ptr, Sharing};
use tidegate_hal::nic::{
    Atomics, Keep, Key, Memory, NicError, Registration, RemoteMemory, Signalled,
};

use super::Kind;
use super::edges::{Edges, Neighbour};
use super::shape::{Place, Shape};
use crate::error::{Error, Result, WindowError};
use crate::nic::NicLine;
use crate::world::{Which, World};

/// This rank's memory of a window.
pub(super) struct Own<D: Device> {
    pub(super) block: Arc<D::Block>,
    /// If data is staged: the memory that this rank's NIC and those of far ranks access.
    pub(super) far: Option<Arc<D::Block>>,
    /// The words of the lines, if there is a NIC.
    pub(super) lines: Option<Arc<D::Block>>,
    pub(super) registration: Option<Keep>,
}

/// What a rank tells a neighbour about its memory. The block's handle goes with it.
#[derive(Clone, Serialize, Deserialize)]
struct Told {
    place: Place,
    /// The key for NICs, and whether a second handle goes with it.
    key: Option<(Vec<u8>, bool)>,
}

/// What a rank offers its neighbours: handles, and the key for NICs.
pub(super) struct Offer {
    handles: Vec<Handle>,
    key: Option<(Vec<u8>, bool)>,
}

impl Offer {
    /// What the neighbours are told.
    pub(super) fn letters(&self, edges: &Edges<'_>, shape: &Shape) -> Vec<Letter> {
        let letter = |neighbour: &Neighbour| {
            let told = Told {
                place: shape.place(edges, neighbour),
                key: self.key.clone(),
            };
            Letter {
                rank: neighbour.rank,
                packet: Packet {
                    bytes: postcard::to_stdvec(&told).expect("plain data can be encoded"),
                    handles: self.handles.clone(),
                },
            }
        };
        edges.neighbours.iter().map(letter).collect()
    }
}

/// How this rank reaches the memory of a neighbour.
pub(super) enum Way {
    /// It is mapped at this address.
    Mapped(Ptr),
    /// The NIC reaches it.
    Nic(RemoteMemory),
}

/// A neighbour's memory, and the way there.
pub(super) struct Route {
    pub(super) rank: usize,
    pub(super) place: Place,
    pub(super) way: Way,
    /// Whether the neighbour has a NIC.
    has_nic: bool,
}

impl Route {
    /// Where the neighbour's block is mapped, if it is.
    pub(super) fn base(&self) -> Option<Ptr> {
        match self.way {
            Way::Mapped(base) => Some(base),
            Way::Nic(_) => None,
        }
    }
}

/// The routes to the memory of the neighbours.
pub(super) struct Routes<D: Device> {
    /// In ascending order of the ranks.
    routes: Vec<Route>,
    /// What is mapped.
    pub(super) blocks: Vec<D::Block>,
}

impl<D: Device> Own<D> {
    /// Makes a block (or, for NICs, a staged block in its place) reachable, and returns what to tell the others.
    pub(super) fn offer(
        world: &World<D>,
        block: D::Block,
        far: Option<D::Block>,
        (lines, updated): (usize, bool),
    ) -> Result<(Self, Offer)> {
        let (block, far) = (Arc::new(block), far.map(Arc::new));
        let mut handles = vec![block.share()?];
        let (mut registration, mut key, mut words) = (None, None, None);
        let reached = if world.staged() {
            &far
        } else {
            &Some(block.clone())
        };
        if let (Some(attached), Some(block)) = (world.nic(), reached) {
            let memory = Memory {
                base: block.base(),
                bytes: block.bytes(),
                signalled: Signalled::Words {
                    count: lines,
                    step: Shape::CELL,
                },
                updated,
                share: &|| block.share(),
                keep: block.clone(),
            };
            // SAFETY: the block is kept, and the words of the window's epochs order what peers do there.
            let Registration { key: own, guard } = unsafe { attached.nic.register(memory) }?;
            registration = Some(guard);
            key = Some((own.bytes, own.handle.is_some()));
            handles.extend(own.handle);
            let bytes = (lines * NicLine::BYTES).max(1);
            words = Some(Arc::new(world.device().alloc(bytes, Sharing::Nics)?));
        }
        // The handles have been made. A neighbour that maps the memory by them does not need this rank's descriptors.
        for block in far.iter().chain(&words).chain([&block]) {
            block.share_no_more();
        }
        let own = Own {
            block,
            far,
            lines: words,
            registration,
        };
        Ok((own, Offer { handles, key }))
    }
}

impl<D: Device> Routes<D> {
    /// The route to a neighbour.
    pub(super) fn of(&self, rank: usize) -> &Route {
        let place = self.routes.binary_search_by_key(&rank, |route| route.rank);
        &self.routes[place.expect("the two sides of an edge know each other")]
    }

    /// The neighbours that have a NIC.
    pub(super) fn with_nic(&self) -> Vec<usize> {
        let with_nic = self.routes.iter().filter(|route| route.has_nic);
        with_nic.map(|route| route.rank).collect()
    }

    /// Chooses the route to each neighbour, by what the neighbours have told. `own` is this rank's block. If this rank
    /// cannot reach one of them, no other rank knows it yet.
    pub(super) fn find(
        world: &World<D>,
        which: &Which,
        kind: Kind,
        (shape, own): (&Shape, Ptr),
        letters: Vec<Letter>,
    ) -> Result<Self> {
        let mut blocks = Vec::new();
        let route = |letter: Letter| {
            let Letter { rank, packet } = letter;
            let Told { place, key } = which.read(rank, &packet.bytes)?;
            let has_nic = key.is_some();
            let mut handles = packet.handles.into_iter();
            let handle = handles.next();
            let by_nic = if world.staged() {
                shape.is_far(rank)
            } else {
                world.by_nic(rank, handle.is_some())
            };
            let way = if by_nic {
                let (handle, bytes) = (handles.next(), place.bytes);
                Way::Nic(import(world, which, kind, rank, key, handle, bytes)?)
            } else if rank == world.rank() {
                Way::Mapped(own)
            } else if let Some(handle) = handle {
                let block = world.device().map(handle, place.bytes)?;
                let base = block.base();
                blocks.push(block);
                Way::Mapped(base)
            } else {
                let window = which.named();
                return Err(WindowError::NotMapped { window, rank }.into());
            };
            Ok(Route {
                rank,
                place,
                way,
                has_nic,
            })
        };
        let routes = letters.into_iter().map(route).collect::<Result<_>>()?;
        Ok(Routes { routes, blocks })
    }
}

fn import<D: Device>(
    world: &World<D>,
    which: &Which,
    kind: Kind,
    rank: usize,
    key: Option<(Vec<u8>, bool)>,
    handle: Option<Handle>,
    bytes: usize,
) -> Result<RemoteMemory> {
    let (Some(attached), Some((key, has_handle))) = (world.nic(), key) else {
        return Err(Error::Open(WindowError::NoNic {
            window: which.named(),
            rank,
            this_rank: world.nic().is_none(),
        }));
    };
    let nic = &attached.nic;
    if attached.bells[rank].is_none() {
        let window = which.named();
        return Err(WindowError::NewNic { window, rank }.into());
    }
    if kind == Kind::Atomic && nic.atomics() != Atomics::Coherent {
        // A window has one executor of atomics. The operations of such a NIC would not be atomic with those of mapped
        // peers.
        return Err(Error::Nic(NicError::Unsupported {
            nic: nic.name(),
            what: format!(
                "atomic operations on rank {rank}, for window {} (with TIDEGATE_ENGINE=software, that rank's agent makes them)",
                which.named()
            ),
        }));
    }
    let key = Key {
        bytes: key,
        handle: handle.filter(|_| has_handle),
    };
    Ok(nic.import(rank, key, bytes)?)
}
