//! Netlink requests to the kernel, and its replies.

use std::io::{self, Read};

use netlink_packet_core::{
    NLM_F_ACK, NLM_F_DUMP, NLM_F_REQUEST, NetlinkDeserializable, NetlinkHeader, NetlinkMessage,
    NetlinkPayload, NetlinkSerializable,
};

use crate::sys::Errno;
use crate::sys::sockets::Netlink;

/// Maximum length of a reply (NLMSG_GOODSIZE and `max_recvmsg_len` in net/netlink/af_netlink.c).
const LONGEST_REPLY: usize = 32 << 10;
/// Alignment of messages (NLMSG_ALIGNTO in linux/netlink.h).
const ALIGNMENT: usize = 4;

/// Builds a request with these additional flags.
pub(super) fn message<M>(content: impl Into<NetlinkPayload<M>>, flags: u16) -> NetlinkMessage<M> {
    let mut header = NetlinkHeader::default();
    header.flags = NLM_F_REQUEST | flags;
    NetlinkMessage::new(header, content.into())
}

/// Sends messages at once, waits for the end of each reply that was requested (`NLM_F_ACK`, `NLM_F_DUMP`), and returns the
/// content of the replies. After the first error the socket must not be used any more, since other replies may still be
/// queued.
pub(super) fn exchange<M: NetlinkSerializable + NetlinkDeserializable>(
    netlink: &Netlink,
    messages: Vec<NetlinkMessage<M>>,
) -> io::Result<Vec<M>> {
    let replies = |message: &&NetlinkMessage<M>| message.header.flags & (NLM_F_ACK | NLM_F_DUMP) != 0;
    let mut pending = messages.iter().filter(replies).count();
    send(netlink, messages)?;
    let mut items = Vec::new();
    while pending > 0 {
        for reply in receive(netlink)? {
            match reply.payload {
                NetlinkPayload::InnerMessage(item) => items.push(item),
                NetlinkPayload::Error(verdict) if verdict.code.is_some() => return Err(verdict.to_io()),
                NetlinkPayload::Error(_) | NetlinkPayload::Done(_) => pending -= 1,
                _ => {}
            }
        }
    }
    Ok(items)
}

fn send<M: NetlinkSerializable>(netlink: &Netlink, messages: Vec<NetlinkMessage<M>>) -> io::Result<()> {
    let mut bytes = Vec::new();
    for mut message in messages {
        message.finalize();
        let mut one = vec![0; message.buffer_len().next_multiple_of(ALIGNMENT)];
        message.serialize(&mut one);
        bytes.append(&mut one);
    }
    // Datagrams are sent whole or not at all.
    netlink.socket.send(&bytes).map(drop)
}

fn receive<M: NetlinkDeserializable>(netlink: &Netlink) -> io::Result<Vec<NetlinkMessage<M>>> {
    let mut buffer = vec![0; LONGEST_REPLY];
    let length = (&netlink.socket).read(&mut buffer)?;
    let mut rest = &buffer[..length];
    let mut messages = Vec::new();
    while !rest.is_empty() {
        let message: NetlinkMessage<M> = NetlinkMessage::deserialize(rest).map_err(io::Error::other)?;
        let taken = (message.header.length as usize).next_multiple_of(ALIGNMENT);
        rest = rest.get(taken..).unwrap_or_default();
        messages.push(message);
    }
    Ok(messages)
}

/// Whether the error has this number.
pub(super) fn is(error: &io::Error, errno: Errno) -> bool {
    error.raw_os_error() == Some(errno as i32)
}

/// Treats these errors as success.
pub(super) fn unless<T>(harmless: &[Errno], outcome: io::Result<T>) -> io::Result<()> {
    match outcome {
        Err(error) if harmless.iter().any(|&errno| is(&error, errno)) => Ok(()),
        outcome => outcome.map(drop),
    }
}
