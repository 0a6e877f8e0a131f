//! Capture of a client's packets on both sides of the gateway, and the step that counts them.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use sheave_model::FrontendAddr;
use sheave_trace::capture::{Bounds, CaptureError, Captured, Conversation, EndedBy, capture};
use sheave_trace::link::Link;

use super::arrival;
use super::subject::Subject;
use crate::views::trace::StepView;

/// Longest capture: the admin server ends an answer after a minute.
pub(super) const LONGEST: Duration = Duration::from_secs(45);
/// Limit of endpoints whose packets are captured.
const ENDPOINTS: usize = 32;

/// Lengths of the file's header and of the header of each packet in it (pcap-savefile(5)), and of Linux's cooked header, version 2.
const FILE_HEADER: usize = 24;
const RECORD_HEADER: usize = 16;
const COOKED_HEADER: usize = 20;

/// A capture that is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Wanted {
    pub(super) time: Duration,
    /// Whether what the sides send each other may be in the file, and not just headers.
    pub(super) payload: bool,
}

/// A finished capture.
#[derive(Clone, Debug)]
pub(super) struct Capture {
    pub(super) captured: Captured,
    /// Packets of the client that came, and those that were answers.
    pub(super) directions: [u64; 2],
    /// The file, in the pcap format.
    pub(super) file: Vec<u8>,
}

/// Captures the packets of the client at the frontend, and those of the gateway at its endpoints.
pub(super) fn take(
    subject: &Subject,
    addr: FrontendAddr,
    Wanted { time, payload }: Wanted,
) -> Result<Capture, CaptureError> {
    let client = Conversation {
        protocol: addr.protocol,
        server: addr.socket_addr(),
        peer: subject.client_ip(),
        peer_port: subject.client.and_then(|client| client.port),
    };
    let endpoint =
        |server: &SocketAddr| Conversation { server: *server, peer: None, peer_port: None, ..client };
    let all: Vec<Conversation> =
        [client].into_iter().chain(subject.endpoints.iter().take(ENDPOINTS).map(endpoint)).collect();
    let bounds = Bounds { time, payload, ..Bounds::default() };
    let mut file = io::Cursor::new(Vec::new());
    let captured = capture(&all, &bounds, &AtomicBool::new(false), &mut file)?;
    let file = file.into_inner();
    Ok(Capture { captured, directions: directions(&file, addr.ip, subject.client_ip()), file })
}

/// Judges what was captured.
pub(super) fn step(
    subject: &Subject,
    addr: FrontendAddr,
    time: Duration,
    taken: &Result<Capture, CaptureError>,
    links: &[Link],
) -> StepView {
    let who = subject.client_ip().map_or_else(|| "clients".to_owned(), |ip| ip.to_string());
    let step = StepView::new("capture", format!("packets of {who} at {addr}, for {} s", time.as_secs()));
    let capture = match taken {
        Ok(capture) => capture,
        Err(error) => return step.unseen(error.to_string()),
    };
    if matches!(capture.captured.ended_by, EndedBy::Packets | EndedBy::Bytes) {
        let packets = capture.captured.packets;
        return step.unseen(format!("the file was full after {packets} packets, before the time was over"));
    }
    let [came, answered] = capture.directions;
    let found = format!(
        "{came} packets came, {answered} went back; with those of endpoints, {} are in the file",
        capture.captured.packets
    );
    match (came, answered) {
        (0, _) => step.stopped(
            format!("no packet of {who} arrived"),
            format!(
                "they go elsewhere or are dropped on the way: look at the client's route and neighbours (ip route get, ip neigh) and at the routers between{}",
                subject.client_ip().and_then(|client| arrival::may_be_refused(client, addr.ip, links)).unwrap_or_default()
            ),
        ),
        (_, 0) => step.stopped(
            format!("{came} packets of {who} arrived, and none was answered"),
            "something drops them between this machine's interface and the gateway: packet filters, source ranges, rp_filter",
        ),
        _ => step.ok(found),
    }
}

/// Number of packets to the frontend's address (from the client, if it is known), and of those from it.
fn directions(file: &[u8], frontend: IpAddr, client: Option<IpAddr>) -> [u64; 2] {
    let mut counts = [0; 2];
    let mut rest = file.get(FILE_HEADER..).unwrap_or_default();
    while let Some((source, destination, next)) = packet(rest) {
        let is = |ip: Option<IpAddr>| client.is_none() || ip == client;
        counts[0] += u64::from(destination == Some(frontend) && is(source));
        counts[1] += u64::from(source == Some(frontend) && is(destination));
        rest = next;
    }
    counts
}

/// Source and destination of the first packet, and what is behind it.
fn packet(records: &[u8]) -> Option<(Option<IpAddr>, Option<IpAddr>, &[u8])> {
    let length = u32::from_le_bytes(records.get(8..12)?.try_into().ok()?) as usize;
    let (packet, next) = records.get(RECORD_HEADER..)?.split_at_checked(length)?;
    let ip = packet.get(COOKED_HEADER..)?;
    let address = |from: usize, length: usize| -> Option<IpAddr> {
        let bytes = ip.get(from..from + length)?;
        <[u8; 4]>::try_from(bytes)
            .map(IpAddr::from)
            .or_else(|_| <[u8; 16]>::try_from(bytes).map(IpAddr::from))
            .ok()
    };
    let (source, destination) = match ip.first()? >> 4 {
        4 => (address(12, 4), address(16, 4)),
        _ => (address(8, 16), address(24, 16)),
    };
    Some((source, destination, next))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(source: [u8; 4], destination: [u8; 4]) -> Vec<u8> {
        let ip = [&[0x45; 12][..], &source, &destination].concat();
        let length = u32::try_from(COOKED_HEADER + ip.len()).unwrap().to_le_bytes();
        [&[0; 8][..], &length, &length, &[0; COOKED_HEADER], &ip].concat()
    }

    #[test]
    fn packets_are_counted_by_direction_and_client() {
        let (frontend, client, other) = ([203, 0, 113, 10], [198, 51, 100, 7], [198, 51, 100, 8]);
        let records = [
            record(client, frontend),
            record(frontend, client),
            record(client, frontend),
            record(other, frontend),
        ];
        let mut file = [&[0; FILE_HEADER][..], &records.concat()].concat();
        assert_eq!(directions(&file, frontend.into(), Some(client.into())), [2, 1]);
        assert_eq!(directions(&file, frontend.into(), None), [3, 1]);
        file.truncate(file.len() - 3);
        assert_eq!(directions(&file, frontend.into(), None), [2, 1]);
    }
}
