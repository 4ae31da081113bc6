//! The status of a mount, as its server reports it.

use drystone::vfs::DeviceNumber;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::PathBuf;

/// What is known of a mount.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Status {
    /// The server.
    pub process: u32,
    /// The image.
    #[serde(flatten, with = "image_path")]
    pub image: PathBuf,
    /// Where it is mounted.
    #[serde(flatten, with = "directory_path")]
    pub directory: PathBuf,
    /// The number of the mount's device. Servers of old versions don't report it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub device: Option<DeviceNumber>,
    /// `rw` or `ro`.
    pub mode: String,
    /// The error that has stopped all changes, if one has.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stopped: Option<String>,
    /// Which variant of each mechanism is used.
    pub policy: String,
    /// Seconds since it was mounted.
    pub seconds: u64,
    /// What carries requests.
    pub transport: String,
    /// Threads that take requests.
    pub threads: usize,
    /// Bytes of metadata in memory.
    pub buffer_bytes: u64,
    /// Inodes in memory.
    pub inodes: u64,
    /// Bytes of dentry caches.
    #[serde(default)]
    pub dentry_bytes: u64,
    /// Bytes of written data in memory that wait for their blocks.
    #[serde(default)]
    pub waiting_bytes: u64,
    /// Bytes of memory that the server has in all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resident_bytes: Option<u64>,
    /// How large the image is as a whole, if it can grow.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shape: Option<ShapeStatus>,
    /// The space of the image.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub space: Option<SpaceStatus>,
    /// What the journal did, if there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub commits: Option<CommitStatus>,
    /// Bytes that were read.
    pub bytes_read: u64,
    /// Bytes that were written.
    pub bytes_written: u64,
    /// Requests that failed because the device or the image is bad.
    pub io_errors: u64,
    /// Requests of each kind that came.
    pub requests: BTreeMap<String, u64>,
}

/// What an image consists of.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub struct ShapeStatus {
    /// Bytes in a block.
    pub block_size: u32,
    /// Blocks, metadata among them.
    pub blocks: u64,
    /// Block groups.
    pub groups: u32,
    /// Inodes, in use or not.
    pub inodes: u32,
}

/// Bytes of an image.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub struct SpaceStatus {
    /// Those that files may use.
    pub bytes: u64,
    /// Those that are free.
    pub free_bytes: u64,
    /// Those that users without privileges may still use.
    pub available_bytes: u64,
}

/// Transactions that were committed since the mount.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub struct CommitStatus {
    /// How many.
    pub count: u64,
    /// Microseconds that they took, from closing each transaction to its being durable.
    pub total_us: u64,
}

/// A path in JSON: text under a name, and the bytes too, under another, where they aren't UTF-8.
macro_rules! path_in_json {
    ($module:ident, $name:literal, $bytes:literal) => {
        mod $module {
            use crate::output::NameJson;
            use serde::{Deserialize, Deserializer, Serialize, Serializer};
            use std::ffi::OsString;
            use std::os::unix::ffi::{OsStrExt, OsStringExt};
            use std::path::{Path, PathBuf};

            #[derive(Serialize, Deserialize)]
            struct Json {
                #[serde(rename = $name)]
                name: String,
                #[serde(rename = $bytes, default, skip_serializing_if = "Option::is_none")]
                bytes: Option<Vec<u8>>,
            }

            pub(super) fn serialize<S: Serializer>(path: &Path, to: S) -> Result<S::Ok, S::Error> {
                let NameJson { name, name_bytes } = NameJson::from(path.as_os_str().as_bytes());
                Json { name, bytes: name_bytes }.serialize(to)
            }

            pub(super) fn deserialize<'d, D: Deserializer<'d>>(
                from: D,
            ) -> Result<PathBuf, D::Error> {
                let Json { name, bytes } = Json::deserialize(from)?;
                Ok(OsString::from_vec(bytes.unwrap_or(name.into_bytes())).into())
            }
        }
    };
}

path_in_json!(image_path, "image", "image_bytes");
path_in_json!(directory_path, "directory", "directory_bytes");

#[cfg(test)]
mod tests {
    use super::*;
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt;

    #[test]
    fn every_path_survives_the_way() {
        for (path, text, bytes) in [
            (&b"/a b"[..], "/a b", serde_json::Value::Null),
            (b"/\xff", "/\u{fffd}", serde_json::json!([47, 255])),
        ] {
            let path = PathBuf::from(OsStr::from_bytes(path));
            let (image, directory) = (path.clone(), path.clone());
            let status = Status { process: 7, image, directory, ..Status::default() };
            let json = serde_json::to_value(&status).unwrap();
            assert_eq!((json["image"].as_str(), &json["image_bytes"]), (Some(text), &bytes));
            let read: Status = serde_json::from_value(json).unwrap();
            assert_eq!((read.process, read.image, read.directory), (7, path.clone(), path));
        }
    }
}
