# draftledger: train, decode and honestly measure speculative-decoding drafters; see README.md.
from snakemake.utils import min_version

min_version("9.27")


if "experiment" not in config:

    configfile: "config/config.yaml"


include: "rules/common.smk"
include: "rules/corpus.smk"
include: "rules/model.smk"
include: "rules/teacher.smk"
include: "rules/train.smk"
include: "rules/evaluate.smk"
include: "rules/summary.smk"
include: "rules/release.smk"


rule all:
    default_target: True
    input:
        made(*PLAN.evidence(), *FIGURES, f"{R}/report.html", f"{R}/SHA256SUMS"),
