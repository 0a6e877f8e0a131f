//! nftables rules on the gateway that send what comes to the subject's address on to the server.

use std::io::Write;
use std::process::{Command, Stdio};

use crate::entrant::Subject;
use crate::failure::{During, Failure};
use crate::topology::{Host, SERVER};

use super::address;

/// How long the kernel remembers connections that have ended, in seconds. Its default of two minutes would fill its table
/// (`nf_conntrack_max`) with those of a few seconds of the connect row.
const FORGET_AFTER: [&str; 4] = [
    "net/netfilter/nf_conntrack_tcp_timeout_time_wait",
    "net/netfilter/nf_conntrack_tcp_timeout_close",
    "net/netfilter/nf_conntrack_tcp_timeout_close_wait",
    "net/netfilter/nf_conntrack_tcp_timeout_last_ack",
];

/// The rules; dropping them takes them away, so that no other subject pays for the kernel's tracking of connections.
#[derive(Debug)]
pub(super) struct Rules {
    gateway: Host,
}

impl Rules {
    pub(super) fn install(gateway: &Host) -> Result<Self, Failure> {
        let text = format!(
            "table ip compare {{
    chain translate {{
        type nat hook prerouting priority dstnat;
        ip daddr {} dnat to {SERVER}
    }}
}}
",
            address(Subject::Dnat)
        );
        let rules = Self { gateway: gateway.clone() };
        run(gateway, text)?;
        for key in FORGET_AFTER {
            gateway.sysctl(key, "1")?;
        }
        Ok(rules)
    }
}

impl Drop for Rules {
    fn drop(&mut self) {
        if let Err(failure) = run(&self.gateway, "delete table ip compare\n".to_owned()) {
            eprintln!("compare: the rules of dnat stay in force: {failure}");
        }
    }
}

fn run(gateway: &Host, text: String) -> Result<(), Failure> {
    let nft = super::program("nft").unwrap_or_else(|| "nft".into());
    let output = gateway.call(move || {
        let mut child = Command::new(nft)
            .args(["-f", "-"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()?;
        if let Some(mut input) = child.stdin.take() {
            input.write_all(text.as_bytes())?;
        }
        child.wait_with_output()
    })?;
    let output = output.during("run `nft` (Debian package nftables)")?;
    if output.status.success() {
        return Ok(());
    }
    Err(Failure::program("nft", String::from_utf8_lossy(&output.stderr).trim()))
}
