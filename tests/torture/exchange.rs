//! Scripts of UDP clients and the server's answers.

use std::time::Duration;

use proptest::prelude::*;

/// Number of clients, each with a socket.
pub(crate) const CLIENTS: usize = 4;

/// Limit of bytes under way, all of which fit into a socket's buffer, so nothing may be lost.
const MOST_BYTES: usize = 60_000;

/// Sequence of steps. Each ends when everything has arrived.
#[derive(Clone, Debug)]
pub(crate) struct Script {
    /// Seed of the bytes.
    pub(crate) seed: u64,
    pub(crate) steps: Vec<Step>,
}

/// Step of a script.
#[derive(Clone, Debug)]
pub(crate) enum Step {
    /// Clients send one after the other, as fast as they can.
    Burst(Vec<Sent>),
    /// Many new clients send one datagram each, are answered, and close.
    Strangers(usize),
    /// A client changes its port, perhaps while it is being answered.
    Rebind {
        client: usize,
        asks_before: bool,
    },
    /// The server is gone while a client sends.
    Outage {
        client: usize,
        count: usize,
    },
    Pause(Duration),
}

/// Datagrams of a client, and their answers.
#[derive(Clone, Debug)]
pub(crate) struct Sent {
    pub(crate) client: usize,
    pub(crate) datagrams: Datagrams,
    pub(crate) answers: Datagrams,
}

/// Datagrams to one receiver.
#[derive(Clone, Debug)]
pub(crate) enum Datagrams {
    /// Single datagrams of these sizes.
    Single(Vec<usize>),
    /// One call (`UDP_SEGMENT`) with `count` datagrams of one size, and a shorter one.
    Bundle { count: usize, size: usize, rest: usize },
}

impl Datagrams {
    /// Sizes in the order of arrival.
    pub(crate) fn sizes(&self) -> Vec<usize> {
        match self {
            Self::Single(sizes) => sizes.clone(),
            Self::Bundle { count, size, rest } => {
                let rest = (*rest > 0).then_some(*rest);
                std::iter::repeat_n(*size, *count).chain(rest).collect()
            }
        }
    }
}

pub(crate) fn any_script() -> impl Strategy<Value = Script> {
    (any::<u64>().no_shrink(), prop::collection::vec(any_step(), 1..8))
        .prop_map(|(seed, steps)| Script { seed, steps })
}

fn any_step() -> impl Strategy<Value = Step> {
    let client = 0..CLIENTS;
    prop_oneof![
        8 => prop::collection::vec(any_sent(), 1..6).prop_map(|burst| Step::Burst(bounded(burst))),
        1 => (1_usize..20).prop_map(Step::Strangers),
        1 => (client.clone(), any::<bool>())
            .prop_map(|(client, asks_before)| Step::Rebind { client, asks_before }),
        1 => (client, 1_usize..4).prop_map(|(client, count)| Step::Outage { client, count }),
        1 => (0_u64..60).prop_map(|time| Step::Pause(Duration::from_millis(time))),
    ]
}

fn any_sent() -> impl Strategy<Value = Sent> {
    (0..CLIENTS, any_datagrams(), any_datagrams()).prop_map(|(client, datagrams, answers)| Sent {
        client,
        datagrams,
        answers,
    })
}

fn any_datagrams() -> impl Strategy<Value = Datagrams> {
    let size = prop_oneof![
        2 => Just(0_usize),
        2 => 1_usize..12,
        4 => 12_usize..600,
        3 => 600_usize..1500,
        1 => 1500_usize..9000,
        1 => 9000_usize..MOST_BYTES,
    ];
    let bundle = (2_usize..12, 1_usize..1400, 0_usize..1400);
    prop_oneof![
        3 => prop::collection::vec(size, 0..6).prop_map(Datagrams::Single),
        1 => bundle.prop_map(|(count, size, rest)| Datagrams::Bundle { count, size, rest: rest % size }),
    ]
}

/// Removes what would not fit into a buffer along with what precedes it.
fn bounded(burst: Vec<Sent>) -> Vec<Sent> {
    let (mut forth, mut back) = (MOST_BYTES, MOST_BYTES);
    let fits = |left: &mut usize, datagrams: &Datagrams| {
        // A datagram uses more of a buffer than its bytes.
        let bytes = datagrams.sizes().iter().map(|size| size + 1000).sum();
        let rest = left.checked_sub(bytes);
        rest.inspect(|rest| *left = *rest).is_some()
    };
    let both = |sent: &Sent| fits(&mut forth, &sent.datagrams) && fits(&mut back, &sent.answers);
    burst
        .into_iter()
        .filter({
            let mut both = both;
            move |sent| both(sent)
        })
        .collect()
}
