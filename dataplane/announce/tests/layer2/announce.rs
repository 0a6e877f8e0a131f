//! Announces addresses until it is ended, and prints what happens: `announce [--adopt] [--probe] [--once] ADDRESS...`.

use std::net::IpAddr;
use std::time::Duration;

use sheave_announce::{Layer2, Layer2Options};
use tokio::time::{MissedTickBehavior, interval};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let (flags, addresses): (Vec<String>, Vec<String>) =
        std::env::args().skip(1).partition(|argument| argument.starts_with("--"));
    let has = |flag: &str| flags.iter().any(|present| present == flag);
    let mut layer2 = Layer2::open(Layer2Options::default()).await?;
    layer2.begin(has("--adopt"));
    for address in &addresses {
        let ip: IpAddr = address.parse()?;
        println!("{:?}", layer2.announce(ip, &[], has("--probe"))?);
    }
    if has("--once") {
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
