//! How much the machine lets a gateway do: worker threads, and UDP flows. It must not know what they are used for.

use sheave_dataplane::raise_open_files;

/// Each UDP flow takes an ephemeral port, and all flows of a network namespace share one range: its first and last port.
const PORT_RANGE: &str = "/proc/sys/net/ipv4/ip_local_port_range";
/// Assumed where the range cannot be read: Linux's default, 32768 to 60999.
const USUAL_PORTS: u64 = 28_232;
/// Assumed where the limit on open files cannot be read: what Linux starts with.
const USUAL_OPEN_FILES: u64 = 1024;

/// The limit on open files, raised as far as we may.
pub(super) fn open_files() -> u64 {
    raise_open_files().unwrap_or(USUAL_OPEN_FILES)
}

/// One worker per core that the scheduler and the cgroup give us, unless the configuration says otherwise.
pub(super) fn worker_count(configured: usize) -> usize {
    match configured {
        0 => std::thread::available_parallelism().map_or(1, usize::from),
        count => count,
    }
}

/// Each flow takes a descriptor, of which half are left to TCP, and a port.
pub(super) fn udp_flows(open_files: u64, workers: usize) -> usize {
    let range = std::fs::read_to_string(PORT_RANGE).ok();
    let ports = range.as_deref().and_then(port_count).unwrap_or(USUAL_PORTS);
    let share = (open_files / 2).min(ports) / workers as u64;
    usize::try_from(share.max(1)).unwrap_or(usize::MAX)
}

/// Three quarters of the descriptors: with none left, those who connect could not be served, and probes and the API server
/// neither.
pub(super) fn listening_sockets(open_files: u64) -> usize {
    usize::try_from(open_files / 4 * 3).unwrap_or(usize::MAX)
}

/// How many ports there are from the first number to the last.
pub(super) fn port_count(range: &str) -> Option<u64> {
    let mut ends = range.split_whitespace().map(str::parse::<u64>);
    let (first, last) = (ends.next()?.ok()?, ends.next()?.ok()?);
    (last + 1).checked_sub(first)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_range_of_ports_is_counted_with_both_its_ends() {
        assert_eq!(port_count("32768\t60999\n"), Some(28_232));
        assert_eq!(port_count("5 5"), Some(1));
        for odd in ["", "1", "a b", "9 1"] {
            assert_eq!(port_count(odd), None, "{odd:?}");
        }
    }
}
