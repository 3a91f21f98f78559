//! Checks the output of tasks with a known correct output: segmentation and reassembly.

use crate::{
    difference::difference,
    fault::{Fault, Law},
    framing::Framed,
    superframe::{SuperframeReadings, Unsound, read},
    vectors::Vector,
};

/// Compares the output of one poll with the correct output that it most resembles, and returns the faults.
pub(crate) fn judge(vector: &Vector, records: &[Framed]) -> Vec<Fault> {
    let mut packets = Vec::new();
    for record in records {
        match read(record) {
            Ok(SuperframeReadings { readings, .. }) => {
                packets.extend(readings.into_iter().next().unwrap_or_default())
            }
            Err(Unsound { text, .. }) => return vec![fault(vector, Law::Header, text)],
        }
    }
    let faults = vector.expected.iter().map(|expected| compare(vector, expected, &packets));
    faults.min_by_key(Vec::len).unwrap_or_default()
}

/// Compares the output with a correct output.
fn compare(vector: &Vector, expected: &[Vec<u8>], packets: &[Vec<u8>]) -> Vec<Fault> {
    let mut missing: Vec<usize> = (0..expected.len()).collect();
    let mut places = Vec::new();
    let mut others = Vec::new();
    for packet in packets {
        match missing.iter().position(|index| expected[*index] == *packet) {
            Some(at) => places.push(missing.remove(at)),
            None => others.push(packet),
        }
    }
    let mut faults = Vec::new();
    for packet in others {
        // Assume that a wrong packet takes the place of the first missing one.
        let (law, text) = match missing.is_empty() {
            true => (Law::Added, "unexpected output packet".to_owned()),
            false => {
                let index = missing.remove(0);
                let text = difference(&expected[index], packet).text;
                (Law::Changed, format!("output packet {} is wrong: {text}", index + 1))
            }
        };
        faults.push(fault(vector, law, text));
    }
    for index in missing {
        faults.push(fault(vector, Law::Lost, format!("output packet {} is missing", index + 1)));
    }
    if vector.is_ordered && faults.is_empty() && !places.is_sorted() {
        faults.push(fault(vector, Law::Order, "the output packets are out of order".to_owned()));
    }
    faults
}

fn fault(vector: &Vector, law: Law, text: String) -> Fault {
    Fault { law, rules: vector.rules.clone(), text }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::vectors::{Task, vectors_of};

    fn records(packets: &[Vec<u8>]) -> Vec<Framed> {
        packets.iter().map(|frame| Framed { header: [0; 10], frame: frame.clone() }).collect()
    }

    fn laws(vector: &Vector, packets: &[Vec<u8>]) -> Vec<Law> {
        judge(vector, &records(packets)).iter().map(|fault| fault.law).collect()
    }

    #[test]
    fn the_right_output_is_right_and_every_kind_of_wrong_output_is_found() {
        for task in [Task::Segment, Task::Reassemble] {
            for vector in vectors_of(task).unwrap() {
                for right in &vector.expected {
                    assert_eq!(laws(&vector, right), [], "{}", vector.name);
                }
                let right = &vector.expected[0];
                let more: Vec<_> = right.iter().chain(&vector.frames[..1]).cloned().collect();
                assert_eq!(laws(&vector, &more), [Law::Added], "{}", vector.name);
                let Some(last) = right.len().checked_sub(1) else { continue };
                assert_eq!(laws(&vector, &right[..last]), [Law::Lost], "{}", vector.name);
                let mut changed = right.clone();
                *changed[last].last_mut().unwrap() ^= 1;
                assert_eq!(laws(&vector, &changed), [Law::Changed], "{}", vector.name);
                let mut reversed = right.clone();
                reversed.reverse();
                let is_wrong = task == Task::Segment && last > 0;
                let expected: &[Law] = if is_wrong { &[Law::Order] } else { &[] };
                assert_eq!(laws(&vector, &reversed), expected, "{}", vector.name);
            }
        }
    }

    #[test]
    fn a_program_that_returns_its_input_fails() {
        for task in [Task::Segment, Task::Reassemble] {
            let vectors = vectors_of(task).unwrap();
            let wrong = vectors.iter().filter(|vector| !laws(vector, &vector.frames).is_empty());
            assert!(wrong.count() * 2 > vectors.len(), "{task:?}");
        }
    }
}
