//! Archives made by hand, as no program writes them.

/// A header: name, type, link and size, in the dialect of ustar.
pub fn header(name: &[u8], kind: u8, link: &[u8], size: u64) -> [u8; 512] {
    let mut block = [0_u8; 512];
    block[..name.len()].copy_from_slice(name);
    let mut put =
        |at: usize, text: &str| block[at..at + text.len()].copy_from_slice(text.as_bytes());
    put(100, "0000644\0");
    put(108, "0000000\0");
    put(116, "0000000\0");
    put(124, &format!("{size:011o}\0"));
    put(136, "00000000017\0");
    put(257, "ustar\x0000");
    block[156] = kind;
    block[157..157 + link.len()].copy_from_slice(link);
    seal(&mut block);
    block
}

/// Makes the checksum right.
pub fn seal(block: &mut [u8; 512]) {
    block[148..156].fill(b' ');
    let sum: u32 = block.iter().map(|&byte| u32::from(byte)).sum();
    block[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
}

/// The content of an extended header.
pub fn records_of(records: &[(&str, &[u8])]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for (key, value) in records {
        let body = key.len() + value.len() + 3;
        let digits = (1..).find(|digits| (body + digits).to_string().len() == *digits);
        let length = body + digits.expect("some length fits");
        bytes.extend(format!("{length} {key}=").as_bytes());
        bytes.extend(*value);
        bytes.push(b'\n');
    }
    bytes
}

/// An archive in the making.
#[derive(Default)]
pub struct Made(pub Vec<u8>);

impl Made {
    pub fn entry(mut self, name: &str, kind: u8, link: &str, content: &[u8]) -> Made {
        self.0.extend(header(name.as_bytes(), kind, link.as_bytes(), content.len() as u64));
        self.data(content)
    }

    pub fn data(mut self, content: &[u8]) -> Made {
        self.0.extend(content);
        self.0.resize(self.0.len().next_multiple_of(512), 0);
        self
    }

    pub fn file(self, name: &str, content: &str) -> Made {
        self.entry(name, b'0', "", content.as_bytes())
    }

    pub fn directory(self, name: &str) -> Made {
        self.entry(name, b'5', "", b"")
    }

    /// An extended header with these records.
    pub fn pax(self, records: &[(&str, &[u8])]) -> Made {
        self.entry("pax", b'x', "", &records_of(records))
    }

    pub fn end(mut self) -> Vec<u8> {
        self.0.extend([0; 1024]);
        self.0
    }
}
