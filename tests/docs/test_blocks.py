"""Reading a page."""

import pytest

from tests.docs.blocks import Block, Command, blocks_of, commands, examples, indented_code

PAGE = """\
Words.

```python
# app.py
x = 1
```

<!--
```console
$ hidden
```
-->

```python
# add to app.py
y = 2
```

````text
a drawing
````
"""


def test_blocks_come_in_order_with_their_lines_and_files_hidden_ones_too():
    assert list(blocks_of(PAGE)) == [
        Block(3, "python", "x = 1\n", "app.py"),
        Block(9, "console", "$ hidden\n"),
        Block(14, "python", "y = 2\n", "app.py", added=True),
        Block(19, "text", "a drawing\n"),
    ]


def test_commands_have_what_is_shown_after_them():
    text = "$ one\n$ two \\\n    more\nfirst\n\nsecond\n\n$ three   # why\nthird\n"
    assert commands(Block(1, "console", text)) == [
        Command(2, "one", None),
        Command(3, "two \\\n    more", "first\n\nsecond"),
        Command(9, "three   # why", "third"),
    ]


def test_output_without_a_command_is_a_mistake_of_the_page():
    with pytest.raises(ValueError, match="line 6: output without a command"):
        commands(Block(5, "console", "what?\n"))


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        ("Words:\n\n    $ make\n", [3]),
        ("Words:\n\n```console\n$ make\n\n    output\n```\n", []),
        ("* a list\n    that goes on\n", []),
    ],
)
def test_indented_code_is_found(text, lines):
    assert indented_code(text) == lines


def test_examples_of_a_session():
    assert examples(">>> x = 1\n>>> if x:\n...     print(x)\n1\n>>> x\n1\n") == [
        ("x = 1", ""),
        ("if x:\n    print(x)", "1"),
        ("x", "1"),
    ]
