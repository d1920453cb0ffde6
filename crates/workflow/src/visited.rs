//! What a condition on the visits of a node proves: that the node has run before, and its writes with it.
//!
//! The knowledge is a mark among the paths that are known to be present, so it holds exactly as long as these.
//! [`AssignedFields`](crate::written::AssignedFields) looks the marks up.

/// The largest number of visits that makes a difference.
const LEAST_MAX: i64 = 2;

/// Returns the mark of a node that has run at least so often, with the current visit; `None` if that says nothing.
pub(crate) fn mark(node: &str, least: i64) -> Option<String> {
    (least > 0).then(|| format!("visits({node}) >= {}", least.min(LEAST_MAX)))
}

/// Returns the nodes that have run, each with whether it has run more than once.
pub(crate) fn nodes(known: &[String]) -> impl Iterator<Item = (&str, bool)> {
    known.iter().filter_map(|it| {
        let (node, least) = it.strip_prefix("visits(")?.split_once(") >= ")?;
        Some((node, least != "1"))
    })
}

/// Returns the least number of visits that fulfils a condition. The visits of the reading node itself include the current
/// one.
pub(crate) fn least(is_own: bool, fulfils: impl Fn(i64) -> bool) -> i64 {
    (i64::from(is_own)..LEAST_MAX).find(|it| fulfils(*it)).unwrap_or(LEAST_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_comparison_proves_the_least_number_that_fulfils_it() {
        for (is_own, least_of, condition) in [
            (false, 0, (|it| it >= 0) as fn(i64) -> bool),
            (false, 1, |it| it > 0),
            (false, 1, |it| it != 0),
            (false, 0, |it| it != 1),
            (true, 2, |it| it != 1),
            (true, 1, |it| it >= 1),
            (false, 2, |it| it == 7),
            (false, 0, |it| it < 3),
        ] {
            assert_eq!(least(is_own, condition), least_of);
        }
    }

    #[test]
    fn a_mark_names_its_node() {
        let known: Vec<String> =
            [mark("a", 1), mark("b.c", 5), mark("d", 0), Some("note".to_owned())]
                .into_iter()
                .flatten()
                .collect();
        assert_eq!(nodes(&known).collect::<Vec<_>>(), [("a", false), ("b.c", true)]);
    }
}
