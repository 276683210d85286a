"""Tables of text: what a .csv or .tsv file says, however a spreadsheet has written it."""

from pathlib import Path

import pytest

from coterie.environments.published.sources import source_of
from coterie.errors import ConfigError

ROWS = [{"question": "What is 1 + 1?", "answer": "2"}, {"question": "Why, oh why?", "answer": 'he said "so"\nand left'}]


def rows(path: Path, content: str | bytes) -> list[dict[str, str]]:
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return [dict(row) for _, _, row in source_of(str(path)).rows()]


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.csv", 'question,answer\nWhat is 1 + 1?,2\n"Why, oh why?","he said ""so""\nand left"\n'),
        ("a.csv", 'question;answer\r\nWhat is 1 + 1?;2\r\nWhy, oh why?;"he said ""so""\nand left"\r\n'),
        ("a.csv", 'question\tanswer\nWhat is 1 + 1?\t2\nWhy, oh why?\t"he said ""so""\nand left"\n'),
        ("a.tsv", 'question\tanswer\nWhat is 1 + 1?\t2\nWhy, oh why?\t"he said ""so""\nand left"\n'),
        ("a.csv", '\ufeffquestion,answer\nWhat is 1 + 1?,2\n"Why, oh why?","he said ""so""\nand left"\n'),
        ("a.csv", 'sep=;\nquestion;answer\nWhat is 1 + 1?;2\nWhy, oh why?;"he said ""so""\nand left"\n'),
        ("a.csv", '\nquestion , answer,\n\nWhat is 1 + 1?, 2,\n"Why, oh why?", "he said ""so""\nand left",\n,,\n'),
    ],
    ids=["commas", "semicolons", "tabs", "tsv", "byte order mark", "sep line", "empty lines and columns"],
)
def test_a_table_says_the_same_however_it_is_written(tmp_path, name, content):
    assert rows(tmp_path / name, content) == ROWS


def test_the_separator_is_the_one_that_gives_rows_the_width_of_the_first_line(tmp_path):
    assert rows(tmp_path / "a.csv", "a, b;c\n1, 2;3\n4;5\n") == [{"a, b": "1, 2", "c": "3"}, {"a, b": "4", "c": "5"}]
    assert rows(tmp_path / "b.csv", "prompt\nhello\n") == [{"prompt": "hello"}]


def test_cells_that_are_missing_at_the_end_of_a_row_are_empty(tmp_path):
    assert rows(tmp_path / "a.csv", "a,b\n1\n") == [{"a": "1", "b": ""}]


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ("a,b\n1,2,3\n", r"line 2: 3 cells, but the first line names 2 columns separated by commas; put cells"),
        ('a,b\n1,"2\n3,4\n', "a cell that begins with a double quote does not end"),
        ('a,b\n1,"2"x\n', "line 2: .*a double quote inside a quoted cell is written twice"),
        ("a,a\n1,2\n", "two columns are called 'a'"),
        ("a,b\n1,\0\n", "line 2: it holds a null character"),
        (b"a,b\n1,\xff\n", "is not UTF-8; save it as CSV in UTF-8"),
        ("a,b".encode("utf-16"), "is UTF-16; save it as CSV in UTF-8"),
        (b"PK\x03\x04", "is a spreadsheet or another archive; save it as CSV"),
        ("a,b\n" + "x" * (1 << 21), "line 2: longer than 1 MiB"),
        ('a,b\n1,"' + "xxxxxxxxx\n" * 20_000, "does not end"),
        (",".join(map(str, range(1001))), "1001 columns, and 1000 are the most"),
    ],
)
def test_what_is_no_table_is_told_in_a_line(tmp_path, content, says):
    with pytest.raises(ConfigError, match=says) as found:
        rows(tmp_path / "a.csv", content)
    assert "\n" not in str(found.value)
    assert str(tmp_path / "a.csv") in str(found.value)


def test_a_table_that_is_not_there_is_named(tmp_path):
    with pytest.raises(ConfigError, match=r"gone.csv cannot be read: No such file"):
        list(source_of(str(tmp_path / "gone.csv")).rows())
