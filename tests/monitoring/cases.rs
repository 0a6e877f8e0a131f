//! Cases of alerts: for each, a state in which it fires, and a similar one in which no alert fires.

/// Series with values in promtool's notation: a single number is constant, and `_` removes a series of the healthy
/// state.
type Series = &'static [(&'static str, &'static str)];

/// Case of an alert.
pub(crate) struct Case {
    pub(crate) alert: &'static str,
    pub(crate) bad: Series,
    pub(crate) near: Series,
}

/// Healthy state: two gateways, and two controllers of which one leads.
pub(crate) const HEALTHY: Series = &[
    ("up{job='sheave', instance='gw-1'}", "1"),
    ("up{job='sheave', instance='gw-2'}", "1"),
    ("up{job='sheave-controller', instance='c-1'}", "1"),
    ("up{job='node', instance='gw-1:9100'}", "0"),
    ("sheave_build_info{job='sheave', instance='gw-1', version='1'}", "1"),
    ("sheave_build_info{job='sheave', instance='gw-2', version='1'}", "1"),
    ("sheave_table_generation{job='sheave', instance='gw-1'}", "7"),
    ("sheave_table_generation{job='sheave', instance='gw-2'}", "9"),
    ("sheave_ready{job='sheave', instance='gw-1'}", "1"),
    ("sheave_ready{job='sheave', instance='gw-2'}", "1"),
    ("sheave_draining{job='sheave', instance='gw-1'}", "0"),
    ("sheave_draining{job='sheave', instance='gw-2'}", "0"),
    ("sheave_controller_leading{instance='c-1'}", "1"),
    ("sheave_controller_leading{instance='c-2'}", "0"),
    ("sheave_controller_gateways{instance='c-1'}", "2"),
    ("sheave_controller_gateways{instance='c-2'}", "0"),
    // Series of gateways without announcements.
    ("sheave_announce_eligible{instance='gw-1'}", "0"),
    ("sheave_announce_gateways{instance='gw-1', state='counted'}", "0"),
];

const fn case(alert: &'static str, bad: Series, near: Series) -> Case {
    Case { alert, bad, near }
}

/// Cases in the order of the file.
pub(crate) const CASES: &[Case] = &[
    case(
        "SheaveNoGateway",
        &[
            ("sheave_table_generation{job='sheave', instance='gw-1'}", "_"),
            ("sheave_table_generation{job='sheave', instance='gw-2'}", "_"),
        ],
        &[("sheave_table_generation{job='sheave', instance='gw-1'}", "_")],
    ),
    case(
        "SheaveTargetDown",
        &[("up{job='sheave', instance='gw-1'}", "0")],
        // A scrape that fails occasionally.
        &[("up{job='sheave', instance='gw-1'}", "1 0 1 1 0 0 1x200")],
    ),
    case(
        "SheaveGatewayNotReady",
        &[("sheave_ready{job='sheave', instance='gw-1'}", "0")],
        &[
            ("sheave_ready{job='sheave', instance='gw-1'}", "0"),
            ("sheave_draining{job='sheave', instance='gw-1'}", "1"),
        ],
    ),
    case(
        "SheaveWorkerRestarted",
        &[("sheave_worker_restarts_total{instance='gw-1'}", "0x90 1x100")],
        &[("sheave_worker_restarts_total{instance='gw-1'}", "4")],
    ),
    case(
        "SheaveVersionsDiffer",
        &[("sheave_build_info{job='sheave', instance='gw-2', version='2'}", "1")],
        // A rollout.
        &[("sheave_build_info{job='sheave', instance='gw-2', version='2'}", "_x50 1x50")],
    ),
    case(
        "SheaveUpgradeFails",
        &[("sheave_takeover_failures_total{instance='gw-1'}", "0x90 1x100")],
        &[("sheave_takeover_failures_total{instance='gw-1'}", "2")],
    ),
    case(
        "SheaveProblems",
        &[("sheave_problems_by_reason{instance='gw-1', reason='BindFailed'}", "2")],
        &[
            ("sheave_problems_by_reason{instance='gw-1', reason='BindFailed'}", "_x90 2x20"),
            ("sheave_problems_by_reason{instance='gw-1', reason='LimitReached'}", "1"),
        ],
    ),
    case(
        "SheaveLogLinesLost",
        &[("sheave_log_lines_dropped_total{instance='gw-1'}", "0+3x200")],
        &[("sheave_log_lines_dropped_total{instance='gw-1'}", "90")],
    ),
    case(
        "SheaveSeriesOmitted",
        &[("sheave_metrics_frontends_omitted{instance='gw-1'}", "1")],
        &[("sheave_metrics_frontends_omitted{instance='gw-1'}", "0")],
    ),
    case(
        "SheaveEndpointSeriesOmitted",
        &[("sheave_metrics_endpoints_omitted{instance='gw-1'}", "3")],
        &[("sheave_metrics_endpoints_omitted{instance='gw-1'}", "0")],
    ),
    case(
        "SheaveConnectionLogLinesLost",
        &[("sheave_connection_log_lines_total{instance='gw-1', outcome='lost'}", "0+1x200")],
        // Lines over the rate are dropped on purpose.
        &[
            ("sheave_connection_log_lines_total{instance='gw-1', outcome='lost'}", "40"),
            ("sheave_connection_log_lines_total{instance='gw-1', outcome='over_rate'}", "0+9x200"),
        ],
    ),
    case(
        "SheaveServiceWithoutEndpoints",
        &[
            ("sheave_frontend_endpoints{instance='gw-1', service='shop/web', frontend='a'}", "0"),
            ("sheave_frontend_endpoints{instance='gw-2', service='shop/web', frontend='a'}", "0"),
        ],
        // A Local policy.
        &[
            ("sheave_frontend_endpoints{instance='gw-1', service='shop/web', frontend='a'}", "0"),
            ("sheave_frontend_endpoints{instance='gw-2', service='shop/web', frontend='a'}", "1"),
        ],
    ),
    case(
        "SheaveConnectionsFail",
        &[
            ("sheave_tcp_connections_total{instance='gw-1', service='shop/web'}", "0+1000x200"),
            (
                "sheave_tcp_closed_total{instance='gw-1', service='shop/web', reason='connect_failed'}",
                "0+40x200",
            ),
            (
                "sheave_tcp_closed_total{instance='gw-1', service='shop/web', reason='no_endpoint'}",
                "0+11x200",
            ),
        ],
        &[
            ("sheave_tcp_connections_total{instance='gw-1', service='shop/web'}", "0+1000x200"),
            (
                "sheave_tcp_closed_total{instance='gw-1', service='shop/web', reason='connect_failed'}",
                "0+49x200",
            ),
            (
                "sheave_tcp_closed_total{instance='gw-1', service='shop/web', reason='client_reset'}",
                "0+500x200",
            ),
            ("sheave_tcp_connections_total{instance='gw-1', service='shop/idle'}", "5"),
            ("sheave_tcp_closed_total{instance='gw-1', service='shop/idle', reason='no_endpoint'}", "5"),
        ],
    ),
    case(
        "SheaveEndpointsUnhealthy",
        &[("sheave_endpoints_unhealthy{instance='gw-1', protocol='udp'}", "1")],
        &[("sheave_endpoints_unhealthy{instance='gw-1', protocol='udp'}", "1x10 0x4 1x10 0x200")],
    ),
    case(
        "SheaveOverloaded",
        &[("sheave_gateway_shed_total{instance='gw-1', reason='memory'}", "0+1x200")],
        &[
            ("sheave_gateway_shed_total{instance='gw-1', reason='memory'}", "900"),
            ("sheave_gateway_shed_total{instance='gw-1', reason='max_connections'}", "0+100x200"),
        ],
    ),
    case(
        "SheaveLimitReached",
        &[("sheave_shed_total{instance='gw-1', service='shop/web', reason='max_connections'}", "0+100x200")],
        &[("sheave_shed_total{instance='gw-1', service='shop/web', reason='capacity'}", "0+100x200")],
    ),
    case(
        "SheaveDatagramsLost",
        &[("sheave_gateway_udp_dropped_total{instance='gw-1', reason='no_port'}", "0+61x200")],
        &[
            ("sheave_gateway_udp_dropped_total{instance='gw-1', reason='no_port'}", "0+59x200"),
            ("sheave_gateway_udp_dropped_total{instance='gw-1', reason='denied'}", "0+9000x200"),
        ],
    ),
    case(
        "SheaveClientAddressesLost",
        &[
            ("sheave_gateway_tcp_source_lost_total{instance='gw-1'}", "0"),
            ("sheave_gateway_udp_source_lost_total{instance='gw-1'}", "0+1x200"),
        ],
        &[
            ("sheave_gateway_tcp_source_lost_total{instance='gw-1'}", "7"),
            ("sheave_gateway_udp_source_lost_total{instance='gw-1'}", "7"),
        ],
    ),
    case(
        "SheaveSourceSilent",
        &[("sheave_source_last_heard_seconds{instance='gw-1', kind='Service'}", "0+60x200")],
        &[("sheave_source_last_heard_seconds{instance='gw-1', kind='Service'}", "59")],
    ),
    case(
        "SheaveWatchFails",
        &[("sheave_source_failing{instance='gw-1', kind='Service'}", "1")],
        &[("sheave_source_failing{instance='gw-1', kind='Service'}", "0 1 0 1 1 0x200")],
    ),
    case(
        "SheaveServesFromSnapshot",
        &[("sheave_source_from_snapshot{instance='gw-1', source='karmada'}", "1")],
        &[("sheave_source_from_snapshot{instance='gw-1'}", "1x3 0x200")],
    ),
    case(
        "SheaveDeletionsHeld",
        &[("sheave_guard_held_objects{instance='gw-1', kind='Node'}", "40")],
        &[("sheave_guard_held_objects{instance='gw-1', kind='Node'}", "0")],
    ),
    case(
        "SheaveSnapshotFails",
        &[("sheave_snapshot_failing{instance='gw-1'}", "1")],
        &[("sheave_snapshot_failing{instance='gw-1'}", "1x10 0x200")],
    ),
    case(
        "SheaveProgrammingSlow",
        &[
            ("sheave_network_programming_seconds_bucket{instance='gw-1', le='8'}", "0+98x200"),
            ("sheave_network_programming_seconds_bucket{instance='gw-1', le='16'}", "0+100x200"),
            ("sheave_network_programming_seconds_bucket{instance='gw-1', le='+Inf'}", "0+100x200"),
        ],
        &[
            ("sheave_network_programming_seconds_bucket{instance='gw-1', le='8'}", "0+991x200"),
            ("sheave_network_programming_seconds_bucket{instance='gw-1', le='16'}", "0+1000x200"),
            ("sheave_network_programming_seconds_bucket{instance='gw-1', le='+Inf'}", "0+1000x200"),
        ],
    ),
    case(
        "SheaveAddressNotAnnounced",
        &[("sheave_announce_addresses{instance='gw-1', state='failed'}", "1")],
        &[("sheave_announce_addresses{instance='gw-1', state='waiting'}", "1")],
    ),
    case(
        "SheaveAddressConflict",
        &[("sheave_announce_conflicts_total{instance='gw-1'}", "0x95 1x100")],
        &[("sheave_announce_conflicts_total{instance='gw-1'}", "3")],
    ),
    case(
        "SheaveGatewaysDisagree",
        &[("sheave_announce_gateways{instance='gw-1', state='disagreeing'}", "1")],
        // One is late.
        &[("sheave_announce_gateways{instance='gw-1', state='disagreeing'}", "0x95 1 0x100")],
    ),
    case(
        "SheaveGatewayNotEligible",
        &[("sheave_announce_gateways{instance='gw-1', state='counted'}", "3")],
        &[
            ("sheave_announce_gateways{instance='gw-1', state='counted'}", "3"),
            ("sheave_announce_eligible{instance='gw-1'}", "1"),
        ],
    ),
    case(
        "SheaveGatewayMinority",
        &[
            ("sheave_announce_eligible{instance='gw-1'}", "1"),
            ("sheave_announce_gateways{instance='gw-1', state='heard_by'}", "1"),
            ("sheave_announce_gateways{instance='gw-1', state='counted'}", "3"),
        ],
        &[
            ("sheave_announce_eligible{instance='gw-1'}", "1"),
            ("sheave_announce_gateways{instance='gw-1', state='heard_by'}", "2"),
            ("sheave_announce_gateways{instance='gw-1', state='counted'}", "3"),
        ],
    ),
    case(
        "SheaveGatewayFenced",
        &[("sheave_announce_fenced_total{instance='gw-1'}", "0x95 1x100")],
        &[("sheave_announce_fenced_total{instance='gw-1'}", "2")],
    ),
    case(
        "SheaveTieUndecided",
        &[("sheave_announce_tie_undecided{instance='gw-1'}", "1")],
        &[("sheave_announce_tie_undecided{instance='gw-1'}", "0")],
    ),
    case(
        "SheaveGatewayAbsent",
        &[("sheave_announce_absent_gateways{instance='gw-1'}", "1")],
        &[("sheave_announce_absent_gateways{instance='gw-1'}", "0")],
    ),
    case(
        "SheaveNoLeader",
        &[
            ("sheave_controller_leading{instance='c-1'}", "0"),
            ("sheave_controller_gateways{instance='c-1'}", "0"),
        ],
        // A change of leadership.
        &[
            ("sheave_controller_leading{instance='c-1'}", "1x90 0x100"),
            ("sheave_controller_leading{instance='c-2'}", "0x91 1x100"),
            ("sheave_controller_gateways{instance='c-2'}", "2"),
        ],
    ),
    case(
        "SheaveTwoLeaders",
        &[
            ("sheave_controller_leading{instance='c-2'}", "1"),
            ("sheave_controller_gateways{instance='c-2'}", "2"),
        ],
        &[("sheave_controller_gateways{instance='c-2'}", "2")],
    ),
    case(
        "SheaveNoGatewayReady",
        &[("sheave_controller_gateways{instance='c-1'}", "0")],
        &[("sheave_controller_gateways{instance='c-1'}", "1")],
    ),
    case(
        "SheaveWritesRefused",
        &[("sheave_controller_write_failures{instance='c-1'}", "1")],
        &[("sheave_controller_write_failures{instance='c-1'}", "1x8 0x200")],
    ),
    case(
        "SheavePoolExhausted",
        &[
            ("sheave_pool_addresses{instance='c-1', pool='lan', state='used'}", "4"),
            ("sheave_pool_addresses{instance='c-1', pool='lan', state='free'}", "0"),
        ],
        // A broken or empty pool is reported as a Problem.
        &[
            ("sheave_pool_addresses{instance='c-1', pool='lan', state='used'}", "4"),
            ("sheave_pool_addresses{instance='c-1', pool='lan', state='free'}", "1"),
            ("sheave_pool_addresses{instance='c-1', pool='none', state='used'}", "0"),
            ("sheave_pool_addresses{instance='c-1', pool='none', state='free'}", "0"),
        ],
    ),
    case(
        "SheaveEventsLost",
        &[("sheave_controller_events_dropped_total{instance='c-1'}", "0+1x200")],
        &[("sheave_controller_events_dropped_total{instance='c-1'}", "12")],
    ),
];
