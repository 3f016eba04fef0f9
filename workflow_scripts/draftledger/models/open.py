"""A job's target: the back end prepared before anything touches MLX, then the model folder loaded."""

from typing import TYPE_CHECKING

from draftledger.errors import ConfigError
from draftledger.models.backend import prepare
from draftledger.provenance.job import Job

if TYPE_CHECKING:
    from draftledger.models.load import Target


def open_target(job: Job) -> "Target":
    """Prepare the job's back end and load its target; import whatever needs MLX only after this.

    Raises ConfigError when the rule gave the job no environment.
    """
    if job.environment is None:
        raise ConfigError("the stage needs environment.json among its inputs; this is a fault, report it")
    prepare(job.environment)
    from draftledger.models.load import load_target

    return load_target(job.input("model/config.json").parent, dtype=job.environment["dtype"])
