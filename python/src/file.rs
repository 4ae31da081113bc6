//! Open files, at any offset. Buffers, offsets and text are Python's.

use crate::failure::call;
use crate::image::Open;
use crate::slot::Slot;
use drystone::vfs::SeekFrom;
use drystone_sync::{Arc, LockClass};
use pyo3::prelude::*;
use pyo3::pybacked::PyBackedBytes;
use pyo3::types::PyBytes;
use std::os::unix::fs::FileExt;

static FILE: LockClass = LockClass::new("Python file", 2);

/// The file, which is dropped before what keeps the image open.
pub struct OpenFile {
    file: drystone::File<'static>,
    image: Arc<Open>,
}

impl OpenFile {
    /// Closes the file, and an image that only this file has kept open.
    fn close(self) -> drystone::Result<()> {
        drop(self.file);
        Open::release(self.image)
    }
}

/// An open file.
#[pyclass(frozen)]
pub struct File {
    open: Slot<OpenFile>,
}

impl File {
    pub fn new(file: drystone::File<'static>, image: Arc<Open>) -> File {
        File { open: Slot::new(&FILE, "the file", OpenFile { file, image }) }
    }

    fn run<T: Send>(
        &self,
        py: Python<'_>,
        body: impl FnOnce(&drystone::File<'static>) -> drystone::Result<T> + Send,
    ) -> PyResult<T> {
        self.with(py, |file| call(py, || body(file)))
    }

    /// Uses the file. If it was closed meanwhile, this is the end of it.
    fn with<T>(
        &self,
        py: Python<'_>,
        body: impl FnOnce(&drystone::File<'static>) -> PyResult<T>,
    ) -> PyResult<T> {
        let open = self.open.get()?;
        let done = body(&open.file);
        let closed = close_unused(py, open);
        done.and_then(|value| closed.map(|()| value))
    }
}

/// Closes a file that nothing else uses.
fn close_unused(py: Python<'_>, open: Arc<OpenFile>) -> PyResult<()> {
    Arc::into_inner(open).map_or(Ok(()), |open| call(py, || open.close()))
}

#[pymethods]
impl File {
    /// Up to `size` bytes at an offset; fewer only at the end.
    fn pread<'py>(
        &self,
        py: Python<'py>,
        size: usize,
        offset: u64,
    ) -> PyResult<Bound<'py, PyBytes>> {
        self.with(py, |file| {
            let end = call(py, || file.metadata())?.len();
            let size = size.min(usize::try_from(end.saturating_sub(offset)).unwrap_or(usize::MAX));
            let mut read = 0;
            let bytes = PyBytes::new_with(py, size, |buffer| {
                read = call(py, || read_full(file, buffer, offset))?;
                Ok(())
            })?;
            match read == size {
                true => Ok(bytes),
                // Another thread has cut the file off.
                false => Ok(PyBytes::new(py, &bytes.as_bytes()[..read])),
            }
        })
    }

    /// Writes at an offset, or at the end where everything is appended. Returns how many bytes, which is fewer
    /// than there are if an error has stopped it, which the next call meets: `io` keeps the rest, and must not write the
    /// others again.
    fn pwrite(&self, py: Python<'_>, data: PyBackedBytes, offset: u64) -> PyResult<usize> {
        self.with(py, |file| call(py, || file.write_at(&data, offset)))
    }

    fn size(&self, py: Python<'_>) -> PyResult<u64> {
        self.run(py, |file| Ok(file.metadata()?.len()))
    }

    /// Where the next stored content, or the next hole, begins.
    fn find(&self, py: Python<'_>, offset: u64, is_hole: bool) -> PyResult<u64> {
        self.run(py, move |file| match is_hole {
            true => file.find(SeekFrom::Hole(offset)),
            false => file.find(SeekFrom::Data(offset)),
        })
    }

    fn truncate(&self, py: Python<'_>, size: u64) -> PyResult<()> {
        self.run(py, move |file| file.set_len(size))
    }

    fn sync(&self, py: Python<'_>) -> PyResult<()> {
        self.run(py, |file| file.sync_all())
    }

    /// Closes the file, and an image that only this file has kept open. If another thread uses it, that one does.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        self.open.take().map_or(Ok(()), |open| close_unused(py, open))
    }
}

fn read_full(
    file: &drystone::File<'static>,
    buffer: &mut [u8],
    offset: u64,
) -> std::io::Result<usize> {
    let mut read = 0;
    while read < buffer.len() {
        match file.read_at(&mut buffer[read..], offset + read as u64)? {
            0 => break,
            more => read += more,
        }
    }
    Ok(read)
}
