//! When two names are the same, and how they hash.
//!
//! # State
//! [`NameRules`] is fixed at mount. Names of a directory with the casefold flag are compared and
//! hashed in their folded form. Names of an encrypted directory are ciphertext; they are listed and
//! looked up in the form of [`nokey_name`](drystone_ext4_format::nokey_name).

use crate::error::Result;
use drystone_ext4_format::casefold::{Casefold, ENCODING_FLAG_STRICT, Encoding};
use drystone_ext4_format::dir::{DirectoryLayout, Entry};
use drystone_ext4_format::features::{Compat, Incompat};
use drystone_ext4_format::hash::{HashVersion, NameHash, NameHasher};
use drystone_ext4_format::inode::InodeFlags;
use drystone_ext4_format::nokey_name::NokeyName;
use drystone_ext4_format::superblock::{Superblock, SuperblockFlags};
use drystone_ondisk::crc32c;
use drystone_vfs::Errno;
use std::borrow::Cow;

/// How the directories of an image compare and hash names.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NameRules {
    hasher: NameHasher,
    unsigned: bool,
    has_indexes: bool,
    casefold: Option<Casefold>,
}

impl NameRules {
    /// Reads the rules from the superblock.
    pub fn new(superblock: &Superblock) -> NameRules {
        let features = superblock.features();
        let unsigned = superblock.flags().contains(SuperblockFlags::UNSIGNED_HASH);
        // An unknown default matters only to new indexes; an existing index stores its own hash
        // version.
        let version = superblock.hash_version().unwrap_or(HashVersion::HalfMd4);
        let folds = features.incompat.contains(Incompat::CASEFOLD);
        let encoding = Encoding::from_raw(superblock.encoding()).filter(|_| folds);
        let strict = superblock.encoding_flags() & ENCODING_FLAG_STRICT != 0;
        NameRules {
            hasher: NameHasher::new(version, superblock.hash_seed()),
            unsigned,
            has_indexes: features.compat.contains(Compat::DIR_INDEX),
            casefold: encoding.map(|encoding| Casefold { encoding, strict }),
        }
    }

    /// Whether directories may have an index.
    pub fn has_indexes(&self) -> bool {
        self.has_indexes
    }

    /// The function that new indexes use.
    pub fn hasher(&self) -> NameHasher {
        self.hasher
    }

    /// The hash function for the version that an index root stores.
    pub fn hasher_of(&self, version: HashVersion) -> NameHasher {
        self.hasher.with_version(version.with_unsigned_chars(self.unsigned))
    }

    fn casefold(&self, layout: &DirectoryLayout) -> Option<Casefold> {
        // Folding ciphertext makes no sense.
        self.casefold.filter(|_| layout.casefolded && !layout.encrypted)
    }

    /// What names of a directory with these flags are compared by, unless by their bytes.
    pub fn folded(&self, flags: InodeFlags, name: &[u8]) -> Option<Vec<u8>> {
        // Folding ciphertext makes no sense.
        let folds = flags & (InodeFlags::CASEFOLD | InodeFlags::ENCRYPT) == InodeFlags::CASEFOLD;
        self.casefold.filter(|_| folds).map(|casefold| casefold.key(name).into_owned())
    }

    /// Prepares a name for comparison in a directory.
    pub fn seek<'a>(
        &self,
        layout: &DirectoryLayout,
        name: &'a [u8],
        wants_room: bool,
    ) -> Result<SoughtName<'a>> {
        let key = match self.casefold(layout) {
            None if layout.encrypted => match NokeyName::decode(name) {
                Some(shown) => NameKey::Shown(shown, *layout),
                None => NameKey::Nothing,
            },
            None => NameKey::Bytes,
            Some(casefold) if !casefold.accepts(name) => return Err(Errno::EINVAL.into()),
            Some(casefold) => NameKey::Folded(casefold, casefold.key(name)),
        };
        Ok(SoughtName { name, key, wants_room })
    }

    /// The hash of an entry of a directory.
    pub fn hash_of(
        &self,
        layout: &DirectoryLayout,
        hasher: NameHasher,
        entry: &Entry<'_>,
    ) -> NameHash {
        match (entry.hash, self.casefold(layout)) {
            (Some(stored), _) => stored,
            (None, Some(casefold)) => hasher.hash(&casefold.key(entry.name)),
            (None, None) => hasher.hash(entry.name),
        }
    }
}

/// The order of names with the same major hash in a listing. Where the function gives no minor
/// hash, a checksum replaces it, so that different names have different positions.
pub(crate) fn minor_for_listing(hasher: NameHasher, hash: NameHash, name: &[u8]) -> u32 {
    match hasher.version() {
        HashVersion::Legacy | HashVersion::LegacyUnsigned => crc32c(0, name),
        _ => hash.minor,
    }
}

/// How an entry's name is compared with the name sought.
enum NameKey<'a> {
    /// By its bytes.
    Bytes,
    /// By its folded form.
    Folded(Casefold, Cow<'a, [u8]>),
    /// By its no-key form, in a directory of this layout.
    Shown(NokeyName, DirectoryLayout),
    /// Nothing matches: the name sought is not a no-key form.
    Nothing,
}

/// A name to look up.
pub(crate) struct SoughtName<'a> {
    name: &'a [u8],
    key: NameKey<'a>,
    /// Whether to report where the name could be inserted if it isn't found.
    pub wants_room: bool,
}

impl SoughtName<'_> {
    /// Whether an entry's name is this one.
    pub fn matches(&self, name: &[u8]) -> bool {
        match &self.key {
            NameKey::Bytes => name == self.name,
            NameKey::Shown(shown, _) => shown.matches(name),
            NameKey::Nothing => false,
            NameKey::Folded(..) if name == self.name => true,
            // Most names are ASCII and are folded without allocating memory.
            NameKey::Folded(_, key) if name.is_ascii() => {
                name.iter().map(u8::to_ascii_lowercase).eq(key.iter().copied())
            }
            NameKey::Folded(casefold, key) => casefold.key(name) == *key,
        }
    }

    /// The bytes of the name, if an entry's must be equal to them.
    pub fn exact(&self) -> Option<&[u8]> {
        match &self.key {
            NameKey::Bytes => Some(self.name),
            NameKey::Shown(shown, _) => shown.ciphertext(),
            NameKey::Folded(..) | NameKey::Nothing => None,
        }
    }

    /// The hash of the name.
    pub fn hash(&self, hasher: NameHasher) -> NameHash {
        match &self.key {
            NameKey::Bytes => hasher.hash(self.name),
            NameKey::Folded(_, key) => hasher.hash(key),
            NameKey::Shown(shown, layout) => match shown.ciphertext() {
                Some(ciphertext) if !layout.stores_hashes() => hasher.hash(ciphertext),
                _ => shown.hash,
            },
            NameKey::Nothing => NameHash::default(),
        }
    }
}
