"""A base wired with a model, its own or another: the common start of actions on two models."""

from collections.abc import Iterable

from msgspec import Struct
from msgspec.structs import replace

from duckkb import config
from duckkb.actions.folder import OpenOptions, Unopened
from duckkb.config import Loaded
from duckkb.engine.base import Wiring
from duckkb.engine.index.migrate import fingerprint
from duckkb.errors import Unavailable, shell_word
from duckkb.ontology.model import RecordType
from duckkb.settings import Settings


class ModelSide(Struct, frozen=True):
    """A base with a model.

    `model` is as typed, empty for the base's own; `switch` is the line of config.yaml that would name it.
    """

    loaded: Loaded
    wiring: Wiring
    model: str
    switch: str = ""

    @property
    def settings(self) -> Settings:
        return self.loaded.settings

    @property
    def name(self) -> str:
        """The name of the model as people read it."""
        return self.settings.embedding.model + ("" if self.model else " (configured)")

    def command(self, verb: str) -> str:
        """Return a command about this model, as it would be typed."""
        return f"{verb} {shell_word(self.model)}"


def side(unopened: Unopened, model: str, opening: OpenOptions) -> ModelSide:
    """Return the base with a model as `config.other_model` takes it; empty for its own model.

    Raises as `open`, and `errors.UsageError`.
    """
    configuration, wiring = unopened.wire(unopened.root, opening)
    if not model:
        return ModelSide(configuration, wiring, "")
    other_model = config.other_model(configuration, model)
    configuration, wiring = unopened.wire(unopened.root, replace(opening, embedding=other_model.settings.embedding))
    return ModelSide(configuration, wiring, model, other_model.line)


def fingerprints(sides: Iterable[ModelSide], kind: RecordType) -> set[str]:
    """Return the fingerprints of the models that embed a type's texts on some sides."""
    return {fingerprint(model_side.wiring, kind) for model_side in sides}


def require_trust(one: ModelSide) -> None:
    """Raise `errors.Unavailable` (E_UNTRUSTED) where this machine does not trust the hosts of a model."""
    kinds = one.loaded.ontology
    addresses = [kind.settings(one.settings).embedding.address for kind in kinds]
    if not any(addresses) or config.is_trusted(one.loaded.root, one.settings, one.loaded.env, kinds):
        return
    message = f"The hosts and key variables that {one.name} needs have not been accepted on this machine."
    remedy = one.command("duckkb trust --model") if one.model else "`duckkb trust --show`, then `duckkb trust`"
    raise Unavailable(message, code="E_UNTRUSTED", suggestion=remedy)
