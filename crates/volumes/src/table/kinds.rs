//! What partitions are meant for.
//!
//! # Reference
//! The Discoverable Partitions Specification of the UAPI group; "Partition types" of the UEFI Forum.

use super::PartitionType;
use uuid::{Uuid, uuid};

/// Types in a GPT, with the names of systemd-repart(8) where it has one.
const GPT: [(Uuid, &str); 48] = [
    (uuid!("c12a7328-f81f-11d2-ba4b-00a0c93ec93b"), "esp"),
    (uuid!("bc13c2ff-59e6-4262-a352-b275fd6f7172"), "xbootldr"),
    (uuid!("21686148-6449-6e6f-744e-656564454649"), "bios-boot"),
    (uuid!("0fc63daf-8483-4772-8e79-3d69d8477de4"), "linux-generic"),
    (uuid!("4f68bce3-e8cd-4db1-96e7-fbcaf984b709"), "root-x86-64"),
    (uuid!("44479540-f297-41b2-9af7-d131d5f0458a"), "root-x86"),
    (uuid!("b921b045-1df0-41c3-af44-4c6f280d3fae"), "root-arm64"),
    (uuid!("69dad710-2ce4-4e3c-b16c-21a1d49abed3"), "root-arm"),
    (uuid!("72ec70a6-cf74-40e6-bd49-4bda08e8f224"), "root-riscv64"),
    (uuid!("c31c45e6-3f39-412e-80fb-4809c4980599"), "root-ppc64-le"),
    (uuid!("5eead9a9-fe09-4a1e-a1d7-520d00531306"), "root-s390x"),
    (uuid!("77055800-792c-4f94-b39a-98c91b762bb6"), "root-loongarch64"),
    (uuid!("2c7357ed-ebd2-46d9-aec1-23d437ec2bf5"), "root-x86-64-verity"),
    (uuid!("d13c5d3b-b5d1-422a-b29f-9454fdc89d76"), "root-x86-verity"),
    (uuid!("df3300ce-d69f-4c92-978c-9bfb0f38d820"), "root-arm64-verity"),
    (uuid!("7386cdf2-203c-47a9-a498-f2ecce45a2d6"), "root-arm-verity"),
    (uuid!("b6ed5582-440b-4209-b8da-5ff7c419ea3d"), "root-riscv64-verity"),
    (uuid!("906bd944-4589-4aae-a4e4-dd983917446a"), "root-ppc64-le-verity"),
    (uuid!("b325bfbe-c7be-4ab8-8357-139e652d2f6b"), "root-s390x-verity"),
    (uuid!("f3393b22-e9af-4613-a948-9d3bfbd0c535"), "root-loongarch64-verity"),
    (uuid!("8484680c-9521-48c6-9c11-b0720656f69e"), "usr-x86-64"),
    (uuid!("75250d76-8cc6-458e-bd66-bd47cc81a812"), "usr-x86"),
    (uuid!("b0e01050-ee5f-4390-949a-9101b17104e9"), "usr-arm64"),
    (uuid!("7d0359a3-02b3-4f0a-865c-654403e70625"), "usr-arm"),
    (uuid!("beaec34b-8442-439b-a40b-984381ed097d"), "usr-riscv64"),
    (uuid!("15bb03af-77e7-4d4a-b12b-c0d084f7491c"), "usr-ppc64-le"),
    (uuid!("8a4f5770-50aa-4ed3-874a-99b710db6fea"), "usr-s390x"),
    (uuid!("e611c702-575c-4cbe-9a46-434fa0bf7e3f"), "usr-loongarch64"),
    (uuid!("77ff5f63-e7b6-4633-acf4-1565b864c0e6"), "usr-x86-64-verity"),
    (uuid!("8f461b0d-14ee-4e81-9aa9-049b6fb97abd"), "usr-x86-verity"),
    (uuid!("6e11a4e7-fbca-4ded-b9e9-e1a512bb664e"), "usr-arm64-verity"),
    (uuid!("c215d751-7bcd-4649-be90-6627490a4c05"), "usr-arm-verity"),
    (uuid!("8f1056be-9b05-47c4-81d6-be53128e5b54"), "usr-riscv64-verity"),
    (uuid!("ee2b9983-21e8-4153-86d9-b6901a54d1ce"), "usr-ppc64-le-verity"),
    (uuid!("31741cc4-1a2a-4111-a581-e00b447d2d06"), "usr-s390x-verity"),
    (uuid!("f46b2c26-59ae-48f0-9106-c50ed47f673d"), "usr-loongarch64-verity"),
    (uuid!("933ac7e1-2eb4-4f13-b844-0e14e2aef915"), "home"),
    (uuid!("3b8f8425-20e0-4f3b-907f-1a25a76f98e8"), "srv"),
    (uuid!("4d21b016-b534-45c2-a9fb-5c16e091fd2d"), "var"),
    (uuid!("7ec6f557-3bc5-4aca-b293-16ef5df639d1"), "tmp"),
    (uuid!("773f91ef-66d4-49b5-bd83-d683bf40ad16"), "user-home"),
    (uuid!("0657fd6d-a4ab-43c4-84e5-0933c84b4f4f"), "swap"),
    (uuid!("e6d6d379-f507-44c2-a23c-238f2a3df928"), "lvm"),
    (uuid!("a19d880f-05fc-4d3b-a006-743f0f84911e"), "raid"),
    (uuid!("ca7d7ccb-63ed-4c53-861c-1742536059cc"), "luks"),
    (uuid!("ebd0a0a2-b9e5-4433-87c0-68b6b72699c7"), "basic-data"),
    (uuid!("e3c9e316-0b5c-4db8-817d-f92df00215ae"), "microsoft-reserved"),
    (uuid!("de94bba4-06d1-4d40-a16a-bfd50179d6ac"), "windows-recovery"),
];

/// Types in an MBR.
const MBR: [(u8, &str); 12] = [
    (0x05, "extended"),
    (0x07, "ntfs"),
    (0x0b, "fat32"),
    (0x0c, "fat32"),
    (0x0e, "fat16"),
    (0x0f, "extended"),
    (0x82, "swap"),
    (0x83, "linux"),
    (0x85, "extended"),
    (0x8e, "lvm"),
    (0xef, "esp"),
    (0xfd, "raid"),
];

pub fn name_of(kind: &PartitionType) -> Option<&'static str> {
    match kind {
        PartitionType::Gpt(uuid) => GPT.iter().find(|(found, _)| found == uuid).map(|row| row.1),
        PartitionType::Mbr(number) => {
            MBR.iter().find(|(found, _)| found == number).map(|row| row.1)
        }
    }
}

/// The UUID of a type in a GPT.
pub fn uuid_of(name: &str) -> Option<Uuid> {
    GPT.iter().find(|(_, found)| *found == name).map(|row| row.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// systemd finds a hash tree by its type, too.
    #[test]
    fn all_types_of_systems_have_one_for_their_hash_tree() {
        let is_system = |name: &str| name.starts_with("root-") || name.starts_with("usr-");
        let systems = GPT.iter().map(|row| row.1).filter(|name| is_system(name));
        for name in systems.filter(|name| !name.ends_with("-verity")) {
            assert!(uuid_of(&format!("{name}-verity")).is_some(), "{name}");
        }
    }

    #[test]
    fn every_type_is_listed_once() {
        for (index, (uuid, name)) in GPT.iter().enumerate() {
            let others = &GPT[index + 1..];
            assert!(others.iter().all(|other| other.0 != *uuid && other.1 != *name), "{name}");
            assert_eq!(name_of(&PartitionType::Gpt(*uuid)), Some(*name));
            assert_eq!(uuid_of(name), Some(*uuid));
        }
        for (index, (number, name)) in MBR.iter().enumerate() {
            assert!(MBR[index + 1..].iter().all(|other| other.0 != *number), "{name}");
        }
        assert_eq!(name_of(&PartitionType::Mbr(0)), None);
    }
}
