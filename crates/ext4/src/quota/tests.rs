//! Usage files that grow, judged by e2fsck.

use crate::testing::TestImage;
use drystone_vfs::{FileSystem, NewNode, RequestContext, SetAttributes};

/// Enough to fill more than a few blocks of records, spread so that the tree gets branches.
const OWNERS: u32 = 120;

#[test]
fn new_owners_get_records() {
    for kind in ["quota", "quota-project"] {
        let Some(image) = TestImage::new(kind, 16) else { return };
        for round in 0..2 {
            let fs = image.open();
            let context = RequestContext::superuser();
            let root = fs.root();
            for number in 0..OWNERS {
                let owner = number.wrapping_mul(0x0101_3579) ^ round;
                let user = RequestContext { user: owner, group: owner / 2, ..context.clone() };
                let name = format!("{round}-{number}");
                let made = fs.create(&user, root, name.as_bytes(), NewNode::Regular, 0o644);
                let inode = made.expect("a file").inode;
                fs.write(&context, inode, 0, &[1; 5000]).expect("data");
                if number % 3 == 0 {
                    let group = Some(number * 77_777);
                    let changes = SetAttributes { group, ..SetAttributes::default() };
                    fs.set_attributes(&context, inode, &changes).expect("a new group");
                }
                if number % 5 == 0 {
                    fs.unlink(&context, root, name.as_bytes()).expect("a file less");
                }
                fs.forget(inode, 1);
            }
            fs.close().expect("a clean end");
            image.check(kind);
        }
    }
}
