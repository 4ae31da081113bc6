//! Options that change owners, for all commands that copy a tree into or out of an image.

use drystone::vfs::{IdRange, OwnerMap};

/// Other owners for everything.
#[derive(Clone, Debug, Default, clap::Args)]
pub struct OwnerArguments {
    /// Give everything this owner, in numbers.
    #[arg(long, value_name = "UID:GID", value_parser = parse_owner)]
    owner: Option<(u32, u32)>,
    /// Map user numbers, in ACLs too.
    #[arg(long, value_name = "FROM:TO[:COUNT]", value_parser = parse_range)]
    map_uid: Vec<IdRange>,
    /// Map group numbers, in ACLs too.
    #[arg(long, value_name = "FROM:TO[:COUNT]", value_parser = parse_range)]
    map_gid: Vec<IdRange>,
}

/// The options above, for those that exclude them.
pub const OWNER_OPTIONS: [&str; 3] = ["owner", "map_uid", "map_gid"];

impl OwnerArguments {
    /// What the options ask for.
    pub fn map(&self) -> OwnerMap {
        let (users, groups) = (self.map_uid.clone(), self.map_gid.clone());
        OwnerMap { all: self.owner, users, groups }
    }
}

fn parse_owner(text: &str) -> Result<(u32, u32), String> {
    let id = |text: &str| drystone::vfs::parse_id(text.as_bytes());
    let numbers = text.split_once(':').and_then(|(user, group)| Some((id(user)?, id(group)?)));
    numbers.ok_or_else(|| "two numbers, as in 0:0".to_string())
}

fn parse_range(text: &str) -> Result<IdRange, String> {
    IdRange::parse(text).ok_or_else(|| "FROM:TO or FROM:TO:COUNT, in numbers".to_string())
}
