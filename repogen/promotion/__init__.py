"""The release desk's decisions: promote a registered version, roll an alias back, tell what served when."""

from repogen.promotion.flow import PromotionRequest, history, promote, rollback

__all__ = ["PromotionRequest", "history", "promote", "rollback"]
