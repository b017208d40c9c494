"""Groups of options: a command takes a class as one parameter, and its attributes are options.

    class Files(OptionGroup):
        panel = "Input and output"  # the heading in --help
        output: Annotated[Path | None, typer.Option(help="The file to write.")] = None

    @app.command()
    def generate(model: Annotated[Path, typer.Argument(help="A model folder.")], *, files: Files) -> None: ...

Every command pays for the classes of all commands when it starts, so these are no dataclasses, each of which
takes a millisecond to make.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from copy import copy
from functools import wraps
from inspect import Parameter, Signature, signature
from typing import Annotated, Any, ClassVar, get_args, get_type_hints

__all__ = ["OptionGroup", "spread_groups"]


class OptionGroup:
    """Options that belong together; `vars` of one has the values by name."""

    panel: ClassVar[str] = "Options"

    def __init__(self, **values: Any) -> None:
        vars(self).update(values)

    def is_default(self) -> bool:
        """Whether no option was given."""
        return all(value == getattr(type(self), name, None) for name, value in vars(self).items())


def spread_groups(command: Callable[..., None]) -> Callable[..., None]:
    """The command as typer reads it: with the options of its groups as parameters."""
    groups = _find_groups(command)
    if not groups:
        return command
    options = {name: list(_list_options(group)) for name, group in groups.items()}
    parameters: list[Parameter] = []
    for name, parameter in signature(command, eval_str=True).parameters.items():
        parameters += options.get(name, [parameter.replace(kind=Parameter.KEYWORD_ONLY)])

    @wraps(command)
    def call(**values: Any) -> None:
        given = {
            name: group(**{option.name: values.pop(option.name) for option in options[name]})
            for name, group in groups.items()
        }
        command(**values, **given)

    call.__signature__ = Signature(parameters)  # type: ignore[attr-defined]
    call.__annotations__ = {}  # those of the command, which typer would evaluate again
    return call


def _find_groups(command: Any) -> dict[str, type[OptionGroup]]:
    """The parameters that are groups, by the names of their types: to evaluate all types takes time."""
    types = {name: command.__globals__.get(hint) for name, hint in command.__annotations__.items()}
    return {
        name: each for name, each in types.items() if isinstance(each, type) and issubclass(each, OptionGroup)
    }


def _list_options(group: type[OptionGroup]) -> Iterator[Parameter]:
    """One parameter per option, under the heading of the group."""
    for name, hint in get_type_hints(group, include_extras=True).items():
        if name != "panel":
            kind, option = get_args(hint)  # Annotated[kind, option]
            option = copy(option)
            option.rich_help_panel = group.panel
            default = getattr(group, name, Parameter.empty)
            yield Parameter(name, Parameter.KEYWORD_ONLY, default=default, annotation=Annotated[kind, option])
