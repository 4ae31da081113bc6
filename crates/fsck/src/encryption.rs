//! Encryption: by which policy an inode is encrypted, as its context says.
//!
//! Linux opens nothing in an encrypted directory that isn't encrypted by the directory's own policy. Two
//! inodes of one policy differ in the nonce of their contexts only.
//!
//! # Reference
//! Kernel documentation, "Filesystem-level encryption (fscrypt)", Encryption context.

use drystone_ext4_format::InodeNumber;
use std::collections::{BTreeMap, HashMap};

/// The nonce is the end of a context.
const NONCE_BYTES: usize = 16;

/// The length of a context by its version, which is its first byte.
const CONTEXT_BYTES: [(u8, usize); 2] = [(1, 28), (2, 40)];

/// The length of the longest.
pub(crate) const CONTEXT_BYTES_MAX: usize = 40;

/// The policy in a context: all but the nonce. Nothing if it isn't a context.
pub(crate) fn policy_of(context: &[u8]) -> Option<&[u8]> {
    let version = *context.first()?;
    CONTEXT_BYTES.contains(&(version, context.len())).then(|| {
        // A context is longer than its nonce.
        &context[..context.len() - NONCE_BYTES]
    })
}

/// The policies that were met, and which inodes they encrypt.
#[derive(Debug, Default)]
pub(crate) struct EncryptionPolicies {
    numbers: HashMap<Vec<u8>, u32>,
    inodes: BTreeMap<u32, u32>,
}

impl EncryptionPolicies {
    pub fn add(&mut self, inode: InodeNumber, policy: &[u8]) {
        // There are no more policies than inodes.
        let next = self.numbers.len() as u32;
        let number = match self.numbers.get(policy) {
            Some(number) => *number,
            None => *self.numbers.entry(policy.to_vec()).or_insert(next),
        };
        self.inodes.insert(inode.get(), number);
    }

    /// Bytes that the list takes, about.
    pub fn memory_bytes(&self) -> usize {
        3 * size_of::<(u32, u32)>() * self.inodes.len()
    }

    /// Adds what other inodes are encrypted by.
    pub fn add_part(&mut self, part: &EncryptionPolicies) {
        let policies: HashMap<u32, &[u8]> =
            part.numbers.iter().map(|(policy, number)| (*number, &policy[..])).collect();
        for (inode, number) in &part.inodes {
            if let Some(policy) = policies.get(number) {
                self.add(InodeNumber::new(*inode), policy);
            }
        }
    }

    /// Whether an inode may have a name in an encrypted directory. If the directory's own policy isn't known,
    /// everything may.
    pub fn fits(&self, directory: InodeNumber, inode: InodeNumber) -> bool {
        let policy = self.inodes.get(&directory.get());
        policy.is_none() || self.inodes.get(&inode.get()) == policy
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn inodes_of_one_policy_fit_each_other() {
        let context = |version: u8, length: usize, key: u8, nonce: u8| {
            let mut bytes = vec![key; length - NONCE_BYTES];
            bytes[0] = version;
            bytes.resize(length, nonce);
            bytes
        };
        for damaged in [vec![], vec![1], context(1, 40, 5, 5), context(3, 28, 5, 5)] {
            assert_eq!(policy_of(&damaged), None);
        }
        let mut policies = EncryptionPolicies::default();
        let [directory, same, other, plain] = [12, 13, 14, 15].map(InodeNumber::new);
        let contexts = [
            (directory, context(2, 40, 5, 1)),
            (same, context(2, 40, 5, 2)),
            (other, context(2, 40, 6, 1)),
        ];
        for (inode, context) in contexts {
            policies.add(inode, policy_of(&context).unwrap());
        }
        assert!(policies.fits(directory, same));
        assert!(!policies.fits(directory, other) && !policies.fits(directory, plain));
        assert!(policies.fits(plain, same), "a directory whose policy isn't known");
    }
}
