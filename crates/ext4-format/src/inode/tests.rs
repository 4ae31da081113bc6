//! Sizes that no file can have.

use super::*;
use crate::error::InodeProblem;
use crate::testing::layout;

#[test]
fn sizes_beyond_the_last_block_number_are_refused() {
    let layout = layout();
    let number = layout.first_inode();
    for (flags, limit) in [
        (InodeFlags::EXTENTS, layout.extent_file_bytes_max()),
        (InodeFlags::empty(), layout.mapped_file_bytes_max()),
    ] {
        let mut inode = Inode::new(number, 0o100_644, InodeTimestamp::default(), &layout);
        inode.flags = flags;
        for (size_bytes, is_sound) in [(limit, true), (limit + 1, false), (1 << 60, false)] {
            inode.size_bytes = size_bytes;
            let mut bytes = vec![0; layout.inode_size()];
            inode.encode_into(&mut bytes, &layout).unwrap();
            let problem = InodeProblem::Size { bytes: size_bytes };
            let expected = if is_sound {
                Ok(inode.clone())
            } else {
                Err(Corrupt::Inode { inode: number, problem })
            };
            assert_eq!(Inode::check(&bytes, number, &layout), expected);
        }
    }
}
