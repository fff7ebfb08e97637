"""A model's facts and its ``triton:`` section to config.pbtxt: rendered, parsed, compared, and checked by the rules."""
