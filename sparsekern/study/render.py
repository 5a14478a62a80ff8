"""Results that print as tables and show themselves in a notebook."""

from io import StringIO

from rich.console import Console

PAGE = '<pre style="font-family: monospace; line-height: 1.3">{code}</pre>'


class Shown:
    """What has `tables()`, rich renderables: text when printed, coloured in a terminal and in a notebook."""

    def __rich_console__(self, console, options):
        yield from self.tables()

    def __str__(self):
        console = Console(file=StringIO(), width=110, color_system=None)
        console.print(self)
        return console.file.getvalue()

    def _repr_html_(self):
        console = Console(file=StringIO(), width=110, record=True, force_jupyter=False)
        console.print(self)
        return console.export_html(inline_styles=True, code_format=PAGE)
