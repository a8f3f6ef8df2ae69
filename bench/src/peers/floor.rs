//! The floor, which any implementation without a watcher needs: a stat of, or reading, every file.

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use flate2::{Compress, Compression, FlushCompress};
use rustix::fs::{AtFlags, Mode, OFlags, StatxFlags};

use crate::Fallible;
use crate::job::{Job, Work};
use crate::tree::{Shape, Tree, content};

/// The prepared input, which is not part of the measurement.
pub(crate) struct Floor {
    dirs: Vec<(PathBuf, Vec<std::ffi::OsString>)>,
    reads: bool,
    /// Files to write instead of scanning.
    writes: Option<Vec<(PathBuf, Vec<u8>)>>,
    pack: PathBuf,
    threads: usize,
}

impl Floor {
    /// Lists the tree beforehand, as a cache would have it.
    pub(crate) fn prepare(job: &Job) -> Fallible<Floor> {
        let mut dirs = Vec::new();
        let mut waiting = vec![job.tree.clone()];
        while let Some(dir) = waiting.pop() {
            let mut names = Vec::new();
            for entry in std::fs::read_dir(&dir)? {
                let entry = entry?;
                match entry.file_type()?.is_dir() {
                    true if entry.file_name() != ".git" => waiting.push(entry.path()),
                    true => (),
                    false => names.push(entry.file_name()),
                }
            }
            dirs.push((dir, names));
        }
        std::fs::create_dir_all(&job.state)?;
        Ok(Floor {
            dirs,
            reads: job.work == Work::ReadAll,
            writes: match job.work {
                Work::WriteAll(files) => {
                    let tree = Tree { root: job.tree.clone(), files, shape: Shape::Usual };
                    Some((0..files).map(|file| (tree.path(file), content(file, 0))).collect())
                }
                _ => None,
            },
            pack: job.state.join("pack"),
            threads: std::thread::available_parallelism().map_or(1, usize::from),
        })
    }

    /// Writes files atomically by renames, and flushes the file system once.
    fn write_all(&self, files: &[(PathBuf, Vec<u8>)]) -> Fallible<String> {
        let next = AtomicUsize::new(0);
        let work = || -> std::io::Result<usize> {
            let mut written = 0;
            loop {
                let Some((path, text)) = files.get(next.fetch_add(1, Ordering::Relaxed)) else {
                    return Ok(written);
                };
                let beside = path.with_extension("new");
                std::fs::write(&beside, text)?;
                std::fs::rename(&beside, path)?;
                written += 1;
            }
        };
        let written: Vec<_> = std::thread::scope(|scope| {
            let workers: Vec<_> = (0..self.threads).map(|_| scope.spawn(work)).collect();
            workers.into_iter().map(|worker| worker.join().unwrap_or(Ok(0)).unwrap_or(0)).collect()
        });
        if let Some((path, _)) = files.first() {
            rustix::fs::syncfs(File::open(path)?)?;
        }
        if written.iter().sum::<usize>() == files.len() {
            Ok(files.len().to_string())
        } else {
            Err("a file could not be written".into())
        }
    }

    /// Opens each directory and stats each file. Also reads, hashes and compresses them if asked.
    pub(crate) fn run(&mut self) -> Fallible<String> {
        if let Some(files) = &self.writes {
            return self.write_all(files);
        }
        let next = AtomicUsize::new(0);
        let out = Mutex::new(File::create(&self.pack)?);
        let this = &*self;
        let counts: Vec<usize> = std::thread::scope(|scope| {
            let work = || this.worker(&next, &out);
            let workers: Vec<_> = (0..this.threads).map(|_| scope.spawn(work)).collect();
            workers.into_iter().map(|worker| worker.join().unwrap_or(Ok(0)).unwrap_or(0)).collect()
        });
        if self.reads {
            out.into_inner().map_err(|_| "a thread panicked")?.sync_all()?;
        }
        let seen: usize = counts.iter().sum();
        let files: usize = self.dirs.iter().map(|(_, names)| names.len()).sum();
        if seen != files {
            return Err("a file could not be looked at".into());
        }
        Ok(seen.to_string())
    }

    fn worker(&self, next: &AtomicUsize, out: &Mutex<File>) -> std::io::Result<usize> {
        let mut seen = 0;
        let mut packer = Packer::default();
        while let Some((path, names)) = self.dirs.get(next.fetch_add(1, Ordering::Relaxed)) {
            let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            let dir = rustix::fs::open(path, flags, Mode::empty())?;
            rustix::fs::fstat(&dir)?;
            for name in names {
                let flags = AtFlags::SYMLINK_NOFOLLOW;
                rustix::fs::statx(&dir, name.as_os_str(), flags, StatxFlags::BASIC_STATS)?;
                if self.reads {
                    packer.add(&dir, name, out)?;
                }
                seen += 1;
            }
        }
        packer.flush(out)?;
        Ok(seen)
    }
}

/// Reads, hashes and compresses files.
struct Packer {
    compressor: Compress,
    content: Vec<u8>,
    /// One compressed file. It has a separate buffer because flate2 zeroes the spare capacity.
    one: Vec<u8>,
    packed: Vec<u8>,
}

impl Default for Packer {
    fn default() -> Packer {
        let compressor = Compress::new(Compression::new(1), true);
        Packer { compressor, content: Vec::new(), one: Vec::new(), packed: Vec::new() }
    }
}

impl Packer {
    fn add(
        &mut self,
        dir: &OwnedFd,
        name: &std::ffi::OsStr,
        out: &Mutex<File>,
    ) -> std::io::Result<()> {
        let flags = OFlags::RDONLY | OFlags::CLOEXEC;
        let mut file = File::from(rustix::fs::openat(dir, name, flags, Mode::empty())?);
        self.content.clear();
        file.read_to_end(&mut self.content)?;
        let mut hasher = gix_hash::hasher(gix_hash::Kind::Sha1);
        hasher.update(format!("blob {}\0", self.content.len()).as_bytes());
        hasher.update(&self.content);
        let id = hasher.try_finalize().map_err(std::io::Error::other)?;
        self.packed.extend_from_slice(id.as_slice());
        self.one.clear();
        self.one.reserve(self.content.len() + 64);
        self.compressor.reset();
        self.compressor
            .compress_vec(&self.content, &mut self.one, FlushCompress::Finish)
            .map_err(std::io::Error::other)?;
        self.packed.extend_from_slice(&self.one);
        if self.packed.len() > 4 << 20 {
            self.flush(out)?;
        }
        Ok(())
    }

    fn flush(&mut self, out: &Mutex<File>) -> std::io::Result<()> {
        if let Ok(mut out) = out.lock() {
            out.write_all(&self.packed)?;
        }
        self.packed.clear();
        Ok(())
    }
}
