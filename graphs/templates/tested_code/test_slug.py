"""The tests. They start the generated code as another program, so it cannot change their result."""

import subprocess
import sys
import unittest


def slug(title):
    started = subprocess.run([sys.executable, "slug.py", title], capture_output=True, text=True, timeout=5)
    return started.stdout.strip() or started.stderr.strip()


class Slugs(unittest.TestCase):
    def test_words_are_joined_in_lower_case(self):
        self.assertEqual(slug("My Title"), "my-title")

    def test_other_characters_are_dropped(self):
        self.assertEqual(slug("What's new?"), "whats-new")


unittest.main()
