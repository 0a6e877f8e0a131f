//! Settings of the kernel under which announcing does not work: they are reported, not changed.

use std::fmt;
use std::fs;
use std::io;

/// `rp_filter`: packets from where this interface would not answer to are dropped (RFC 3704, section 2.2).
const STRICT: u8 = 1;

/// A setting to change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SettingWarning {
    /// The setting, as `sysctl` names it.
    pub sysctl: String,
    /// Its value.
    pub value: u8,
    /// The value that it should have.
    pub wanted: u8,
    /// Consequence of its value.
    pub effect: &'static str,
}

impl fmt::Display for SettingWarning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { sysctl, value, wanted, effect } = self;
        write!(f, "{sysctl} is {value}: {effect}; set it to {wanted}")
    }
}

/// Checks the settings for IPv4 of an interface. IPv6 has none: where it is disabled there is no subnet either.
pub(super) fn check_ipv4(interface: &str) -> Vec<SettingWarning> {
    let mut warnings = Vec::new();
    // Harmless where replies leave by the interface that the packets came in by.
    let elsewhere =
        || fs::read_to_string("/proc/thread-self/net/route").is_ok_and(|r| leads_elsewhere(&r, interface));
    if let Some((sysctl, STRICT)) = in_force("rp_filter", interface).filter(|_| elsewhere()) {
        let effect = "packets of clients outside the subnet are dropped, because the default route leaves by another interface";
        warnings.push(SettingWarning { sysctl, value: STRICT, wanted: 2, effect });
    }
    warnings
}

/// A setting and its value: the higher of that for all interfaces and that of the interface (IN_DEV_MAXCONF in linux/inetdevice.h).
pub(crate) fn in_force(name: &str, interface: &str) -> Option<(String, u8)> {
    let of = |scope: &str| -> io::Result<(u8, String)> {
        let text = fs::read_to_string(format!("/proc/sys/net/ipv4/conf/{scope}/{name}"))?;
        let value = text.trim().parse().map_err(io::Error::other)?;
        // `sysctl` writes the dot of a VLAN's name as a slash.
        Ok((value, format!("net.ipv4.conf.{}.{name}", scope.replace('.', "/"))))
    };
    let values = [of("all"), of(interface)].into_iter().filter_map(Result::ok);
    values.max_by_key(|(value, _)| *value).map(|(value, sysctl)| (sysctl, value))
}

/// Whether there is a default route, and none leaves by this interface. `routes` is /proc/net/route.
fn leads_elsewhere(routes: &str, interface: &str) -> bool {
    let default = |line: &str| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        let is_default = fields.get(1) == Some(&"00000000") && fields.get(7) == Some(&"00000000");
        is_default.then(|| fields[0] == interface)
    };
    let mut found = routes.lines().filter_map(default).peekable();
    found.peek().is_some() && !found.any(|here| here)
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEADING: &str = "Iface Destination Gateway Flags RefCnt Use Metric Mask MTU Window IRTT\n";

    #[test]
    fn a_default_route_by_another_interface_leads_elsewhere() {
        let default = format!("{HEADING}eth0 00000000 0101A8C0 0003 0 0 0 00000000 0 0 0\n");
        let subnet = format!("{HEADING}eth1 0001A8C0 00000000 0001 0 0 0 00FFFFFF 0 0 0\n");
        assert!(leads_elsewhere(&default, "eth1"));
        assert!(!leads_elsewhere(&default, "eth0"));
        assert!(!leads_elsewhere(&subnet, "eth1"));
    }

    #[test]
    fn a_warning_names_the_setting_and_its_value() {
        let sysctl = "net.ipv4.conf.eth0.rp_filter".to_owned();
        let warning = SettingWarning { sysctl, value: 1, wanted: 2, effect: "no packets" };
        assert_eq!(warning.to_string(), "net.ipv4.conf.eth0.rp_filter is 1: no packets; set it to 2");
    }
}
