#!/usr/bin/env python3
"""Writes tests/unit/differentiability.def: what ONNX's schemas say about the operands of each operator that is imported.

usage: tests/unit/make_differentiability.py >tests/unit/differentiability.def     (needs onnx 1.22 or later)

SCHEMA(operator, since, "operand operand ..") is the newest version of an operator. The mark of an operand is its
differentiability, + or -; ? if the schema declares none; # if no type of it is a float. `...` means any number of operands.
"""
import re
from pathlib import Path

from onnx import defs

ROOT = Path(__file__).resolve().parents[2]
FLOATS = {f"tensor({name})" for name in ("float16", "bfloat16", "float", "double")}
MARKS = {
    defs.OpSchema.DifferentiationCategory.Unknown: "?",
    defs.OpSchema.DifferentiationCategory.Differentiable: "+",
    defs.OpSchema.DifferentiationCategory.NonDifferentiable: "-",
}


def may_be_float(operand):
    """The types of a sequence or optional contain that of their items."""
    return any(name in text for text in operand.types for name in FLOATS)


def describe(operand):
    mark = MARKS[operand.differentiation_category] if may_be_float(operand) else "#"
    return mark + operand.name + ("..." if operand.option == defs.OpSchema.FormalParameterOption.Variadic else "")


newest = {}
for schema in defs.get_all_schemas_with_history():
    if not schema.domain and schema.since_version >= getattr(newest.get(schema.name), "since_version", 0):
        newest[schema.name] = schema

rows = (ROOT / "frontend/onnx.def").read_text()
print("/* differentiability.def - the operands of ONNX's schemas, written by make_differentiability.py. clang-format off */")
line = ""
for name in sorted(set(re.findall(r"^OPERATOR\((\w+)", rows, re.M))):
    schema = newest[name]
    row = f'SCHEMA({name}, {schema.since_version}, "{" ".join(map(describe, schema.inputs))}")'
    if line and len(line) + len(row) >= 132:
        print(line)
        line = ""
    line += " " * bool(line) + row
print(line)
