//! Templates that do not load, each with the code and the place of its problem, and a part of the message or the help.

pub(super) const WRONG: &[(&str, &str, &str)] = &[
    // A name that may be absent for two reasons.
    ("{% if flag %}{% set v = story.note %}{% endif %}{{ v }}", "GR026 `v`", "guard it"),
    ("{% if flag %}{% set v = texts[9] %}{% endif %}{{ v | upper }}", "GR026 `v`", "guard it"),
    (
        "{% if flag %}{% set v = stories[5] %}{% endif %}{% if v %}{{ v.no_such }}{% endif %}",
        "GR041 `v.no_such`",
        "has no field",
    ),
    ("{% set v = story.note if flag else none %}{{ v | upper }}", "GR026 `v`", "guard it"),
    (
        "{% macro m(x) %}{{ x | upper }}{% endmacro %}{{ m(story.note if flag) }}",
        "GR026 `x`",
        "guard it",
    ),
    // `none` is never the value of an `or`.
    ("{{ (none or brief) | abs }}", "GR022 `abs`", "does not work on"),
    ("{% set x = none %}{{ (x or brief) | abs }}", "GR022 `abs`", "does not work on"),
    ("{{ (none | default(count)) | length }}", "GR022 `length`", "does not work on"),
    // Macros.
    ("{% macro m(x='-') %}{{ x | length }}{% endmacro %}{{ m(none) }}", "GR026 `x`", "guard it"),
    (
        "{% macro m() %}{{ brief }}{% endmacro %}{{ m() }}{% set brief = 1 %}{{ m() }}",
        "GR041 `brief`",
        "as an argument",
    ),
    (
        "{% macro m(x) %}{{ x.no_such }}{% endmacro %}{{ m(story) }}",
        "GR041 `x.no_such`",
        "has no field `no_such`",
    ),
    (
        "{% macro m(x) %}{{ x | round }}{% endmacro %}{{ m(1) }}{{ m(brief) }}",
        "GR022 `round`",
        "string",
    ),
    ("{% macro m(x) %}{{ x }}{% endmacro %}{{ m(1, 2) }}", "GR041 `2`", "takes 1 argument"),
    ("{% macro m(x) %}{{ x }}{% endmacro %}{{ m(1, z=2) }}", "GR041 `2`", "no argument `z`"),
    ("{% macro m(x) %}{{ x }}{% endmacro %}{{ m(1, x=2) }}", "GR041 `2`", "twice"),
    ("{% macro m(x) %}{{ x }}{% endmacro %}{{ m() }}", "GR026 `x`", "may be absent"),
    ("{% macro m(x) %}{{ x }}{% endmacro %}{{ m(story.note) }}", "GR026 `x`", "guard it"),
    ("{% macro m(x, y=x) %}{{ y }}{% endmacro %}{{ m(1) }}", "GR041 `x`", "no name `x`"),
    ("{% macro m(x='-') %}{{ x | round }}{% endmacro %}{{ m() }}", "GR022 `round`", "round"),
    ("{% macro m(x) %}{{ x }}{% endmacro %}{{ m(*texts) }}", "GR040 `texts`", "one by one"),
    ("{% macro m(x) %}{{ x }}{% endmacro %}{{ m }}", "GR041 `m`", "call it"),
    ("{% macro m(x) %}{{ x }}{% endmacro %}{{ m.name }}", "GR041 `m`", "call it"),
    ("{% macro m(n) %}{{ m(n) }}{% endmacro %}{{ m(1) }}", "GR040 `m`", "use a loop"),
    (
        "{% macro a() %}{{ b() }}{% endmacro %}{% macro b() %}{{ a() }}{% endmacro %}{{ a() }}",
        "GR040 `a`",
        "calls itself",
    ),
    ("{{ m(1) }}{% macro m(x) %}{{ x }}{% endmacro %}", "GR041 `m`", "no function `m`"),
    ("{% set y = 1 %}{% macro m() %}{{ y }}{% endmacro %}{{ m() }}", "GR041 `y`", "as an argument"),
    (
        "{% macro m() %}{{ brief }}{% endmacro %}{% set brief = 1 %}{{ m() }}",
        "GR041 `brief`",
        "as an argument",
    ),
    ("{% macro m() %}{{ caller() }}{% endmacro %}{{ m() }}", "GR041 `caller`", "{% call"),
    (
        "{% macro m() %}x{% endmacro %}{% call m() %}y{% endcall %}",
        "GR041 `m`",
        "does not use its block",
    ),
    ("{% call range(3) %}y{% endcall %}", "GR041 `range`", "needs a macro"),
    (
        "{% macro m() %}{{ caller(1) }}{% endmacro %}{% call m() %}y{% endcall %}",
        "GR041 `1`",
        "takes 0 arguments",
    ),
    (
        "{% macro m() %}{{ caller(1) }}{% endmacro %}{% call(x) m() %}{{ x.y }}{% endcall %}",
        "GR041 `x.y`",
        "a call gives `caller` `x`: `int`",
    ),
    (
        "{% macro m() %}{{ caller() }}{% endmacro %}{% call m() %}{{ caller() }}{% endcall %}",
        "GR041 `caller`",
        "outside",
    ),
    ("{% if flag %}{% macro m() %}x{% endmacro %}{% endif %}{{ m() }}", "GR041 `m`", "is a value"),
    ("{% macro unused() %}{{ nosuch }}{% endmacro %}", "GR041 `nosuch`", "no name"),
    // A condition on a name proves nothing about a field or a fact that has the same name.
    (
        "{% macro m() %}{{ story.note | upper }}{% endmacro %}\
         {% for story in stories %}{% if story.note %}{{ m() }}{% endif %}{% endfor %}",
        "GR026 `story.note`",
        "guard it",
    ),
    (
        "{% macro m() %}{{ numbers[1] + 1 }}{% endmacro %}\
         {% with numbers = [1, 2] %}{% if numbers | length > 1 %}{{ m() }}{% endif %}{% endwith %}",
        "GR026 `numbers[1]`",
        "absent",
    ),
    (
        "{% with via = {'reason': brief, 'node': story.note} %}\
         {% if via.reason == 'caught' %}{{ via.node | upper }}{% endif %}{% endwith %}",
        "GR026 `via.node`",
        "absent",
    ),
    // Neighbours in a loop.
    (
        "{% for s in stories %}{{ loop.nextitem.title }}{% endfor %}",
        "GR026 `loop.nextitem`",
        "guard it",
    ),
    ("{% for s in stories %}{{ loop.previtem }}{% endfor %}", "GR026 `loop.previtem`", "guard it"),
    (
        "{% for s in stories %}{% if loop.nextitem %}{{ loop.nextitem.no }}{% endif %}{% endfor %}",
        "GR041 `",
        "no field `no`",
    ),
    (
        "{% for s in stories %}{% if not loop.first %}{{ loop.nextitem }}{% endif %}{% endfor %}",
        "GR026 `loop.nextitem`",
        "absent",
    ),
    (
        "{% for s in stories %}{% if not loop.last %}{% for t in texts %}{{ loop.nextitem }}{% endfor %}{% endif %}{% endfor %}",
        "GR026 `loop.nextitem`",
        "absent",
    ),
    ("{% for s in stories %}{{ loop.cycle(1, 2).x }}{% endfor %}", "GR041 `", "so no `x`"),
    // Parts of items.
    (
        "{{ stories | map(attribute='nosuch') | join }}",
        "GR041 `map(attribute='nosuch')`",
        "no field",
    ),
    ("{{ stories | map(attribute='note') | join }}", "GR026 `join`", "absent"),
    ("{% for n in stories | map(attribute='note') %}{{ n }}{% endfor %}", "GR026 `n`", "absent"),
    (
        "{{ stories | map(attribute='owner.name') | join }}",
        "GR026 `map(attribute='owner.name')`",
        "absent",
    ),
    ("{{ stories | selectattr('owner.name', 'eq', 'a') | list }}", "GR026 `selectattr", "absent"),
    ("{% for n, of in stories | groupby('note') %}{{ n }}{% endfor %}", "GR026 `n`", "absent"),
    (
        "{% for l, of in stories | groupby('level') %}{% for s in of %}{{ s.no }}{% endfor %}{% endfor %}",
        "GR041 `s.no`",
        "no field `no`",
    ),
    ("{{ stories | sum(attribute='title') }}", "GR022 `sum(attribute='title')`", "sum"),
    ("{{ stories | sort(attribute='nosuch') | list }}", "GR041 `sort", "no field"),
    ("{{ stories | join(', ', attribute='nosuch') }}", "GR041 `join", "no field"),
    ("{{ stories | min(attribute='nosuch') }}", "GR041 `min", "no field"),
    ("{{ stories | map(attribute=brief) | list }}", "GR022 `brief`", "in quotes"),
    ("{{ texts | map('round') | list }}", "GR022 `map('round')`", "round"),
    ("{% for t in texts | map('upper') %}{{ t.x }}{% endfor %}", "GR041 `t.x`", "so no `x`"),
    (
        "{% for s in stories | sort(attribute='points') %}{{ s.no }}{% endfor %}",
        "GR041 `s.no`",
        "no field `no`",
    ),
    // Mappings.
    ("{% for k, v in sizes | items %}{{ v.x }}{% endfor %}", "GR041 `v.x`", "so no `x`"),
    ("{% for k, v in sizes | dictsort %}{{ k | round }}{% endfor %}", "GR022 `round`", "string"),
    ("{% for k, v in mails | items %}{{ v | upper }}{% endfor %}", "GR026 `v`", "absent"),
    ("{% if 'k' in mails %}{{ mails['k'] | upper }}{% endif %}", "GR026", "guard it"),
    ("{% for k, v in story | items %}{{ v | upper }}{% endfor %}", "GR026 `v`", "absent"),
    (
        "{% if 'k' in scores %}{{ scores.k + 1 }}{% endif %}",
        "GR026 `scores.k`",
        "{% if scores.k is defined %}",
    ),
    ("{% for k in scores %}{{ scores[k] + 1 }}{% endfor %}", "GR026 `scores[k]`", "absent"),
    ("{% if marks %}{{ marks[0] + 1 }}{% endif %}", "GR026 `marks[0]`", "absent"),
    ("{% if marks | length > 1 %}{{ marks[1] + 1 }}{% endif %}", "GR026 `marks[1]`", "absent"),
    ("{% if 1 in numbers %}{{ numbers[1] + 1 }}{% endif %}", "GR026 `numbers[1]`", "absent"),
    (
        "{% if count == -2 and count < numbers | length %}{{ numbers[count] + 1 }}{% endif %}",
        "GR026 `numbers[count]`",
        "absent",
    ),
    (
        "{% if 'a' in grid and 'a.b' in grid %}{{ grid.a.b + 1 }}{% endif %}",
        "GR026",
        "`grid.a.b` may be absent",
    ),
    ("{{ {'a': 1}.b }}", "GR041 `", "no field `b`"),
    ("{{ dict(a=1).b }}", "GR041 `", "no field `b`"),
    // Texts that look like placeholders.
    ("{brief}", "GR042 `{brief}`", "{{ brief }}"),
    ("{% raw %}a{% endraw %}{brief}", "GR042 `{brief}`", "{{ brief }}"),
    ("for ${{ brief }}", "GR042 `$`", "remove it"),
    ("for $ {{- brief }}", "GR042 `$`", "remove it"),
    // Files.
    ("{{ docs | first }}", "GR022 `first`", "`attach`"),
    ("{% if docs %}{{ docs[0] }}{% endif %}", "GR022 `docs[0]`", "`attach`"),
    ("{{ docs | max(attribute='name') }}", "GR022 `max", "`attach`"),
    ("{{ docs | join(', ') }}", "GR022 `join", "`attach`"),
    ("{{ docs | map('string') | join }}", "GR022 `map", "`attach`"),
    ("{{ '%s' | format(claim.doc) }}", "GR022 `format", "`attach`"),
    ("{{ 'claim: ' ~ claim.doc }}", "GR022 `claim.doc`", "`attach`"),
    // Several names.
    ("{% for a, b in texts %}{{ a }}{% endfor %}", "GR022 `a, b`", "one value"),
    ("{% for a, b, c in sizes | items %}{{ a }}{% endfor %}", "GR022 `a, b, c`", "2 items, not 3"),
    ("{% set a, b = 1, 2, 3 %}{{ a }}", "GR022 `a, b`", "3 items, not 2"),
    ("{% set a, b = texts %}{{ a }}", "GR022 `a, b`", "any number of items"),
    ("{% set a, b = story %}{{ a }}", "GR022 `a, b`", "one value"),
    (
        "{% for a, b in texts | batch(2) %}{{ a }}{% endfor %}",
        "GR022 `a, b`",
        "any number of items",
    ),
    ("{% set a, b = 1, 'x' %}{{ b | round }}", "GR022 `round`", "round"),
    ("{% set story.title = 1 %}", "GR040 `title`", "set a name"),
    // Names that are set in branches.
    ("{% if flag %}{% set x = 1 %}{% endif %}{{ x }}", "GR026 `x`", "guard it"),
    (
        "{% if flag %}{% set x = 1 %}{% endif %}{% if not flag %}{{ x + 1 }}{% endif %}",
        "GR026 `x`",
        "guard it",
    ),
    (
        "{% if note %}{% set x = 1 %}{% endif %}{% set note = 'a' %}{% if note %}{{ x + 1 }}{% endif %}",
        "GR026 `x`",
        "guard it",
    ),
    (
        "{% if flag %}{% set x = 1 %}{% set flag = false %}{% else %}{% set flag = true %}{% endif %}\
         {% if flag %}{{ x + 1 }}{% endif %}",
        "GR026 `x`",
        "guard it",
    ),
    (
        "{% for s in stories %}{% if s.note %}{% set x = 1 %}{% endif %}\
         {% for s in stories %}{% if s.note %}{{ x + 1 }}{% endif %}{% endfor %}{% endfor %}",
        "GR026 `x`",
        "guard it",
    ),
    (
        "{% for s in stories %}{% if loop.changed(s.level) %}{% set x = 1 %}{% endif %}\
         {% if loop.changed(s.level) %}{{ x + 1 }}{% endif %}{% endfor %}",
        "GR026 `x`",
        "guard it",
    ),
    (
        "{% set x = 1 %}{% if flag %}{% set x = 'a' %}{% endif %}{{ x + 1 }}",
        "GR022 `x + 1`",
        "give it one type",
    ),
    (
        "{% set x = story %}{% if flag %}{% set x = brief %}{% endif %}{{ x.title }}",
        "GR041 `x.title`",
        "so no `title`",
    ),
    (
        "{% if story.note %}{% set story = stories[0] %}{{ story.note }}{% endif %}",
        "GR026 `story`",
        "absent",
    ),
    (
        "{% if flag %}{% set note = 'none' %}{% endif %}{{ note | length }}",
        "GR026 `note`",
        "guard it",
    ),
    (
        "{% if not note %}{% if flag %}{% set note = '-' %}{% endif %}{% endif %}{{ note | length }}",
        "GR026 `note`",
        "guard it",
    ),
    ("{% set x = story.note %}{{ x }}", "GR026 `x`", "guard it"),
    ("{% for s in stories %}{% else %}{% set x = 1 %}{% endfor %}{{ x }}", "GR026 `x`", "guard it"),
    ("{% set x = none %}{{ x.title }}", "GR026 `x`", "guard it"),
    ("{% set x | nosuch %}a{% endset %}", "GR041 `nosuch`", "no filter"),
    // Choices.
    ("{{ (story if flag).title }}", "GR026 `(story if flag`", "absent"),
    ("{{ (story if flag else brief).title }}", "GR041 `", "so no `title`"),
    ("{{ ('a' if flag else 1) + 1 }}", "GR022 `", "`+`"),
    ("{{ story.note | default([] | last) }}", "GR026", "absent"),
    ("{% set x = [] | first %}{{ x | upper }}", "GR026 `x`", "absent"),
    ("{{ (stories | first).title }}", "GR026 `first`", "absent"),
    ("{{ story.note and 'x' }}", "GR026 `story.note`", "guard it"),
    ("{{ (count or brief) + 1 }}", "GR022", "`+`"),
    ("{{ sizes['k'] | default('?') + 1 }}", "GR022", "`+`"),
    ("{{ tags | length }}", "GR026 `tags`", "guard it"),
    ("{{ 'x' in tags }}", "GR026 `tags`", "guard it"),
    ("{{ 'x' not in count }}", "GR022 `", "`in` does not work"),
    // Loops that call themselves.
    (
        "{% for t in tree.children recursive %}{{ loop(t.name) }}{% endfor %}",
        "GR022 `t.name`",
        "looped over",
    ),
    (
        "{% for t in [tree] recursive %}{{ t.name }}{{ loop(stories) }}{% endfor %}",
        "GR041 `t.name`",
        "no field `name`",
    ),
    ("{% for t in tree.children %}{{ loop(t.children) }}{% endfor %}", "GR041 `loop`", "recursive"),
    (
        "{% for t in tree.children recursive %}{% for u in t.children %}{{ loop(u.children) }}{% endfor %}{% endfor %}",
        "GR041 `loop`",
        "recursive",
    ),
    (
        "{% for s in stories if s.note recursive %}{{ s.note }}{{ loop(stories) }}{% endfor %}",
        "GR026 `s.note`",
        "absent",
    ),
    ("{% for t in tree.children recursive %}{{ loop() }}{% endfor %}", "GR041 `loop`", "one list"),
    // Enums.
    ("{{ size | int }}", "GR022 `int`", "not for all values"),
    ("{{ code | int }}", "GR022 `int`", "does not work"),
    // Others.
    ("{{ range }}", "GR041 `range`", "no name"),
    ("{{ brief() }}", "GR041 `brief`", "no function"),
    ("{{ texts | map('first') | map('upper') | join }}", "GR026 `map('upper')`", "absent"),
    ("{{ numbers | batch(2) | map('min') | join }}", "GR026 `join`", "absent"),
    (
        "{% for n in stories | groupby('note') | map(attribute=0) %}{{ n | upper }}{% endfor %}",
        "GR026 `n`",
        "absent",
    ),
    (
        "{{ numbers | batch(2, 'a') | map('sum') | join }}",
        "GR022 `map('sum')`",
        "not for all values",
    ),
    (
        "{% for r in numbers | slice(2, 'a') %}{{ r | sum }}{% endfor %}",
        "GR022 `sum`",
        "not for all values",
    ),
    ("{{ [story.note, 1] | map('round') | join }}", "GR0", "`map`"),
    ("{{ texts | map('attr', 'a') | map('round') | join }}", "GR026 `map('round')`", "absent"),
    ("{{ texts | chain(count) | join }}", "GR022 `chain(count)`", "no list"),
    ("{{ loose.note | upper }}", "GR026 `loose.note`", "may be absent"),
    ("{{ count is lt('a') }}", "GR022 `'a'`", "no order"),
    ("{{ count is eq('7') }}", "GR022 `'7'`", "never equal"),
    ("{{ level is eq('lwo') }}", "GR023 `'lwo'`", "never a value"),
    ("{{ count in '7' }}", "GR022 `'7'`", "never a part"),
    ("{{ count is in(brief) }}", "GR022 `brief`", "never a part"),
    (
        "{{ texts | select('in', brief) | join }}{{ 1 < 2 and count in brief }}",
        "GR022",
        "never a part",
    ),
    ("{{ brief.upper() }}", "GR041", "`… | upper`"),
    ("{{ brief.split(',') }}", "GR041", "`… | split(…)`"),
    ("{{ brief.strip() }}", "GR041", "`… | trim`"),
    ("{{ brief.startswith('a') }}", "GR041", "is startingwith(…)"),
    ("{{ brief.unknown_one() }}", "GR041", "`… | FILTER`"),
    ("{{ sizes.items() }}", "GR041", "`… | items`"),
    ("{{ story.title() }}", "GR041", "no method"),
    ("{{ data.items() }}", "GR041", "no method"),
    ("{{ (stories | first)() }}", "GR041 `", "is no function"),
    ("{{ brief | format(1) }}", "GR022 `format(1)`", "literal"),
    ("{% for x in texts + [1] %}{{ x | upper }}{{ x + 1 }}{% endfor %}", "GR022 `x + 1`", "`+`"),
    ("{% for x in stories[1:] %}{{ x.no }}{% endfor %}", "GR041 `x.no`", "no field `no`"),
    ("{% for i in range(3) %}{{ i.x }}{% endfor %}", "GR041 `i.x`", "so no `x`"),
    ("{% autoescape 'javascript' %}{% endautoescape %}", "GR040", "escaped"),
    ("{{ brief | upper(1) }}", "GR022", "upper"),
    ("{{ brief | upper(*texts) }}", "GR040 `texts`", "one by one"),
    // Names and macros of the places around.
    (
        "{% macro m() %}{% if flag %}{% set x = 1 %}{% endif %}{{ x + 1 }}{% endmacro %}{% if flag %}{{ m() }}{% endif %}",
        "GR026 `x`",
        "guard it",
    ),
    (
        "{% if flag %}{% set x = 1 %}{% endif %}{% if flag %}{% set flag = 0 %}{% endif %}{% if flag %}{{ x + 1 }}{% endif %}",
        "GR026 `x`",
        "guard it",
    ),
    (
        "{% if flag %}{% if count %}{% set x = 1 %}{% endif %}{% if count %}{{ x }}{% endif %}{{ x + 1 }}{% endif %}",
        "GR026 `x`",
        "guard it",
    ),
    (
        "{% for t in [tree] recursive %}{% if t.name %}{% set x = 1 %}{% endif %}{{ loop(t.children) }}{{ x + 1 }}{% endfor %}",
        "GR026 `x`",
        "guard it",
    ),
    (
        "{% for s in stories %}{% macro m() %}{{ nosuch }}{% endmacro %}{% endfor %}",
        "GR041 `nosuch`",
        "no name",
    ),
    (
        "{% if flag %}{% macro m() %}{{ nosuch }}{% endmacro %}{% endif %}",
        "GR041 `nosuch`",
        "no name",
    ),
    // A value that is no empty list may be null, or no list.
    ("{% if tags != [] %}{{ (tags | list | first) | upper }}{% endif %}", "GR026", "absent"),
    ("{% if [] != tags %}{{ (tags | sort | first) | upper }}{% endif %}", "GR026", "absent"),
    (
        "{% if not (tags == []) %}{{ (tags | unique | first) | upper }}{% endif %}",
        "GR026",
        "absent",
    ),
    (
        "{% set x = texts if flag else '' %}{% if x != [] %}{{ (x | first) | upper }}{% endif %}",
        "GR026",
        "absent",
    ),
    (
        "{% if (tags | default) != [] %}{{ (tags | default | list | first) | upper }}{% endif %}",
        "GR026",
        "absent",
    ),
    // A slice of an enum is any text.
    ("{{ '12'[2:] | int }}", "GR022 `int`", "does not work on `string`"),
    ("{% set x = '12' %}{{ x[2:] | int }}", "GR022 `int`", "does not work on `string`"),
    ("{{ code[5:] | int }}", "GR022 `int`", "does not work on `string`"),
    // Sums that begin with a value.
    (
        "{% for x in stories | map(attribute='points') | batch(2) | sum(start=['a']) %}{{ x + 1 }}{% endfor %}",
        "GR022 `x + 1`",
        "`+`",
    ),
    (
        "{% for x in stories | sum(attribute='labels', start=[1]) %}{{ x + 'a' }}{% endfor %}",
        "GR022 `x + 'a'`",
        "`+`",
    ),
    ("{{ (stories | sum('labels', ['a'])) + 1 }}", "GR022", "`+`"),
    (
        "{% if stories | sum('level', '') == 'lwo' %}{% endif %}{{ (texts | sum(start='x')) + 1 }}",
        "GR022",
        "`+`",
    ),
    ("{{ numbers | sum(start='x') }}", "GR022 `sum(start='x')`", "sum"),
    // The last value of a repeated key counts.
    ("{{ {'a': 1, 'a': 'x'}.a + 1 }}", "GR022", "`+`"),
    ("{{ ('a' | int(default=0, default='x')) + 1 }}", "GR022", "`+`"),
    // The parts of a group.
    (
        "{% for g in stories | groupby('level') %}{{ g.lst }}{% endfor %}",
        "GR041 `g.lst`",
        "did you mean `list`",
    ),
    ("{% for p in sizes | items %}{{ p.list }}{% endfor %}", "GR041 `p.list`", "no field `list`"),
    (
        "{% for x in sizes | items | map(attribute='list') %}{{ x + 1 }}{% endfor %}",
        "GR041 `map(attribute='list')`",
        "no field `list`",
    ),
    // Items that may be absent.
    ("{{ marks | sum }}", "GR026 `sum`", "`… | reject(\"none\") | …`"),
    (
        "{% for k, v in scores | items | selectattr(0) %}{{ v + 1 }}{% endfor %}",
        "GR026 `v`",
        "absent",
    ),
    // Functions.
    ("{{ range(share) | list }}", "GR022 `range`", "does not work on `float`"),
    ("{{ range(1, brief) | list }}", "GR022 `range`", "does not work on `1` and `string`"),
    (
        "{% if flag %}{% macro m() %}x{% endmacro %}{% else %}{% macro m() %}y{% endmacro %}{% endif %}{{ m() }}",
        "GR041 `m`",
        "before the `if`",
    ),
    (
        "{% macro outer() %}{% macro inner() %}{{ nosuch }}{% endmacro %}{% endmacro %}",
        "GR041 `nosuch`",
        "no name",
    ),
];
