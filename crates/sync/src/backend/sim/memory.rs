//! Which cores have which lines of memory.

use super::machine::MachineModel;
use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

const LINE_BYTES: usize = 64;

/// How a line is used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LineUse {
    Read,
    Write,
    /// An atomic read-modify-write.
    Modify,
}

/// What an access cost.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Paid {
    pub end_ps: u64,
    /// Lines that the core had to fetch.
    pub transfers: u64,
    pub transfer_ps: u64,
    /// Time until changes by other cores had ended.
    pub queue_ps: u64,
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

/// The lines used so far.
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
    /// Uses the lines of `bytes` bytes from `address` on a core at `now_ps`.
    pub fn touch(
        &mut self,
        machine: &MachineModel,
        core: usize,
        address: usize,
        bytes: usize,
        how: LineUse,
        now_ps: u64,
    ) -> Paid {
        let first = address / LINE_BYTES;
        let last = (address + bytes.max(1) - 1) / LINE_BYTES;
        let mut paid = Paid { end_ps: now_ps, ..Paid::default() };
        (first..=last).for_each(|line| self.touch_line(machine, core, line, how, &mut paid));
        paid
    }

    fn touch_line(
        &mut self,
        machine: &MachineModel,
        core: usize,
        number: usize,
        how: LineUse,
        paid: &mut Paid,
    ) {
        let now_ps = paid.end_ps;
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
            LineUse::Read if has => return paid.end_ps += machine.hit_ps,
            LineUse::Write if line.sharers == alone => return paid.end_ps += machine.hit_ps,
            LineUse::Modify if line.sharers == alone => return paid.end_ps += machine.atomic_ps,
            _ if line.owner == u16::MAX => machine.memory_ps,
            _ if usize::from(line.owner) == core => {
                // Others have copies: the nearest says how far the invalidation goes.
                machine.near_ps
            }
            _ => machine.transfer_ps(usize::from(line.owner), core),
        };
        let queue = line.free_ps.saturating_sub(now_ps);
        let end = now_ps + queue + cost;
        paid.end_ps = end;
        paid.transfers += 1;
        paid.transfer_ps += cost;
        paid.queue_ps += queue;
        match how {
            LineUse::Read => {
                line.sharers[word] |= bit;
                if line.owner == u16::MAX {
                    line.owner = core as u16;
                }
            }
            LineUse::Write | LineUse::Modify => {
                line.owner = core as u16;
                line.sharers = alone;
                line.free_ps = end;
            }
        }
    }
}
