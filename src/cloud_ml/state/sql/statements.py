"""Statements that are run all day, without what SQLAlchemy does for each execution.

SQLAlchemy puts them together and knows the types of their columns. On SQLite, where a statement
takes microseconds, its way to the driver takes several times as long as the driver does; so there
the text and the conversions are worked out once, and the driver is asked directly. Elsewhere the
way is SQLAlchemy's: waiting for the other side costs more.
"""

from __future__ import annotations

import json
import sqlite3
from collections import namedtuple
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, NamedTuple, Protocol, TypeAlias

from sqlalchemy import (
    ColumnElement,
    CompoundSelect,
    Connection,
    Delete,
    Dialect,
    Insert,
    LargeBinary,
    Select,
    String,
    UnaryExpression,
    Update,
    bindparam,
    func,
    select,
)
from sqlalchemy.sql.operators import custom_op
from sqlalchemy.types import TypeEngine

from cloud_ml.state.sql.connections import DRIVER, execute_directly, raise_error

Row: TypeAlias = Any
"""A row with its columns as attributes, and in their order."""

_Values = Mapping[str, Any]
_Convert = Callable[[Any], Any] | None
_make = tuple.__new__
"""Makes a named tuple of values without a call of Python."""


class Statement:
    """One statement. Its parameters have the same names at each execution.

    Args:
        statement: Without lists of unknown length among its parameters.
    """

    def __init__(
        self, statement: Select[Any] | CompoundSelect[Any] | Insert | Update | Delete
    ) -> None:
        self.statement: Any = statement
        self._direct: _CompiledStatement | None = None

    def rows(self, connection: Connection, values: _Values) -> Sequence[Row]:
        """All rows."""
        if connection.dialect.name != "sqlite":
            return connection.execute(self.statement, values).all()
        if (direct := self._direct) is None:
            direct = self._direct = _compile(self.statement, connection.dialect, list(values))
        # All in one function, without comprehensions: a job takes some fifty statements, and each
        # call of Python costs as much as a step of SQLite.
        arguments = []
        for name, convert in direct.parameters:
            if name is None:
                arguments.append(convert)
            else:
                arguments.append(values[name] if convert is None else convert(values[name]))
        driver: Any = getattr(connection, DRIVER, None) or connection.connection.driver_connection
        try:
            all_found = driver.execute(direct.text, arguments).fetchall()
        except sqlite3.Error as error:
            raise_error(connection, error)
        rows, row, converts = [], direct.row, direct.converts
        for found in all_found:
            if converts:
                given = list(found)
                for number, convert in converts:
                    if given[number] is not None:
                        given[number] = convert(given[number])
                rows.append(_make(row, given))
            else:
                rows.append(_make(row, found))
        return rows

    def one_or_none(self, connection: Connection, values: _Values) -> Row | None:
        """The row that there is at most."""
        found = self.rows(connection, values)
        return found[0] if found else None

    def one(self, connection: Connection, values: _Values) -> Row:
        """The row that there must be."""
        (row,) = self.rows(connection, values)
        return row

    def run(self, connection: Connection, values: _Values) -> None:
        """Execute it for what it does."""
        if connection.dialect.name == "sqlite":
            self.rows(connection, values)
        else:
            connection.execute(self.statement, values)

    def run_many(self, connection: Connection, many: Sequence[_Values]) -> None:
        """The same for each of ``many``, which are not none."""
        if connection.dialect.name == "sqlite":
            for values in many:
                self.rows(connection, values)
        else:
            connection.execute(self.statement, many)


class Among(Protocol):
    """Makes a condition of a list statement."""

    def __call__(
        self, column: ColumnElement[Any], name: str, *, indexed: bool = True
    ) -> ColumnElement[bool]:
        """The column has one of the values of this parameter. Without ``indexed``, rows are found by
        other conditions and then looked at.
        """
        ...


class ListStatement:
    """One whose parameters are lists of texts or numbers, of any length. Its columns need no
    conversion.

    Args:
        build: Makes the statement.
    """

    def __init__(self, build: Callable[[Among], Select[Any]]) -> None:
        self._build = build
        self._statement = build(_among)
        self._direct: _CompiledStatement | None = None

    def tuples(
        self, connection: Connection, lists: Mapping[str, Collection[str | int]]
    ) -> Sequence[Row]:
        """All rows, without the names of their columns: there may be a thousand."""
        if connection.dialect.name != "sqlite":
            values = {name: list(those) for name, those in lists.items()}
            return connection.execute(self._statement, values).all()
        if (direct := self._direct) is None:
            statement = self._build(_among_json)
            direct = self._direct = _compile(statement, connection.dialect, list(lists))
        # The list is one value, so the text of the statement is the same for each length of it.
        given = [json.dumps(list(lists[str(name)])) for name, _ in direct.parameters]
        return execute_directly(connection, direct.text, given)


def _among(column: ColumnElement[Any], name: str, *, indexed: bool = True) -> ColumnElement[bool]:
    del indexed  # PostgreSQL knows by its statistics
    return column.in_(bindparam(name, expanding=True))


def _among_json(
    column: ColumnElement[Any], name: str, *, indexed: bool = True
) -> ColumnElement[bool]:
    those = func.json_each(bindparam(name, type_=String())).table_valued("value")
    if not indexed:  # https://sqlite.org/optoverview.html, "disqualifying WHERE clause terms"
        column = UnaryExpression(column, operator=custom_op("+"))
    return column.in_(select(those.c.value))


class _CompiledStatement(NamedTuple):
    """The text of a statement for SQLite's driver, and the ways of its values there and back."""

    text: str
    parameters: Sequence[tuple[str | None, Any]]
    """In their order: the name of a value and what converts it; or no name, and the value."""
    row: Any
    converts: Sequence[tuple[int, Callable[[Any], Any]]]
    """Columns that are converted, and by what."""


def _compile(statement: Any, dialect: Dialect, names: Sequence[str]) -> _CompiledStatement:
    compiled = statement.compile(dialect=dialect, column_keys=names)
    given = set(names)
    parameters: list[tuple[str | None, Any]] = []
    for name in compiled.positiontup or ():
        convert: _Convert = compiled.binds[name].type.dialect_impl(dialect).bind_processor(dialect)
        if name in given:
            parameters.append((name, convert))
        else:  # it stands in the statement itself
            constant = compiled.params[name]
            parameters.append((None, convert(constant) if convert else constant))
    columns = list(statement.exported_columns)
    row: Any = namedtuple("Row", [column.name for column in columns], rename=True)  # type: ignore[misc]  # noqa: PYI024
    processors = [_find_processor(column.type, dialect) for column in columns]
    converts = [
        (number, convert) for number, convert in enumerate(processors) if convert is not None
    ]
    return _CompiledStatement(compiled.string, parameters, row, converts)


def _find_processor(kind: TypeEngine[Any], dialect: Dialect) -> _Convert:
    """What converts a value of SQLite's driver to one of this type; ``None`` if it is one already."""
    if isinstance(kind, LargeBinary):  # SQLAlchemy would make bytes of bytes
        return None
    return kind.dialect_impl(dialect).result_processor(dialect, None)
