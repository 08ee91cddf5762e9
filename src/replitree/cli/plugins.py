"""Groups of commands that are imported when they are asked for, and commands that other distributions add.

A built-in command is a place, ``module:name``, until the command line or the help asks for it: importing and building all
of them takes longer than most of them do for their work.

A distribution names its commands (`replitree verify`, and in a checkout `replitree bench`) in an entry-point group
(``replitree.commands`` for `replitree` itself), each the Typer application of the command.  Entry points are read only for a
command that is not built in, and for the help: reading them takes longer than parsing a command line, and so does
importing what reads them.
"""

from __future__ import annotations

from collections import UserDict
from collections.abc import Mapping
from importlib import import_module
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar

import typer
from typer.core import TyperGroup
from typing_extensions import override

from replitree.errors import BadInput

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint


SUMMARY_MAX = 200
"""Characters of a command's summary in the help of its group."""


class PlacedCommands(UserDict[str, Any]):
    """Commands by name; one whose value is a place is imported when it is looked up."""

    @override
    def __getitem__(self, name: str) -> Any:
        found = super().__getitem__(name)
        if not isinstance(found, str):
            return found
        module, _, attribute = found.partition(":")
        made = getattr(import_module(module), attribute)
        home = typer.Typer(add_completion=False, rich_markup_mode=None)
        if isinstance(made, typer.Typer):
            home.add_typer(made, name=name)
        else:
            home.command(name)(made)
        command = self[name] = typer.main.get_group(home).commands[name]
        return command


class CommandGroup(TyperGroup):
    """A group whose help shows the whole summary of each command: where a line ends, click would cut it."""

    @override
    def format_commands(self, ctx: Any, formatter: Any) -> None:
        found = [(name, self.get_command(ctx, name)) for name in self.list_commands(ctx)]
        with formatter.section("Commands"):
            formatter.write_dl(
                [(name, each.get_short_help_str(SUMMARY_MAX)) for name, each in found if each and not each.hidden]
            )


class PluginGroup(CommandGroup):
    """A group of commands that distributions add commands to.

    Attributes
    ----------
    built_in
        Places of commands that are not in the application: of a function, or of a Typer application, by the command's name.
    group
        The entry-point group.
    missing
        Of commands that a known distribution adds: the message when it is not installed.
    """

    built_in: ClassVar[Mapping[str, str]] = MappingProxyType({})
    group: ClassVar[str]
    missing: ClassVar[Mapping[str, str]]

    def __init__(self, **attributes: Any) -> None:
        super().__init__(**attributes)
        self.commands: Any = PlacedCommands({**self.commands, **self.built_in})

    @override
    def list_commands(self, ctx: Any) -> list[str]:
        return [*self.commands, *sorted(_found(self.group))]

    @override
    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """Return a command, built in or added.

        Raises
        ------
        BadInput
            A known distribution adds it and is not installed; says what to install.
        """
        built_in = super().get_command(ctx, cmd_name)
        if built_in is not None:
            return built_in
        added = _found(self.group).get(cmd_name)
        if added is not None:
            command = typer.main.get_command(added.load())
            command.name = cmd_name
            return command
        if cmd_name in self.missing:
            raise BadInput(self.missing[cmd_name])
        return None


def _found(group: str) -> dict[str, EntryPoint]:
    """Return the entry points of a group by name."""
    from importlib.metadata import entry_points

    return {each.name: each for each in entry_points(group=group)}
