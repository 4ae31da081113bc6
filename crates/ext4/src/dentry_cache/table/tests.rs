//! Dentry tables against a map.

use super::*;
use std::collections::HashMap;

/// Random changes: a table may forget names, but what it says agrees with the map.
#[test]
fn says_what_a_map_says() {
    let mut table = DentryTablePart::<LONG>::default();
    let mut model: HashMap<Vec<u8>, u32> = HashMap::new();
    let mut random = 0x5eed_u64;
    let mut next = |below: u64| {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (random >> 33) % below
    };
    let mut hits = 0;
    for step in 0..200_000_u32 {
        let number = next(3000);
        let name = vec![b'a'; (number % 7) as usize + 1];
        let name = [&name[..], &number.to_string().into_bytes()].concat();
        match next(4) {
            0 | 1 => {
                if table.wants_room() && table.places() < 2048 {
                    table.grow();
                }
                let meaning = match step % 5 {
                    0 => DentryTarget::Nothing,
                    _ => DentryTarget::Inode(InodeNumber::new(step)),
                };
                table.set(&name, meaning);
                model.insert(name, if step % 5 == 0 { 0 } else { step });
            }
            2 => {
                table.remove(&name);
                model.remove(&name);
            }
            _ => {
                if let Some(meaning) = table.get(&name) {
                    let found = match meaning {
                        DentryTarget::Inode(inode) => inode.get(),
                        DentryTarget::Nothing => 0,
                    };
                    assert_eq!(model.get(&name), Some(&found), "at step {step}");
                    hits += 1;
                }
            }
        }
        let used = table.slots.as_ref().map_or(0, |slots| slots.keys().count());
        assert_eq!(used, table.count);
    }
    assert!(hits > 10_000, "{hits} hits");
}

#[test]
fn knows_what_is_not_there_only_while_it_knows_all() {
    let inode = DentryTarget::Inode(InodeNumber::new(7));
    let mut table = DentryTablePart::<LONG>::default();
    table.grow();
    assert_eq!(table.get(b"a"), None);
    table.set_complete();
    assert_eq!(table.get(b"a"), Some(DentryTarget::Nothing));
    table.begin_change(b"a");
    assert_eq!((table.get(b"a"), table.get(b"b")), (None, None));
    // Two changes at once, as in a rename.
    table.begin_change(b"b");
    table.end_change(b"b");
    assert_eq!(table.get(b"b"), None);
    table.set(b"a", inode);
    table.end_change(b"a");
    assert_eq!((table.get(b"a"), table.get(b"b")), (Some(inode), Some(DentryTarget::Nothing)));
    for number in 0..PLACES.0 as u32 {
        table.set(&number.to_le_bytes(), inode);
    }
    assert_eq!(table.get(b"b"), None, "names were forgotten");
    let mut table = DentryTablePart::<LONG>::default();
    table.grow();
    table.set_complete();
    table.set(&[b'x'; 255], inode);
    assert_eq!(table.get(b"b"), None, "a name that does not fit");
}

/// Names of many lengths that differ in their last bytes lie near their home slots.
#[test]
fn names_with_numbers_are_all_kept() {
    for length in [7, 8, 16, 24, 27, 56] {
        let mut table = DentryTablePart::<LONG>::default();
        table.set_complete();
        for number in 0..20_000_u32 {
            if table.wants_room() {
                table.grow();
            }
            let name = format!("{number:x>length$}");
            table.set(name.as_bytes(), DentryTarget::Inode(InodeNumber::new(number + 1)));
        }
        assert!(table.is_complete, "{length} bytes");
    }
}

#[test]
fn names_of_one_hash_push_each_other_out() {
    let mut table = DentryTablePart::<LONG>::default();
    table.grow();
    // More names than the table holds.
    for number in 0..100_u32 {
        table.set(&number.to_le_bytes(), DentryTarget::Inode(InodeNumber::new(number + 1)));
    }
    assert_eq!(table.count, PLACES.0 / 4 * 3);
    let last = table.get(&99_u32.to_le_bytes());
    assert_eq!(last, Some(DentryTarget::Inode(InodeNumber::new(100))));
}
