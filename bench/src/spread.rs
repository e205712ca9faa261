//! Medians with their range, and how numbers are written.

use serde::{Deserialize, Serialize};

/// What several rounds gave.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub(crate) struct Spread {
    pub(crate) median: f64,
    pub(crate) min: f64,
    pub(crate) max: f64,
}

impl Spread {
    /// `None` of nothing.
    pub(crate) fn of(figures: impl IntoIterator<Item = f64>) -> Option<Self> {
        let mut figures: Vec<f64> = figures.into_iter().collect();
        figures.sort_by(f64::total_cmp);
        let (min, max) = (*figures.first()?, *figures.last()?);
        let upper = figures.len() / 2;
        let lower = (figures.len() - 1) / 2;
        let middle = [figures.get(lower)?, figures.get(upper)?];
        Some(Self {
            median: f64::midpoint(*middle[0], *middle[1]),
            min,
            max,
        })
    }
}

/// `12,345`
pub(crate) fn grouped(figure: f64) -> String {
    let digits = format!("{figure:.0}");
    let mut text = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_is_the_middle_one_or_between_the_two_in_the_middle() {
        let median =
            |figures: &[f64]| Spread::of(figures.iter().copied()).map(|spread| spread.median);
        assert_eq!(median(&[]), None);
        assert_eq!(median(&[7.0]), Some(7.0));
        assert_eq!(median(&[9.0, 1.0, 2.0]), Some(2.0));
        assert_eq!(median(&[9.0, 1.0, 2.0, 4.0]), Some(3.0));
    }

    #[test]
    fn the_range_goes_with_it() {
        let spread = Spread::of([3.0, 10.0, 2.0]).unwrap();
        assert_eq!((spread.min, spread.max), (2.0, 10.0));
    }

    #[test]
    fn thousands_are_set_apart() {
        let texts = [0.4, 999.0, 1000.0, 123_456.7].map(grouped);
        assert_eq!(texts, ["0", "999", "1,000", "123,457"]);
    }
}
