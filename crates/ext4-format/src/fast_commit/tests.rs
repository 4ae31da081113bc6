//! Records as Linux writes them, and others.

use super::*;
use crate::error::FastCommitProblem;
use crate::ids::PhysicalBlock;
use crate::testing::layout;
use proptest::prelude::*;

fn numbers(numbers: &[u32]) -> Vec<u8> {
    numbers.iter().flat_map(|number| number.to_le_bytes()).collect()
}

fn problem(tag: u16, value: &[u8]) -> FastCommitProblem {
    match FastCommitRecord::check(tag, value, &layout()) {
        Err(Corrupt::FastCommit { problem, .. }) => problem,
        other => panic!("{other:?}"),
    }
}

#[test]
fn records_that_linux_wrote() {
    let layout = layout();
    // Of a file of one block, its name, a cut, and the block of another that is unwritten.
    let value = [14, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0x01, 0x24, 0, 0];
    let extent = Extent {
        logical: LogicalBlock::new(0),
        length: 1,
        physical: PhysicalBlock::new(0x2401),
        unwritten: false,
    };
    let inode = InodeNumber::new(14);
    assert_eq!(
        FastCommitRecord::check(1, &value, &layout).unwrap(),
        FastCommitRecord::AddRange { inode, extent }
    );
    let value = [&numbers(&[2, 14])[..], b"n1"].concat();
    let name = NameRecord { parent: InodeNumber::ROOT, inode, name: b"n1" };
    assert_eq!(
        FastCommitRecord::check(3, &value, &layout).unwrap(),
        FastCommitRecord::Add(name.clone())
    );
    assert_eq!(
        FastCommitRecord::check(4, &value, &layout).unwrap(),
        FastCommitRecord::Add(name.clone())
    );
    assert_eq!(
        FastCommitRecord::check(5, &value, &layout).unwrap(),
        FastCommitRecord::Remove(name)
    );
    let value = numbers(&[14, 2_147_483_649, 2_147_483_646]);
    let (from, length) = (LogicalBlock::new(2_147_483_649), 2_147_483_646);
    let record = FastCommitRecord::check(2, &value, &layout).unwrap();
    assert_eq!(record, FastCommitRecord::RemoveRange { inode, from, length });
    let value = [14, 0, 0, 0, 1, 0, 0, 0, 0x01, 0x80, 0, 0, 0x86, 0x08, 0, 0];
    let FastCommitRecord::AddRange { extent, .. } =
        FastCommitRecord::check(1, &value, &layout).unwrap()
    else {
        panic!("no range")
    };
    assert!(extent.unwritten && extent.length == 1 && extent.physical.get() == 2182);
    let value = [&numbers(&[14])[..], &[1; 160]].concat();
    let record = FastCommitRecord::check(6, &value, &layout).unwrap();
    assert_eq!(record, FastCommitRecord::Inode { inode, bytes: &[1; 160] });
}

#[test]
fn what_can_not_be_is_refused() {
    let name = |parent, inode, name: &[u8]| [&numbers(&[parent, inode])[..], name].concat();
    assert_eq!(problem(0, &[]), FastCommitProblem::Tag(0));
    assert_eq!(problem(2, &[1; 3]), FastCommitProblem::Length { tag: 2, bytes: 3 });
    assert_eq!(problem(6, &numbers(&[14; 20])), FastCommitProblem::Length { tag: 6, bytes: 80 });
    for inode in [0, 1, 8, 10 * 8192 + 1, u32::MAX] {
        assert_eq!(problem(2, &numbers(&[inode, 0, 1])), FastCommitProblem::Number, "{inode}");
        assert_eq!(problem(3, &name(2, inode, b"a")), FastCommitProblem::Number);
        assert_eq!(problem(3, &name(inode, 14, b"a")), FastCommitProblem::Number);
    }
    for bad in [&b""[..], b".", b"..", b"a/b", b"a\0", &[b'x'; 256]] {
        assert_eq!(problem(4, &name(2, 14, bad)), FastCommitProblem::Name);
    }
    assert_eq!(problem(4, &name(14, 2, b"root")), FastCommitProblem::Name);
    assert_eq!(problem(2, &numbers(&[14, 5, 0])), FastCommitProblem::Range);
    assert_eq!(problem(2, &numbers(&[14, 5, u32::MAX])), FastCommitProblem::Range);
    assert_eq!(problem(1, &numbers(&[14, 0, 1, 400_000])), FastCommitProblem::Range);
    assert_eq!(problem(1, &numbers(&[14, 0, 1 | 1 << 16, 5])), FastCommitProblem::Range);
    assert_eq!(problem(1, &numbers(&[14, 0, 0, 5])), FastCommitProblem::Range);
}

proptest! {
    #[test]
    fn no_record_makes_a_check_panic(
        tag in 0u16..8,
        value in prop::collection::vec(any::<u8>(), 0..400),
    ) {
        let _ = FastCommitRecord::check(tag, &value, &layout());
    }
}
