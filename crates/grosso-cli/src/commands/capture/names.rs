//! Names of capture files, derived from `-w`, `-C`, `-G` and `-W` as in tcpdump.

use std::{
    ffi::{OsStr, OsString},
    os::unix::ffi::{OsStrExt, OsStringExt},
    path::PathBuf,
};

use grosso_sys::calendar;

use crate::{arguments::FileTurning, error::Failure};

/// Generator for the names of capture files.
#[derive(Clone, Debug)]
pub(super) struct Names {
    stem: OsString,
    turning: FileTurning,
    /// Time at which the current period began, in seconds since 1970.
    began: u64,
    /// Number of periods that have ended.
    periods: u64,
    /// Number of the current file. The numbers start over at 0 in each period, and when the maximum number of files has
    /// been reached.
    number: u64,
}

/// File into which the next packet goes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum FileRotation {
    /// The current file.
    Same,
    /// A new file, or an old one that is overwritten.
    Next,
    /// No file: the maximum number of files has been reached.
    Over,
}

impl Names {
    pub(super) fn new(stem: &OsStr, turning: FileTurning, now_s: u64) -> Self {
        Self { stem: stem.into(), turning, began: now_s, periods: 0, number: 0 }
    }

    /// Returns the file for the next packet if the current file is `bytes` bytes long. `now_s` returns the time in
    /// seconds since 1970. It is called only if the time matters, because reading the clock adds 5 % to the time for a
    /// packet.
    pub(super) fn rotate(&mut self, now_s: impl Fn() -> u64, bytes: u64) -> FileRotation {
        let FileTurning { bytes: bytes_max, seconds, files } = self.turning;
        let due =
            |seconds: u64| Some(now_s()).filter(|now| now.saturating_sub(self.began) >= seconds);
        if let Some(now_s) = seconds.and_then(due) {
            (self.began, self.number) = (now_s, 0);
            self.periods += 1;
            let is_last = bytes_max.is_none() && files.is_some_and(|files| self.periods >= files);
            return if is_last { FileRotation::Over } else { FileRotation::Next };
        }
        if bytes_max.is_some_and(|bytes_max| bytes > bytes_max) {
            self.number += 1;
            if files.is_some_and(|files| self.number >= files) {
                self.number = 0;
            }
            return FileRotation::Next;
        }
        FileRotation::Same
    }

    /// Returns the name from which all file names are derived.
    pub(super) fn stem(&self) -> &OsStr {
        &self.stem
    }

    /// Returns the name of the current file.
    ///
    /// # Errors
    /// Fails if the name is not a valid strftime format.
    pub(super) fn name(&self) -> Result<PathBuf, Failure> {
        let mut name = match self.turning.seconds {
            None => self.stem.as_bytes().to_vec(),
            Some(_) => {
                let began = i64::try_from(self.began).unwrap_or(i64::MAX);
                calendar::local_text(self.stem.as_bytes(), began).map_err(|error| {
                    let message = format!("capture: invalid strftime format in -w: {error}");
                    Failure::usage("usage.output", message)
                        .hint("man strftime lists the conversions")
                })?
            }
        };
        let digits = self.digits();
        if self.turning.bytes.is_some() && (self.number > 0 || digits > 0) {
            name.extend_from_slice(format!("{:0digits$}", self.number).as_bytes());
        }
        Ok(OsString::from_vec(name).into())
    }

    /// Returns the number of digits in the last file number. All numbers are padded to this width, so that names sort
    /// in order.
    fn digits(&self) -> usize {
        let last = self.turning.files.map_or(0, |files| files.saturating_sub(1));
        last.checked_ilog10().map_or(0, |power| power as usize + 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOON_S: u64 = 1_700_000_000;

    fn names(stem: &str, turning: FileTurning) -> Names {
        Names::new(OsStr::new(stem), turning, NOON_S)
    }

    /// Returns the names of the first `count` files when every packet finds the current file full.
    fn when_full(stem: &str, files: Option<u64>, count: usize) -> Vec<String> {
        let turning = FileTurning { bytes: Some(1000), files, ..FileTurning::default() };
        let mut names = names(stem, turning);
        let mut made = vec![shown(&names)];
        let clock = || -> u64 { panic!("nobody looks at the clock for a size") };
        while made.len() < count {
            assert_eq!(names.rotate(clock, 1000), FileRotation::Same, "not larger than the size");
            assert_eq!(names.rotate(clock, 1001), FileRotation::Next);
            made.push(shown(&names));
        }
        made
    }

    fn shown(names: &Names) -> String {
        names.name().unwrap().into_os_string().into_string().unwrap()
    }

    #[test]
    fn sizes_count_upwards_and_a_ring_begins_again() {
        assert_eq!(when_full("x", None, 3), ["x", "x1", "x2"]);
        assert_eq!(when_full("x", Some(3), 5), ["x0", "x1", "x2", "x0", "x1"]);
        assert_eq!(when_full("x", Some(10), 2), ["x0", "x1"]);
        assert_eq!(when_full("x", Some(11), 2), ["x00", "x01"]);
        assert_eq!(when_full("x", Some(1), 2), ["x", "x"]);
    }

    #[test]
    fn seconds_make_names_of_times_and_end_after_so_many() {
        let turning = FileTurning { seconds: Some(10), files: Some(3), ..FileTurning::default() };
        let mut names = names("x-%s", turning);
        assert_eq!(shown(&names), "x-1700000000", "one name has no number");
        assert_eq!(names.rotate(|| NOON_S + 9, u64::MAX), FileRotation::Same);
        // A file's period starts with its first packet, however long the gap before that packet is.
        assert_eq!(names.rotate(|| NOON_S + 25, 0), FileRotation::Next);
        assert_eq!(shown(&names), "x-1700000025");
        assert_eq!(names.rotate(|| NOON_S + 34, 0), FileRotation::Same);
        assert_eq!(names.rotate(|| NOON_S + 35, 0), FileRotation::Next);
        assert_eq!(names.rotate(|| NOON_S + 45, 0), FileRotation::Over);
    }

    #[test]
    fn both_number_the_files_of_a_period_and_never_end() {
        let turning = FileTurning { bytes: Some(1000), seconds: Some(10), files: Some(2) };
        let mut names = names("x-%s-", turning);
        let mut made = vec![shown(&names)];
        for (now_s, bytes) in [(5, 2000), (6, 2000), (12, 2000), (13, 2000), (30, 0)] {
            assert_eq!(names.rotate(|| NOON_S + now_s, bytes), FileRotation::Next);
            made.push(shown(&names));
        }
        let at = |seconds: u64, number: u8| format!("x-{}-{number}", NOON_S + seconds);
        assert_eq!(made, [at(0, 0), at(0, 1), at(0, 0), at(12, 0), at(12, 1), at(30, 0)]);
    }
}
