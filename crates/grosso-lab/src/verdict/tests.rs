use super::*;

fn spread(values: &[f64]) -> Spread {
    Spread::of(values.iter().copied())
}

fn ratio(over: &[f64], under: &[f64], bound: Bound) -> Answer {
    answer(Evidence::ratio(&spread(over), &spread(under), bound))
}

fn answer(evidence: Evidence) -> Answer {
    evidence.verdict("a claim", Unit::Times, CAUSE).answer
}

const CAUSE: &str = "a cause";
const YES: Answer = Answer::Reproduced;
const NO: Answer = Answer::NotReproduced { cause: CAUSE };
const OPEN: Answer = Answer::Undecided { needed: QUIET };

#[test]
fn rank_probabilities_agree_with_mann_and_whitney() {
    let chance = |above: &[f64], below: &[f64]| chance_of_above(above, below);
    // Each expected value is the fraction of all possible orders that are at least as extreme.
    assert!((chance(&[4.0, 5.0, 6.0], &[1.0, 2.0, 3.0]) - 0.05).abs() < 1e-12);
    let low = [1.0, 2.0, 3.0, 4.0, 5.0];
    assert!((chance(&[6.0, 7.0, 8.0, 9.0, 10.0], &low) - 1.0 / 252.0).abs() < 1e-12);
    assert!((chance(&[4.5, 7.0, 8.0, 9.0, 10.0], &low) - 2.0 / 252.0).abs() < 1e-12);
    assert!((chance(&[1.0], &[2.0]) - 1.0).abs() < 1e-12);
    assert!((chance(&[2.0], &[1.0]) - 0.5).abs() < 1e-12);
    // For two series of five runs, the critical value is U = 4 out of 25.
    let (at, beyond) = ([3.5, 4.5, 6.0, 7.0, 8.0], [2.5, 3.5, 6.0, 7.0, 8.0]);
    assert!(chance(&at, &low) <= 0.05 && chance(&beyond, &low) > 0.05);
}

#[test]
fn a_ratio_that_noise_explains_is_undecided() {
    let bound = Bound::AtLeast(1.44);
    let off = [1.0, 1.02, 0.98];
    assert_eq!(ratio(&[1.5, 1.52, 1.55], &off, bound), YES);
    assert_eq!(ratio(&[1.5, 1.52, 1.43], &off, bound), OPEN);
    assert_eq!(ratio(&[1.40, 1.39, 1.45], &off, bound), OPEN);
    assert_eq!(ratio(&[0.88, 0.9, 0.87], &off, bound), NO);
    // Comparing one run with one other run proves nothing.
    assert_eq!(ratio(&[9.0], &[1.0], bound), OPEN);
    // Equal figures show no difference, and 0 / 0 is not a number.
    assert_eq!(ratio(&[1.0; 5], &[1.0; 5], Bound::AtLeast(1.0)), OPEN);
    assert_eq!(ratio(&[0.0; 5], &[0.0; 5], Bound::Under(1.0)), OPEN);
    assert_eq!(ratio(&[0.4, 0.5, 0.45], &off, Bound::Under(0.85)), YES);
    assert_eq!(ratio(&[1.0, 0.99, 1.01], &off, Bound::Under(0.85)), NO);
}

#[test]
fn equal_figures_are_within_the_bound_on_both_sides() {
    let (off, bound) = ([1.0, 1.001, 0.999], Bound::Within(0.97));
    assert_eq!(ratio(&[1.001, 1.0, 0.999], &off, bound), YES);
    assert_eq!(ratio(&[1.06, 1.05, 1.04], &off, bound), NO);
    assert_eq!(ratio(&[0.96, 0.95, 0.94], &off, bound), NO);
    assert_eq!(ratio(&[0.98, 0.96, 1.0], &off, bound), OPEN);
}

#[test]
fn a_median_is_judged_by_how_many_agree() {
    let median = |values: &[f64]| answer(Evidence::median(&spread(values), Bound::Under(0.5)));
    assert_eq!(median(&[0.1, 0.2, 0.3, 0.1, 0.2]), YES);
    assert_eq!(median(&[0.1, 0.2, 0.3]), OPEN, "one of eight agrees by chance");
    assert_eq!(median(&[0.1, 0.2, 0.3, 0.1, 0.9]), OPEN);
}

#[test]
fn one_pause_of_the_machine_is_noise() {
    let greatest = |values: &[f64]| answer(Evidence::greatest(&spread(values), Bound::Under(0.5)));
    assert_eq!(greatest(&[0.1, 0.2, 0.3, 0.1, 0.2]), YES);
    assert_eq!(greatest(&[0.1, 0.2, 0.3, 0.1, 0.9]), OPEN);
    assert_eq!(greatest(&[0.9, 0.7, 0.8, 0.6, 0.7]), NO);
}

#[test]
fn without_figures_there_is_no_answer() {
    let (none, some) = (spread(&[]), spread(&[1.0; 5]));
    let bound = Bound::Under(1.0);
    for evidence in [
        Evidence::ratio(&none, &some, bound),
        Evidence::ratio(&some, &none, bound),
        Evidence::median(&none, bound),
        Evidence::greatest(&none, bound),
        Evidence::all([Evidence::exact(0.0, bound), Evidence::median(&none, bound)]).unwrap(),
    ] {
        let verdict = evidence.verdict("a claim", Unit::Times, CAUSE);
        let verdict = verdict.with("a detail").beside(Published::new(2.0, "R1"));
        assert_eq!(verdict.answer, Answer::CannotBeShownHere { needed: FIGURES });
        assert_eq!(verdict.reasons(), format!("needed: {FIGURES}"));
        assert_eq!(verdict.published, None);
    }
    assert_eq!(Evidence::all([]), None);
}

#[test]
fn the_figure_most_contrary_to_the_claim_is_judged_and_shown() {
    let one = |figure, within_noise| Evidence {
        within_noise,
        ..Evidence::exact(figure, Bound::AtLeast(1.0))
    };
    let all = |each: &[Evidence]| {
        let verdict = Evidence::all(each.iter().copied()).unwrap();
        let verdict = verdict.verdict("a claim", Unit::Times, CAUSE);
        (verdict.answer, verdict.measured)
    };
    assert_eq!(all(&[one(3.0, false), one(2.0, false)]), (YES, "2.00 times".into()));
    // Noise must neither confirm a claim nor hide a real contradiction.
    assert_eq!(all(&[one(3.0, true), one(2.0, false)]), (OPEN, "2.00 times".into()));
    assert_eq!(all(&[one(0.2, true), one(0.5, false)]), (NO, "0.50 times".into()));
    assert_eq!(all(&[one(0.9, true), one(1.5, false)]), (OPEN, "0.90 times".into()));
    let named = Evidence::all_of([(one(3.0, false), "a"), (one(2.0, false), "b")]);
    assert_eq!(named.map(|(_, name)| name), Some("b"));
}

#[test]
fn the_figure_that_is_shown_is_the_one_that_is_judged() {
    // The median of the ratios within pairs is 2.0, but the ratio of the medians is 1.5.
    let (over, under) = (spread(&[2.0, 3.0, 8.0]), spread(&[1.0, 2.0, 4.0]));
    for (bound, holds) in [(1.4, true), (1.6, false)] {
        let evidence = Evidence::ratio(&over, &under, Bound::AtLeast(bound));
        assert_eq!(evidence.bound.holds(evidence.figure), holds);
        let verdict = evidence.verdict("a claim", Unit::Times, CAUSE);
        assert_eq!(verdict.measured, "1.50 times");
    }
    let formats = [
        (Unit::Times, 12.34, "12.3 times"),
        (Unit::Percent, 0.0014, "0.14 %"),
        (Unit::Percent, 0.051, "5.1 %"),
        (Unit::Percent, 0.87, "87 %"),
        (Unit::Change, 0.95, "-5.0 %"),
        (Unit::Of("ms"), 823.4, "823 ms"),
    ];
    for (unit, figure, expected) in formats {
        assert_eq!(unit.format(figure), expected);
    }
}

#[test]
fn an_effect_is_beside_the_published_one_with_a_word() {
    let beside = |figure, bound, published| {
        let verdict = Evidence::exact(figure, bound).verdict("a claim", Unit::Times, CAUSE);
        verdict.beside(Published::new(published, "R1"))
    };
    let (more, less) = (Bound::AtLeast(1.0), Bound::Under(1.0));
    for (figure, bound, published, effect) in [
        (2.2, more, 2.74, Effect::WeakerThan),
        (2.3, more, 2.74, Effect::As),
        (3.2, more, 2.74, Effect::As),
        (3.3, more, 2.74, Effect::StrongerThan),
        (0.66, less, 0.5, Effect::WeakerThan),
        (0.42, less, 0.5, Effect::As),
        (0.40, less, 0.5, Effect::StrongerThan),
    ] {
        let found = beside(figure, bound, published).published.unwrap();
        assert_eq!((found.here, found.effect), (figure, Some(effect)), "{figure} {published}");
    }
    let weaker = beside(2.0, more, 2.74);
    assert_eq!(weaker.reasons(), "2.00 times; published 2.74 times (R1); weaker than published");
    let json = serde_json::to_value(&weaker).unwrap();
    assert_eq!(json["published"]["effect"], "weaker_than");
    assert_eq!(
        (&json["published"]["ratio"], &json["published"]["here"]),
        (&2.74.into(), &2.0.into())
    );
    // If a claim is contradicted, there is no effect whose size could be compared.
    let contrary = beside(0.9, more, 2.74);
    assert_eq!(
        contrary.reasons(),
        "0.90 times; published 2.74 times (R1); possible cause: a cause"
    );
    assert_eq!(contrary.published.unwrap().effect, None);
}

#[test]
fn a_loss_is_never_called_yes_and_no_line_is_too_long() {
    let cause = "packets of the longest MTU are few, and cutting them is one more pass over all of their bytes";
    let evidence = Evidence::exact(0.88, Bound::AtLeast(1.0));
    let verdict = evidence.verdict("superframes gain less at the longest MTU", Unit::Times, cause);
    let text = verdict.to_string();
    assert!(
        text.starts_with("not reproduced        superframes gain less at the longest MTU\n"),
        "{text}"
    );
    assert!(text.contains("\n                      0.88 times; possible cause: packets"), "{text}");
    assert!(text.lines().count() == 4 && text.lines().all(|line| line.len() <= 80), "{text}");
    let json = serde_json::to_value(&verdict).unwrap();
    assert_eq!((&json["verdict"], &json["cause"]), (&"not_reproduced".into(), &cause.into()));
    let open = Evidence { within_noise: true, ..evidence };
    let open = open.verdict("a claim", Unit::Times, cause);
    let json = serde_json::to_value(&open).unwrap();
    assert_eq!((&json["verdict"], &json["needed"]), (&"undecided".into(), &QUIET.into()));
    assert!(open.to_string().starts_with("undecided             a claim\n"), "{open}");
    let even = [0.99, 1.0, 1.01];
    let needed = |runs: &[f64], published| {
        let evidence = Evidence::ratio(&spread(runs), &spread(runs), Bound::AtLeast(1.0));
        let verdict = evidence.verdict("a claim", Unit::Times, cause);
        match verdict.beside(Published::new(published, "R1")).answer {
            Answer::Undecided { needed } => needed,
            other => panic!("{other}"),
        }
    };
    assert_eq!(needed(&even, 1.78), NOT_AS_STRONG);
    assert_eq!(needed(&even, 1.01), QUIET, "as strong as the noise");
    assert_eq!(needed(&even[..2], 1.78), QUIET, "too few runs");
    let here = Verdict::not_here("three CPUs", "a machine of three processors");
    assert_eq!(
        here.to_string(),
        "cannot be shown here  three CPUs\n                      needed: a machine of three processors"
    );
}
