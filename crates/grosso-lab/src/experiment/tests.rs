use core::cell::RefCell;

use super::*;

/// An experiment whose settings and runs are numbers. Trials fail for the settings in `failing`.
struct Numbers {
    plan: Plan<()>,
    settings: Vec<u32>,
    failing: RefCell<Vec<u32>>,
    tried: RefCell<Vec<u32>>,
}

#[derive(Clone, Debug, Serialize, JsonSchema)]
struct Figures {
    rows: Vec<(u32, Spread)>,
}

impl Findings for Figures {
    type Parameters = ();

    const KNOBS: &'static [crate::report::Knob] = &[];
    const LEGEND: &'static str = "";

    fn heading(&self, _environment: &Environment<()>) -> String {
        "numbers".into()
    }

    fn write(&self, text: &mut String) {
        self.rows.iter().for_each(|(setting, spread)| {
            *text += &format!("row {setting}: {}\n", digits(spread.median));
        });
    }

    fn headline(&self) -> String {
        String::new()
    }

    fn charts(&self) -> String {
        String::new()
    }
}

impl Experiment for Numbers {
    type Parameters = ();
    type Setting = u32;
    type Run = f64;
    type Findings = Figures;

    fn name(&self) -> &'static str {
        "numbers"
    }

    fn plan(&self) -> &Plan<()> {
        &self.plan
    }

    fn settings(&self) -> Vec<&[u32]> {
        vec![&self.settings]
    }

    fn measure(
        &self,
        group: &mut [RunsOf<Self>],
        bench: &mut Bench<'_, Self>,
    ) -> Result<(), TrialError> {
        let once = |setting: &u32, _: &AtomicBool| {
            self.tried.borrow_mut().push(*setting);
            let mut failing = self.failing.borrow_mut();
            match failing.iter().position(|one| one == setting) {
                Some(found) => {
                    failing.remove(found);
                    let error = io::Error::from_raw_os_error(11);
                    Err(TrialError::call("receiver", "read")(error))
                }
                None => Ok(f64::from(*setting)),
            }
        };
        bench.each(once, group)
    }

    fn label(&self, setting: &u32) -> String {
        format!("setting {setting}")
    }

    fn brief(&self, runs: &[f64]) -> String {
        brief(runs, |run| *run, "Gb/s")
    }

    fn findings(&self, groups: Vec<Vec<RunsOf<Self>>>) -> Figures {
        let row = |series: RunsOf<Self>| (series.setting, Spread::of(series.runs));
        Figures { rows: groups.into_iter().flatten().map(row).collect() }
    }

    fn judge(&self, _: &Figures) -> Vec<Verdict> {
        Vec::new()
    }

    fn notes(&self, _: &Figures, _: &[FailedRow]) -> Vec<String> {
        Vec::new()
    }
}

/// Runs three settings, whose trials may fail. Returns the report, the steps and the settings that were tried.
fn run(failing: &[u32]) -> (Result<Report<Figures>, TrialError>, Vec<String>, Vec<u32>) {
    let plan = Plan { runs: 2, parameters: (), ..Plan::default() };
    let numbers = Numbers {
        plan,
        settings: vec![1, 2, 3],
        failing: RefCell::new(failing.to_vec()),
        tried: RefCell::default(),
    };
    let mut rows = Vec::new();
    let report = numbers.run(&AtomicBool::new(false), |step| {
        if let Step::Row(row) = step {
            rows.push(row.to_owned());
        }
    });
    (report, rows, numbers.tried.take())
}

#[test]
fn a_trial_that_fails_once_is_repeated() {
    let (report, rows, tried) = run(&[2, 2]);
    let report = report.unwrap();
    assert_eq!((report.findings.rows.len(), report.failed.len()), (3, 0));
    assert_eq!(tried, [1, 2, 2, 2, 3, 1, 2, 3]);
    assert_eq!(rows.len(), 3);
}

#[test]
fn a_trial_that_fails_every_time_becomes_a_row_without_figures() {
    let (report, rows, tried) = run(&[2; 9]);
    let report = report.unwrap();
    assert_eq!(tried, [1, 2, 2, 2, 3, 1, 3], "the failed setting is not measured again");
    let failure = "setting 2: - (receiver: read: Resource temporarily unavailable (os error 11))";
    assert_eq!(
        rows,
        [failure, "setting 1: 1.00 Gb/s (1.00-1.00)", "setting 3: 3.00 Gb/s (3.00-3.00)"],
        "each row as it is complete"
    );
    let settings: Vec<u32> = report.findings.rows.iter().map(|row| row.0).collect();
    assert_eq!(settings, [1, 3]);
    let table = report.table();
    assert!(table.contains("row 3: 3.00\n") && table.contains("setting 2: - ("), "{table}");
    let json = serde_json::to_value(&report).unwrap();
    assert_eq!(json["failed"][0]["setting"], "setting 2");
    assert_eq!(json["rows"].as_array().unwrap().len(), 2);
}

#[test]
fn an_experiment_without_any_figure_fails_with_the_first_error() {
    let (report, ..) = run(&[1, 1, 1, 2, 2, 2, 3, 3, 3]);
    let error = report.unwrap_err().to_string();
    assert!(
        error.starts_with("all settings failed; first error: setting 1: - (receiver: read: "),
        "{error}"
    );
}
