//! Choices of one item each from several lists.

use std::collections::BTreeSet;

/// Some or all choices, each with the index in every list.
pub(super) struct Combinations {
    pub(super) chosen: Vec<Vec<usize>>,
    pub(super) is_all: bool,
}

/// Returns all choices, the last list varying fastest. If there are more than `max`, returns `max` of them that are
/// spread over all lists, so that each index occurs unless a list is longer than `max`.
pub(super) fn combinations(lengths: &[usize], max: usize) -> Combinations {
    let all = lengths.iter().fold(1, |all: usize, it| all.saturating_mul(*it));
    if all <= max {
        let chosen = (0..all).map(|number| digits(lengths, number)).collect();
        return Combinations { chosen, is_all: true };
    }
    let mut known = BTreeSet::new();
    let mut spread = Vec::new();
    let longest = lengths.iter().copied().max().unwrap_or(0);
    for turn in 0.. {
        let choice: Vec<usize> = if turn < longest {
            lengths.iter().map(|it| turn % it).collect()
        } else {
            let place = |(at, length): (usize, &usize)| mixed(turn, at) % length;
            lengths.iter().enumerate().map(place).collect()
        };
        if known.insert(choice.clone()) {
            spread.push(choice);
        }
        // There are more choices than wanted, so most turns find a new one.
        if spread.len() == max || turn > max.saturating_mul(64) {
            break;
        }
    }
    Combinations { chosen: spread, is_all: false }
}

/// Returns the digits of a number. Each digit has another base: a length.
fn digits(lengths: &[usize], mut number: usize) -> Vec<usize> {
    let mut digits: Vec<usize> = lengths
        .iter()
        .rev()
        .map(|length| {
            let digit = number % length;
            number /= length;
            digit
        })
        .collect();
    digits.reverse();
    digits
}

/// Returns a number without a visible relation to the two given ones: the finalizer of `SplitMix64`.
fn mixed(turn: usize, at: usize) -> usize {
    let seed = (turn as u64) << 16 | at as u64;
    let mut mixed = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    usize::try_from((mixed ^ (mixed >> 31)) >> 33).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_few_combinations_are_all_there_in_order() {
        let all = combinations(&[2, 3], 6).chosen;
        assert_eq!(all, [[0, 0], [0, 1], [0, 2], [1, 0], [1, 1], [1, 2]]);
        assert_eq!(combinations(&[], 5).chosen, [Vec::<usize>::new()]);
    }

    #[test]
    fn of_many_combinations_those_tried_are_spread_over_all_lists() {
        let lengths = [7, 2, 2, 2, 2, 2, 2, 2, 2, 2, 30];
        let spread = combinations(&lengths, 200).chosen;
        let distinct: BTreeSet<&Vec<usize>> = spread.iter().collect();
        assert_eq!((spread.len(), distinct.len()), (200, 200));
        for (at, length) in lengths.into_iter().enumerate() {
            let found: BTreeSet<usize> = spread.iter().map(|it| it[at]).collect();
            assert_eq!(found.len(), length, "list {at}");
        }
        // Also values of three lists together.
        for want in 0..8 {
            let pair = |it: &Vec<usize>| it[1] * 4 + it[2] * 2 + it[9] == want;
            assert!(spread.iter().any(pair), "{want}");
        }
    }
}
