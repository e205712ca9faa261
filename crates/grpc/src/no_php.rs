//! In the place of `php`, in builds without descriptors: no PHP code.

use crate::files::FileError;
use crate::generated::{GenerateError, GeneratedFile, Wanted};

/// As that of builds with descriptors.
pub fn generate(_: &Wanted) -> Result<Vec<GeneratedFile>, GenerateError> {
    Err(FileError::NoDescriptors.into())
}
