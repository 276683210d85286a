"""A calculator that evaluates numeric expressions exactly.

    calculate("(3 + 4) * 2 / 4")    # "3.5"

A model writes the expressions. So a special parser reads them, and their length, depth and result are bounded.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable
from fractions import Fraction
from functools import lru_cache
from operator import add, floordiv, mod, mul, sub, truediv

LONGEST = 400
"""Maximum characters of an expression."""
MOST_BITS = 256
"""Maximum bits of a numerator or a denominator, in between too."""
MOST_DIGITS = 80
"""Maximum digits of a number, and maximum of its power of ten."""
SIGNS = re.compile(r"[0-9eE.+\-*/%()\s^×]*")  # noqa: RUF001
OPERATIONS: dict[type[ast.operator], Callable[[Fraction, Fraction], Fraction | int]] = {
    ast.Add: add, ast.Sub: sub, ast.Mult: mul, ast.Div: truediv, ast.FloorDiv: floordiv, ast.Mod: mod,
}  # fmt: skip


def calculate(expression: str) -> str:
    """What an expression of numbers comes to, exactly: + - * / // % ** and brackets."""
    return written(value(expression))


@lru_cache(maxsize=16_384)
def value(expression: str) -> Fraction:
    """Returns the value of an expression of numbers, as a fraction.

    Raises:
        ValueError: it is no such expression, it divides by zero, or its numbers are too large; says which.
    """
    text = expression.strip()
    if len(text) > LONGEST:
        raise ValueError(f"an expression has at most {LONGEST} characters")
    if not SIGNS.fullmatch(text):
        raise ValueError("that is no expression of numbers")
    text = text.replace("^", "**").replace("×", "*")  # noqa: RUF001
    try:
        return _bounded(_value(text, ast.parse(text, mode="eval").body))
    except ZeroDivisionError:
        raise ValueError("division by zero") from None
    except (SyntaxError, MemoryError, RecursionError, TypeError):
        raise ValueError("that is no expression of numbers") from None


def _value(text: str, node: ast.expr) -> Fraction:
    if isinstance(node, ast.Constant):  # by its digits: a float has seventeen of them
        digits, _, power = (ast.get_source_segment(text, node) or "").lower().partition("e")
        if len(digits) > MOST_DIGITS or abs(int(power or 0)) > MOST_DIGITS:
            raise ValueError("the numbers are too large")
        return Fraction(digits) * Fraction(10) ** int(power or 0)
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.UAdd | ast.USub):
        return _value(text, node.operand) * (-1 if isinstance(node.op, ast.USub) else 1)
    if isinstance(node, ast.BinOp):
        left, right = _bounded(_value(text, node.left)), _bounded(_value(text, node.right))
        if isinstance(node.op, ast.Pow):
            return _power(left, right)
        if operation := OPERATIONS.get(type(node.op)):
            return Fraction(operation(left, right))
    raise TypeError


def _power(base: Fraction, exponent: Fraction) -> Fraction:
    size = max(base.numerator.bit_length(), base.denominator.bit_length())
    if exponent.denominator != 1:
        raise ValueError("an exponent is a whole number")
    if abs(exponent) * size > MOST_BITS:
        raise ValueError("the numbers are too large")
    return Fraction(base**exponent.numerator)


def _bounded(number: Fraction) -> Fraction:
    if max(number.numerator.bit_length(), number.denominator.bit_length()) > MOST_BITS:
        raise ValueError("the numbers are too large")
    return number


def written(number: Fraction) -> str:
    """Returns a number as people write it: whole, as a decimal if that is exact and short, else as a fraction."""
    if number.denominator == 1:
        return str(number.numerator)
    scaled = number * 10**6
    return f"{float(number):.6f}".rstrip("0") if scaled.denominator == 1 and abs(number) < 10**9 else str(number)
