//! ACLs as archives write them: `user::rwx,user:1001:r-x,group::r-x,mask::r-x,other::---`.

/// The text of an ACL in the kernel's form; none if it isn't in that form.
pub(super) fn text(value: &[u8]) -> Option<String> {
    let entries = value.strip_prefix(&2_u32.to_le_bytes())?;
    if entries.len() % 8 != 0 {
        return None;
    }
    let mut texts = Vec::new();
    for entry in entries.chunks_exact(8) {
        let [tag_low, tag_high, rights, 0, id @ ..] = entry else { return None };
        let id = u32::from_le_bytes(id.try_into().ok()?);
        let who = match u16::from_le_bytes([*tag_low, *tag_high]) {
            0x01 => "user:".to_string(),
            0x02 => format!("user:{id}"),
            0x04 => "group:".to_string(),
            0x08 => format!("group:{id}"),
            0x10 => "mask:".to_string(),
            0x20 => "other:".to_string(),
            _ => return None,
        };
        let right = |bit: u8, letter| if rights & bit == 0 { '-' } else { letter };
        let rights: String = [right(4, 'r'), right(2, 'w'), right(1, 'x')].iter().collect();
        texts.push(format!("{who}:{rights}"));
    }
    Some(texts.join(","))
}

#[cfg(test)]
mod tests {
    use super::text;

    #[test]
    fn acls_as_text() {
        let entry = |tag: u8, rights: u8, id: u32| {
            let id = id.to_le_bytes();
            [tag, 0, rights, 0, id[0], id[1], id[2], id[3]]
        };
        let value = [
            &[2, 0, 0, 0][..],
            &entry(1, 7, u32::MAX),
            &entry(2, 5, 1001),
            &entry(4, 4, u32::MAX),
            &entry(0x10, 5, u32::MAX),
            &entry(0x20, 0, u32::MAX),
        ]
        .concat();
        let expected = "user::rwx,user:1001:r-x,group::r--,mask::r-x,other::---";
        assert_eq!(text(&value).as_deref(), Some(expected));
        assert_eq!(text(&value[..10]), None);
        assert_eq!(text(b"\x01\0\0\0"), None);
    }
}
