"""Reads the YAML texts of a JSON list on stdin, and prints what a reader understands as JSON.

The reader is PyYAML, for YAML 1.1. If a folder with ruamel.yaml is given, it is that one, for YAML 1.2.
A scalar becomes `[kind, text]`, a list `["list", items]`, a mapping `["map", [[key, value], …]]`.
"""

import json
import sys

if len(sys.argv) > 1:
    sys.path.insert(0, sys.argv[1])
    from ruamel.yaml import YAML, YAMLError
    from ruamel.yaml.nodes import MappingNode, SequenceNode

    def compose(text):
        return YAML(typ="safe", pure=True).compose(text)

else:
    import yaml
    from yaml import MappingNode, SequenceNode, YAMLError

    def compose(text):
        return yaml.compose(text, Loader=yaml.SafeLoader)


KINDS = {"str", "int", "float", "bool", "null"}


def number(text):
    """Reads a whole number of either version: `0o17` of 1.2, `017` and `1:30` of 1.1."""
    if text.lstrip("+-").startswith(("0b", "0o", "0x")):
        return int(text, 0)
    digits = text.lstrip("+-")
    sign = -1 if text.startswith("-") else 1
    if ":" in digits:
        value = 0
        for part in digits.split(":"):
            value = value * 60 + int(part)
        return sign * value
    is_octal = len(sys.argv) == 1 and digits.startswith("0") and digits != "0"
    return sign * int(digits, 8 if is_octal else 10)


def plain(node):
    if isinstance(node, SequenceNode):
        return ["list", [plain(item) for item in node.value]]
    if isinstance(node, MappingNode):
        return ["map", [[plain(key), plain(value)] for key, value in node.value]]
    kind = str(node.tag).rsplit(":", 1)[1]
    text = node.value
    if kind == "int" and "_" in text:
        # YAML 1.2 has no such numbers, and this format reads the same number.
        return ["str", text]
    if kind == "int":
        return ["int", str(number(text))]
    if kind == "float":
        return ["float", repr(float(text))]
    if kind == "bool":
        return ["bool", str(text.lower() in {"true", "yes", "on"}).lower()]
    return [kind if kind in KINDS else "other: " + kind, "" if kind == "null" else text]


def read(text):
    try:
        root = compose(text)
        return ["null", ""] if root is None else plain(root)
    except YAMLError as error:
        return ["refused", " ".join(str(error).split())]


json.dump([read(text) for text in json.load(sys.stdin)], sys.stdout)
