//! What a loop that has handed over tells its successor of the connections that stay.

use super::*;
use crate::takeover::ServingPlace;
use crate::takeover::predecessor::{LastPart, Lifeline};
use crate::takeover::successor::Successor;

/// A loop that has handed over while a Service with a limit had one connection or flow. The successor is held, as process 1 of a container
/// does once it has drained.
struct HandedOver {
    lifeline: Lifeline,
    _successor: Arc<Successor>,
    app: JoinHandle<Ended>,
}

async fn handed_over(
    protocol: &str,
    frontend: SocketAddr,
    endpoint: SocketAddr,
    open: impl Future<Output = ()>,
) -> HandedOver {
    let folder = tempfile::tempdir().unwrap();
    let limited = "{name: web, namespace: d, annotations: {sheave.dev/max-connections: '5'}}";
    let text = manifest(protocol, frontend, endpoint).replacen("{name: web, namespace: d}", limited, 1);
    fs::write(folder.path().join("web.yaml"), text).unwrap();
    let mut config = config();
    config.state_dir = folder.path().join("state");
    let (state_dir, place) =
        (config.state_dir.clone(), ServingPlace::of_process(&config.node, &config.load_balancer_class));
    let sources = Sources { local: Source::files(manifests::watch(folder.path())), karmada: None };
    let app = EventLoop::start(&config, &Capacity::of_process(&config), sources, None).unwrap();
    let (_queries, queries) = mpsc::channel(1);
    let (_stop, stop) = oneshot::channel();
    let inbox = Inbox { queries, configs: mpsc::channel(1).1, stop };
    let (ready, is_ready) = oneshot::channel();
    let (left, successor) = oneshot::channel();
    let serve = move |app: &EventLoop| Servers::default().with_successors(&config, 2, None, app);
    let app = tokio::spawn(app.run(inbox, serve, || ready.send(()).unwrap(), left));
    is_ready.await.unwrap();
    open.await;

    let mut predecessor = Predecessor::find(&state_dir, place).await.unwrap().expect("it serves");
    predecessor.begin().await.unwrap();
    predecessor.prepared().await.unwrap();
    while !matches!(predecessor.next_part().await.unwrap(), LastPart::Offer(..)) {}
    predecessor.succeed().await.unwrap();
    HandedOver { lifeline: predecessor.into_lifeline(), _successor: successor.await.unwrap(), app }
}

impl HandedOver {
    /// What the Service has there, when it is told the next time.
    async fn told(&self) -> u32 {
        let told = tokio::time::timeout(DEADLINE, self.lifeline.connections()).await;
        let counts = told.expect("it says something").expect("it is there");
        let [count] = &counts[..] else { panic!("one Service has a limit: {counts:?}") };
        count.open
    }
}

#[tokio::test]
async fn a_process_that_has_drained_says_that_nothing_is_left() {
    let endpoint = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let frontend = unused_address().await;
    let mut talk = None;
    let open = async {
        let client = TcpStream::connect(frontend).await.unwrap();
        talk = Some((client, endpoint.accept().await.unwrap().0));
    };
    let handed = handed_over("TCP", frontend, endpoint.local_addr().unwrap(), open).await;
    assert_eq!(handed.told().await, 1);
    drop(talk);
    assert_eq!(handed.told().await, 0);
    assert_eq!(handed.app.await.unwrap(), Ended::HandedOver(Drained::Completely));
}

/// Its successor counts them itself.
#[tokio::test]
async fn flows_that_were_handed_over_are_not_left() {
    let endpoint = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let frontend = unused_address().await;
    let client = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let open = async {
        while tokio::time::timeout(Duration::from_millis(100), endpoint.recv(&mut [0])).await.is_err() {
            client.send_to(b"x", frontend).await.unwrap();
        }
    };
    let handed = handed_over("UDP", frontend, endpoint.local_addr().unwrap(), open).await;
    assert_eq!(handed.told().await, 0, "it waits for the workers");
}
