rule summary:
    """One row per reported number: estimate, interval, population, verdict, and the digests behind it."""
    input:
        script=script("summary"),
        payloads=payloads(*ROWS),
        manifests=manifests(*ROWS),
        decision=ancient(DECISION),
    output:
        made(
            f"{R}/summary.parquet",
            report(f"{R}/summary.tsv", caption="report/summary.rst", category="Summary"),
            report(f"{R}/summary.html", caption="report/summary.rst", category="Summary"),
        ),
    log:
        f"logs/{R}/summary.log",
    conda:
        ENV
    params:
        spec=spec("summary"),
        code=PLAN.code("summary"),
        decision=bytes_of(DECISION),
    shell:
        CALL


rule figures:
    """The pictures of the report, drawn from rows."""
    input:
        script=script("figures"),
        payloads=payloads(f"{R}/summary.parquet", *COSTS, *HISTORIES),
        manifests=manifests(f"{R}/summary.parquet", *COSTS, *HISTORIES),
    output:
        made(
            report(f"{R}/figures/speedup.svg", caption="report/speedup.rst", category="Speed"),
            report(f"{R}/figures/survival.svg", caption="report/survival.rst", category="Acceptance"),
            report(f"{R}/figures/categories.svg", caption="report/categories.rst", category="Acceptance"),
            report(f"{R}/figures/cycle.svg", caption="report/cycle.rst", category="Cost"),
            report(f"{R}/figures/cost.svg", caption="report/cost.rst", category="Cost"),
            report(f"{R}/figures/learning.svg", caption="report/learning.rst", category="Training"),
        ),
    log:
        f"logs/{R}/figures.log",
    conda:
        ENV
    params:
        spec=spec("figures"),
        code=PLAN.code("figures"),
    shell:
        CALL


rule report:
    """One self-contained page: findings, figures, every number, and where each artefact comes from."""
    input:
        script=script("report"),
        payloads=payloads(*PLAN.evidence(), *FIGURES),
        manifests=manifests(*PLAN.evidence(), *FIGURES),
    output:
        made(f"{R}/report.html"),
    log:
        f"logs/{R}/report.log",
    conda:
        ENV
    params:
        spec=spec("report"),
        code=PLAN.code("report"),
    shell:
        CALL


rule ledger:
    """SHA256SUMS over every payload, manifest and recipe; its sha256 is the root digest."""
    input:
        script=script("ledger"),
        payloads=payloads(*PLAN.evidence(), *FIGURES, f"{R}/report.html"),
        manifests=manifests(*PLAN.evidence(), *FIGURES, f"{R}/report.html"),
    output:
        made(f"{R}/SHA256SUMS"),
    log:
        f"logs/{R}/ledger.log",
    conda:
        ENV
    params:
        spec=spec("ledger"),
        code=PLAN.code("ledger"),
        # Equal payloads may have new recipes, which the sums cover.
        recipes=digest(PLAN.recipes()),
    shell:
        CALL
