//! The network of these tests: a switch, the machines on it, and a gateway's announcements on a thread of its own.

use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use sheave_announce::{AnnounceError, Announced, Layer2, Layer2Event, Layer2Options};
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};
use tokio::time::{MissedTickBehavior, interval};

use crate::support::host::Host;
use crate::support::patience::eventually;
use crate::support::process::Process;

/// The addresses that are announced, of a family each.
pub(crate) const V4: &str = "192.0.2.100";
pub(crate) const V6: &str = "2001:db8::100";

pub(crate) fn both() -> [IpAddr; 2] {
    [V4, V6].map(|ip| ip.parse().unwrap())
}

/// A switch with machines on it. Machine `i` has 192.0.2.(1+i)/24 and 2001:db8::(1+i)/64 on `eth0`.
pub(crate) struct Network {
    pub(crate) machines: Vec<Host>,
    pub(crate) switch: Host,
}

impl Network {
    pub(crate) fn new(machines: usize) -> Self {
        let switch = Host::new("switch");
        switch.ip(&["link add br0 type bridge mcast_snooping 0".into(), "link set br0 up".into()]);
        let machines = (0..machines).map(|place| machine(&switch, place)).collect();
        Self { machines, switch }
    }
}

fn machine(switch: &Host, place: usize) -> Host {
    let host = Host::new(&format!("machine {place}"));
    let name = format!("p{place}");
    switch.plug(&name, &host, "eth0");
    let number = place + 1;
    host.ip(&[
        format!("addr add 192.0.2.{number}/24 dev eth0"),
        format!("addr add 2001:db8::{number}/64 dev eth0 nodad"),
    ]);
    host
}

/// The MAC address of an interface.
pub(crate) fn mac(host: &Host, interface: &str) -> String {
    field(&host.finish("ip", &["-o", "link", "show", interface]).expect_success(), "link/ether")
}

/// The word after `name`.
pub(crate) fn field(text: &str, name: &str) -> String {
    let mut words = text.split_whitespace();
    words.find(|word| *word == name);
    words.next().unwrap_or_default().to_owned()
}

/// The MAC address that a host has for an address in its cache; empty if none.
pub(crate) fn cached(host: &Host, ip: IpAddr) -> String {
    field(&host.finish("ip", &["neigh", "show", &ip.to_string()]).expect_success(), "lladdr")
}

/// Has the kernel of a host ask for an address, by a datagram to it.
pub(crate) fn ask(host: &Host, ip: IpAddr) {
    host.run(|| {
        let any: SocketAddr = if ip.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" }.parse().unwrap();
        // Unreachable where nobody has answered before.
        drop(UdpSocket::bind(any).unwrap().send_to(b"?", (ip, 9)));
    });
}

/// Waits until a host finds an address at this MAC address, asking.
pub(crate) fn finds(host: &Host, ip: IpAddr, mac: &str) {
    eventually(&format!("{ip} is found at {mac}"), || {
        ask(host, ip);
        match cached(host, ip) {
            found if found == mac => Ok(()),
            found => Err(found),
        }
    });
}

/// Waits until the cache of a host has another MAC address, without asking.
pub(crate) fn learns(host: &Host, ip: IpAddr, mac: &str) {
    eventually(&format!("{ip} is learnt to be at {mac}"), || match cached(host, ip) {
        found if found == mac => Ok(()),
        found => Err(found),
    });
}

/// What `ip addr` shows of an address with its full prefix; empty if it is not there.
pub(crate) fn shown(host: &Host, ip: IpAddr) -> String {
    let prefix = if ip.is_ipv4() { 32 } else { 128 };
    let all = host.finish("ip", &["-o", "addr"]).expect_success();
    all.lines().find(|line| line.contains(&format!(" {ip}/{prefix} "))).unwrap_or_default().to_owned()
}

/// Waits until an address is on no interface.
pub(crate) fn gone(host: &Host, ip: IpAddr) {
    eventually(&format!("{ip} is gone"), || match shown(host, ip) {
        line if line.is_empty() => Ok(()),
        line => Err(line),
    });
}

type Command = Box<dyn FnOnce(&mut Layer2) + Send>;

/// The announcements of a gateway, refreshed every second.
pub(crate) struct Gateway {
    commands: Option<UnboundedSender<Command>>,
    events: Arc<Mutex<Vec<Layer2Event>>>,
    thread: Option<JoinHandle<()>>,
}

impl Gateway {
    pub(crate) fn start(host: &Host, options: Layer2Options) -> Self {
        Self::refreshing(host, options, Duration::from_secs(1))
    }

    /// One that goes on with what another one has left.
    pub(crate) fn adopting(host: &Host, options: Layer2Options) -> Self {
        Self::run_on(host, options, true, Duration::from_secs(1))
    }

    /// Refreshes as often as this.
    pub(crate) fn refreshing(host: &Host, options: Layer2Options, every: Duration) -> Self {
        Self::run_on(host, options, false, every)
    }

    fn run_on(host: &Host, options: Layer2Options, adopt: bool, every: Duration) -> Self {
        let (commands, mut inbox) = unbounded_channel::<Command>();
        let events = Arc::new(Mutex::new(Vec::new()));
        let seen = Arc::clone(&events);
        let body = async move {
            let mut layer2 = Layer2::open(options).await.expect("layer 2 starts; is this root?");
            layer2.begin(adopt);
            let mut refreshes = interval(every);
            refreshes.set_missed_tick_behavior(MissedTickBehavior::Delay);
            refreshes.tick().await;
            loop {
                tokio::select! {
                    _ = refreshes.tick() => layer2.refresh(),
                    event = layer2.next_event() => seen.lock().unwrap().push(event),
                    command = inbox.recv() => match command {
                        Some(command) => command(&mut layer2),
                        None => break,
                    },
                }
            }
        };
        let thread = host.spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(body);
        });
        Self { commands: Some(commands), events, thread: Some(thread) }
    }

    /// Has the gateway do something, and waits for its answer.
    pub(crate) fn run<T: Send + 'static>(&self, action: impl FnOnce(&mut Layer2) -> T + Send + 'static) -> T {
        let (tell, answer) = std::sync::mpsc::channel();
        let command: Command = Box::new(move |layer2| drop(tell.send(action(layer2))));
        let commands = self.commands.as_ref().unwrap();
        assert!(commands.send(command).is_ok(), "the gateway runs");
        answer.recv().expect("the gateway answers")
    }

    pub(crate) fn announce(&self, ip: IpAddr) {
        let announced = self.try_announce(ip, false).unwrap();
        assert!(matches!(announced, Announced::Now(_)), "{announced:?}");
    }

    /// Announces an address, and waits for the kernel longer than the gateway does: the machine may be busy with other tests.
    pub(crate) fn try_announce(&self, ip: IpAddr, probe: bool) -> Result<Announced, AnnounceError> {
        let announced = self.run(move |layer2| layer2.announce(ip, &[], probe))?;
        if !matches!(announced, Announced::Soon(_)) {
            return Ok(announced);
        }
        self.event("the announcement", |event| match event {
            Layer2Event::Announced { ip: announced } => (*announced == ip).then_some(()),
            _ => None,
        });
        Ok(Announced::Now(self.run(move |layer2| layer2.interfaces(ip))))
    }

    pub(crate) fn withdraw(&self, ip: IpAddr) {
        self.run(move |layer2| layer2.withdraw(ip));
    }

    /// Waits for an event, among those that nobody has waited for.
    pub(crate) fn event<T>(&self, what: &str, mut wanted: impl FnMut(&Layer2Event) -> Option<T>) -> T {
        eventually(what, || {
            let mut events = self.events.lock().unwrap();
            let found = events.iter().enumerate().find_map(|(place, event)| Some((place, wanted(event)?)));
            match found {
                Some((place, found)) => {
                    events.remove(place);
                    Ok(found)
                }
                None => Err(format!("{events:?}")),
            }
        })
    }

    /// The events that nobody has waited for.
    pub(crate) fn events(&self) -> Vec<String> {
        let events = self.events.lock().unwrap();
        let told = events.iter().filter(|event| !matches!(event, Layer2Event::Challenged));
        told.map(|event| format!("{event:?}")).collect()
    }
}

impl Drop for Gateway {
    fn drop(&mut self) {
        self.commands.take();
        if let Some(thread) = self.thread.take() {
            let outcome = thread.join();
            if !std::thread::panicking() {
                outcome.expect("the gateway ends well");
            }
        }
    }
}

/// The program `announce`, as a process of its own.
pub(crate) fn process(host: &Host, arguments: &[&str]) -> Process {
    let tests = std::env::current_exe().unwrap();
    let program = tests.parent().and_then(|deps| deps.parent()).unwrap().join("examples/announce");
    assert!(
        program.exists(),
        "{} is not built: cargo build -p sheave-announce --examples",
        program.display()
    );
    host.start(&program.display().to_string(), arguments)
}
