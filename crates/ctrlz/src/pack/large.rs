//! Compression of blobs that are too large for memory, while they are read.

use std::io::Read;

use flate2::{Compress, FlushCompress, Status};

use crate::git::{Hasher, Kind, ObjectId};
use crate::scan::LargeProblem;

use super::entry::Effort;
use super::temporary::HashedFile;

/// Compresses `source` into `out`. Returns the id of the blob if it has exactly `bytes` bytes.
pub(super) fn stream_deflated(
    bytes: u64,
    source: &mut dyn Read,
    out: &mut HashedFile<'_>,
    crc: &mut crc32fast::Hasher,
) -> Result<ObjectId, LargeProblem> {
    let mut hasher = Hasher::object(Kind::Blob, bytes);
    let mut compressor = Compress::new(Effort::Quick.level(), true);
    let mut buffer = vec![0; 256 * 1024];
    let mut total = 0;
    loop {
        let count = match source.read(&mut buffer) {
            Ok(count) => count,
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(LargeProblem::Read(error)),
        };
        total += count as u64;
        if total > bytes {
            return Err(LargeProblem::Changed);
        }
        hasher.update(&buffer[..count]);
        let flush = if count == 0 { FlushCompress::Finish } else { FlushCompress::None };
        let mut rest = &buffer[..count];
        let mut packed = Vec::with_capacity(256 * 1024);
        loop {
            packed.clear();
            let before = compressor.total_in();
            let status = compressor
                .compress_vec(rest, &mut packed, flush)
                .expect("compressing into memory cannot fail");
            rest = &rest[(compressor.total_in() - before) as usize..];
            crc.update(&packed);
            out.write(&packed)?;
            let over = match flush {
                FlushCompress::Finish => status == Status::StreamEnd,
                _ => rest.is_empty() && packed.len() < packed.capacity(),
            };
            if over {
                break;
            }
        }
        if count == 0 {
            break;
        }
    }
    if total != bytes {
        return Err(LargeProblem::Changed);
    }
    hasher.finish().ok_or(LargeProblem::Collision)
}
