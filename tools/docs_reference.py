"""Generates the reference pages of the docs site from the code: a hook of mkdocs (see mkdocs.yml).

- ``reference/cli.md`` from the click commands
- ``reference/spec.md`` from the spec's JSON Schema
- ``reference/rules/RG101.md``, … and the table of ``reference/rules.md`` from the rule pages in ``repogen/explain``
- ``reference/errors.md`` from the error pages in ``repogen/explain``
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))  # mkdocs runs hooks without the project on the path

import click  # noqa: E402 - after the path is set
from pydantic import TypeAdapter  # noqa: E402 - after the path is set

from repogen.cli.group import main  # noqa: E402 - the same
from repogen.explain import codes, explain  # noqa: E402 - the same
from repogen.reporting.json_types import DOCUMENTS  # noqa: E402 - the same
from repogen.spec.schema import json_schema  # noqa: E402 - the same
from repogen.triton_config.rules.findings import RULES  # noqa: E402 - the same

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.files import Files
    from mkdocs.structure.pages import Page

RULE_TABLES = re.compile(r"<!-- rules (RG\d) -->")
"""In ``reference/rules.md``, the place of the table of a family."""
_CODE_OR_PIPE = re.compile(r"(`+).*?\1|\|")


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the generated pages."""
    from mkdocs.structure.files import File  # noqa: PLC0415 - tests use the rest of this module without mkdocs

    for path, text in generated_pages().items():
        files.append(File.generated(config, path, content=text))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:  # noqa: ARG001
    """Fill in the tables of rules."""
    return RULE_TABLES.sub(lambda match: rule_table(match[1]), markdown)


def generated_pages() -> dict[str, str]:
    """Return every generated page by its path below ``docs/``."""
    rules = {f"reference/rules/{code}.md": f"{explain(code).rstrip()}\n\n[All rules](../rules.md)\n" for code in RULES}
    return {
        "reference/cli.md": cli_page(),
        "reference/spec.md": spec_page(),
        "reference/errors.md": errors_page(),
        "reference/json.md": json_page(),
        **rules,
    }


def rule_table(family: str) -> str:
    """Return the table of the rules whose codes start with ``family``."""
    rows = [f"| [{code}](rules/{code}.md) | {rule} |" for code, rule in RULES.items() if code.startswith(family)]
    return "\n".join(["| Code | Rule |", "|---|---|", *rows])


def errors_page() -> str:
    """Return the page with every error code, grouped by family."""
    families: dict[str, list[str]] = {}
    for code in codes():
        if code not in RULES:
            families.setdefault(code.partition(".")[0], []).append(code)
    parts = [
        "# Error codes",
        (
            "Every error except a usage error ends with its code; `repogen explain CODE` prints its section offline. "
            "With `--json`, the code is in `error.code`, or, for an error about one model, in the `error.code` of that "
            "model. Problems that are found when the spec is loaded have the code `spec.problems` and exit code 2, "
            "even if a section below describes the same problem. Codes that start with RG are [rules](rules.md); in "
            "a build, their exit code is 5, or 2 if the problem is found when the spec is loaded. The failed checks of "
            "a smoke test have no codes."
        ),
    ]
    for family, members in families.items():
        parts.append(f"## {family}")
        for code in members:
            body = explain(code).partition("\n")[2].strip()
            parts.append(f"### `{code}` {{ #{anchor(code)} }}\n\n{body}")
    return "\n\n".join(parts) + "\n"


def anchor(code: str) -> str:
    """Return the anchor of an error code on the page of error codes."""
    return code.replace(".", "-")


def cli_page() -> str:
    """Return the page with the help of every command."""
    parts = [
        "# Command line",
        "`repogen COMMAND --help` prints the same text. With `--debug`, a command shows tracebacks and logs.",
        SHELL_COMPLETION,
        "## Exit codes",
        "| Code | Meaning |\n|---:|---|\n"
        + "\n".join(f"| {code} | {meaning} |" for code, meaning in EXIT_CODES.items())
        + "\n\nWith several failures, the exit code is the lowest of their codes; `--json` has all of them.",
    ]
    parts += _command_sections(main, "repogen")
    return "\n\n".join(parts) + "\n"


SHELL_COMPLETION = """\
## Shell completion

The shell can complete commands, options, the models of the spec or the repository, known Triton releases, servers, and
codes. Add one line to the configuration of your shell:

```bash
eval "$(_REPOGEN_COMPLETE=bash_source repogen)"           # ~/.bashrc, bash 4.4 or newer
eval "$(_REPOGEN_COMPLETE=zsh_source repogen)"            # ~/.zshrc
_REPOGEN_COMPLETE=fish_source repogen | source            # ~/.config/fish/completions/repogen.fish
```

Models come from `repogen.yaml` and `model_repository`, or from the spec and the directory on the command line."""
EXIT_CODES = {
    0: "Success",
    1: (
        "`check` reported errors, `check --diff` printed a difference, `verify` reported findings, a gate failed, the "
        "version cannot be promoted, `doctor` found something missing, or no config meets the constraints of `tune`"
    ),
    2: "The spec, a path or an option is wrong, or standard output cannot be written",
    3: "The model could not be loaded or exported",
    4: "The graph does not run in ONNX Runtime, or does not compute what the original model computes",
    5: "config.pbtxt cannot be generated as requested, or violates a rule",
    6: "A smoke test failed, a server could not be started or reached, or `bench` or `tune` could not measure a model",
    7: (
        "The version could not be published, there is no version to roll back to, a required signature is missing or "
        "not valid (`verify`: 1), the repository could not be read or written, the disk is full or no memory is left, "
        "or there are too many processes or open files"
    ),
    8: (
        "MLflow could not be reached or returned an error, its files are missing, were modified or do not fit on the "
        "disk, or another process changed its entries at the same time"
    ),
    70: "A bug in repogen",
    130: "Interrupted by Ctrl-C, SIGTERM or SIGHUP; `serve`, `view` and `sync --listen` end with 0",
}


def _command_sections(group: click.Group, name: str) -> Iterator[str]:
    context = click.Context(group, info_name=name)
    for child in group.list_commands(context):
        command = group.get_command(context, child)
        if command is None:
            raise ValueError(f"no command {child}")
        child_context = click.Context(command, info_name=child, parent=context)
        depth = "###" if context.parent else "##"
        yield f"{depth} {name} {child}\n\n{_paragraphs(command.help or '')}\n\n```text\n{_usage(child_context)}\n```"
        if isinstance(command, click.Group):
            yield from _command_sections(command, f"{name} {child}")
        elif options := _options(command):
            yield f"| Option | Description |\n|---|---|\n{options}"


def _paragraphs(text: str) -> str:
    return "\n\n".join(" ".join(part.split()) for part in text.split("\n\n"))


def _usage(context: click.Context) -> str:
    return context.get_usage().removeprefix("Usage: ")


def _options(command: click.Command) -> str:
    context = click.Context(command)
    rows = []
    for parameter in (parameter for parameter in command.params if isinstance(parameter, click.Option)):
        record = parameter.get_help_record(context)
        if record is not None:
            rows.append(f"| `{record[0]}` | {_cell(record[1])} |")
    return "\n".join(rows)


def _cell(text: str) -> str:
    """Return text for a cell of a table; Python-Markdown shows a backslash before `|` in code."""
    return _CODE_OR_PIPE.sub(lambda match: match[0] if match[1] else r"\|", " ".join(text.split()))


def spec_page() -> str:
    """Return the page with every key of a spec, from its JSON Schema; a section per mapping, named by its key path."""
    schema = json_schema()
    definitions: Mapping[str, Any] = schema.get("$defs", {})  # type: ignore[assignment]
    parts = [
        "# Spec",
        (
            "A spec is a YAML file, `repogen.yaml` by default. `repogen schema` prints its JSON Schema, which editors "
            "use for completion. Unknown keys are errors. Paths are relative to the directory of the spec. "
            "`defaults` accepts every key of a model."
        ),
        "## Top level",
        _properties(schema),
    ]
    for name, path in _sections(schema, definitions).items():
        definition = definitions[name]
        parts += [f"## {path} {{ #{name.lower()} }}", _description(definition), _properties(definition)]
    return "\n\n".join(part for part in parts if part) + "\n"


def _sections(schema: Mapping[str, Any], definitions: Mapping[str, Any]) -> dict[str, str]:
    """Return the definitions that are mappings, with the key path of their first use, from the top down."""
    sections: dict[str, str] = {}
    pending = [(schema, "")]
    while pending:
        mapping, path = pending.pop(0)
        for key, value in mapping.get("properties", {}).items():
            if key == "defaults":  # the same as `models.NAME`
                continue
            below = f"{path}.{key}".lstrip(".")
            choices = list(_definitions_in(value))
            for name, suffix in choices:
                if name not in sections and "properties" in definitions[name]:
                    kind = definitions[name]["properties"].get("kind", {}).get("const")
                    sections[name] = f"`{below}{suffix}`" + (f" of kind {kind}" if kind and len(choices) > 1 else "")
                    pending.append((definitions[name], f"{below}{suffix}"))
    return sections


def _definitions_in(value: Mapping[str, Any], suffix: str = "") -> Iterator[tuple[str, str]]:
    """Yield the definitions of a value, and the rest of the key path: ``.NAME`` in mappings, ``[]`` in lists."""
    if "$ref" in value:
        yield _definition_name(value), suffix
    for choice in (*value.get("anyOf", ()), *value.get("oneOf", ())):
        yield from _definitions_in(choice, suffix)
    if isinstance(value.get("items"), dict):
        yield from _definitions_in(value["items"], f"{suffix}[]")
    for child in _values_of(value):
        yield from _definitions_in(child, f"{suffix}.NAME")


def _definition_name(value: Mapping[str, Any]) -> str:
    # What ``defaults`` accepts is the same without required keys.
    return str(value["$ref"]).rpartition("/")[2].removeprefix("Partial")


def _values_of(value: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    children = [value.get("additionalProperties"), *value.get("patternProperties", {}).values()]
    return [child for child in children if isinstance(child, dict)]


def json_page() -> str:
    """Return the page with every JSON document, from their types."""
    parts = [
        "# JSON output",
        (
            "With `--json` (`--format json` for `check`), a command prints one JSON document on standard output and "
            "nothing else there; `check --diff` always prints a unified diff. A key is always present, unless its "
            "description states when it is missing; null means that there is no value. Within a major version, keys "
            "are only added."
        ),
    ]
    definitions: dict[str, Any] = {}
    for command, document in DOCUMENTS.items():
        schema = TypeAdapter(document).json_schema()
        definitions |= schema.pop("$defs", {})
        parts += [f"## {command}", _description(schema), _json_keys(schema)]
    for name, definition in definitions.items():
        title = name.removesuffix("Document")
        parts += [f"### {title} {{ #{name.lower()} }}", _description(definition), _json_keys(definition)]
    return "\n\n".join(part for part in parts if part) + "\n"


def _json_keys(definition: Mapping[str, Any]) -> str:
    keys = definition.get("properties", {}).items()
    rows = [f"| `{key}` | {_type(value, nullable=True)} | {_cell(_description(value))} |" for key, value in keys]
    return "\n".join(["| Key | Type | Description |", "|---|---|---|", *rows])


def _description(definition: Mapping[str, Any]) -> str:
    return " ".join(str(definition.get("description", "")).partition("\n\n")[0].split())


def _properties(definition: Mapping[str, Any]) -> str:
    required = set(definition.get("required", ()))
    rows = ["| Key | Type | Default | Description |", "|---|---|---|---|"]
    for key, value in definition.get("properties", {}).items():
        default = "required" if key in required else _default(value)
        rows.append(f"| `{key}` | {_type(value)} | {default} | {_cell(_description(value))} |")
    return "\n".join(rows)


def _default(value: Mapping[str, Any]) -> str:
    default = value.get("default")
    # Defaults of a section are in the table of the section.
    if default in (None, [], "") or isinstance(default, dict):
        return ""
    return f"`{_plain(default)}`"


def _plain(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def _type(value: Mapping[str, Any], *, nullable: bool = False) -> str:
    if "$ref" in value:
        name = _definition_name(value)
        label = re.sub(r"(?<!^)(?=[A-Z][a-z])", " ", re.sub(r"(Spec|Document)$", "", name)).lower()
        return f"[{label}]({_PAGES.get(name, f'#{name.lower()}')})"
    if "enum" in value or "const" in value:
        return " \\| ".join(f"`{_plain(choice)}`" for choice in value.get("enum", [value.get("const")]))
    for union in ("anyOf", "oneOf"):
        if union in value:
            kinds = dict.fromkeys(_type(choice) for choice in value[union] if nullable or choice.get("type") != "null")
            return " or ".join(kinds)
    if value.get("type") == "array":
        items = value.get("prefixItems", [value.get("items", {})])
        return f"list of {_type(items[0])}"
    if value.get("type") == "object" and (children := _values_of(value)):
        return f"mapping of {_type(children[0])}"
    return str(value.get("type", "any"))


_PAGES = {"PassSpec": "passes.md"}
"""Definitions that are not mappings alone, so that they have no section -> the page that describes them."""
