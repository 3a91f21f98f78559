//! Peers written in other languages. Each runs as a child process, which processes a round whenever it is asked to.
//!
//! `peer WORK FILE PACKETS SIZE START OFFSET` reads the frames of a workload from a file, prints `ready`, and then
//! answers each line of its input with one line: `round` with nanoseconds and packets, and `output FILE` with `written`
//! once the output frames are in that file. Instead of any answer, it may print `error REASON`. A file of frames
//! contains, for each frame, its length as four bytes, little-endian, and its bytes. PACKETS is the number of packets
//! in a round; SIZE, START and OFFSET are the segment size of a superframe and the position of its checksum, or zeros.

use std::{
    fs,
    io::{BufRead, BufReader, Write},
    path::{Path, PathBuf},
    process::{self, ChildStdin, ChildStdout, Command, Stdio},
};

use grosso_testkit::workloads::Workload;

use crate::contender::{About, Boxed, Contender, Round};

/// A program that implements this protocol.
#[derive(Clone, Debug)]
pub(crate) struct Program {
    pub(crate) path: PathBuf,
    /// Directory for the files that contain the frames.
    pub(crate) folder: PathBuf,
}

impl Program {
    /// Creates a contender that runs this program. If the program does not start, the contender fails in its first
    /// round.
    pub(crate) fn contender<'a>(&self, about: About, work: &str, workload: &Workload) -> Boxed<'a> {
        let child = self.start(work, workload);
        let output = self.folder.join("output");
        Box::new(Peer { about, child, output })
    }

    fn start(&self, work: &str, workload: &Workload) -> Result<Child, String> {
        let input = self.folder.join("input");
        write_frames(&input, &workload.frames)?;
        let gso = workload.gso.map_or([0; 3], |gso| {
            [gso.description.gso_size, gso.checksum_start, gso.checksum_offset]
        });
        let mut process = Command::new(&self.path)
            .arg(work)
            .arg(&input)
            .arg(workload.packets.to_string())
            .args(gso.map(|number| number.to_string()))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .map_err(|error| format!("cannot be started: {error}"))?;
        let questions = process.stdin.take().ok_or("no pipe to it")?;
        let answers = BufReader::new(process.stdout.take().ok_or("no pipe from it")?);
        let mut child = Child { process, questions: Some(questions), answers };
        match child.answer()?.as_str() {
            "ready" => Ok(child),
            other => Err(format!("said {other:?} instead of ready")),
        }
    }
}

/// A child process, or the reason why it is not running.
struct Peer {
    about: About,
    child: Result<Child, String>,
    output: PathBuf,
}

impl Contender for Peer {
    fn about(&self) -> About {
        self.about
    }

    fn round(&mut self) -> Result<Round, String> {
        let answer = self.child.as_mut().map_err(|error| error.clone())?.ask("round")?;
        parse_round(&answer).ok_or_else(|| format!("answered {answer:?} to a round"))
    }

    fn output(&mut self) -> Result<Vec<Vec<u8>>, String> {
        let question = format!("output {}", self.output.display());
        match self.child.as_mut().map_err(|error| error.clone())?.ask(&question)?.as_str() {
            "written" => read_frames(&self.output),
            other => Err(format!("said {other:?} instead of written")),
        }
    }
}

/// A running child, which exits at the end of its input.
struct Child {
    process: process::Child,
    questions: Option<ChildStdin>,
    answers: BufReader<ChildStdout>,
}

impl Child {
    fn ask(&mut self, question: &str) -> Result<String, String> {
        let questions = self.questions.as_mut().ok_or("it has ended")?;
        writeln!(questions, "{question}").map_err(|error| format!("cannot be asked: {error}"))?;
        self.answer()
    }

    /// Returns the next answer, skipping lines that libraries print in between.
    fn answer(&mut self) -> Result<String, String> {
        loop {
            let mut line = String::new();
            match self.answers.read_line(&mut line) {
                Ok(0) => return Err("ended without an answer".to_owned()),
                Err(error) => return Err(format!("cannot be understood: {error}")),
                Ok(_) => {}
            }
            if let Some(answer) = line.trim_end().strip_prefix(ANSWER) {
                return match answer.strip_prefix("error ") {
                    Some(why) => Err(why.to_owned()),
                    None => Ok(answer.to_owned()),
                };
            }
        }
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        self.questions = None;
        // The child has no more work, so its exit status does not matter.
        let _ = self.process.wait();
    }
}

fn parse_round(answer: &str) -> Option<Round> {
    let (ns, packets) = answer.split_once(' ')?;
    let round = Round { ns: ns.parse().ok()?, packets: packets.parse().ok()? };
    (round.packets > 0).then_some(round)
}

fn write_frames(path: &Path, frames: &[Vec<u8>]) -> Result<(), String> {
    let mut bytes = Vec::new();
    for frame in frames {
        bytes.extend((frame.len() as u32).to_le_bytes());
        bytes.extend(frame);
    }
    fs::write(path, bytes).map_err(|error| format!("its frames cannot be written: {error}"))
}

fn read_frames(path: &Path) -> Result<Vec<Vec<u8>>, String> {
    let bytes = fs::read(path).map_err(|error| format!("its frames cannot be read: {error}"))?;
    let (mut frames, mut rest) = (Vec::new(), bytes.as_slice());
    while let Some((len, behind)) = rest.split_first_chunk::<4>() {
        let len = u32::from_le_bytes(*len) as usize;
        let (frame, behind) = behind.split_at_checked(len).ok_or("its frames end too early")?;
        frames.push(frame.to_vec());
        rest = behind;
    }
    Ok(frames)
}

/// Prefix of every answer.
const ANSWER: &str = "peer: ";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rounds_are_two_numbers() {
        assert_eq!(parse_round("120 64"), Some(Round { ns: 120, packets: 64 }));
        for wrong in ["", "120", "120 0", "a 64", "120 64 1"] {
            assert_eq!(parse_round(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn frames_come_back_as_written_and_a_torn_file_is_refused() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("frames");
        let frames = vec![vec![1, 2, 3], Vec::new(), vec![4; 70000]];
        write_frames(&path, &frames).expect("written");
        assert_eq!(read_frames(&path), Ok(frames));
        let whole = fs::read(&path).expect("bytes");
        fs::write(&path, &whole[..whole.len() - 1]).expect("written");
        assert!(read_frames(&path).is_err());
    }

    #[test]
    fn a_child_is_asked_and_its_chatter_is_passed_over() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("peer");
        let script = "#!/bin/sh\necho hello; echo 'peer: ready'\n\
                      read q; echo 'peer: 12 4'\nread q; echo 'peer: error tired'\n";
        fs::write(&path, script).expect("written");
        let mut mode = fs::metadata(&path).expect("a file").permissions();
        std::os::unix::fs::PermissionsExt::set_mode(&mut mode, 0o755);
        fs::set_permissions(&path, mode).expect("may be run");
        let program = Program { path, folder: folder.path().to_owned() };
        let workload = crate::work::rows().pop().expect("a row").generate().remove(0);
        let about = About::new(crate::contender::Peer::Dpdk, "", "");
        let mut contender = program.contender(about, "coalesce", &workload);
        assert_eq!(contender.round(), Ok(Round { ns: 12, packets: 4 }));
        assert_eq!(contender.round(), Err("tired".to_owned()));
        assert!(contender.round().is_err(), "it has ended");
    }
}
