"""Variants as text, for studies: see `sparsekern.naming`."""

from sparsekern.naming import PLAIN, format_variant, parse_variant

__all__ = ["PLAIN", "format_variant", "parse_variant"]
