//! Messages as the kernel writes them, whole and damaged.

use super::*;
use proptest::prelude::*;
use zerocopy::IntoBytes;

/// A message as the device gives it.
fn message(operation: u32, body: &[u8]) -> Vec<u8> {
    let length = (size_of::<RequestHeader>() + body.len()) as u32;
    let header = RequestHeader { length, operation, node: 7, ..RequestHeader::default() };
    [header.as_bytes(), body].concat()
}

fn decode(bytes: &[u8]) -> Result<Request<'_>, Malformed> {
    Message::from_device(bytes, Layouts::default())?.request()
}

#[test]
fn names_follow_the_fixed_part() {
    let rename = Rename2In { new_parent: 9, flags: 1, padding: 0 };
    let bytes = message(45, &[rename.as_bytes(), b"old\0new\0"].concat());
    let expected = Request::Rename { new_parent: 9, flags: 1, name: b"old", new_name: b"new" };
    assert_eq!(decode(&bytes), Ok(expected));
    let bytes = message(6, b"link\0target\0");
    assert_eq!(decode(&bytes), Ok(Request::Symlink { name: b"link", target: b"target" }));
}

#[test]
fn an_attribute_is_set_in_both_layouts() {
    let plain = SetXattrIn { size: 2, flags: 1 };
    let bytes = message(21, &[plain.as_bytes(), b"user.a\0xy"].concat());
    let expected = Request::SetXattr { flags: 1, own_flags: 0, name: b"user.a", value: b"xy" };
    assert_eq!(decode(&bytes), Ok(expected.clone()));
    let extended = SetXattrExtendedIn { plain, own_flags: 1, padding: 0 };
    let bytes = message(21, &[extended.as_bytes(), b"user.a\0xy"].concat());
    let layouts = Layouts { extended_set_xattr: true };
    let request = Message::from_device(&bytes, layouts).and_then(|message| message.request());
    let Ok(Request::SetXattr { own_flags: 1, name: b"user.a", value: b"xy", .. }) = request else {
        panic!("{request:?}");
    };
}

#[test]
fn what_does_not_fit_is_named() {
    assert_eq!(decode(&[0; 39]), Err(Malformed::Header { length: 39 }));
    let mut bytes = message(3, &[0; 16]);
    bytes.pop();
    assert_eq!(decode(&bytes), Err(Malformed::Length { length: 55, stated: 56 }));
    assert_eq!(decode(&message(99, &[])), Err(Malformed::Operation { code: 99 }));
    let operation = Opcode::Read;
    assert_eq!(decode(&message(15, &[0; 39])), Err(Malformed::Fixed { operation, length: 39 }));
    let operation = Opcode::Lookup;
    assert_eq!(decode(&message(1, b"name")), Err(Malformed::Name { operation }));
    let write = WriteIn { size: 4, ..WriteIn::default() };
    let bytes = message(16, &[write.as_bytes(), b"abc"].concat());
    let operation = Opcode::Write;
    assert_eq!(decode(&bytes), Err(Malformed::Data { operation, length: 3, stated: 4 }));
    let many = BatchForgetIn { count: u32::MAX, padding: 0 };
    let stated = u64::from(u32::MAX) * 16;
    let operation = Opcode::BatchForget;
    let error = Malformed::Data { operation, length: 0, stated };
    assert_eq!(decode(&message(42, many.as_bytes())), Err(error));
}

#[test]
fn a_batch_is_taken_apart() {
    let nodes = [ForgetOne { node: 2, count: 1 }, ForgetOne { node: 3, count: 5 }];
    let batch = BatchForgetIn { count: 2, padding: 0 };
    let bytes = message(42, &[batch.as_bytes(), nodes.as_bytes()].concat());
    let Ok(Request::BatchForget { nodes: found }) = decode(&bytes) else { panic!() };
    assert_eq!(forgotten(found).collect::<Vec<_>>(), nodes);
}

#[test]
fn times_are_given_or_now() {
    let asked = SetAttributesIn {
        valid: set_valid::ACCESSED | set_valid::MODIFIED | set_valid::MODIFIED_NOW,
        accessed: -1,
        accessed_nanoseconds: 5,
        ..SetAttributesIn::default()
    };
    assert_eq!(asked.accessed_change(), Some(TimeChange::At(-1, 5)));
    assert_eq!(asked.modified_change(), Some(TimeChange::Now));
    assert_eq!(asked.field(set_valid::SIZE, asked.size), None);
}

proptest! {
    /// Any bytes are decoded or refused, and decoded parts lie inside the message.
    #[test]
    fn any_bytes_are_decoded_or_refused(
        operation in 0u32..60,
        extended_set_xattr: bool,
        body in proptest::collection::vec(any::<u8>(), 0..200),
    ) {
        let bytes = message(operation, &body);
        let layouts = Layouts { extended_set_xattr };
        let message = Message::from_device(&bytes, layouts).unwrap();
        prop_assert_eq!(message.fixed.len() + message.payload.len(), body.len());
        if let Ok(Request::Write(how, data)) = message.request() {
            prop_assert_eq!(how.size as usize, data.len());
        }
    }

    #[test]
    fn headers_are_checked(bytes in proptest::collection::vec(any::<u8>(), 0..100)) {
        let stated = bytes.first_chunk().map(|stated| u32::from_ne_bytes(*stated));
        let fits = bytes.len() >= 40 && stated == Some(bytes.len() as u32);
        prop_assert_eq!(Message::from_device(&bytes, Layouts::default()).is_ok(), fits);
    }
}
