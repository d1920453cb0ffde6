// Finds the tests that a file declares without a condition, without running it: calls of `test` and `it` with a literal name
// at the beginning of a line, outside of comments, strings and templates.
'use strict';

/** What is no code: comments, strings, templates and regular expressions. Names of tests are strings, so these are kept. */
const SKIPPED = /\/\/[^\n]*|\/\*[^]*?\*\/|`(?:\\[^]|[^\\`])*`|(?<=[(,=:[!&|?{};\n]\s*|\breturn\s+)\/(?![*/])(?:\\.|\[(?:\\.|[^\]\\\n])*\]|[^/\\\n[])+\/|'(?:\\[^]|[^\\'\n])*'|"(?:\\[^]|[^\\"\n])*"/g;

const TEST = /^(?:await )?(?:test|it)\(\s*(?:'([^'\\\n]*)'|"([^"\\\n]*)")\s*,/gm;

exports.declaredTests = function declaredTests(source) {
  const code = source.replace(SKIPPED, (part) => (/^['"]/.test(part) ? part : part.replace(/[^\n]+/g, ' ')));
  return [...code.matchAll(TEST)].map(([, single, double]) => single ?? double);
};
