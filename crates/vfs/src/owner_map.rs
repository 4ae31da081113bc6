//! Other owners for the files of a tree.

/// Reads the number of a user or group: decimal digits, and nothing else. The last number stands for no owner in
/// system calls, and is none.
#[must_use]
pub fn parse_id(text: &[u8]) -> Option<u32> {
    // A number may have a sign for the standard library.
    let digits = std::str::from_utf8(text).ok().filter(|_| text.iter().all(u8::is_ascii_digit))?;
    digits.parse().ok().filter(|&id| id != u32::MAX)
}

/// A mapping of a range of user or group numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IdRange {
    from: u32,
    to: u32,
    count: u32,
}

impl IdRange {
    /// Reads `FROM:TO` or `FROM:TO:COUNT`.
    #[must_use]
    pub fn parse(text: &str) -> Option<IdRange> {
        let numbers: Vec<u32> =
            text.split(':').map(|number| parse_id(number.as_bytes())).collect::<Option<_>>()?;
        let (from, to, count) = match numbers[..] {
            [from, to] => (from, to, 1),
            [from, to, count] => (from, to, count),
            _ => return None,
        };
        // The highest number means no id.
        let fits = |first: u32| first.checked_add(count).is_some();
        (count > 0 && fits(from) && fits(to)).then_some(IdRange { from, to, count })
    }

    fn map(ranges: &[IdRange], id: u32) -> u32 {
        let mapped = ranges.iter().find_map(|range| {
            let offset = id.checked_sub(range.from).filter(|&offset| offset < range.count)?;
            Some(range.to + offset)
        });
        mapped.unwrap_or(id)
    }
}

/// Who owns the files of a tree instead of their owners.
#[derive(Clone, Debug, Default)]
pub struct OwnerMap {
    /// One user and group for all files.
    pub all: Option<(u32, u32)>,
    /// User mappings, also for access control lists; the first matching range counts.
    pub users: Vec<IdRange>,
    /// Group mappings, in the same way.
    pub groups: Vec<IdRange>,
}

impl OwnerMap {
    /// Whether everything keeps its owners.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.all.is_none() && self.users.is_empty() && self.groups.is_empty()
    }

    /// User and group of a file that belongs to these.
    #[must_use]
    pub fn owners(&self, user: u32, group: u32) -> (u32, u32) {
        self.all.unwrap_or_else(|| (self.user(user), self.group(group)))
    }

    /// The user that an access control list names instead of this one.
    #[must_use]
    pub fn user(&self, id: u32) -> u32 {
        IdRange::map(&self.users, id)
    }

    /// The group that an access control list names instead of this one.
    #[must_use]
    pub fn group(&self, id: u32) -> u32 {
        IdRange::map(&self.groups, id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges() {
        let ranges =
            ["0:100000:65536", "70000:5", "0:7"].map(|it| IdRange::parse(it).expect("valid"));
        for (id, mapped) in [(0, 100_000), (65_535, 165_535), (65_536, 65_536), (70_000, 5)] {
            assert_eq!(IdRange::map(&ranges, id), mapped);
        }
        for text in
            ["", "1", "1:2:0", "1:2:3:4", "a:b", "4294967295:0", "0:4294967290:10", "-1:0", "+1:0"]
        {
            assert_eq!(IdRange::parse(text), None, "{text}");
        }
    }

    #[test]
    fn one_owner_counts_for_files_but_not_in_lists() {
        let users = vec![IdRange { from: 1, to: 11, count: 1 }];
        let mut map = OwnerMap { users, ..OwnerMap::default() };
        assert_eq!((map.owners(1, 1), map.owners(2, 2)), ((11, 1), (2, 2)));
        map.all = Some((0, 3));
        assert_eq!((map.owners(1, 1), map.user(1), map.group(1)), ((0, 3), 11, 1));
        assert!(!map.is_empty() && OwnerMap::default().is_empty());
    }
}
