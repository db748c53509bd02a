//! Fields in a fixed order: numbers little endian, each text and list with its length before it.

use std::fmt;

use super::{BoundFile, Bounds, FileStamp, Run};
use crate::limits::{LIST_ITEMS_MAX, PLAN_BYTES_MAX};

pub(super) const VERSION: u16 = 1;

/// Why bytes are no plan or no reply.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum WireError {
    Version,
    Short {
        field: &'static str,
    },
    LeftOver {
        bytes: usize,
    },
    Tag {
        field: &'static str,
        value: u8,
    },
    Text {
        field: &'static str,
    },
    TooLong {
        field: &'static str,
        length: usize,
        max: usize,
    },
}

impl fmt::Display for WireError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Version => f.write_str("the helper and the runtime are of different versions"),
            Self::Short { field } => write!(f, "the message ends inside `{field}`"),
            Self::LeftOver { bytes } => write!(f, "the message has {bytes} bytes too many"),
            Self::Tag { field, value } => write!(f, "`{field}` has the unknown tag {value}"),
            Self::Text { field } => {
                write!(f, "`{field}` is not a text, or holds a zero byte")
            }
            Self::TooLong { field, length, max } => {
                write!(f, "`{field}` has a length of {length}, more than {max}")
            }
        }
    }
}

impl std::error::Error for WireError {}

pub(super) fn tag(field: &'static str, value: u8) -> WireError {
    WireError::Tag { field, value }
}

pub(super) struct Writer(Vec<u8>);

impl Writer {
    pub(super) fn new(kind: u32) -> Self {
        let mut bytes = kind.to_le_bytes().to_vec();
        bytes.extend(VERSION.to_le_bytes());
        Self(bytes)
    }

    pub(super) fn byte(&mut self, value: u8) {
        self.0.push(value);
    }

    pub(super) fn flag(&mut self, value: bool) {
        self.byte(u8::from(value));
    }

    pub(super) fn word(&mut self, value: u32) {
        self.0.extend(value.to_le_bytes());
    }

    pub(super) fn signed(&mut self, value: i32) {
        self.0.extend(value.to_le_bytes());
    }

    pub(super) fn number(&mut self, value: u64) {
        self.0.extend(value.to_le_bytes());
    }

    pub(super) fn length(
        &mut self,
        field: &'static str,
        length: usize,
        max: usize,
    ) -> Result<(), WireError> {
        match u32::try_from(length) {
            Ok(word) if length <= max => {
                self.word(word);
                Ok(())
            }
            _ => Err(WireError::TooLong { field, length, max }),
        }
    }

    pub(super) fn text(&mut self, field: &'static str, text: &str) -> Result<(), WireError> {
        if text.contains('\0') {
            return Err(WireError::Text { field });
        }
        self.length(field, text.len(), PLAN_BYTES_MAX)?;
        self.0.extend(text.as_bytes());
        Ok(())
    }

    pub(super) fn list<T>(
        &mut self,
        field: &'static str,
        items: &[T],
        mut write: impl FnMut(&mut Self, &T) -> Result<(), WireError>,
    ) -> Result<(), WireError> {
        self.length(field, items.len(), LIST_ITEMS_MAX)?;
        items.iter().try_for_each(|item| write(self, item))
    }

    pub(super) fn texts(&mut self, field: &'static str, texts: &[String]) -> Result<(), WireError> {
        self.list(field, texts, |out, text| out.text(field, text))
    }

    pub(super) fn option<T>(
        &mut self,
        value: Option<&T>,
        write: impl FnOnce(&mut Self, &T) -> Result<(), WireError>,
    ) -> Result<(), WireError> {
        self.flag(value.is_some());
        value.map_or(Ok(()), |value| write(self, value))
    }

    pub(super) fn stamp(&mut self, stamp: &FileStamp) {
        self.number(stamp.device);
        self.number(stamp.inode);
        self.number(stamp.bytes);
        for (seconds, nanos) in [stamp.modified, stamp.changed] {
            self.0.extend(seconds.to_le_bytes());
            self.word(nanos);
        }
    }

    pub(super) fn bounds(&mut self, bounds: &Bounds) -> Result<(), WireError> {
        self.number(bounds.processes);
        self.number(bounds.file_bytes);
        self.number(bounds.scratch_bytes);
        for bound in [bounds.data_bytes, bounds.cpu_seconds] {
            self.option(bound.as_ref(), |out, value| {
                out.number(*value);
                Ok(())
            })?;
        }
        self.flag(bounds.landlock_whole);
        Ok(())
    }

    pub(super) fn finish(self, field: &'static str, max: usize) -> Result<Vec<u8>, WireError> {
        let length = self.0.len();
        if length > max {
            return Err(WireError::TooLong { field, length, max });
        }
        Ok(self.0)
    }
}

pub(super) struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    pub(super) fn new(
        kind: u32,
        field: &'static str,
        bytes: &'a [u8],
        max: usize,
    ) -> Result<Self, WireError> {
        let length = bytes.len();
        if length > max {
            return Err(WireError::TooLong { field, length, max });
        }
        let mut reader = Self(bytes);
        let (found, version) = (reader.word(field)?, reader.take::<2>(field)?);
        if found != kind || u16::from_le_bytes(version) != VERSION {
            return Err(WireError::Version);
        }
        Ok(reader)
    }

    pub(super) fn take<const N: usize>(
        &mut self,
        field: &'static str,
    ) -> Result<[u8; N], WireError> {
        let (head, rest) = self
            .0
            .split_first_chunk::<N>()
            .ok_or(WireError::Short { field })?;
        self.0 = rest;
        Ok(*head)
    }

    pub(super) fn byte(&mut self, field: &'static str) -> Result<u8, WireError> {
        self.take::<1>(field).map(|[byte]| byte)
    }

    pub(super) fn flag(&mut self, field: &'static str) -> Result<bool, WireError> {
        match self.byte(field)? {
            0 => Ok(false),
            1 => Ok(true),
            value => Err(tag(field, value)),
        }
    }

    pub(super) fn word(&mut self, field: &'static str) -> Result<u32, WireError> {
        self.take(field).map(u32::from_le_bytes)
    }

    pub(super) fn signed(&mut self, field: &'static str) -> Result<i32, WireError> {
        self.take(field).map(i32::from_le_bytes)
    }

    pub(super) fn number(&mut self, field: &'static str) -> Result<u64, WireError> {
        self.take(field).map(u64::from_le_bytes)
    }

    pub(super) fn length(&mut self, field: &'static str, max: usize) -> Result<usize, WireError> {
        let length = self.word(field)? as usize;
        if length > max {
            return Err(WireError::TooLong { field, length, max });
        }
        Ok(length)
    }

    pub(super) fn text(&mut self, field: &'static str) -> Result<String, WireError> {
        let length = self.length(field, PLAN_BYTES_MAX)?;
        let (head, rest) = self
            .0
            .split_at_checked(length)
            .ok_or(WireError::Short { field })?;
        self.0 = rest;
        match std::str::from_utf8(head) {
            Ok(text) if !text.contains('\0') => Ok(text.to_owned()),
            _ => Err(WireError::Text { field }),
        }
    }

    pub(super) fn list<T>(
        &mut self,
        field: &'static str,
        mut read: impl FnMut(&mut Self) -> Result<T, WireError>,
    ) -> Result<Vec<T>, WireError> {
        let length = self.length(field, LIST_ITEMS_MAX)?;
        (0..length).map(|_| read(self)).collect()
    }

    pub(super) fn texts(&mut self, field: &'static str) -> Result<Vec<String>, WireError> {
        self.list(field, |from| from.text(field))
    }

    pub(super) fn option<T>(
        &mut self,
        field: &'static str,
        read: impl FnOnce(&mut Self) -> Result<T, WireError>,
    ) -> Result<Option<T>, WireError> {
        if self.flag(field)? {
            read(self).map(Some)
        } else {
            Ok(None)
        }
    }

    pub(super) fn stamp(&mut self) -> Result<FileStamp, WireError> {
        let time = |from: &mut Self| -> Result<(i64, u32), WireError> {
            let seconds = from.take("time").map(i64::from_le_bytes)?;
            Ok((seconds, from.word("time")?))
        };
        Ok(FileStamp {
            device: self.number("device")?,
            inode: self.number("inode")?,
            bytes: self.number("bytes")?,
            modified: time(self)?,
            changed: time(self)?,
        })
    }

    pub(super) fn bounds(&mut self) -> Result<Bounds, WireError> {
        Ok(Bounds {
            processes: self.number("processes")?,
            file_bytes: self.number("file_bytes")?,
            scratch_bytes: self.number("scratch_bytes")?,
            data_bytes: self.option("data_bytes", |from| from.number("data_bytes"))?,
            cpu_seconds: self.option("cpu_seconds", |from| from.number("cpu_seconds"))?,
            landlock_whole: self.flag("landlock_whole")?,
        })
    }

    pub(super) fn run(&mut self) -> Result<Run, WireError> {
        Ok(Run {
            program: self.text("program")?,
            argv: self.texts("argv")?,
            environment: self.texts("environment")?,
            bound: self.list("bound", |from| {
                Ok(BoundFile {
                    path: from.text("bound")?,
                    stamp: from.stamp()?,
                })
            })?,
        })
    }

    pub(super) fn finish(self) -> Result<(), WireError> {
        match self.0.len() {
            0 => Ok(()),
            bytes => Err(WireError::LeftOver { bytes }),
        }
    }
}
