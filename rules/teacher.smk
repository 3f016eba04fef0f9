rule teacher:
    """The target's top-k distributions over one run of windows, and the bounds of what was cut off."""
    input:
        script=script("teacher"),
        payloads=payloads(*BASE, f"{R}/windows/{{split}}.parquet"),
        manifests=manifests(*BASE, f"{R}/windows/{{split}}.parquet"),
    output:
        made(
            f"{R}/teacher/{{split}}-{{shard}}.safetensors",
            f"{R}/teacher/{{split}}-{{shard}}.bounds.parquet",
        ),
    log:
        f"logs/{R}/teacher/{{split}}-{{shard}}.log",
    conda:
        ENV
    threads: THREADS
    params:
        spec=lambda wc: spec("teacher", split=wc.split, shard=wc.shard),
        code=PLAN.code("teacher"),
    shell:
        CALL
