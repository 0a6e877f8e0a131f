//! Privileges that a process gives up when it starts, so that an attacker who takes it over does not have them.

use std::io;

use nix::sys::prctl;

/// `_LINUX_CAPABILITY_VERSION_3` of linux/capability.h: masks of 64 bits, each in two halves.
const VERSION: u32 = 0x2008_0522;

/// Capabilities to keep, by their numbers in linux/capability.h. Services may be added with new ports, source lists and transparent
/// sources at any time, so every capability that traffic may need is kept.
const KEPT: [u32; 8] = [
    // CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH: manifests, credentials and stateDir may belong to another user, and are reread.
    1, 2, //
    // CAP_NET_BIND_SERVICE, CAP_NET_ADMIN, CAP_NET_RAW: ports below 1024, transparent sources, their rules and routes.
    10, 12, 13, //
    // CAP_SYS_RESOURCE: pipes beyond a user's limit.
    24, //
    // CAP_PERFMON and CAP_BPF: programs for steering and source lists.
    38, CAP_BPF,
];
const CAP_BPF: u32 = 39;
/// Substitute for `CAP_BPF` before Linux 5.8.
const CAP_SYS_ADMIN: u32 = 21;

#[repr(C)]
struct Header {
    version: u32,
    pid: i32,
}

/// One half of each mask.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct Half {
    effective: u32,
    permitted: u32,
    inheritable: u32,
}

/// Permanently gives up, for this thread and threads that it starts, every capability that a gateway does not use, and the gain of
/// privileges by execve(2), for example of setuid programs.
///
/// # Errors
/// Returns an error if prctl(2), capget(2) or capset(2) fails.
pub fn give_up_privileges() -> io::Result<()> {
    prctl::set_no_new_privs()?;
    let mut halves = [Half::default(); 2];
    capability_call(libc::SYS_capget, &mut halves)?;
    let kept = kept(&halves);
    for (half, mask) in halves.iter_mut().zip([kept & u64::from(u32::MAX), kept >> 32]) {
        let mask = u32::try_from(mask).unwrap_or_default();
        half.effective &= mask;
        half.permitted &= mask;
        // The ambient set is reduced with these (`cap_capset`, security/commoncap.c).
        half.inheritable &= mask;
    }
    capability_call(libc::SYS_capset, &mut halves)
}

/// Mask of the capabilities to keep. On a kernel without `CAP_BPF` root has all others but not that one.
fn kept(halves: &[Half; 2]) -> u64 {
    let has = |number: u32| halves[number as usize / 32].permitted & (1 << (number % 32)) != 0;
    let stand_in = (has(CAP_SYS_ADMIN) && !has(CAP_BPF)).then_some(CAP_SYS_ADMIN);
    KEPT.into_iter().chain(stand_in).fold(0, |mask, number| mask | (1 << number))
}

/// Calls capget(2) or capset(2) for this thread.
fn capability_call(call: libc::c_long, halves: &mut [Half; 2]) -> io::Result<()> {
    let header = Header { version: VERSION, pid: 0 };
    // SAFETY: both calls take a header and two halves, as version 3 specifies; both outlive the call.
    let result = unsafe { libc::syscall(call, &raw const header, halves.as_mut_ptr()) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(permitted: u64) -> [Half; 2] {
        let half = |permitted| Half { permitted, ..Half::default() };
        [half(permitted as u32), half((permitted >> 32) as u32)]
    }

    #[test]
    fn what_bpf_needs_stays_whatever_the_kernel_calls_it() {
        let all = u64::MAX;
        assert_eq!(kept(&of(all)) & (1 << CAP_SYS_ADMIN), 0);
        assert_ne!(kept(&of(all & !(1 << CAP_BPF))) & (1 << CAP_SYS_ADMIN), 0);
    }

    #[test]
    fn what_is_given_up_is_gone_for_this_thread() {
        let status = std::thread::spawn(|| {
            give_up_privileges().unwrap();
            std::fs::read_to_string("/proc/thread-self/status").unwrap()
        });
        let status = status.join().unwrap();
        let value = |key: &str| status.lines().find_map(|line| line.strip_prefix(key)).unwrap().trim();
        assert_eq!(value("NoNewPrivs:"), "1");
        for key in ["CapPrm:", "CapEff:", "CapInh:"] {
            let mask = u64::from_str_radix(value(key), 16).unwrap();
            assert_eq!(mask & !kept(&of(u64::MAX)), 0, "{key}");
        }
    }
}
