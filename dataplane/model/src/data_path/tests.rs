use std::num::NonZeroU32;
use std::sync::Arc;

use super::*;
use crate::test_util::frontend;
use crate::{ClientSources, HealthPolicy, LogSample};

fn asked(path: PathChoice) -> Frontend {
    Frontend { path, ..frontend(1, Algorithm::LeastConnections, &[(1, 100), (2, 100)]) }
}

#[test]
fn the_proxy_serves_what_does_not_ask_for_the_kernel() {
    assert_eq!(asked(PathChoice::Proxy).kernel_path(), Err(ProxyReason::Chosen));
    assert_eq!(asked(PathChoice::Kernel).kernel_path(), Ok(()));
    assert_eq!(asked(PathChoice::Auto).kernel_path(), Ok(()));
}

#[test]
fn an_algorithm_that_only_the_proxy_has_counts_if_it_is_named() {
    let named =
        |path, algorithm| Frontend { algorithm, algorithm_named: true, ..asked(path) }.kernel_path().err();
    use Algorithm::{LeastConnections, Maglev, Random, RoundRobin};
    assert_eq!(named(PathChoice::Auto, LeastConnections), Some(ProxyReason::LeastConnections));
    assert_eq!(named(PathChoice::Auto, RoundRobin), Some(ProxyReason::RoundRobin));
    assert_eq!(named(PathChoice::Kernel, LeastConnections), Some(ProxyReason::LeastConnections));
    for (path, algorithm) in
        [(PathChoice::Kernel, RoundRobin), (PathChoice::Auto, Maglev), (PathChoice::Auto, Random)]
    {
        assert_eq!(named(path, algorithm), None, "{path:?} {algorithm:?}");
    }
}

#[test]
fn whatever_the_kernel_cannot_do_keeps_a_frontend_with_the_proxy() {
    type Change = fn(&mut Frontend);
    let cases: [(ProxyReason, Change); 10] = [
        (ProxyReason::ProxyProtocol, |it| {
            it.client_sources =
                ClientSources { external: ClientSource::ProxyV2, internal: ClientSource::ProxyV2 };
        }),
        (ProxyReason::ProxyProtocol, |it| it.proxied_by = Some(Arc::default())),
        (ProxyReason::ServiceAffinity, |it| {
            it.affinity =
                Affinity::ClientIp { timeout: Duration::from_secs(10), scope: AffinityScope::Service };
        }),
        (ProxyReason::ServerNames, |it| it.server_names = Some(Arc::default())),
        (ProxyReason::Split, |it| it.split = Some(Arc::new(crate::Split::default()))),
        (ProxyReason::Limits, |it| it.limits.connections = NonZeroU32::new(1)),
        (ProxyReason::Timeouts, |it| it.timeouts.idle = Some(Duration::from_secs(10))),
        (ProxyReason::ConnectionLog, |it| it.logged = LogSample::parse("100%").unwrap()),
        (ProxyReason::SlowStart, |it| {
            it.health =
                Arc::new(HealthPolicy { slow_start: Duration::from_secs(1), ..HealthPolicy::default() });
        }),
        (ProxyReason::NotRoutable, |it| it.addr.ip = "127.0.0.2".parse().unwrap()),
    ];
    for (reason, change) in cases {
        let mut frontend = asked(PathChoice::Kernel);
        change(&mut frontend);
        assert_eq!(frontend.kernel_path(), Err(reason));
    }
}

#[test]
fn an_endpoint_that_the_kernel_cannot_forward_to_keeps_a_frontend_with_the_proxy() {
    type Change = fn(&mut crate::EndpointAddr);
    let cases: [(ProxyReason, Change); 3] = [
        (ProxyReason::Interface, |it| it.path = Path(1)),
        (ProxyReason::Family, |it| it.ip = "2001:db8::1".parse().unwrap()),
        (ProxyReason::NotRoutable, |it| it.ip = "127.0.0.2".parse().unwrap()),
    ];
    for (reason, change) in cases {
        let mut frontend = asked(PathChoice::Auto);
        let mut backends = frontend.backends.to_vec();
        change(&mut backends[0].endpoints[1].addr);
        frontend.backends = backends.into();
        assert_eq!(frontend.kernel_path(), Err(reason));
    }
}
