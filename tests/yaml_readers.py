"""Reads the YAML texts of a JSON list on stdin with PyYAML, a reader of YAML 1.1, and prints what it understands as JSON.

A scalar becomes `[kind, text]`, a list `["list", items]`, a mapping `["map", [[key, value], …]]`.
"""

import json
import sys

import yaml

KINDS = {"str", "int", "float", "bool", "null"}


def plain(node):
    if isinstance(node, yaml.SequenceNode):
        return ["list", [plain(item) for item in node.value]]
    if isinstance(node, yaml.MappingNode):
        return ["map", [[plain(key), plain(value)] for key, value in node.value]]
    kind = node.tag.rsplit(":", 1)[1]
    text = node.value
    if kind == "int" and "_" in text:
        # YAML 1.2 has no such numbers, and this format reads the same number.
        return ["str", text]
    if kind == "int":
        return ["int", str(yaml.SafeLoader("").construct_yaml_int(node))]
    if kind == "float":
        return ["float", repr(float(text))]
    if kind == "bool":
        return ["bool", str(yaml.SafeLoader("").construct_yaml_bool(node)).lower()]
    return [kind if kind in KINDS else "other: " + kind, "" if kind == "null" else text]


def read(text):
    try:
        root = yaml.compose(text, Loader=yaml.SafeLoader)
        return ["null", ""] if root is None else plain(root)
    except yaml.YAMLError as error:
        return ["refused", " ".join(str(error).split())]


json.dump([read(text) for text in json.load(sys.stdin)], sys.stdout)
