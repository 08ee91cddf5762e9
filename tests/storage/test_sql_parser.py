"""Whatever the library raises while it reads a text, the text is bad input."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from replitree.errors import BadInput
from replitree.storage.sql.predicate_parser import parse_predicate
from replitree.storage.sql.sql_parser import NotRead, parse_all, parse_one, tokens_of
from tests.storage.support import bench_table


@pytest.mark.parametrize("read", [parse_one, parse_all])
@pytest.mark.parametrize("text", ["a = 1e30.1BD", "select (", "a between"])
def test_text_that_can_not_be_read_is_bad_input(read: Callable[[str], object], text: str) -> None:
    with pytest.raises(NotRead):
        read(text)


def test_open_quote_has_no_tokens() -> None:
    with pytest.raises(NotRead):
        tokens_of("a = 'b")


def test_condition_with_an_exponent_that_has_a_point_is_refused() -> None:
    with pytest.raises(BadInput, match=r"can't read the condition 'k = 1e30\.1BD': it has a literal"):
        parse_predicate("k = 1e30.1BD", bench_table())


def test_condition_that_is_nested_too_deeply_for_the_library_to_write_is_refused() -> None:
    with pytest.raises(BadInput):
        parse_predicate("k = cast('5' as int)" + " = i32t('5' as int)" * 400, bench_table())


WORDS = st.sampled_from(
    [
        *(
            "k",
            "v",
            "s",
            "d",
            "kk",
            "`k`",
            "t.k",
            "k.x",
            "1",
            "-2.5",
            "1e3",
            "'a'",
            "date'2024-01-31'",
            "X'0aff'",
            "null",
            "true",
        ),
        *(
            "=",
            "<>",
            "<=>",
            "<",
            ">=",
            "and",
            "or",
            "not",
            "is",
            "in",
            "between",
            "like",
            "+",
            "-",
            "*",
            "/",
            "%",
            "div",
            "||",
        ),
        *(
            "(",
            ")",
            ",",
            "case",
            "when",
            "then",
            "else",
            "end",
            "cast(",
            "as int)",
            "as foo)",
            "upper(",
            "length(",
            "abs(",
        ),
        *(
            "coalesce(",
            "if(",
            "select",
            "from t",
            "exists (",
            "order by",
            "--",
            "/*",
            "'",
            '"',
            "`",
            ";",
            "::",
            "[0]",
            "?",
            ":p",
        ),
    ]
)


@given(st.lists(WORDS, max_size=9).map(" ".join))
def test_any_text_is_a_condition_or_bad_input_that_names_no_library(text: str) -> None:
    try:
        parse_predicate(text, bench_table())
    except BadInput as error:
        # The text itself is quoted in the message.
        told = str(error).replace(repr(text), "").lower()
        assert told.strip()
        assert not [word for word in ("sqlglot", "<class", "traceback", "exp.", "\x1b") if word in told]
