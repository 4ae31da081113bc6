//! Quota: usage of users, groups and projects.
use crate::error::Result;
use crate::file_system::Ext4;
use crate::inode::Inode;
use drystone_jbd2::Handle;

#[derive(Debug)]
pub(crate) struct Quotas;
/// User, group, project.
pub(crate) type Owners = [u32; 3];
impl Quotas {
    pub fn new() -> Quotas {
        Quotas
    }
    pub fn open(&self, _: &Ext4) -> Result<()> {
        Ok(())
    }
    pub fn store(&self, _: &Ext4) -> Result<()> {
        Ok(())
    }
    pub fn check_inode(&self, _: &Ext4, _: Owners) -> Result<()> {
        Ok(())
    }
    pub fn inode_allocated(&self, _: &Ext4, _: &mut Handle<'_>, _: Owners) -> Result<()> {
        Ok(())
    }
    pub fn inode_freed(&self, _: &Ext4, _: &mut Handle<'_>, _: Owners) -> Result<()> {
        Ok(())
    }
    /// Space of an inode changes by so many 512-byte sectors.
    pub fn space_changed(&self, _: &Ext4, _: &mut Handle<'_>, _: Owners, _: i64) -> Result<()> {
        Ok(())
    }
    /// The inode's usage moves to other owners.
    pub fn owners_changed(&self, _: &Ext4, _: &mut Handle<'_>, _: &Inode, _: Owners) -> Result<()> {
        Ok(())
    }
}
