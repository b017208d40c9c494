"""Groups of options: classes whose attributes are options of a command, each under the heading of its group.

    class Files(OptionGroup):
        panel = "Input and output"  # the heading in --help
        output: Annotated[Path | None, typer.Option(help="The file to write.")] = None

    @app.command()
    def generate(
        model: Annotated[Path, typer.Argument(help="A model folder.")], **options: Annotated[Any, Files, Ray]
    ) -> None:
        files, ray = Files(options), Ray(options)

Every command pays for the classes of all commands when it starts, so these are no dataclasses, each of which
takes a millisecond to make.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from copy import copy
from inspect import Parameter, Signature, signature
from typing import Annotated, Any, ClassVar, get_args, get_type_hints

__all__ = ["OptionGroup", "declare_options"]


class OptionGroup:
    """Options that belong together; `vars` of one has the values by name."""

    panel: ClassVar[str] = "Options"

    def __init__(self, options: Mapping[str, Any]) -> None:
        """Take the values of this group from all options of a command."""
        vars(self).update({option.name: options[option.name] for option in _list_options(type(self))})

    def is_default(self) -> bool:
        """Whether no option was given."""
        return all(value == getattr(type(self), name, None) for name, value in vars(self).items())


def _list_options(group: type[OptionGroup]) -> list[Parameter]:
    """One parameter per option, under the heading of the group."""
    parameters = []
    for name, hint in get_type_hints(group, include_extras=True).items():
        if name != "panel":
            kind, option = get_args(hint)  # Annotated[kind, option]
            option = copy(option)
            option.rich_help_panel = group.panel
            default, shown = getattr(group, name, Parameter.empty), Annotated[kind, option]
            parameters.append(Parameter(name, Parameter.KEYWORD_ONLY, default=default, annotation=shown))
    return parameters


def declare_options(command: Callable[..., None]) -> Callable[..., None]:
    """The command, whose signature, which typer reads, now has the options of its groups for `**options`."""
    if "options" in command.__annotations__:
        parameters = dict(signature(command, eval_str=True).parameters)
        _, *groups = get_args(parameters.pop("options").annotation)  # Annotated[Any, *groups]
        own = [each.replace(kind=Parameter.KEYWORD_ONLY) for each in parameters.values()]
        of_groups = [option for group in groups for option in _list_options(group)]
        command.__signature__ = Signature([*own, *of_groups])  # type: ignore[attr-defined]
        command.__annotations__ = {}  # which typer would evaluate again
    return command
