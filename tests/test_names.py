"""Names of classes: one that stands in two modules sends a reader to the wrong one."""

import ast
from collections import defaultdict

from tests.test_docs import ROOT

TWICE = {"Team"}
"""Names that stand in two modules: an agent is given a team whose seats it asks, and the kernel has its roles."""


def test_a_class_name_stands_in_one_module():
    places: dict[str, set[str]] = defaultdict(set)
    for path in sorted((ROOT / "src").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ClassDef):
                places[node.name].add(str(path.relative_to(ROOT)))
    assert {name: found for name, found in places.items() if len(found) > 1 and name not in TWICE} == {}
