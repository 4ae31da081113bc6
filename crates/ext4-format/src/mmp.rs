//! The block of multi-mount protection: which host has the filesystem open, and since when.
//!
//! A node that mounts writes a random sequence number, waits, and goes on only if nobody else
//! changed it meanwhile; then it writes a new number every few seconds.
//!
//! # Reference
//! Kernel documentation, "ext4 Data Structures and Algorithms", Multiple Mount Protection.

use crate::checksum::ChecksumSeed;
use crate::error::{Corrupt, MmpProblem};
use crate::ids::PhysicalBlock;
use std::mem::{offset_of, size_of};
use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// The magic number of the block.
pub const MAGIC: u32 = 0x004d_4d50;

const SEQUENCE_CLEAN: u32 = 0xff4d_4d50;
const SEQUENCE_CHECKER: u32 = 0xe24d_4d50;

/// The largest sequence number that a mounted node may write.
pub const SEQUENCE_MAX: u32 = 0xe24d_4d4f;

/// Least seconds between two looks at the block before a mount.
pub const CHECK_INTERVAL_SECONDS_MIN: u16 = 5;

/// Most seconds between two looks at the block; a damaged block may ask for more, which is ignored.
pub const CHECK_INTERVAL_SECONDS_MAX: u16 = 300;

drystone_ondisk::with_fields! {
    /// The block as it is stored.
    #[derive(Debug, Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
    #[repr(C)]
    pub struct RawMmp {
        /// [`MAGIC`].
        pub magic: U32,
        /// Sequence number, or one of the values that say what has the filesystem open.
        pub sequence: U32,
        /// When the block was written, in seconds since 1970.
        pub time: U64,
        /// Name of the node.
        pub node_name: [u8; 64],
        /// Name of the device on that node.
        pub device_name: [u8; 32],
        /// Seconds between two writes, as others must expect.
        pub check_interval: U16,
        /// Unused.
        pub padding: U16,
        /// Unused.
        pub unused: [U32; 226],
        /// The checksum of all before it.
        pub checksum: U32,
    }
}

const _: () = assert!(size_of::<RawMmp>() == 1024);
const _: () = assert!(offset_of!(RawMmp, node_name) == 16);
const _: () = assert!(offset_of!(RawMmp, check_interval) == 112);
const _: () = assert!(offset_of!(RawMmp, checksum) == 1020);

/// Who has the filesystem.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MmpState {
    /// Nobody.
    Clean,
    /// A checker: no mount until it is done.
    Checking,
    /// A node that mounted it; the number changes as long as it lives.
    Mounted(u32),
}

/// The checked content of the block.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mmp {
    /// Who has the filesystem.
    pub state: MmpState,
    /// When the block was written, in seconds since 1970.
    pub time_seconds: u64,
    /// Name of the node that wrote it, for people; at most 64 bytes are kept.
    pub node_name: Vec<u8>,
    /// Name of the device on that node, for people; at most 32 bytes are kept.
    pub device_name: Vec<u8>,
    /// Seconds between two writes, as others must expect.
    pub check_interval_seconds: u16,
}

impl Mmp {
    /// Checks and reads the block; `checksum` is `None` where the image has none.
    ///
    /// # Errors
    /// What is wrong with the block.
    pub fn check(
        bytes: &[u8],
        checksum: Option<ChecksumSeed>,
        block: PhysicalBlock,
    ) -> Result<Self, Corrupt> {
        let corrupt = |problem| Corrupt::Mmp { block, problem };
        let too_short = MmpProblem::BlockLength { length: bytes.len() };
        let (raw, _) = RawMmp::ref_from_prefix(bytes).map_err(|_| corrupt(too_short))?;
        if raw.magic.get() != MAGIC {
            return Err(corrupt(MmpProblem::Magic { found: raw.magic.get() }));
        }
        let stored = raw.checksum.get();
        match checksum.map(|seed| compute(seed, raw)) {
            Some(computed) if computed != stored => {
                return Err(corrupt(MmpProblem::Checksum { stored, computed }));
            }
            _ => {}
        }
        let state = match raw.sequence.get() {
            SEQUENCE_CLEAN => MmpState::Clean,
            SEQUENCE_CHECKER => MmpState::Checking,
            number if number <= SEQUENCE_MAX => MmpState::Mounted(number),
            found => return Err(corrupt(MmpProblem::Sequence { found })),
        };
        Ok(Self {
            state,
            time_seconds: raw.time.get(),
            node_name: text(&raw.node_name),
            device_name: text(&raw.device_name),
            check_interval_seconds: raw.check_interval.get(),
        })
    }

    /// Writes the block and its checksum; bytes after the structure are zeroed.
    ///
    /// # Panics
    /// If the slice is shorter than 1024 bytes, or the sequence number above [`SEQUENCE_MAX`].
    pub fn encode(&self, bytes: &mut [u8], checksum: Option<ChecksumSeed>) {
        let sequence = match self.state {
            MmpState::Clean => SEQUENCE_CLEAN,
            MmpState::Checking => SEQUENCE_CHECKER,
            MmpState::Mounted(number) => {
                assert!(number <= SEQUENCE_MAX, "sequence numbers of mounts are bounded");
                number
            }
        };
        let raw = RawMmp {
            magic: MAGIC.into(),
            sequence: sequence.into(),
            time: self.time_seconds.into(),
            node_name: field(&self.node_name),
            device_name: field(&self.device_name),
            check_interval: self.check_interval_seconds.into(),
            padding: 0.into(),
            unused: [0.into(); 226],
            checksum: 0.into(),
        };
        let (head, rest) = bytes.split_at_mut(size_of::<RawMmp>());
        head.copy_from_slice(raw.as_bytes());
        rest.fill(0);
        seal(head, checksum);
    }
}

/// Computes and stores the checksum after bytes of the block were changed in place. Does nothing where the image has
/// none.
pub fn seal(bytes: &mut [u8], checksum: Option<ChecksumSeed>) {
    if let (Some(seed), Ok((raw, _))) = (checksum, RawMmp::mut_from_prefix(bytes)) {
        raw.checksum = compute(seed, raw).into();
    }
}

fn compute(seed: ChecksumSeed, raw: &RawMmp) -> u32 {
    seed.append(&raw.as_bytes()[..offset_of!(RawMmp, checksum)])
}

/// The bytes of a field up to its first zero.
fn text(field: &[u8]) -> Vec<u8> {
    field.split(|&byte| byte == 0).next().unwrap_or_default().to_vec()
}

/// A field of fixed length, cut or padded with zeros.
fn field<const LENGTH: usize>(text: &[u8]) -> [u8; LENGTH] {
    let mut field = [0; LENGTH];
    let length = text.len().min(LENGTH);
    field[..length].copy_from_slice(&text[..length]);
    field
}

#[cfg(test)]
mod tests {
    use super::*;

    const BLOCK: PhysicalBlock = PhysicalBlock::new(5);

    fn sample(state: MmpState) -> Mmp {
        Mmp {
            state,
            time_seconds: 1_700_000_000,
            node_name: b"node".to_vec(),
            device_name: vec![b'd'; 32],
            check_interval_seconds: 5,
        }
    }

    #[test]
    fn survives_a_round_trip() {
        let seed = Some(ChecksumSeed::from_stored(7));
        for state in [MmpState::Clean, MmpState::Checking, MmpState::Mounted(SEQUENCE_MAX)] {
            let mut bytes = vec![1; 4096];
            sample(state).encode(&mut bytes, seed);
            assert_eq!(Mmp::check(&bytes, seed, BLOCK), Ok(sample(state)));
            bytes[20] ^= 1;
            assert!(Mmp::check(&bytes, seed, BLOCK).is_err());
            assert!(Mmp::check(&bytes, None, BLOCK).is_ok());
        }
    }

    #[test]
    fn refuses_strange_blocks() {
        assert!(Mmp::check(&[0; 4096], None, BLOCK).is_err());
        assert!(Mmp::check(&[], None, BLOCK).is_err());
        let mut bytes = vec![0; 1024];
        sample(MmpState::Clean).encode(&mut bytes, None);
        bytes[4] = 0x51;
        let problem = MmpProblem::Sequence { found: 0xff4d_4d51 };
        assert_eq!(Mmp::check(&bytes, None, BLOCK), Err(Corrupt::Mmp { block: BLOCK, problem }));
    }
}
