//! A patch for people and models, without keys.

use graphrun_guard::redact::redact;

/// Removes keys from a patch, also those that the marks at the begin of its lines hide: a key over two lines of a file
/// has a `+` in it. A hunk with such a key shows its two sides one after the other.
pub(super) fn redact_patch(patch: &str) -> String {
    let patch = redact(patch);
    let mut shown = String::with_capacity(patch.len());
    let mut hunk: Option<Hunk<'_>> = None;
    for line in patch.split_inclusive('\n') {
        let begins_hunk = line.starts_with("@@ ");
        if begins_hunk || line.starts_with("diff ") {
            shown.extend(hunk.take().map(Hunk::redacted));
        }
        match &mut hunk {
            Some(hunk) => hunk.lines.push(line),
            None => shown.push_str(line),
        }
        if begins_hunk {
            hunk = Some(Hunk::default());
        }
    }
    shown.extend(hunk.map(Hunk::redacted));
    shown
}

/// The lines of a hunk, behind its first.
#[derive(Debug, Default)]
struct Hunk<'p> {
    lines: Vec<&'p str>,
}

impl Hunk<'_> {
    fn redacted(self) -> String {
        let old = self.redacted_side('-');
        let new = self.redacted_side('+');
        if old.is_none() && new.is_none() {
            return self.lines.concat();
        }
        // The lines around a change are shown with the key that they are a part of, or not at all.
        let marked = |mark: char, side: Option<String>| -> String {
            let text = side.unwrap_or_else(|| self.text(&[mark]));
            let mark = mark.to_string();
            text.lines().flat_map(|line| [mark.as_str(), line, "\n"]).collect()
        };
        marked('-', old) + &marked('+', new)
    }

    /// Returns the text of one side without its keys, if it has any.
    fn redacted_side(&self, mark: char) -> Option<String> {
        let text = self.text(&[mark, ' ']);
        let shown = redact(&text);
        (shown != text).then(|| shown.into_owned())
    }

    /// Returns the lines with these marks, without them.
    fn text(&self, marks: &[char]) -> String {
        let has_mark = |line: &&&str| line.starts_with(marks);
        self.lines.iter().filter(has_mark).map(|line| &line[1..]).collect()
    }
}

#[cfg(test)]
mod tests {
    use graphrun_guard::redact::learn;

    use super::*;

    #[test]
    fn a_key_over_several_lines_is_removed() {
        learn("zq8Kd93jfLwPx72mNvBt");
        let head = "diff --git a/u b/u\n--- a/u\n+++ b/u\n@@ -0,0 +1,2 @@\n";
        for split in ["+zq8Kd93jfL\n+wPx72mNvBt\n", " zq8Kd93jfL\n-x\n+wPx72mNvBt\n"] {
            let shown = redact_patch(&format!("{head}{split}"));
            assert!(shown.starts_with(head) && shown.contains("[redacted]"), "{shown}");
            assert!(!shown.contains("wPx72mNvBt") && !shown.contains("zq8Kd93jfL"), "{shown}");
        }
    }

    #[test]
    fn a_patch_without_a_key_stays_as_it_is() {
        let patch = "diff --git a/u b/u\nindex 1..2 100644\n--- a/u\n+++ b/u\n@@ -1,2 +1,2 @@ fn x\n a\n-b\n\
                     +c\n\\ No newline at end of file\n@@ -9 +9 @@\n-é\n+--- e\ndiff --git a/v b/v\nBinary files differ\n";
        assert_eq!(redact_patch(patch), patch);
        assert_eq!(redact_patch(""), "");
    }
}
