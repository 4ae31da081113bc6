//! Listing directories.

use super::Engine;
use crate::dir;
use crate::error::Result;
use crate::permission;
use drystone_sync::CallersLocks;
use drystone_vfs::{Access, DirectoryVisitor, InodeNumber, RequestContext};

impl Engine {
    pub(crate) fn do_read_directory(
        &self,
        context: &RequestContext,
        number: InodeNumber,
        first: u64,
        visit: &mut DirectoryVisitor<'_>,
    ) -> Result<()> {
        let callers_locks = CallersLocks::now();
        let directory = self.held(number)?;
        directory.check_directory()?;
        if first == 0 {
            permission::check(self, context, &directory, Access::READ)?;
        }
        let mut next = Some(first);
        while let Some(cookie) = next {
            let part = {
                let _content = directory.content().read();
                match directory.check_linked() {
                    // It was emptied and removed since the listing began.
                    Err(_) if next != Some(first) => return Ok(()),
                    linked => linked?,
                }
                dir::read(self, &directory, cookie)?
            };
            // The visitor may call the file system.
            callers_locks.assert_no_more();
            next = part.visit(visit);
        }
        Ok(())
    }
}
