#!/usr/bin/env python3
"""Checks that modules include only modules of lower layers (docs/layers.toml), and that files stay small.

Prints every violation as file:line and exits with 1 if there is one.
"""
import pathlib
import re
import sys
import tomllib

ROOT = pathlib.Path(__file__).resolve().parent.parent
MAX_LINES = 600
INCLUDE = re.compile(r'^\s*#include "(([a-z_]+)/[^"]*)\.h"')
TEST_FILE = re.compile(r"_(test|fuzz|bench|probe)\.(h|cc)$")


def load_layers():
    with open(ROOT / "docs" / "layers.toml", "rb") as file:
        document = tomllib.load(file)
    layers = {}
    for number, modules in document["layers"].items():
        for module in modules:
            layers[module] = int(number)
    test_only = document["test_only"]
    return layers, set(test_only["modules"]), set(test_only["files"])


def check_file(path, layers, test_only, test_files):
    relative = path.relative_to(ROOT / "src")
    module = relative.parts[0]
    is_test = module in test_only or str(relative.with_suffix("")) in test_files or TEST_FILE.search(path.name)
    lines = path.read_text(encoding="utf-8").splitlines()
    if len(lines) > MAX_LINES:
        yield f"{path}: {len(lines)} lines; the most is {MAX_LINES}: split it"
    if module not in layers and module not in test_only:
        yield f"{path}: module '{module}' has no layer in docs/layers.toml"
        return
    for number, line in enumerate(lines, 1):
        match = INCLUDE.match(line)
        if not match:
            continue
        other = match[2]
        if match[1] in test_files and not is_test:
            yield f"{path}:{number}: '{match[1]}.h' is for tests alone"
        if other == module:
            continue
        if other in test_only:
            if not is_test:
                yield f"{path}:{number}: '{other}' is for tests alone"
        elif other not in layers:
            yield f"{path}:{number}: includes '{other}', which has no layer"
        elif module in layers and layers[other] >= layers[module]:
            yield f"{path}:{number}: {module} (layer {layers[module]}) includes {other} (layer {layers[other]})"


def main():
    layers, test_only, test_files = load_layers()
    problems = []
    for path in sorted((ROOT / "src").rglob("*")):
        if path.suffix in (".h", ".cc"):
            problems += check_file(path, layers, test_only, test_files)
    for problem in problems:
        print(problem.replace(f"{ROOT}/", ""))
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
