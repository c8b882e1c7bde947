//! Ranks that are threads of one process.
//!
//! # Model
//!
//! All ranks share one table of rounds under one lock. Letters are moved to their receivers, and with them the handles.
//! There are no sockets, files or clocks, so a run is as deterministic as its threads, and Miri can execute it. Each
//! rank that subscribes gets a thread for its events.
//!
//! # Failure
//!
//! Dropping a [`LocalControl`] reports [`Event::Left`]. Dropping it while its thread panics reports [`Event::Lost`],
//! and so do [`Control::fail`] and [`LocalControl::kill`]. Collective calls that need the rank end with `PeerLost`, in
//! every thread that waits for them. A forked child has only the thread that forked; every call there returns
//! [`ControlError::Forked`].

use crate::events::Events;
use crate::fields::MAX_LABEL;
use crate::rounds::{Call, Came, Failure, Founders, Kind, Members, Outcome, Vote, team_of};
use crate::teams::{Ended, Founded, Teams};
use std::collections::BTreeMap;
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use tidegate_hal::control::{
    Control, ControlError, Decision, Event, Letter, PANICKED, Packet, Proposal, Sink,
};
use tidegate_hal::ids::TeamId;
use tidegate_hal::lock;
use tidegate_hal::process::Process;

struct Table {
    teams: Teams,
    desks: BTreeMap<TeamId, Desk>,
    /// What ranks hear about the teams for which they have asked.
    founded: Vec<Option<Result<TeamId, Failure>>>,
    /// Whether a rank has left or was lost.
    gone: Vec<bool>,
    /// Why a rank can do nothing more.
    closed: Vec<Option<String>>,
}

/// One team's part of what its ranks say. All lists are by the places of its members.
struct Desk {
    members: Members,
    /// The bytes that have come in the open round, if it is an exchange.
    said: Vec<Vec<u8>>,
    /// The letters of the open round, by receivers.
    letters: Vec<Vec<Letter>>,
    /// The last round, for each rank that has not taken it yet.
    decided: Vec<Option<Decided>>,
    /// Why the open round failed.
    failed: Option<Failure>,
    /// Why a rank can make no call.
    closed: Vec<Option<String>>,
    /// Each held for a whole collective call, so that calls of one rank are matched in order.
    calls: Vec<Arc<Mutex<()>>>,
}

impl Desk {
    fn new(members: Members) -> Self {
        let size = members.len();
        Self {
            members,
            said: vec![Vec::new(); size],
            letters: vec![Vec::new(); size],
            decided: (0..size).map(|_| None).collect(),
            failed: None,
            closed: vec![None; size],
            calls: (0..size).map(|_| Arc::default()).collect(),
        }
    }
}

/// The end of a round, for one rank.
struct Decided {
    outcome: Arc<Outcome>,
    said: Arc<Vec<Vec<u8>>>,
    letters: Vec<Letter>,
}

struct LocalJob {
    process: Process,
    /// The node of each rank.
    nodes: Vec<usize>,
    table: Mutex<Table>,
    changed: Condvar,
    events: Vec<Events>,
}

/// One rank of a job whose ranks are threads of this process. Made by [`local`].
pub struct LocalControl {
    rank: usize,
    job: Arc<LocalJob>,
    /// Held while this rank makes a team: it makes one at a time.
    founds: Mutex<()>,
}

impl std::fmt::Debug for LocalControl {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("LocalControl")
            .field("rank", &self.rank)
            .field("size", &self.size())
            .finish_non_exhaustive()
    }
}

/// Makes a job of `size` ranks in this process. Returns their control planes in the order of ranks.
///
/// # Panics
///
/// If `size` is 0: a job has at least one rank.
pub fn local(size: usize) -> Vec<LocalControl> {
    local_on(&vec![0; size])
}

/// Like [`local`], for tests of jobs on several nodes: rank `r` says that it is on node `nodes[r]`. No handles go from
/// one node to another.
///
/// # Panics
///
/// If `nodes` is empty: a job has at least one rank.
pub fn local_on(nodes: &[usize]) -> Vec<LocalControl> {
    let size = nodes.len();
    assert!(size > 0, "a job has at least one rank");
    let job = Arc::new(LocalJob {
        process: Process::this(),
        nodes: nodes.to_vec(),
        table: Mutex::new(Table {
            teams: Teams::new(size),
            desks: BTreeMap::from([(TeamId::WORLD, Desk::new(Members::First(size)))]),
            founded: vec![None; size],
            gone: vec![false; size],
            closed: vec![None; size],
        }),
        changed: Condvar::new(),
        events: (0..size).map(|_| Events::default()).collect(),
    });
    (0..size)
        .map(|rank| LocalControl {
            rank,
            job: Arc::clone(&job),
            founds: Mutex::new(()),
        })
        .collect()
}

impl LocalControl {
    /// Ends this rank as if it had crashed: the peers get [`Event::Lost`], and every later call here fails.
    pub fn kill(&self) {
        self.lose("killed by its own program");
    }

    fn lose(&self, reason: &str) {
        let reason = reason.to_owned();
        self.end(
            reason.clone(),
            Event::Lost {
                rank: self.rank,
                reason,
            },
        );
    }

    fn end(&self, reason: String, event: Event) {
        if !self.job.process.is_this() {
            return;
        }
        let mut table = lock(&self.job.table);
        if std::mem::replace(&mut table.gone[self.rank], true) {
            return;
        }
        table.closed[self.rank].get_or_insert_with(|| format!("this rank has ended ({reason})"));
        let (ended, founded) = table.teams.end(self.rank, &reason);
        table.decide(ended);
        table.founded(founded);
        for (rank, events) in self.job.events.iter().enumerate() {
            if rank != self.rank {
                events.push(event.clone());
            }
        }
        self.job.changed.notify_all();
        drop(table);
        self.job.events[self.rank].close();
    }
}

impl Table {
    /// Tells all members the outcomes of rounds.
    fn decide(&mut self, ended: impl IntoIterator<Item = Ended>) {
        for (_, round, outcome) in ended {
            let desk = team_of(round).and_then(|team| self.desks.get_mut(&team));
            let Some(desk) = desk else { continue };
            let outcome = match outcome {
                Outcome::Failed(failure) => {
                    desk.failed = Some(failure);
                    continue;
                }
                outcome => Arc::new(outcome),
            };
            let none = vec![Vec::new(); desk.said.len()];
            let said = Arc::new(std::mem::replace(&mut desk.said, none));
            for (letters, decided) in desk.letters.iter_mut().zip(&mut desk.decided) {
                *decided = Some(Decided {
                    outcome: Arc::clone(&outcome),
                    said: Arc::clone(&said),
                    letters: std::mem::take(letters),
                });
            }
        }
    }

    fn founded(&mut self, founded: Vec<Founded>) {
        for (ranks, team) in founded {
            if let Ok(team) = team
                && let Some(rounds) = self.teams.rounds(team)
            {
                self.desks.insert(team, Desk::new(rounds.members().clone()));
            }
            for rank in ranks {
                self.founded[rank] = Some(team.clone());
            }
        }
    }

    /// The desk of a team, and a member's place there.
    fn desk(&mut self, team: TeamId, rank: usize) -> Result<(&mut Desk, usize), ControlError> {
        let desk = self.desks.get_mut(&team).ok_or_else(dissolved)?;
        let place = desk.members.place(rank).ok_or_else(dissolved)?;
        Ok((desk, place))
    }
}

/// Checks the limits of messages, which are the same for all control planes.
pub(crate) fn check_size(label: &str, bytes: usize, handles: usize) -> Result<(), ControlError> {
    let most = Packet::MAX_BYTES;
    if bytes > most || handles > Packet::MAX_HANDLES {
        let label = label.to_owned();
        return Err(ControlError::TooLarge {
            label,
            bytes,
            most,
            handles,
        });
    }
    Ok(())
}

/// Checks the length of a label, or of the name of a team.
pub(crate) fn check_label(label: &str) -> Result<(), ControlError> {
    if label.len() <= MAX_LABEL {
        return Ok(());
    }
    Err(ControlError::TooLarge {
        label: "the name of a collective call".to_owned(),
        bytes: label.len(),
        most: MAX_LABEL,
        handles: 0,
    })
}

/// Checks what a rank brings to [`Control::found`] in a job of `size` ranks.
///
/// # Panics
///
/// If the ranks are not different ranks of the job, and this rank among them.
pub(crate) fn founders(
    rank: usize,
    size: usize,
    name: &str,
    ranks: &[usize],
) -> Result<Founders, ControlError> {
    check_label(name)?;
    let founders = Founders::new(name, ranks);
    let members = Members::new(&founders.ranks);
    assert!(
        members.are_of(size) && members.place(rank).is_some(),
        "a team has different ranks of the job, and rank {rank} makes it"
    );
    Ok(founders)
}

/// What the others hear of a rank that gives a team up.
pub(crate) const DROPPED: &str = "it has dropped the team";

/// The error of a rank that has given a team up.
pub(crate) fn dissolved() -> ControlError {
    ControlError::Closed("this rank has dropped the team".into())
}

/// Checks what a rank brings to [`Control::confer_in`] in a team.
///
/// # Panics
///
/// If the letters are not in ascending order, or not to ranks of the team.
pub(crate) fn check_proposal(
    label: &str,
    proposal: &Proposal,
    members: &Members,
) -> Result<(), ControlError> {
    let ranks = proposal.letters.iter().map(|letter| letter.rank);
    assert!(
        ranks.is_sorted_by(|one, next| one < next),
        "letters are in ascending order of the ranks"
    );
    for Letter { rank, .. } in &proposal.letters {
        let size = members.len();
        assert!(
            members.place(*rank).is_some(),
            "a letter to rank {rank} of {size}"
        );
    }
    let objection = proposal.objection.as_ref();
    let reason = objection.map_or(0, |objection| objection.reason.len());
    check_size(label, proposal.header.len() + reason, 0)?;
    proposal.letters.iter().try_for_each(|letter| {
        let packet = &letter.packet;
        check_size(label, packet.bytes.len(), packet.handles.len())
    })
}

impl LocalControl {
    /// Takes part in one round.
    fn call(
        &self,
        team: TeamId,
        call: &Call,
        vote: Vote,
        said: Vec<u8>,
        letters: Vec<Letter>,
    ) -> Result<Decided, ControlError> {
        check_label(&call.label)?;
        let rank = self.rank;
        let calls = {
            let mut table = lock(&self.job.table);
            let (desk, place) = table.desk(team, rank)?;
            Arc::clone(&desk.calls[place])
        };
        let _one_at_a_time = lock(&calls);
        let mut table = lock(&self.job.table);
        let closed = table.closed[rank].clone();
        let (desk, place) = table.desk(team, rank)?;
        if let Some(reason) = closed.or_else(|| desk.closed[place].clone()) {
            return Err(ControlError::Closed(reason));
        }
        let round = table.teams.rounds(team).ok_or_else(dissolved)?.round();
        let came = table.teams.of(rank, round);
        match came.and_then(|rounds| rounds.come(rank, round, call.clone(), vote)) {
            Err(error) => return Err(ControlError::Closed(error.to_string())),
            Ok(Came::Late) => {}
            Ok(Came::Counted(outcome)) => {
                let (desk, place) = table.desk(team, rank)?;
                desk.said[place] = said;
                for Letter {
                    rank: to,
                    mut packet,
                } in letters
                {
                    if self.node(to) != self.node(rank) {
                        packet.handles.clear();
                    }
                    let to = desk.members.place(to).expect("letters were checked");
                    desk.letters[to].push(Letter { rank, packet });
                }
                if let Some(outcome) = outcome {
                    self.job.changed.notify_all();
                    let members = desk.members.clone();
                    table.decide([(members, round, outcome)]);
                }
            }
        }
        let error = loop {
            let closed = table.closed[rank].clone();
            let (desk, place) = table.desk(team, rank)?;
            // This comes first even if the rank was killed meanwhile: a known outcome is the better answer.
            if let Some(decided) = desk.decided[place].take() {
                return Ok(decided);
            }
            if let Some(failure) = &desk.failed {
                break failure.error(call);
            }
            if let Some(reason) = closed {
                return Err(ControlError::Closed(reason));
            }
            table = self.wait(table);
        };
        let (desk, place) = table.desk(team, rank)?;
        desk.closed[place].get_or_insert_with(|| failed_before(&error));
        Err(error)
    }

    fn wait<'a>(&self, table: MutexGuard<'a, Table>) -> MutexGuard<'a, Table> {
        let changed = &self.job.changed;
        changed.wait(table).unwrap_or_else(|e| e.into_inner())
    }
}

/// Why a rank can take part in no collective call after one has failed.
pub(crate) fn failed_before(error: &ControlError) -> String {
    format!("an earlier collective call failed: {error}")
}

impl Control for LocalControl {
    fn rank(&self) -> usize {
        self.rank
    }

    fn size(&self) -> usize {
        self.job.events.len()
    }

    fn node(&self, rank: usize) -> usize {
        self.job.nodes[rank]
    }

    fn exchange_in(
        &self,
        team: TeamId,
        label: &str,
        bytes: Vec<u8>,
    ) -> Result<Vec<Vec<u8>>, ControlError> {
        self.job.process.check()?;
        check_size(label, bytes.len(), 0)?;
        let call = Call::new(Kind::Exchange, label);
        let decided = self.call(team, &call, Vote::default(), bytes, Vec::new())?;
        Ok(decided.said.to_vec())
    }

    fn confer_in(
        &self,
        team: TeamId,
        label: &str,
        mut proposal: Proposal,
    ) -> Result<Decision, ControlError> {
        self.job.process.check()?;
        let members = lock(&self.job.table)
            .desk(team, self.rank)?
            .0
            .members
            .clone();
        check_proposal(label, &proposal, &members)?;
        let call = Call::new(Kind::Confer, label);
        let vote = Vote::take(&mut proposal);
        let decided = self.call(team, &call, vote, Vec::new(), proposal.letters)?;
        let mut decision = Outcome::clone(&decided.outcome).decision(&call)?;
        if let Decision::Agreed { letters, .. } = &mut decision {
            *letters = decided.letters;
            letters.sort_by_key(|letter| letter.rank);
        }
        Ok(decision)
    }

    fn found(&self, name: &str, ranks: &[usize]) -> Result<TeamId, ControlError> {
        self.job.process.check()?;
        let founders = founders(self.rank, self.size(), name, ranks)?;
        let _one_at_a_time = lock(&self.founds);
        let mut table = lock(&self.job.table);
        if table.closed[self.rank].is_none() {
            let founded = table.teams.ask(self.rank, founders.clone());
            let founded = founded.map_err(|error| ControlError::Closed(error.to_string()))?;
            if !founded.is_empty() {
                self.job.changed.notify_all();
            }
            table.founded(founded);
        }
        loop {
            if let Some(answer) = table.founded[self.rank].take() {
                return answer.map_err(|failure| failure.founding_error(&founders));
            }
            if let Some(reason) = &table.closed[self.rank] {
                return Err(ControlError::Closed(reason.clone()));
            }
            table = self.wait(table);
        }
    }

    fn dissolve(&self, team: TeamId) {
        if team == TeamId::WORLD || !self.job.process.is_this() {
            return;
        }
        let mut table = lock(&self.job.table);
        let Ok((desk, place)) = table.desk(team, self.rank) else {
            return;
        };
        desk.closed[place].get_or_insert_with(|| dissolved().to_string());
        let ended = table.teams.withdraw(self.rank, team, DROPPED);
        table.decide(ended);
        if table.teams.rounds(team).is_none() {
            table.desks.remove(&team);
        }
        self.job.changed.notify_all();
    }

    fn notify(&self, to: Option<&[usize]>, bytes: &[u8]) -> Result<(), ControlError> {
        self.job.process.check()?;
        check_size("a message between ranks", bytes.len(), 0)?;
        // This is under the lock, so that all ranks see the messages and the end of one rank in the same order.
        let table = lock(&self.job.table);
        if table.gone[self.rank] {
            let reason = table.closed[self.rank].clone().unwrap_or_default();
            return Err(ControlError::Closed(reason));
        }
        for (rank, events) in self.job.events.iter().enumerate() {
            let wanted = to.map_or(rank != self.rank, |to| to.contains(&rank));
            if wanted {
                events.push(Event::Message {
                    from: self.rank,
                    bytes: bytes.to_vec(),
                });
            }
        }
        Ok(())
    }

    fn subscribe(&self, sink: Sink) {
        if self.job.process.is_this() {
            self.job.events[self.rank].subscribe(sink);
        }
    }

    fn leave(&self) {
        self.end(
            "it has left the job".into(),
            Event::Left { rank: self.rank },
        );
    }

    fn fail(&self, reason: &str) {
        self.lose(reason);
    }
}

impl Drop for LocalControl {
    fn drop(&mut self) {
        if !self.job.process.is_this() {
            // Other threads of the parent may have been using it.
            return std::mem::forget(Arc::clone(&self.job));
        }
        if std::thread::panicking() {
            self.lose(PANICKED);
        } else {
            self.leave();
        }
        self.job.events[self.rank].close_and_join();
    }
}
