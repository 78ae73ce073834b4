"""The command line: all commands, by what they are for."""

import click

from spectool import __version__
from spectool.commands.shared.options import LazyGroup

_PURPOSES = {
    "Use": ["setup", "generate", "chat", "serve", "demo"],
    "Dictionaries": ["build-dict", "pack"],
    "Draft models": ["align", "prune-draft"],
    "Measure": ["doctor", "predict", "bench"],
    "Any artifact": ["inspect"],
    "Experiments": ["lab"],
}


@click.group(
    cls=LazyGroup,
    purposes=_PURPOSES,
    modules={"lab": "spectool.lab.command"},
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100, "show_default": True},
)
@click.version_option(__version__, prog_name="spectool")
@click.option("--debug", is_flag=True, help="Show the traceback of an error.")
def main(debug: bool) -> None:
    """Run mlx-lm models faster in languages whose words take many tokens, by speculative decoding.

    \b
    Once:        spectool setup ./model --language pl --corpus texts/
    Every time:  spectool generate --model ./model --prompt "…"

    The output stays the model's own, in fewer passes.
    """


if __name__ == "__main__":
    main()
