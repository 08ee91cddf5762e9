"""Commands that other distributions add: `replitree verify`, and in a checkout `replitree bench`.

A distribution names its commands in an entry-point group (``replitree.commands`` for `replitree` itself), each the Typer
application of the command.  Entry points are read only for a command that is not built in, and for the help: reading them takes
longer than parsing a command line, and so does importing what reads them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar

import typer
from typer.core import TyperGroup
from typing_extensions import override

from replitree.errors import BadInput

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint


class PluginGroup(TyperGroup):
    """A group of commands that distributions add commands to.

    Attributes
    ----------
    group
        The entry-point group.
    missing
        Of commands that a known distribution adds: the message when it is not installed.
    """

    group: ClassVar[str]
    missing: ClassVar[Mapping[str, str]]

    @override
    def list_commands(self, ctx: Any) -> list[str]:
        return [*super().list_commands(ctx), *sorted(_found(self.group))]

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
