"""Variants as text: what records and the command line call them."""

from dataclasses import fields

from sparsekern.toggles import VariantError
from sparsekern.variants import KINDS, check_op

PLAIN = "plain"  # the variant with every toggle at its default


def parse_variant(op, text):
    """The variant of `op` that `text` names: "plain", or toggle=value,toggle=value with the rest at defaults.

    Raises VariantError for text of another form, a toggle named twice, and what the variant itself refuses,
    TypeError for another `op`.
    """
    check_op(op)
    kind, toggles = KINDS[op], {}
    if text.strip() == PLAIN:
        return kind()
    for word in text.split(","):
        name, equals, value = (part.strip() for part in word.partition("="))
        if not equals or name in toggles:
            raise VariantError(
                f"variant is {text!r}; it must be {PLAIN}, or toggle=value,... with each toggle once"
            )
        choices = next((f.metadata["choices"] for f in fields(kind) if f.name == name), ())
        toggles[name] = next((choice for choice in choices if str(choice).lower() == value.lower()), value)
    return kind(**toggles)


def format_variant(variant):
    """Text from which `parse_variant` makes an equal variant: what differs from the defaults, in order."""
    on = [f"{f.name}={getattr(variant, f.name)}" for f in fields(variant) if variant.is_on(f.name)]
    return ",".join(on) or PLAIN
