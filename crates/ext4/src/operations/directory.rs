//! Listing directories.

use super::Engine;
use crate::dir;
use crate::error::Result;
use crate::permission;
use drystone_vfs::{Access, DirectoryVisitor, InodeNumber, RequestContext};

impl Engine {
    pub(crate) fn do_read_directory(
        &self,
        context: &RequestContext,
        number: InodeNumber,
        cookie: u64,
        visit: &mut DirectoryVisitor<'_>,
    ) -> Result<()> {
        let directory = self.held(number)?;
        directory.check_directory()?;
        if cookie == 0 {
            permission::check(self, context, &directory, Access::READ)?;
        }
        let _content = directory.content.read();
        directory.check_linked()?;
        dir::read(self, &directory, cookie, visit)
    }
}
