//! A host whose loopback device has only the address of IPv6.

use std::process::Command;
use tidegate_boot::{Invitation, TcpControl};
use tidegate_cli::Job;
use tidegate_testbed::Bed;

use super::ground::job;

const INSIDE: &str = "TEST_INSIDE";
const THIS: &str = "loopback::ranks_meet_where_there_is_only_ipv6";

fn meet_by_invitation(near: bool) {
    let (invitation, listener) = Invitation::offer(near).unwrap();
    let line = invitation.line();
    let other = std::thread::spawn(move || {
        let config = Invitation::parse(&line).unwrap().config(1, 2).unwrap();
        drop(TcpControl::join(config).unwrap());
    });
    let mut config = invitation.config(0, 2).unwrap();
    config.listener = Some(listener);
    drop(TcpControl::join(config).unwrap());
    other.join().unwrap();
}

#[test]
fn ranks_meet_where_there_is_only_ipv6() {
    if std::env::var_os(INSIDE).is_some() {
        let ranks = |job: Job| {
            let outcome = job.run().unwrap();
            assert!(outcome.success(), "{outcome:?}");
        };
        ranks(job("nothing", 3));
        ranks(Job::new("/bin/sh", 1).args([
            "-c",
            "test $MASTER_ADDR = ::1 && test $TIDEGATE_ADDRESS = ::1",
        ]));
        [true, false].into_iter().for_each(meet_by_invitation);
        return;
    }
    if Bed::builder(1).build_or_skip(THIS).is_none() {
        return;
    }
    let kind = match rustix::process::geteuid().is_root() {
        true => "--net",
        false => "--net --map-root-user",
    };
    let script = "ip link set lo up && ip -4 address flush dev lo && exec \"$0\" \"$@\"";
    let output = Command::new("unshare")
        .args(kind.split(' '))
        .args(["/bin/sh", "-c", script])
        .arg(std::env::current_exe().unwrap())
        .args(["--exact", THIS, "--nocapture"])
        .env(INSIDE, "")
        .output()
        .unwrap();
    assert!(output.status.success(), "{output:?}");
}
