//! Inodes in order, which may repeat. Most follow each other closely, so that a byte for each is enough.

/// The low bits of a byte; the highest says that another byte follows.
const BITS: u32 = 7;
const MORE: u8 = 1 << BITS;

/// A list of inodes: the distance of each from the one before, in as many bytes as it needs.
#[derive(Debug)]
pub(crate) struct InodeList {
    bytes: Box<[u8]>,
    /// The first and the last one.
    bounds: Option<(u32, u32)>,
}

impl InodeList {
    pub fn new(mut inodes: Vec<u32>) -> Self {
        inodes.sort_unstable();
        let mut bytes = Vec::with_capacity(inodes.len());
        let mut before = 0;
        for &inode in &inodes {
            let mut rest = inode - before;
            while rest >> BITS != 0 {
                bytes.push(rest as u8 | MORE);
                rest >>= BITS;
            }
            bytes.push(rest as u8);
            before = inode;
        }
        Self { bytes: bytes.into(), bounds: inodes.first().copied().zip(inodes.last().copied()) }
    }

    pub fn bounds(&self) -> Option<(u32, u32)> {
        self.bounds
    }

    pub fn iter(&self) -> impl Iterator<Item = u32> {
        let mut bytes = self.bytes.iter();
        let mut inode = 0;
        std::iter::from_fn(move || {
            let mut shift = 0;
            loop {
                let byte = *bytes.next()?;
                inode += u32::from(byte & !MORE) << shift;
                if byte & MORE == 0 {
                    return Some(inode);
                }
                shift += BITS;
            }
        })
    }

    pub fn memory_bytes(&self) -> usize {
        self.bytes.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn inodes_come_in_order() {
        let inodes = [300, 12, 12, u32::MAX, 140, 13, 1 << 21];
        let list = InodeList::new(inodes.to_vec());
        assert!(list.iter().eq([12, 12, 13, 140, 300, 1 << 21, u32::MAX]));
        assert_eq!(list.bounds(), Some((12, u32::MAX)));
        assert_eq!(list.memory_bytes(), 14);
        assert_eq!(InodeList::new(Vec::new()).bounds(), None);
    }
}
