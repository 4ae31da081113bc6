//! Random numbers that are the same in every run: xorshift64*.

/// A sequence.
#[derive(Debug)]
pub struct Random(u64);

impl Random {
    /// The sequence of a worker.
    pub fn of_worker(index: u64) -> Random {
        Random((index + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    /// The next number, below `bound`, which is at least 1.
    pub fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 16) % bound
    }
}
