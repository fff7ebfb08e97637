"""Example texts for the tokenizer and the ensemble."""

from __future__ import annotations

TEXTS = (
    "The striker scored twice in the second half.",
    "Heavy rain is expected along the coast tonight, with gusts of up to ninety kilometers an hour.",
    "Simmer the lentils with garlic and cumin until they are soft.",
    "The central bank left interest rates unchanged.",
    "Un café, s'il vous plaît — merci!",
    "The goalkeeper saved a penalty in extra time.",
    "Fog will clear by noon.",
    "",
)


def texts(batch: int, seed: int) -> dict[str, list[list[str]]]:
    """Return ``[batch, 1]`` strings; every eighth one is empty."""
    return {"text": [[TEXTS[(seed + row) % len(TEXTS)]] for row in range(batch)]}
