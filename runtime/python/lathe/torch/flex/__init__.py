"""FlexAttention's mods as specs: `flex_attention` calls them, `spec_of` prints them."""

from ._attention import flex_attention, spec_of

__all__ = ["flex_attention", "spec_of"]
