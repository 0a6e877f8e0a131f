//! Results, errors and events of announced addresses.

use std::io;
use std::net::IpAddr;
use std::sync::Arc;

use thiserror::Error;

use super::frame::MacAddress;
use super::settings::SettingWarning;

/// How an address is announced after `announce`.
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use]
pub enum Announced {
    /// At once, on these interfaces.
    Now(Vec<Arc<str>>),
    /// Once probes on these interfaces are not answered: `Layer2Event::Announced` or `Layer2Event::Conflict` follows.
    AfterProbe(Vec<Arc<str>>),
    /// Once the kernel has put it on these interfaces, which takes long: `Layer2Event::Announced` or `Layer2Event::Failed` follows.
    Soon(Vec<Arc<str>>),
}

/// Why an address is not announced.
#[derive(Debug, Error)]
pub enum AnnounceError {
    /// No interface has a subnet that contains it.
    #[error(
        "no interface that is up has a subnet that contains {ip} (subnets: {}){}",
        listed(.subnets), unknown(.missing)
    )]
    NoSubnet {
        /// The address.
        ip: IpAddr,
        /// The subnets in which addresses of its family can be announced, each with its interface.
        subnets: Vec<String>,
        /// The interfaces that were asked for and do not exist.
        missing: Vec<Arc<str>>,
    },
    /// The machine has the address already, and not from here.
    #[error(
        "{ip} is already an address of interface {interface}; remove it there, or take it out of the pool"
    )]
    NotOurs {
        /// The address.
        ip: IpAddr,
        /// Where it is.
        interface: Arc<str>,
    },
    /// The kernel does not take it.
    #[error("cannot add {ip} to interface {interface}: {source}")]
    Refused {
        /// The address.
        ip: IpAddr,
        /// Where it was to be.
        interface: Arc<str>,
        /// The reason.
        source: io::Error,
    },
    /// The links and addresses of the machine cannot be read.
    #[error("cannot read the addresses of this machine: {0}")]
    Unknown(#[from] io::Error),
}

impl AnnounceError {
    /// The address, if one alone is concerned.
    pub fn ip(&self) -> Option<IpAddr> {
        match self {
            Self::NoSubnet { ip, .. } | Self::NotOurs { ip, .. } | Self::Refused { ip, .. } => Some(*ip),
            Self::Unknown(_) => None,
        }
    }
}

fn listed(names: &[String]) -> String {
    if names.is_empty() { "none".to_owned() } else { names.join(", ") }
}

fn unknown(names: &[Arc<str>]) -> String {
    if names.is_empty() { String::new() } else { format!("; there is no interface {}", names.join(", ")) }
}

/// Answer to a conflict.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConflictAnswer {
    /// The address stays and is announced again.
    Defended,
    /// The address was withdrawn. It is probed every 30 s, and announced again when nobody has it.
    Withdrawn,
    /// The address was withdrawn because another gateway has precedence. It is probed every 2 s at the latest.
    LeftToGateway,
    /// The probe showed that another has it, so it was not announced. It is probed again after 1, 2, 4, 8 and 16 s, then every 30 s.
    NotAnnounced,
}

/// Event of announced addresses.
#[derive(Debug)]
pub enum Layer2Event {
    /// Nobody had the address when it was probed, or the kernel has put it on at last; it is announced now.
    Announced {
        /// The address.
        ip: IpAddr,
    },
    /// Another machine uses the address. Reported once per conflict.
    Conflict {
        /// The address.
        ip: IpAddr,
        /// MAC address of the other machine, if its frame has it.
        mac: Option<MacAddress>,
        /// Where it was seen.
        interface: Arc<str>,
        /// Answer to it.
        answer: ConflictAnswer,
    },
    /// Another machine announces an address of this one, and no other gateway is expected to: others may have gone on without this gateway.
    Challenged,
    /// The other machine has not been seen for 30 s; the address is announced.
    ConflictOver {
        /// The address.
        ip: IpAddr,
    },
    /// An interface went down, vanished, or lost a subnet, and these addresses with it. They return with it unless they are withdrawn.
    InterfaceLost {
        /// The interface.
        interface: Arc<str>,
        /// The addresses that are no longer on it.
        addresses: Vec<IpAddr>,
        /// Addresses among them that are on no interface now.
        stranded: Vec<IpAddr>,
    },
    /// An interface that can announce appeared, or has a new subnet. Announced addresses are on it again.
    /// Addresses that were refused for want of a subnet can be tried again.
    InterfaceBack {
        /// The interface.
        interface: Arc<str>,
    },
    /// Somebody removed the address from the interface. It was put on again.
    AddressLost {
        /// The address.
        ip: IpAddr,
        /// The interface.
        interface: Arc<str>,
    },
    /// An address that should be on an interface now cannot be put there. It is announced nowhere, and not tried again.
    Failed(AnnounceError),
    /// These addresses were renewed so late that the kernel may have removed them, and others may have them. They were
    /// withdrawn; announce them again if they still belong here.
    Lapsed {
        /// The addresses.
        addresses: Vec<IpAddr>,
    },
    /// A setting of an interface keeps announcements from working.
    Setting(SettingWarning),
    /// The kernel cannot be kept from answering for announced addresses itself; without a reason, it is again. Reported when that changes.
    KernelAnswers(Option<io::Error>),
}
