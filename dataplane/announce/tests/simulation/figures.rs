//! How long a takeover takes with the defaults. `--ignored --nocapture` prints the figures of the README.

use std::time::Duration;

use crate::ADDRESSES;
use crate::network::{Network, ms};

/// The times that the addresses of killed gateways were without an owner, sorted.
fn takeovers(machines: usize, loss: f64, seeds: u64) -> Vec<Duration> {
    let mut times = Vec::new();
    for seed in 0..seeds {
        let mut network = Network::settled(seed, machines, ADDRESSES);
        network.set_links(|link| link.loss = loss);
        let pause = network.below(1_000);
        network.run(ms(pause));
        let victim = network.below(machines as u64) as usize;
        let lost = network.kill(victim);
        network.run(ms(3_000));
        times.extend(network.judge.gaps(&lost));
    }
    times.sort_unstable();
    times
}

fn percentile(times: &[Duration], percent: usize) -> Duration {
    times[(times.len() - 1) * percent / 100]
}

#[test]
fn takeovers_take_no_longer_than_promised() {
    let times = takeovers(5, 0.0, 30);
    assert!(percentile(&times, 100) <= crate::TAKEN_OVER, "{:?}", percentile(&times, 100));
}

#[test]
#[ignore = "a measurement"]
fn time_to_take_over() {
    for machines in [3, 5, 10] {
        for loss in [0.0, 0.01, 0.1] {
            let times = takeovers(machines, loss, 200);
            let [p50, p99, most] = [50, 99, 100].map(|percent| percentile(&times, percent));
            println!("{machines} gateways, {loss} lost: p50 {p50:?}, p99 {p99:?}, most {most:?}");
        }
    }
}
