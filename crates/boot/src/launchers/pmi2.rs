//! PMI-2: the servers of [version 1](super::pmi1), greeted in version 2.
//!
//! # Model
//!
//! The greeting is a line of version 1. Then come messages with their length in front: `cmd=kvs-put;key=…;value=…;`.
//! The server tells the rank. Version 1 is tried first, since every such server has it. Version 2 is for servers
//! without it, and for `TIDEGATE_LAUNCHER=pmi2` (since MPI in the same process may speak it).
//!
//! # Failure
//!
//! As in version 1.

use super::read::{self, PmiAnswer};
use super::store::{Store, StoreError};
use super::talk::Talk;
use std::time::Instant;

/// The standard's limit. Servers tell no other.
const ROOM: usize = 1023;

#[derive(Debug)]
pub(crate) struct Pmi2 {
    talk: Talk,
    place: (usize, usize),
    job: String,
}

fn request(talk: &mut Talk, command: &str, arguments: &str) -> Result<PmiAnswer, StoreError> {
    talk.say(&read::frame(&format!("cmd={command};{arguments}")))?;
    let answer = talk.hear(read::message)?;
    if answer.command() != format!("{command}-response") {
        let found = answer.command();
        let why = format!("it says `{found}` where the answer to `{command}` should come");
        return Err(StoreError::Garbled(why));
    }
    answer.accepted()?;
    Ok(answer)
}

impl Pmi2 {
    /// Continues after the greeting.
    pub(crate) fn start(mut talk: Talk, place: (usize, usize)) -> Result<Self, StoreError> {
        let rank = place.0;
        let mut arguments = format!("pmirank={rank};threaded=FALSE;");
        let job = std::env::var("PMI_JOBID").unwrap_or_default();
        if !job.is_empty() {
            arguments = format!("pmijobid={};{arguments}", job.replace(';', ";;"));
        }
        let init = request(&mut talk, "fullinit", &arguments)?;
        let place = (init.number("rank")?, init.number("size")?);
        let answer = request(&mut talk, "job-getid", "")?;
        let job = answer.get("jobid").unwrap_or_default();
        if job.is_empty() {
            return Err(StoreError::Garbled("its job has no name".into()));
        }
        let job = job.replace(';', ";;");
        Ok(Self { talk, place, job })
    }
}

impl Store for Pmi2 {
    fn place(&self) -> (usize, usize) {
        self.place
    }

    fn room(&self) -> usize {
        ROOM
    }

    fn put(&mut self, key: &str, value: &str) -> Result<(), StoreError> {
        let value = value.replace(';', ";;");
        request(
            &mut self.talk,
            "kvs-put",
            &format!("key={key};value={value};"),
        )?;
        Ok(())
    }

    fn fence(&mut self) -> Result<(), StoreError> {
        request(&mut self.talk, "kvs-fence", "")?;
        Ok(())
    }

    fn get(&mut self, key: &str) -> Result<String, StoreError> {
        let job = &self.job;
        // -1 means that any process may have put it.
        let arguments = format!("jobid={job};srcid=-1;key={key};");
        let answer = request(&mut self.talk, "kvs-get", &arguments)?;
        let found = answer.get("found").or(answer.get("flag"));
        if found.is_some_and(|found| !found.eq_ignore_ascii_case("true")) {
            return Err(StoreError::Refused(format!("it has no `{key}`")));
        }
        answer.value()
    }

    fn leave(&mut self, deadline: Instant) -> Result<(), StoreError> {
        self.talk.set_deadline(deadline);
        request(&mut self.talk, "finalize", "")?;
        Ok(())
    }
}
