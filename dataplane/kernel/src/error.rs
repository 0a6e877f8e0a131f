//! Why the kernel path is not there, or a change of it failed.

use std::io;

/// Why the kernel's table could not be read or changed. A change that failed had no effect.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The process may not change nf_tables.
    #[error("the right CAP_NET_ADMIN is missing")]
    NoRight,
    /// The kernel lacks something that the rules need.
    #[error("the kernel cannot load the rules (message {number} of the batch: {error})")]
    NotSupported {
        /// Number of the message that it refused.
        number: u32,
        /// Why.
        error: io::Error,
    },
    /// The table belongs to a living process, such as a second instance.
    #[error("the table `sheave` belongs to another process (netlink port {port})")]
    OwnedBy {
        /// The netlink port of that process's socket, often its process id.
        port: u32,
    },
    /// Another process changes the tables, to which this kernel gives no owner.
    #[error("the tables `sheave` are another process's: it has {0}")]
    Locked(String),
    /// The kernel gives the tables no owner, and there is nothing else that keeps other processes away from them.
    #[error("on this kernel a lock keeps other processes from the tables `sheave`: {0}")]
    Unlockable(String),
    /// The tables are those of an installation that may come back to them.
    #[error(
        "the tables `sheave` belong to the installation {installation:?}; if it is gone, `nft delete table ip sheave` and `nft delete table ip6 sheave` remove them"
    )]
    OfAnother {
        /// Its name.
        installation: String,
    },
    /// A message of a batch met a table that belongs to another process.
    #[error("the table `sheave` belongs to another process (message {number} of the batch)")]
    Owned {
        /// Number of the message.
        number: u32,
    },
    /// A table has our name but nothing else of ours.
    #[error("there is a table `sheave` of somebody else")]
    Foreign,
    /// Somebody flushed or replaced the table.
    #[error("the table `sheave` was changed by somebody else")]
    Changed,
    /// The kernel refused a message.
    #[error("the kernel refused message {number} of a batch: {error}")]
    Refused {
        /// Number of the message, from 1.
        number: u32,
        /// Why.
        error: io::Error,
    },
    /// The socket failed.
    #[error("netlink: {0}")]
    Socket(#[from] io::Error),
}
