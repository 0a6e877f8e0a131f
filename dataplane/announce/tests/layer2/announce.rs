//! Announces addresses until it is ended, and prints what happens: `announce [--adopt] [--probe] [--once] [--lasting] ADDRESS...`. With `--once` it
//! ends when the kernel has them, and with `--lasting` they stay for half a minute.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::time::Duration;

use sheave_announce::{Announced, Layer2, Layer2Event, Layer2Options};
use tokio::time::{MissedTickBehavior, interval};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let (flags, addresses): (Vec<String>, Vec<String>) =
        std::env::args().skip(1).partition(|argument| argument.starts_with("--"));
    let has = |flag: &str| flags.iter().any(|present| present == flag);
    let mut options = Layer2Options::default();
    if has("--lasting") {
        options.lifetime = Duration::from_secs(30);
    }
    let mut layer2 = Layer2::open(options).await?;
    layer2.begin(has("--adopt"));
    let mut awaited = BTreeSet::new();
    for address in &addresses {
        let ip: IpAddr = address.parse()?;
        let announced = layer2.announce(ip, &[], has("--probe"))?;
        println!("{announced:?}");
        if let Announced::Soon(_) = announced {
            awaited.insert(ip);
        }
    }
    if has("--once") {
        // The kernel may take longer than it is waited for.
        while !awaited.is_empty() {
            match layer2.next_event().await {
                Layer2Event::Announced { ip } => drop(awaited.remove(&ip)),
                Layer2Event::Failed(error) => return Err(error.into()),
                event => println!("{event:?}"),
            }
        }
        layer2.detach();
        return Ok(());
    }
    let mut refreshes = interval(Duration::from_secs(1));
    refreshes.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            _ = refreshes.tick() => layer2.refresh(),
            event = layer2.next_event() => println!("{event:?}"),
        }
    }
}
