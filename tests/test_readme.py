"""Every Python example of the README and of the documentation runs."""

import re

import pytest


def test_the_examples_of_the_readme_run(request, capsys):
    text = (request.config.rootpath / "README.md").read_text()
    examples = re.findall(r"```python\n(.*?)```", text, flags=re.DOTALL)
    assert len(examples) >= 4
    names = {}
    for example in examples:
        exec(compile(example, "README.md", "exec"), names)  # one session, top to bottom
    printed = capsys.readouterr().out
    promised = re.findall(r"# prints (.*)", text)
    assert promised
    for line in promised:
        assert line.strip() in printed, line


def test_the_examples_of_the_documentation_run(request):
    found = 0
    for page in sorted((request.config.rootpath / "docs").rglob("*.md")):
        names = {}
        for example in re.findall(r"```python\n(.*?)```", page.read_text(), flags=re.DOTALL):
            exec(compile(example, page.name, "exec"), names)
            found += 1
    assert found


@pytest.mark.parametrize("command", ["make demo", "make test", "make lint"])
def test_the_commands_of_the_readme_exist(command, request):
    makefile = (request.config.rootpath / "Makefile").read_text()
    assert command in (request.config.rootpath / "README.md").read_text()
    assert re.search(rf"^{command.split()[1]}:", makefile, flags=re.MULTILINE)
