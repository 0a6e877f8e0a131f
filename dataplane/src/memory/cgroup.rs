//! Memory cgroups of this process, version 2 or 1 (Documentation/admin-guide/cgroup-v2.rst and
//! cgroup-v1/memory.rst in the kernel's source): its own, and all visible ones above.

use std::fs;
use std::path::{Path, PathBuf};

use super::Level;

/// Version 1 shows at least this value if there is no limit.
const NO_LIMIT: u64 = 1 << 60;

/// The cgroups, starting with that of the process; empty if they cannot be found.
#[derive(Debug, Default)]
pub(super) struct Groups {
    folders: Vec<PathBuf>,
    files: Files,
}

/// File names of a cgroup version.
#[derive(Clone, Copy, Debug)]
struct Files {
    /// Files with limits, of which the lowest counts: at one the kernel throttles, at the other it kills.
    limits: &'static [&'static str],
    used: &'static str,
    /// Keys in `memory.stat` of the page cache, which the kernel reclaims before it kills.
    reclaimable: [&'static str; 2],
}

impl Default for Files {
    fn default() -> Self {
        V2
    }
}

const V2: Files = Files {
    limits: &["memory.high", "memory.max"],
    used: "memory.current",
    reclaimable: ["inactive_file", "active_file"],
};
const V1: Files = Files {
    limits: &["memory.limit_in_bytes"],
    used: "memory.usage_in_bytes",
    reclaimable: ["total_inactive_file", "total_active_file"],
};

impl Groups {
    /// Cgroups of this process.
    pub(super) fn of_process() -> Self {
        let read = |file| fs::read_to_string(Path::new("/proc/self").join(file)).unwrap_or_default();
        Self::find(&read("cgroup"), &read("mountinfo"))
    }

    /// Finds the cgroups from `/proc/self/cgroup` and `/proc/self/mountinfo` (cgroups(7), proc(5)).
    fn find(cgroup: &str, mountinfo: &str) -> Self {
        [(V1, "cgroup"), (V2, "cgroup2")]
            .into_iter()
            .find_map(|(files, kind)| {
                let path = path_of(cgroup, kind)?;
                let (root, mount) = mount_of(mountinfo, kind)?;
                // In a container, the mount may begin at its own cgroup.
                let path = Path::new(path);
                let path = path.strip_prefix(root).or_else(|_| path.strip_prefix("/")).unwrap_or(path);
                let folders: Vec<PathBuf> = mount.join(path).ancestors().map(Path::to_owned).collect();
                let folders: Vec<PathBuf> =
                    folders.into_iter().take_while(|folder| folder.starts_with(&mount)).collect();
                let found = folders.iter().any(|folder| folder.join(files.used).exists());
                found.then_some(Self { folders, files })
            })
            .unwrap_or_default()
    }

    /// Level of the process's own cgroup, if it has a limit. Then it was made for this process.
    pub(super) fn own(&self) -> Option<Level> {
        self.level(self.folders.first()?)
    }

    /// Levels of all cgroups that have a limit.
    pub(super) fn levels(&self) -> impl Iterator<Item = Level> {
        self.own().into_iter().chain(self.above())
    }

    /// Levels of the cgroups above that have a limit.
    pub(super) fn above(&self) -> impl Iterator<Item = Level> {
        self.folders.iter().skip(1).filter_map(|folder| self.level(folder))
    }

    fn level(&self, folder: &Path) -> Option<Level> {
        let limits = self.files.limits.iter().filter_map(|file| number(&folder.join(file)));
        let limit = limits.min().filter(|limit| *limit < NO_LIMIT)?;
        Some(Level { limit, used: self.used_in(folder)? })
    }

    fn used_in(&self, folder: &Path) -> Option<u64> {
        let used = number(&folder.join(self.files.used))?;
        let stat = fs::read_to_string(folder.join("memory.stat")).unwrap_or_default();
        let reclaimable = stat.lines().filter_map(|line| {
            let (key, value) = line.split_once(' ')?;
            self.files.reclaimable.contains(&key).then(|| value.parse::<u64>().ok())?
        });
        Some(used.saturating_sub(reclaimable.sum()))
    }
}

fn number(file: &Path) -> Option<u64> {
    fs::read_to_string(file).ok()?.trim().parse().ok()
}

/// Path of the process in the hierarchy that counts memory.
fn path_of<'a>(cgroup: &'a str, kind: &str) -> Option<&'a str> {
    cgroup.lines().find_map(|line| {
        let mut fields = line.splitn(3, ':');
        let (id, controllers, path) = (fields.next()?, fields.next()?, fields.next()?);
        let counts = match kind {
            "cgroup2" => id == "0",
            _ => controllers.split(',').any(|controller| controller == "memory"),
        };
        counts.then_some(path)
    })
}

/// Root and mount point of the hierarchy.
fn mount_of<'a>(mountinfo: &'a str, kind: &str) -> Option<(&'a str, PathBuf)> {
    mountinfo.lines().find_map(|line| {
        let (mount, super_block) = line.split_once(" - ")?;
        let mut fields = mount.split(' ').skip(3);
        let (root, point) = (fields.next()?, fields.next()?);
        let mut fields = super_block.split(' ');
        let (of, options) = (fields.next()?, fields.nth(1)?);
        let counts = of == kind && (of == "cgroup2" || options.split(',').any(|option| option == "memory"));
        // A blank in the name is written as an escape, which is not decoded: the path is then not found.
        counts.then(|| (root, PathBuf::from(point)))
    })
}

#[cfg(test)]
mod tests {
    use tempfile::TempDir;

    use super::*;

    fn write(folder: &Path, files: &[(&str, &str)]) {
        fs::create_dir_all(folder).unwrap();
        for (name, text) in files {
            fs::write(folder.join(name), text).unwrap();
        }
    }

    #[test]
    fn version_2_is_read_up_to_the_mount() {
        let root = TempDir::new().unwrap();
        write(
            &root.path().join("pods"),
            &[("memory.max", "9000\n"), ("memory.high", "5000\n"), ("memory.current", "3000\n")],
        );
        write(
            &root.path().join("pods/a"),
            &[
                ("memory.max", "max\n"),
                ("memory.current", "2000\n"),
                ("memory.stat", "anon 1\ninactive_file 500\n"),
            ],
        );
        let mountinfo =
            format!("30 23 0:28 / {} rw,nosuid shared:9 - cgroup2 cgroup2 rw", root.path().display());
        let groups = Groups::find("0::/pods/a\n", &mountinfo);
        assert_eq!(groups.levels().collect::<Vec<_>>(), [Level { limit: 5000, used: 3000 }]);
        assert_eq!(groups.own(), None, "that one is not for this process alone");
    }

    #[test]
    fn version_1_is_read_in_a_container_that_sees_its_own_cgroup_alone() {
        let root = TempDir::new().unwrap();
        write(
            root.path(),
            &[
                ("memory.limit_in_bytes", "7000"),
                ("memory.usage_in_bytes", "6000"),
                ("memory.stat", "inactive_file 1\ntotal_inactive_file 100\ntotal_active_file 10\n"),
            ],
        );
        let mountinfo = format!(
            "33 31 0:32 /docker/abc {0} rw - cgroup cgroup rw,cpu\n35 31 0:32 /docker/abc {0} rw - cgroup cgroup rw,memory",
            root.path().display()
        );
        let groups = Groups::find("4:memory:/docker/abc\n0::/\n", &mountinfo);
        assert_eq!(groups.levels().collect::<Vec<_>>(), [Level { limit: 7000, used: 5890 }]);
        assert_eq!(groups.own(), Some(Level { limit: 7000, used: 5890 }));
    }

    #[test]
    fn a_cgroup_whose_name_begins_like_the_mounted_one_is_another() {
        let root = TempDir::new().unwrap();
        write(&root.path().join("a/bc"), &[("memory.max", "5000"), ("memory.current", "3000")]);
        let mountinfo = format!("30 23 0:28 /a/b {} rw - cgroup2 cgroup2 rw", root.path().display());
        assert!(Groups::find("0::/a/bc", &mountinfo).own().is_some());
    }

    #[test]
    fn without_any_there_are_no_levels() {
        for (cgroup, mountinfo) in
            [("", ""), ("0::/a", "30 23 0:28 / /nowhere rw - cgroup2 cgroup2 rw"), ("x", "y - z")]
        {
            let groups = Groups::find(cgroup, mountinfo);
            assert_eq!((groups.levels().count(), groups.own()), (0, None));
        }
    }

    #[test]
    fn no_limit_is_no_level() {
        let root = TempDir::new().unwrap();
        let files = [("memory.limit_in_bytes", "9223372036854771712"), ("memory.usage_in_bytes", "6000")];
        write(&root.path().join("a"), &files);
        let mountinfo = format!("35 31 0:32 / {} rw - cgroup cgroup rw,memory", root.path().display());
        let groups = Groups::find("4:memory:/a\n", &mountinfo);
        assert_eq!((groups.levels().count(), groups.own()), (0, None));
    }
}
