"""Settings of a service, read once from the environment. For services that have pydantic."""

from collections.abc import Mapping
from typing import ClassVar, Self

from pydantic import BaseModel, ConfigDict


class EnvironmentSettings(BaseModel):
    """What an operator of a service sets; a name that is not known is an error."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    prefix: ClassVar[str]

    @classmethod
    def from_environment(cls, environment: Mapping[str, str]) -> Self:
        """The settings that variables with the prefix give; the others have their defaults."""
        return cls.model_validate(
            {
                name.removeprefix(cls.prefix).lower(): value
                for name, value in environment.items()
                if name.startswith(cls.prefix)
            }
        )
