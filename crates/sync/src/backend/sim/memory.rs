//! Which cores have which lines of memory.

use super::machine::Machine;
use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

const LINE_BYTES: usize = 64;

/// How a line is used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Use {
    Read,
    Write,
    /// A read and a write that nothing comes between.
    Modify,
}

/// A set of cores.
type Cores = [u64; 4];

struct Line {
    /// The core that changed it last.
    owner: u16,
    sharers: Cores,
    /// When the last change of it has ended.
    free_ps: u64,
}

/// The lines that were used.
#[derive(Default)]
pub(super) struct Memory {
    lines: HashMap<usize, Line, BuildHasherDefault<LineHasher>>,
}

/// Line numbers are spread by a multiplication; the same in every run.
#[derive(Default)]
struct LineHasher(u64);

impl Hasher for LineHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, _: &[u8]) {
        unreachable!("lines are numbers")
    }

    fn write_usize(&mut self, line: usize) {
        self.0 = (line as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(23);
    }
}

impl Memory {
    /// Uses the lines of `bytes` bytes from `address` on a core at `now_ps`; returns when that has
    /// ended.
    pub fn touch(
        &mut self,
        machine: &Machine,
        core: usize,
        address: usize,
        bytes: usize,
        how: Use,
        now_ps: u64,
    ) -> u64 {
        let first = address / LINE_BYTES;
        let last = (address + bytes.max(1) - 1) / LINE_BYTES;
        (first..=last).fold(now_ps, |now, line| self.touch_line(machine, core, line, how, now))
    }

    fn touch_line(
        &mut self,
        machine: &Machine,
        core: usize,
        number: usize,
        how: Use,
        now_ps: u64,
    ) -> u64 {
        // 256 cores at most.
        let (word, bit) = (core / 64, 1_u64 << (core % 64));
        let line = self.lines.entry(number).or_insert_with(|| Line {
            owner: u16::MAX,
            sharers: Cores::default(),
            free_ps: 0,
        });
        let has = line.sharers[word] & bit != 0;
        let mut alone = Cores::default();
        alone[word] = bit;
        let cost = match how {
            Use::Read if has => return now_ps + machine.hit_ps,
            Use::Write if line.sharers == alone => return now_ps + machine.hit_ps,
            Use::Modify if line.sharers == alone => return now_ps + machine.atomic_ps,
            _ if line.owner == u16::MAX => machine.memory_ps,
            _ if usize::from(line.owner) == core => {
                // Others have copies: the nearest says how far the invalidation goes.
                machine.near_ps
            }
            _ => machine.transfer_ps(usize::from(line.owner), core),
        };
        let end = now_ps.max(line.free_ps) + cost;
        match how {
            Use::Read => {
                line.sharers[word] |= bit;
                if line.owner == u16::MAX {
                    line.owner = core as u16;
                }
            }
            Use::Write | Use::Modify => {
                line.owner = core as u16;
                line.sharers = alone;
                line.free_ps = end;
            }
        }
        end
    }
}
