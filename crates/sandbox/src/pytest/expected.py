"""Finds the tests of a file without running it, and compiles the file so that each test reports its own return.

The body of each test function is put into a `with` statement over a witness. The witness is a constant of the compiled
function and no name, so no module, fixture or patch can replace it. It is entered and left by the test's own frame only.
"""

import ast
import inspect

PLACEHOLDER = "\0graphrun witness "


def is_test_case(base, local):
    """Whether a base class makes a class one of `unittest`, as far as its name shows."""
    name = base.attr if isinstance(base, ast.Attribute) else getattr(base, "id", "")
    return name.endswith("TestCase") or name in local


def is_fixture(function):
    """Whether a function is declared a fixture."""
    for decorator in function.decorator_list:
        target = decorator.func if isinstance(decorator, ast.Call) else decorator
        name = target.attr if isinstance(target, ast.Attribute) else getattr(target, "id", "")
        if name.endswith("fixture"):
            return True
    return False


def is_switched_off(statement):
    """Whether a statement is `__test__ = False`."""
    return (
        isinstance(statement, ast.Assign)
        and any(getattr(target, "id", "") == "__test__" for target in statement.targets)
        and isinstance(statement.value, ast.Constant)
        and not statement.value.value
    )


FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
HIDDEN = " (hidden by a later test of this name)"


def branches_of(statement):
    """The blocks of a statement that exclude each other. Blocks that run one after the other are one of them."""
    if isinstance(statement, ast.If):
        return [statement.body, statement.orelse]
    others = [*getattr(statement, "handlers", []), *getattr(statement, "cases", [])]
    blocks = [getattr(statement, name, []) for name in ("body", "orelse", "finalbody")]
    return [sum(blocks, []), *(other.body for other in others)]


class Declared:
    """The tests that a file declares: their names, and whether each is certain. Those in a block, as of `if`, are not."""

    def __init__(self, body):
        self.names = {}
        self.local = set()
        self.read(body, "", True, {})

    def read(self, body, prefix, is_certain, before):
        """Reads a block. `before` has the tests whose declarations may have run before it, and gets those of the block."""
        for statement in body:
            if isinstance(statement, FUNCTIONS):
                if statement.name.startswith("test") and not is_fixture(statement):
                    self.add(prefix + statement.name, is_certain, before)
            elif isinstance(statement, ast.ClassDef):
                self.read_class(statement, prefix, is_certain, before)
            else:
                branches = branches_of(statement)
                declared = [dict(before) for _ in branches]
                for branch, own in zip(branches, declared):
                    self.read(branch, prefix, False, own)
                for own in declared:
                    before.update(own)

    def read_class(self, statement, prefix, is_certain, before):
        is_unittest = any(is_test_case(base, self.local) for base in statement.bases)
        if is_unittest:
            self.local.add(statement.name)
        makes_itself = any(
            isinstance(it, FUNCTIONS) and it.name in ("__init__", "__new__") for it in statement.body
        )
        is_collected = is_unittest or (statement.name.startswith("Test") and not makes_itself)
        if is_collected and not any(map(is_switched_off, statement.body)):
            self.read(statement.body, f"{prefix}{statement.name}::", is_certain, before)

    def add(self, name, is_certain, before):
        # The first of two tests of one name never runs after the second, so it is a name that no result has.
        if name in before:
            self.note(name + HIDDEN, is_certain and before[name])
        self.note(name, is_certain)
        before[name] = self.names[name]

    def note(self, name, is_certain):
        self.names[name] = is_certain or self.names.get(name, False)


class Witnessed(ast.NodeVisitor):
    """Puts each test's body into a `with` over a placeholder for its witness."""

    def __init__(self):
        self.prefix = ""
        self.names = []

    def visit_ClassDef(self, node):
        outer = self.prefix
        self.prefix = f"{outer}{node.name}::"
        self.generic_visit(node)
        self.prefix = outer

    def visit_FunctionDef(self, node):
        if node.name.startswith("test"):
            self.wrap(node)

    def visit_AsyncFunctionDef(self, node):
        self.visit_FunctionDef(node)

    def wrap(self, node):
        # Names in expressions are left alone: a lambda or a function inside a test is a part of its body.
        marker = ast.Constant(f"{PLACEHOLDER}{len(self.names)}")
        self.names.append(self.prefix + node.name)
        has_doc = ast.get_docstring(node, clean=False) is not None
        doc, rest = (node.body[:1], node.body[1:]) if has_doc else ([], node.body)
        first = rest[0] if rest else node
        rest = rest or [ast.copy_location(ast.Pass(), node)]
        item = ast.withitem(context_expr=ast.copy_location(marker, first), optional_vars=None)
        node.body = [*doc, ast.copy_location(ast.With(items=[item], body=rest), first)]


def compile_witnessed(source, path, rewrite, make_witness):
    """Compiles a test file. `make_witness` gets a name and the set that its code object will be in."""
    tree = ast.parse(source, path)
    expected = Declared(tree.body).names
    rewrite(tree, source, path)
    visitor = Witnessed()
    visitor.visit(tree)
    codes = [set() for _ in visitor.names]
    witnesses = [make_witness(name, own) for name, own in zip(visitor.names, codes)]
    code = compile(tree, path, "exec", dont_inherit=True)
    return expected, with_witnesses(code, witnesses, codes)


def with_witnesses(code, witnesses, codes):
    """Puts the witnesses in the place of their placeholders, in a code object and those inside it."""
    own, constants = None, []
    for constant in code.co_consts:
        if inspect.iscode(constant):
            constant = with_witnesses(constant, witnesses, codes)
        elif isinstance(constant, str) and constant.startswith(PLACEHOLDER):
            own = int(constant[len(PLACEHOLDER) :])
            constant = witnesses[own]
        constants.append(constant)
    changed = code.replace(co_consts=tuple(constants))
    if own is not None:
        codes[own].add(changed)
    return changed
