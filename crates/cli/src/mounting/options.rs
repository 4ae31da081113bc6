//! Words after `-o`, as mount(8) and `fstab` have them.

use crate::size;
use drystone::{AccessTimes, ErrorPolicy, ImageOptions, Policy};
use drystone_fuse::Transport;
use std::str::FromStr;
use std::time::Duration;

/// How an image is mounted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MountOptions {
    /// How the image is opened.
    pub open: ImageOptions,
    /// How the mount behaves.
    pub fuse: drystone_fuse::ServingOptions,
    /// What carries its requests.
    pub transport: Transport,
    /// The kernel checks permissions even if only root uses the mount.
    pub checks_permissions: bool,
}

/// How long a mount waits for a full host, on which space may be freed.
const FULL_HOST_WAIT: Duration = Duration::from_secs(30);

/// Words for `mount` and systemd, and others that a mount ignores.
const IGNORED: [&str; 13] = [
    "rw", "defaults", "auto", "noauto", "user", "nouser", "users", "owner", "group", "nofail",
    "_netdev", "loop", "async",
];

/// Words of ext4 that ask for what every mount here does anyway, or that permit what it doesn't do.
const ALWAYS_SO: [&str; 14] = [
    "acl",
    "user_xattr",
    "barrier",
    "barrier=1",
    "data=ordered",
    "block_validity",
    "nodiscard",
    "nogrpid",
    "sysvgroups",
    "quota",
    "usrquota",
    "grpquota",
    "prjquota",
    "lazytime",
];

/// Words that change a running mount, beside `ro` and `rw`.
const CHANGEABLE: [&str; 14] = [
    "suid",
    "nosuid",
    "dev",
    "nodev",
    "exec",
    "noexec",
    "relatime",
    "norelatime",
    "atime",
    "strictatime",
    "nostrictatime",
    "noatime",
    "diratime",
    "nodiratime",
];

/// Words that the mount table shows, with or without a value, and that can't be set.
const SHOWN_ONLY: [&str; 4] = ["user_id", "group_id", "max_read", "blksize"];

impl MountOptions {
    /// Reads lists of words.
    pub fn parse(lists: &[String]) -> Result<MountOptions, String> {
        let mut options = MountOptions::default();
        options.open.full_host_wait = FULL_HOST_WAIT;
        let mut policies = Vec::new();
        for word in lists.iter().flat_map(|list| list.split(',')).filter(|word| !word.is_empty()) {
            if ALWAYS_SO.contains(&word) {
                continue;
            }
            match word.split_once('=') {
                Some(("policy", policy)) => policies.push(policy.replace(':', ",")),
                Some((key, value)) => options.set_value(key, value).map_err(|problem| {
                    match !policies.is_empty() && Policy::from_str(word).is_ok() {
                        true => format!("{problem}: write it after 'policy=', with ':' in front"),
                        false => problem,
                    }
                })?,
                None => options.set(word)?,
            }
        }
        if !policies.is_empty() {
            let policy = Policy::from_str(&policies.join(","));
            options.open.policy = policy.map_err(|error| error.to_string())?;
        }
        if options.open.ignore_journal && !options.open.read_only {
            return Err("noload needs ro: what the journal holds would be lost".to_owned());
        }
        options.fuse.read_only = options.open.read_only;
        Ok(options)
    }

    /// Decides whether the kernel checks permissions, once the mounting user is known.
    pub fn settle_permissions(&mut self, is_root: bool) {
        self.fuse.kernel_checks_permissions = self.checks_permissions
            || self.fuse.allow_other
            || !is_root
            || !self.transport.answers_access();
    }

    /// Applies words to the options of a running mount, in order. Words for fixed options are
    /// ignored, because `mount` repeats those of `fstab` and the mount table.
    pub fn change(&mut self, words: &str) -> Result<(), String> {
        for word in words.split(',').filter(|word| !word.is_empty()) {
            let key = word.split_once('=').map_or(word, |(key, _)| key);
            match word {
                "rw" => self.fuse.read_only = false,
                "ro" => self.fuse.read_only = true,
                _ if CHANGEABLE.contains(&word) => self.set(word)?,
                _ if key == "remount" || SHOWN_ONLY.contains(&key) => {}
                // Only checks that it is understood.
                _ => drop(MountOptions::parse(&[format!("ro,{word}")])?),
            }
        }
        Ok(())
    }

    /// True if lists of words ask for a change of a mount that there is.
    pub fn is_change(lists: &[String]) -> bool {
        lists.iter().flat_map(|list| list.split(',')).any(|word| word == "remount")
    }

    fn set(&mut self, word: &str) -> Result<(), String> {
        let fuse = &mut self.fuse;
        match word {
            "ro" => self.open.read_only = true,
            "noload" | "norecovery" => self.open.ignore_journal = true,
            "allow_other" => fuse.allow_other = true,
            "default_permissions" => self.checks_permissions = true,
            "suid" => fuse.allow_set_user_id = true,
            "nosuid" => fuse.allow_set_user_id = false,
            "dev" => fuse.allow_devices = true,
            "nodev" => fuse.allow_devices = false,
            "exec" => fuse.allow_execution = true,
            "noexec" => fuse.allow_execution = false,
            "relatime" | "norelatime" | "atime" | "nostrictatime" => {
                self.set_access_times(AccessTimes::Relative);
            }
            "strictatime" => self.set_access_times(AccessTimes::Always),
            "noatime" => self.set_access_times(AccessTimes::Never),
            "diratime" => self.set_directory_access_times(true),
            "nodiratime" => self.set_directory_access_times(false),
            "writeback" => fuse.writeback_cache = true,
            "nowriteback" => fuse.writeback_cache = false,
            "delalloc" => self.open.immediate_allocation = false,
            "nodelalloc" => self.open.immediate_allocation = true,
            word if IGNORED.contains(&word) || word.starts_with("x-") => {}
            word => return Err(format!("unknown mount option '{word}'")),
        }
        Ok(())
    }

    fn set_access_times(&mut self, times: AccessTimes) {
        self.open.access_times = times;
        self.fuse.access_times.never = times == AccessTimes::Never;
        self.fuse.access_times.always = times == AccessTimes::Always;
    }

    fn set_directory_access_times(&mut self, kept: bool) {
        self.open.ignore_directory_accesses = !kept;
        self.fuse.access_times.not_of_directories = !kept;
    }

    fn set_value(&mut self, key: &str, value: &str) -> Result<(), String> {
        match key {
            "errors" => {
                self.open.error_policy = Some(match value {
                    "continue" => ErrorPolicy::Continue,
                    "remount-ro" => ErrorPolicy::ReadOnly,
                    _ => return Err(format!("errors={value}: continue or remount-ro")),
                });
            }
            "commit" => {
                let seconds: u64 = number(key, value)?;
                // As in ext4: 0 stands for the default.
                self.open.commit_interval = (seconds > 0).then(|| Duration::from_secs(seconds));
            }
            "host-full-wait" => {
                self.open.full_host_wait = Duration::from_secs(number(key, value)?);
            }
            "cp" => {
                self.open.checkpoint = Some(number(key, value)?);
                self.open.read_only = true;
            }
            "memory" => {
                let bytes = size::parse(value)?;
                self.open.memory_bytes = usize::try_from(bytes).ok();
            }
            "threads" => {
                let threads = number(key, value)?;
                if !(1..=1024).contains(&threads) {
                    return Err(format!("{key} is {value}, which is not in 1..=1024"));
                }
                self.fuse.threads = Some(threads);
            }
            "transport" => {
                self.transport = Transport::from_str(value).map_err(|error| error.to_string())?;
            }
            "fsname" => self.fuse.source = value.to_owned(),
            // What `mount` hands on, and notes of others in `fstab`.
            "subtype" | "comment" => {}
            key if key.starts_with("x-") => {}
            _ => return Err(format!("unknown mount option '{key}={value}'")),
        }
        Ok(())
    }
}

fn number<T: FromStr>(key: &str, value: &str) -> Result<T, String> {
    value.parse().map_err(|_| format!("{key}={value}: not a number"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<MountOptions, String> {
        MountOptions::parse(&[text.to_owned()])
    }

    #[test]
    fn words_set_what_they_say() {
        let options = parse("ro,noload,allow_other,commit=30,errors=continue,memory=64M").unwrap();
        assert!(options.open.read_only && options.open.ignore_journal);
        assert!(options.fuse.read_only && options.fuse.allow_other);
        assert_eq!(options.open.commit_interval, Some(Duration::from_secs(30)));
        assert_eq!(options.open.error_policy, Some(ErrorPolicy::Continue));
        assert_eq!(options.open.memory_bytes, Some(64 << 20));
        assert!(!options.open.immediate_allocation);
        assert!(parse("nodelalloc").unwrap().open.immediate_allocation);
        assert!(!parse("nodelalloc,delalloc").unwrap().open.immediate_allocation);
    }

    #[test]
    fn permissions_of_root_alone_need_no_check() {
        for (text, is_root, checked) in [
            ("", true, false),
            ("", false, true),
            ("allow_other", true, true),
            ("default_permissions", true, true),
        ] {
            let mut options = parse(text).unwrap();
            options.settle_permissions(is_root);
            assert_eq!(options.fuse.kernel_checks_permissions, checked, "{text} {is_root}");
        }
    }

    #[test]
    fn policies_may_be_written_in_one_word() {
        let with_comma = parse("policy=baseline,orphans=file").unwrap_err();
        assert!(with_comma.contains("with ':' in front"), "{with_comma}");
        let expected: Policy = "baseline,orphans=file".parse().unwrap();
        assert_eq!(parse("policy=baseline:orphans=file").unwrap().open.policy, expected);
        assert_eq!(parse("policy=baseline,policy=orphans=file").unwrap().open.policy, expected);
    }

    #[test]
    fn lines_of_fstab_are_understood() {
        let options = parse("defaults,nofail,x-systemd.automount,nosuid,nodev,user").unwrap();
        assert_eq!(options, parse("").unwrap());
        let of_ext4 = parse("data=ordered,barrier=1,acl,user_xattr,usrquota,lazytime").unwrap();
        assert_eq!(of_ext4, parse("").unwrap());
    }

    #[test]
    fn the_last_word_on_access_times_counts() {
        for (text, times, of_directories) in [
            ("", AccessTimes::Relative, true),
            ("noatime", AccessTimes::Never, true),
            ("strictatime,nodiratime", AccessTimes::Always, false),
            ("noatime,relatime,nodiratime,diratime", AccessTimes::Relative, true),
        ] {
            let options = parse(text).unwrap();
            assert_eq!(options.open.access_times, times, "{text}");
            assert_eq!(options.open.ignore_directory_accesses, !of_directories, "{text}");
            let shown = options.fuse.access_times;
            assert_eq!(
                (shown.never, shown.always),
                (times == AccessTimes::Never, times == AccessTimes::Always,)
            );
            assert_eq!(shown.not_of_directories, !of_directories, "{text}");
        }
    }

    #[test]
    fn the_last_word_changes_a_mount() {
        let mut options = parse("ro").unwrap();
        assert!(!MountOptions::is_change(&["ro,noatime".to_owned()]));
        assert!(MountOptions::is_change(&["ro".to_owned(), "noatime,remount".to_owned()]));
        // As `mount` puts it together.
        let words = "ro,nosuid,noatime,user_id=0,group_id=0,allow_other,x-drystone,remount,rw,dev";
        options.change(words).unwrap();
        assert!(!options.fuse.read_only && options.fuse.allow_devices);
        assert_eq!(options.open.access_times, AccessTimes::Never);
        options.change("strictatime,ro,nodiratime").unwrap();
        assert!(options.fuse.read_only && options.open.ignore_directory_accesses);
        assert_eq!(options.open.access_times, AccessTimes::Always);
        let before = options.clone();
        options.change("remount,commit=30,policy=baseline,acl,nofail,noload").unwrap();
        assert_eq!(options, before);
        assert!(options.change("colour").is_err() && options.change("commit=soon").is_err());
    }

    #[test]
    fn nonsense_is_refused() {
        for text in [
            "colour",
            "errors=panic",
            "data=journal",
            "barrier=0",
            "commit=soon",
            "noload",
            "policy=x",
            "memory=much",
        ] {
            assert!(parse(text).is_err(), "{text}");
        }
    }
}
