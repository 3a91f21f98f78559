//! The report of `conform`.

use std::collections::BTreeMap;

use grosso_report::{
    report::{COLUMNS, Envelope, Report, wrap_at},
    schema::ReportForm,
    style::Style,
    units,
};
use schemars::JsonSchema;
use serde::{Serialize, Serializer, ser::SerializeSeq};

use crate::{fault::Fault, judge::RULES_OF_ALL, vectors::Vector};

/// The report of `conform`.
#[derive(Debug, Serialize, JsonSchema)]
#[expect(missing_docs, reason = "a comment of a field is its description in the schema")]
pub struct ConformReport {
    /// Command line with which the program was started.
    pub command: Vec<String>,
    #[serde(flatten)]
    pub score: Score,
    /// Whether to print details.
    #[serde(skip)]
    pub is_long: bool,
}

/// Result of examining a program.
#[derive(Debug, Default, Serialize, JsonSchema)]
pub struct Score {
    vectors: VectorCounts,
    /// Number of packets that were merged with an earlier packet, and number of packets that may be merged.
    joins: JoinCounts,
    #[serde(serialize_with = "rows")]
    #[schemars(with = "Vec<NamedRow>")]
    rules: BTreeMap<RuleNumber, RuleRow>,
    faults: Vec<FaultRow>,
}

/// Number of vectors by result.
#[derive(Clone, Copy, Debug, Default, Serialize, JsonSchema)]
struct VectorCounts {
    right: u64,
    wrong: u64,
    /// Vectors that were not tried because the program had broken down too often.
    left_out: u64,
}

#[derive(Clone, Copy, Debug, Default, Serialize, JsonSchema)]
struct JoinCounts {
    made: u64,
    possible: u64,
}

/// Score of one rule.
#[derive(Clone, Copy, Debug, Default, Serialize, JsonSchema)]
struct RuleRow {
    /// Number of vectors tried that test the rule.
    vectors: u64,
    /// Number of vectors in which the rule was violated.
    wrong: u64,
    joins: JoinCounts,
}

/// Score of one rule, with the rule's name.
#[derive(Serialize, JsonSchema)]
struct NamedRow {
    rule: String,
    #[serde(flatten)]
    row: RuleRow,
}

/// Law that was violated in a vector.
#[derive(Debug, Serialize, JsonSchema)]
struct FaultRow {
    vector: String,
    /// Sentence that says what the vector tests.
    shows: String,
    #[serde(flatten)]
    fault: Fault,
}

/// Rule number. Rules are ordered by letter and then by number: G4, G14, G14a.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct RuleNumber {
    letter: String,
    number: u32,
    rest: String,
}

impl RuleNumber {
    fn of(rule: &str) -> Self {
        let (letter, number) = rule.split_at(rule.find(|c: char| c.is_ascii_digit()).unwrap_or(0));
        let end = number.find(|c: char| !c.is_ascii_digit()).unwrap_or(number.len());
        let (number, rest) = number.split_at(end);
        Self {
            letter: letter.to_owned(),
            number: number.parse().unwrap_or(0),
            rest: rest.to_owned(),
        }
    }
}

impl core::fmt::Display for RuleNumber {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "{}{}{}", self.letter, self.number, self.rest)
    }
}

/// Serializes the rules as a list in which each rule has a name.
fn rows<S: Serializer>(
    rules: &BTreeMap<RuleNumber, RuleRow>,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    let mut list = serializer.serialize_seq(Some(rules.len()))?;
    for (rule, row) in rules {
        list.serialize_element(&NamedRow { rule: rule.to_string(), row: *row })?;
    }
    list.end()
}

impl Score {
    /// Adds a vector that was tried, with its faults and the number of merged packets.
    pub(crate) fn add(&mut self, vector: &Vector, faults: Vec<Fault>, joins: usize) {
        let tried = JoinCounts { made: joins as u64, possible: vector.joins as u64 };
        let count =
            if faults.is_empty() { &mut self.vectors.right } else { &mut self.vectors.wrong };
        *count += 1;
        self.joins.add(tried);
        for rule in &vector.rules {
            let row = self.rules.entry(RuleNumber::of(rule)).or_default();
            row.vectors += 1;
            row.joins.add(tried);
        }
        let of_all = if vector.expected.is_empty() { &RULES_OF_ALL[..] } else { &[] };
        for rule in of_all.iter().filter(|rule| !vector.rules.iter().any(|own| own == *rule)) {
            self.rules.entry(RuleNumber::of(rule)).or_default().vectors += 1;
        }
        let mut broken: Vec<&String> = faults.iter().flat_map(|fault| &fault.rules).collect();
        broken.sort();
        broken.dedup();
        for rule in broken {
            self.rules.entry(RuleNumber::of(rule)).or_default().wrong += 1;
        }
        self.faults.extend(faults.into_iter().map(|fault| {
            let (vector, shows) = (vector.name.clone(), vector.shows.clone());
            FaultRow { vector, shows, fault }
        }));
    }

    /// Adds a fault that occurred after the last vector.
    pub(crate) fn add_at_the_end(&mut self, fault: Fault) {
        let shows = "The program must exit when its input ends.".to_owned();
        self.faults.push(FaultRow { vector: "end of the output".to_owned(), shows, fault });
    }

    /// Counts a vector that was not tried.
    pub(crate) fn leave_out(&mut self) {
        self.vectors.left_out += 1;
    }

    /// Returns whether any law was violated.
    #[must_use]
    pub fn is_wrong(&self) -> bool {
        !self.faults.is_empty()
    }

    /// Returns whether every packet that may be merged was merged.
    #[must_use]
    pub fn joins_all(&self) -> bool {
        self.vectors.left_out == 0 && self.joins.made == self.joins.possible
    }
}

impl JoinCounts {
    fn add(&mut self, other: Self) {
        self.made += other.made;
        self.possible += other.possible;
    }

    fn text(self) -> String {
        if self.possible == 0 {
            return "-".to_owned();
        }
        format!("{} of {}", self.made, self.possible)
    }
}

impl Report for ConformReport {
    fn form(&self) -> ReportForm {
        Self::FORM
    }

    fn text(&self, style: Style) -> String {
        let score = &self.score;
        let mut text = String::new();
        let is_shown =
            |row: &RuleRow| self.is_long || row.wrong > 0 || row.joins.made < row.joins.possible;
        let told: Vec<_> = score.rules.iter().filter(|(_, row)| is_shown(row)).collect();
        if !told.is_empty() {
            text.push_str("  rule   vectors  wrong  merged\n");
        }
        for (rule, row) in told {
            let wrong = format!("{:>5}", row.wrong);
            let wrong = if row.wrong > 0 { style.bad(&wrong) } else { wrong };
            let joined = row.joins.text();
            text.push_str(&format!(
                "  {:<5}  {:>7}  {wrong}  {joined}\n",
                rule.to_string(),
                row.vectors
            ));
        }
        for faults in score.faults.chunk_by(|one, next| one.vector == next.vector) {
            text.push_str(&self.vector(faults, style));
        }
        text + &score.summary()
    }
}

impl ConformReport {
    /// Name and version of the JSON schema.
    pub const FORM: ReportForm = ReportForm::of::<Envelope<Self>>("grosso.conform/1");

    /// Formats the faults found in one vector.
    fn vector(&self, faults: &[FaultRow], style: Style) -> String {
        let FaultRow { vector, shows, .. } = &faults[0];
        let mut text = wrap_at(&format!("{}: {shows}", style.strong(vector)), COLUMNS);
        let told = if self.is_long { faults.len() } else { faults.len().min(FAULTS_SHOWN_MAX) };
        for FaultRow { fault: Fault { law, rules, text: sentence }, .. } in &faults[..told] {
            let by =
                if rules.is_empty() { String::new() } else { format!(" ({})", rules.join(", ")) };
            let lines = wrap_at(&format!("{}{by}: {sentence}", law.name()), COLUMNS - 4);
            lines.lines().for_each(|line| text.push_str(&format!("    {line}\n")));
        }
        if told < faults.len() {
            text.push_str(&format!("    ... and {} more (-v lists all)\n", faults.len() - told));
        }
        text
    }
}

impl Score {
    fn summary(&self) -> String {
        let VectorCounts { right, wrong, left_out } = self.vectors;
        let JoinCounts { made, possible } = self.joins;
        let tried = units::count(right + wrong, "vector");
        let percent = units::percentage(made, possible);
        let mut text = format!("{tried}: {right} right, {wrong} wrong");
        if left_out > 0 {
            text.push_str(&format!("; {left_out} skipped after too many failures"));
        }
        if possible == 0 {
            return text + "\n";
        }
        text + &format!(
            "\nmerged {made} of {possible} packets that may be merged ({percent:.1} \
                         %)\n"
        )
    }
}

/// Maximum number of faults per vector in text reports.
const FAULTS_SHOWN_MAX: usize = 3;

#[cfg(test)]
mod tests {
    use super::RuleNumber;

    #[test]
    fn rules_are_in_the_order_of_their_numbers() {
        let mut rules = ["G34b", "U1", "G14", "C1", "G4", "G34"].map(RuleNumber::of);
        rules.sort();
        assert_eq!(rules.map(|rule| rule.to_string()), ["C1", "G4", "G14", "G34", "G34b", "U1"]);
    }
}
