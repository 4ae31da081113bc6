//! Checks of images.

use crate::failure::call;
use drystone::FileSystemKind;
use pyo3::prelude::*;
use std::path::PathBuf;

/// Looks for errors in an image, which isn't changed: how many, how many warnings, and all in words.
#[pyfunction]
pub fn check(py: Python<'_>, name: PathBuf) -> PyResult<(u64, u64, Vec<String>)> {
    call(py, || {
        if drystone::kind_of(&name)? == Some(FileSystemKind::Nilfs2) {
            let report = drystone::check_nilfs2(&name, &Default::default())?;
            let problems = report.problems.iter().map(ToString::to_string).collect();
            return Ok::<_, drystone::Error>((report.errors, report.warnings, problems));
        }
        let report = drystone::check_image(&name, &Default::default(), &mut |_| {})?;
        let problems = report.problems.iter().map(ToString::to_string).collect();
        Ok((report.errors, report.warnings, problems))
    })
}
