//! Runs the peers, one after the other.

use super::place::Peers;
use super::{calls, lines, process};
use crate::cli::FacesArgs;
use crate::results::{Row, Setting};
use std::time::{Duration, Instant};

impl Peers {
    /// Runs all programs that were asked for, one after the other. Returns a row for each measurement, and a failed row for
    /// each that could not be made. `ours` is the setting of our rows; `note` reports the progress.
    pub fn run(&self, args: &FacesArgs, ours: &Setting, note: &mut dyn FnMut(&str)) -> Vec<Row> {
        let begin = Instant::now();
        let limit = Duration::from_secs(args.peers_limit);
        let mut rows = Vec::new();
        for call in calls::calls(args) {
            let failed = |why: String| lines::failed(&call, args, ours, why);
            if let Some(why) = self.missing(call.peer) {
                // Once a peer is enough.
                if !rows.iter().any(|row: &Row| row.who == call.peer.name()) {
                    note(&format!("{}: {why}", call.peer));
                    rows.push(failed(why.to_owned()));
                }
                continue;
            }
            if begin.elapsed().as_secs() >= args.peers_budget {
                note(&format!("{}: no time left", call.label));
                rows.push(failed(format!(
                    "not run: the {} seconds of --peers-budget are over",
                    args.peers_budget
                )));
                continue;
            }
            let ended = self
                .command(&call, args)
                .map_err(|error| error.to_string())
                .and_then(|command| {
                    process::run(command, limit, &self.logs(), &call.label)
                        .map_err(|error| format!("could not be started: {error}"))
                });
            match ended {
                Err(why) => {
                    note(&format!("{}: {why}", call.label));
                    rows.push(failed(why));
                }
                Ok(ended) => {
                    let found = lines::rows(&call, args, ours, &ended);
                    note(&format!(
                        "{}: {}, {:.0} s, {} rows",
                        call.label,
                        ended.how,
                        ended.took.as_secs_f64(),
                        found.len()
                    ));
                    rows.extend(found);
                }
            }
        }
        rows
    }
}
