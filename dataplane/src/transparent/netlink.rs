//! Requests to the kernel over netlink, and its answers. It must not know what is asked for.

use std::io::{self, Read};

use netlink_packet_core::{
    NLM_F_ACK, NLM_F_DUMP, NLM_F_REQUEST, NetlinkDeserializable, NetlinkHeader, NetlinkMessage,
    NetlinkPayload, NetlinkSerializable,
};

use crate::sys::Errno;
use crate::sys::sockets::Netlink;

/// What the kernel writes at most into one answer (NLMSG_GOODSIZE and `max_recvmsg_len` in net/netlink/af_netlink.c).
const LONGEST_ANSWER: usize = 32 << 10;
/// Messages begin at multiples of this (NLMSG_ALIGNTO in linux/netlink.h).
const ALIGNMENT: usize = 4;

/// A message with `flags` beside the one that makes it a request.
pub(super) fn message<M>(content: impl Into<NetlinkPayload<M>>, flags: u16) -> NetlinkMessage<M> {
    let mut header = NetlinkHeader::default();
    header.flags = NLM_F_REQUEST | flags;
    NetlinkMessage::new(header, content.into())
}

/// Sends messages at once and waits for the answer to each that asks for one (`NLM_F_ACK`). The first refusal ends it, and
/// with it the use of the socket: answers to the others may still be waiting there.
pub(super) fn request<M: NetlinkSerializable + NetlinkDeserializable>(
    netlink: &Netlink,
    messages: Vec<NetlinkMessage<M>>,
) -> io::Result<()> {
    let mut unanswered = messages.iter().filter(|message| message.header.flags & NLM_F_ACK != 0).count();
    send(netlink, messages)?;
    while unanswered > 0 {
        for answer in receive::<M>(netlink)? {
            if let NetlinkPayload::Error(verdict) = answer.payload {
                if verdict.code.is_some() {
                    return Err(verdict.to_io());
                }
                unanswered -= 1;
            }
        }
    }
    Ok(())
}

/// The one answer to a question that has one.
pub(super) fn ask<M: NetlinkSerializable + NetlinkDeserializable>(
    netlink: &Netlink,
    question: impl Into<NetlinkPayload<M>>,
) -> io::Result<Vec<M>> {
    send(netlink, vec![message(question, 0)])?;
    let answer = |answer: NetlinkMessage<M>| match answer.payload {
        NetlinkPayload::InnerMessage(item) => Some(Ok(item)),
        NetlinkPayload::Error(verdict) => Some(Err(verdict.to_io())),
        _ => None,
    };
    receive(netlink)?.into_iter().filter_map(answer).collect()
}

/// Everything of the kind that `content` asks for.
pub(super) fn list<M: NetlinkSerializable + NetlinkDeserializable>(
    netlink: &Netlink,
    content: impl Into<NetlinkPayload<M>>,
) -> io::Result<Vec<M>> {
    send(netlink, vec![message(content, NLM_F_DUMP)])?;
    let mut items = Vec::new();
    loop {
        for answer in receive(netlink)? {
            match answer.payload {
                NetlinkPayload::InnerMessage(item) => items.push(item),
                NetlinkPayload::Done(_) => return Ok(items),
                NetlinkPayload::Error(verdict) if verdict.code.is_some() => return Err(verdict.to_io()),
                _ => {}
            }
        }
    }
}

fn send<M: NetlinkSerializable>(netlink: &Netlink, messages: Vec<NetlinkMessage<M>>) -> io::Result<()> {
    let mut bytes = Vec::new();
    for mut message in messages {
        message.finalize();
        let mut one = vec![0; message.buffer_len().next_multiple_of(ALIGNMENT)];
        message.serialize(&mut one);
        bytes.append(&mut one);
    }
    // Datagrams are taken whole or not at all.
    netlink.socket.send(&bytes).map(drop)
}

fn receive<M: NetlinkDeserializable>(netlink: &Netlink) -> io::Result<Vec<NetlinkMessage<M>>> {
    let mut buffer = vec![0; LONGEST_ANSWER];
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

/// Whether the kernel refused with this error.
pub(super) fn is(error: &io::Error, errno: Errno) -> bool {
    error.raw_os_error() == Some(errno as i32)
}

/// Takes these errors for success.
pub(super) fn unless(harmless: &[Errno], outcome: io::Result<()>) -> io::Result<()> {
    match outcome {
        Err(error) if harmless.iter().any(|&errno| is(&error, errno)) => Ok(()),
        outcome => outcome,
    }
}
