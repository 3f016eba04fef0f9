"""Draw the figures of the report from rows."""

import sys

from draftledger.provenance.job import Job, run_job


def compute(job: Job) -> None:
    """Write one SVG a figure; an absent metric gives a note, never a failure."""
    from draftledger.figures.stage import draw_figures

    draw_figures(job)


if __name__ == "__main__":
    sys.exit(run_job(compute))
