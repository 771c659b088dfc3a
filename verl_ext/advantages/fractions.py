"""Settings that must lie in [0, 1]: discounts and λ."""

from __future__ import annotations

from agentgym_rl.errors import ConfigurationError


def require_fractions(**settings: float) -> None:
    """Raise ConfigurationError for the first setting outside [0, 1]."""
    for name, value in settings.items():
        if not 0 <= value <= 1:
            raise ConfigurationError(f"{name} must lie in [0, 1]; given: {value}")
