//! How the ranks of a window reach each other's memory.

use std::sync::Arc;

use tidegate_hal::control::Handle;
use tidegate_hal::device::Device;
use tidegate_hal::memory::{Block as _, Sharing};
use tidegate_hal::nic::{
    Atomics, Keep, Key, Memory, NicError, Registration, RemoteMemory, Signalled,
};

use super::Kind;
use super::shape::Shape;
use crate::error::{Error, Result, WindowError};
use crate::nic::NicLine;
use crate::world::{Agreement, Brought, Which, World};

/// This rank's memory of a window.
pub(super) struct Own<D: Device> {
    pub(super) block: Arc<D::Block>,
    /// If data is staged: the memory that this rank's NIC and those of far ranks access.
    pub(super) far: Option<Arc<D::Block>>,
    /// The words of the lines, if there is a NIC.
    pub(super) lines: Option<Arc<D::Block>>,
    pub(super) registration: Option<Keep>,
}

/// What a rank sends about its memory: the key for NICs, and whether a second handle follows.
pub(super) type Offer = Option<(Vec<u8>, bool)>;

/// The routes to the memory of the neighbours.
pub(super) struct Routes<D: Device> {
    pub(super) own: Own<D>,
    /// The blocks of the neighbours that are mapped.
    pub(super) blocks: Vec<Option<D::Block>>,
    /// The memory of the neighbours that the NIC reaches.
    pub(super) remotes: Vec<Option<RemoteMemory>>,
    /// The neighbours that have a NIC.
    pub(super) with_nic: Vec<usize>,
}

impl<D: Device> Own<D> {
    /// Makes a block (or, for NICs, a staged block in its place) reachable, and returns what to tell the others.
    pub(super) fn offer(
        world: &World<D>,
        block: D::Block,
        far: Option<D::Block>,
        lines: usize,
    ) -> Result<(Self, Brought<Offer>)> {
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
        Ok((own, (key, handles)))
    }
}

impl<D: Device> Routes<D> {
    /// Exchanges what the ranks say about their memory, and chooses the route to each neighbour. `neighbour` returns
    /// the size of its block, and of its staged block. All ranks call this together. If this rank cannot reach a
    /// neighbour, no other rank knows it yet: this is the inner error.
    pub(super) fn find(
        agreement: &Agreement<'_, D>,
        which: &Which,
        kind: Kind,
        own: Result<(Own<D>, Brought<Offer>)>,
        neighbour: impl Fn(usize) -> Option<(usize, Option<usize>)>,
    ) -> Result<Result<Self>> {
        let (own, offer) = match own {
            Ok((own, offer)) => (Some(own), Ok(offer)),
            Err(error) => (None, Err(error)),
        };
        let said = agreement.tell("sharing a window's memory", which, offer)?;
        let own = own.expect("a rank that failed got its own error");
        Ok(Self::reach(
            agreement.world(),
            which,
            kind,
            own,
            said,
            neighbour,
        ))
    }

    fn reach(
        world: &World<D>,
        which: &Which,
        kind: Kind,
        own: Own<D>,
        said: Vec<Brought<Offer>>,
        neighbour: impl Fn(usize) -> Option<(usize, Option<usize>)>,
    ) -> Result<Self> {
        let (mut blocks, mut remotes, mut with_nic) = (Vec::new(), Vec::new(), Vec::new());
        for (rank, (key, handles)) in said.into_iter().enumerate() {
            let (mut block, mut remote) = (None, None);
            if let Some((bytes, far)) = neighbour(rank) {
                with_nic.extend(key.is_some().then_some(rank));
                let mut handles = handles.into_iter();
                let handle = handles.next();
                let by_nic = if world.staged() {
                    far
                } else {
                    world.by_nic(rank, handle.is_some()).then_some(bytes)
                };
                if let Some(bytes) = by_nic {
                    remote = Some(import(
                        world,
                        which,
                        kind,
                        rank,
                        key,
                        handles.next(),
                        bytes,
                    )?);
                } else if let Some(handle) = handle {
                    block = Some(world.device().map(handle, bytes)?);
                } else {
                    let window = which.named();
                    return Err(WindowError::NotMapped { window, rank }.into());
                }
            }
            blocks.push(block);
            remotes.push(remote);
        }
        Ok(Routes {
            own,
            blocks,
            remotes,
            with_nic,
        })
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
        // A window has one executor of atomics: the NIC's operations would not be atomic with those of mapped peers.
        return Err(Error::Nic(NicError::Unsupported {
            nic: nic.name(),
            what: format!(
                "atomic operations on rank {rank}, for window {}",
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
