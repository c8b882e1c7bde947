//! How the ranks meet: they exchange bells and NIC addresses, and find out which of them share hardware.

use std::sync::{Arc, OnceLock};

use tidegate_hal::control::{Control, Decision, Handle, Letter, Objection, Packet, Proposal};
use tidegate_hal::device::{Device, DeviceError};
use tidegate_hal::memory::{Block as _, Ptr, Sharing};
use tidegate_hal::nic::{Connection, Keep, Key, Memory, Nic, NicError, Registration, Signalled};
use tidegate_hal::stamps::now;
use tidegate_words::Bell;

use crate::error::{Error, MeetError, Result};
use crate::nic::Attached;

/// What a rank tells all others about itself, if it has something to tell.
#[derive(Default, serde::Serialize, serde::Deserialize)]
struct Hello {
    /// An identifier of the hardware.
    hardware: Vec<u8>,
    /// The process, by a number that no other process of the job has.
    process: u64,
    /// How much of the hardware the process may use while others use it, too.
    portion: usize,
    nic: Option<HelloNic>,
}

#[derive(serde::Serialize, serde::Deserialize)]
struct HelloNic {
    name: String,
    address: Vec<u8>,
    /// The key to the rank's bell, and whether a handle goes with it.
    bell: (Vec<u8>, bool),
}

/// Flag: somebody observes the rank.
const OBSERVED: u32 = 1;
/// Flag: the rank has a [`Hello`] for all others.
const SAYS_HELLO: u32 = 2;

/// A number for this process. The system's own number is not enough: ranks in containers on one node may have the same.
fn process() -> u64 {
    use std::hash::{BuildHasher as _, RandomState};
    static NUMBER: OnceLock<u64> = OnceLock::new();
    *NUMBER.get_or_init(|| RandomState::new().hash_one(std::process::id()))
}

/// A user of a piece of hardware: the hardware's identifier, the process, and the portion that it may use.
type User = (Vec<u8>, u64, usize);

/// How many other processes use the hardware of `mine`, and the least portion of all of them. `all` has every rank's
/// entry. The nodes of the ranks do not matter, since one machine may act as several nodes.
fn others_on_hardware(mine: &User, all: &[User]) -> (usize, usize) {
    let (hardware, process, portion) = mine;
    let others = all
        .iter()
        .filter(|other| !hardware.is_empty() && other.0 == *hardware && other.1 != *process);
    let least = others
        .clone()
        .map(|other| other.2)
        .fold(*portion, usize::min);
    let mut others: Vec<_> = others.map(|other| other.1).collect();
    others.sort_unstable();
    others.dedup();
    (others.len(), least)
}

/// The bells that this rank can ring: those of its node.
pub(crate) struct Bells<B> {
    /// For each rank, where its bell is mapped, if it is.
    at: Vec<Option<Ptr>>,
    own: Ptr,
    /// This rank's own block, if it has one.
    own_block: Option<Arc<B>>,
    _blocks: Vec<B>,
}

impl<B> Bells<B> {
    /// This rank's own bell.
    pub(crate) fn own(&self) -> Ptr {
        self.own
    }

    /// The bell of a rank, if it is mapped.
    pub(crate) fn of(&self, rank: usize) -> Option<Ptr> {
        self.at[rank]
    }
}

/// What a rank has after it has met the others.
pub(crate) struct Met<D: Device> {
    pub(crate) bells: Arc<Bells<D::Block>>,
    pub(crate) nic: Option<Attached<D>>,
    /// For observers: see [`Joined::rounds`](crate::observe::Joined::rounds).
    pub(crate) rounds: Vec<(u64, u64)>,
}

/// How many rounds compare the clocks of nodes. Most of them meet no other work, and the tightest counts.
const ROUNDS: usize = 16;

/// The functions that a NIC calls: [`Connection::failed`] and [`Connection::asks`].
type NicCalls = (
    Box<dyn Fn(String) + Send + Sync>,
    Box<dyn Fn(usize, u64) + Send + Sync>,
);

/// Exchanges bells, and what NICs need to know of each other. The call is collective. A rank that could not open its
/// NIC tells the others, so that all of them fail with the same error.
pub(crate) fn meet<D: Device>(
    control: &dyn Control,
    device: &D,
    opened: Result<Option<Arc<dyn Nic>>, NicError>,
    calls: NicCalls,
    observed: bool,
) -> Result<Met<D>> {
    let (nic, objection) = match opened {
        Ok(nic) => (nic, None),
        Err(error) => {
            let reason = error.to_string().into_bytes();
            (None, Some(Objection { kind: 0, reason }))
        }
    };
    let hardware = device.hardware();
    let says_hello = nic.is_some() || !hardware.is_empty();
    let flags = [(observed, OBSERVED), (says_hello, SAYS_HELLO)];
    let flags = flags.iter().filter(|(is, _)| *is).map(|(_, flag)| flag);
    if let Some(nic) = &nic {
        nic.begin(device.staged())?;
    }
    let (made, letters) = make_bells(control, device, nic.is_some())?;
    let proposal = Proposal {
        header: D::NAME.into(),
        alike: D::NAME.len(),
        flags: flags.sum(),
        objection,
        letters,
    };
    let (flags, letters) = match control.confer("making a world", proposal)? {
        Decision::Agreed { flags, letters } => (flags, letters),
        Decision::Differs { first, rank, other } => {
            let mine = D::NAME;
            let name = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
            let (first, other) = (name(first), name(other));
            let (rank, theirs) = if first == mine {
                (rank, other)
            } else {
                (0, first)
            };
            return Err(Error::Meet(MeetError::OtherDevice { rank, theirs, mine }));
        }
        Decision::Refused { ranks, reason, .. } => {
            let (rank, reason) = (ranks[0], String::from_utf8_lossy(&reason).into_owned());
            return Err(Error::Meet(MeetError::NoNic { rank, reason }));
        }
    };
    let bells = Arc::new(take_bells(control, device, made, letters)?);
    let nic = if flags & SAYS_HELLO != 0 {
        let hello = Hello {
            process: process(),
            portion: device.portion(),
            hardware,
            nic: None,
        };
        greet(control, device, hello, nic, &bells, calls)?
    } else {
        device.shared_with(0, device.portion());
        None
    };
    let node = control.node(control.rank());
    let several_nodes = (0..control.size()).any(|rank| control.node(rank) != node);
    let rounds = if flags & OBSERVED != 0 && several_nodes {
        compare_clocks(control)?
    } else {
        Vec::new()
    };
    Ok(Met { bells, nic, rounds })
}

/// The distance of bells in a block that the ranks of a node share. Ranks look at their bells often, so each has cache
/// lines of its own.
const STEP: usize = 128;
const _: () = assert!(size_of::<Bell>() <= STEP);

/// The blocks that a rank has allocated for bells.
struct Made<B> {
    /// For itself.
    own: Option<Arc<B>>,
    /// For all ranks of its node.
    shared: Option<B>,
}

/// The ranks of this rank's node.
fn neighbours(control: &dyn Control) -> Vec<usize> {
    let node = control.node(control.rank());
    let here = (0..control.size()).filter(|rank| control.node(*rank) == node);
    here.collect()
}

/// Allocates bells, and tells others where they are. If one block can have the bells of a whole node, its lowest rank
/// allocates that block. NICs ring a bell by a handle of its own, so a rank with a NIC has a block for its bell alone.
fn make_bells<D: Device>(
    control: &dyn Control,
    device: &D,
    has_nic: bool,
) -> Result<(Made<D::Block>, Vec<Letter>)> {
    let (rank, here) = (control.rank(), neighbours(control));
    let mut handles = Vec::new();
    let mut block = |bytes| -> Result<D::Block> {
        let block = device.alloc(bytes, Sharing::Peers)?;
        handles.push(block.share()?);
        Ok(block)
    };
    let shares = device.shares_bells();
    let shared = (shares && here[0] == rank).then(|| block(here.len() * STEP));
    let shared = shared.transpose()?;
    let own = (!shares || has_nic).then(|| block(size_of::<Bell>()));
    let own = own.transpose()?.map(Arc::new);
    // A NIC may ask for one more handle of its bell: see `greet`.
    let shared_for_good = own.as_deref().filter(|_| !has_nic);
    for block in shared.iter().chain(shared_for_good) {
        block.share_no_more();
    }
    // Keys reach ranks of other nodes, too.
    let all = handles
        .iter()
        .any(|handle| matches!(handle, Handle::Key(_)));
    let ranks = if all {
        (0..control.size()).collect()
    } else {
        here
    };
    let ranks = ranks.into_iter().filter(|_| !handles.is_empty());
    let bytes = vec![u8::from(shared.is_some()), u8::from(own.is_some())];
    let letter = |rank| Letter {
        rank,
        packet: Packet {
            bytes: bytes.clone(),
            handles: handles.clone(),
        },
    };
    let letters = ranks.map(letter).collect();
    Ok((Made { own, shared }, letters))
}

/// Maps the bells that the others have allocated.
fn take_bells<D: Device>(
    control: &dyn Control,
    device: &D,
    made: Made<D::Block>,
    letters: Vec<Letter>,
) -> Result<Bells<D::Block>> {
    let (me, here) = (control.rank(), neighbours(control));
    let mut at = vec![None; control.size()];
    let mut blocks = Vec::new();
    let mut share = |block: D::Block, at: &mut Vec<Option<Ptr>>| {
        for (place, rank) in here.iter().enumerate() {
            at[*rank] = Some(block.base().byte_add(place * STEP));
        }
        blocks.push(block);
    };
    if let Some(shared) = made.shared {
        share(shared, &mut at);
    }
    let mut own_bells = Vec::new();
    for Letter { rank, packet } in letters {
        let mut handles = packet.handles.into_iter();
        let [has_shared, has_own] = packet.bytes[..] else {
            let reason = format!("it has {} bytes", packet.bytes.len());
            return Err(Error::Meet(MeetError::Unreadable { rank, reason }));
        };
        let mut map = |is_there: u8, bytes| {
            let handle = handles.next().filter(|_| is_there != 0 && rank != me);
            match handle.map(|handle| device.map(handle, bytes)).transpose() {
                // The rank is near, but cannot be mapped. A window will report that, or use the NIC.
                Err(DeviceError::Unsupported { .. }) => Ok(None),
                mapped => mapped,
            }
        };
        if has_shared != 0
            && let Some(block) = map(has_shared, here.len() * STEP)?
        {
            share(block, &mut at);
        }
        if has_own != 0 {
            own_bells.push((rank, map(has_own, size_of::<Bell>())?));
        }
    }
    // These come last, since they count more than the places in a shared block.
    for (rank, block) in own_bells {
        at[rank] = block.as_ref().map(|block| block.base());
        blocks.extend(block);
    }
    if let Some(own) = &made.own {
        at[me] = Some(own.base());
    }
    let own = at[me].ok_or_else(|| {
        let (rank, reason) = (here[0], "it brought no bells".to_owned());
        Error::Meet(MeetError::Unreadable { rank, reason })
    })?;
    Ok(Bells {
        at,
        own,
        own_block: made.own,
        _blocks: blocks,
    })
}

/// Tells all ranks about the hardware and the NIC of this one, and connects the NICs. Ranks that have neither only
/// listen.
fn greet<D: Device>(
    control: &dyn Control,
    device: &D,
    mut hello: Hello,
    nic: Option<Arc<dyn Nic>>,
    bells: &Bells<D::Block>,
    calls: NicCalls,
) -> Result<Option<Attached<D>>> {
    let bytes = size_of::<Bell>();
    let mut handles = Vec::new();
    let mut registered = None;
    if let Some(nic) = &nic {
        // The bell that NICs ring. An agent must be able to reach it.
        let rung = match &bells.own_block {
            Some(own) if !device.staged() => own.clone(),
            _ => Arc::new(device.alloc(bytes, Sharing::Nics)?),
        };
        let memory = Memory {
            base: rung.base(),
            bytes,
            signalled: Signalled::Bell,
            updated: false,
            share: &|| rung.share(),
            keep: rung.clone(),
        };
        // SAFETY: the block is kept. It holds a bell, which anyone may ring.
        let Registration { key, guard } = unsafe { nic.register(memory) }?;
        hello.nic = Some(HelloNic {
            name: nic.name().into(),
            address: nic.address(),
            bell: (key.bytes, key.handle.is_some()),
        });
        handles.extend(key.handle);
        for block in [&rung].into_iter().chain(&bells.own_block) {
            block.share_no_more();
        }
        registered = Some((nic.clone(), guard, rung));
    }
    let says = registered.is_some() || !hello.hardware.is_empty();
    let bytes = match says {
        true => postcard::to_stdvec(&hello).expect("plain data can be encoded"),
        false => Vec::new(),
    };
    let (mut theirs, mut users) = (Vec::new(), Vec::new());
    for (rank, bytes) in control
        .exchange("meeting the NICs", bytes)?
        .into_iter()
        .enumerate()
    {
        let mut nic = None;
        if !bytes.is_empty() {
            let said: Hello =
                postcard::from_bytes(&bytes).map_err(|error| MeetError::Unreadable {
                    rank,
                    reason: error.to_string(),
                })?;
            users.push((said.hardware, said.process, said.portion));
            nic = said.nic;
        }
        theirs.push((nic, None));
    }
    let has_handle = |(nic, _): &(Option<HelloNic>, _)| nic.as_ref().is_some_and(|nic| nic.bell.1);
    if theirs.iter().any(has_handle) {
        let letter = |rank| Letter {
            rank,
            packet: Packet {
                bytes: Vec::new(),
                handles: handles.clone(),
            },
        };
        let here = neighbours(control).into_iter();
        let proposal = Proposal {
            letters: here.filter(|_| !handles.is_empty()).map(letter).collect(),
            ..Proposal::default()
        };
        let label = "sharing the bells of NICs";
        let Decision::Agreed { letters, .. } = control.confer(label, proposal)? else {
            unreachable!("no rank objects, and there are no headers");
        };
        for Letter { rank, packet } in letters {
            theirs[rank].1 = packet.handles.into_iter().next();
        }
    }
    let mine = (hello.hardware, hello.process, hello.portion);
    let (processes, portion) = others_on_hardware(&mine, &users);
    device.shared_with(processes, portion);
    let here = neighbours(control).into_iter();
    let nics_on_node = here.filter(|rank| theirs[*rank].0.is_some()).count();
    let attached = registered.map(|(nic, guard, rung)| {
        attach(device, nic, (guard, rung), theirs, (calls, nics_on_node))
    });
    attached.transpose()
}

/// Takes the times around exchanges of all ranks. Collective.
fn compare_clocks(control: &dyn Control) -> Result<Vec<(u64, u64)>> {
    let round = |_| {
        let before = now();
        control.exchange("comparing clocks", Vec::new())?;
        Ok((before, now()))
    };
    (0..ROUNDS).map(round).collect()
}

/// Connects the NIC with those of the other ranks.
fn attach<D: Device>(
    device: &D,
    nic: Arc<dyn Nic>,
    (guard, rung): (Keep, Arc<D::Block>),
    theirs: Vec<(Option<HelloNic>, Option<Handle>)>,
    ((failed, asks), ranks_on_node): (NicCalls, usize),
) -> Result<Attached<D>> {
    let bytes = size_of::<Bell>();
    for (rank, (said, _)) in theirs.iter().enumerate() {
        if let Some(said) = said
            && said.name != nic.name()
        {
            let (theirs, mine) = (said.name.clone(), nic.name().to_owned());
            return Err(Error::Meet(MeetError::OtherNic { rank, theirs, mine }));
        }
    }
    let address = |(said, _): &(Option<HelloNic>, _)| {
        said.as_ref()
            .map_or_else(Vec::new, |said| said.address.clone())
    };
    let doorbells = Arc::new(device.alloc(bytes, Sharing::Nics)?);
    doorbells.share_no_more();
    let connection = Connection {
        addresses: theirs.iter().map(address).collect(),
        bell: doorbells.base(),
        keep: doorbells.clone(),
        helped: device.helps(),
        polled: device.staged(),
        failed,
        asks,
        ranks_on_node,
    };
    // SAFETY: the block is kept, and zeroed memory is a bell.
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
        rung,
        bells,
        arming: Default::default(),
        parting: Default::default(),
        _registration: guard,
        #[cfg(test)]
        ignore_tickets: Default::default(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Route, World, WorldOptions};
    use tidegate_host::Host;
    use tidegate_loopback::Loopback;

    /// Two ranks on one node, each with its options.
    fn join(options: [WorldOptions; 2]) -> Vec<Result<World<Host>>> {
        let controls = tidegate_boot::local(2).into_iter().zip(options);
        std::thread::scope(|scope| {
            let join = |control, options| {
                let device = Host::open_local(0).unwrap();
                // SAFETY: the control plane of `tidegate-boot` carries unchanged what it is given.
                unsafe { World::from_control_with(Arc::new(control), device, options) }
            };
            let ranks: Vec<_> = controls
                .map(|(control, options)| scope.spawn(move || join(control, options)))
                .collect();
            ranks.into_iter().map(|rank| rank.join().unwrap()).collect()
        })
    }

    #[test]
    fn a_nic_is_opened_only_if_it_is_needed() {
        let refuses = || Err::<Loopback, _>(NicError::GivenUp);
        let options = || WorldOptions::new().nic_when_needed(refuses);
        for route in [Route::Auto, Route::Mapped] {
            for world in join([(); 2].map(|()| options().route(route.clone()))) {
                assert!(world.unwrap().nic().is_none());
            }
        }
        // A NIC that the program brings has precedence, in whatever order the options are set.
        let brings = [
            options().nic(Loopback::default()),
            WorldOptions::new()
                .nic(Loopback::default())
                .nic_when_needed(refuses),
        ];
        for world in join(brings.map(|options| options.route(Route::Nic))) {
            assert!(world.unwrap().nic().is_some());
        }
    }

    #[test]
    fn a_rank_without_its_nic_is_named_on_all() {
        let opens = WorldOptions::new().nic_when_needed(|| Ok(Loopback::default()));
        let refuses = WorldOptions::new().nic_when_needed(|| Err::<Loopback, _>(NicError::GivenUp));
        for world in join([opens, refuses].map(|options| options.route(Route::Nic))) {
            let error = world.map(|_| ()).unwrap_err();
            assert!(
                matches!(error, Error::Meet(MeetError::NoNic { rank: 1, .. })),
                "{error}"
            );
        }
    }

    #[test]
    fn processes_on_one_piece_of_hardware_are_counted_once() {
        let user = |hardware: &[u8], process, portion: usize| (hardware.to_vec(), process, portion);
        let all = [
            user(b"a", 1, 100),
            user(b"a", 1, 100),
            user(b"a", 2, 50),
            user(b"a", 2, 50),
            user(b"b", 3, 0),
            user(b"a", 5, 70),
        ];
        assert_eq!(others_on_hardware(&all[0], &all), (2, 50));
        assert_eq!(others_on_hardware(&all[2], &all), (2, 50));
        assert_eq!(others_on_hardware(&all[4], &all), (0, 0));
        // A process that takes turns makes all others take turns.
        let turns = [user(b"a", 1, 100), user(b"a", 2, 0)];
        assert_eq!(others_on_hardware(&turns[0], &turns), (1, 0));
        assert_eq!(others_on_hardware(&turns[1], &turns), (1, 0));
        // It does not concern a process that names no hardware.
        assert_eq!(
            others_on_hardware(&user(b"", 1, 0), &[user(b"", 9, 0)]),
            (0, 0)
        );
        assert_eq!(process(), process());
    }
}
