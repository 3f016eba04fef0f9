rule release:
    """One experiment's results for others: a deterministic archive, and the record that names it."""
    input:
        script=script("release"),
        payloads=payloads(*released(PLAN)),
        manifests=manifests(*ledgered(PLAN)),
        around=payloads(*AROUND),
    output:
        made(f"{R}/release/{PLAN.release['version']}.json"),
    log:
        f"logs/{R}/release.log",
    conda:
        ENV
    params:
        spec=lambda wc: spec("release", checkout=checkout(HOME)),
        code=PLAN.code("release"),
        around=lambda wc: [bytes_of(path) for path in AROUND],
    shell:
        CALL
