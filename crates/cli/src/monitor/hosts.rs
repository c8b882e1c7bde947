//! The monitor's part for ranks on other hosts.

use super::Monitor;
use crate::error::LaunchError;
use crate::hosts::{FromHost, Hosts, INPUT_CREDIT, ToHost, connect};
use crate::job::{Input, Output};
use crate::output::RankStream;
use crate::printer::StdStream;
use crate::rank::{Rank, RankPlacement};
use crate::running::{RankProcess, SignalPath};
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;
use std::time::Instant;
use tidegate_boot::starter::in_words;
use tidegate_hal::lock;

/// The status of ranks whose host is lost: the one of ssh when its connection fails.
const LOST: i32 = 255 << 8;

impl Monitor {
    pub(super) fn start_on_hosts(
        &mut self,
        hosts: &Hosts,
        secret: &str,
    ) -> Result<(), LaunchError> {
        let (links, pids) = connect(&self.job, hosts, secret, &self.signals)?;
        self.links = links;
        self.input_credit = (self.job.input == Input::Inherited).then_some(INPUT_CREDIT);
        for (host, link) in self.links.iter().enumerate() {
            for rank in link.ranks() {
                let (pid, reach) = (pids[rank], Some(SignalPath::There(link.sender().clone())));
                lock(&self.remote.processes).push(RankProcess { pid, reach });
                self.ranks.push(Rank {
                    pid,
                    process: RankPlacement::There(host),
                    ended: None,
                    captured: [Vec::new(), Vec::new()],
                    because_of: None,
                });
                if self.job.output == Output::Discarded {
                    continue;
                }
                let source = |stream| RankStream::new(None, stream, rank, self.job.output);
                self.sources.extend(StdStream::BOTH.map(source));
            }
        }
        Ok(())
    }

    /// Handles messages of a host. Adds ranks that have ended to `ended`.
    pub(super) fn hear_host(&mut self, host: usize, ended: &mut Vec<usize>) {
        let link = &mut self.links[host];
        link.hear_errors();
        let mut messages = Vec::new();
        let is_over = link.hear(&mut messages);
        let (lines, ranks) = (link.take_lines(), link.ranks());
        for message in messages {
            match message {
                FromHost::Output {
                    rank,
                    stream,
                    bytes,
                } => {
                    self.links[host].owe(stream, bytes.len());
                    if let Some(index) = self.source(rank, stream) {
                        self.sources[index].feed(&bytes, self.printer.as_ref());
                    }
                }
                FromHost::Closed { rank, stream } => {
                    if let Some(index) = self.source(rank, stream) {
                        self.finish(index);
                    }
                }
                FromHost::Ended { rank, status, told } if ranks.contains(&rank) => {
                    self.has_ended(rank, ExitStatus::from_raw(status), told);
                    ended.push(rank);
                }
                FromHost::TookInput { bytes } => {
                    self.input_credit = self.input_credit.map(|credit| credit + bytes);
                }
                FromHost::ClosedInput => self.input_credit = None,
                FromHost::Say(line) => self.explain_of_host(host, &line),
                FromHost::Failed { reason, .. } => self.explain_of_host(host, &reason),
                FromHost::Ended { .. } | FromHost::Ready { .. } | FromHost::Started { .. } => {}
            }
        }
        for line in lines {
            self.explain_of_host(host, &line);
        }
        if let Err(reason) = is_over {
            self.lose(host, &reason, ended);
        }
    }

    /// Passes on input for rank 0, or its end.
    pub(super) fn pass_input_on(&mut self) {
        let mut chunk = [0; 4096];
        let credit = self.input_credit.unwrap_or_default().min(chunk.len());
        // An input that cannot be read counts as ended.
        let count = rustix::io::read(rustix::stdio::stdin(), &mut chunk[..credit]).unwrap_or(0);
        let bytes = chunk[..count].to_vec();
        self.input_credit = self
            .input_credit
            .map(|credit| credit - count)
            .filter(|_| count > 0);
        if let Some(first) = self.links.first() {
            first.sender().send(&ToHost::Input(bytes));
        }
    }

    fn explain_of_host(&self, host: usize, line: &str) {
        let name = self.links[host].name();
        self.explain(format_args!("host {name}: {line}"));
    }

    fn source(&self, rank: usize, stream: StdStream) -> Option<usize> {
        let is_it = |source: &RankStream| source.rank() == rank && source.stream() == stream;
        self.sources.iter().position(is_it)
    }

    /// Handles the end of a connection to a host. Its ranks that have not ended count as failed.
    fn lose(&mut self, host: usize, reason: &str, ended: &mut Vec<usize>) {
        let ranks = self.links[host].ranks();
        let lost: Vec<usize> = ranks
            .clone()
            .filter(|rank| self.ranks[*rank].ended.is_none())
            .collect();
        if !lost.is_empty() {
            let lost = in_words(&lost);
            self.explain_of_host(host, &format!("lost, with {lost}: {reason}"));
        }
        for rank in lost {
            self.has_ended(rank, ExitStatus::from_raw(LOST), None);
            ended.push(rank);
        }
        while let Some(index) = self
            .sources
            .iter()
            .position(|own| ranks.contains(&own.rank()))
        {
            self.finish(index);
        }
    }

    /// Gives hosts new credit for output, where there is room.
    pub(super) fn grant(&mut self) {
        for stream in StdStream::BOTH {
            let printer = self
                .printer
                .as_ref()
                .filter(|_| self.job.output != Output::Captured);
            if printer.is_none_or(|printer| printer.has_room(stream)) {
                self.links.iter_mut().for_each(|link| link.grant(stream));
            }
        }
    }

    /// Tells the hosts that all ranks have ended, so that they stop waiting for output that others hold open.
    pub(super) fn tell_hosts_of_the_last(&self) {
        self.links
            .iter()
            .for_each(|link| link.sender().send(&ToHost::Last));
    }

    /// Ends the connections to hosts that have not reported in time that their ranks were killed.
    pub(super) fn give_up_hosts(&mut self) {
        if self.give_up_hosts.is_some_and(|at| Instant::now() >= at) {
            self.give_up_hosts = None;
            for link in &mut self.links {
                if link.ranks().any(|rank| self.ranks[rank].ended.is_none()) {
                    link.kill();
                }
            }
        }
    }
}
