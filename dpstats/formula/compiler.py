"""The allow-list: from Python's syntax tree to expressions.

Nothing here runs the text of a formula, so there is no namespace in which a name of the caller, a
method or a data-dependent transform could resolve.
"""

from __future__ import annotations

import ast
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from dpstats.errors import FormulaError
from dpstats.formula.nodes import (
    ARITHMETIC,
    ARITY,
    COMPARISONS,
    CONSTANTS,
    FUNCTIONS,
    LOGIC,
    NEGATIVE,
    NOT,
    POSITIVE,
    ROUGH,
    WHERE,
    ColumnKind,
    Contrast,
    Expression,
    Kind,
    Node,
    Operation,
)

__all__ = ["POWERS", "UnknownColumnError", "column_names", "compile_expression"]

#: What to write for ``^``.
POWERS = "for ^ write **: I(x ** 2) is a square, (a + b) ** 2 are terms and their interactions"

#: Deeper nesting is refused so that no recursion can run out of stack.
MAX_DEPTH = 60

_STATEFUL = frozenset({"center", "standardize", "scale", "bs", "cr", "cc", "te"})
_CODINGS = frozenset({"Treatment", "Sum"})
_OTHER_CODINGS = frozenset({"Poly", "Helmert", "Diff", "ContrastMatrix"})
_AGGREGATES = frozenset(
    {
        "mean",
        "median",
        "average",
        "max",
        "min",
        "amax",
        "amin",
        "sum",
        "prod",
        "std",
        "var",
        "ptp",
        "quantile",
        "percentile",
        "cumsum",
        "cumprod",
        "nanmean",
        "nanmedian",
        "nanmax",
        "nanmin",
        "nansum",
        "nanstd",
        "nanvar",
        "nanquantile",
        "nanpercentile",
        "argmax",
        "argmin",
        "sort",
        "argsort",
        "rank",
        "unique",
        "histogram",
        "diff",
        "gradient",
        "cov",
        "corrcoef",
        "count_nonzero",
        "any",
        "all",
        "len",
        "sorted",
        "digitize",
    }
)
#: What to write for the functions of other languages.
_ELSEWHERE = {
    "factor": "write the column itself, with its levels in the argument `levels`",
    "i": "write the column itself, with its levels in the argument `levels`",
    "poly": "write x + I(x ** 2)",
    "ln": "write np.log",
    "ifelse": "write np.where",
    "pmin": "write np.minimum",
    "pmax": "write np.maximum",
}
_CONSTRUCTS: dict[type[ast.AST], str] = {
    ast.Lambda: "a lambda",
    ast.ListComp: "a comprehension",
    ast.SetComp: "a comprehension",
    ast.DictComp: "a comprehension",
    ast.GeneratorExp: "a comprehension",
    ast.Subscript: "a subscript",
    ast.IfExp: "a conditional expression (use np.where)",
    ast.BoolOp: "`and` or `or` (use & and |, with parentheses around each comparison)",
    ast.NamedExpr: "an assignment",
    ast.JoinedStr: "a formatted string",
    ast.Starred: "a starred argument",
    ast.List: "a list",
    ast.Tuple: "a tuple",
    ast.Dict: "a dictionary",
    ast.Set: "a set",
    ast.Await: "an await",
}


class UnknownColumnError(Exception):
    """A name in an expression is not a column."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.name = name


def _refusal(text: str, rule: str) -> FormulaError:
    return FormulaError(f"`formula` holds `{text}`, which is refused: {rule}.")


def compile_expression(code: str, kinds: Mapping[str, ColumnKind]) -> Expression:
    """Turn the text of one factor into an expression.

    Parameters
    ----------
    code : str
        Python expression, as patsy writes the factor.
    kinds : mapping of str to ColumnKind
        Columns that may be read.

    Returns
    -------
    Expression
        What the factor computes.

    Raises
    ------
    FormulaError
        If anything in it is not on the allow-list.
    UnknownColumnError
        If a name is not a column.
    """
    try:
        tree = ast.parse(code, mode="eval").body
    except (SyntaxError, ValueError, MemoryError, RecursionError):
        rule = 'it is not a Python expression (an odd name is written Q("name"))'
        if code.strip() == ".":
            rule = "no sign stands for all columns; name each"
        raise _refusal(code, rule) from None
    expression = _Compiler(kinds, code).factor(tree)
    if next(expression.node.leaves(), None) is None:
        raise _refusal(code, "it reads no column")
    if expression.node.kind == "categorical" and len(expression.levels) < 2:
        raise _refusal(
            code,
            "it has no columns, for want of two declared levels; "
            "declare them with `levels`, or leave it out",
        )
    return expression


def column_names(code: str) -> frozenset[str]:
    """Return names, attributes and strings in a factor: a superset of the columns it may read."""
    try:
        tree = ast.parse(code, mode="eval")
    except (SyntaxError, ValueError, MemoryError, RecursionError):
        return frozenset()
    found: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Name):
            found.add(node.id)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            found.add(node.value)
        elif isinstance(node, ast.Attribute):
            found.add(ast.unparse(node))
    return frozenset(found)


@dataclass(slots=True)
class _Compiler:
    """Allow-list from syntax to nodes; what is not named here is refused."""

    kinds: Mapping[str, ColumnKind]
    code: str
    depth: int = field(default=0, init=False)

    def factor(self, tree: ast.expr) -> Expression:
        """Compile a whole factor, in which ``C()`` may stand outermost."""
        if isinstance(tree, ast.Call) and _bare_name(tree) == "C":
            return self.coded(tree)
        return Expression(self.node(tree))

    def node(self, tree: ast.expr) -> Node:
        """Compile an expression."""
        self.depth += 1
        if self.depth > MAX_DEPTH:
            raise FormulaError(
                f"`formula` may nest expressions at most {MAX_DEPTH} deep; a factor goes deeper."
            )
        node = self._dispatch(tree)
        self.depth -= 1
        return node

    def _dispatch(self, tree: ast.expr) -> Node:
        if isinstance(tree, ast.Name):
            return self.read(tree.id, tree.id)
        if isinstance(tree, ast.Constant):
            return self.constant(tree)
        if isinstance(tree, ast.Call):
            return self.call(tree)
        if isinstance(tree, ast.BinOp):
            return self.binary(tree)
        if isinstance(tree, ast.UnaryOp):
            return self.unary(tree)
        if isinstance(tree, ast.Compare):
            return self.comparison(tree)
        if isinstance(tree, ast.Attribute):
            return self.attribute(tree)
        what = _CONSTRUCTS.get(type(tree), f"the syntax {type(tree).__name__}")
        raise _refusal(ast.unparse(tree), f"{what} is not allowed in a formula")

    def read(self, name: str, text: str) -> Node:
        """Compile the reading of a column."""
        if name not in self.kinds:
            raise UnknownColumnError(name)
        schema = self.kinds[name]
        levels = schema.levels if schema.kind == "categorical" else ()
        return Node(schema.kind, text, levels=levels, column=name)

    def constant(self, tree: ast.Constant) -> Node:
        """Compile a number, True or False."""
        value, text = tree.value, ast.unparse(tree)
        if isinstance(value, bool):
            return Node("bool", text, value=float(value))
        if isinstance(value, (int, float)):
            try:
                number = float(value)
            except OverflowError:
                number = math.inf
            if not math.isfinite(number):
                raise _refusal(text, "numbers must be finite")
            return Node("numeric", text, value=number)
        if isinstance(value, str):
            raise _refusal(
                text, 'a string may only name a column, Q("name"), or a declared level, g == "a"'
            )
        raise _refusal(text, "constants must be real numbers")

    def attribute(self, tree: ast.Attribute) -> Node:
        """Compile ``np.pi`` and ``np.e``, refuse the rest."""
        text = ast.unparse(tree)
        if _is_numpy(tree.value) and tree.attr in CONSTANTS:
            return Node("numeric", text, value=CONSTANTS[tree.attr])
        hint = f'; for the column of that name write Q("{text}")' if text in self.kinds else ""
        if not hint and isinstance(tree.value, ast.Name) and tree.value.id in ("c", "i"):
            hint = f"; for Stata's {text} write {tree.attr}"
            hint += ", with its levels in the argument `levels`" * (tree.value.id == "i")
        raise _refusal(text, f"attributes are not allowed in a formula{hint}")

    def operation(self, operation: Operation, text: str, *args: Node) -> Node:
        """Compile an operation on numbers, or on True and False."""
        for arg in args:
            if arg.kind == "categorical":
                raise _refusal(
                    text, f"`{arg.text}` is categorical; only == and != with a level are defined"
                )
        kind: Kind = operation.result or (
            "bool" if all(arg.kind == "bool" for arg in args) else "numeric"
        )
        return Node(kind, text, operation=operation, args=args)

    def binary(self, tree: ast.BinOp) -> Node:
        """Compile arithmetic, ``&`` and ``|``."""
        text = ast.unparse(tree)
        left, right = self.node(tree.left), self.node(tree.right)
        both_bool = left.kind == right.kind == "bool"
        if type(tree.op) in LOGIC:
            if not both_bool:
                rule = "& and | join comparisons; put parentheses around each, (a > 1) & (b < 2)"
                if isinstance(tree.op, ast.BitOr) and isinstance(tree.right, ast.Name):
                    name = tree.right.id
                    rule += f". For fixed effects of {name!r} write + C({name})"
                raise _refusal(text, rule)
            return self.operation(LOGIC[type(tree.op)], text, left, right)
        if isinstance(tree.op, ast.BitXor):
            raise _refusal(text, POWERS)
        if type(tree.op) not in ARITHMETIC:
            raise _refusal(text, f"the operator {type(tree.op).__name__} is not allowed")
        if both_bool and isinstance(tree.op, (ast.Add, ast.Sub)):
            raise _refusal(
                text, "numpy does not add True and False as numbers; write 1 * (a > 1) + (b > 1)"
            )
        return self.operation(ARITHMETIC[type(tree.op)], text, left, right)

    def unary(self, tree: ast.UnaryOp) -> Node:
        """Compile ``-``, ``+`` and ``~``."""
        text = ast.unparse(tree)
        operand = self.node(tree.operand)
        if isinstance(tree.op, ast.Not):
            raise _refusal(text, "`not` is not row-wise; use ~")
        if isinstance(tree.op, ast.Invert):
            if operand.kind != "bool" or operand.value is not None:
                raise _refusal(text, "~ negates comparisons only")
            return self.operation(NOT, text, operand)
        if operand.kind == "bool":
            raise _refusal(text, "True and False have no sign; write -1 * (a > 1)")
        if operand.value is not None:
            value = -operand.value if isinstance(tree.op, ast.USub) else operand.value
            return Node("numeric", text, value=value)
        operation = NEGATIVE if isinstance(tree.op, ast.USub) else POSITIVE
        return self.operation(operation, text, operand)

    def comparison(self, tree: ast.Compare) -> Node:
        """Compile one comparison, of numbers or of a category with a declared level."""
        text = ast.unparse(tree)
        if len(tree.ops) != 1:
            raise _refusal(text, "a chain is not row-wise; write (0 < x) & (x < 1)")
        if type(tree.ops[0]) not in COMPARISONS:
            raise _refusal(text, "`in` and `is` are not row-wise; use == and |")
        operation = COMPARISONS[type(tree.ops[0])]
        sides = tree.left, tree.comparators[0]
        literal = [_is_literal(side) for side in sides]
        if literal[0] != literal[1]:
            known, constant = sides if literal[1] else sides[::-1]
            node = self.node(known)
            if node.kind == "categorical":
                return self.level_test(tree.ops[0], node, constant, text)
            nodes = [node, self.node(constant)]
            nodes = nodes if literal[1] else nodes[::-1]
        else:
            nodes = [self.node(side) for side in sides]
        result = self.operation(operation, text, *nodes)
        if next(result.leaves(), None) is None:
            # Python computes it before numpy, where ~ and & mean something else.
            raise _refusal(text, "it compares constants")
        return result

    def level_test(self, op: ast.cmpop, node: Node, constant: ast.expr, text: str) -> Node:
        """Compile ``g == "a"`` as a comparison of codes."""
        if not isinstance(op, (ast.Eq, ast.NotEq)):
            raise _refusal(text, f"the levels of `{node.text}` have no order; use == or !=")
        position = _position(node.levels, ast.literal_eval(constant))
        if position is None:
            raise _refusal(
                text, f"{ast.unparse(constant)} is not a declared level of `{node.text}`"
            )
        place = Node("numeric", text, value=float(position))
        return Node("bool", text, operation=COMPARISONS[type(op)], args=(node, place))

    def call(self, tree: ast.Call) -> Node:
        """Compile ``I()``, ``Q()`` and the allowed functions."""
        bare, text = _bare_name(tree), ast.unparse(tree)
        if bare == "Q":
            return self.quoted(tree, text)
        if bare == "I":
            if len(tree.args) != 1 or tree.keywords:
                raise _refusal(text, "I() takes one expression")
            return self.node(tree.args[0])
        name = "abs" if bare == "abs" else _numpy_name(tree)
        if name not in FUNCTIONS:
            raise _refusal(text, _why_no_call(tree))
        return self.function(name, text, self._arguments(tree, name, text))

    def _arguments(self, tree: ast.Call, name: str, text: str) -> list[ast.expr]:
        args: list[ast.expr] = list(tree.args)
        keywords = {keyword.arg: keyword.value for keyword in tree.keywords}
        if name == "clip":
            none = ast.Constant(None)
            for position, names in ((1, ("a_min", "min")), (2, ("a_max", "max"))):
                for keyword in names:
                    if keyword in keywords and len(args) <= position:
                        args += [none] * (position - len(args)) + [keywords.pop(keyword)]
            if len(args) == 2 and tree.keywords:
                args.append(none)
        count = ARITY.get(name, 1)
        if keywords or len(args) != count:
            raise _refusal(text, f"`{name}` takes {count} argument(s), by position")
        return args

    def function(self, name: str, text: str, args: list[ast.expr]) -> Node:
        """Compile an allowed function of numpy."""
        if name == "clip":
            return self.clip(text, args)
        nodes = tuple(self.node(arg) for arg in args)
        if name == "where":
            if nodes[0].kind != "bool":
                raise _refusal(text, "the condition of np.where must be a comparison")
            kind: Kind = "bool" if nodes[1].kind == nodes[2].kind == "bool" else "numeric"
            node = self.operation(WHERE, text, *nodes)
            return Node(kind, text, operation=node.operation, args=nodes)
        if name in ROUGH and all(node.kind == "bool" for node in nodes):
            raise _refusal(text, f"np.{name} needs numbers; write 1 * (a > 1)")
        return self.operation(FUNCTIONS[name], text, *nodes)

    def clip(self, text: str, args: list[ast.expr]) -> Node:
        """Compile ``np.clip``, of which one side may be None."""
        value = self.node(args[0])
        if value.kind == "bool":
            raise _refusal(text, "np.clip needs numbers; write 1 * (a > 1)")
        sides = [
            None if isinstance(arg, ast.Constant) and arg.value is None else self.node(arg)
            for arg in args[1:]
        ]
        if sides[0] is not None and sides[1] is not None:
            return self.operation(FUNCTIONS["clip"], text, value, sides[0], sides[1])
        if sides[0] is not None:
            return self.operation(FUNCTIONS["maximum"], text, value, sides[0])
        if sides[1] is not None:
            return self.operation(FUNCTIONS["minimum"], text, value, sides[1])
        raise _refusal(text, "np.clip needs a limit")

    def quoted(self, tree: ast.Call, text: str) -> Node:
        """Compile ``Q("name")``."""
        if (
            len(tree.args) == 1
            and not tree.keywords
            and isinstance(tree.args[0], ast.Constant)
            and isinstance(tree.args[0].value, str)
        ):
            return self.read(tree.args[0].value, text)
        raise _refusal(text, "Q() takes the name of one column, as a string")

    def coded(self, tree: ast.Call) -> Expression:
        """Compile ``C(g)``, ``C(g, Treatment("b"))`` and ``C(g, Sum)``."""
        text = ast.unparse(tree)
        args: list[ast.expr] = list(tree.args)
        for keyword in tree.keywords:
            if keyword.arg == "levels":
                raise _refusal(text, "declare levels with the argument `levels`, not in C()")
            if keyword.arg != "contrast" or len(args) != 1:
                raise _refusal(text, "C() takes a column and a coding")
            args.append(keyword.value)
        if not 1 <= len(args) <= 2:
            raise _refusal(text, "C() takes a column and a coding")
        node = self.node(args[0])
        if node.kind == "numeric":
            raise _refusal(
                text,
                f"the levels of `{node.text}` are not public; declare them with the argument "
                "`levels`, and the column is categorical without C()",
            )
        levels = (False, True) if node.kind == "bool" else node.levels
        contrast = self.contrast(args[1], levels) if len(args) == 2 else None
        return Expression(node, coded=True, contrast=contrast)

    def contrast(self, tree: ast.expr, levels: tuple[Any, ...]) -> Contrast | None:
        """Compile a coding with a constant level."""
        text = ast.unparse(tree)
        if isinstance(tree, ast.Name) and tree.id in _CODINGS:
            return Contrast(tree.id)
        if isinstance(tree, ast.Constant) and tree.value is None:
            return None
        scheme = _bare_name(tree) if isinstance(tree, ast.Call) else None
        if not isinstance(tree, ast.Call) or scheme not in _CODINGS:
            raise _refusal(text, 'codings are Treatment, Treatment("level"), Sum and Sum("level")')
        keyword = "reference" if scheme == "Treatment" else "omit"
        args = list(tree.args)
        args += [given.value for given in tree.keywords if given.arg == keyword]
        if len(args) != len(tree.args) + len(tree.keywords) or len(args) > 1:
            raise _refusal(text, f"{scheme}() takes one level, `{keyword}`")
        if not args:
            return Contrast(scheme)
        try:
            level = ast.literal_eval(args[0])
        except (ValueError, TypeError):
            raise _refusal(text, "the level must be a constant") from None
        if level is None:
            return Contrast(scheme)
        in_range = type(level) is int and -len(levels) <= level < len(levels)
        if _position(levels, level) is None and not in_range:
            raise _refusal(text, f"{ast.unparse(args[0])} is not a declared level")
        return Contrast(scheme, level)


def _position(levels: tuple[Any, ...], level: Any) -> int | None:
    # A level is of one kind: "1" is not 1, and an unhashable constant is none.
    return next(
        (
            place
            for place, known in enumerate(levels)
            if isinstance(known, str) == isinstance(level, str) and bool(known == level)
        ),
        None,
    )


def _is_numpy(tree: ast.expr) -> bool:
    return isinstance(tree, ast.Name) and tree.id == "np"


def _is_literal(tree: ast.expr) -> bool:
    if isinstance(tree, ast.UnaryOp) and isinstance(tree.op, ast.USub):
        return isinstance(tree.operand, ast.Constant) and type(tree.operand.value) in (int, float)
    return isinstance(tree, ast.Constant)


def _bare_name(tree: ast.Call) -> str | None:
    return tree.func.id if isinstance(tree.func, ast.Name) else None


def _numpy_name(tree: ast.Call) -> str | None:
    called = tree.func
    return called.attr if isinstance(called, ast.Attribute) and _is_numpy(called.value) else None


def _why_no_call(tree: ast.Call) -> str:
    called, bare = ast.unparse(tree.func), _bare_name(tree)
    name = bare or _numpy_name(tree)
    if bare in _STATEFUL:
        return f"the transform `{bare}` is computed from all rows of the private data"
    if name in _AGGREGATES:
        return f"`{called}` is computed from all rows of the private data"
    if isinstance(tree.func, ast.Attribute) and name is None:
        return f"`{called}` is a method or a function outside np, and could read all rows"
    if bare == "C":
        return "C() must stand outermost in its term"
    if bare in _CODINGS | _OTHER_CODINGS:
        return "a coding stands inside C(g, ...); Treatment and Sum are allowed"
    if bare in FUNCTIONS:
        return f"write np.{bare}"
    if bare in _ELSEWHERE:
        return f"in its place {_ELSEWHERE[bare]}"
    allowed = ", ".join(sorted(FUNCTIONS))
    return f"`{called}` is not an allowed function; these are, after `np.`: {allowed}"
